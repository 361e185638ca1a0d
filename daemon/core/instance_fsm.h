/* SPDX-License-Identifier: MIT */
/*
 * The life of one MPS control daemon as a pure machine: step(event, now) changes the state and
 * says what to do. It knows no process, no descriptor and no clock.
 *
 * Invariants (asserted after every step): admission is open exactly in `ready`; every state but
 * `stopped` and a `failed` without retry has a finite deadline; a spawn is asked for only when no
 * control daemon is alive; a lost generation is told once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backoff.h"
#include "caps.h"

enum instance_state {
	INSTANCE_STOPPED,
	INSTANCE_STARTING,
	INSTANCE_READY,
	INSTANCE_FAULTED,
	INSTANCE_UNRESPONSIVE,
	INSTANCE_DRAINING,
	INSTANCE_STOPPING,
	INSTANCE_BACKOFF,
	INSTANCE_FAILED,
};

struct instance_settings {
	uint64_t start_usec;         /* to become ready */
	uint64_t stop_usec;          /* from quit to SIGKILL, all of it */
	uint64_t interval_usec;      /* between agreement checks while leases exist */
	uint64_t idle_interval_usec; /* and without any */
	uint64_t wedge_grace_usec;   /* for the clients of a daemon that does not answer */
	uint64_t failed_retry_usec;  /* 0: never */
	uint64_t fault_grace_usec;   /* for the clients that a fault hit to leave by themselves */
	uint64_t server_end_usec;    /* for servers that are ended by order, and have clients */
	unsigned int misses;         /* unanswered queries that make it unresponsive */
	struct backoff_settings backoff;
};

enum instance_event {
	INSTANCE_EVENT_START,   /* wanted from now on */
	INSTANCE_EVENT_STOP,    /* not wanted from now on; with a reason */
	INSTANCE_EVENT_RECYCLE, /* end the pair and start a new one */
	INSTANCE_EVENT_DRAIN,   /* nobody new; stop when nobody has a lease. Said again when that
				 * is so; START takes it back */
	INSTANCE_EVENT_SPAWNED, /* as asked */
	INSTANCE_EVENT_SPAWN_FAILED, /* with a reason */
	INSTANCE_EVENT_ADOPTED,      /* instead: one that runs was found, with its clients */
	INSTANCE_EVENT_HINT,         /* its output says that it opens its sockets about now */
	INSTANCE_EVENT_ANSWERED,     /* the query was answered, and all is well */
	INSTANCE_EVENT_FAULT_STAYS,  /* it was answered: a server is in its fault state */
	INSTANCE_EVENT_NO_ANSWER,    /* it was refused, or came back empty */
	INSTANCE_EVENT_NOT_ASKED,    /* it could not be put: our own shortage, which says nothing */
	INSTANCE_EVENT_TIMED_OUT,    /* it had no answer in time */
	INSTANCE_EVENT_ASK,          /* somebody wants to know whether it answers */
	INSTANCE_EVENT_HALTED,       /* it cannot: a process of it is stopped; with a reason */
	INSTANCE_EVENT_DIED,         /* the control daemon is gone; with a reason */
	INSTANCE_EVENT_SERVER_LOST,  /* a server that had clients is gone; with a reason */
	INSTANCE_EVENT_END_SERVERS,  /* by order, for nobody has a lease; with a reason. Once more:
				      * they have clients all the same */
	INSTANCE_EVENT_SERVER_GONE,  /* no process of a lost or ended server is left */
	INSTANCE_EVENT_SERVERS_FAIL, /* servers fail again and again; with a reason */
	INSTANCE_EVENT_QUIT_OVER,    /* the request to end came back: heeded, or refused */
	INSTANCE_EVENT_SOCKET_LOST,  /* its socket was removed or replaced; with a reason */
	INSTANCE_EVENT_FAULT,        /* a server says that it handles a fatal GPU error */
	INSTANCE_EVENT_SETTLED,      /* all that is said of the fault has been read */
	INSTANCE_EVENT_VICTIMS_GONE, /* the last client that a fault hit has left */
	INSTANCE_EVENT_DEADLINE,     /* deadline_usec has come */
};

/* What to do. CLOSE comes with CHANGED and says no more than the state. */
enum instance_effect {
	INSTANCE_CLOSE = 1 << 0,     /* admission */
	INSTANCE_INTERRUPT = 1 << 1, /* tell every holder: its generation is lost */
	INSTANCE_QUIT = 1 << 2,      /* ask for an orderly end; answered by QUIT_OVER */
	INSTANCE_TERM = 1 << 3,
	INSTANCE_KILL = 1 << 4,
	INSTANCE_CLEAN = 1 << 5,   /* what a dead daemon leaves: servers, files */
	INSTANCE_SPAWN = 1 << 6,   /* answered by SPAWNED, SPAWN_FAILED or ADOPTED */
	INSTANCE_QUERY = 1 << 7,   /* answered by ANSWERED, NO_ANSWER or TIMED_OUT */
	INSTANCE_OPEN = 1 << 8,    /* admission */
	INSTANCE_CHANGED = 1 << 9, /* the state is another one */
	/* Of a fault: tell those it hit; then what makes the holdouts among them leave. */
	INSTANCE_TELL_HIT = 1 << 10,
	INSTANCE_TERMINATE_HOLDOUTS = 1 << 11, /* through MPS */
	INSTANCE_TERM_HOLDOUTS = 1 << 12,
	INSTANCE_KILL_HOLDOUTS = 1 << 13,
	INSTANCE_END_SERVERS = 1 << 14, /* ask them to; answered by SERVER_GONE */
	INSTANCE_RENEW = 1 << 15, /* for those who are in, while nobody is let in: as OPEN does */
};

struct instance_fsm {
	enum instance_state state;
	uint64_t since_usec;
	uint64_t deadline_usec; /* UINT64_MAX: none */
	uint64_t generation;    /* from 1 */
	uint64_t restarts;
	char reason[REASON_SIZE]; /* of the state; empty when it needs none */

	bool wedged; /* being ended because it does not answer */
	bool held;   /* by order: to be emptied, and not to be started */

	/* Private. */
	bool wanted, alive, querying, open;
	bool occupied;      /* somebody has a lease */
	bool attached;      /* somebody is, or may be, a client */
	bool untold;        /* a generation is lost to a fault, and nobody has been told yet */
	bool server_ending; /* a server is on its way out, and might still get clients */
	bool fault_told;    /* before it was adopted */
	bool adopted;       /* starting, but it has been running all the time */
	bool give_up;       /* fail instead of starting again */
	bool recycled;      /* being ended by order, to be started again */
	bool victims_gone;
	unsigned int misses, stop_step, fault_step;
	unsigned int phase;        /* 0 to 255: when in the interval the first question comes */
	uint64_t limit_usec;       /* of the whole start, of a step of a stop, of a grace */
	uint64_t probe_delay_usec; /* while starting */
	struct backoff backoff;
};

/* Is it being ended for good, and nobody can be harmed? Then its end is no loss. */
bool instance_fsm_is_harmless(const struct instance_fsm *fsm);

/* Is it being ended by force, to be started anew? Then its generation is as good as lost. */
bool instance_fsm_is_forced(const struct instance_fsm *fsm);

/* phase: another one for each instance, so that not all are asked at the same moment. */
void instance_fsm_init(struct instance_fsm *fsm, unsigned int phase, uint64_t now_usec);
/* Before its start: goes on from what an earlier run had come to. faulted: a fault that was told
 * already may hold it still. */
void instance_fsm_restore(struct instance_fsm *fsm, uint64_t generation, uint64_t restarts,
			  bool faulted);

/* reason: for the events that have one, else NULL. Returns instance_effect bits. */
unsigned int instance_fsm_step(struct instance_fsm *fsm, const struct instance_settings *settings,
			       enum instance_event event, const char *reason, uint64_t now_usec);

/* Whether anybody has a lease, and whether anybody could be harmed by a new pair. May bring the
 * deadline nearer. */
void instance_fsm_set_use(struct instance_fsm *fsm, const struct instance_settings *settings,
			  bool occupied, bool attached, uint64_t now_usec);

const char *instance_state_to_string(enum instance_state state);
const char *instance_event_to_string(enum instance_event event);
