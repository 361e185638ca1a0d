/* SPDX-License-Identifier: MIT */
/* Draining, resuming and restarting instances: which they are, and who is in the way. */
#include <signal.h>

#include "cli.h"
#include "commands.h"
#include "in_way.h"
#include "layout.h"
#include "targets.h"
#include "unit_client.h"

#define LEASES                                                                              \
	"{\"parameters\": {\"leases\": [{\"id\": \"L1\", \"state\": \"granted\", \"uid\": " \
	"3999999001, \"pid\": 7, \"name\": \"train\", \"devices\": [\"GPU-1\"]}]}}"

/* Until somebody is named as being in the way. Its connections: of the drain, of the events. */
static void start_drain(const char *words, const char *request, int ret_fds[2])
{
	unit_start(cmd_drain, words);
	unit_serve("GetStatus", UNIT_STATUS);
	ret_fds[0] = unit_hear("Drain", request);
	unit_answer(ret_fds[0], "{\"parameters\": {\"instance\": " UNIT_INSTANCE(
					"draining", "false") "}, \"continues\": true}");
	ret_fds[1] = unit_hear("Monitor", "");
	unit_serve("ListLeases", LEASES);
}

START_TEST(test_drain)
{
	char text[UNIT_MESSAGE_MAX];
	int fds[2];

	start_drain("drain 0", "\"more\":true", fds);
	unit_answer(fds[1], "{\"parameters\": {\"event\": {}}, \"continues\": true}");
	unit_serve("ListLeases", LEASES);
	unit_answer(fds[0],
		    "{\"parameters\": {\"instance\": " UNIT_INSTANCE("stopped", "true") "}}");
	ck_assert_int_eq(unit_finish(text), 0);
	unit_cut(fds[0]);
	unit_cut(fds[1]);
	ck_assert_str_eq(text, "mpsctl: GPU-1 waits for 1 lease: L1 of 3999999001, pid 7, "
			       "\"train\"\n"
			       "GPU-1 is drained and held; mpsctl resume gives it back\n");
}
END_TEST

START_TEST(test_drain_restart)
{
	char text[UNIT_MESSAGE_MAX];
	int fds[2];

	start_drain("drain GPU-1 --timeout 600", "\"wait_ms\":", fds);
	unit_go();
	unit_cut(fds[0]);
	unit_come();
	fds[0] = unit_hear("Drain", "\"wait_ms\":59");
	unit_answer(fds[0],
		    "{\"parameters\": {\"instance\": " UNIT_INSTANCE("stopped", "true") "}}");
	ck_assert_int_eq(unit_finish(text), 0);
	unit_cut(fds[0]);
	unit_cut(fds[1]);
	unit_assert_contains(text, "the supervisor has gone; asking again");
	unit_assert_contains(text, "is drained and held");
}
END_TEST

START_TEST(test_drain_interrupted)
{
	char text[UNIT_MESSAGE_MAX];
	int fds[2];

	start_drain("drain all", "GPU-1", fds);
	(void)kill(unit_client, SIGINT);
	ck_assert_int_eq(unit_finish(text), 128 + SIGINT);
	unit_cut(fds[0]);
	unit_cut(fds[1]);
	unit_assert_contains(text, "the drain of GPU-1 stays in force; mpsctl resume ends it");
}
END_TEST

/* Asked twice, it would take the GPU from jobs twice. */
START_TEST(test_restart_cut)
{
	char text[UNIT_MESSAGE_MAX];

	unit_start(cmd_restart, "restart 0 --force");
	unit_serve("GetStatus", UNIT_STATUS);
	unit_cut(unit_hear("Restart", ""));
	ck_assert_int_eq(unit_finish(text), CLI_FAILED);
	unit_assert_contains(text, "closed the connection");
	ck_assert_uint_eq(unit_count_lines(text), 1);
}
END_TEST

static const struct {
	int (*command)(const char *socket, int argc, char *argv[]);
	const char *words, *request, *answer, *text;
	int exit_status;
} operations[] = {
	{cmd_resume, "resume 0", "Resume",
	 "{\"parameters\": {\"instance\": " UNIT_INSTANCE("starting", "false") "}}",
	 "GPU-1 was not held; it is starting\n", CLI_OK},
	{cmd_restart, "restart 0", "Restart",
	 "{\"parameters\": {\"instance\": " UNIT_INSTANCE("ready", "false") "}}",
	 "GPU-1 is ready again\n", CLI_OK},
	{cmd_restart, "restart 0 --force", "\"force\":true",
	 "{\"parameters\": {\"instance\": " UNIT_INSTANCE("failed", "false") "}}",
	 "mpsctl: GPU-1 is failed; see `mpsctl status`\n", CLI_FAILED},
	{cmd_restart, "restart 0", "Restart",
	 "{\"error\": \"io.mps-supervisor.Busy\", \"parameters\": {\"reason\": \"it has leases\", "
	 "\"leases\": 1}}",
	 "mpsctl: GPU-1: not restarted: it has 1 lease; wait for its end, empty it with `mpsctl "
	 "drain`, or use --force, which takes the GPU from the jobs\n",
	 CLI_FAILED},
	{cmd_drain, "drain 0", "Drain",
	 "{\"parameters\": {\"instance\": " UNIT_INSTANCE("ready", "false") "}}",
	 "mpsctl: GPU-1 is not drained: it was given back meanwhile, and is ready\n", CLI_FAILED},
	{cmd_drain, "drain 0", "Drain", UNIT_ERROR("TimedOut"), NULL, CLI_TIMED_OUT},
	{cmd_drain, "drain 0", "Drain",
	 "{\"error\": \"io.mps-supervisor.PermissionDenied\", \"parameters\": {\"reason\": "
	 "\"administrators only\"}}",
	 "mpsctl: permission denied: administrators only\n", CLI_FAILED},
};

START_TEST(test_operation)
{
	char text[UNIT_MESSAGE_MAX];

	unit_start(operations[_i].command, operations[_i].words);
	unit_serve("GetStatus", UNIT_STATUS);
	unit_serve(operations[_i].request, operations[_i].answer);
	ck_assert_int_eq(unit_finish(text), operations[_i].exit_status);
	if (operations[_i].text)
		ck_assert_str_eq(text, operations[_i].text);
}
END_TEST

START_TEST(test_resume_held)
{
	char text[UNIT_MESSAGE_MAX];

	unit_start(cmd_resume, "resume 0");
	unit_serve("GetStatus",
		   "{\"parameters\": {\"instances\": [" UNIT_INSTANCE("stopped", "true") "]}}");
	unit_serve("Resume",
		   "{\"parameters\": {\"instance\": " UNIT_INSTANCE("starting", "false") "}}");
	ck_assert_int_eq(unit_finish(text), CLI_OK);
	ck_assert_str_eq(text, "GPU-1 is in use again\n");
}
END_TEST

/* Two GPUs, and a gang over both. */
static const char instances_text[] =
	"[{\"name\": \"GPU-1a\", \"kind\": \"gpu\", \"devices\": [{\"uuid\": \"GPU-1a\", "
	"\"index\": 0}]},"
	" {\"name\": \"GPU-1b\", \"kind\": \"gpu\", \"devices\": [{\"uuid\": \"GPU-1b\", "
	"\"index\": 1}]},"
	" {\"name\": \"gang-1\", \"kind\": \"gang\", \"devices\": [{\"uuid\": \"GPU-1a\", "
	"\"index\": 0}, {\"uuid\": \"GPU-1b\", \"index\": 1}]}]";

static const struct {
	const char *words[3], *names; /* NULL: refused */
} selections[] = {
	{{"all"}, "GPU-1a GPU-1b"}, {{"1", "GPU-1a", "0"}, "GPU-1b GPU-1a"},
	{{"gang"}, "gang-1"},       {{"GPU-1a", "all"}, "GPU-1a GPU-1b"},
	{{"GPU-1"}, NULL},          {{"0", "7"}, NULL},
};

START_TEST(test_targets)
{
	_cleanup_(json_decrefp) json_t *instances = json_loads(instances_text, 0, NULL);
	_cleanup_(json_decrefp) json_t *targets = NULL;
	char *words[3] = {}, names[64] = "";
	const json_t *target;
	int n_words = 0, r;
	size_t i;

	for (; n_words < 3 && selections[_i].words[n_words]; n_words++)
		words[n_words] = (char *)selections[_i].words[n_words];
	r = targets_collect(instances, words, n_words, &targets);
	ck_assert_int_eq(r, selections[_i].names ? 0 : CLI_FAILED);
	json_array_foreach(targets, i, target) {
		size_t length = strlen(names);

		(void)text_format(names + length, sizeof(names) - length, "%s%s", i ? " " : "",
				  layout_text(target, "name", "?"));
	}
	ck_assert_str_eq(names, selections[_i].names ? selections[_i].names : "");
}
END_TEST

/* Leases there and elsewhere, through a gang, waiting; of users that nobody is. */
static const struct {
	const char *leases, *text;
} in_ways[] = {
	{"[]", ""},
	{"[{\"id\": \"a\", \"state\": \"granted\", \"devices\": [\"GPU-2\"]}]", ""},
	{"[{\"id\": \"a\", \"state\": \"queued\", \"devices\": [\"GPU-1\"]}]", ""},
	{"[{\"id\": \"a\", \"state\": \"granted\", \"instance\": \"gang-1\", \"uid\": 3999999001, "
	 "\"pid\": 12, \"devices\": [\"GPU-2\", \"GPU-1\"]}]",
	 "1 lease: a of 3999999001, pid 12"},
	{"[{\"id\": \"a\", \"state\": \"draining\", \"instance\": \"GPU-1\", \"uid\": 3999999001, "
	 "\"pid\": null, \"attached\": [5, 6]}, {\"id\": \"b\", \"instance\": \"GPU-1\"}]",
	 "2 leases: a of 3999999001, draining with attached pids 5, 6; b of -"},
	{"[7, null, {\"devices\": [1]}]", ""},
};

START_TEST(test_in_way)
{
	_cleanup_(json_decrefp) json_t *leases = json_loads(in_ways[_i].leases, 0, NULL);
	_cleanup_(json_decrefp) json_t *instance =
		json_loads(UNIT_INSTANCE("draining", "false"), 0, NULL);
	char text[IN_WAY_TEXT_MAX];

	(void)in_way_describe(instance, leases, text);
	ck_assert_str_eq(text, in_ways[_i].text);
}
END_TEST

START_TEST(test_in_way_many)
{
	_cleanup_(json_decrefp) json_t *leases = json_array();
	_cleanup_(json_decrefp) json_t *instance =
		json_loads(UNIT_INSTANCE("draining", "false"), 0, NULL);
	char text[IN_WAY_TEXT_MAX];

	for (int i = 0; i < 100; i++)
		(void)json_array_append_new(
			leases, json_pack("{s:s, s:s}", "instance", "GPU-1", "id", "7862ed16"));
	ck_assert_uint_eq(in_way_describe(instance, leases, text), 100);
	unit_assert_contains(text, "100 leases: 7862ed16");
	unit_assert_contains(text, "; and 92 more");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, unit_client_setup, unit_client_teardown);
	tcase_add_test(tcase, test_drain);
	tcase_add_test(tcase, test_drain_restart);
	tcase_add_test(tcase, test_drain_interrupted);
	tcase_add_test(tcase, test_restart_cut);
	unit_add_table(tcase, test_operation, operations);
	tcase_add_test(tcase, test_resume_held);
	unit_add_table(tcase, test_targets, selections);
	unit_add_table(tcase, test_in_way, in_ways);
	tcase_add_test(tcase, test_in_way_many);
	return unit_run("client_operate", tcase);
}
