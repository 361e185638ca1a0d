/* SPDX-License-Identifier: MIT */
#include "server.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "journal.h"
#include "process.h"
#include "util.h"

#define ACCEPTS_PER_TURN 64
/* Many may end at once, and with each a lease: others get their turn in between. */
#define ENDED_PER_TURN 16
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

	if (server->last_ended)
		server->last_ended->next_ended = connection;
	else
		server->first_ended = connection;
	server->last_ended = connection;
	(void)sd_event_source_set_enabled(server->sweep, SD_EVENT_ONESHOT);
}

static const struct connection_handlers connection_handlers = {
	.call = on_call,
	.ending = on_ending,
};

/* ---------------------------------------------------------------- users */

static struct server_user **bucket_of(struct server *server, uid_t uid)
{
	return &server->users[uid % SERVER_USER_BUCKETS];
}

/* Counts one more connection of the user. NULL: out of memory. */
static struct server_user *user_take(struct server *server, uid_t uid)
{
	struct server_user **bucket = bucket_of(server, uid), *user = *bucket;

	while (user && user->uid != uid)
		user = user->next;
	if (!user) {
		user = malloc(sizeof(*user));
		if (!user)
			return NULL;
		*user = (struct server_user){.next = *bucket, .uid = uid};
		*bucket = user;
	}
	user->n_connections++;
	return user;
}

static void user_drop(struct server *server, struct server_user *user)
{
	struct server_user **link = bucket_of(server, user->uid);

	if (--user->n_connections > 0)
		return;
	while (*link != user)
		link = &(*link)->next;
	*link = user->next;
	free(user);
}

/* No user can have all connections: an administrator still gets in. */
static int admit(struct server *server, struct connection *connection)
{
	struct server_user *user = user_take(server, connection->peer.uid);

	if (!user)
		return -ENOMEM;
	if (user->uid != 0 && user->n_connections > server->max_connections / 2) {
		user_drop(server, user);
		return -EUSERS;
	}
	connection->user = user;
	return 0;
}

/* ---------------------------------------------------------------- connections */

static void link_connection(struct server *server, struct connection *connection)
{
	connection->next = server->first;
	if (server->first)
		server->first->previous = connection;
	server->first = connection;
	server->n_connections++;
}

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

/* There is one. */
static void dispose_first_ended(struct server *server)
{
	struct connection *connection = server->first_ended;

	server->first_ended = connection->next_ended;
	if (!server->first_ended)
		server->last_ended = NULL;
	server->handlers->ended(connection, server->userdata);
	unlink_connection(server, connection);
	user_drop(server, connection->user);
	(void)connection_free(connection);
}

static int on_sweep(sd_event_source *source, void *userdata)
{
	struct server *server = userdata;

	for (int i = 0; i < ENDED_PER_TURN && server->first_ended; i++)
		dispose_first_ended(server);
	if (server->first_ended)
		(void)sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
	return 0;
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
	if (admit(server, connection) < 0) {
		server->stats->connections_refused++;
		(void)connection_free(connection);
		return;
	}
	link_connection(server, connection);
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
	for (struct connection *c = server->first; c; c = c->next)
		connection_end(c);
	while (server->first_ended)
		dispose_first_ended(server);
	server->io = sd_event_source_disable_unref(server->io);
	server->sweep = sd_event_source_disable_unref(server->sweep);
	server->pause = sd_event_source_disable_unref(server->pause);
	server->fd = safe_close(server->fd);
}
