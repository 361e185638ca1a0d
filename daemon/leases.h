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
#include "mounts.h"

struct leases;

/* A lease or request as its connection and its holder see it. */
struct holding {
	struct leases *leases;           /* NULL: free */
	size_t index;                    /* in the table */
	struct process holder;           /* watched when bound to a process */
	struct connection *connection;   /* NULL when it has ended */
	struct holding *next, *previous; /* of the same connection */
	bool impatient;         /* will not queue; it may wait for its place to be prepared */
	bool answering;         /* a call of the connection waits for more of us */
	bool streaming;         /* with `more` */
	sd_event_source *timer; /* the wait's end; while draining, the stragglers' */
	uint64_t asked_usec;    /* monotonic */
	uint64_t attached_usec; /* monotonic: granted, or when a client last attached */
	int told_position;
	uint32_t told_reason;     /* a hash */
	bool terminated;          /* while draining: its clients have had SIGTERM */
	bool orphaned;            /* its holder's connection ended with an earlier supervisor */
	bool abandoned;           /* its holder ended while no supervisor ran */
	uint64_t start_ticks;     /* of the holder; 0: none */
	uint64_t told_generation; /* that the holder knows of, or need not */
	char why[48];             /* it drains */
};

/* What the owner does for the leases. */
struct leases_handlers {
	/* Somebody waits for a place that must be prepared: servers of another user ended, a gang
	 * started, or a daemon asked whether it answers. May be said again. */
	void (*prepare)(size_t place, void *userdata);
	/* Nobody needs the gang any more; leases_gang_gone answers. */
	void (*end_gang)(size_t place, void *userdata);
};

/* Whom a place's directory lets in, as it was set last. */
struct leases_access {
	bool known; /* nobody, or just uid */
	size_t n;
	uid_t uid;
};

struct leases {
	struct processes *processes; /* borrowed, like the next six */
	struct stats *stats;
	struct events *events;
	struct instance **instances; /* by place; NULL for one without an instance */
	const struct config *config;
	const struct leases_handlers *handlers;
	void *userdata;
	struct lease_table table;
	struct leases_access access[PLACES_MAX];
	struct lease *storage;    /* owned; LEASES_MAX */
	struct holding *holdings; /* owned; LEASES_MAX */
	sd_event_source *refresh; /* tells waiters what has changed */
	struct {
		bool under_way, again;
		bool queue;         /* else it is still with those that have a place */
		uint64_t sequence;  /* how far it has come */
		uint64_t turn_usec; /* monotonic: when the last few were told */
		struct lease_sweep sweep;
	} round;
	sd_event_source *drained; /* ends leases whose last client has left */
	size_t n_draining, n_impatient;
	bool dispatching;
	char runtime_directory[PIPE_DIRECTORY_MAX + 1];
	struct mounts_location location; /* of the runtime directory, when that is known */
	bool located;
	bool closed; /* shutting down: nothing is granted any more */
	bool left;   /* what there is, is for the next supervisor */
};

struct leases_setup {
	struct processes *processes;
	struct stats *stats;
	struct events *events;
	struct instance **instances;
	const struct config *config;
	const struct leases_handlers *handlers;
	void *userdata;
};

/* All in setup is borrowed. */
int leases_init(struct leases *leases, const struct leases_setup *setup);
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

/* The connection's call goes on with this lease, which an earlier supervisor granted: `granted`,
 * what was lost meanwhile, and so on. The caller may touch it. */
void leases_reclaim(struct leases *leases, size_t index, struct connection *connection, bool more);

/* Takes up the leases that an earlier supervisor left, when its instances have been. */
void leases_restore(struct leases *leases);
/* And when these have been started, so that their clients are known: who ended meanwhile ends now.
 */
void leases_settle(struct leases *leases);
/* The next supervisor is to go on with them: leases_done ends and removes nothing then. */
void leases_leave(struct leases *leases);

/* Ends a lease or request; `why` is for the events and for the holder (`revoked`). A lease with
 * clients drains: it keeps its place, lets nobody new in, and ends with the last of them. */
void leases_end(struct leases *leases, size_t index, const char *why);
/* Ends all on the device, of gangs too. */
void leases_end_all(struct leases *leases, size_t device, const char *why);
/* The connection has ended: so do its requests and what is bound to it. */
void leases_connection_ended(struct leases *leases, struct connection *connection);
/* Ends all, because the supervisor stops; from now on nothing is granted. */
void leases_close(struct leases *leases, const char *why);

/* The instance has a new socket: every lease's link is made anew. */
void leases_renew(struct leases *leases, const struct instance *instance);
/* An instance's admission opened or closed. */
void leases_place_changed(struct leases *leases, struct instance *instance);
/* Its servers are others than before: who waited for the end of one may be granted now. */
void leases_servers_changed(struct leases *leases, struct instance *instance);
/* It has answered: who waited for that is granted. */
void leases_answered(struct leases *leases, struct instance *instance);
/* Clients of an instance have left. */
void leases_clients_left(struct leases *leases);
/* An administrator holds the place, or gives it back. */
void leases_hold(struct leases *leases, size_t place, bool held);
/* A gang that was to end is gone; its place has no instance. */
void leases_gang_gone(struct leases *leases, size_t place);
/* Names in the death the leases that it hit, where it does not say so itself. */
void leases_name_hit(const struct leases *leases, const struct instance *instance,
		     struct instance_death *death);
/* Tells holders on the instance that their generation is lost: all, or after a GPU fault those
 * whose clients it hit. */
void leases_interrupt(struct leases *leases, const struct instance *instance,
		      const struct instance_death *death);

/* The id of the lease whose directory the process was started with, seen also through a container's
 * mount; empty when there is none on this instance. */
void leases_identify(struct leases *leases, struct instance *instance, pid_t pid,
		     char ret_id[static LEASE_ID_SIZE]);

/* Why a lease that is granted or drains is not as it should be; empty when all is well. */
void leases_describe(const struct leases *leases, size_t index, char reason[static REASON_SIZE]);

/* The directory of a lease. */
void leases_directory(const struct leases *leases, const struct lease *lease,
		      char ret[static PIPE_DIRECTORY_MAX + 1]);
