/* SPDX-License-Identifier: MIT */
#include "explain.h"

#include <inttypes.h>

#include "cli.h"
#include "proto.h"
#include "text.h"

struct sentence {
	const struct explain_context *context;
	const char *error;
	const json_t *parameters;
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
	    field(s, "state"), reason ? ": " : "", reason ? field(s, "reason") : "");
}

/* Of Restart, when it is the leases that are in the way. */
static bool busy_with_leases(const struct sentence *s)
{
	int64_t n = (int64_t)json_integer_value(json_object_get(s->parameters, "leases"));

	if (!streq(s->context->command, "restart") || n <= 0)
		return false;
	SAY(s,
	    "not restarted: it has %" PRId64 " lease%s; wait, or use --force, which tells the "
	    "holders",
	    n, n > 1 ? "s" : "");
	return true;
}

static void busy(const struct sentence *s)
{
	/* Only who could have queued is told its position. */
	bool could_wait = json_is_integer(json_object_get(s->parameters, "position"));

	if (busy_with_leases(s))
		return;
	if (!streq(s->context->command, "lease"))
		SAY(s, "refused: %s", field(s, "reason"));
	else
		SAY(s, "no place is free: %s%s", field(s, "reason"),
		    could_wait ? "; queue for one with --wait SEC" : "");
}

static void timed_out(const struct sentence *s)
{
	json_int_t ms = json_integer_value(json_object_get(s->parameters, "waited_ms"));

	SAY(s, "timed out after %" PRId64 ".%03d s: %s; see `mpsctl leases`, or wait longer",
	    (int64_t)(ms / 1000), abs((int)(ms % 1000)), field(s, "reason"));
}

static void unsatisfiable(const struct sentence *s)
{
	SAY(s, "this can never be had here: %s; ask for less", field(s, "reason"));
}

static void permission_denied(const struct sentence *s)
{
	SAY(s, "permission denied: %s", field(s, "reason"));
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

	SAY(s, "the request is refused: %s%s%s", named ? field(s, "field") : "", named ? ": " : "",
	    field(s, "reason"));
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
	struct sentence s = {context, error, parameters, buffer, size};

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
