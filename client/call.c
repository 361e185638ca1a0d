/* SPDX-License-Identifier: MIT */
#include "call.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "cli.h"
#include "explain.h"
#include "proto.h"
#include "text.h"
#include "usock.h"

void call_init(struct call *call, const char *socket, const char *command)
{
	*call = (struct call){.socket = socket, .command = command, .deadline_usec = USEC_INFINITY};
	varlink_stream_init(&call->stream, -EBADF, VARLINK_REPLY_MAX);
}

void call_done(struct call *call)
{
	varlink_stream_done(&call->stream);
}

static int PRINTF_LIKE(3, 4) fail(struct call *call, int exit_status, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(call->problem, sizeof(call->problem), format, ap);
	va_end(ap);
	call->exit_status = exit_status;
	return CALL_FAILED;
}

int call_open(struct call *call)
{
	int fd;
	int r;

	r = usock_connect(call->socket, &fd);
	if (r == -ENAMETOOLONG)
		return fail(call, CLI_NO_SUPERVISOR,
			    "no supervisor at %s: a socket's path has at most 107 bytes",
			    call->socket);
	if (r == -EACCES || r == -EPERM)
		return fail(call, CLI_NO_SUPERVISOR, "no way to the supervisor at %s: %s",
			    call->socket, strerror(-r));
	if (r < 0)
		return fail(call, CLI_NO_SUPERVISOR,
			    "no supervisor at %s: %s; is mps-supervisor running? "
			    "(systemctl status mps-supervisor)",
			    call->socket, strerror(-r));
	call->stream.fd = fd;
	return 0;
}

static int fail_gone(struct call *call)
{
	return fail(call, CLI_FAILED,
		    "the supervisor at %s closed the connection; see its log "
		    "(journalctl -u mps-supervisor)",
		    call->socket);
}

static int fail_transport(struct call *call, int error)
{
	switch (-error) {
	case EPIPE:
	case ECONNRESET:
		return fail_gone(call);
	case ETIMEDOUT:
		return fail(call, CLI_FAILED,
			    "the supervisor at %s did not answer within %d s; see its log "
			    "(journalctl -u mps-supervisor)",
			    call->socket, CALL_PATIENCE_SEC);
	case EMSGSIZE:
		return fail(call, CLI_FAILED, "the answer of the supervisor at %s is too long",
			    call->socket);
	default:
		return fail(call, CLI_FAILED, "cannot talk to the supervisor at %s: %s",
			    call->socket, strerror(-error));
	}
}

int call_send(struct call *call, const char *method, json_t *parameters, bool more)
{
	_cleanup_json_ json_t *message = varlink_call_new(method, parameters, more);
	int r;

	r = message ? varlink_stream_send(&call->stream, message) : -ENOMEM;
	return r < 0 ? fail_transport(call, r) : 0;
}

static int fail_malformed(struct call *call, const char *what)
{
	return fail(call, CLI_FAILED, "what listens at %s does not answer as mps-supervisord: %s",
		    call->socket, what);
}

static int fail_error(struct call *call, const char *error, const json_t *parameters)
{
	struct explain_context context = {call->command, call->socket};

	explain_error(&context, error, parameters, call->problem, sizeof(call->problem));
	call->exit_status = explain_exit_status(error);
	call->misuse = explain_is_misuse(error);
	return CALL_FAILED;
}

static int unpack(struct call *call, const json_t *message, json_t **ret_parameters,
		  bool *ret_continues)
{
	json_t *error = json_object_get(message, "error");
	json_t *parameters = json_object_get(message, "parameters");

	if (error && !json_is_string(error))
		return fail_malformed(call, "\"error\" is not a string");
	if (error)
		return fail_error(call, json_string_value(error), parameters);
	if (parameters && !json_is_object(parameters))
		return fail_malformed(call, "\"parameters\" is not an object");
	*ret_parameters = parameters ? json_incref(parameters) : json_object();
	*ret_continues = json_is_true(json_object_get(message, "continues"));
	return *ret_parameters ? 0 : fail_transport(call, -ENOMEM);
}

int call_take(struct call *call, json_t **ret_parameters, bool *ret_continues)
{
	_cleanup_json_ json_t *message = NULL;
	char text[VARLINK_ERROR_TEXT_MAX];
	int r;

	r = varlink_stream_next(&call->stream, &message, text);
	if (r == VARLINK_NO_MESSAGE)
		return CALL_NOTHING;
	if (r < 0)
		return fail_malformed(call, text);
	return unpack(call, message, ret_parameters, ret_continues);
}

int call_read(struct call *call)
{
	int r;

	r = varlink_stream_read(&call->stream);
	if (r == VARLINK_EOF)
		return fail_gone(call);
	return r < 0 && r != -EAGAIN ? fail_transport(call, r) : 0;
}

/* With a deadline recv(2) alone will not do. 0, or CALL_FAILED. */
static int wait_readable(struct call *call)
{
	struct pollfd poll_fd = {.fd = call->stream.fd, .events = POLLIN};
	int n = 0;

	while (call->deadline_usec != USEC_INFINITY && n == 0) {
		uint64_t now = clock_usec(CLOCK_MONOTONIC);

		if (now >= call->deadline_usec)
			return fail_transport(call, -ETIMEDOUT);
		n = poll(&poll_fd, 1, (int)((call->deadline_usec - now) / USEC_PER_MSEC) + 1);
		if (n < 0 && errno != EINTR)
			return fail_transport(call, -errno);
		n = MAX(n, 0);
	}
	return 0;
}

int call_next(struct call *call, json_t **ret_parameters, bool *ret_continues)
{
	int r;

	while ((r = call_take(call, ret_parameters, ret_continues)) == CALL_NOTHING) {
		r = wait_readable(call);
		if (r == 0)
			r = call_read(call);
		if (r != 0)
			return r;
	}
	return r;
}

static int call_whole(struct call *call, const char *method, json_t *parameters,
		      json_t **ret_parameters)
{
	_cleanup_json_ json_t *owned = parameters;
	bool continues;
	int r;

	r = call_open(call);
	if (r == 0)
		r = call_send(call, method, TAKE_PTR(owned), false);
	return r == 0 ? call_next(call, ret_parameters, &continues) : r;
}

int call_patiently(const char *socket, const char *command, const char *method, json_t *parameters,
		   json_t **ret_parameters)
{
	_cleanup_(call_done) struct call call;

	call_init(&call, socket, command);
	if (call_whole(&call, method, parameters, ret_parameters) != 0)
		return call_complain(&call);
	return 0;
}

int call_once(const char *socket, const char *command, const char *method, json_t *parameters,
	      json_t **ret_parameters)
{
	_cleanup_(call_done) struct call call;

	call_init(&call, socket, command);
	call.deadline_usec = clock_usec(CLOCK_MONOTONIC) + CALL_PATIENCE_SEC * USEC_PER_SEC;
	if (call_whole(&call, method, parameters, ret_parameters) != 0)
		return call_complain(&call);
	return 0;
}

int call_quietly(const char *socket, const char *command, const char *method,
		 uint64_t patience_usec, json_t **ret_parameters)
{
	_cleanup_(call_done) struct call call;

	call_init(&call, socket, command);
	call.deadline_usec = clock_usec(CLOCK_MONOTONIC) + patience_usec;
	return call_whole(&call, method, NULL, ret_parameters);
}

bool call_shares_pids(const struct call *call)
{
	struct ucred cred;
	socklen_t length = sizeof(cred);

	if (getsockopt(call->stream.fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
		return true;
	return cred.pid != 0;
}

int call_complain(const struct call *call)
{
	cli_print("%s", call->problem);
	return call->exit_status;
}
