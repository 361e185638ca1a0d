/* SPDX-License-Identifier: MIT */
#include "backoff.h"

#include "util.h"

void backoff_reset(struct backoff *backoff)
{
	*backoff = (struct backoff){};
}

void backoff_up(struct backoff *backoff, uint64_t now_usec)
{
	backoff->up_usec = now_usec;
}

/* Are the last `limit` deaths all inside the window? */
static int too_many(const struct backoff *backoff, const struct backoff_settings *settings,
		    uint64_t now_usec)
{
	unsigned int limit = MIN(settings->limit, (unsigned int)BACKOFF_LIMIT_MAX);
	uint64_t oldest;

	if (backoff->n_deaths < limit)
		return 0;
	oldest = backoff->deaths_usec[(backoff->n_deaths - limit) % BACKOFF_LIMIT_MAX];
	return now_usec - oldest < settings->window_usec;
}

int backoff_death(struct backoff *backoff, const struct backoff_settings *settings,
		  uint64_t now_usec, uint64_t *ret_delay_usec)
{
	if (backoff->up_usec > 0 && now_usec - backoff->up_usec >= settings->window_usec)
		backoff_reset(backoff);
	backoff->up_usec = 0;
	backoff->deaths_usec[backoff->n_deaths % BACKOFF_LIMIT_MAX] = now_usec;
	backoff->n_deaths++;
	if (too_many(backoff, settings, now_usec))
		return BACKOFF_GIVE_UP;
	if (backoff->n_deaths > 1)
		backoff->delay_usec = backoff->delay_usec
					      ? MIN(backoff->delay_usec * 2, settings->max_usec)
					      : MIN(settings->min_usec, settings->max_usec);
	*ret_delay_usec = backoff->delay_usec;
	return 0;
}
