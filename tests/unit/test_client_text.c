/* SPDX-License-Identifier: MIT */
/* The client's words: shell quoting, sentences for errors, notices, tables' fields. */
#include <check.h>

#include "cli.h"
#include "explain.h"
#include "grant.h"
#include "layout.h"
#include "notice.h"
#include "proto.h"
#include "shell.h"

static const struct {
	const char *text, *quoted;
} quotes[] = {
	{"", "''"},
	{"GPU-1b52", "'GPU-1b52'"},
	{"a b", "'a b'"},
	{"it's", "'it'\\''s'"},
	{"$(x) `y` \"z\" \\", "'$(x) `y` \"z\" \\'"},
};

START_TEST(test_quote)
{
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	shell_quote(file, quotes[_i].text);
	(void)fclose(file);
	ck_assert_str_eq(text, quotes[_i].quoted);
}
END_TEST

static const struct {
	const char *error, *parameters, *part;
	int exit_status;
} errors[] = {
	{PROTO_NO_SUCH_DEVICE, "{\"selector\": \"7\"}", "no device matches \"7\"", CLI_FAILED},
	{PROTO_NO_SUCH_LEASE, "{\"id\": \"L9\"}", "no lease \"L9\"", CLI_FAILED},
	{PROTO_NOT_READY, "{\"instance\": \"GPU-a\", \"state\": \"backoff\", \"reason\": null}",
	 "GPU-a is backoff; see", CLI_FAILED},
	{PROTO_BUSY, "{\"reason\": \"full: 4/4\"}", "full: 4/4", CLI_FAILED},
	{PROTO_BUSY, "{\"reason\": 4}", "no reason given", CLI_FAILED},
	{PROTO_BUSY, "{\"reason\": \"GPU in use by uid 0, 1 lease\"}",
	 "GPU in use by uid 0 (root), 1 lease", CLI_FAILED},
	{PROTO_HELD, "{\"instance\": \"GPU-a\"}",
	 "GPU-a is held by an administrator (drained); mpsctl resume gives it back", CLI_FAILED},
	{PROTO_TIMED_OUT, "{\"waited_ms\": 1500, \"reason\": \"full\"}",
	 "timed out after 1.500 s: full", CLI_TIMED_OUT},
	{PROTO_INVALID_REQUEST, "{\"field\": \"count\", \"reason\": \"too many\"}",
	 "refused: count: too many", CLI_FAILED},
	{PROTO_INVALID_REQUEST, "{\"reason\": \"too many\"}", "refused: too many", CLI_FAILED},
	{PROTO_INVALID_REQUEST, "{\"field\": \"wait_ms\", \"reason\": \"no\"}", "--timeout: no",
	 CLI_FAILED},
	{PROTO_UNSATISFIABLE, "{\"reason\": \"no\"}", "here: no; ask for less", CLI_FAILED},
	{VARLINK_METHOD_NOT_IMPLEMENTED, "{}", "does not support drain", CLI_FAILED},
	{"a.b.C", "null", "\"a.b.C\"", CLI_FAILED},
};

START_TEST(test_explain)
{
	_cleanup_(json_decrefp) json_t *parameters =
		json_loads(errors[_i].parameters, JSON_DECODE_ANY, NULL);
	struct explain_context context = {"drain", "/s", NULL};
	char text[256];

	explain_error(&context, errors[_i].error, parameters, text, sizeof(text));
	ck_assert_msg(strstr(text, errors[_i].part) != NULL, "%s", text);
	ck_assert_int_eq(explain_exit_status(errors[_i].error), errors[_i].exit_status);
}
END_TEST

/* What is wrong is named as it was written. */
static const struct {
	const char *command, *request, *error, *parameters, *text;
} requests[] = {
	{"lease", "{\"pid\": 7}", PROTO_INVALID_REQUEST, "{\"field\": \"pid\", \"reason\": \"no\"}",
	 "--pid 7: no"},
	{"lease", "{\"memory_bytes\": 21474836480}", PROTO_INVALID_REQUEST,
	 "{\"field\": \"memory_bytes\", \"reason\": \"no\"}", "--memory 20G: no"},
	{"lease", "{\"devices\": [\"0\"]}", PROTO_INVALID_REQUEST,
	 "{\"field\": \"devices\", \"reason\": \"no\"}", "--gpu: no"},
	{"lease", "{}", PROTO_INVALID_REQUEST, "{\"field\": \"name\", \"reason\": \"no\"}",
	 "--name: no"},
	{"drain", "{\"instance\": \"gang-1\"}", PROTO_INVALID_REQUEST,
	 "{\"field\": \"instance\", \"reason\": \"no\"}", "INSTANCE \"gang-1\": no"},
	{"lease", "{\"clients\": 9, \"memory_bytes\": 1048576, \"threads_percent\": 3}",
	 PROTO_UNSATISFIABLE, "{\"reason\": \"no\"}",
	 "this can never be had here: no; ask for less with --clients or --memory"},
	{"lease", "{\"exclusive\": true}", PROTO_UNSATISFIABLE, "{\"reason\": \"no\"}",
	 "this can never be had here: no; ask for less"},
};

START_TEST(test_explain_request)
{
	_cleanup_(json_decrefp) json_t *parameters = json_loads(requests[_i].parameters, 0, NULL);
	_cleanup_(json_decrefp) json_t *request = json_loads(requests[_i].request, 0, NULL);
	struct explain_context context = {requests[_i].command, "/s", request};
	char text[256];

	explain_error(&context, requests[_i].error, parameters, text, sizeof(text));
	ck_assert_str_eq(text, requests[_i].text);
}
END_TEST

static const struct {
	const char *lease;
	int result;
} leases[] = {
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"environment\": {\"A_1\": \"x\"}}", 0},
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"instance\": \"gang-1\", \"environment\": "
	 "{\"CUDA_VISIBLE_DEVICES\": \"GPU-a,GPU-b\"}}",
	 0},
	{"{\"pipe_directory\": \"/d\", \"environment\": {\"A\": \"x\"}}", -EBADMSG},
	{"{\"id\": \"L1\", \"environment\": {\"A\": \"x\"}}", -EBADMSG},
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"environment\": {}}", -EBADMSG},
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"environment\": {\"A;b\": \"x\"}}",
	 -EBADMSG},
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"environment\": {\"1A\": \"x\"}}",
	 -EBADMSG},
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"environment\": {\"A\": \"x\\ny\"}}",
	 -EBADMSG},
	{"{\"id\": \"L1\", \"pipe_directory\": \"/d\", \"environment\": {\"A\": 3}}", -EBADMSG},
	{"[]", -EBADMSG},
};

START_TEST(test_grant)
{
	_cleanup_(json_decrefp) json_t *lease = json_loads(leases[_i].lease, 0, NULL);
	_cleanup_(grant_done) struct grant grant;
	const char *reason = NULL;

	ck_assert_int_eq(grant_init(&grant, lease, &reason), leases[_i].result);
	ck_assert_int_eq(reason != NULL, leases[_i].result != 0);
}
END_TEST

START_TEST(test_clear_environment)
{
	ck_assert_int_eq(clearenv(), 0);
	(void)setenv("CUDA_MPS_PIPE_DIRECTORY", "x", 1);
	(void)setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	(void)setenv("MPS_SUPERVISOR_LEASE", "L1", 1);
	(void)setenv("CUDA_MPS_ANYTHING", "x", 1);
	grant_clear_environment();
	ck_assert_str_eq(environ[0], "CUDA_VISIBLE_DEVICES=1");
	ck_assert_ptr_null(environ[1]);
}
END_TEST

static const struct {
	const char *parameters;
	enum notice notice;
	const char *part;
} notices[] = {
	{"{\"what\": \"granted\", \"lease\": {\"id\": \"L1\"}}", NOTICE_NONE, ""},
	{"{\"what\": 3}", NOTICE_NONE, ""},
	{"[]", NOTICE_NONE, ""},
	{"{\"what\": \"interrupted\", \"lease\": {\"id\": \"L1\"}, \"event\": "
	 "{\"message\": \"it died\", \"hit_leases\": [\"L1\", \"L2\", 3, \"L4\"]}}",
	 NOTICE_INTERRUPTED, "lease L1 was interrupted: it died (also hit: L2, L4);"},
	{"{\"what\": \"interrupted\", \"event\": {\"hit_leases\": [\"L1\"]}, \"lease\": "
	 "{\"id\": \"L1\"}}",
	 NOTICE_INTERRUPTED, "lease L1 was interrupted: no reason given;"},
	{"{\"what\": \"revoked\", \"event\": null}", NOTICE_REVOKED, "lease ? was revoked"},
	{"{\"what\": \"revoked\", \"event\": {\"message\": \"it was released\"}, \"lease\": "
	 "{\"id\": \"L1\", \"state\": \"draining\"}}",
	 NOTICE_REVOKED,
	 "lease L1 was revoked: it was released; nothing that starts from now on can"},
};

START_TEST(test_notice)
{
	_cleanup_(json_decrefp) json_t *parameters = json_loads(notices[_i].parameters, 0, NULL);
	char text[512] = "";

	ck_assert_int_eq(notice_read(parameters, text, sizeof(text)), notices[_i].notice);
	ck_assert_msg(strstr(text, notices[_i].part) != NULL, "%s", text);
}
END_TEST

START_TEST(test_sanitize)
{
	char text[] = "a\033[2J\x7f\n\xc2\x9b"
		      "31m \xc3\xa9";

	cli_sanitize(text);
	ck_assert_str_eq(text, "a?[2J????31m \xc3\xa9");
}
END_TEST

START_TEST(test_values)
{
	char text[LAYOUT_TEXT_MAX];

	ck_assert_str_eq(layout_bytes(INT64_C(2) << 30, text), "2G");
	ck_assert_str_eq(layout_duration(59 * (int64_t)USEC_PER_SEC, text), "59s");
	ck_assert_str_eq(layout_duration(3661 * (int64_t)USEC_PER_SEC, text), "1h 1m");
	ck_assert_str_eq(layout_duration(90000 * (int64_t)USEC_PER_SEC, text), "1d 1h");
	ck_assert_str_eq(layout_duration(-1, text), "0s");
	ck_assert_str_eq(layout_bytes(-1, text), "-");
	ck_assert_str_eq(layout_number(0, text), "0");
	ck_assert_str_eq(layout_number(-1, text), "-");
	ck_assert_str_eq(layout_time(-1, text), "-");
	ck_assert_str_eq(layout_user(-1, text), "-");
}
END_TEST

static const struct {
	const char *reason, *text;
} reasons[] = {
	{"full: 4/4 clients reserved", "full: 4/4 clients reserved"},
	{"GPU in use by uid 0, 1 lease", "GPU in use by uid 0 (root), 1 lease"},
	{"uid 0 has it, uid 3999999001", "uid 0 (root) has it, uid 3999999001"},
	{"uid of", "uid of"},
	{"", ""},
};

START_TEST(test_reason)
{
	char text[LAYOUT_REASON_MAX];

	ck_assert_str_eq(layout_reason(reasons[_i].reason, text), reasons[_i].text);
}
END_TEST

START_TEST(test_reason_cut)
{
	char text[LAYOUT_REASON_MAX], longest[2 * LAYOUT_REASON_MAX];

	for (size_t i = 0; i + 6 < sizeof(longest); i += 6)
		memcpy(longest + i, "uid 0 ", 7);
	ck_assert_uint_eq(strlen(layout_reason(longest, text)), LAYOUT_REASON_MAX - 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_text");
	TCase *tcase = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_loop_test(tcase, test_quote, 0, ELEMENTSOF(quotes));
	tcase_add_loop_test(tcase, test_explain, 0, ELEMENTSOF(errors));
	tcase_add_loop_test(tcase, test_explain_request, 0, ELEMENTSOF(requests));
	tcase_add_loop_test(tcase, test_grant, 0, ELEMENTSOF(leases));
	tcase_add_test(tcase, test_clear_environment);
	tcase_add_loop_test(tcase, test_notice, 0, ELEMENTSOF(notices));
	tcase_add_test(tcase, test_sanitize);
	tcase_add_test(tcase, test_values);
	tcase_add_loop_test(tcase, test_reason, 0, ELEMENTSOF(reasons));
	tcase_add_test(tcase, test_reason_cut);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
