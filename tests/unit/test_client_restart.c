/* SPDX-License-Identifier: MIT */
/* What a restart of the supervisor is to leases, requests and their jobs. */
#include <signal.h>

#include "absence.h"
#include "cli.h"
#include "commands.h"
#include "lost_answer.h"
#include "pidwatch.h"
#include "unit_client.h"

#define LEASE(what, state)                                                                \
	"{\"parameters\": {\"what\": \"" what                                             \
	"\", \"event\": {\"message\": \"MARK\", \"generation\": 2}, "                     \
	"\"lease\": {\"id\": \"L1\", \"state\": \"" state "\", \"instance\": \"GPU-1\", " \
	"\"devices\": [\"GPU-1\"], \"pipe_directory\": \"/d\", \"reason\": \"full\", "    \
	"\"environment\": {\"MPS_SUPERVISOR_LEASE\": \"L1\"}}}, \"continues\": true}"
#define QUEUED LEASE("queued", "queued")
#define GRANTED LEASE("granted", "granted")
#define INTERRUPTED LEASE("interrupted", "granted")

#define MSEC ((uint64_t)1000)

START_TEST(test_absence)
{
	static const uint64_t tries[] = {50, 150, 350, 750, 1550, 2550, 3000};
	struct absence absence = {};
	uint64_t now = 7 * MSEC, next = 0;

	for (int round = 0; round < 2; round++) {
		uint64_t since = now;

		ck_assert(absence_is_new(&absence));
		for (size_t i = 0; i < ELEMENTSOF(tries); i++) {
			ck_assert(absence_goes_on(&absence, now, 3000 * MSEC, &next));
			ck_assert_uint_eq(next, since + tries[i] * MSEC);
			now = next;
		}
		ck_assert(!absence_goes_on(&absence, now, 3000 * MSEC, &next));
		ck_assert(absence_goes_on(&absence, now, USEC_INFINITY, &next));
		ck_assert_uint_eq(next, now + 1000 * MSEC);
		absence_end(&absence);
	}
}
END_TEST

START_TEST(test_exchange)
{
	char text[UNIT_MESSAGE_MAX];

	unit_start(cmd_leases, "leases");
	unit_cut(unit_hear("ListLeases", ""));
	unit_serve("ListLeases", "{\"parameters\": {\"leases\": []}}");
	ck_assert_int_eq(unit_finish(text), 0);
	ck_assert_str_eq(text, "no leases\n");

	unit_start(cmd_leases, "leases");
	unit_cut(unit_hear("ListLeases", ""));
	unit_cut(unit_hear("ListLeases", ""));
	ck_assert_int_eq(unit_finish(text), CLI_FAILED);
	unit_assert_contains(text, "closed the connection");

	unit_start(cmd_release, "release L1");
	unit_cut(unit_hear("ReleaseLease", "L1"));
	unit_serve("ReleaseLease", UNIT_ERROR("NoSuchLease"));
	ck_assert_int_eq(unit_finish(text), 0);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(test_exchange_away)
{
	char text[UNIT_MESSAGE_MAX];
	int fd;

	unit_start(cmd_leases, "leases");
	fd = unit_hear("ListLeases", "");
	unit_go();
	unit_cut(fd);
	ck_assert_int_eq(unit_finish(text), CLI_NO_SUPERVISOR);
	ck_assert_uint_eq(unit_count_lines(text), 1);
}
END_TEST

/* A request that is made again, because no lease is there that it may have been granted. */
static int hear_again(const char *part)
{
	int fd = unit_hear("ListLeases", "");

	unit_answer(fd, "{\"parameters\": {\"leases\": []}}");
	unit_hear_on(fd, "AcquireLease", part);
	return fd;
}

START_TEST(test_queue)
{
	char text[UNIT_MESSAGE_MAX];
	int fd;

	unit_start(cmd_lease, "lease --wait 600 --format path --pid 1");
	fd = unit_hear("AcquireLease", "\"wait_ms\":600000");
	unit_answer(fd, QUEUED);
	unit_go();
	unit_cut(fd);
	unit_come();
	unit_cut(hear_again("\"wait_ms\":59"));
	fd = hear_again("\"wait_ms\":59");
	unit_answer(fd, GRANTED);
	ck_assert_int_eq(unit_finish(text), 0);
	unit_cut(fd);
	ck_assert_str_eq(text, "mpsctl: waiting for a lease: full\n"
			       "mpsctl: the supervisor has gone; asking again when it is back\n"
			       "/d\n");
}
END_TEST

#define LISTED "{\"parameters\": {\"leases\": [{\"id\": \"L1\", \"state\": \"granted\"}]}}"

/* It was told its id while it waited; the grant was lost. */
START_TEST(test_lost_grant)
{
	char text[UNIT_MESSAGE_MAX];
	int fd;

	unit_start(cmd_lease, "lease --format path --pid 1");
	fd = unit_hear("AcquireLease", "");
	unit_answer(fd, QUEUED);
	unit_cut(fd);
	fd = unit_hear("ListLeases", "");
	unit_answer(fd, LISTED);
	unit_hear_on(fd, "ReclaimLease", "\"id\":\"L1\"");
	unit_cut(fd);
	/* Ended before it could be reclaimed: it is asked for again. */
	fd = unit_hear("ListLeases", "");
	unit_answer(fd, LISTED);
	unit_hear_on(fd, "ReclaimLease", "L1");
	unit_answer(fd, UNIT_ERROR("NoSuchLease"));
	unit_hear_on(fd, "AcquireLease", "");
	unit_answer(fd, QUEUED);
	unit_cut(fd);
	fd = unit_hear("ListLeases", "");
	unit_answer(fd, LISTED);
	unit_hear_on(fd, "ReclaimLease", "L1");
	unit_answer(fd, GRANTED);
	ck_assert_int_eq(unit_finish(text), 0);
	unit_cut(fd);
	unit_assert_contains(text, "\n/d\n");
}
END_TEST

/* A lease that is the request's but for what `lease` says, and a request but for `request`. */
static const struct {
	const char *lease, *request, *id;
	bool found;
} losts[] = {
	{"{}", "{}", "", true},
	{"{\"id\": \"L2\"}", "{}", "", true},
	{"{}", "{}", "L1", true},
	{"{\"pid\": 8, \"requested_usec\": 1}", "{}", "L1", true},
	{"{}", "{}", "L2", false},
	{"{\"state\": \"draining\"}", "{}", "L1", false},
	{"{\"state\": \"draining\"}", "{}", "", false},
	{"{\"state\": \"queued\"}", "{}", "", false},
	{"{\"id\": \"around\"}", "{}", "", false},
	{"{\"pid\": 8}", "{}", "", false},
	{"{\"pid\": null}", "{\"pid\": null}", "", false},
	{"{\"uid\": 1}", "{}", "", false},
	{"{\"uid\": 1}", "{\"uid\": 1}", "", true},
	{"{\"requested_usec\": 99}", "{}", "", false},
	{"{\"bind\": \"connection\"}", "{}", "", false},
	{"{\"name\": \"a\"}", "{}", "", false},
	{"{\"name\": \"a\"}", "{\"name\": \"a\"}", "", true},
	{"{\"clients\": 2}", "{}", "", false},
	{"{\"clients\": 2}", "{\"clients\": 2}", "", true},
	{"{\"exclusive\": true}", "{}", "", false},
	{"{\"memory_bytes\": 7, \"threads_percent\": 8}", "{\"memory_bytes\": 7}", "", false},
	{"{\"devices\": [\"a\", \"b\"]}", "{}", "", false},
	{"{\"devices\": [\"a\", \"b\"]}", "{\"count\": 2}", "", true},
	{"{\"bind\": \"none\", \"pid\": null}", "{\"bind\": \"none\", \"pid\": null}", "", false},
	{"{\"bind\": \"none\", \"name\": \"a\"}", "{\"bind\": \"none\", \"name\": \"a\"}", "",
	 true},
};

START_TEST(test_lost_answer)
{
	static const char lease[] =
		"{\"id\": \"L1\", \"state\": \"granted\", \"bind\": \"process\", \"pid\": 7, "
		"\"uid\": 1000, \"devices\": [\"GPU-1\"], \"name\": null, \"clients\": 1, "
		"\"requested_usec\": 100, \"threads_percent\": null, \"memory_bytes\": null, "
		"\"exclusive\": false}";
	_cleanup_(json_decrefp) json_t *leases =
		json_pack("[i, o, o]", 3, json_object(), json_loads(lease, 0, NULL));
	_cleanup_(json_decrefp) json_t *of_lease = json_loads(losts[_i].lease, 0, NULL);
	_cleanup_(json_decrefp) json_t *request =
		json_pack("{s:s, s:i}", "bind", "process", "pid", 7);
	_cleanup_(json_decrefp) json_t *of_request = json_loads(losts[_i].request, 0, NULL);
	struct lost_answer lost = {request, 1000, 100, losts[_i].id, "around"};

	ck_assert_int_eq(json_object_update(json_array_get(leases, 2), of_lease), 0);
	ck_assert_int_eq(json_object_update(request, of_request), 0);
	ck_assert_int_eq(lost_answer_find(&lost, leases) != NULL, losts[_i].found);
}
END_TEST

static const struct {
	const char *words, *part;
	int exit_status;
	bool was_there;
} failures[] = {
	{"lease --pid 1", "no supervisor at", CLI_NO_SUPERVISOR, false},
	{"lease -- true", "no supervisor at", CLI_NO_LEASE, false},
	{"lease --pid 1 --wait 0.2 -q", "timed out: the supervisor at", CLI_TIMED_OUT, true},
};

START_TEST(test_queue_away)
{
	char text[UNIT_MESSAGE_MAX];
	int fd = -EBADF;

	if (failures[_i].was_there) {
		unit_start(cmd_lease, failures[_i].words);
		fd = unit_hear("AcquireLease", "");
		unit_go();
		unit_cut(fd);
	} else {
		unit_go();
		unit_start(cmd_lease, failures[_i].words);
	}
	ck_assert_int_eq(unit_finish(text), failures[_i].exit_status);
	unit_assert_contains(text, failures[_i].part);
	ck_assert_uint_eq(unit_count_lines(text), 1);
}
END_TEST

START_TEST(test_shutting_down)
{
	char text[UNIT_MESSAGE_MAX];

	unit_start(cmd_lease, "lease --pid 1");
	unit_serve("AcquireLease", UNIT_ERROR("ShuttingDown"));
	ck_assert_int_eq(unit_finish(text), CLI_FAILED);
	ck_assert_uint_eq(unit_count_lines(text), 1);
}
END_TEST

/* A job that lives as long as its input. */
static int start_job(const char *options)
{
	char words[256];
	int fd;

	(void)text_format(words, sizeof(words), "lease %s-- cat", options);
	unit_start(cmd_lease, words);
	fd = unit_hear("AcquireLease", "");
	unit_answer(fd, GRANTED);
	return fd;
}

START_TEST(test_keeper)
{
	char text[UNIT_MESSAGE_MAX];
	int fd = start_job("");

	unit_go();
	unit_cut(fd);
	unit_come();
	unit_cut(unit_hear("ReclaimLease", "\"more\":true"));
	fd = unit_hear("ReclaimLease", "\"id\":\"L1\"");
	unit_answer(fd, GRANTED);
	unit_cut(fd);
	fd = unit_hear("ReclaimLease", "L1");
	unit_answer(fd, GRANTED);
	unit_answer(fd, INTERRUPTED);
	unit_cut(fd);
	fd = unit_hear("ReclaimLease", "L1");
	unit_answer(fd, GRANTED);
	unit_answer(fd, INTERRUPTED); /* the same */
	unit_input = safe_close(unit_input);
	ck_assert_int_eq(unit_finish(text), 0);
	unit_assert_ended(fd);
	unit_assert_contains(text, "lease L1 was interrupted: MARK");
	ck_assert_uint_eq(unit_count_lines(text), 1);
}
END_TEST

/* The end of its standard error is the end of the keeper. */
START_TEST(test_keeper_ends_away)
{
	char text[UNIT_MESSAGE_MAX];
	int fd = start_job("");

	unit_go();
	unit_cut(fd);
	ck_assert_int_eq(unit_finish(text), 0);
	ck_assert_str_eq(text, "");
}
END_TEST

static const struct {
	const char *options, *error, *part;
	int exit_status;
} refusals[] = {
	{"", "NoSuchLease", "lease L1 was revoked: it ended while", 0},
	{"", "ShuttingDown", "lease L1 was revoked: the supervisor stops", 0},
	{"", "InvalidRequest", "lease L1 was revoked: it ended while", 0},
	{"", "PermissionDenied", "lease L1 is not watched any more: permission denied", 0},
	{"--on-loss terminate ", "NoSuchLease", "ending the job", 128 + SIGTERM},
	{"--on-loss rerun ", "NoSuchLease", "lease L1 was revoked", 128 + SIGTERM},
};

START_TEST(test_reclaim_refused)
{
	char text[UNIT_MESSAGE_MAX], error[256];
	int fd = start_job(refusals[_i].options);

	unit_cut(fd);
	unit_serve("ReclaimLease", UNIT_ERROR("Busy"));
	fd = unit_hear("ReclaimLease", "L1");
	(void)text_format(error, sizeof(error),
			  "{\"error\": \"io.mps-supervisor.%s\", \"parameters\": {}}",
			  refusals[_i].error);
	unit_answer(fd, error);
	unit_assert_ended(fd);
	ck_assert_int_eq(unit_finish(text), refusals[_i].exit_status);
	unit_assert_contains(text, refusals[_i].part);
	ck_assert_uint_eq(unit_count_lines(text), 1);
}
END_TEST

/* The job dies with the supervisor, which tells why when it is back. */
START_TEST(test_rerun)
{
	char text[UNIT_MESSAGE_MAX];
	int fd;

	(void)setenv("FLAG", unit_path("flag"), 1);
	(void)unit_write_script("job", "test -e $FLAG && exit 5; touch $FLAG; read line; exit 3");
	(void)text_format(text, sizeof(text), "lease --on-loss rerun -- %s", unit_path("job"));
	unit_start(cmd_lease, text);
	fd = unit_hear("AcquireLease", "");
	unit_answer(fd, GRANTED);
	unit_input = safe_close(unit_input);
	unit_go();
	unit_cut(fd);
	unit_come();
	fd = unit_hear("ReclaimLease", "L1");
	unit_answer(fd, GRANTED);
	unit_answer(fd, INTERRUPTED);
	unit_serve("GetStatus", UNIT_STATUS);
	ck_assert_int_eq(unit_finish(text), 5);
	unit_cut(fd);
	unit_assert_contains(text, "was interrupted");
	unit_assert_contains(text, "again (1 of 3)");
	ck_assert_uint_eq(unit_count_lines(text), 2);
}
END_TEST

/* valgrind 3.19 knows no pidfd_open(2). */
static bool has_pidfds(void)
{
	_cleanup_close_ int fd = -EBADF;

	return pidwatch_open(getpid(), &fd) != -ENOSYS;
}

int main(void)
{
	TCase *tcase = tcase_create("all");

	(void)unsetenv("CUDA_VISIBLE_DEVICES");
	tcase_add_checked_fixture(tcase, unit_client_setup, unit_client_teardown);
	tcase_add_test(tcase, test_absence);
	tcase_add_test(tcase, test_exchange);
	tcase_add_test(tcase, test_exchange_away);
	tcase_add_test(tcase, test_queue);
	tcase_add_test(tcase, test_lost_grant);
	unit_add_table(tcase, test_lost_answer, losts);
	unit_add_table(tcase, test_queue_away, failures);
	tcase_add_test(tcase, test_shutting_down);
	if (has_pidfds()) {
		tcase_add_test(tcase, test_keeper);
		tcase_add_test(tcase, test_keeper_ends_away);
		unit_add_table(tcase, test_reclaim_refused, refusals);
		tcase_add_test(tcase, test_rerun);
	}
	return unit_run("client_restart", tcase);
}
