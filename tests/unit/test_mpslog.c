/* SPDX-License-Identifier: MIT */
#include "mpslog.h"
#include "unit.h"

#define CONTROL "[2026-11-30 15:14:37.793 Control   602] "
#define SERVER "[2026-11-30 15:14:39.069 Server   652] "
#define OTHER "[2026-11-30 15:14:37.801 Other     652] "

/* Lines of 535, 550 and 580 with other pids. */
static const struct {
	const char *line;
	enum mpslog_kind kind;
	int32_t writer, pid, status;
	uint32_t uid;
} lines[] = {
	{CONTROL "Starting control daemon using socket /run/x/control", MPSLOG_STARTING, 602, 0, 0,
	 0},
	{CONTROL "To connect CUDA applications to this daemon, set env "
		 "CUDA_MPS_PIPE_DIRECTORY=/run/x",
	 MPSLOG_OTHER, 602, 0, 0, 0},
	{CONTROL "CUDA MPS Control binary version: 13000", MPSLOG_OTHER, 602, 0, 0, 0},
	{CONTROL "Accepting connection...", MPSLOG_NOISE, 602, 0, 0, 0},
	{CONTROL "NEW UI", MPSLOG_NOISE, 602, 0, 0, 0},
	{CONTROL "Cmd:get_server_status 652", MPSLOG_COMMAND, 602, 0, 0, 0},
	{CONTROL "ACTIVE", MPSLOG_OTHER, 602, 0, 0, 0},
	{CONTROL "652", MPSLOG_NUMBER, 602, 652, 0, 0},
	{CONTROL "UI closed", MPSLOG_COMMAND_OVER, 602, 0, 0, 0},
	{CONTROL "User did not send valid credentials", MPSLOG_NOISE, 602, 0, 0, 0},
	{CONTROL "NEW CLIENT 649 from user 1000: Server already exists", MPSLOG_NEW_CLIENT, 602,
	 649, 0, 1000},
	{CONTROL "NEW CLIENT 649 from user 65534: Server is not ready, push client to pending list",
	 MPSLOG_CLIENT_PENDING, 602, 649, 0, 65534},
	{CONTROL "NEW CLIENT 649 from user 4294967295: Server already exists", MPSLOG_NEW_CLIENT,
	 602, 649, 0, UINT32_MAX},
	{CONTROL "Starting new server 652 for user 1000", MPSLOG_SERVER_START, 602, 652, 0, 1000},
	{CONTROL "NEW SERVER 652: Ready", MPSLOG_SERVER_READY, 602, 652, 0, 0},
	{"[2026-11-30 15:09:11.655 Control  1550] NEW SERVER 1580: Ready", MPSLOG_SERVER_READY,
	 1550, 1580, 0, 0},
	{CONTROL "Server 652 exited with status 0", MPSLOG_SERVER_EXIT, 602, 652, 0, 0},
	{CONTROL "Server 652 exited with status 1", MPSLOG_SERVER_EXIT, 602, 652, 1, 0},
	{CONTROL "Server 652 has 1 active worker threads. Server will not shutdown.", MPSLOG_ORDER,
	 602, 0, 0, 0},
	{CONTROL "Server encountered a fatal exception. Shutting down", MPSLOG_SERVER_BROKE, 602, 0,
	 0, 0},
	{CONTROL "Try shutting down server 652, backoff is enabled", MPSLOG_ORDER, 602, 0, 0, 0},
	{CONTROL "Control will try shutting down server 652 again in at most 200ms", MPSLOG_ORDER,
	 602, 0, 0, 0},
	{CONTROL "Failed to start server using uid 1000, error: Operation not permitted",
	 MPSLOG_OTHER, 602, 0, 0, 0},
	{CONTROL "Failed to accept new client. Maximum number of clients (48) reached.",
	 MPSLOG_CLIENT_LIMIT, 602, 0, 0, 0},
	{CONTROL "Exit with status 0", MPSLOG_CONTROL_EXIT, 602, 0, 0, 0},
	{CONTROL "Exit with status 1", MPSLOG_CONTROL_EXIT, 602, 0, 1, 0},
	{OTHER "Startup", MPSLOG_OTHER, 652, 0, 0, 0},
	{OTHER "Connecting to control daemon on socket: /run/x/control", MPSLOG_OTHER, 652, 0, 0,
	 0},
	{OTHER "Failed to start : no CUDA-capable device is detected", MPSLOG_START_FAILED, 652, 0,
	 0, 0},
	{SERVER "Received new client request for {PID: -1234, Context ID: 0}", MPSLOG_OTHER, 652, 0,
	 0, 0},
	{SERVER "Client {PID: 649, Context ID: 1} connected", MPSLOG_CLIENT_CONNECTED, 652, 649, 0,
	 0},
	{SERVER "The following client process have a sticky error set:", MPSLOG_FAULT_LIST, 652, 0,
	 0, 0},
	{SERVER "Client {PID: 649, Context ID: 1} exiting. Number of active client contexts is 0.",
	 MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "Server failed to recevie command with status 806, assuming client {PID: 649, "
		"Context ID: 0} exit",
	 MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "Client process 649 disconnected", MPSLOG_CLIENT_GONE, 652, 649, 0, 0},
	{SERVER "Client process disconnected", MPSLOG_CLIENT_GONE, 652, 0, 0, 0},
	{SERVER "Server has been notified to shutdown", MPSLOG_SERVER_NOTIFIED, 652, 0, 0, 0},
	{SERVER "Server was unable to shutdown due to 2 active clients", MPSLOG_SERVER_KEPT, 652, 0,
	 0, 0},
	{SERVER "Server has started", MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "Server Priority set to 0", MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "Server teardown in progress. Refusing to accept new client {PID: 649, Context ID: "
		"0}",
	 MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "Failed to accept client {PID: 649, Context ID: 0} with status 807", MPSLOG_OTHER,
	 652, 0, 0, 0},
	{SERVER "Server is handling a fatal GPU error.", MPSLOG_FAULT, 652, 0, 0, 0},
	{SERVER "Client {PID: 649, Context: 1} encountered a fatal GPU error.", MPSLOG_OTHER, 652,
	 0, 0, 0},
	{SERVER "Client {PID: 649, Context ID: 1} on device 0 to be torn down", MPSLOG_FAULT_HIT,
	 652, 649, 0, 0},
	{SERVER "Client {PID: 649, Context ID: 1} on the error-trigging process 649 to be torn "
		"down",
	 MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "All clients belonging to error trigging process 649 will be torn down",
	 MPSLOG_OTHER, 652, 0, 0, 0},
	/* Without, or with half a prefix. */
	{"NEW SERVER 652: Ready", MPSLOG_SERVER_READY, 0, 652, 0, 0},
	{"[ 602] NEW UI", MPSLOG_NOISE, 602, 0, 0, 0},
	{"[602] NEW UI", MPSLOG_NOISE, 602, 0, 0, 0},
	{"[x] NEW UI", MPSLOG_NOISE, 0, 0, 0, 0},
	{"[] NEW UI", MPSLOG_NOISE, 0, 0, 0, 0},
	{"[99999999999] NEW UI", MPSLOG_NOISE, 0, 0, 0, 0},
	{"[2026-11-30 15:14:37.793 Control   602]NEW UI", MPSLOG_OTHER, 0, 0, 0, 0},
	{"[2026-11-30 15:14:37.793 Control   602 NEW UI", MPSLOG_OTHER, 0, 0, 0, 0},
	{"2026-11-30 15:14:37.793 Control   602] NEW UI", MPSLOG_OTHER, 0, 0, 0, 0},
	{"[2026-11-30 15:14:37.793 Control   602]", MPSLOG_OTHER, 0, 0, 0, 0},
	{"[2026-11-30 15:14:37.793 Control   602] ", MPSLOG_OTHER, 602, 0, 0, 0},
	{" " CONTROL "NEW UI", MPSLOG_OTHER, 0, 0, 0, 0},
	/* Pids that are none. */
	{CONTROL "NEW CLIENT -649 from user 1000: Server already exists", MPSLOG_NEW_CLIENT, 602, 0,
	 0, 0},
	{CONTROL "NEW CLIENT 2147483647 from user 1: x", MPSLOG_NEW_CLIENT, 602, INT32_MAX, 0, 1},
	{CONTROL "NEW CLIENT 2147483648 from user 1: x", MPSLOG_NEW_CLIENT, 602, 0, 0, 1},
	{CONTROL "NEW CLIENT 99999999999999999999999 from user 99999999999999999999: x",
	 MPSLOG_NEW_CLIENT, 602, 0, 0, 0},
	{CONTROL "NEW CLIENT ", MPSLOG_NEW_CLIENT, 602, 0, 0, 0},
	{CONTROL "Server -652 exited with status 0", MPSLOG_OTHER, 602, 0, 0, 0},
	{CONTROL "Server 0 exited with status 0", MPSLOG_OTHER, 602, 0, 0, 0},
	{CONTROL "Server 652 exited with status", MPSLOG_OTHER, 602, 0, 0, 0},
	{SERVER "Client {PID: -649, Context ID: 1} on device 0 to be torn down", MPSLOG_FAULT_HIT,
	 652, 0, 0, 0},
	{SERVER "Client {PID: 649, Context ID: 1 on device 0 to be torn down", MPSLOG_OTHER, 652, 0,
	 0, 0},
	{SERVER "Client {PID: ", MPSLOG_OTHER, 652, 0, 0, 0},
	{SERVER "Client process -649 disconnected", MPSLOG_CLIENT_GONE, 652, 0, 0, 0},
	{CONTROL "Starting new server x for user y", MPSLOG_SERVER_START, 602, 0, 0, 0},
	/* Anything else. */
	{"", MPSLOG_OTHER, 0, 0, 0, 0},
	{"[", MPSLOG_OTHER, 0, 0, 0, 0},
	{"]", MPSLOG_OTHER, 0, 0, 0, 0},
	{"new ui", MPSLOG_OTHER, 0, 0, 0, 0},
	{"\x01\xff\xfe", MPSLOG_OTHER, 0, 0, 0, 0},
	{"%s%s%n", MPSLOG_OTHER, 0, 0, 0, 0},
	{"/bin/sh: 1: nvidia-cuda-mps-server: not found", MPSLOG_OTHER, 0, 0, 0, 0},
};

/* A copy that ends where the line does, so that valgrind and sanitizers see a step too far. */
static char *exact_copy(const char *line, size_t length)
{
	char *copy = malloc(length ? length : 1);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, line, length);
	return copy;
}

START_TEST(understands_lines)
{
	size_t length = strlen(lines[_i].line);
	_cleanup_free_ char *line = exact_copy(lines[_i].line, length);
	struct mpslog_line parsed;

	mpslog_parse(line, length, &parsed);
	ck_assert_str_eq(mpslog_kind_to_string(parsed.kind), mpslog_kind_to_string(lines[_i].kind));
	ck_assert_int_eq(parsed.writer, lines[_i].writer);
	ck_assert_int_eq(parsed.pid, lines[_i].pid);
	ck_assert_int_eq(parsed.status, lines[_i].status);
	ck_assert_uint_eq(parsed.uid, lines[_i].uid);
	ck_assert(parsed.text >= line);
	ck_assert_ptr_eq(parsed.text + parsed.text_length, line + length);
}
END_TEST

/* Every beginning of a line is a line too. */
START_TEST(survives_cut_lines)
{
	for (size_t length = 0; length < strlen(lines[_i].line); length++) {
		_cleanup_free_ char *line = exact_copy(lines[_i].line, length);
		struct mpslog_line parsed;

		mpslog_parse(line, length, &parsed);
		ck_assert_int_ge(parsed.writer, 0);
		ck_assert_int_ge(parsed.pid, 0);
		ck_assert_ptr_eq(parsed.text + parsed.text_length, line + length);
	}
}
END_TEST

START_TEST(points_behind_the_prefix)
{
	static const char line[] = OTHER "Failed to start : no device";
	struct mpslog_line parsed;

	mpslog_parse(line, sizeof(line) - 1, &parsed);
	ck_assert_int_eq(parsed.kind, MPSLOG_START_FAILED);
	ck_assert_uint_eq(parsed.text_length, sizeof("Failed to start : no device") - 1);
	ck_assert_mem_eq(parsed.text, "Failed to start : no device", parsed.text_length);
	mpslog_parse("no prefix", 9, &parsed);
	ck_assert_uint_eq(parsed.text_length, 9);
}
END_TEST

START_TEST(survives_long_lines)
{
	static const char *const starts[] = {
		"[", "", CONTROL, CONTROL "NEW CLIENT ", CONTROL "Client {PID: ", CONTROL "Cmd:",
	};
	static const char fillers[] = {'9', ']', 'x', ' ', '\0', '[', '}'};
	size_t length = 1 << 20;
	_cleanup_free_ char *line = malloc(length);

	ck_assert_ptr_nonnull(line);
	for (size_t i = 0; i < ELEMENTSOF(starts) * sizeof(fillers); i++) {
		const char *start = starts[i / sizeof(fillers)];
		struct mpslog_line parsed;

		memset(line, fillers[i % sizeof(fillers)], length);
		memcpy(line, start, strlen(start));
		mpslog_parse(line, length, &parsed);
		ck_assert_int_ge(parsed.pid, 0);
		ck_assert_ptr_eq(parsed.text + parsed.text_length, line + length);
	}
}
END_TEST

START_TEST(survives_garbage)
{
	unsigned int seed = (unsigned int)time(NULL);
	char line[64];

	printf("seed %u\n", seed);
	srand(seed);
	for (int i = 0; i < 20000; i++) {
		const char *real = lines[(size_t)rand() % ELEMENTSOF(lines)].line;
		size_t length = (size_t)rand() % sizeof(line);
		struct mpslog_line parsed;

		memset(line, 'x', sizeof(line));
		memcpy(line, real, MIN(strlen(real), sizeof(line)));
		for (int n = rand() % 4; n > 0; n--)
			line[(size_t)rand() % sizeof(line)] = (char)rand();
		mpslog_parse(line, length, &parsed);
		ck_assert_int_ge(parsed.pid, 0);
		ck_assert_int_ge(parsed.writer, 0);
		ck_assert_str_ne(mpslog_kind_to_string(parsed.kind), "?");
	}
}
END_TEST

START_TEST(names_every_kind)
{
	for (int i = MPSLOG_OTHER; i <= MPSLOG_ORDER; i++) {
		const char *name = mpslog_kind_to_string((enum mpslog_kind)i);

		ck_assert_str_ne(name, "?");
		for (int j = MPSLOG_OTHER; j < i; j++)
			ck_assert_str_ne(name, mpslog_kind_to_string((enum mpslog_kind)j));
	}
	ck_assert_str_eq(mpslog_kind_to_string((enum mpslog_kind)99), "?");
}
END_TEST

/* What 580 writes, in order, and what it is to be remembered as; pids are others. */
static const struct {
	const char *line;
	bool ordered;
	enum mpslog_worth worth;
} told[] = {
	{CONTROL "CUDA MPS Control binary version: 13000", false, MPSLOG_NEWS},
	/* A question. */
	{CONTROL "Accepting connection...", false, MPSLOG_CHATTER},
	{CONTROL "NEW UI", false, MPSLOG_CHATTER},
	{CONTROL "Cmd:get_server_status 652", false, MPSLOG_CHATTER},
	{CONTROL "ACTIVE", false, MPSLOG_CHATTER},
	{CONTROL "UI closed", false, MPSLOG_CHATTER},
	{CONTROL "ACTIVE", false, MPSLOG_NEWS},
	{CONTROL "Cmd:get_server_list", false, MPSLOG_CHATTER},
	{CONTROL "652", false, MPSLOG_CHATTER},
	/* What comes between a question and its end, and is of somebody else or a fact. */
	{SERVER "Received new client request for {PID: 649, Context ID: 0}", false, MPSLOG_NEWS},
	{CONTROL "Server encountered a fatal exception. Shutting down", false, MPSLOG_NEWS},
	{CONTROL "Server 652 exited with status 1", false, MPSLOG_NEWS},
	{"[2026-11-30 16:14:22.473 Control  4272] Failed to start server using uid 0, error: "
	 "Operation not permitted",
	 false, MPSLOG_NEWS},
	{CONTROL "UI closed", false, MPSLOG_CHATTER},
	/* A client comes. */
	{CONTROL "User did not send valid credentials", false, MPSLOG_CHATTER},
	{CONTROL "NEW CLIENT 649 from user 0: Server already exists", false, MPSLOG_NEWS},
	{SERVER "Client {PID: 649, Context ID: 1} connected", false, MPSLOG_NEWS},
	{SERVER "Status of client {PID: 649, Context ID: 1} is ACTIVE", false, MPSLOG_NEWS},
	/* A fault. */
	{SERVER "Server is handling a fatal GPU error.", true, MPSLOG_NEWS},
	{SERVER "Client {PID: 649, Context ID: 1} on device 0 to be torn down", true, MPSLOG_NEWS},
	{SERVER "0", true, MPSLOG_NEWS},
	{SERVER "649", true, MPSLOG_NEWS},
	/* Its client is ended. */
	{CONTROL "Cmd:terminate_client 652 649", true, MPSLOG_CHATTER},
	{SERVER "MPS server requesting client {PID: 649, Context ID: 1} to exit", true,
	 MPSLOG_EXPECTED},
	{SERVER "Client termination succeeded.", true, MPSLOG_EXPECTED},
	{CONTROL "0", true, MPSLOG_CHATTER},
	{CONTROL "UI closed", true, MPSLOG_CHATTER},
	{SERVER "Client process 649 disconnected", true, MPSLOG_NEWS},
	/* It is to quit, and clients keep it. */
	{CONTROL "Cmd:quit", true, MPSLOG_CHATTER},
	{CONTROL "Try shutting down server 652, backoff is enabled", true, MPSLOG_EXPECTED},
	{SERVER "Server has been notified to shutdown", true, MPSLOG_EXPECTED},
	{SERVER "Server was unable to shutdown due to 2 active clients", true, MPSLOG_EXPECTED},
	{CONTROL "Server 652 has 2 active worker threads. Server will not shutdown.", true,
	 MPSLOG_EXPECTED},
	{CONTROL "Control will try shutting down server 652 again in at most 800ms", true,
	 MPSLOG_EXPECTED},
	{CONTROL "Server encountered a fatal exception. Shutting down", true, MPSLOG_NEWS},
	{SERVER "Waiting for current clients to finish", true, MPSLOG_EXPECTED},
	{SERVER "Exiting", true, MPSLOG_EXPECTED},
	{CONTROL "Server 652 exited with status 0", true, MPSLOG_EXPECTED},
	{CONTROL "Server 652 exited with status 1", true, MPSLOG_NEWS},
	{CONTROL "Exit with status 0", true, MPSLOG_EXPECTED},
	{CONTROL "Exit with status 1", true, MPSLOG_NEWS},
	/* Somebody else did that. */
	{CONTROL "Cmd:quit", false, MPSLOG_CHATTER},
	{CONTROL "Try shutting down server 652, backoff is disabled", false, MPSLOG_NEWS},
	{SERVER "Server has been notified to shutdown", false, MPSLOG_NEWS},
	{SERVER "Exiting", false, MPSLOG_NEWS},
	{CONTROL "Force shutting down server 652", false, MPSLOG_NEWS},
	{CONTROL "Exit with status 0", false, MPSLOG_NEWS},
};

START_TEST(remembers_what_was_not_ordered)
{
	bool answering = false;

	for (size_t i = 0; i < ELEMENTSOF(told); i++) {
		struct mpslog_line line;

		mpslog_parse(told[i].line, strlen(told[i].line), &line);
		ck_assert_msg(mpslog_judge(&line, 602, told[i].ordered, &answering) ==
				      told[i].worth,
			      "line %zu: %s", i, told[i].line);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("mpslog");

	unit_add_table(tcase, understands_lines, lines);
	unit_add_table(tcase, survives_cut_lines, lines);
	tcase_add_test(tcase, points_behind_the_prefix);
	tcase_add_test(tcase, survives_long_lines);
	tcase_add_test(tcase, survives_garbage);
	tcase_add_test(tcase, names_every_kind);
	tcase_add_test(tcase, remembers_what_was_not_ordered);
	return unit_run("mpslog", tcase);
}
