/* SPDX-License-Identifier: MIT */
/*
 * The shell around core/lease: makes what it decides true. For each lease or request it keeps the
 * holder (a watched process, a connection), the call to answer, the directory and the time-out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "connection.h"
#include "events.h"
#include "instance.h"
#include "lease.h"

struct leases;

/* A lease or request as its connection and its holder see it. */
struct holding {
	struct leases *leases;           /* NULL: free */
	size_t index;                    /* in the table */
	struct process holder;           /* watched when bound to a process */
	struct connection *connection;   /* NULL when it has ended */
	struct holding *next, *previous; /* of the same connection */
	bool answering;                  /* a call of the connection waits for more of us */
	bool streaming;                  /* with `more` */
	sd_event_source *timer;          /* the wait's end */
	uint64_t asked_usec;             /* monotonic */
	int told_position;
	uint32_t told_reason; /* a hash */
};

struct leases {
	struct processes *processes; /* borrowed, like the next four */
	struct stats *stats;
	struct events *events;
	struct instance **instances; /* a place of the table each, in order */
	const struct config *config;
	struct lease_table table;
	struct lease *storage;    /* owned; LEASES_MAX */
	struct holding *holdings; /* owned; LEASES_MAX */
	sd_event_source *refresh; /* tells waiters what has changed */
	uint64_t refreshed;       /* how far it has come: a sequence; 0: not under way */
	bool refresh_again, dispatching;
	char runtime_directory[PIPE_DIRECTORY_MAX + 1];
	bool closed; /* shutting down: nothing is granted any more */
};

int leases_init(struct leases *leases, struct processes *processes, struct stats *stats,
		struct events *events, const struct config *config);
/* Forgets everything; removes the directories. */
void leases_done(struct leases *leases);

/* The rules of the table, out of the configuration. */
struct lease_rules leases_rules(const struct config *config);

struct leases_ask {
	struct lease_request request;
	struct connection *connection;
	bool more;
	uint64_t wait_usec; /* 0: do not wait; UINT64_MAX: for ever */
	int holder_pidfd;   /* owned; bound to a process, else -EBADF */
};

/* Answers the connection's call: now, or when the lease is granted, refused or timed out. Takes
 * over holder_pidfd. */
void leases_acquire(struct leases *leases, struct leases_ask *ask);

/* Ends a lease or request; `why` is for the events and for the holder (`revoked`). */
void leases_end(struct leases *leases, size_t index, const char *why);
/* The connection has ended: so do its requests and what is bound to it. */
void leases_connection_ended(struct leases *leases, struct connection *connection);
/* Ends all, because the supervisor stops; from now on nothing is granted. */
void leases_close(struct leases *leases, const char *why);

/* The instance has a new socket: every lease's link is made anew. */
void leases_renew(struct leases *leases, const struct instance *instance);
/* An instance's admission opened or closed. */
void leases_place_changed(struct leases *leases, struct instance *instance);
/* Tells holders on the instance that their generation is lost: all, or after a GPU fault those
 * whose clients it hit. Adds to the death whom else it concerns. */
void leases_interrupt(struct leases *leases, const struct instance *instance,
		      struct instance_death *death);

/* The id of the lease whose directory the process was started with, seen also through a container's
 * mount; empty when there is none on this instance. */
void leases_identify(const struct leases *leases, const struct instance *instance, pid_t pid,
		     char ret_id[static LEASE_ID_SIZE]);

/* The directory of a lease. */
void leases_directory(const struct leases *leases, const struct lease *lease,
		      char ret[static PIPE_DIRECTORY_MAX + 1]);
