/* SPDX-License-Identifier: MIT */
/* Short names, settings and use, for the tests of the instance machine. */
#pragma once

#include "instance_fsm.h"
#include "unit.h"

#define MS USEC_PER_MSEC
#define SEC USEC_PER_SEC
#define T0 (1000 * SEC)

#define CLOSE INSTANCE_CLOSE
#define INTERRUPT INSTANCE_INTERRUPT
#define QUIT INSTANCE_QUIT
#define TERM INSTANCE_TERM
#define KILL INSTANCE_KILL
#define CLEAN INSTANCE_CLEAN
#define SPAWN INSTANCE_SPAWN
#define QUERY INSTANCE_QUERY
#define OPEN INSTANCE_OPEN
#define CHANGED INSTANCE_CHANGED
#define END_SERVERS INSTANCE_END_SERVERS
#define TELL_HIT INSTANCE_TELL_HIT
#define TERMINATE INSTANCE_TERMINATE_HOLDOUTS
#define TERM_HOLDOUTS INSTANCE_TERM_HOLDOUTS
#define KILL_HOLDOUTS INSTANCE_KILL_HOLDOUTS
#define NEVER UINT64_MAX

static const struct instance_settings settings = {
	.start_usec = 10 * SEC,
	.stop_usec = 20 * SEC,
	.interval_usec = 10 * SEC,
	.idle_interval_usec = 60 * SEC,
	.wedge_grace_usec = 300 * SEC,
	.failed_retry_usec = 600 * SEC,
	.fault_grace_usec = 3 * SEC,
	.server_end_usec = 70 * SEC,
	.misses = 3,
	.backoff = {.min_usec = SEC / 2, .max_usec = 30 * SEC, .window_usec = 60 * SEC, .limit = 3},
};

/* Somebody has a lease and is a client, or nobody is there. */
static inline void set_use(struct instance_fsm *fsm, bool used)
{
	fsm->occupied = used;
	fsm->attached = used;
}
