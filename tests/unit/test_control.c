/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>

#include "control.h"
#include "unit_loop.h"

/* Writes down its start and its end, and what it was told; two at a time would be seen. */
#define FRONT_END                                               \
	"D=${CUDA_MPS_PIPE_DIRECTORY:?}\n"                      \
	"read -r command\n"                                     \
	"mkdir $D/busy 2>/dev/null || echo OVERLAP >> $D/log\n" \
	"echo \"start $command\" >> $D/log\n"                   \
	"case $command in\n"                                    \
	"hang) exec sleep 1000;;\n"                             \
	"fail) rmdir $D/busy; exit 1;;\n"                       \
	"empty) rmdir $D/busy; exit 0;;\n"                      \
	"die) rmdir $D/busy; kill -KILL $$;;\n"                 \
	"esac\n"                                                \
	"echo \"answer to $command\"\n"                         \
	"echo \"end $command\" >> $D/log\n"                     \
	"rmdir $D/busy"

static struct control control;
static uint64_t n_commands, n_failed;
static int n_answers;
static char order[512], last_answer[128];
static enum command_result last_result;
static int last_is_answer;
static char pipe_variable[PATH_MAX + 64];

static void setup(void)
{
	unit_loop_setup();
	n_commands = n_failed = 0;
	n_answers = 0;
	order[0] = '\0';
	(void)text_format(pipe_variable, sizeof(pipe_variable), "CUDA_MPS_PIPE_DIRECTORY=%s",
			  unit_directory);
	control_init(&control, &unit_processes, unit_write_script("control", FRONT_END),
		     "PATH=/usr/bin:/bin", pipe_variable, &n_commands, &n_failed);
}

static void teardown(void)
{
	control_drop(&control);
	unit_loop_teardown();
}

/* userdata: a letter for the order of the answers. */
static void on_answer(const struct command_outcome *outcome, void *userdata)
{
	(void)strncat(order, userdata, sizeof(order) - strlen(order) - 1);
	(void)text_format(last_answer, sizeof(last_answer), "%.100s", outcome->output);
	last_result = outcome->result;
	last_is_answer = control_is_answer(outcome);
	n_answers++;
}

static int send_as(const char *command, const char *letter)
{
	return control_send(&control, command, UNIT_WAIT_USEC, on_answer, (void *)letter);
}

static const char *log_text(void)
{
	static char text[4096];

	(void)unit_read(unit_path("log"), text, sizeof(text));
	return text;
}

START_TEST(brings_the_answer)
{
	ck_assert_int_eq(send_as("get_server_list", "a"), 0);
	ck_assert_int_eq(n_answers, 0);
	unit_run_until(&n_answers, 1);
	ck_assert_str_eq(last_answer, "answer to get_server_list\n");
	ck_assert(last_is_answer);
	ck_assert_uint_eq(n_commands, 1);
	ck_assert_uint_eq(n_failed, 0);
}
END_TEST

START_TEST(one_at_a_time_and_in_order)
{
	static const char *const letters[] = {"a", "b", "c", "d", "e", "f"};

	for (size_t i = 0; i < ELEMENTSOF(letters); i++)
		ck_assert_int_eq(send_as(letters[i], letters[i]), 0);
	unit_run_until(&n_answers, ELEMENTSOF(letters));
	ck_assert_str_eq(order, "abcdef");
	ck_assert_str_eq(log_text(), "start a\nend a\nstart b\nend b\nstart c\nend c\n"
				     "start d\nend d\nstart e\nend e\nstart f\nend f\n");
	ck_assert_uint_eq(n_commands, 6);
	ck_assert_uint_eq(control.n, 0);
}
END_TEST

static const struct {
	const char *command;
	enum command_result result;
	uint64_t n_failed;
} no_answers[] = {
	{"fail", COMMAND_DONE, 1},
	{"empty", COMMAND_DONE, 0},
	{"die", COMMAND_DONE, 1},
	{"hang", COMMAND_TIMED_OUT, 1},
};

START_TEST(knows_what_is_no_answer)
{
	ck_assert_int_eq(control_send(&control, no_answers[_i].command, USEC_PER_SEC, on_answer,
				      (void *)"x"),
			 0);
	unit_run_until(&n_answers, 1);
	ck_assert_int_eq(last_result, no_answers[_i].result);
	ck_assert(!last_is_answer);
	ck_assert_uint_eq(n_failed, no_answers[_i].n_failed);
}
END_TEST

START_TEST(goes_on_after_a_hang)
{
	ck_assert_int_eq(control_send(&control, "hang", USEC_PER_SEC / 2, NULL, NULL), 0);
	ck_assert_int_eq(send_as("fail", "b"), 0);
	ck_assert_int_eq(send_as("c", "c"), 0);
	unit_run_until(&n_answers, 2);
	ck_assert_str_eq(order, "bc");
	ck_assert_uint_eq(n_failed, 2);
	ck_assert_uint_eq(n_commands, 3);
}
END_TEST

START_TEST(drops_everything)
{
	ck_assert_int_eq(send_as("hang", "a"), 0);
	ck_assert_int_eq(send_as("b", "b"), 0);
	control_drop(&control);
	control_drop(&control);
	ck_assert_uint_eq(control.n, 0);
	ck_assert_ptr_null(control.running);
	ck_assert_int_eq(send_as("c", "c"), 0);
	unit_run_until(&n_answers, 1);
	unit_run_ready();
	ck_assert_str_eq(order, "c");
}
END_TEST

START_TEST(has_a_longest_queue)
{
	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(send_as("hang", "x"), 0);
		for (int i = 1; i < CONTROL_QUEUE_MAX; i++)
			ck_assert_int_eq(send_as("y", "y"), 0);
		ck_assert_int_eq(send_as("z", "z"), -ENOBUFS);
		control_drop(&control);
	}
	ck_assert_int_eq(n_answers, 0);
	/* Around the ring. */
	for (int i = 0; i < CONTROL_QUEUE_MAX; i++)
		ck_assert_int_eq(send_as("y", "y"), 0);
	ck_assert_int_eq(send_as("z", "z"), -ENOBUFS);
	unit_run_until(&n_answers, 1);
	ck_assert_int_eq(send_as("z", "z"), 0);
	unit_run_until(&n_answers, CONTROL_QUEUE_MAX + 1);
	ck_assert_str_eq(order, "yyyyyyyyyyyyyyyyz");
}
END_TEST

START_TEST(has_a_longest_command)
{
	char command[CONTROL_COMMAND_SIZE + 1];

	memset(command, 'x', sizeof(command));
	command[CONTROL_COMMAND_SIZE - 1] = '\0';
	ck_assert_int_eq(send_as(command, "a"), -ENAMETOOLONG);
	ck_assert_uint_eq(control.n, 0);
	command[CONTROL_COMMAND_SIZE - 2] = '\0';
	ck_assert_int_eq(send_as(command, "b"), 0);
	unit_run_until(&n_answers, 1);
	unit_assert_contains(last_answer, command);
}
END_TEST

static void send_more(const struct command_outcome *outcome, void *userdata)
{
	on_answer(outcome, userdata);
	if (n_answers == 1)
		ck_assert_int_eq(
			control_send(&control, "later", UNIT_WAIT_USEC, send_more, (void *)"l"), 0);
}

START_TEST(handlers_may_send)
{
	ck_assert_int_eq(control_send(&control, "a", UNIT_WAIT_USEC, send_more, (void *)"a"), 0);
	unit_run_until(&n_answers, 2);
	n_answers = 0;
	ck_assert_int_eq(control_send(&control, "a", UNIT_WAIT_USEC, send_more, (void *)"a"), 0);
	ck_assert_int_eq(send_as("b", "b"), 0);
	unit_run_until(&n_answers, 3);
	ck_assert_str_eq(order, "alabl");
	ck_assert_ptr_null(strstr(log_text(), "OVERLAP"));
}
END_TEST

START_TEST(withdrawing_forgets_only_what_waits)
{
	control_withdraw(&control);
	ck_assert_int_eq(send_as("a", "a"), 0);
	ck_assert_int_eq(send_as("b", "b"), 0);
	control_withdraw(&control);
	ck_assert_uint_eq(control.n, 1);
	ck_assert_int_eq(send_as("c", "c"), 0);
	unit_run_until(&n_answers, 2);
	unit_run_ready();
	ck_assert_str_eq(order, "ac");
}
END_TEST

static void drop_and_send(const struct command_outcome *outcome, void *userdata)
{
	on_answer(outcome, userdata);
	control_drop(&control);
	ck_assert_int_eq(send_as("quit", "q"), 0);
}

START_TEST(handlers_may_drop)
{
	ck_assert_int_eq(control_send(&control, "a", UNIT_WAIT_USEC, drop_and_send, (void *)"a"),
			 0);
	ck_assert_int_eq(send_as("b", "b"), 0);
	unit_run_until(&n_answers, 2);
	unit_run_ready();
	ck_assert_str_eq(order, "aq");
	ck_assert_str_eq(log_text(), "start a\nend a\nstart quit\nend quit\n");
}
END_TEST

START_TEST(tells_when_it_cannot_start)
{
	ck_assert_int_eq(send_as("a", "a"), 0);
	ck_assert_int_eq(send_as("b", "b"), 0);
	ck_assert_int_eq(unlink(control.program), 0);
	unit_run_until(&n_answers, 2);
	ck_assert_str_eq(order, "ab");
	ck_assert_int_eq(last_result, COMMAND_FAILED);
	ck_assert(!last_is_answer);
	ck_assert_int_eq(send_as("c", "c"), -ENOENT);
	ck_assert_uint_eq(control.n, 0);
}
END_TEST

int main(void)
{
	TCase *tcase;

	if (!unit_has_pidfds())
		return EXIT_SUCCESS;
	tcase = tcase_create("control");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, brings_the_answer);
	tcase_add_test(tcase, one_at_a_time_and_in_order);
	unit_add_table(tcase, knows_what_is_no_answer, no_answers);
	tcase_add_test(tcase, goes_on_after_a_hang);
	tcase_add_test(tcase, drops_everything);
	tcase_add_test(tcase, withdrawing_forgets_only_what_waits);
	tcase_add_test(tcase, has_a_longest_queue);
	tcase_add_test(tcase, has_a_longest_command);
	tcase_add_test(tcase, handlers_may_send);
	tcase_add_test(tcase, handlers_may_drop);
	tcase_add_test(tcase, tells_when_it_cannot_start);
	return unit_run("control", tcase);
}
