/* SPDX-License-Identifier: MIT */
#include <limits.h>

#include "instance_fsm.h"
#include "unit_instance_fsm.h"

/* One step of a scenario. The time of a deadline is the machine's own; others come at_usec after
 * the last one. deadline_usec: from the step on, UINT64_MAX for none. */
struct scene {
	enum instance_event event;
	uint64_t after_usec;
	unsigned int effects;
	enum instance_state state;
	uint64_t deadline_usec;
	uint64_t generation;
	const char *reason; /* in the state's reason; NULL: whatever */
};

#define END_OF_SCENES INT_MAX

/* Ways that many scenarios share. */
#define STARTS                                                                          \
	{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, ""}, \
	{                                                                               \
		INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, ""         \
	}
#define GETS_READY                                                                               \
	STARTS, {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, 9980 * MS, 1, NULL},      \
	{                                                                                        \
		INSTANCE_EVENT_ANSWERED, 5 * MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, "" \
	}

static const struct {
	const char *what;
	bool occupied;
	struct scene scenes[24];
} scenarios[] = {
	{"starts, is asked, is ready",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"a hint asks at once, and only once",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_HINT, 8 * MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_HINT, MS, 0, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_HINT, MS, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"probes again with growing pauses",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, 9980 * MS, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 10 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 20 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 40 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_TIMED_OUT, 2 * SEC, 0, INSTANCE_STARTING, 80 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 160 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 200 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 200 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"not ready in time: killed until it is gone",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, 9980 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL | CHANGED, INSTANCE_STOPPING, SEC, 1,
	   "not ready after 10 s"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "not ready after 10 s"},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_STOPPING, NEVER - 1, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"never spawned in time: tried again",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1,
	   "not ready after 10 s"},
	  {.event = END_OF_SCENES}}},
	{"cannot be spawned: once more, waits, gives up, tries again after a pause",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_START, SEC, 0, INSTANCE_FAILED, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"dies while starting: nobody is told",
	 true,
	 {STARTS,
	  {INSTANCE_EVENT_DIED, MS, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, NULL},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, 0, INSTANCE_BACKOFF, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, NULL},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 1, "WHY"},
	  {.event = END_OF_SCENES}}},
	{"dies while ready: told once",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DIED, SEC, CLOSE | INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_DIED, 0, 0, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 2, ""},
	  {INSTANCE_EVENT_DIED, SEC, CLOSE | INTERRUPT | CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2,
	   3, "WHY"},
	  {.event = END_OF_SCENES}}},
	{"a whole window up makes it start at once again",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DIED, SEC, CLOSE | INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 2, ""},
	  {INSTANCE_EVENT_DIED, 60 * SEC, CLOSE | INTERRUPT | CLEAN | SPAWN | CHANGED,
	   INSTANCE_STARTING, 10 * SEC, 3, NULL},
	  {.event = END_OF_SCENES}}},
	{"loses a server: a new generation of the same daemon",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_SERVER_LOST, SEC, INTERRUPT | CLOSE | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, "its MPS server is ending"},
	  {INSTANCE_EVENT_SERVER_LOST, MS, 0, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_SERVER_GONE, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, NEVER - 1, 2, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, NEVER - 1, 2, ""},
	  {INSTANCE_EVENT_SERVER_LOST, MS, INTERRUPT | CLOSE | CHANGED, INSTANCE_STARTING, 10 * SEC,
	   3, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_STARTING, NEVER - 1, 3, NULL},
	  {INSTANCE_EVENT_SERVER_GONE, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 3, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 10 * MS, 3, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 3, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, NEVER - 1, 3, ""},
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 3, "WHY"},
	  {INSTANCE_EVENT_SERVER_LOST, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 3, NULL},
	  {INSTANCE_EVENT_DIED, SEC, INTERRUPT | CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 4, ""},
	  {INSTANCE_EVENT_SERVER_LOST, SEC, 0, INSTANCE_STOPPED, NEVER, 4, ""},
	  {.event = END_OF_SCENES}}},
	{"ends its servers by order: nothing is lost, and nobody is let in meanwhile",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_SERVER_GONE, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_SERVER_GONE, MS, 0, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 10 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_SERVER_GONE, MS, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"servers do not end: all are killed, without a loss until then",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL | CHANGED, INSTANCE_STOPPING, SEC, 1,
	   "its MPS server does not end"},
	  {INSTANCE_EVENT_END_SERVERS, MS, 0, INSTANCE_STOPPING, NEVER - 1, 1, "does not end"},
	  {INSTANCE_EVENT_SERVER_GONE, MS, 0, INSTANCE_STOPPING, NEVER - 1, 1, "does not end"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"servers that have clients get more time, up to a limit",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 4 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 3 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, SEC, 0, INSTANCE_STARTING, 2 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL | CHANGED, INSTANCE_STOPPING, SEC, 1, "does not end"},
	  {.event = END_OF_SCENES}}},
	{"more time ends with the servers",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, 9 * SEC, 0, INSTANCE_STARTING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_SERVER_GONE, SEC, QUERY, INSTANCE_STARTING, 9 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, SEC, 0, INSTANCE_STARTING, 8 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {.event = END_OF_SCENES}}},
	{"dies while its servers end: nobody is told",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, SEC, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, ""},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, ""},
	  {INSTANCE_EVENT_END_SERVERS, MS, 0, INSTANCE_STARTING, 19 * MS, 1, ""},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"a server that ends by order, with somebody in it after all, is a loss no more",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_SERVER_LOST, SEC, 0, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_SERVER_GONE, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"is asked while a question is open: its answer comes late and counts",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_END_SERVERS, MS, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_SERVER_GONE, MS, 0, INSTANCE_STARTING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops while its servers end",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_END_SERVERS, SEC, CLOSE | END_SERVERS | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_STOP, MS, TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_END_SERVERS, MS, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"has no servers to end when it is not ready",
	 true,
	 {{INSTANCE_EVENT_END_SERVERS, 0, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  STARTS,
	  {INSTANCE_EVENT_END_SERVERS, MS, 0, INSTANCE_STARTING, 19 * MS, 1, ""},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_FAULT, MS, CLOSE | CHANGED, INSTANCE_FAULTED, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_END_SERVERS, MS, 0, INSTANCE_FAULTED, 19 * MS, 2, "a GPU fault"},
	  {INSTANCE_EVENT_SERVERS_FAIL, MS, TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 2, "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, MS, 0, INSTANCE_STOPPING, 1999 * MS, 2, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 2,
	   "WHY"},
	  {INSTANCE_EVENT_END_SERVERS, SEC, 0, INSTANCE_FAILED, 599 * SEC, 2, "WHY"},
	  {.event = END_OF_SCENES}}},
	{"stops by the ladder",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_STOP, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, TERM, INSTANCE_STOPPING, 2 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_START, SEC, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"a request to end that is refused is made again",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_QUIT_OVER, SEC, 0, INSTANCE_READY, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_QUIT_OVER, SEC, 0, INSTANCE_STOPPING, 200 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, QUIT, INSTANCE_STOPPING, 8800 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_QUIT_OVER, 8700 * MS, 0, INSTANCE_STOPPING, 100 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, TERM, INSTANCE_STOPPING, 2 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_QUIT_OVER, SEC, 0, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops while starting",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_STOP, MS, TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops before it is spawned",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_STOP, MS, CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_STOP, MS, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops while it waits to start again",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, NULL},
	  {INSTANCE_EVENT_STOP, MS, CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_START, MS, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"stops while failed",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 1, NULL},
	  {INSTANCE_EVENT_STOP, MS, CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"wanted again while it stops",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_START, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_DIED, SEC, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {.event = END_OF_SCENES}}},
	{"is recycled",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_RECYCLE, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1,
	   "restarted"},
	  {INSTANCE_EVENT_RECYCLE, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 1, "restarted"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, NEVER - 1, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"is tried at once when an operator says so",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, NULL},
	  {INSTANCE_EVENT_RECYCLE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"a fault: settles, waits, recovers when the victims are gone",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_FAULT, SEC, CLOSE | CHANGED, INSTANCE_FAULTED, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_FAULT, MS, 0, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, TELL_HIT | QUERY, INSTANCE_FAULTED, 2 * SEC, 2, NULL},
	  {INSTANCE_EVENT_FAULT_STAYS, 5 * MS, 0, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_VICTIMS_GONE, SEC, QUERY, INSTANCE_FAULTED, 50 * MS, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, 5 * MS, OPEN | CHANGED, INSTANCE_READY, NEVER - 1, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"holdouts of a fault: MPS, TERM, KILL, and at last a new pair",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_FAULT_STAYS, SEC, CLOSE | CHANGED, INSTANCE_FAULTED, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_SETTLED, MS, TELL_HIT | QUERY, INSTANCE_FAULTED, 2 * SEC, 2, NULL},
	  {INSTANCE_EVENT_FAULT_STAYS, MS, 0, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_FAULT_STAYS, MS, 0, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, TERMINATE | QUERY, INSTANCE_FAULTED, 2 * SEC, 2, NULL},
	  {INSTANCE_EVENT_FAULT_STAYS, MS, 0, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, TERM_HOLDOUTS | QUERY, INSTANCE_FAULTED, 2 * SEC, 2, NULL},
	  {INSTANCE_EVENT_FAULT_STAYS, MS, 0, INSTANCE_FAULTED, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL_HOLDOUTS | QUERY, INSTANCE_FAULTED, 2 * SEC, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 2, NULL},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 3, NULL},
	  {.event = END_OF_SCENES}}},
	{"a death before a fault has settled is one loss",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_FAULT, SEC, CLOSE | CHANGED, INSTANCE_FAULTED, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {.event = END_OF_SCENES}}},
	{"servers that fail again and again: failed, with their reason, and tried again later",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_SERVERS_FAIL, SEC, CLOSE | TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 1,
	   "WHY"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 2,
	   "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"its socket is gone: a controlled restart",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_SOCKET_LOST, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1,
	   "WHY"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"is not recycled when it is not wanted",
	 false,
	 {{INSTANCE_EVENT_RECYCLE, 0, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"does not answer, has leases, and comes back",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 10 * SEC, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 2 * SEC, 0, INSTANCE_READY, 200 * MS, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 10 * SEC, 1, ""},
	  {INSTANCE_EVENT_NO_ANSWER, 5 * MS, 0, INSTANCE_READY, 200 * MS, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 10 * SEC, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 2 * SEC, CLOSE | CHANGED, INSTANCE_UNRESPONSIVE, 200 * MS, 1,
	   "does not answer"},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_UNRESPONSIVE, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, 0, INSTANCE_UNRESPONSIVE, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_TIMED_OUT, SEC, 0, INSTANCE_UNRESPONSIVE, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_SERVER_LOST, 0, INTERRUPT, INSTANCE_UNRESPONSIVE, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_UNRESPONSIVE, 10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 10 * SEC, 2, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 10 * SEC, 2, ""},
	  {INSTANCE_EVENT_TIMED_OUT, MS, 0, INSTANCE_READY, 200 * MS, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"is asked, and cannot answer",
	 true,
	 {{INSTANCE_EVENT_ASK, 0, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_HALTED, 0, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  GETS_READY,
	  {INSTANCE_EVENT_ASK, SEC, QUERY, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_ASK, SEC, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_HALTED, MS, CLOSE | CHANGED, INSTANCE_UNRESPONSIVE, 200 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_HALTED, 0, 0, INSTANCE_UNRESPONSIVE, 200 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_ASK, 0, 0, INSTANCE_UNRESPONSIVE, 200 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_UNRESPONSIVE, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 10 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"does not answer and has no leases: recycled at once",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, 0, INSTANCE_READY, 200 * MS, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, 0, INSTANCE_READY, 200 * MS, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, CLOSE | CHANGED, INSTANCE_UNRESPONSIVE, 200 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_UNRESPONSIVE, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_TIMED_OUT, 2 * SEC, TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 1,
	   "does not answer"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "does not answer"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {.event = END_OF_SCENES}}},
	{"an answer between forgives",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_ANSWERED, 0, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, NEVER - 1, 1, ""},
	  {INSTANCE_EVENT_TIMED_OUT, 0, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {.event = END_OF_SCENES}}},
};

static void play(struct instance_fsm *fsm, const struct scene *scene, uint64_t *now_usec)
{
	unsigned int effects;

	if (scene->event == INSTANCE_EVENT_DEADLINE)
		*now_usec = fsm->deadline_usec;
	else
		*now_usec += scene->after_usec;
	effects = instance_fsm_step(fsm, &settings, scene->event, "WHY", *now_usec);
	ck_assert_str_eq(instance_state_to_string(fsm->state),
			 instance_state_to_string(scene->state));
	ck_assert_msg(effects == scene->effects, "effects %#x, not %#x", effects, scene->effects);
	ck_assert_uint_eq(fsm->generation, scene->generation);
	if (scene->reason && *scene->reason)
		unit_assert_contains(fsm->reason, scene->reason);
	else if (scene->reason)
		ck_assert_str_eq(fsm->reason, "");
	if (scene->effects & CHANGED)
		ck_assert_uint_eq(fsm->since_usec, *now_usec);
	if (scene->deadline_usec == NEVER)
		ck_assert_uint_eq(fsm->deadline_usec, NEVER);
	else if (scene->deadline_usec != NEVER - 1)
		ck_assert_uint_eq(fsm->deadline_usec - *now_usec, scene->deadline_usec);
}

START_TEST(plays_the_scenario)
{
	struct instance_fsm fsm;
	uint64_t now_usec = T0;

	instance_fsm_init(&fsm, 0, now_usec);
	for (size_t i = 0; scenarios[_i].scenes[i].event != END_OF_SCENES; i++) {
		ck_assert_uint_lt(i, ELEMENTSOF(scenarios[_i].scenes));
		play(&fsm, &scenarios[_i].scenes[i], &now_usec);
		set_use(&fsm, scenarios[_i].occupied && fsm.state != INSTANCE_STARTING);
	}
}
END_TEST

static void get_ready(struct instance_fsm *fsm, const struct instance_settings *with,
		      uint64_t now_usec)
{
	(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_START, NULL, now_usec);
	if (fsm->state == INSTANCE_STARTING && !fsm->alive)
		(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_SPAWNED, NULL, now_usec);
	(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_HINT, NULL, now_usec);
	(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_ANSWERED, NULL, now_usec);
	ck_assert_int_eq(fsm->state, INSTANCE_READY);
}

START_TEST(ignores_an_early_deadline)
{
	struct instance_fsm fsm, before;

	instance_fsm_init(&fsm, 0, T0);
	get_ready(&fsm, &settings, T0);
	before = fsm;
	ck_assert_uint_eq(instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_DEADLINE, NULL,
					    fsm.deadline_usec - 1),
			  0);
	ck_assert_mem_eq(&fsm, &before, sizeof(fsm));
}
END_TEST

/* The clients of a daemon that does not answer have the grace, all of it, and not more. */
START_TEST(ends_a_wedge_after_the_grace)
{
	struct instance_fsm fsm;
	uint64_t now_usec = T0, wedged_usec;
	unsigned int effects = 0;

	instance_fsm_init(&fsm, 0, now_usec);
	get_ready(&fsm, &settings, now_usec);
	set_use(&fsm, true);
	while (fsm.state == INSTANCE_READY) {
		now_usec = fsm.deadline_usec;
		(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_DEADLINE, NULL, now_usec);
		(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_TIMED_OUT, NULL, now_usec);
	}
	wedged_usec = now_usec;
	while (fsm.state == INSTANCE_UNRESPONSIVE) {
		now_usec = fsm.deadline_usec;
		effects =
			instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_DEADLINE, NULL, now_usec);
		if (effects & QUERY)
			(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_TIMED_OUT, NULL,
						now_usec);
	}
	ck_assert_uint_eq(now_usec - wedged_usec, settings.wedge_grace_usec);
	ck_assert_int_eq(fsm.state, INSTANCE_STOPPING);
	ck_assert_uint_eq(effects, TERM | CHANGED);
}
END_TEST

START_TEST(stays_failed_without_retry)
{
	struct instance_settings never = settings;
	struct instance_fsm fsm;

	never.failed_retry_usec = 0;
	never.backoff.limit = 1;
	instance_fsm_init(&fsm, 0, T0);
	get_ready(&fsm, &never, T0);
	(void)instance_fsm_step(&fsm, &never, INSTANCE_EVENT_DIED, NULL, T0 + SEC);
	ck_assert_int_eq(fsm.state, INSTANCE_FAILED);
	ck_assert_str_eq(fsm.reason, "the control daemon died");
	ck_assert_uint_eq(fsm.deadline_usec, NEVER);
	ck_assert_uint_eq(fsm.restarts, 1);
}
END_TEST

/* An operator who recycles it often has not made it fail. */
START_TEST(recycling_is_no_failure)
{
	struct instance_fsm fsm;

	instance_fsm_init(&fsm, 0, T0);
	for (uint64_t i = 0; i < 5; i++) {
		get_ready(&fsm, &settings, T0 + i * SEC);
		(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_RECYCLE, NULL,
					T0 + i * SEC);
		(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_DIED,
					"exited with status 0", T0 + i * SEC);
		ck_assert_msg(fsm.state == INSTANCE_STARTING, "recycled %d times: %s", (int)i + 1,
			      instance_state_to_string(fsm.state));
	}
}
END_TEST

START_TEST(keeps_long_reasons_whole_enough)
{
	struct instance_settings quick = settings;
	char reason[4 * REASON_SIZE];
	struct instance_fsm fsm;

	memset(reason, 'x', sizeof(reason));
	reason[sizeof(reason) - 1] = '\0';
	quick.backoff.limit = 1;
	instance_fsm_init(&fsm, 0, T0);
	get_ready(&fsm, &quick, T0);
	(void)instance_fsm_step(&fsm, &quick, INSTANCE_EVENT_DIED, reason, T0);
	ck_assert_uint_eq(strlen(fsm.reason), REASON_SIZE - 1);
}
END_TEST

START_TEST(names_states_and_events)
{
	for (int i = INSTANCE_STOPPED; i <= INSTANCE_FAILED; i++)
		ck_assert_str_ne(instance_state_to_string((enum instance_state)i), "?");
	for (int i = INSTANCE_EVENT_START; i <= INSTANCE_EVENT_DEADLINE; i++)
		ck_assert_str_ne(instance_event_to_string((enum instance_event)i), "?");
	ck_assert_str_eq(instance_state_to_string((enum instance_state)99), "?");
	ck_assert_str_eq(instance_event_to_string((enum instance_event)99), "?");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("instance_fsm");

	unit_add_table(tcase, plays_the_scenario, scenarios);
	tcase_add_test(tcase, ignores_an_early_deadline);
	tcase_add_test(tcase, ends_a_wedge_after_the_grace);
	tcase_add_test(tcase, stays_failed_without_retry);
	tcase_add_test(tcase, recycling_is_no_failure);
	tcase_add_test(tcase, keeps_long_reasons_whole_enough);
	tcase_add_test(tcase, names_states_and_events);
	return unit_run("instance_fsm", tcase);
}
