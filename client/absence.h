/* SPDX-License-Identifier: MIT */
/*
 * A supervisor that is not there for a while, because it is restarted: since when, and when to try
 * again. Times are of CLOCK_MONOTONIC.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

#define ABSENCE_PAUSE_MIN_USEC (50 * USEC_PER_MSEC)
#define ABSENCE_PAUSE_MAX_USEC USEC_PER_SEC

/* Zero: it is there. */
struct absence {
	uint64_t since_usec;
	uint64_t pause_usec; /* before the next try; 0 while it is there */
};

/* One more try has failed. The first begins the absence. False when it has lasted limit_usec by
 * now; else *ret_usec is when to try again: after pauses that double, and when the limit is
 * reached. */
bool absence_goes_on(struct absence *absence, uint64_t now_usec, uint64_t limit_usec,
		     uint64_t *ret_usec);

/* It has answered: a connection alone may be one that nobody accepts yet. */
void absence_end(struct absence *absence);

/* Is this its first failure? */
bool absence_is_new(const struct absence *absence);

/* Sleeps, through signals too. */
void absence_pause(uint64_t until_usec);
