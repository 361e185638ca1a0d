/* SPDX-License-Identifier: MIT */
/*
 * One client at the socket: reads calls one after the other, hands each to its owner, and sends
 * replies. A call may be answered later and more than once; the next one is read only when it is
 * over. Knows no method and no lease.
 *
 * A connection that ends, because its peer is gone or a reply could not be sent, is only marked:
 * its owner is told from the event loop, never from inside a reply.
 */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#include "usock.h"
#include "varlink.h"

struct connection;
struct holding; /* what its owner hangs on it; see leases.h */
struct server_user;

struct connection_handlers {
	/* A call has come. Answer with connection_reply or connection_error, now or later. */
	void (*call)(struct connection *connection, const struct varlink_call *call,
		     void *userdata);
	/* It has ended, no reply can be sent any more. Tells its server only, which tells its owner
	 * and frees it later: what is under way now may still look at it. */
	void (*ending)(struct connection *connection, void *userdata);
};

struct connection {
	/* Its server's: in the list of all, in that of those that have ended, and whose it is. */
	struct connection *next, *previous, *next_ended;
	struct server_user *user;
	struct varlink_stream stream;
	struct usock_peer peer;
	sd_event_source *io, *resume;
	const struct connection_handlers *handlers;
	void *userdata;
	bool busy;       /* a call is under way */
	bool oneway;     /* it wants no reply */
	bool input_over; /* the peer will say nothing more */
	bool last;       /* nothing more is read; ends when all is sent */
	bool ended;
	struct holding *holdings; /* leases and requests that came through it */
};

/* Takes over fd, which must be non-blocking. */
int connection_new(sd_event *event, int fd, const struct connection_handlers *handlers,
		   void *userdata, struct connection **ret);
/* NULL is fine. Returns NULL. */
struct connection *connection_free(struct connection *connection);

/* Takes over parameters (NULL: none). continues: more replies to this call will follow; else the
 * call is over. A connection that cannot take it ends. */
void connection_reply(struct connection *connection, json_t *parameters, bool continues);
void connection_error(struct connection *connection, const char *error, json_t *parameters);

/* Marks it as ended. */
void connection_end(struct connection *connection);
