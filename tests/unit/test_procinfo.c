/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>

#include "procinfo.h"
#include "unit_mounts.h"
#include "unit_spawn.h"

/* Past the largest pid that Linux gives. */
#define NO_PID 0x7ffffff0

START_TEST(knows_itself)
{
	struct procinfo info, again;

	ck_assert_int_eq(procinfo_read(getpid(), &info), 0);
	ck_assert_int_eq(info.parent, getppid());
	ck_assert_uint_eq(info.uid, geteuid());
	ck_assert_int_eq(info.state, 'R');
	ck_assert_uint_gt(info.start_ticks, 0);
	ck_assert_int_eq(procinfo_read(getpid(), &again), 0);
	ck_assert_uint_eq(info.start_ticks, again.start_ticks);
}
END_TEST

START_TEST(knows_a_child_and_its_end)
{
	struct procinfo self, info = {.parent = 4711};
	siginfo_t siginfo;
	pid_t child;
	int pidfd;

	unit_start_shell("kill -STOP $$", NULL, &child, &pidfd);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &siginfo, WSTOPPED | WNOWAIT), 0);
	ck_assert_int_eq(procinfo_read(child, &info), 0);
	ck_assert_int_eq(info.parent, getpid());
	ck_assert_int_eq(info.state, 'T');
	ck_assert_int_eq(procinfo_read(getpid(), &self), 0);
	ck_assert_uint_ge(info.start_ticks, self.start_ticks);
	unit_close_pid(child, pidfd);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &siginfo, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(procinfo_read(child, &info), 0);
	ck_assert_int_eq(info.state, 'Z');
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	info.parent = 4711;
	ck_assert_int_eq(procinfo_read(child, &info), -ESRCH);
	ck_assert_int_eq(info.parent, 4711);
}
END_TEST

/* The name of a process may look like the rest of the line. */
START_TEST(is_not_fooled_by_names)
{
	char before[16] = "";
	struct procinfo info;

	ck_assert_int_eq(prctl(PR_GET_NAME, before), 0);
	ck_assert_int_eq(prctl(PR_SET_NAME, "x) Z 1 (y) 2 3"), 0);
	ck_assert_int_eq(procinfo_read(getpid(), &info), 0);
	ck_assert_int_eq(info.parent, getppid());
	ck_assert_int_eq(info.state, 'R');
	ck_assert_int_eq(prctl(PR_SET_NAME, before), 0);
}
END_TEST

START_TEST(reads_the_environment)
{
	char *argv[] = {(char *)"cat", NULL};
	char *envp[] = {(char *)"AB=no",
			(char *)"A=x=y z",
			(char *)"EMPTY=",
			(char *)"A=second",
			(char *)"=odd",
			(char *)"NOTHING",
			NULL};
	char value[64], small[4];
	int input[2], pidfd;
	pid_t child;

	ck_assert_int_eq(pipe2(input, O_CLOEXEC), 0);
	ck_assert_int_eq(spawn_process(
				 &(struct spawn){
					 .path = "/bin/cat",
					 .argv = argv,
					 .envp = envp,
					 .stdin_fd = input[0],
					 .stdout_fd = -EBADF,
					 .stderr_fd = -EBADF,
				 },
				 &child, &pidfd),
			 0);
	ck_assert_int_eq(procinfo_environment(child, "A", value, sizeof(value)), 0);
	ck_assert_str_eq(value, "x=y z");
	ck_assert_int_eq(procinfo_environment(child, "EMPTY", value, sizeof(value)), 0);
	ck_assert_str_eq(value, "");
	ck_assert_int_eq(procinfo_environment(child, "B", value, sizeof(value)), -ENOENT);
	ck_assert_int_eq(procinfo_environment(child, "NOTHING", value, sizeof(value)), -ENOENT);
	ck_assert_int_eq(procinfo_environment(child, "PATH", value, sizeof(value)), -ENOENT);
	ck_assert_int_eq(procinfo_environment(child, "A", small, sizeof(small)), -ENAMETOOLONG);
	(void)close(input[0]);
	(void)close(input[1]);
	(void)safe_close(pidfd);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

START_TEST(reads_mounts)
{
	_cleanup_free_ char *mine = NULL, *theirs = NULL;
	siginfo_t siginfo;
	pid_t child;
	int pidfd;

	ck_assert_int_eq(procinfo_mounts(getpid(), &mine), 0);
	unit_assert_contains(mine, " /proc ");
	ck_assert_int_eq(mine[strlen(mine) - 1], '\n');
	unit_start_shell("kill -STOP $$", NULL, &child, &pidfd);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &siginfo, WSTOPPED | WNOWAIT), 0);
	ck_assert_int_eq(procinfo_mounts(child, &theirs), 0);
	unit_assert_contains(theirs, " /proc ");
	unit_close_pid(child, pidfd);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* In a namespace of its own: each of these mounts has a line of more than 6000 bytes. */
static void mount_too_much(void)
{
	char spaces[256], path[PATH_MAX];
	_cleanup_free_ char *text = NULL;
	char *more = NULL;

	memset(spaces, ' ', sizeof(spaces));
	spaces[255] = '\0';
	ck_assert_int_eq(text_format(path, sizeof(path), "%s", unit_directory), 0);
	ck_assert_int_eq(mount("x", path, "tmpfs", 0, NULL), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(text_format(path + strlen(path), 257, "/%s", spaces), 0);
		ck_assert_int_eq(mkdir(path, 0755), 0);
	}
	for (size_t i = 0; i < PROCINFO_MOUNTS_MAX / 6000; i++) {
		ck_assert_int_eq(mount(path, path, "", MS_BIND, NULL), 0);
		if (i == 30)
			ck_assert_int_eq(procinfo_mounts(getpid(), &text), 0);
	}
	ck_assert_uint_gt(strlen(text), 180000);
	ck_assert_int_eq(procinfo_mounts(getpid(), &more), -E2BIG);
	ck_assert_ptr_null(more);
}

START_TEST(bounds_mounts)
{
	unit_with_own_mounts(mount_too_much);
}
END_TEST

static const pid_t nobody[] = {NO_PID, -1, INT32_MAX};

START_TEST(knows_when_there_is_nobody)
{
	struct procinfo info;
	char value[16], *mounts = value;

	ck_assert_int_eq(procinfo_read(nobody[_i], &info), -ESRCH);
	ck_assert_int_eq(procinfo_environment(nobody[_i], "PATH", value, sizeof(value)), -ESRCH);
	ck_assert_int_eq(procinfo_mounts(nobody[_i], &mounts), -ESRCH);
	ck_assert_ptr_eq(mounts, value);
}
END_TEST

int main(void)
{
	TCase *tcase;

	if (!unit_has_pidfds())
		return EXIT_SUCCESS;
	tcase = tcase_create("procinfo");
	tcase_add_checked_fixture(tcase, unit_directory_setup, unit_directory_teardown);
	tcase_add_test(tcase, knows_itself);
	tcase_add_test(tcase, knows_a_child_and_its_end);
	tcase_add_test(tcase, is_not_fooled_by_names);
	tcase_add_test(tcase, reads_the_environment);
	tcase_add_test(tcase, reads_mounts);
	tcase_add_test(tcase, bounds_mounts);
	unit_add_table(tcase, knows_when_there_is_nobody, nobody);
	return unit_run("procinfo", tcase);
}
