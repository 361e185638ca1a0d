/* SPDX-License-Identifier: MIT */
/* The listening socket and all its connections. */
#pragma once

#include "connection.h"
#include "stats.h"

#define SERVER_CONNECTIONS_MAX 16384
#define SERVER_USER_BUCKETS 256

/* Who is connected, as long as they are. */
struct server_user {
	struct server_user *next; /* in its bucket */
	uid_t uid;
	size_t n_connections;
};

struct server_handlers {
	/* As for a connection. */
	void (*call)(struct connection *connection, const struct varlink_call *call,
		     void *userdata);
	/* The connection is freed after this. */
	void (*ended)(struct connection *connection, void *userdata);
};

struct server {
	sd_event *event;
	int fd; /* owned */
	sd_event_source *io, *sweep, *pause;
	struct connection *first;
	struct connection *first_ended, *last_ended;    /* to be freed in this order */
	struct server_user *users[SERVER_USER_BUCKETS]; /* owned */
	size_t n_connections, max_connections;
	const struct server_handlers *handlers;
	void *userdata;
	struct stats *stats;
	bool complained; /* about too many descriptors; once is enough */
};

/* Takes over fd, which listens and is non-blocking. */
int server_init(struct server *server, sd_event *event, int fd,
		const struct server_handlers *handlers, void *userdata, struct stats *stats);
/* Ends every connection and frees it. */
void server_done(struct server *server);
