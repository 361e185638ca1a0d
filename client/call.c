/* SPDX-License-Identifier: MIT */
#include "call.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

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
	json_decref(TAKE_PTR(call->request));
	varlink_stream_done(&call->stream);
}

void call_reset(struct call *call)
{
	varlink_stream_done(&call->stream);
	varlink_stream_init(&call->stream, -EBADF, VARLINK_REPLY_MAX);
}

int call_fail(struct call *call, int exit_status, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(call->problem, sizeof(call->problem), format, ap);
	va_end(ap);
	call->exit_status = exit_status;
	call->failure = CALL_BROKEN;
	call->misuse = false;
	return CALL_FAILED;
}

static int fail_as(struct call *call, enum call_failure failure)
{
	call->failure = failure;
	return CALL_FAILED;
}

static int fail_connect(struct call *call, int error)
{
	if (error == -ENAMETOOLONG)
		return call_fail(call, CLI_NO_SUPERVISOR,
				 "no supervisor at %s: a socket's path has at most 107 bytes",
				 call->socket);
	if (error == -EACCES || error == -EPERM)
		return call_fail(call, CLI_NO_SUPERVISOR, "no way to the supervisor at %s: %s",
				 call->socket, strerror(-error));
	(void)call_fail(call, CLI_NO_SUPERVISOR,
			"no supervisor at %s: %s; is mps-supervisor running? "
			"(systemctl status mps-supervisor)",
			call->socket, strerror(-error));
	if (error == -ENOENT || error == -ECONNREFUSED || error == -EAGAIN)
		return fail_as(call, CALL_ABSENT);
	return CALL_FAILED;
}

int call_open(struct call *call)
{
	int fd;
	int r;

	r = usock_connect(call->socket, &fd);
	if (r < 0)
		return fail_connect(call, r);
	call->stream.fd = fd;
	return 0;
}

/* connect(2) of a Unix socket is done at once, or fails with EAGAIN when too many others are. */
static int connect_now(const char *path, int *ret_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = -EBADF;
	int r;

	r = text_copy(address.sun_path, sizeof(address.sun_path), path);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    fcntl(fd, F_SETFL, 0) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int call_open_now(struct call *call)
{
	int fd = -EBADF;
	int r;

	r = connect_now(call->socket, &fd);
	if (r < 0)
		return fail_connect(call, r);
	call->stream.fd = fd;
	return 0;
}

static int fail_gone(struct call *call)
{
	(void)call_fail(call, CLI_FAILED,
			"the supervisor at %s closed the connection; see its log "
			"(journalctl -u mps-supervisor)",
			call->socket);
	return fail_as(call, CALL_GONE);
}

static int fail_transport(struct call *call, int error)
{
	switch (-error) {
	case EPIPE:
	case ECONNRESET:
		return fail_gone(call);
	case ETIMEDOUT:
		return call_fail(call, CLI_FAILED,
				 "the supervisor at %s did not answer within %d s; see its log "
				 "(journalctl -u mps-supervisor)",
				 call->socket, CALL_PATIENCE_SEC);
	case EMSGSIZE:
		return call_fail(call, CLI_FAILED, "the answer of the supervisor at %s is too long",
				 call->socket);
	default:
		return call_fail(call, CLI_FAILED, "cannot talk to the supervisor at %s: %s",
				 call->socket, strerror(-error));
	}
}

int call_send(struct call *call, const char *method, json_t *parameters, bool more)
{
	_cleanup_json_ json_t *message = NULL;
	int r;

	json_decref(call->request);
	call->request = json_incref(parameters);
	message = varlink_call_new(method, parameters, more);
	r = message ? varlink_stream_send(&call->stream, message) : -ENOMEM;
	return r < 0 ? fail_transport(call, r) : 0;
}

int call_fail_malformed(struct call *call, const char *what)
{
	return call_fail(call, CLI_FAILED,
			 "what listens at %s does not answer as mps-supervisord: %s", call->socket,
			 what);
}

static int fail_error(struct call *call, const char *error, const json_t *parameters)
{
	struct explain_context context = {call->command, call->socket, call->request};

	explain_error(&context, error, parameters, call->problem, sizeof(call->problem));
	call->exit_status = explain_exit_status(error);
	call->misuse = explain_is_misuse(error);
	(void)text_copy(call->error, sizeof(call->error), error);
	return fail_as(call, CALL_REFUSED);
}

static int unpack(struct call *call, const json_t *message, json_t **ret_parameters,
		  bool *ret_continues)
{
	json_t *error = json_object_get(message, "error");
	json_t *parameters = json_object_get(message, "parameters");

	if (error && !json_is_string(error))
		return call_fail_malformed(call, "\"error\" is not a string");
	if (error)
		return fail_error(call, json_string_value(error), parameters);
	if (parameters && !json_is_object(parameters))
		return call_fail_malformed(call, "\"parameters\" is not an object");
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
		return call_fail_malformed(call, text);
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
