/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>

#include "process.h"
#include "procinfo.h"
#include "unit_spawn.h"

static struct process process;
static int n_exits, last_status;

static void setup(void)
{
	unit_loop_setup();
	process = PROCESS_INIT;
	n_exits = 0;
	last_status = 4711;
}

static void on_exit_of_child(struct process *exited, int status, void *userdata)
{
	ck_assert_ptr_eq(userdata, &n_exits);
	ck_assert(!process_is_watched(exited));
	n_exits++;
	last_status = status;
}

static pid_t watch_shell(const char *script)
{
	pid_t pid;
	int pidfd;

	unit_start_shell(script, NULL, &pid, &pidfd);
	ck_assert_int_eq(
		process_watch(&process, &unit_processes, pid, pidfd, on_exit_of_child, &n_exits),
		0);
	ck_assert(process_is_watched(&process));
	return pid;
}

static const struct {
	const char *script, *how;
	int status;
} ends[] = {
	{"exit 0", "exited with status 0", 0},
	{"exit 3", "exited with status 3", 3 << 8},
	{"exit 255", "exited with status 255", 255 << 8},
	{"kill -TERM $$", "was ended by signal 15 (Terminated)", SIGTERM},
	{"kill -KILL $$", "was ended by signal 9 (Killed)", SIGKILL},
	{"ulimit -c 0; kill -ABRT $$", "was ended by signal 6 (Aborted)", SIGABRT},
};

START_TEST(tells_how_it_ended)
{
	char how[64];
	pid_t pid = watch_shell(ends[_i].script);

	unit_run_until(&n_exits, 1);
	ck_assert_int_eq(last_status, ends[_i].status);
	process_describe_exit(last_status, how, sizeof(how));
	ck_assert_str_eq(how, ends[_i].how);
	/* Reaped, and told once. */
	ck_assert_int_eq(kill(pid, 0), -1);
	unit_run_ready();
	ck_assert_int_eq(n_exits, 1);
}
END_TEST

START_TEST(describes_the_unknown)
{
	char how[64], cut[8];

	process_describe_exit(-1, how, sizeof(how));
	ck_assert_str_eq(how, "is gone");
	process_describe_exit(0, cut, sizeof(cut));
	ck_assert_str_eq(cut, "exited ");
}
END_TEST

START_TEST(signals_whom_it_watches)
{
	ck_assert_int_eq(process_signal(&process, SIGTERM), -ESRCH);
	(void)watch_shell("kill -STOP $$");
	ck_assert_int_eq(process_signal(&process, 0), 0);
	ck_assert_int_eq(process_signal(&process, SIGKILL), 0);
	unit_run_until(&n_exits, 1);
	ck_assert_int_eq(last_status, SIGKILL);
	ck_assert_int_eq(process_signal(&process, SIGKILL), -ESRCH);
}
END_TEST

START_TEST(reaps_what_it_watches_no_more)
{
	pid_t pid = watch_shell("kill -STOP $$");
	struct procinfo info;

	process_unwatch(&process);
	process_unwatch(&process);
	process_unwatch(NULL);
	ck_assert(!process_is_watched(&process));
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	while (procinfo_read(pid, &info) == 0)
		ck_assert_int_gt(sd_event_run(unit_event, UNIT_WAIT_USEC), 0);
	ck_assert_int_eq(n_exits, 0);
}
END_TEST

/* A grandchild whose parent ends becomes ours, and must not stay a zombie. */
START_TEST(reaps_strangers_and_keeps_statuses)
{
	const char *path = unit_path("grandchild");
	char script[PATH_MAX + 128], text[32];
	struct procinfo info;
	int64_t pid;

	(void)text_format(script, sizeof(script),
			  "(read x < /dev/null; exit 7) & echo -n $! > %s; exit 5", path);
	(void)watch_shell(script);
	unit_run_until(&n_exits, 1);
	ck_assert_int_eq(last_status, 5 << 8);
	(void)unit_read(path, text, sizeof(text));
	ck_assert_int_eq(text_parse_int(text, 1, INT32_MAX, &pid), 0);
	while (procinfo_read((pid_t)pid, &info) == 0)
		ck_assert_int_gt(sd_event_run(unit_event, UNIT_WAIT_USEC), 0);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}
END_TEST

/* Many children at once, half of them watched, die in any order: no status is lost. */
START_TEST(keeps_watched_and_strangers_apart)
{
	static struct process watched[20];
	pid_t pid;
	int pidfd;

	for (size_t i = 0; i < ELEMENTSOF(watched); i++) {
		unit_start_shell("exit 9", NULL, &pid, &pidfd);
		(void)safe_close(pidfd);
		unit_start_shell("exit 5", NULL, &pid, &pidfd);
		ck_assert_int_eq(process_watch(&watched[i], &unit_processes, pid, pidfd,
					       on_exit_of_child, &n_exits),
				 0);
	}
	for (int n = 1; n <= (int)ELEMENTSOF(watched); n++) {
		unit_run_until(&n_exits, n);
		ck_assert_int_eq(last_status, 5 << 8);
	}
	while (waitpid(-1, NULL, WNOHANG | __WNOTHREAD) == 0)
		ck_assert_int_gt(sd_event_run(unit_event, UNIT_WAIT_USEC), 0);
	ck_assert_ptr_null(unit_processes.first);
}
END_TEST

START_TEST(watches_who_is_not_its_child)
{
	_cleanup_close_ int pidfd = -EBADF;
	const char *path = unit_path("grandchild");
	char script[PATH_MAX + 128], text[32];
	pid_t parent;
	int parent_fd;
	int64_t pid;

	(void)text_format(script, sizeof(script),
			  "sh -c 'kill -STOP $$' & echo -n $! > %s; kill -STOP $$; wait", path);
	unit_start_shell(script, NULL, &parent, &parent_fd);
	ck_assert_int_eq(waitpid(parent, NULL, WUNTRACED), parent);
	(void)unit_read(path, text, sizeof(text));
	ck_assert_int_eq(text_parse_int(text, 1, INT32_MAX, &pid), 0);
	ck_assert_int_eq(process_open((pid_t)pid, &pidfd), 0);
	ck_assert_int_ne(fcntl(pidfd, F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_eq(process_watch(&process, &unit_processes, (pid_t)pid, TAKE_FD(pidfd),
				       on_exit_of_child, &n_exits),
			 0);
	ck_assert_int_eq(process_signal(&process, SIGKILL), 0);
	unit_run_until(&n_exits, 1);
	ck_assert_int_eq(last_status, -1);
	unit_close_pid(parent, parent_fd);
	ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
}
END_TEST

static struct process *again;

static void watch_again(struct process *exited, int status, void *userdata)
{
	(void)status;
	(void)userdata;
	n_exits++;
	if (n_exits == 1) {
		(void)watch_shell("exit 4");
	} else {
		ck_assert_ptr_eq(exited, again);
		free(exited);
	}
}

START_TEST(may_be_reused_or_freed_in_its_handler)
{
	pid_t pid;
	int pidfd;

	unit_start_shell("exit 1", NULL, &pid, &pidfd);
	ck_assert_int_eq(process_watch(&process, &unit_processes, pid, pidfd, watch_again, NULL),
			 0);
	unit_run_until(&n_exits, 2);
	ck_assert_int_eq(last_status, 4 << 8);
	again = malloc(sizeof(*again));
	ck_assert_ptr_nonnull(again);
	unit_start_shell("exit 1", NULL, &pid, &pidfd);
	ck_assert_int_eq(process_watch(again, &unit_processes, pid, pidfd, watch_again, NULL), 0);
	unit_run_until(&n_exits, 3);
}
END_TEST

static const pid_t nobody[] = {0, -1, INT32_MAX};

START_TEST(opens_only_processes)
{
	int pidfd = -EBADF;

	ck_assert_int_eq(process_open(nobody[_i], &pidfd), -ESRCH);
	ck_assert_int_eq(pidfd, -EBADF);
}
END_TEST

START_TEST(needs_sigchld_blocked)
{
	struct processes processes;
	sd_event *event = NULL;
	sigset_t mask;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGCHLD);
	ck_assert_int_ge(sd_event_new(&event), 0);
	ck_assert_int_eq(sigprocmask(SIG_UNBLOCK, &mask, NULL), 0);
	ck_assert_int_lt(processes_init(&processes, event), 0);
	processes_done(&processes);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &mask, NULL), 0);
	sd_event_unref(event);
}
END_TEST

int main(void)
{
	TCase *tcase;

	if (!unit_has_pidfds())
		return EXIT_SUCCESS;
	tcase = tcase_create("process");
	tcase_add_checked_fixture(tcase, setup, unit_loop_teardown);
	unit_add_table(tcase, tells_how_it_ended, ends);
	tcase_add_test(tcase, describes_the_unknown);
	tcase_add_test(tcase, signals_whom_it_watches);
	tcase_add_test(tcase, reaps_what_it_watches_no_more);
	tcase_add_test(tcase, reaps_strangers_and_keeps_statuses);
	tcase_add_test(tcase, keeps_watched_and_strangers_apart);
	tcase_add_test(tcase, watches_who_is_not_its_child);
	tcase_add_test(tcase, may_be_reused_or_freed_in_its_handler);
	unit_add_table(tcase, opens_only_processes, nobody);
	tcase_add_test(tcase, needs_sigchld_blocked);
	return unit_run("process", tcase);
}
