/* SPDX-License-Identifier: MIT */
#include "explain.h"

#include <inttypes.h>

#include "cli.h"
#include "layout.h"
#include "proto.h"
#include "text.h"

struct sentence {
	const struct explain_context *context;
	const char *error;
	const json_t *parameters;
	const char *reason; /* its field, for people */
	char *buffer;
	size_t size;
};

static const char *field(const struct sentence *s, const char *name)
{
	const char *value = json_string_value(json_object_get(s->parameters, name));

	return value && *value ? value : "no reason given";
}

static bool has_field(const struct sentence *s, const char *name)
{
	const char *value = json_string_value(json_object_get(s->parameters, name));

	return value && *value;
}

/* Fields of requests as they are written on the command line. */
static const struct {
	const char *command; /* NULL: any */
	const char *field, *option;
	bool amount; /* less of it may be had */
} options[] = {
	{"lease", "count", "--gpus", true},
	{"lease", "clients", "--clients", true},
	{"lease", "memory_bytes", "--memory", true},
	{"lease", "threads_percent", "--threads", false},
	{"lease", "devices", "--gpu", false},
	{"lease", "exclusive", "--exclusive", false},
	{"lease", "wait_ms", "--wait", false},
	{"lease", "name", "--name", false},
	{"lease", "pid", "--pid", false},
	{"lease", "uid", "--uid", false},
	{"drain", "wait_ms", "--timeout", false},
	{NULL, "instance", "INSTANCE", false},
	{NULL, "id", "LEASE", false},
};

const char *explain_option(const char *command, const char *field)
{
	for (size_t i = 0; i < ELEMENTSOF(options); i++)
		if ((!options[i].command || streq(options[i].command, command)) &&
		    streq(options[i].field, field))
			return options[i].option;
	return NULL;
}

/* " 7", " 20G", " \"train\"" as it was asked for; nothing when that cannot be told in a word. */
static void asked_value(const struct sentence *s, const char *name, char *buffer, size_t size)
{
	const json_t *value = json_object_get(s->context->request, name);
	int64_t number = (int64_t)json_integer_value(value);
	char text[LAYOUT_TEXT_MAX];

	buffer[0] = '\0';
	if (json_is_integer(value))
		(void)text_format(buffer, size, " %s",
				  streq(name, "memory_bytes") ? layout_bytes(number, text)
							      : layout_number(number, text));
	else if (json_is_string(value))
		(void)text_format(buffer, size, " \"%s\"", json_string_value(value));
}

/* " with --gpus or --memory": what was asked for that there could be less of. */
static void list_amounts(const struct sentence *s, char *buffer, size_t size)
{
	size_t length = 0;

	buffer[0] = '\0';
	for (size_t i = 0; i < ELEMENTSOF(options); i++) {
		if (!options[i].amount || !json_object_get(s->context->request, options[i].field))
			continue;
		(void)text_format(buffer + length, size - length, "%s%s",
				  length ? " or " : " with ", options[i].option);
		length = strlen(buffer);
	}
}

#define SAY(s, ...) ((void)text_format((s)->buffer, (s)->size, __VA_ARGS__))

static void no_such_device(const struct sentence *s)
{
	SAY(s, "no device matches \"%s\"; `mpsctl status` lists them", field(s, "selector"));
}

static void no_such_instance(const struct sentence *s)
{
	SAY(s, "no instance matches \"%s\"; `mpsctl status` lists them", field(s, "instance"));
}

static void no_such_lease(const struct sentence *s)
{
	SAY(s, "no lease \"%s\": it has ended or never was; `mpsctl leases` lists them",
	    field(s, "id"));
}

static void not_ready(const struct sentence *s)
{
	bool reason = has_field(s, "reason");

	SAY(s, "instance %s is %s%s%s; see `mpsctl status`", field(s, "instance"),
	    field(s, "state"), reason ? ": " : "", reason ? s->reason : "");
}

/* Of Restart, when it is the leases that are in the way. */
static bool busy_with_leases(const struct sentence *s)
{
	int64_t n = (int64_t)json_integer_value(json_object_get(s->parameters, "leases"));

	if (!streq(s->context->command, "restart") || n <= 0)
		return false;
	SAY(s,
	    "not restarted: it has %" PRId64
	    " lease%s; wait for %s, empty it with `mpsctl drain`, or "
	    "use --force, which takes the GPU from the jobs",
	    n, n > 1 ? "s" : "", n > 1 ? "their end" : "its end");
	return true;
}

static void busy(const struct sentence *s)
{
	/* Only who could have queued is told its position. */
	bool could_wait = json_is_integer(json_object_get(s->parameters, "position"));

	if (busy_with_leases(s))
		return;
	if (!streq(s->context->command, "lease"))
		SAY(s, "refused: %s", s->reason);
	else
		SAY(s, "no place is free: %s%s", s->reason,
		    could_wait ? "; queue for one with --wait SEC" : "");
}

static void timed_out(const struct sentence *s)
{
	json_int_t ms = json_integer_value(json_object_get(s->parameters, "waited_ms"));

	SAY(s, "timed out after %" PRId64 ".%03d s: %s; see `mpsctl leases`, or wait longer",
	    (int64_t)(ms / 1000), abs((int)(ms % 1000)), s->reason);
}

static void unsatisfiable(const struct sentence *s)
{
	char amounts[64];

	list_amounts(s, amounts, sizeof(amounts));
	SAY(s, "this can never be had here: %s; ask for less%s", s->reason, amounts);
}

static void permission_denied(const struct sentence *s)
{
	SAY(s, "permission denied: %s", s->reason);
}

static void service_permission_denied(const struct sentence *s)
{
	SAY(s, "permission denied: the supervisor at %s does not let this user use `mpsctl %s`",
	    s->context->socket, s->context->command);
}

static void held(const struct sentence *s)
{
	SAY(s, "%s is held by an administrator (drained); mpsctl resume gives it back",
	    field(s, "instance"));
}

static void shutting_down(const struct sentence *s)
{
	SAY(s, "the supervisor at %s is shutting down; try again when it is back",
	    s->context->socket);
}

static void invalid_request(const struct sentence *s)
{
	bool named = has_field(s, "field");
	const char *option = named ? explain_option(s->context->command, field(s, "field")) : NULL;
	char value[256];

	if (option) {
		asked_value(s, field(s, "field"), value, sizeof(value));
		SAY(s, "%s%s: %s", option, value, s->reason);
		return;
	}
	SAY(s, "the request is refused: %s%s%s", named ? field(s, "field") : "", named ? ": " : "",
	    s->reason);
}

static void not_supported(const struct sentence *s)
{
	SAY(s, "this supervisor does not support %s", s->context->command);
}

static void invalid_parameter(const struct sentence *s)
{
	SAY(s, "this supervisor does not take the parameter \"%s\"; is it older than mpsctl?",
	    field(s, "parameter"));
}

static void not_a_supervisor(const struct sentence *s)
{
	SAY(s, "what listens at %s is not mps-supervisord; check --socket", s->context->socket);
}

static void unknown_error(const struct sentence *s)
{
	SAY(s, "the supervisor at %s answered with the error \"%s\"", s->context->socket, s->error);
}

static const struct {
	const char *error;
	void (*say)(const struct sentence *s);
	bool misuse;
} sentences[] = {
	{PROTO_NO_SUCH_DEVICE, no_such_device, false},
	{PROTO_NO_SUCH_INSTANCE, no_such_instance, false},
	{PROTO_NO_SUCH_LEASE, no_such_lease, false},
	{PROTO_NOT_READY, not_ready, false},
	{PROTO_BUSY, busy, false},
	{PROTO_TIMED_OUT, timed_out, false},
	{PROTO_UNSATISFIABLE, unsatisfiable, false},
	{PROTO_PERMISSION_DENIED, permission_denied, false},
	{PROTO_HELD, held, false},
	{PROTO_SHUTTING_DOWN, shutting_down, false},
	{PROTO_INVALID_REQUEST, invalid_request, true},
	{VARLINK_METHOD_NOT_FOUND, not_supported, false},
	{VARLINK_METHOD_NOT_IMPLEMENTED, not_supported, false},
	{VARLINK_INVALID_PARAMETER, invalid_parameter, false},
	{VARLINK_INTERFACE_NOT_FOUND, not_a_supervisor, false},
	{VARLINK_SERVICE ".PermissionDenied", service_permission_denied, false},
};

void explain_error(const struct explain_context *context, const char *error,
		   const json_t *parameters, char *buffer, size_t size)
{
	char reason[LAYOUT_REASON_MAX];
	struct sentence s = {context, error, parameters, reason, buffer, size};

	(void)layout_reason(field(&s, "reason"), reason);
	for (size_t i = 0; i < ELEMENTSOF(sentences); i++)
		if (streq(sentences[i].error, error)) {
			sentences[i].say(&s);
			return;
		}
	unknown_error(&s);
}

int explain_exit_status(const char *error)
{
	return streq(error, PROTO_TIMED_OUT) ? CLI_TIMED_OUT : CLI_FAILED;
}

bool explain_is_misuse(const char *error)
{
	for (size_t i = 0; i < ELEMENTSOF(sentences); i++)
		if (streq(sentences[i].error, error))
			return sentences[i].misuse;
	return false;
}
