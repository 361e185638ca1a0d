/* SPDX-License-Identifier: MIT */
#include <linux/close_range.h>
#include <poll.h>
#include <sys/wait.h>

#include "spawn.h"
#include "unit_spawn.h"

static char said[8192];

/* Runs it to its end; what it printed is in said. */
static int run(const char *path, char *const *argv, char *const *envp, bool own_session)
{
	const char *output = unit_path("output");
	_cleanup_close_ int fd = open(output, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int pidfd = -EBADF, status = -1, r;
	pid_t pid = -1;

	ck_assert_int_ge(fd, 0);
	r = spawn_process(
		&(struct spawn){
			.path = path,
			.argv = argv,
			.envp = envp,
			.stdin_fd = -EBADF,
			.stdout_fd = fd,
			.stderr_fd = fd,
			.own_session = own_session,
		},
		&pid, &pidfd);
	if (r < 0) {
		ck_assert_int_eq(pidfd, -EBADF);
		ck_assert_int_eq(pid, -1);
		return r;
	}
	ck_assert_int_ge(pidfd, 0);
	ck_assert_int_ne(fcntl(pidfd, F_GETFD) & FD_CLOEXEC, 0);
	(void)safe_close(pidfd);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	(void)unit_read(output, said, sizeof(said));
	return status;
}

static int run_shell(const char *script)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
	char *envp[] = {(char *)"PATH=/usr/bin:/bin", NULL};

	return run("/bin/sh", argv, envp, false);
}

START_TEST(gives_just_this_environment)
{
	char *argv[] = {(char *)"env", NULL}, *none[] = {NULL};
	char *envp[] = {(char *)"CUDA_MPS_PIPE_DIRECTORY=/run/x", (char *)"A=b c", NULL};

	ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", "3", 1), 0);
	ck_assert_int_eq(run("/usr/bin/env", argv, envp, false), 0);
	ck_assert_str_eq(said, "CUDA_MPS_PIPE_DIRECTORY=/run/x\nA=b c\n");
	ck_assert_int_eq(run("/usr/bin/env", argv, none, false), 0);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(leaks_no_descriptor)
{
	char *argv[] = {(char *)"ls", (char *)"/proc/self/fd", NULL}, *none[] = {NULL};
	_cleanup_close_ int own = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(own, 0);
	/* Whoever runs the tests may have left some. */
	ck_assert_int_eq(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC), 0);
	ck_assert_int_eq(run("/bin/ls", argv, none, false), 0);
	/* 3 is the directory that ls reads. */
	ck_assert_str_eq(said, "0\n1\n2\n3\n");
}
END_TEST

START_TEST(reads_nothing_without_input)
{
	ck_assert_int_eq(run_shell("cat; readlink /proc/$$/fd/0"), 0);
	ck_assert_str_eq(said, "/dev/null\n");
}
END_TEST

START_TEST(resets_signals)
{
	unsigned long long blocked, ignored;
	sigset_t mask, before;

	(void)sigfillset(&mask);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &mask, &before), 0);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGRTMIN + 1, SIG_IGN);
	ck_assert_int_eq(run_shell("grep -E '^Sig(Blk|Ign)' /proc/self/status"), 0);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	(void)signal(SIGRTMIN + 1, SIG_DFL);
	ck_assert_int_eq(sigprocmask(SIG_SETMASK, &before, NULL), 0);
	ck_assert_int_eq(sscanf(said, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
	ck_assert_uint_eq(blocked, 0);
	/* 32 and 33 are the C library's own: nobody can set them, and programs that posix_spawn(3)
	 * starts (make does) have them ignored. */
	ck_assert_uint_eq(ignored & ~0x180000000ull, 0);
}
END_TEST

START_TEST(stands_in_the_root_with_a_plain_umask)
{
	mode_t before = umask(0);

	ck_assert_int_eq(run_shell("pwd; umask"), 0);
	(void)umask(before);
	ck_assert_str_eq(said, "/\n0022\n");
}
END_TEST

START_TEST(gives_a_session_on_request)
{
	char *argv[] = {(char *)"sh", (char *)"-c",
			(char *)"read -r pid x x x x sid x < /proc/$$/stat; echo $pid $sid", NULL};
	char *none[] = {NULL};
	int pid, session;

	for (int own = 0; own < 2; own++) {
		ck_assert_int_eq(run("/bin/sh", argv, none, own), 0);
		ck_assert_int_eq(sscanf(said, "%d %d", &pid, &session), 2);
		ck_assert_int_eq(session, own ? pid : getsid(0));
	}
}
END_TEST

START_TEST(dies_with_its_parent)
{
	struct pollfd poller = {.events = POLLIN};
	const char *path = unit_path("fifo");
	char script[PATH_MAX + 64], c;
	int pidfd, status;
	pid_t middle;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	poller.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(poller.fd, 0);
	(void)text_format(script, sizeof(script), "exec > %s; echo; kill -STOP $$", path);
	middle = fork();
	if (middle == 0) {
		char *argv[] = {(char *)"sh", (char *)"-c", script, NULL}, *none[] = {NULL};
		const struct spawn spawn = {
			.path = "/bin/sh",
			.argv = argv,
			.envp = none,
			.stdin_fd = -EBADF,
			.stdout_fd = -EBADF,
			.stderr_fd = -EBADF,
			.die_with_parent = true,
		};
		pid_t pid;

		_exit(spawn_process(&spawn, &pid, &pidfd) == 0 &&
				      waitpid(pid, NULL, WUNTRACED) == pid
			      ? 0
			      : 1);
	}
	ck_assert_int_eq(waitpid(middle, &status, 0), middle);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(poller.fd, &c, 1), 1);
	/* Its end of the FIFO closes when it dies, and not before. */
	ck_assert_int_eq(poll(&poller, 1, (int)(UNIT_WAIT_USEC / 1000)), 1);
	ck_assert_int_eq(read(poller.fd, &c, 1), 0);
	(void)close(poller.fd);
}
END_TEST

static const struct {
	const char *path;
	int r;
} failures[] = {
	{"/nonexistent", -ENOENT},
	{"/dev/null", -EACCES},
	{"/", -EACCES},
	{"", -ENOENT},
};

START_TEST(tells_a_failed_start)
{
	char *argv[] = {(char *)"x", NULL}, *none[] = {NULL};

	ck_assert_int_eq(run(failures[_i].path, argv, none, false), failures[_i].r);
	/* No child is left. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}
END_TEST

START_TEST(tells_a_bad_format)
{
	char *argv[] = {(char *)"x", NULL}, *none[] = {NULL};
	const char *path = unit_write_bytes("x",
					    "\x7f"
					    "ELF",
					    4, 0755);

	ck_assert_int_eq(run(path, argv, none, false), -ENOEXEC);
}
END_TEST

static const int statuses[] = {0, 1, 3, 127, 255};

START_TEST(keeps_the_status)
{
	char script[32];

	(void)text_format(script, sizeof(script), "exit %d", statuses[_i]);
	ck_assert_int_eq(run_shell(script), statuses[_i] << 8);
}
END_TEST

/* A daemon started with its standard streams closed gets their numbers for its own files. */
START_TEST(survives_closed_standard_streams)
{
	const char *output = unit_path("closed");
	pid_t middle = fork();
	int status;

	if (middle == 0) {
		char *argv[] = {(char *)"sh", (char *)"-c", (char *)"cat && echo fine", NULL};
		char *none[] = {NULL};
		pid_t pid;
		int fd, pidfd, child_status = -1;

		for (int i = 0; i < 3; i++)
			(void)close(i);
		fd = open(output, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* is 0 now */
		if (spawn_process(
			    &(struct spawn){
				    .path = "/bin/sh",
				    .argv = argv,
				    .envp = none,
				    .stdin_fd = -EBADF,
				    .stdout_fd = fd,
				    .stderr_fd = fd,
			    },
			    &pid, &pidfd) < 0)
			_exit(2);
		(void)waitpid(pid, &child_status, 0);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(middle, &status, 0), middle);
	ck_assert_int_eq(status, 0);
	(void)unit_read(output, said, sizeof(said));
	unit_assert_contains(said, "fine\n");
}
END_TEST

START_TEST(finds_programs)
{
	char path[PATH_MAX] = "", small[4], search[PATH_MAX + 32];
	const char *program = unit_write_script("mps-unit-program", "exit 0");

	(void)text_format(search, sizeof(search), "relative::/nonexistent:%s", unit_directory);
	ck_assert_int_eq(setenv("PATH", search, 1), 0);
	ck_assert_int_eq(spawn_find_program("mps-unit-program", path, sizeof(path)), 0);
	ck_assert_str_eq(path, program);
	ck_assert_int_eq(spawn_find_program("mps-unit-program", small, sizeof(small)),
			 -ENAMETOOLONG);
	ck_assert_int_eq(spawn_find_program(program, path, sizeof(path)), 0);
	ck_assert_str_eq(path, program);
	ck_assert_int_eq(spawn_find_program("mps-unit-other", path, sizeof(path)), -ENOENT);
	ck_assert_int_eq(spawn_find_program("/nonexistent/x", path, sizeof(path)), -ENOENT);
	ck_assert_int_eq(spawn_find_program(unit_directory, path, sizeof(path)), -EACCES);
	ck_assert_int_eq(spawn_find_program(unit_write("text", "x"), path, sizeof(path)), -EACCES);
	(void)unit_write("not-executable", "x");
	ck_assert_int_eq(spawn_find_program("not-executable", path, sizeof(path)), -ENOENT);
	ck_assert_int_eq(mkdir(unit_path("directory"), 0755), 0);
	ck_assert_int_eq(spawn_find_program("directory", path, sizeof(path)), -ENOENT);
	/* A link keeps its name. */
	ck_assert_int_eq(symlink(program, unit_path("link")), 0);
	ck_assert_int_eq(spawn_find_program(unit_path("link"), path, sizeof(path)), 0);
	ck_assert_str_eq(path, unit_path("link"));
	ck_assert_int_eq(chdir(unit_directory), 0);
	ck_assert_int_eq(spawn_find_program("./mps-unit-program", path, sizeof(path)), 0);
	ck_assert_int_eq(chdir("/"), 0);
	ck_assert_str_eq(path, program);
	ck_assert_int_eq(unsetenv("PATH"), 0);
	ck_assert_int_eq(spawn_find_program("sh", path, sizeof(path)), 0);
	ck_assert_int_eq(path[0], '/');
}
END_TEST

int main(void)
{
	TCase *tcase;

	if (!unit_has_pidfds())
		return EXIT_SUCCESS;
	tcase = tcase_create("spawn");
	tcase_add_checked_fixture(tcase, unit_directory_setup, unit_directory_teardown);
	tcase_add_test(tcase, gives_just_this_environment);
	tcase_add_test(tcase, leaks_no_descriptor);
	tcase_add_test(tcase, reads_nothing_without_input);
	tcase_add_test(tcase, resets_signals);
	tcase_add_test(tcase, stands_in_the_root_with_a_plain_umask);
	tcase_add_test(tcase, gives_a_session_on_request);
	tcase_add_test(tcase, dies_with_its_parent);
	unit_add_table(tcase, tells_a_failed_start, failures);
	tcase_add_test(tcase, tells_a_bad_format);
	unit_add_table(tcase, keeps_the_status, statuses);
	tcase_add_test(tcase, survives_closed_standard_streams);
	tcase_add_test(tcase, finds_programs);
	return unit_run("spawn", tcase);
}
