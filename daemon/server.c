/* SPDX-License-Identifier: MIT */
#include "server.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "journal.h"
#include "process.h"
#include "util.h"

#define ACCEPTS_PER_TURN 64
#define PAUSE_USEC (100 * USEC_PER_MSEC)
#define DESCRIPTORS_RESERVED ((rlim_t)1024)

static void on_call(struct connection *connection, const struct varlink_call *call, void *userdata)
{
	struct server *server = userdata;

	server->handlers->call(connection, call, server->userdata);
}

static void on_ending(struct connection *connection, void *userdata)
{
	struct server *server = userdata;

	(void)connection;
	(void)sd_event_source_set_enabled(server->sweep, SD_EVENT_ONESHOT);
}

static const struct connection_handlers connection_handlers = {
	.call = on_call,
	.ending = on_ending,
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

static void dispose(struct server *server, struct connection *connection)
{
	server->handlers->ended(connection, server->userdata);
	unlink_connection(server, connection);
	(void)connection_free(connection);
}

static int on_sweep(sd_event_source *source, void *userdata)
{
	struct server *server = userdata;
	struct connection *next;

	(void)source;
	for (struct connection *c = server->first; c; c = next) {
		next = c->next;
		if (c->ended)
			dispose(server, c);
	}
	return 0;
}

static size_t count_of(const struct server *server, uid_t uid)
{
	size_t n = 0;

	for (const struct connection *c = server->first; c; c = c->next)
		n += c->peer.uid == uid;
	return n;
}

/* Descriptors for a connection and the pidfd of its peer, and some are for everything else. */
static size_t affordable_connections(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return SERVER_CONNECTIONS_MAX;
	if (limit.rlim_cur < 4 * DESCRIPTORS_RESERVED)
		return MAX((size_t)limit.rlim_cur / 8, (size_t)8);
	return MIN((size_t)(limit.rlim_cur - DESCRIPTORS_RESERVED) / 3,
		   (size_t)SERVER_CONNECTIONS_MAX);
}

static void take_connection(struct server *server, int fd)
{
	struct connection *connection;

	if (server->n_connections >= server->max_connections) {
		server->stats->connections_refused++;
		(void)safe_close(fd);
		return;
	}
	if (connection_new(server->event, fd, &connection_handlers, server, &connection) < 0) {
		server->stats->connections_refused++;
		return;
	}
	/* No user can have them all: an administrator still gets in. */
	if (connection->peer.uid != 0 &&
	    count_of(server, connection->peer.uid) >= server->max_connections / 2) {
		server->stats->connections_refused++;
		(void)connection_free(connection);
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
		const struct server_handlers *handlers, void *userdata, struct stats *stats)
{
	int r;

	*server = (struct server){
		.event = event,
		.fd = fd,
		.handlers = handlers,
		.userdata = userdata,
		.stats = stats,
		.max_connections = affordable_connections(),
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
		connection_end(server->first);
		dispose(server, server->first);
	}
	server->io = sd_event_source_disable_unref(server->io);
	server->sweep = sd_event_source_disable_unref(server->sweep);
	server->pause = sd_event_source_disable_unref(server->pause);
	server->fd = safe_close(server->fd);
}
