/* SPDX-License-Identifier: MIT */
#include <acl/libacl.h>
#include <fcntl.h>
#include <sys/acl.h>
#include <sys/wait.h>

#include "rundir.h"
#include "unit_directory.h"
#include "usock.h"

#define HOLDER 5001

static struct rundir rundir;
static char where[PATH_MAX], runtime[PATH_MAX], pipe_directory[PATH_MAX];

static void setup(void)
{
	unit_directory_setup();
	(void)text_copy(runtime, sizeof(runtime), unit_path("run"));
	(void)text_copy(pipe_directory, sizeof(pipe_directory), unit_path("run/instance/12345678"));
	rundir = (struct rundir){.lock_fd = -EBADF};
}

static void teardown(void)
{
	rundir_close(&rundir);
	unit_directory_teardown();
}

static void open_runtime(void)
{
	int r = rundir_open(&rundir, runtime, where, sizeof(where));

	ck_assert_msg(r == 0, "%s: %s", where, strerror(-r));
}

static void expect_mode(const char *path, mode_t mode)
{
	struct stat st;

	ck_assert_msg(lstat(path, &st) == 0, "%s is not there", path);
	ck_assert_msg(st.st_mode == mode, "%s has mode %o", path, st.st_mode);
}

static int exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* A pipe directory with a socket `control`, as a daemon makes it. */
static ino_t make_pipe_directory(void)
{
	char path[PATH_MAX + 16];
	struct stat st;
	pid_t daemon;
	int fd;

	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	(void)text_format(path, sizeof(path), "%s/control", pipe_directory);
	ck_assert_int_eq(usock_listen(path, 0666, &fd), 0);
	(void)close(fd);
	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_ino;
}

START_TEST(makes_its_directories)
{
	mode_t before = umask(077);

	open_runtime();
	(void)umask(before);
	expect_mode(runtime, S_IFDIR | 0755);
	expect_mode(unit_path("run/instance"), S_IFDIR | 0711);
	expect_mode(unit_path("run/lease"), S_IFDIR | 0711);
	expect_mode(unit_path("run/state"), S_IFDIR | 0700);
	expect_mode(unit_path("run/lock"), S_IFREG | 0600);
	ck_assert_str_eq(rundir.path, runtime);
	rundir_close(&rundir);
	ck_assert_int_eq(rundir.lock_fd, -EBADF);
	rundir_close(&rundir);
	ck_assert(!exists(unit_path("run/instance")));
	ck_assert(!exists(unit_path("run/lock")));
}
END_TEST

START_TEST(corrects_modes_and_keeps_what_is_in_use)
{
	ck_assert_int_eq(mkdir(runtime, 0700), 0);
	ck_assert_int_eq(mkdir(unit_path("run/instance"), 0777), 0);
	ck_assert_int_eq(mkdir(unit_path("run/instance/x"), 0700), 0);
	open_runtime();
	expect_mode(runtime, S_IFDIR | 0755);
	expect_mode(unit_path("run/instance"), S_IFDIR | 0711);
	rundir_close(&rundir);
	ck_assert(exists(unit_path("run/instance/x")));
}
END_TEST

static bool is_that_one(const char *name, void *userdata)
{
	return streq(name, userdata);
}

START_TEST(clears_old_leases)
{
	char known[] = "c";

	ck_assert_int_eq(mkdir(runtime, 0755), 0);
	ck_assert_int_eq(mkdir(unit_path("run/lease"), 0755), 0);
	ck_assert_int_eq(mkdir(unit_path("run/lease/a"), 0700), 0);
	ck_assert_int_eq(mkdir(unit_path("run/lease/b"), 0700), 0);
	(void)unit_write("run/lease/b/control", "");
	ck_assert_int_eq(mkdir(unit_path("run/lease/c"), 0700), 0);
	(void)unit_write("run/lease/c/control", "");
	open_runtime();
	ck_assert(exists(unit_path("run/lease/b/control")));
	rundir_clear_leases(unit_path("run/lease"), is_that_one, known);
	ck_assert(!exists(unit_path("run/lease/a")));
	ck_assert(!exists(unit_path("run/lease/b")));
	ck_assert(exists(unit_path("run/lease/c/control")));
	rundir_clear_leases(unit_path("run/missing"), is_that_one, known);
}
END_TEST

START_TEST(only_one_supervisor)
{
	int go[2], ready[2], status;
	pid_t other;
	char c;

	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	other = fork();
	if (other == 0) {
		int r = rundir_open(&rundir, runtime, where, sizeof(where));

		(void)close(go[1]);
		_exit(r == 0 && write(ready[1], "", 1) == 1 && read(go[0], &c, 1) == 0 ? 0 : 1);
	}
	(void)close(ready[1]);
	(void)close(go[0]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ck_assert_int_eq(rundir_open(&rundir, runtime, where, sizeof(where)), -EBUSY);
	ck_assert_str_eq(where, unit_path("run/lock"));
	rundir_close(&rundir);
	ck_assert(exists(unit_path("run/lock")));
	(void)close(go[1]);
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert_int_eq(status, 0);
	(void)close(ready[0]);
	/* It died without a word: its lock died with it. */
	open_runtime();
}
END_TEST

static const char *const replaced[] = {"run", "run/instance", "run/lease", "run/state", "run/lock"};

START_TEST(follows_no_link)
{
	ck_assert_int_eq(mkdir(unit_path("elsewhere"), 0755), 0);
	if (_i > 0)
		ck_assert_int_eq(mkdir(runtime, 0755), 0);
	ck_assert_int_eq(symlink(unit_path("elsewhere"), unit_path(replaced[_i])), 0);
	ck_assert_int_lt(rundir_open(&rundir, runtime, where, sizeof(where)), 0);
	ck_assert_str_eq(where, unit_path(replaced[_i]));
	expect_mode(unit_path("elsewhere"), S_IFDIR | 0755);
}
END_TEST

START_TEST(takes_nobody_elses_directory)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(mkdir(runtime, 0755), 0);
	ck_assert_int_eq(chown(runtime, HOLDER, HOLDER), 0);
	ck_assert_int_eq(rundir_open(&rundir, runtime, where, sizeof(where)), -EPERM);
	ck_assert_str_eq(where, runtime);
}
END_TEST

START_TEST(says_where_it_failed)
{
	char long_path[PIPE_DIRECTORY_MAX + 2];

	ck_assert_int_eq(rundir_open(&rundir, unit_write("file", "x"), where, sizeof(where)),
			 -ENOTDIR);
	ck_assert_str_eq(where, unit_path("file"));
	ck_assert_int_eq(rundir_open(&rundir, unit_path("no/run"), where, sizeof(where)), -ENOENT);
	memset(long_path, 'x', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	ck_assert_int_eq(rundir_open(&rundir, long_path, where, sizeof(where)), -ENAMETOOLONG);
}
END_TEST

START_TEST(names_are_short_and_stable)
{
	char a[9], b[9];

	rundir_short_name("GPU-b7d16b43-343f-212a-e551-c0680b0e9dae", a);
	rundir_short_name("GPU-b7d16b43-343f-212a-e551-c0680b0e9dae", b);
	ck_assert_str_eq(a, b);
	ck_assert_uint_eq(strspn(a, "0123456789abcdef"), 8);
	rundir_short_name("GPU-b5ac4600-c672-7b7d-ffee-32e53491ee58", b);
	ck_assert_str_ne(a, b);
	rundir_short_name("", a);
	ck_assert_str_eq(a, "811c9dc5");
}
END_TEST

START_TEST(prepares_an_instance)
{
	pid_t daemon = 4711;

	open_runtime();
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	ck_assert_int_eq(daemon, 0);
	expect_mode(pipe_directory, S_IFDIR | 0700);
	/* What a killed daemon leaves. */
	(void)make_pipe_directory();
	(void)unit_write("run/instance/12345678/control_lock", "");
	(void)unit_write("run/instance/12345678/nvidia-cuda-mps-control.pid", "1");
	ck_assert_int_eq(mkfifo(unit_path("run/instance/12345678/log"), 0777), 0);
	ck_assert_int_eq(symlink(unit_path("run/lock"), unit_path("run/instance/12345678/link")),
			 0);
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	ck_assert_int_eq(daemon, 0);
	ck_assert(exists(unit_path("run/lock")));
	ck_assert_int_eq(rmdir(pipe_directory), 0); /* empty */
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	(void)unit_write("run/instance/12345678/control", "");
	rundir_remove_instance(pipe_directory);
	ck_assert(!exists(pipe_directory));
	rundir_remove_instance(pipe_directory);
}
END_TEST

START_TEST(finds_a_daemon_by_its_lock)
{
	int ready[2], status;
	pid_t holder, daemon = 4711;
	const char *lock;
	char c;

	open_runtime();
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	lock = unit_write("run/instance/12345678/control_lock", "");
	(void)unit_write("run/instance/12345678/nvidia-cuda-mps-control.pid", "1");
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	holder = fork();
	if (holder == 0) {
		struct flock wanted = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		int fd = open(lock, O_RDWR | O_CLOEXEC);

		if (fcntl(fd, F_SETLK, &wanted) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	ck_assert_int_eq(daemon, holder);
	ck_assert(exists(lock));
	ck_assert(exists(unit_path("run/instance/12345678/nvidia-cuda-mps-control.pid")));
	ck_assert_int_eq(kill(holder, SIGKILL), 0);
	ck_assert_int_eq(waitpid(holder, &status, 0), holder);
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	ck_assert_int_eq(daemon, 0);
	ck_assert(!exists(lock));
	(void)close(ready[0]);
	(void)close(ready[1]);
}
END_TEST

/* The permission bits (4 read, 2 write, 1 execute) that uid has by the list; -1 without an entry.
 */
static int permission_of(acl_t acl, uid_t uid, int *n_users)
{
	int found = -1, which = ACL_FIRST_ENTRY;
	acl_entry_t entry;

	*n_users = 0;
	while (acl_get_entry(acl, which, &entry) == 1) {
		acl_permset_t set;
		acl_tag_t tag;
		uid_t *qualifier;

		which = ACL_NEXT_ENTRY;
		ck_assert_int_eq(acl_get_tag_type(entry, &tag), 0);
		if (tag != ACL_USER)
			continue;
		(*n_users)++;
		qualifier = acl_get_qualifier(entry);
		ck_assert_int_eq(acl_get_permset(entry, &set), 0);
		if (*qualifier == uid)
			found = acl_get_perm(set, ACL_READ) << 2 |
				acl_get_perm(set, ACL_WRITE) << 1 | acl_get_perm(set, ACL_EXECUTE);
		(void)acl_free(qualifier);
	}
	return found;
}

static void expect_access(const uid_t *uids, size_t n)
{
	acl_t acl = acl_get_file(pipe_directory, ACL_TYPE_ACCESS);
	int n_users = 0;

	ck_assert_ptr_nonnull(acl);
	(void)permission_of(acl, 0, &n_users);
	ck_assert_int_eq(n_users, (int)n);
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(permission_of(acl, uids[i], &n_users), 1);
	(void)acl_free(acl);
}

START_TEST(opens_to_some_users)
{
	const uid_t uids[] = {5001, 5002, 65534, 4294967294u}, own[] = {geteuid(), 5003};
	pid_t daemon;
	int r;

	open_runtime();
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	r = rundir_set_access(pipe_directory, uids, ELEMENTSOF(uids));
	if (r == -EOPNOTSUPP)
		return;
	ck_assert_int_eq(r, 0);
	expect_access(uids, ELEMENTSOF(uids));
	expect_mode(pipe_directory, S_IFDIR | 0710); /* the mask stands where the group does */
	ck_assert_int_eq(rundir_set_access(pipe_directory, uids + 1, 1), 0);
	expect_access(uids + 1, 1);
	ck_assert_int_eq(rundir_set_access(pipe_directory, own, 2), 0);
	expect_access(own + 1, 1);
	ck_assert_int_eq(rundir_set_access(pipe_directory, own, 1), 0);
	expect_access(NULL, 0);
	ck_assert_int_eq(rundir_set_access(pipe_directory, uids, 1), 0);
	ck_assert_int_eq(rundir_set_access(pipe_directory, NULL, 0), 0);
	expect_access(NULL, 0);
	expect_mode(pipe_directory, S_IFDIR | 0700);
	ck_assert_int_eq(rundir_set_access(unit_path("missing"), uids, 1), -ENOENT);
}
END_TEST

START_TEST(opens_to_very_many_users)
{
	static uid_t uids[1024];
	pid_t daemon;
	int r;

	for (size_t i = 0; i < ELEMENTSOF(uids); i++)
		uids[i] = (uid_t)(10000 + i);
	open_runtime();
	ck_assert_int_eq(rundir_prepare_instance(pipe_directory, &daemon), 0);
	/* A file system may have room for fewer (ext4: about 500); then it says so. */
	r = rundir_set_access(pipe_directory, uids, ELEMENTSOF(uids));
	ck_assert(r == 0 || r == -ENOSPC || r == -EOPNOTSUPP || r == -E2BIG);
}
END_TEST

START_TEST(makes_a_lease_directory)
{
	const char *lease = unit_path("run/lease/0badcafe");
	const char *link = unit_path("run/lease/0badcafe/control");
	uid_t holder = geteuid() == 0 ? HOLDER : geteuid();
	struct stat st;
	ino_t inode;

	open_runtime();
	inode = make_pipe_directory();
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, holder), 0);
	expect_mode(lease, S_IFDIR | 0700);
	ck_assert_int_eq(stat(lease, &st), 0);
	ck_assert_uint_eq(st.st_uid, holder);
	ck_assert_int_eq(lstat(link, &st), 0);
	ck_assert_uint_eq(st.st_ino, inode);
	ck_assert(S_ISSOCK(st.st_mode));
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, holder), -EEXIST);
	ck_assert(exists(link));
	rundir_remove_lease(lease);
	ck_assert(!exists(lease));
	rundir_remove_lease(lease);
}
END_TEST

START_TEST(leaves_nothing_of_a_failed_lease)
{
	const char *lease = unit_path("run/lease/0badcafe");

	open_runtime();
	ck_assert_int_eq(rundir_make_lease(lease, unit_path("missing"), geteuid()), -ENOENT);
	ck_assert(!exists(lease));
}
END_TEST

START_TEST(renews_a_lease)
{
	const char *lease = unit_path("run/lease/0badcafe");
	const char *link = unit_path("run/lease/0badcafe/control");
	ino_t before, after;
	struct stat st;

	open_runtime();
	before = make_pipe_directory();
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, geteuid()), 0);
	after = make_pipe_directory();
	(void)unit_write("run/lease/0badcafe/.control", "half done");
	ck_assert_int_eq(rundir_renew_lease(lease, pipe_directory), 0);
	ck_assert_int_eq(stat(link, &st), 0);
	ck_assert_uint_eq(st.st_ino, after);
	ck_assert(before != after);
	ck_assert(!exists(unit_path("run/lease/0badcafe/.control")));
	/* No socket: the old link stays as it was. */
	rundir_remove_instance(pipe_directory);
	ck_assert_int_eq(rundir_renew_lease(lease, pipe_directory), -ENOENT);
	ck_assert(exists(link));
	ck_assert_int_eq(rundir_renew_lease(unit_path("run/lease/missing"), pipe_directory),
			 -ENOENT);
}
END_TEST

/* The directory is its holder's, who may put anything there: the way in must close all the same. */
START_TEST(removes_a_lease_with_all_that_its_holder_put_there)
{
	const char *lease = unit_path("run/lease/0badcafe");

	open_runtime();
	(void)make_pipe_directory();
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, geteuid()), 0);
	ck_assert_int_eq(mkdir(unit_path("run/lease/0badcafe/kept"), 0700), 0);
	ck_assert_int_eq(rename(unit_path("run/lease/0badcafe/control"),
				unit_path("run/lease/0badcafe/kept/control")),
			 0);
	rundir_remove_lease(lease);
	ck_assert_msg(!exists(unit_path("run/lease/0badcafe/kept/control")),
		      "a link to the daemon is left");
	ck_assert(!exists(lease));
}
END_TEST

START_TEST(removes_the_link_whatever_stands_beside_it)
{
	const char *lease = unit_path("run/lease/0badcafe");

	open_runtime();
	(void)make_pipe_directory();
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, geteuid()), 0);
	for (int i = 0; i < 20; i++) {
		char name[64];

		(void)text_format(name, sizeof(name), "run/lease/0badcafe/%d", i);
		ck_assert_int_eq(mkdir(unit_path(name), 0700), 0);
	}
	rundir_remove_lease(lease);
	ck_assert(!exists(unit_path("run/lease/0badcafe/control")));
}
END_TEST

/* Its holder is gone, and clients that are left have their sockets open. */
START_TEST(closes_a_lease)
{
	const char *lease = unit_path("run/lease/0badcafe");
	const char *link = unit_path("run/lease/0badcafe/control");
	const char *kept = unit_write("kept", "x");
	uid_t holder = geteuid() == 0 ? HOLDER : geteuid();
	struct stat st;

	open_runtime();
	(void)make_pipe_directory();
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, holder), 0);
	ck_assert_int_eq(mkdir(unit_path("run/lease/0badcafe/own"), 0700), 0);
	ck_assert_int_eq(symlink(unit_directory, unit_path("run/lease/0badcafe/out")), 0);
	ck_assert_int_eq(rename(link, unit_path("run/lease/0badcafe/own/control")), 0);
	ck_assert_int_eq(rundir_renew_lease(lease, pipe_directory), 0);
	rundir_close_lease(lease);
	ck_assert(!exists(link));
	ck_assert(!exists(unit_path("run/lease/0badcafe/own/control")));
	expect_mode(lease, S_IFDIR | 0700);
	ck_assert_int_eq(stat(lease, &st), 0);
	ck_assert_uint_eq(st.st_uid, holder);
	ck_assert(exists(kept));
	ck_assert(exists(pipe_directory));
	ck_assert(exists(unit_path("run/lease")));
	rundir_close_lease(lease);
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, holder), -EEXIST);
	rundir_remove_lease(lease);
	ck_assert(!exists(lease));
	rundir_close_lease(lease);
	ck_assert(!exists(lease));
}
END_TEST

START_TEST(removes_no_more_than_the_lease)
{
	const char *lease = unit_path("run/lease/0badcafe");
	const char *kept = unit_write("kept", "x");

	open_runtime();
	(void)make_pipe_directory();
	ck_assert_int_eq(rundir_make_lease(lease, pipe_directory, geteuid()), 0);
	ck_assert_int_eq(symlink(unit_directory, unit_path("run/lease/0badcafe/out")), 0);
	ck_assert_int_eq(symlink(kept, unit_path("run/lease/0badcafe/file")), 0);
	rundir_remove_lease(lease);
	ck_assert(!exists(lease));
	ck_assert(exists(kept));
	ck_assert(exists(pipe_directory));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("rundir");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, makes_its_directories);
	tcase_add_test(tcase, corrects_modes_and_keeps_what_is_in_use);
	tcase_add_test(tcase, clears_old_leases);
	tcase_add_test(tcase, only_one_supervisor);
	unit_add_table(tcase, follows_no_link, replaced);
	tcase_add_test(tcase, takes_nobody_elses_directory);
	tcase_add_test(tcase, says_where_it_failed);
	tcase_add_test(tcase, names_are_short_and_stable);
	tcase_add_test(tcase, prepares_an_instance);
	tcase_add_test(tcase, finds_a_daemon_by_its_lock);
	tcase_add_test(tcase, opens_to_some_users);
	tcase_add_test(tcase, opens_to_very_many_users);
	tcase_add_test(tcase, makes_a_lease_directory);
	tcase_add_test(tcase, leaves_nothing_of_a_failed_lease);
	tcase_add_test(tcase, renews_a_lease);
	tcase_add_test(tcase, removes_a_lease_with_all_that_its_holder_put_there);
	tcase_add_test(tcase, removes_the_link_whatever_stands_beside_it);
	tcase_add_test(tcase, closes_a_lease);
	tcase_add_test(tcase, removes_no_more_than_the_lease);
	return unit_run("rundir", tcase);
}
