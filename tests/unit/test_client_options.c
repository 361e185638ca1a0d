/* SPDX-License-Identifier: MIT */
/* The client's command lines: the options of lease, and INSTANCE. */
#include <check.h>

#include "cli.h"
#include "lease_options.h"
#include "match.h"
#include "util.h"

#define WORDS_MAX 12

static const struct {
	const char *words[WORDS_MAX];
	int result;
	const char *request; /* with result 0 */
	const char *command; /* its first word; NULL: none */
} lines[] = {
	{{"lease"}, 0, "{}", NULL},
	{{"lease", "--", "true"}, 0, "{}", "true"},
	{{"lease", "-g", "2", "-t", "50", "-m", "20G", "-c", "3", "--", "x"},
	 0,
	 "{\"count\": 2, \"threads_percent\": 50, \"memory_bytes\": 21474836480, \"clients\": 3}",
	 "x"},
	{{"lease", "--gpu", "0", "--gpu=GPU-a", "-x", "--", "x", "--gpu", "2"},
	 0,
	 "{\"devices\": [\"0\", \"GPU-a\"], \"exclusive\": true}",
	 "x"},
	{{"lease", "--gpus=2", "--gpu", "0", "--gpu", "1", "--", "x"},
	 0,
	 "{\"count\": 2, \"devices\": [\"0\", \"1\"]}",
	 "x"},
	{{"lease", "-w", "0.5"}, 0, "{\"wait_ms\": 500}", NULL},
	{{"lease", "--no-wait"}, 0, "{\"wait_ms\": 0}", NULL},
	{{"lease", "--uid", "1000", "--detach"}, 0, "{\"uid\": 1000}", NULL},
	{{"lease", "--uid", "root"}, 0, "{\"uid\": 0}", NULL},
	{{"lease", "--name", "--", "--detach"}, 0, "{\"name\": \"--\"}", NULL},
	{{"lease", "--name", "--", "x"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--on-loss", "rerun", "--reruns", "0", "--", "--help"}, 0, "{}", "--help"},
	{{"lease", "x"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-g", "two"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-g", "0"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-t", "101"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-g", "65"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-c", "1025"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-m", "0"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-m", "20"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-m", "9999999T"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-m", "1M", "--name", "a\tb"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-w", "5", "--no-wait"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--no-wait", "--wait=0", "--", "x"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-w", "-1"}, CLI_USAGE, NULL, NULL},
	{{"lease", "-w"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--unknown"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--uid", "no such user"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--name", "\xff"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--gpu", "\xff"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--format", "xml"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--pid", "3", "--", "x"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--detach", "--", "x"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--detach", "--pid", "3"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--format", "env", "--", "x"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--fallback", "time-slicing"}, CLI_USAGE, NULL, NULL},
	{{"lease", "--reruns", "2", "--", "x"}, CLI_USAGE, NULL, NULL},
};

START_TEST(test_lease_options)
{
	_cleanup_(lease_options_done) struct lease_options options;
	_cleanup_(json_decrefp) json_t *request = NULL;
	char *argv[WORDS_MAX + 1] = {};
	int argc = 0;

	for (; argc < WORDS_MAX && lines[_i].words[argc]; argc++)
		argv[argc] = (char *)(uintptr_t)lines[_i].words[argc];
	ck_assert_int_eq(lease_options_parse(argc, argv, &options), lines[_i].result);
	if (lines[_i].result != 0)
		return;
	request = json_loads(lines[_i].request, 0, NULL);
	ck_assert(json_equal(options.request, request));
	ck_assert_int_eq(options.command != NULL, lines[_i].command != NULL);
	if (options.command)
		ck_assert_str_eq(options.command[0], lines[_i].command);
}
END_TEST

static const char instances_text[] =
	"[{\"name\": \"GPU-1b52aa\", \"kind\": \"gpu\", \"devices\": [{\"uuid\": \"GPU-1b52aa\","
	"  \"index\": 0, \"pci_bus_id\": \"00000000:3B:00.0\"}]},"
	" {\"name\": \"GPU-1b77\", \"kind\": \"gpu\", \"devices\": [{\"uuid\": \"GPU-1b77\","
	"  \"index\": 1, \"pci_bus_id\": \"00000000:5E:00.0\"}]},"
	" {\"name\": \"gang-1\", \"kind\": \"gang\", \"devices\": ["
	"  {\"uuid\": \"GPU-1b77\", \"index\": 1, \"pci_bus_id\": \"00000000:5E:00.0\"},"
	"  {\"uuid\": \"GPU-1b52aa\", \"index\": 0, \"pci_bus_id\": \"00000000:3B:00.0\"}]},"
	" {\"name\": \"gang-2\", \"kind\": \"gang\", \"devices\": ["
	"  {\"uuid\": \"GPU-1b77\", \"index\": 1, \"pci_bus_id\": \"00000000:5E:00.0\"},"
	"  {\"uuid\": \"GPU-2\", \"index\": 3, \"pci_bus_id\": null}]},"
	" {\"devices\": 3}]";

static const struct {
	const char *selector;
	int result;
	size_t n;
} selectors[] = {
	{NULL, 0, 5},
	{"all", 0, 5},
	{"0", 0, 2},
	{"1", 0, 3},
	{"2", MATCH_NONE, 0},
	{"GPU-1b52", 0, 2},
	{"gpu-1B77", 0, 3},
	{"GPU-2", 0, 1},
	{"GPU-1b", MATCH_AMBIGUOUS, 0},
	{"", MATCH_NONE, 0},
	{"gang-1", 0, 1},
	{"gang-", MATCH_AMBIGUOUS, 0},
	{"0000:3b:00.0", 0, 2},
	{"3b:00.0", 0, 2},
	{"3b:00.0x", MATCH_NONE, 0},
	{"0000:3c:00.0", MATCH_NONE, 0},
};

START_TEST(test_match)
{
	_cleanup_(json_decrefp) json_t *instances = json_loads(instances_text, 0, NULL);
	_cleanup_(json_decrefp) json_t *found = NULL;

	ck_assert_ptr_nonnull(instances);
	ck_assert_int_eq(match_instances(instances, selectors[_i].selector, &found),
			 selectors[_i].result);
	ck_assert_uint_eq(json_array_size(found), selectors[_i].n);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_options");
	TCase *tcase = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(tcase, test_lease_options, 0, ELEMENTSOF(lines));
	tcase_add_loop_test(tcase, test_match, 0, ELEMENTSOF(selectors));
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
