/* SPDX-License-Identifier: MIT */
/*
 * Asking for a lease, and waiting in the queue. A request ends with its connection: when the
 * supervisor is restarted meanwhile, it is made anew, unless it was granted just before.
 */
#pragma once

#include <stdbool.h>

#include "call.h"
#include "grant.h"
#include "lease_options.h"

/* How long a supervisor that was there may be away. */
#define ACQUIRE_ABSENCE_SEC 30

/* call is not opened yet, and is the lease's connection afterwards; *ret_continues: more answers
 * will come on it. Says on stderr why it waits, unless quiet. 0, or CALL_FAILED. */
int acquire(struct call *call, const struct lease_options *options, struct grant *ret,
	    bool *ret_continues);
