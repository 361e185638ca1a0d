/* SPDX-License-Identifier: MIT */
#include "absence.h"

bool absence_goes_on(struct absence *absence, uint64_t now_usec, uint64_t limit_usec,
		     uint64_t *ret_usec)
{
	if (absence_is_new(absence)) {
		absence->since_usec = now_usec;
		absence->pause_usec = ABSENCE_PAUSE_MIN_USEC;
	} else if (now_usec - absence->since_usec >= limit_usec) {
		return false;
	}
	*ret_usec = absence->since_usec +
		    MIN(now_usec - absence->since_usec + absence->pause_usec, limit_usec);
	absence->pause_usec = MIN(absence->pause_usec * 2, ABSENCE_PAUSE_MAX_USEC);
	return true;
}

void absence_end(struct absence *absence)
{
	*absence = (struct absence){};
}

bool absence_is_new(const struct absence *absence)
{
	return absence->pause_usec == 0;
}

void absence_pause(uint64_t until_usec)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_usec / USEC_PER_SEC),
		.tv_nsec = (long)(until_usec % USEC_PER_SEC * 1000),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}
