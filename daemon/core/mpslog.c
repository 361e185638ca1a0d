/* SPDX-License-Identifier: MIT */
#include "mpslog.h"

#include "util.h"

/* What is left to read of a line. */
struct cursor {
	const char *at, *end;
};

static bool take(struct cursor *cursor, const char *text)
{
	size_t length = strlen(text);

	if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length) != 0)
		return false;
	cursor->at += length;
	return true;
}

/* A decimal number up to max; 0 and false when there is none or it is larger. */
static bool take_number(struct cursor *cursor, uint64_t max, uint64_t *ret)
{
	const char *start = cursor->at;
	uint64_t value = 0;

	for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++)
		if (value <= max)
			value = value * 10 + (uint64_t)(*cursor->at - '0');
	*ret = value <= max ? value : 0;
	return cursor->at > start && value <= max;
}

static int32_t take_pid(struct cursor *cursor)
{
	uint64_t value;

	(void)take_number(cursor, INT32_MAX, &value);
	return (int32_t)value;
}

static uint32_t take_uid(struct cursor *cursor)
{
	uint64_t value;

	(void)take_number(cursor, UINT32_MAX, &value);
	return (uint32_t)value;
}

/* "[2026-11-30 15:14:37.793 Control   602] text". Without this shape the whole line is text. */
static struct cursor skip_prefix(const char *line, size_t length, int32_t *ret_writer)
{
	struct cursor whole = {line, line + length};
	const char *close = length && *line == '[' ? memchr(line, ']', length) : NULL;
	const char *digits = close;
	struct cursor number;

	*ret_writer = 0;
	if (!close || close + 1 == whole.end || close[1] != ' ')
		return whole;
	while (digits > line && digits[-1] >= '0' && digits[-1] <= '9')
		digits--;
	number = (struct cursor){digits, close};
	*ret_writer = take_pid(&number);
	return (struct cursor){close + 2, whole.end};
}

static void parse_new_client(struct cursor text, struct mpslog_line *line)
{
	line->kind = MPSLOG_NEW_CLIENT;
	line->pid = take_pid(&text);
	if (!take(&text, " from user "))
		return;
	line->uid = take_uid(&text);
	if (take(&text, ": Server is not ready"))
		line->kind = MPSLOG_CLIENT_PENDING;
}

static void parse_server_start(struct cursor text, struct mpslog_line *line)
{
	line->kind = MPSLOG_SERVER_START;
	line->pid = take_pid(&text);
	if (take(&text, " for user "))
		line->uid = take_uid(&text);
}

/* "Server 652 exited with status 0", "... has 2 active worker threads. Server will not shutdown.";
 * other lines that begin with "Server " are not events. */
static void parse_server(struct cursor text, struct mpslog_line *line)
{
	int32_t pid = take_pid(&text);

	if (pid > 0 && take(&text, " exited with status ")) {
		line->kind = MPSLOG_SERVER_EXIT;
		line->pid = pid;
		line->status = take_pid(&text);
	} else if (pid > 0 && take(&text, " has ")) {
		line->kind = MPSLOG_ORDER;
	}
}

/* "Client {PID: 649, Context ID: 1} on device 0 to be torn down", "... connected" */
static void parse_client(struct cursor text, struct mpslog_line *line)
{
	int32_t pid = take_pid(&text);
	const char *close = memchr(text.at, '}', (size_t)(text.end - text.at));

	if (!close)
		return;
	text.at = close + 1;
	if (take(&text, " on device "))
		line->kind = MPSLOG_FAULT_HIT;
	else if (take(&text, " connected"))
		line->kind = MPSLOG_CLIENT_CONNECTED;
	else
		return;
	line->pid = pid;
}

static void parse_client_gone(struct cursor text, struct mpslog_line *line)
{
	line->kind = MPSLOG_CLIENT_GONE;
	if (take(&text, " disconnected"))
		return;
	if (!take(&text, " "))
		return;
	line->pid = take_pid(&text);
}

static const struct {
	const char *start;
	enum mpslog_kind kind;
	void (*parse)(struct cursor text, struct mpslog_line *line); /* NULL: kind says it all */
} patterns[] = {
	{"Accepting connection...", MPSLOG_NOISE, NULL},
	{"NEW UI", MPSLOG_NOISE, NULL},
	{"Cmd:", MPSLOG_COMMAND, NULL},
	{"UI closed", MPSLOG_COMMAND_OVER, NULL},
	{"User did not send valid credentials", MPSLOG_NOISE, NULL},
	{"Starting control daemon using socket ", MPSLOG_STARTING, NULL},
	{"NEW CLIENT ", MPSLOG_NEW_CLIENT, parse_new_client},
	{"Client process", MPSLOG_CLIENT_GONE, parse_client_gone},
	{"Client {PID: ", MPSLOG_OTHER, parse_client},
	{"Failed to accept new client. Maximum number", MPSLOG_CLIENT_LIMIT, NULL},
	{"Starting new server ", MPSLOG_SERVER_START, parse_server_start},
	{"Server has been notified to shutdown", MPSLOG_SERVER_NOTIFIED, NULL},
	{"Server was unable to shutdown", MPSLOG_SERVER_KEPT, NULL},
	{"Server is handling a fatal GPU error", MPSLOG_FAULT, NULL},
	{"The following client process have a sticky error", MPSLOG_FAULT_LIST, NULL},
	{"Server encountered a fatal exception", MPSLOG_SERVER_BROKE, NULL},
	{"Server ", MPSLOG_OTHER, parse_server},
	{"Failed to start : ", MPSLOG_START_FAILED, NULL},
	{"Try shutting down server ", MPSLOG_ORDER, NULL},
	{"Control will try shutting down server ", MPSLOG_ORDER, NULL},
	{"Force shutting down server ", MPSLOG_ORDER, NULL},
	{"Waiting for current clients to finish", MPSLOG_ORDER, NULL},
	{"Exiting", MPSLOG_ORDER, NULL},
	{"MPS server requesting client ", MPSLOG_ORDER, NULL},
	{"Client termination ", MPSLOG_ORDER, NULL},
};

static void parse_rest(struct cursor text, struct mpslog_line *line)
{
	if (take(&text, "NEW SERVER ")) {
		line->pid = take_pid(&text);
		if (take(&text, ": Ready"))
			line->kind = MPSLOG_SERVER_READY;
	} else if (take(&text, "Exit with status ")) {
		line->kind = MPSLOG_CONTROL_EXIT;
		line->status = take_pid(&text);
	} else if (text.at < text.end && *text.at >= '0' && *text.at <= '9') {
		int32_t number = take_pid(&text);

		if (text.at == text.end) {
			line->kind = MPSLOG_NUMBER;
			line->pid = number;
		}
	}
}

void mpslog_parse(const char *line, size_t length, struct mpslog_line *ret)
{
	struct cursor text;

	*ret = (struct mpslog_line){.kind = MPSLOG_OTHER};
	text = skip_prefix(line, length, &ret->writer);
	ret->text = text.at;
	ret->text_length = (size_t)(text.end - text.at);
	for (size_t i = 0; i < ELEMENTSOF(patterns); i++) {
		struct cursor rest = text;

		if (!take(&rest, patterns[i].start))
			continue;
		ret->kind = patterns[i].kind;
		if (patterns[i].parse)
			patterns[i].parse(rest, ret);
		return;
	}
	parse_rest(text, ret);
}

/* All that the control daemon writes between a command and its end that is nothing else is the
 * answer. `quit` has none, and its end comes with the daemon's. */
static bool is_chatter(const struct mpslog_line *line, int32_t control, bool *answering)
{
	static const char quit[] = "Cmd:quit";

	switch (line->kind) {
	case MPSLOG_NOISE:
		return true;
	case MPSLOG_COMMAND:
		*answering = line->text_length < sizeof(quit) - 1 ||
			     memcmp(line->text, quit, sizeof(quit) - 1) != 0;
		return true;
	case MPSLOG_COMMAND_OVER:
		*answering = false;
		return true;
	case MPSLOG_OTHER:
	case MPSLOG_NUMBER:
		return *answering && line->writer == control;
	default:
		return false;
	}
}

static bool is_of_order(const struct mpslog_line *line)
{
	switch (line->kind) {
	case MPSLOG_ORDER:
	case MPSLOG_SERVER_NOTIFIED:
	case MPSLOG_SERVER_KEPT:
		return true;
	case MPSLOG_SERVER_EXIT:
	case MPSLOG_CONTROL_EXIT:
		return line->status == 0;
	default:
		return false;
	}
}

enum mpslog_worth mpslog_judge(const struct mpslog_line *line, int32_t control, bool ordered,
			       bool *answering)
{
	if (is_chatter(line, control, answering))
		return MPSLOG_CHATTER;
	return ordered && is_of_order(line) ? MPSLOG_EXPECTED : MPSLOG_NEWS;
}

const char *mpslog_kind_to_string(enum mpslog_kind kind)
{
	switch (kind) {
	case MPSLOG_OTHER:
		return "other";
	case MPSLOG_NOISE:
		return "noise";
	case MPSLOG_COMMAND:
		return "command";
	case MPSLOG_COMMAND_OVER:
		return "command-over";
	case MPSLOG_STARTING:
		return "starting";
	case MPSLOG_NEW_CLIENT:
		return "new-client";
	case MPSLOG_CLIENT_PENDING:
		return "client-pending";
	case MPSLOG_CLIENT_CONNECTED:
		return "client-connected";
	case MPSLOG_CLIENT_GONE:
		return "client-gone";
	case MPSLOG_CLIENT_LIMIT:
		return "client-limit";
	case MPSLOG_SERVER_START:
		return "server-start";
	case MPSLOG_SERVER_READY:
		return "server-ready";
	case MPSLOG_SERVER_NOTIFIED:
		return "server-notified";
	case MPSLOG_SERVER_KEPT:
		return "server-kept";
	case MPSLOG_SERVER_EXIT:
		return "server-exit";
	case MPSLOG_SERVER_BROKE:
		return "server-broke";
	case MPSLOG_START_FAILED:
		return "start-failed";
	case MPSLOG_FAULT:
		return "fault";
	case MPSLOG_FAULT_HIT:
		return "fault-hit";
	case MPSLOG_FAULT_LIST:
		return "fault-list";
	case MPSLOG_NUMBER:
		return "number";
	case MPSLOG_CONTROL_EXIT:
		return "control-exit";
	case MPSLOG_ORDER:
		return "order";
	}
	return "?";
}
