/* SPDX-License-Identifier: MIT */
#include "connection.h"

#include <sys/epoll.h>

#include "process.h"
#include "proto.h"
#include "util.h"

static void watch(struct connection *connection)
{
	bool sending = connection->stream.out_length > 0;
	uint32_t events = sending ? EPOLLOUT : 0;

	/* While a call is under way, or its answer is not taken, only the peer's end matters: what
	 * more it says can wait. */
	if (!connection->last && !connection->input_over)
		events |= connection->busy || sending ? EPOLLRDHUP : EPOLLIN;
	(void)sd_event_source_set_io_events(connection->io, events);
	if (connection->last && !connection->busy && !sending)
		connection_end(connection);
}

static void send_message(struct connection *connection, json_t *message)
{
	int r = message ? varlink_stream_send(&connection->stream, message) : -ENOMEM;

	json_decref(message);
	if (r < 0)
		connection_end(connection);
}

/* What was read with an earlier call gets its turn. Mostly nothing was, and then a turn of the loop
 * is spared. */
static void resume_soon(struct connection *connection)
{
	if (!connection->ended && (connection->stream.in_length > 0 || connection->input_over))
		(void)sd_event_source_set_enabled(connection->resume, SD_EVENT_ONESHOT);
}

static void call_is_over(struct connection *connection)
{
	connection->busy = false;
	resume_soon(connection);
}

static void answer(struct connection *connection, json_t *message, bool continues)
{
	if (connection->ended || connection->oneway)
		json_decref(message);
	else
		send_message(connection, message);
	if (!continues)
		call_is_over(connection);
	if (!connection->ended)
		watch(connection);
}

void connection_reply(struct connection *connection, json_t *parameters, bool continues)
{
	answer(connection, varlink_reply_new(parameters, continues), continues);
}

void connection_error(struct connection *connection, const char *error, json_t *parameters)
{
	answer(connection, varlink_error_new(error, parameters), false);
}

/* Rubbish: say so where that can still be sent, then end. */
static void refuse(struct connection *connection, const char *reason)
{
	connection->last = true;
	connection->oneway = false;
	connection_error(connection, PROTO_INVALID_REQUEST,
			 json_pack("{s:n, s:s}", "field", "reason", reason));
}

static void handle(struct connection *connection, json_t *message)
{
	struct varlink_call call;
	const char *reason;

	if (varlink_call_parse(message, &call, &reason) < 0) {
		refuse(connection, reason);
		return;
	}
	connection->busy = true;
	connection->oneway = call.oneway;
	connection->handlers->call(connection, &call, connection->userdata);
}

/* One message at a time, so that others get their turn. */
static void handle_next(struct connection *connection)
{
	char error_text[VARLINK_ERROR_TEXT_MAX];
	json_t *message;
	int r;

	if (connection->ended || connection->busy || connection->last ||
	    connection->stream.out_length > 0)
		return;
	r = varlink_stream_next(&connection->stream, &message, error_text);
	if (r == 0) {
		handle(connection, message);
		json_decref(message);
	} else if (r < 0) {
		char reason[VARLINK_ERROR_TEXT_MAX + 32];

		(void)snprintf(reason, sizeof(reason), "not a JSON message: %s", error_text);
		refuse(connection, reason);
	} else if (connection->input_over) {
		connection->last = true;
	}
	/* Nobody is there any more to wait for an answer. */
	if (connection->input_over && connection->busy)
		connection_end(connection);
	if (!connection->ended)
		watch(connection);
}

static int on_resume(sd_event_source *source, void *userdata)
{
	(void)source;
	handle_next(userdata);
	return 0;
}

/* Nothing more will come. What was asked before is answered still, unless that takes waiting. */
static void on_end_of_input(struct connection *connection)
{
	connection->input_over = true;
	if (connection->busy)
		connection_end(connection);
	else
		handle_next(connection);
}

static void read_more(struct connection *connection)
{
	int r = varlink_stream_read(&connection->stream);

	if (r == VARLINK_EOF)
		on_end_of_input(connection);
	else if (r == 0)
		handle_next(connection);
	else if (r == -EMSGSIZE)
		refuse(connection, "a message is longer than 64 KiB");
	else if (r != -EAGAIN)
		connection_end(connection);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct connection *connection = userdata;

	(void)source;
	(void)fd;
	if (revents & EPOLLOUT && varlink_stream_flush(&connection->stream) < 0)
		connection_end(connection);
	if (revents & EPOLLOUT && connection->stream.out_length == 0)
		resume_soon(connection);
	if (!connection->ended && revents & EPOLLIN)
		read_more(connection);
	else if (!connection->ended && revents & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		connection_end(connection);
	if (!connection->ended)
		watch(connection);
	return 0;
}

static void connection_freep(struct connection **connection)
{
	(void)connection_free(*connection);
}

int connection_new(sd_event *event, int fd, const struct connection_handlers *handlers,
		   void *userdata, struct connection **ret)
{
	_cleanup_(connection_freep) struct connection *connection = calloc(1, sizeof(*connection));
	int r;

	if (!connection) {
		(void)safe_close(fd);
		return -ENOMEM;
	}
	varlink_stream_init(&connection->stream, fd, VARLINK_REQUEST_MAX);
	connection->peer.pidfd = -EBADF;
	connection->handlers = handlers;
	connection->userdata = userdata;
	r = usock_peer_init(&connection->peer, fd);
	if (r < 0)
		return r;
	r = sd_event_add_defer(event, &connection->resume, on_resume, connection);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(connection->resume, SD_EVENT_OFF);
	r = sd_event_add_io(event, &connection->io, fd, EPOLLIN, on_io, connection);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(connection);
	return 0;
}

struct connection *connection_free(struct connection *connection)
{
	if (!connection)
		return NULL;
	sd_event_source_disable_unref(connection->io);
	sd_event_source_disable_unref(connection->resume);
	varlink_stream_done(&connection->stream);
	usock_peer_done(&connection->peer);
	free(connection);
	return NULL;
}

void connection_end(struct connection *connection)
{
	if (connection->ended)
		return;
	connection->ended = true;
	(void)sd_event_source_set_enabled(connection->io, SD_EVENT_OFF);
	(void)sd_event_source_set_enabled(connection->resume, SD_EVENT_OFF);
	connection->handlers->ending(connection, connection->userdata);
}
