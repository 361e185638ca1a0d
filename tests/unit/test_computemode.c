/* SPDX-License-Identifier: MIT */
#include "computemode.h"
#include "computemode_plan.h"
#include "unit_loop.h"

/* ---------------------------------------------------------------- the plan */

static const struct {
	const char *shown, *option;
} options[] = {
	{"Default", "DEFAULT"},
	{"Exclusive_Process", "EXCLUSIVE_PROCESS"},
	{"Prohibited", "PROHIBITED"},
	{"Exclusive_Thread", NULL},
	{"[N/A]", NULL},
	{"DEFAULT", NULL},
	{"", NULL},
};

START_TEST(names_what_can_be_set)
{
	ck_assert_pstr_eq(computemode_option(options[_i].shown), options[_i].option);
}
END_TEST

static const struct {
	const char *present, *previous;
	bool record;
	const char *set;
	bool forget;
} claims[] = {
	{"Default", NULL, true, "Exclusive_Process", false},
	{"Prohibited", NULL, true, "Exclusive_Process", false},
	/* Ours, of before a crash; or somebody else's from the beginning. */
	{"Exclusive_Process", "Default", false, NULL, false},
	{"Exclusive_Process", "Prohibited", false, NULL, false},
	{"Exclusive_Process", NULL, false, NULL, false},
	/* A crash after the record. */
	{"Default", "Default", false, "Exclusive_Process", false},
	/* Chosen since. */
	{"Default", "Prohibited", true, "Exclusive_Process", false},
	{"Prohibited", "Default", true, "Exclusive_Process", false},
	{"[N/A]", NULL, false, NULL, false},
	{NULL, NULL, false, NULL, false},
	{NULL, "Default", false, NULL, false},
};

START_TEST(claims_once)
{
	struct computemode_plan plan =
		computemode_plan_claim(claims[_i].present, claims[_i].previous);

	ck_assert_int_eq(plan.record, claims[_i].record);
	ck_assert_pstr_eq(plan.set, claims[_i].set);
	ck_assert_int_eq(plan.forget, claims[_i].forget);
}
END_TEST

static const struct {
	const char *present, *previous;
	const char *set;
	bool forget;
} returns[] = {
	{"Exclusive_Process", "Default", "Default", true},
	{"Exclusive_Process", "Prohibited", "Prohibited", true},
	{NULL, "Prohibited", "Prohibited", true},
	{"Default", "Default", NULL, true},
	{"Exclusive_Process", "Exclusive_Process", NULL, true},
	{"Prohibited", "Default", NULL, true},
	{"Exclusive_Process", NULL, NULL, false},
	{"Default", NULL, NULL, false},
	{NULL, NULL, NULL, false},
};

START_TEST(gives_back_what_is_recorded)
{
	struct computemode_plan plan =
		computemode_plan_give_back(returns[_i].present, returns[_i].previous);

	ck_assert_int_eq(plan.record, false);
	ck_assert_pstr_eq(plan.set, returns[_i].set);
	ck_assert_int_eq(plan.forget, returns[_i].forget);
}
END_TEST

/* ---------------------------------------------------------------- with nvidia-smi */

#define RECORD_HEAD "{\"modes\":{"
#define RECORD_REST ",\"kind\":\"compute-modes\",\"version\":1,\"boot_id\":\"\"}"
#define RECORD_TAIL "}" RECORD_REST
#define RECORD(modes) "{\"modes\":" modes RECORD_REST

static struct computemode modes;
static struct inventory served, all;
static int n_settled;
static size_t last_settled;

static void on_settled(size_t device, void *userdata)
{
	ck_assert_ptr_eq(userdata, &n_settled);
	ck_assert(device == COMPUTEMODE_OTHER || !computemode_is_pending(&modes, device));
	n_settled++;
	last_settled = device;
}

/* GPU-0 and GPU-1 are served, GPU-2 is only there. */
static void setup(void)
{
	unit_loop_setup();
	memset(&served, 0, sizeof(served));
	all.n_devices = 3;
	for (size_t i = 0; i < all.n_devices; i++) {
		(void)text_format(all.devices[i].uuid, DEVICE_UUID_SIZE, "GPU-%zu", i);
		(void)text_copy(all.devices[i].compute_mode, 32, "Default");
	}
	served.n_devices = 2;
	memcpy(served.devices, all.devices, 2 * sizeof(served.devices[0]));
	n_settled = 0;
	last_settled = SIZE_MAX;
	(void)unit_write("calls", "");
}

static void teardown(void)
{
	computemode_done(&modes);
	unit_loop_teardown();
}

/* A script that notes what it is called with; answers a look with the file `mode`. */
static const char *smi(const char *body)
{
	char text[3 * PATH_MAX];

	(void)text_format(text, sizeof(text),
			  "echo \"$* $LC_ALL\" >>%s\n[ $3 = -c ] || { cat %s; exit; }\n%s",
			  unit_path("calls"), unit_path("mode"), body);
	return unit_write_script("nvidia-smi", text);
}

static void start(const char *program)
{
	ck_assert_int_eq(computemode_init(&modes,
					  &(struct computemode_setup){
						  .processes = &unit_processes,
						  .program = program,
						  .state_directory = unit_directory,
						  .timeout_usec = UNIT_WAIT_USEC,
						  .served = &served,
						  .present = &all,
						  .settled = on_settled,
						  .userdata = &n_settled,
					  }),
			 0);
}

static void assert_calls(const char *expected)
{
	char calls[1024];

	(void)unit_read(unit_path("calls"), calls, sizeof(calls));
	ck_assert_str_eq(calls, expected);
}

static void assert_recorded(const char *expected)
{
	char record[1024];

	(void)unit_read(unit_path("compute-modes"), record, sizeof(record));
	ck_assert_str_eq(record, expected);
}

static void write_record(const char *text)
{
	(void)unit_write("compute-modes", text);
}

static void run_until_idle(void)
{
	uint64_t deadline_usec = clock_usec(CLOCK_MONOTONIC) + UNIT_WAIT_USEC;

	while (computemode_is_busy(&modes)) {
		ck_assert_msg(clock_usec(CLOCK_MONOTONIC) < deadline_usec, "waited in vain");
		ck_assert_int_ge(sd_event_run(unit_event, USEC_PER_SEC), 0);
	}
}

#define LOOK(gpu) "-i " gpu " --query-gpu=compute_mode --format=csv,noheader C\n"
#define SET(gpu, mode) "-i " gpu " -c " mode " C\n"

START_TEST(sets_and_gives_back)
{
	start(smi("exit 0"));
	ck_assert(computemode_claim(&modes, 1, false));
	ck_assert_int_eq(n_settled, 0);
	unit_run_until(&n_settled, 1);
	ck_assert_uint_eq(last_settled, 1);
	ck_assert_str_eq(served.devices[1].compute_mode, "Exclusive_Process");
	ck_assert_str_eq(served.devices[0].compute_mode, "Default");
	assert_recorded(RECORD("{\"GPU-1\":\"Default\"}"));
	ck_assert(!computemode_claim(&modes, 1, false));
	(void)unit_write("mode", "Exclusive_Process\n");
	ck_assert(computemode_give_back(&modes, 1, true));
	unit_run_until(&n_settled, 2);
	ck_assert_str_eq(served.devices[1].compute_mode, "Default");
	assert_recorded(RECORD("{}"));
	assert_calls(SET("GPU-1", "EXCLUSIVE_PROCESS") LOOK("GPU-1") SET("GPU-1", "DEFAULT"));
	ck_assert(!computemode_give_back(&modes, 1, true));
}
END_TEST

/* What is asked for while something else is done follows it, and is what counts. */
START_TEST(last_word_counts)
{
	char body[PATH_MAX + 64];

	(void)text_format(body, sizeof(body), "while [ ! -e %s ]; do sleep 0.01; done",
			  unit_path("go"));
	(void)unit_write("mode", "Exclusive_Process\n");
	start(smi(body));
	ck_assert(computemode_claim(&modes, 0, false));
	unit_run_ready();
	ck_assert_ptr_nonnull(modes.running);
	ck_assert(computemode_give_back(&modes, 0, true));
	(void)unit_write("go", "");
	run_until_idle();
	ck_assert_int_eq(n_settled, 1);
	ck_assert_str_eq(served.devices[0].compute_mode, "Default");
	assert_recorded(RECORD("{}"));
	/* And before anything was done about it: */
	ck_assert(computemode_claim(&modes, 1, false));
	ck_assert(computemode_give_back(&modes, 1, false));
	run_until_idle();
	ck_assert_int_eq(n_settled, 2);
	assert_calls(SET("GPU-0", "EXCLUSIVE_PROCESS") LOOK("GPU-0") SET("GPU-0", "DEFAULT"));
}
END_TEST

START_TEST(looks_before_it_records)
{
	start(smi("exit 0"));
	(void)unit_write("mode", "Prohibited\n");
	ck_assert(computemode_claim(&modes, 0, true));
	unit_run_until(&n_settled, 1);
	assert_recorded(RECORD("{\"GPU-0\":\"Prohibited\"}"));
	assert_calls(LOOK("GPU-0") SET("GPU-0", "EXCLUSIVE_PROCESS"));
}
END_TEST

static const char *const looks[] = {"exit 3", "exit 0", "echo '[N/A]'", "echo", "kill -KILL $$"};

START_TEST(changes_nothing_that_it_does_not_know)
{
	char body[PATH_MAX + 64];

	(void)text_format(body, sizeof(body), "echo $3 >>%s\n%s", unit_path("calls"), looks[_i]);
	start(unit_write_script("nvidia-smi", body));
	ck_assert(computemode_claim(&modes, 0, true));
	unit_run_until(&n_settled, 1);
	assert_calls("--query-gpu=compute_mode\n");
	ck_assert_int_lt(access(unit_path("compute-modes"), F_OK), 0);
}
END_TEST

/* But what is recorded is given back all the same. */
START_TEST(gives_back_blindly_when_it_must)
{
	write_record(RECORD("{\"GPU-0\":\"Prohibited\"}"));
	start(smi("exit 0"));
	ck_assert(computemode_give_back(&modes, 0, true));
	unit_run_until(&n_settled, 1);
	assert_calls(LOOK("GPU-0") SET("GPU-0", "PROHIBITED"));
	assert_recorded(RECORD("{}"));
}
END_TEST

START_TEST(tries_in_vain_once)
{
	start(smi("echo lost; exit 15"));
	(void)text_copy(modes.entries[0].present, 32, "Exclusive_Process");
	(void)text_copy(modes.entries[0].previous, 32, "Default");
	ck_assert(computemode_give_back(&modes, 0, false));
	unit_run_until(&n_settled, 1);
	ck_assert(!computemode_give_back(&modes, 0, false));
	ck_assert(!computemode_is_busy(&modes));
	assert_calls(SET("GPU-0", "DEFAULT"));
	ck_assert_str_eq(modes.entries[0].previous, "Default");
}
END_TEST

START_TEST(others_get_theirs_back)
{
	write_record(RECORD("{\"GPU-2\":\"Prohibited\",\"GPU-9\":\"Prohibited\"}"));
	(void)text_copy(all.devices[2].compute_mode, 32, "Exclusive_Process");
	start(smi("exit 0"));
	ck_assert(computemode_is_busy(&modes));
	run_until_idle();
	assert_calls(SET("GPU-2", "PROHIBITED"));
	assert_recorded(RECORD("{\"GPU-9\":\"Prohibited\"}"));
	ck_assert_int_eq(n_settled, 1);
}
END_TEST

static const char *const records[] = {
	"",
	"[]",
	RECORD("[]"),
	RECORD("7"),
	RECORD("{\"GPU-0\":7}"),
	RECORD("{\"GPU-0\":\"\"}"),
	RECORD("{\"GPU-0\":\"-1\"}"),
	RECORD("{\"GPU-0\":\"default\"}"),
	"{\"modes\":{\"GPU-0\":\"Default\"},\"kind\":\"held\",\"version\":1,\"boot_id\":\"\"}",
	("{\"modes\":{\"GPU-0\":\"Default\"},\"kind\":\"compute-modes\",\"version\":2,"
	 "\"boot_id\":\"\"}"),
};

START_TEST(believes_no_odd_record)
{
	write_record(records[_i]);
	start(smi("exit 0"));
	ck_assert(!computemode_give_back(&modes, 0, false));
	ck_assert(!computemode_is_busy(&modes));
	assert_calls("");
}
END_TEST

/* A file with more than there is room for. */
START_TEST(has_room_for_so_many)
{
	static char text[64 * 1024];
	size_t length = 0;

	for (size_t i = 0; i < COMPUTEMODE_ENTRIES_MAX + 10; i++) {
		(void)text_format(text + length, sizeof(text) - length,
				  "%s\"GPU-x%zu\":\"Default\"", i > 0 ? "," : RECORD_HEAD, i);
		length += strlen(text + length);
	}
	(void)text_copy(text + length, sizeof(text) - length, RECORD_TAIL);
	write_record(text);
	start(smi("exit 0"));
	ck_assert_uint_eq(modes.n_entries, COMPUTEMODE_ENTRIES_MAX);
	ck_assert(computemode_claim(&modes, 0, false));
	unit_run_until(&n_settled, 1);
	ck_assert_str_eq(served.devices[0].compute_mode, "Exclusive_Process");
}
END_TEST

START_TEST(has_no_time_left)
{
	start(smi("exec sleep 1000"));
	ck_assert(computemode_claim(&modes, 0, false));
	ck_assert(computemode_claim(&modes, 1, false));
	computemode_close(&modes, 100 * USEC_PER_MSEC);
	unit_run_until(&n_settled, 2);
	ck_assert(!computemode_is_busy(&modes));
	ck_assert_ptr_null(modes.running);
	/* What is asked for now is settled at once, and nothing is run for it. */
	ck_assert(computemode_give_back(&modes, 0, true));
	unit_run_until(&n_settled, 3);
	assert_calls(SET("GPU-0", "EXCLUSIVE_PROCESS"));
	assert_recorded(RECORD("{\"GPU-0\":\"Default\"}"));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("computemode");

	unit_add_table(tcase, names_what_can_be_set, options);
	unit_add_table(tcase, claims_once, claims);
	unit_add_table(tcase, gives_back_what_is_recorded, returns);
	if (!unit_has_pidfds())
		return unit_run("computemode", tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, sets_and_gives_back);
	tcase_add_test(tcase, last_word_counts);
	tcase_add_test(tcase, looks_before_it_records);
	unit_add_table(tcase, changes_nothing_that_it_does_not_know, looks);
	tcase_add_test(tcase, gives_back_blindly_when_it_must);
	tcase_add_test(tcase, tries_in_vain_once);
	tcase_add_test(tcase, others_get_theirs_back);
	unit_add_table(tcase, believes_no_odd_record, records);
	tcase_add_test(tcase, has_room_for_so_many);
	tcase_add_test(tcase, has_no_time_left);
	return unit_run("computemode", tcase);
}
