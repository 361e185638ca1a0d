/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <sys/socket.h>

#include "unit.h"
#include "varlink.h"

static struct varlink_stream stream;
static int peer = -EBADF;

static void setup(void)
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	varlink_stream_init(&stream, fds[0], VARLINK_REQUEST_MAX);
	peer = fds[1];
}

static void teardown(void)
{
	varlink_stream_done(&stream);
	peer = safe_close(peer);
}

static void write_bytes(const char *bytes, size_t length)
{
	ck_assert_int_eq(write(peer, bytes, length), (ssize_t)length);
}

static int read_while_there(void)
{
	int r;

	do {
		r = varlink_stream_read(&stream);
	} while (r == 0);
	return r;
}

/* The next message must be there, and its method this. */
static void expect_method(const char *method)
{
	char error[VARLINK_ERROR_TEXT_MAX] = "";
	_cleanup_json_ json_t *message = NULL;

	ck_assert_msg(varlink_stream_next(&stream, &message, error) == 0, "%s", error);
	ck_assert_str_eq(json_string_value(json_object_get(message, "method")), method);
}

static void expect_none(void)
{
	char error[VARLINK_ERROR_TEXT_MAX] = "";
	json_t *message = NULL;

	ck_assert_int_eq(varlink_stream_next(&stream, &message, error), VARLINK_NO_MESSAGE);
	ck_assert_ptr_null(message);
}

START_TEST(joins_split_messages)
{
	static const char text[] = "{\"method\":\"a.B\"}";

	for (size_t i = 0; i < sizeof(text); i++) {
		expect_none();
		write_bytes(text + i, 1);
		ck_assert_int_eq(varlink_stream_read(&stream), 0);
	}
	expect_method("a.B");
	expect_none();
	ck_assert_int_eq(varlink_stream_read(&stream), -EAGAIN);
}
END_TEST

START_TEST(takes_several_apart)
{
	static const char text[] =
		"{\"method\":\"a\"}\0{\"method\":\"b\"}\0{\"method\":\"c\"}\0{\"me";
	static const char rest[] = "thod\":\"d\"}";

	write_bytes(text, sizeof(text) - 1);
	ck_assert_int_eq(varlink_stream_read(&stream), 0);
	expect_method("a");
	expect_method("b");
	expect_method("c");
	expect_none();
	write_bytes(rest, sizeof(rest));
	ck_assert_int_eq(varlink_stream_read(&stream), 0);
	expect_method("d");
	expect_none();
}
END_TEST

/* A call of just this many bytes; the caller frees it. */
static char *long_call(size_t length)
{
	static const char start[] = "{\"method\":\"a\",\"parameters\":{\"x\":\"";
	static const char end[] = "\"}}";
	char *text = malloc(length + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', length);
	memcpy(text, start, sizeof(start) - 1);
	memcpy(text + length - sizeof(end) + 1, end, sizeof(end));
	return text;
}

static const size_t accepted_lengths[] = {
	4094, 4095, 4096, 4097, 8191, 8192, VARLINK_REQUEST_MAX - 1, VARLINK_REQUEST_MAX,
};

START_TEST(accepts_up_to_the_limit)
{
	size_t length = accepted_lengths[_i];
	_cleanup_free_ char *text = long_call(length);

	for (int round = 0; round < 2; round++) {
		for (size_t done = 0; done < length + 1;) {
			size_t part = MIN(length + 1 - done, (size_t)10000);

			write_bytes(text + done, part);
			done += part;
			ck_assert_int_eq(read_while_there(),
					 done > VARLINK_REQUEST_MAX ? -EMSGSIZE : -EAGAIN);
		}
		expect_method("a");
	}
}
END_TEST

START_TEST(refuses_past_the_limit)
{
	_cleanup_free_ char *text = long_call(VARLINK_REQUEST_MAX + 1);

	write_bytes(text, VARLINK_REQUEST_MAX + 2);
	ck_assert_int_eq(read_while_there(), -EMSGSIZE);
	expect_none();
	ck_assert_int_eq(varlink_stream_read(&stream), -EMSGSIZE);
	ck_assert_uint_le(stream.in_size, VARLINK_REQUEST_MAX + 1);
}
END_TEST

static const struct {
	const char *bytes;
	size_t length;
} broken[] = {
#define BROKEN(text)               \
	{                          \
		text, sizeof(text) \
	}
	BROKEN(""),
	BROKEN("{"),
	BROKEN("[1]"),
	BROKEN("1"),
	BROKEN("\"x\""),
	BROKEN("null"),
	BROKEN("{\"a\":1,\"a\":2}"),
	BROKEN("{\"a\":{\"b\":1,\"b\":1}}"),
	BROKEN("{} {}"),
	BROKEN("{'a':1}"),
	BROKEN("{\"a\":\"\xff\xfe\"}"),
	BROKEN("{\"a\":\"\\u0000\"}"),
	BROKEN("{\"a\":1e999}"),
	BROKEN("{\"a\":99999999999999999999}"),
	BROKEN("GET / HTTP/1.1"),
};

START_TEST(says_what_is_broken)
{
	static const char good[] = "{\"method\":\"after\"}";
	char error[VARLINK_ERROR_TEXT_MAX] = "";
	json_t *message = NULL;

	write_bytes(broken[_i].bytes, broken[_i].length);
	write_bytes(good, sizeof(good));
	ck_assert_int_eq(read_while_there(), -EAGAIN);
	ck_assert_int_eq(varlink_stream_next(&stream, &message, error), -EBADMSG);
	ck_assert_ptr_null(message);
	ck_assert_str_ne(error, "");
	expect_method("after");
	expect_none();
}
END_TEST

START_TEST(survives_deep_nesting)
{
	char error[VARLINK_ERROR_TEXT_MAX] = "";
	_cleanup_free_ char *text = malloc(VARLINK_REQUEST_MAX);
	json_t *message = NULL;

	ck_assert_ptr_nonnull(text);
	memset(text, '[', VARLINK_REQUEST_MAX);
	memcpy(text, "{\"a\":", 5);
	text[VARLINK_REQUEST_MAX - 1] = '\0';
	write_bytes(text, VARLINK_REQUEST_MAX);
	ck_assert_int_eq(read_while_there(), -EAGAIN);
	ck_assert_int_eq(varlink_stream_next(&stream, &message, error), -EBADMSG);
}
END_TEST

START_TEST(tells_the_end)
{
	static const char text[] = "{\"method\":\"last\"}";

	write_bytes(text, sizeof(text));
	peer = safe_close(peer);
	ck_assert_int_eq(read_while_there(), VARLINK_EOF);
	expect_method("last");
	ck_assert_int_eq(varlink_stream_read(&stream), VARLINK_EOF);
}
END_TEST

START_TEST(limits_what_waits_for_a_peer)
{
	_cleanup_free_ char *filler = malloc(1 << 20);
	_cleanup_free_ char *chunk = malloc(1 << 20);
	_cleanup_json_ json_t *message = NULL;
	int n_sent = 0, n_ended = 0, r = VARLINK_PENDING;
	size_t waiting;

	ck_assert_ptr_nonnull(filler);
	ck_assert_ptr_nonnull(chunk);
	memset(filler, 'x', 1 << 20);
	message = json_pack("{s:s#}", "x", filler, (1 << 20) - 100);
	ck_assert_ptr_nonnull(message);
	while ((r = varlink_stream_send(&stream, message)) == 0) {
		n_sent++;
		ck_assert_uint_le(stream.out_length, VARLINK_OUTPUT_MAX);
		ck_assert_int_lt(n_sent, 32);
	}
	ck_assert_int_eq(r, -ENOBUFS);
	ck_assert_int_ge(n_sent, 16);
	waiting = stream.out_length;
	ck_assert_int_eq(varlink_stream_send(&stream, message), -ENOBUFS);
	ck_assert_uint_eq(stream.out_length, waiting);
	ck_assert_int_eq(varlink_stream_flush(&stream), VARLINK_PENDING);
	/* The peer reads at last: all that was accepted comes whole. */
	do {
		ssize_t n = read(peer, chunk, 1 << 20);

		for (ssize_t i = 0; i < n; i++)
			n_ended += chunk[i] == '\0';
		r = varlink_stream_flush(&stream);
		ck_assert_int_ge(r, 0);
	} while (n_ended < n_sent);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(stream.out_length, 0);
	ck_assert_int_eq(read(peer, chunk, 1), -1);
	ck_assert_int_eq(varlink_stream_send(&stream, message), 0);
}
END_TEST

START_TEST(needs_no_sigpipe)
{
	_cleanup_json_ json_t *message = json_object();

	peer = safe_close(peer);
	ck_assert_int_eq(varlink_stream_send(&stream, message), -EPIPE);
	ck_assert_uint_eq(stream.out_length, 0);
}
END_TEST

START_TEST(needs_no_sigpipe_for_what_waits)
{
	_cleanup_json_ json_t *message = json_object();

	while (stream.out_length == 0)
		ck_assert_int_eq(varlink_stream_send(&stream, message), 0);
	peer = safe_close(peer);
	ck_assert_int_eq(varlink_stream_flush(&stream), -EPIPE);
}
END_TEST

/* Up to 4095 bytes of text, 4087 of them the value here, are sent without memory being taken. */
static const size_t sent_lengths[] = {1, 4086, 4087, 4088, 4096, 100000};

START_TEST(sends_any_length)
{
	size_t length = sent_lengths[_i] + strlen("{\"x\":\"\"}") + 1, n_read = 0;
	_cleanup_free_ char *value = malloc(length), *got = malloc(length);
	_cleanup_json_ json_t *message = NULL, *back = NULL;

	ck_assert_ptr_nonnull(value);
	ck_assert_ptr_nonnull(got);
	memset(value, 'x', length);
	message = json_pack("{s:s#}", "x", value, (int)sent_lengths[_i]);
	ck_assert_int_eq(varlink_stream_send(&stream, message), 0);
	ck_assert_uint_eq(stream.out_length, 0);
	while (n_read < length) {
		ssize_t n = read(peer, got + n_read, length - n_read);

		ck_assert_int_gt(n, 0);
		n_read += (size_t)n;
	}
	ck_assert_int_eq(got[length - 1], '\0');
	back = json_loads(got, 0, NULL);
	ck_assert(json_equal(message, back));
}
END_TEST

START_TEST(sends_compact_and_ended)
{
	_cleanup_json_ json_t *message = varlink_call_new("a.B", json_pack("{s:i}", "x", 1), true);
	static const char wanted[] = "{\"method\":\"a.B\",\"parameters\":{\"x\":1},\"more\":true}";
	char text[128];

	ck_assert_int_eq(varlink_stream_send(&stream, message), 0);
	ck_assert_int_eq(read(peer, text, sizeof(text)), sizeof(wanted));
	ck_assert_mem_eq(text, wanted, sizeof(wanted));
}
END_TEST

static const struct {
	const char *text, *reason; /* reason NULL: it is a call */
	bool more, oneway, parameters;
} calls[] = {
	{"{\"method\":\"a.B\"}", NULL, false, false, false},
	{"{\"method\":\"a.B\",\"parameters\":{}}", NULL, false, false, true},
	{"{\"method\":\"a.B\",\"more\":true,\"oneway\":false}", NULL, true, false, false},
	{"{\"method\":\"a.B\",\"oneway\":true,\"parameters\":{\"x\":1}}", NULL, false, true, true},
	{"{\"method\":\"a.B\",\"unknown\":1}", NULL, false, false, false},
	{"{}", "method", false, false, false},
	{"{\"method\":1}", "method", false, false, false},
	{"{\"method\":null}", "method", false, false, false},
	{"{\"parameters\":{}}", "method", false, false, false},
	{"{\"method\":\"a.B\",\"parameters\":[]}", "parameters", false, false, false},
	{"{\"method\":\"a.B\",\"parameters\":\"x\"}", "parameters", false, false, false},
	{"{\"method\":\"a.B\",\"more\":1}", "more", false, false, false},
	{"{\"method\":\"a.B\",\"oneway\":\"true\"}", "oneway", false, false, false},
};

START_TEST(reads_calls)
{
	_cleanup_json_ json_t *message = json_loads(calls[_i].text, 0, NULL);
	struct varlink_call call = {};
	const char *reason = NULL;
	int r;

	ck_assert_ptr_nonnull(message);
	r = varlink_call_parse(message, &call, &reason);
	ck_assert_int_eq(r, calls[_i].reason ? -EBADMSG : 0);
	if (calls[_i].reason) {
		unit_assert_contains(reason, calls[_i].reason);
		ck_assert_ptr_null(call.method);
		return;
	}
	ck_assert_str_eq(call.method, "a.B");
	ck_assert_int_eq(call.more, calls[_i].more);
	ck_assert_int_eq(call.oneway, calls[_i].oneway);
	ck_assert_int_eq(call.parameters != NULL, calls[_i].parameters);
}
END_TEST

static void expect_text(json_t *message, const char *text)
{
	_cleanup_free_ char *dumped = json_dumps(message, JSON_COMPACT);

	ck_assert_str_eq(dumped, text);
	json_decref(message);
}

START_TEST(makes_messages)
{
	expect_text(varlink_call_new("a.B", NULL, false), "{\"method\":\"a.B\"}");
	expect_text(varlink_reply_new(NULL, false), "{\"parameters\":{}}");
	expect_text(varlink_reply_new(json_pack("{s:i}", "x", 1), true),
		    "{\"parameters\":{\"x\":1},\"continues\":true}");
	expect_text(varlink_error_new("a.Wrong", NULL),
		    "{\"error\":\"a.Wrong\",\"parameters\":{}}");
	expect_text(varlink_error_new("a.Wrong", json_pack("{s:s}", "why", "no")),
		    "{\"error\":\"a.Wrong\",\"parameters\":{\"why\":\"no\"}}");
}
END_TEST

START_TEST(makes_json_of_any_text)
{
	expect_text(json_pack("[o]", varlink_text("")), "[\"\"]");
	expect_text(json_pack("[o]", varlink_text("a\n\x01\"")), "[\"a\\n\\u0001\\\"\"]");
	expect_text(json_pack("[o]", varlink_text("v\xc3\xad"
						  "ctim")),
		    "[\"v\xc3\xad"
		    "ctim\"]");
	expect_text(json_pack("[o]", varlink_text("v\xc3\xad\xc3")), "[\"v???\"]");
	expect_text(json_pack("[o]", varlink_text("\xff\xfex")), "[\"??x\"]");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("varlink");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, joins_split_messages);
	tcase_add_test(tcase, takes_several_apart);
	unit_add_table(tcase, accepts_up_to_the_limit, accepted_lengths);
	tcase_add_test(tcase, refuses_past_the_limit);
	unit_add_table(tcase, says_what_is_broken, broken);
	tcase_add_test(tcase, survives_deep_nesting);
	tcase_add_test(tcase, tells_the_end);
	tcase_add_test(tcase, limits_what_waits_for_a_peer);
	tcase_add_test(tcase, needs_no_sigpipe);
	tcase_add_test(tcase, needs_no_sigpipe_for_what_waits);
	unit_add_table(tcase, sends_any_length, sent_lengths);
	tcase_add_test(tcase, sends_compact_and_ended);
	unit_add_table(tcase, reads_calls, calls);
	tcase_add_test(tcase, makes_messages);
	tcase_add_test(tcase, makes_json_of_any_text);
	return unit_run("varlink", tcase);
}
