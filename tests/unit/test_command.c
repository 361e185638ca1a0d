/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>

#include "command.h"
#include "unit_loop.h"

static int n_outcomes;
static enum command_result last_result;
static int last_status;
static char *last_output;
static size_t last_length;

static void setup(void)
{
	unit_loop_setup();
	n_outcomes = 0;
	last_output = NULL;
}

static void teardown(void)
{
	free(TAKE_PTR(last_output));
	unit_loop_teardown();
}

static void on_outcome(const struct command_outcome *outcome, void *userdata)
{
	ck_assert_ptr_eq(userdata, &n_outcomes);
	ck_assert_uint_eq(strlen(outcome->output), outcome->output_length);
	n_outcomes++;
	last_result = outcome->result;
	last_status = outcome->status;
	free(last_output);
	last_output = strdup(outcome->output);
	last_length = outcome->output_length;
}

static int start(const char *path, const char *script, const char *input, uint64_t timeout_usec,
		 struct command **ret)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
	char *envp[] = {(char *)"PATH=/usr/bin:/bin", NULL};

	return command_start(&unit_processes,
			     &(struct command_plan){
				     .path = path,
				     .argv = argv,
				     .envp = envp,
				     .input = input,
				     .timeout_usec = timeout_usec,
			     },
			     on_outcome, &n_outcomes, ret);
}

static struct command *run(const char *script, const char *input, uint64_t timeout_usec)
{
	struct command *command = NULL;

	ck_assert_int_eq(start("/bin/sh", script, input, timeout_usec, &command), 0);
	ck_assert_int_eq(n_outcomes, 0);
	unit_run_until(&n_outcomes, 1);
	return command;
}

/* No child is left, not even a zombie, once the loop has seen to it. */
static void expect_no_children(void)
{
	while (waitid(P_ALL, 0, &(siginfo_t){}, WEXITED | WNOHANG | WNOWAIT) == 0)
		ck_assert_int_gt(sd_event_run(unit_event, UNIT_WAIT_USEC), 0);
	ck_assert_int_eq(errno, ECHILD);
	unit_run_ready();
	ck_assert_int_eq(n_outcomes, 1);
}

static const struct {
	const char *script, *input;
	int status;
	const char *output;
} runs[] = {
	{"exit 0", NULL, 0, ""},
	{"exit 1", NULL, 1 << 8, ""},
	{"exit 3", "never read", 3 << 8, ""},
	{"echo out; echo err >&2; exit 2", NULL, 2 << 8, "out\nerr\n"},
	{"cat", NULL, 0, ""},
	{"cat", "", 0, ""},
	{"cat", "get_server_list\n", 0, "get_server_list\n"},
	{"cat; cat; echo end", "a\nb", 0, "a\nbend\n"},
	{"kill -KILL $$", NULL, SIGKILL, ""},
	{"echo last; kill -TERM $$", NULL, SIGTERM, "last\n"},
	{"exec >&- 2>&-; exit 4", NULL, 4 << 8, ""},
	/* What stays behind and holds the output is not waited for. */
	{"echo x; (exec sleep 2) & exit 0", NULL, 0, "x\n"},
};

START_TEST(tells_status_and_output)
{
	(void)run(runs[_i].script, runs[_i].input, UNIT_WAIT_USEC);
	ck_assert_int_eq(last_result, COMMAND_DONE);
	ck_assert_int_eq(last_status, runs[_i].status);
	ck_assert_str_eq(last_output, runs[_i].output);
}
END_TEST

static const char *const hanging[] = {
	"exec sleep 1000",
	"trap '' TERM INT HUP; while :; do :; done",
	"kill -STOP $$",
	"exec >&- 2>&-; exec sleep 1000",
};

START_TEST(ends_what_hangs)
{
	uint64_t before_usec = clock_usec(CLOCK_MONOTONIC), timeout_usec = 300 * USEC_PER_MSEC;

	(void)run(hanging[_i], NULL, timeout_usec);
	ck_assert_int_eq(last_result, COMMAND_TIMED_OUT);
	ck_assert_uint_ge(clock_usec(CLOCK_MONOTONIC) - before_usec, timeout_usec);
	expect_no_children();
}
END_TEST

static const struct {
	size_t length;
	enum command_result result;
} lengths[] = {
	{1, COMMAND_DONE},
	{4095, COMMAND_DONE},
	{4096, COMMAND_DONE},
	{COMMAND_OUTPUT_MAX - 1, COMMAND_DONE},
	{COMMAND_OUTPUT_MAX, COMMAND_DONE},
	{COMMAND_OUTPUT_MAX + 1, COMMAND_TOO_LONG},
	{4 * COMMAND_OUTPUT_MAX, COMMAND_TOO_LONG},
};

START_TEST(limits_the_output)
{
	char script[128];

	(void)text_format(script, sizeof(script), "head -c %zu /dev/zero | tr '\\0' x",
			  lengths[_i].length);
	(void)run(script, NULL, UNIT_WAIT_USEC);
	ck_assert_int_eq(last_result, lengths[_i].result);
	if (lengths[_i].result == COMMAND_DONE)
		ck_assert_uint_eq(last_length, lengths[_i].length);
}
END_TEST

START_TEST(ends_what_never_stops_talking)
{
	(void)run("exec yes", NULL, UNIT_WAIT_USEC);
	ck_assert_int_eq(last_result, COMMAND_TOO_LONG);
	expect_no_children();
}
END_TEST

START_TEST(takes_the_longest_input)
{
	char input[COMMAND_INPUT_MAX + 1];

	memset(input, 'x', sizeof(input));
	input[COMMAND_INPUT_MAX] = '\0';
	(void)run("cat", input, UNIT_WAIT_USEC);
	ck_assert_str_eq(last_output, input);
}
END_TEST

START_TEST(fails_at_once_without_a_program)
{
	struct command *command = NULL;

	ck_assert_int_eq(start("/nonexistent", "", NULL, USEC_PER_SEC, &command), -ENOENT);
	ck_assert_int_eq(start("/dev/null", "", "x", USEC_PER_SEC, &command), -EACCES);
	ck_assert_ptr_null(command);
	unit_run_ready();
	ck_assert_int_eq(n_outcomes, 0);
	ck_assert_ptr_null(unit_processes.first);
}
END_TEST

START_TEST(can_be_cancelled)
{
	struct command *command = NULL;

	ck_assert_int_eq(start("/bin/sh", "exec sleep 1000", NULL, UNIT_WAIT_USEC, &command), 0);
	ck_assert_ptr_null(command_cancel(command));
	ck_assert_ptr_null(command_cancel(NULL));
	n_outcomes = 1; /* so many there must stay */
	expect_no_children();
}
END_TEST

START_TEST(leaves_no_descriptor_open)
{
	int before, after;

	(void)run("echo x", "y", UNIT_WAIT_USEC); /* the loop opens what it needs */
	n_outcomes = 0;
	before = dup(0);
	(void)close(before);
	(void)run("echo x", "y", UNIT_WAIT_USEC);
	after = dup(0);
	(void)close(after);
	ck_assert_int_eq(after, before);
	expect_no_children();
}
END_TEST

int main(void)
{
	TCase *tcase;

	if (!unit_has_pidfds())
		return EXIT_SUCCESS;
	tcase = tcase_create("command");
	tcase_add_checked_fixture(tcase, setup, teardown);
	unit_add_table(tcase, tells_status_and_output, runs);
	unit_add_table(tcase, ends_what_hangs, hanging);
	unit_add_table(tcase, limits_the_output, lengths);
	tcase_add_test(tcase, ends_what_never_stops_talking);
	tcase_add_test(tcase, takes_the_longest_input);
	tcase_add_test(tcase, fails_at_once_without_a_program);
	tcase_add_test(tcase, can_be_cancelled);
	tcase_add_test(tcase, leaves_no_descriptor_open);
	return unit_run("command", tcase);
}
