/* SPDX-License-Identifier: MIT */
/* Which place a request gets, and why it gets none. Part of the lease table; pure. */
#pragma once

#include "lease.h"

/* Could so few candidates ever hold it, even empty, that it can never be granted? Then says why. */
bool placement_impossible(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE]);

/* Have so many of the candidates that could hold it failed that too few are left? Then says how
 * the first did. */
bool placement_all_failed(const struct lease_table *table, const struct lease_request *request,
			  size_t *ret_place, char reason[static REASON_SIZE]);

struct placement {
	size_t place;              /* LEASE_NONE: a new gang */
	struct device_set devices; /* over these */
};

enum {
	PLACEMENT_NONE = 1
};
/*
 * The best place that is free for it now and not blocked. A place that serves the uid already
 * comes first, then the emptiest (spread) or the fullest (pack), then one whose server need not be
 * ended, then the lowest. For several devices a gang of that uid that has room, else the lowest
 * devices that are empty.
 */
int placement_choose(const struct lease_table *table, const struct lease_request *request,
		     const struct device_set *blocked, struct placement *ret);

/* Adds the candidates that could hold it one day: nobody behind it may take those first. */
void placement_reserve(const struct lease_table *table, const struct lease_request *request,
		       struct device_set *blocked);

/* Of the candidates, the place that comes nearest to having room, and what is in the way there.
 * LEASE_NONE when nothing is, so that only the queue is in the way. */
size_t placement_obstacle(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE]);
