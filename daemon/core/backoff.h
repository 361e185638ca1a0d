/* SPDX-License-Identifier: MIT */
/*
 * When to restart what keeps dying: at once the first time, then after a delay that doubles; not
 * any more after too many deaths in a window. Forgets only after it stayed up for a whole window.
 */
#pragma once

#include <stdint.h>

#define BACKOFF_LIMIT_MAX 32

struct backoff_settings {
	uint64_t min_usec, max_usec; /* of the delay, from the second death on */
	uint64_t window_usec;
	unsigned int
		limit; /* deaths in the window that are one too many; up to BACKOFF_LIMIT_MAX */
};

struct backoff {
	uint64_t deaths_usec[BACKOFF_LIMIT_MAX]; /* ring of the last ones */
	unsigned int n_deaths;                   /* since the last reset, all of them */
	uint64_t up_usec;                        /* when it last became ready; 0: never */
	uint64_t delay_usec;
};

void backoff_reset(struct backoff *backoff);
void backoff_up(struct backoff *backoff, uint64_t now_usec);

enum {
	BACKOFF_GIVE_UP = 1
};
/* Counts a death. 0 with the delay before the next try, or BACKOFF_GIVE_UP. */
int backoff_death(struct backoff *backoff, const struct backoff_settings *settings,
		  uint64_t now_usec, uint64_t *ret_delay_usec);
