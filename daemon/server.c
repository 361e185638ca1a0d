/* SPDX-License-Identifier: MIT */
#include "server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "journal.h"
#include "process.h"
#include "util.h"

#define ACCEPTS_PER_TURN 64
#define PAUSE_USEC (100 * USEC_PER_MSEC)

static void on_call(struct connection *connection, const struct varlink_call *call, void *userdata)
{
	struct server *server = userdata;

	server->handlers->call(connection, call, server->userdata);
}

static void on_ended(struct connection *connection, void *userdata)
{
	struct server *server = userdata;

	server->handlers->ended(connection, server->userdata);
	(void)sd_event_source_set_enabled(server->sweep, SD_EVENT_ONESHOT);
}

static const struct connection_handlers connection_handlers = {
	.call = on_call,
	.ended = on_ended,
};

static void unlink_connection(struct server *server, struct connection *connection)
{
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		server->first = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	server->n_connections--;
}

static int on_sweep(sd_event_source *source, void *userdata)
{
	struct server *server = userdata;
	struct connection *next;

	(void)source;
	for (struct connection *c = server->first; c; c = next) {
		next = c->next;
		if (!c->ended)
			continue;
		unlink_connection(server, c);
		(void)connection_free(c);
	}
	return 0;
}

static void take_connection(struct server *server, int fd)
{
	struct connection *connection;

	if (server->n_connections >= SERVER_CONNECTIONS_MAX) {
		server->stats->connections_refused++;
		(void)safe_close(fd);
		return;
	}
	if (connection_new(server->event, fd, &connection_handlers, server, &connection) < 0) {
		server->stats->connections_refused++;
		return;
	}
	connection->next = server->first;
	if (server->first)
		server->first->previous = connection;
	server->first = connection;
	server->n_connections++;
	server->stats->connections_accepted++;
}

/* Out of descriptors: the socket stays readable, so stop looking for a moment. */
static void pause_accepting(struct server *server, int error)
{
	if (!server->complained)
		log_error("cannot accept connections: %s; LimitNOFILE= may be too low",
			  strerror(error));
	server->complained = true;
	server->stats->connections_refused++;
	(void)sd_event_source_set_enabled(server->io, SD_EVENT_OFF);
	(void)sd_event_source_set_time_relative(server->pause, PAUSE_USEC);
	(void)sd_event_source_set_enabled(server->pause, SD_EVENT_ONESHOT);
}

static int on_pause_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct server *server = userdata;

	(void)source;
	(void)usec;
	(void)sd_event_source_set_enabled(server->io, SD_EVENT_ON);
	return 0;
}

static int on_connect(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct server *server = userdata;

	(void)source;
	(void)revents;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int connection_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (connection_fd >= 0) {
			take_connection(server, connection_fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(server, errno);
		if (errno != ECONNABORTED && errno != EINTR)
			return 0;
	}
	return 0;
}

int server_init(struct server *server, sd_event *event, int fd,
		const struct connection_handlers *handlers, void *userdata, struct stats *stats)
{
	int r;

	*server = (struct server){
		.event = event,
		.fd = fd,
		.handlers = handlers,
		.userdata = userdata,
		.stats = stats,
	};
	r = sd_event_add_defer(event, &server->sweep, on_sweep, server);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(server->sweep, SD_EVENT_OFF);
	r = sd_event_add_time(event, &server->pause, CLOCK_MONOTONIC, 0, 0, on_pause_over, server);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(server->pause, SD_EVENT_OFF);
	r = sd_event_add_io(event, &server->io, fd, EPOLLIN, on_connect, server);
	if (r < 0)
		return r;
	return sd_event_source_set_priority(server->io, PRIORITY_REQUEST);
}

void server_done(struct server *server)
{
	while (server->first) {
		struct connection *connection = server->first;

		connection_end(connection);
		unlink_connection(server, connection);
		(void)connection_free(connection);
	}
	server->io = sd_event_source_disable_unref(server->io);
	server->sweep = sd_event_source_disable_unref(server->sweep);
	server->pause = sd_event_source_disable_unref(server->pause);
	server->fd = safe_close(server->fd);
}
