/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "unit_directory.h"
#include "usock.h"

#define PATH_LONGEST (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)
#define WAIT_MSEC 30000

static int accept_one(int fd)
{
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	int accepted;

	ck_assert_int_eq(poll(&poller, 1, WAIT_MSEC), 1);
	accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(accepted, 0);
	return accepted;
}

START_TEST(connects_and_knows_the_peer)
{
	_cleanup_close_ int server = -EBADF, client = -EBADF, accepted = -EBADF;
	const char *path = unit_path("socket");
	struct usock_peer who;

	ck_assert_int_eq(usock_listen(path, 0600, &server), 0);
	ck_assert_int_eq(usock_connect(path, &client), 0);
	accepted = accept_one(server);
	ck_assert_int_eq(usock_peer_init(&who, accepted), 0);
	ck_assert_int_eq(who.pid, getpid());
	ck_assert_uint_eq(who.uid, geteuid());
	ck_assert_uint_eq(who.gid, getegid());
	ck_assert_int_ge(who.pidfd, 0);
	ck_assert_int_ne(fcntl(who.pidfd, F_GETFD) & FD_CLOEXEC, 0);
	usock_peer_done(&who);
	ck_assert_int_eq(who.pidfd, -EBADF);
	usock_peer_done(&who);
}
END_TEST

START_TEST(tells_when_the_peer_ends)
{
	_cleanup_close_ int server = -EBADF, accepted = -EBADF;
	const char *path = unit_path("socket");
	struct pollfd poller = {.events = POLLIN};
	struct usock_peer who;
	int go[2], status;
	pid_t child;

	ck_assert_int_eq(usock_listen(path, 0600, &server), 0);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		int fd = -EBADF;
		char c;

		(void)close(go[1]);
		_exit(usock_connect(path, &fd) == 0 && read(go[0], &c, 1) == 0 ? 0 : 1);
	}
	(void)close(go[0]);
	accepted = accept_one(server);
	ck_assert_int_eq(usock_peer_init(&who, accepted), 0);
	ck_assert_int_eq(who.pid, child);
	poller.fd = who.pidfd;
	ck_assert_int_eq(poll(&poller, 1, 0), 0);
	(void)close(go[1]);
	ck_assert_int_eq(poll(&poller, 1, WAIT_MSEC), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	usock_peer_done(&who);
}
END_TEST

START_TEST(reads_supplementary_groups)
{
	_cleanup_close_ int server = -EBADF, accepted = -EBADF;
	const gid_t groups[] = {7001, 7002, 7003};
	const char *path = unit_path("socket");
	struct usock_peer who;
	int status;
	pid_t child;

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(usock_listen(path, 0666, &server), 0);
	child = fork();
	if (child == 0) {
		int fd = -EBADF;
		char c;

		if (setgroups(ELEMENTSOF(groups), groups) < 0 || setgid(6001) < 0 ||
		    setuid(5001) < 0 || usock_connect(path, &fd) < 0)
			_exit(1);
		_exit(read(fd, &c, 1) == 0 ? 0 : 1);
	}
	accepted = accept_one(server);
	ck_assert_int_eq(usock_peer_init(&who, accepted), 0);
	ck_assert_uint_eq(who.uid, 5001);
	ck_assert_uint_eq(who.gid, 6001);
	ck_assert_uint_eq(who.n_groups, ELEMENTSOF(groups));
	for (size_t i = 0; i < ELEMENTSOF(groups); i++)
		ck_assert_uint_eq(who.groups[i], groups[i]);
	usock_peer_done(&who);
	accepted = safe_close(accepted);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

static const mode_t modes[] = {0600, 0660, 0666};

START_TEST(sets_the_mode_whatever_the_umask)
{
	_cleanup_close_ int server = -EBADF;
	const char *path = unit_path("socket");
	mode_t before = umask(077);
	struct stat st;

	ck_assert_int_eq(usock_listen(path, modes[_i], &server), 0);
	(void)umask(before);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, modes[_i]);
	ck_assert_int_ne(fcntl(server, F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_ne(fcntl(server, F_GETFL) & O_NONBLOCK, 0);
}
END_TEST

START_TEST(replaces_an_old_socket)
{
	_cleanup_close_ int old = -EBADF, server = -EBADF, client = -EBADF;
	const char *path = unit_path("socket");

	ck_assert_int_eq(usock_connect(path, &client), -ENOENT);
	ck_assert_int_eq(usock_listen(path, 0600, &old), 0);
	old = safe_close(old);
	ck_assert_int_eq(usock_connect(path, &client), -ECONNREFUSED);
	ck_assert_int_eq(client, -EBADF);
	ck_assert_int_eq(usock_listen(path, 0600, &server), 0);
	ck_assert_int_eq(usock_connect(path, &client), 0);
}
END_TEST

START_TEST(leaves_directories_alone)
{
	const char *path = unit_path("socket");
	int server = -EBADF;

	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_lt(usock_listen(path, 0600, &server), 0);
	ck_assert_int_eq(server, -EBADF);
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(knows_the_longest_path)
{
	_cleanup_close_ int server = -EBADF, client = -EBADF;
	char path[PATH_LONGEST + 2];
	size_t length = (size_t)snprintf(path, sizeof(path), "%s/", unit_directory);

	memset(path + length, 'x', sizeof(path) - length);
	path[PATH_LONGEST + 1] = '\0';
	ck_assert_int_eq(usock_listen(path, 0600, &server), -ENAMETOOLONG);
	ck_assert_int_eq(usock_connect(path, &client), -ENAMETOOLONG);
	path[PATH_LONGEST] = '\0';
	ck_assert_int_eq(usock_listen(path, 0600, &server), 0);
	ck_assert_int_eq(usock_connect(path, &client), 0);
}
END_TEST

START_TEST(asks_only_sockets)
{
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct usock_peer who;

	ck_assert_int_eq(usock_peer_init(&who, null), -ENOTSOCK);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("usock");

	tcase_add_checked_fixture(tcase, unit_directory_setup, unit_directory_teardown);
	tcase_add_test(tcase, connects_and_knows_the_peer);
	tcase_add_test(tcase, tells_when_the_peer_ends);
	tcase_add_test(tcase, reads_supplementary_groups);
	unit_add_table(tcase, sets_the_mode_whatever_the_umask, modes);
	tcase_add_test(tcase, replaces_an_old_socket);
	tcase_add_test(tcase, leaves_directories_alone);
	tcase_add_test(tcase, knows_the_longest_path);
	tcase_add_test(tcase, asks_only_sockets);
	return unit_run("usock", tcase);
}
