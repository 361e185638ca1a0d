/* SPDX-License-Identifier: MIT */
/*
 * The lease table: who has a place on which instance, and who waits. Pure: it decides, the shell
 * starts instances, makes directories and answers.
 *
 * A place is what leases are given on. Each device has one, at its own index; a gang of several
 * devices has one at DEVICES_MAX or above for as long as leases need it, and its devices are given
 * to nobody else meanwhile.
 *
 * The queue is first come, first served per set of devices: a request that cannot be granted
 * keeps every device it could use from those behind it.
 *
 * A request may get its place before it can be granted: a gang must be started first, and the
 * server of another user must end. It occupies the place from then on.
 *
 * Invariants (lease_table_check): the sums of every place are those of its leases; they never
 * exceed its caps; without multi_user all leases of a place have one uid; no device has leases of
 * its own while a gang has it, and no two gangs share a device.
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
#define LEASES_BUCKETS 8192
#define LEASE_TALLIES 1024
/* Sets of devices that are waited for at a time, and counted together; past them positions are
 * found by walking the queue. */
#define LEASE_KINDS_MAX 64
#define LEASE_NONE SIZE_MAX

enum lease_state {
	LEASE_FREE, /* no lease */
	LEASE_QUEUED,
	LEASE_ASSIGNED, /* has its place, which is being prepared; to users: queued */
	LEASE_GRANTED,
	LEASE_DRAINING, /* its holder is gone, its clients are not */
};

enum lease_bind {
	LEASE_BIND_CONNECTION,
	LEASE_BIND_PROCESS,
	LEASE_BIND_NONE,
};

struct lease_request {
	struct device_set candidates; /* devices that will do */
	int n_devices;                /* so many of them, at least 1 */
	uint32_t uid;
	int32_t pid; /* of the holder; 0: none */
	enum lease_bind bind;
	int clients;          /* on each device, at least 1 */
	int threads_percent;  /* 0: no cap */
	int64_t memory_bytes; /* on each device; 0: no cap */
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

	/* Private. */
	size_t next, previous; /* among those who wait, or the free list */
	size_t place_next, place_previous;
	size_t same_bucket;
	size_t kind;
};

struct lease_place {
	/* Set by the shell before leases come; a gang's by the table, from its devices'. */
	bool multi_user;
	bool mig; /* CUDA gives a process no more than one MIG device */
	int max_clients;
	int64_t memory_bytes; /* of each device; 0: not known, so not limited */
	/* Set by the shell as the instance goes. */
	bool open;
	bool failed; /* not open, and not known to be again soon: nobody waits for it */
	bool silent; /* not open, and who has it already, but waits, had better look elsewhere */
	char closed_reason[REASON_SIZE]; /* shown to those who wait */
	bool has_server;
	uint32_t server_uid; /* whose; UINT32_MAX: several users' */
	/* Kept by the table. */
	uint32_t uid; /* whose it is while n_leases > 0 and not multi_user */
	bool proven;  /* of a device: has answered since somebody came to have it */
	int n_leases, n_assigned, clients, threads_percent;
	int64_t memory_reserved_bytes;
	bool exclusive;
	bool held;                 /* by an administrator: likewise not open */
	size_t gang;               /* of a device: the place of the gang that has it */
	struct device_set devices; /* of a gang; of a device: not used */
	int n_devices;             /* of a gang; 0: this place is not in use */
	bool ending;               /* of a gang */
	size_t first, last;        /* private: its leases, in the order they got it */
};

struct lease_rules {
	bool pack; /* else spread */
	bool oversubscribe_threads;
	bool prove;       /* a device that nobody had must answer before somebody gets it */
	int max_per_user; /* 0: no limit */
};

struct lease_list {
	size_t head, tail;
};

/* Those who wait for the same devices. */
struct lease_kind {
	struct device_set candidates;
	int n_waiting; /* 0: free */
};

struct lease_table {
	struct lease *leases; /* LEASES_MAX, owned by whoever called lease_table_init */
	struct lease_place places[PLACES_MAX];
	size_t n_places; /* devices */
	size_t n_gangs;
	struct lease_rules rules;
	size_t n_queued, n_granted; /* assigned ones are queued still */

	/* Private. */
	uint64_t next_sequence;
	size_t free_head, top; /* top: leases past it were never used */
	struct lease_list queue, assigned;
	size_t buckets[LEASES_BUCKETS];
	int tallies[LEASE_TALLIES]; /* leases and requests, by user */
	struct lease_kind kinds[LEASE_KINDS_MAX];
	size_t n_without_kind;
};

/* leases: LEASES_MAX of them, need not be cleared. */
void lease_table_init(struct lease_table *table, struct lease *leases,
		      const struct lease_rules *rules);
/* The place of the next device; what the table keeps in it need not be set. */
void lease_add_place(struct lease_table *table, const struct lease_place *place);

enum {
	LEASE_TABLE_FULL = 1,
	LEASE_USER_LIMIT,    /* max_per_user reached */
	LEASE_UNSATISFIABLE, /* no candidate could ever hold it; the sentence says why */
	LEASE_ALL_FAILED,    /* too many candidates have failed or are held; ret_index is one */
};
/* Puts a request at the end of the queue. id: unique, ends with NUL. Outcomes above; nothing has
 * changed then. */
int lease_request(struct lease_table *table, const struct lease_request *request, const char *id,
		  uint64_t now_usec, size_t *ret_index, char reason[static REASON_SIZE]);

/* Have so many places failed that would do for a waiter that it waits for nothing? Then says how
 * one did, and which. */
bool lease_is_hopeless(const struct lease_table *table, size_t index, size_t *ret_place,
		       char reason[static REASON_SIZE]);

enum {
	LEASE_NOBODY = 1,
	LEASE_PREPARE, /* *ret_index has got its place, which must be prepared: a gang to be
			* started, the servers of another user to be ended, or it must answer */
};
/* Grants the first in the queue who can have a place now, or finds a place for it. */
int lease_grant_next(struct lease_table *table, uint64_t now_usec, size_t *ret_index);

/* Has the place a server that must end before those who have it can be granted? */
bool lease_has_foreign_server(const struct lease_table *table, size_t place);
/* The place answered: now, and so for those who have it. */
void lease_prove(struct lease_table *table, size_t place);

/* A lease that an earlier run had granted on the place: it has it again, even past its caps. False
 * when the table is full, or has the id. */
bool lease_restore(struct lease_table *table, const struct lease_request *request, const char *id,
		   size_t place, uint64_t requested_usec, uint64_t granted_usec, size_t *ret_index);
/* And a gang: its place. LEASE_NONE when one of the devices has a lease or another gang. */
size_t lease_restore_gang(struct lease_table *table, const struct device_set *devices);

/* A granted lease whose holder is gone, and whose clients are not. */
void lease_drain(struct lease_table *table, size_t index);

/* Ends a lease or a wait. */
void lease_end(struct lease_table *table, size_t index);

/* An administrator holds a device, or gives it back; a gang over it is held too. Who has been
 * assigned there looks for another place. */
void lease_hold(struct lease_table *table, size_t device, bool held);

/* The place of a gang that nobody needs any more, each once; LEASE_NONE. It is ending then. */
size_t lease_gang_unneeded(struct lease_table *table);
/* The instance of an ending gang is gone: its devices are free. */
void lease_gang_gone(struct lease_table *table, size_t place);

/* Not granted yet. */
static inline bool lease_is_waiting(const struct lease *lease)
{
	return lease->state == LEASE_QUEUED || lease->state == LEASE_ASSIGNED;
}

/* LEASE_NONE when there is none. */
size_t lease_find(const struct lease_table *table, const char *id);

/* All leases and waiters: for (i = lease_first(t); i != LEASE_NONE; i = lease_next(t, i)). */
size_t lease_first(const struct lease_table *table);
size_t lease_next(const struct lease_table *table, size_t index);
/* Those that have a place, assigned ones too. */
size_t lease_place_first(const struct lease_table *table, size_t place);
size_t lease_place_next(const struct lease_table *table, size_t index);
/* Those who wait, in order. */
size_t lease_waiting_first(const struct lease_table *table);
size_t lease_waiting_next(const struct lease_table *table, size_t index);

/* How many wait for a device, or for a gang. */
int lease_place_waiting(const struct lease_table *table, size_t place);

/* Of a waiter: 1 is the front. Counts those before it who could use a device that it could. Walks
 * the queue, unless the waiter is its last. */
int lease_position(const struct lease_table *table, size_t index);

/* Positions of many, one after the other in order. Starts out zeroed. */
struct lease_sweep {
	int before[LEASE_KINDS_MAX];
};
int lease_sweep_position(struct lease_sweep *sweep, const struct lease_table *table, size_t index);

/* Why a waiter waits, in a sentence, and whose leases are in front (0 leases: nobody's). */
struct lease_obstacle {
	char reason[REASON_SIZE];
	uint32_t uid;
	int n_leases;
	bool passing; /* over in a moment, most probably: not worth a word */
};
void lease_obstacle(const struct lease_table *table, size_t index, struct lease_obstacle *ret);

#define LEASE_PLACE_UIDS_MAX 1024
/* The uids that have a lease on the place, each once; those past max are left out. */
size_t lease_place_uids(const struct lease_table *table, size_t place, uint32_t *uids, size_t max);

/* Asserts the invariants. For tests; walks everything. */
void lease_table_check(const struct lease_table *table);

const char *lease_state_to_string(enum lease_state state);
const char *lease_bind_to_string(enum lease_bind bind);
