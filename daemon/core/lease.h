/* SPDX-License-Identifier: MIT */
/*
 * The lease table: who has a place on which instance, and who waits. Pure: it decides, the shell
 * makes directories and answers.
 *
 * The queue is first come, first served per set of devices: a request that cannot be granted
 * keeps every place it could use from those behind it.
 *
 * Invariants (lease_table_check): the sums of every place are those of its leases; they never
 * exceed its caps; without multi_user all leases of a place have one uid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "caps.h"
#include "inventory.h"

/* Granted and waiting together. */
#define LEASES_MAX 8192
#define LEASES_RESERVED 64
#define LEASE_NONE SIZE_MAX

enum lease_state {
	LEASE_FREE, /* no lease */
	LEASE_QUEUED,
	LEASE_GRANTED,
	LEASE_DRAINING,
};

enum lease_bind {
	LEASE_BIND_CONNECTION,
	LEASE_BIND_PROCESS,
	LEASE_BIND_NONE,
};

struct lease_request {
	struct device_set candidates; /* places that will do */
	uint32_t uid;
	int32_t pid; /* of the holder; 0: none */
	enum lease_bind bind;
	int clients;          /* at least 1 */
	int threads_percent;  /* 0: no cap */
	int64_t memory_bytes; /* 0: no cap */
	bool exclusive;
	char name[LEASE_NAME_SIZE]; /* may be empty */
};

struct lease {
	enum lease_state state;
	char id[LEASE_ID_SIZE];
	struct lease_request request;
	size_t place; /* LEASE_NONE while queued */
	uint64_t sequence;
	uint64_t requested_usec, granted_usec; /* realtime */
	size_t next, previous;                 /* private: in the queue, or the free list */
};

/* A place is what leases are given on: an instance. */
struct lease_place {
	/* Set by the shell before leases come. */
	bool multi_user;
	int max_clients;
	int64_t memory_bytes; /* 0: not known, so not limited */
	/* Set by the shell as the instance goes. */
	bool open;
	bool failed; /* not open, and not known to be again soon: nobody waits for it */
	char closed_reason[REASON_SIZE]; /* shown to those who wait */
	/* Kept by the table. */
	uint32_t uid; /* whose it is while n_leases > 0 and not multi_user */
	int n_leases, clients, threads_percent;
	int64_t memory_reserved_bytes;
	bool exclusive;
};

struct lease_rules {
	bool pack; /* else spread */
	bool oversubscribe_threads;
	int max_per_user; /* 0: no limit */
};

struct lease_table {
	struct lease *leases; /* LEASES_MAX, owned by whoever called lease_table_init */
	struct lease_place places[DEVICES_MAX];
	size_t n_places;
	struct lease_rules rules;
	uint64_t next_sequence;
	size_t free_head, queue_head, queue_tail;
	size_t n_queued, n_granted, top; /* top: leases past it were never used */
};

/* leases: LEASES_MAX of them, need not be cleared. No places yet. */
void lease_table_init(struct lease_table *table, struct lease *leases,
		      const struct lease_rules *rules);

enum {
	LEASE_TABLE_FULL = 1,
	LEASE_USER_LIMIT,    /* max_per_user reached */
	LEASE_UNSATISFIABLE, /* no candidate could ever hold it; the sentence says why */
	LEASE_ALL_FAILED,    /* every candidate has failed; ret_index is the place of one */
};
/* Puts a request at the end of the queue. id: unique, ends with NUL. Outcomes above; nothing has
 * changed then. */
int lease_request(struct lease_table *table, const struct lease_request *request, const char *id,
		  uint64_t now_usec, size_t *ret_index, char reason[static REASON_SIZE]);

/* Have all places that would do for a waiter failed? Then says how one did, and which. */
bool lease_is_hopeless(const struct lease_table *table, size_t index, size_t *ret_place,
		       char reason[static REASON_SIZE]);

enum {
	LEASE_NOBODY = 1
};
/* Grants the first in the queue who can have a place now. LEASE_NOBODY when there is none. */
int lease_grant_next(struct lease_table *table, uint64_t now_usec, size_t *ret_index);

/* Ends a lease or a wait. */
void lease_end(struct lease_table *table, size_t index);

/* LEASE_NONE when there is none. */
size_t lease_find(const struct lease_table *table, const char *id);

/* All leases and waiters: for (i = lease_first(t); i != LEASE_NONE; i = lease_next(t, i)). */
size_t lease_first(const struct lease_table *table);
size_t lease_next(const struct lease_table *table, size_t index);

/* Of a waiter: 1 is the front. Counts those before it who could use a place that it could. */
int lease_position(const struct lease_table *table, size_t index);

/* Why a waiter waits, in a sentence, and whose leases are in front (0 leases: nobody's). */
struct lease_obstacle {
	char reason[REASON_SIZE];
	uint32_t uid;
	int n_leases;
};
void lease_obstacle(const struct lease_table *table, size_t index, struct lease_obstacle *ret);

#define LEASE_PLACE_UIDS_MAX 1024
/* The uids that have a lease on the place, each once; those past max are left out. */
size_t lease_place_uids(const struct lease_table *table, size_t place, uint32_t *uids, size_t max);

/* Asserts the invariants. For tests; walks everything. */
void lease_table_check(const struct lease_table *table);

const char *lease_state_to_string(enum lease_state state);
const char *lease_bind_to_string(enum lease_bind bind);
