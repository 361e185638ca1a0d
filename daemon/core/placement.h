/* SPDX-License-Identifier: MIT */
/* Which place a request gets, and why it gets none. Part of the lease table; pure. */
#pragma once

#include "lease.h"

/* Could no candidate ever hold it, even empty? Then says why. */
bool placement_impossible(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE]);

/* Have all candidates that could hold it failed? Then says how the first did. */
bool placement_all_failed(const struct lease_table *table, const struct lease_request *request,
			  size_t *ret_place, char reason[static REASON_SIZE]);

/* The best place that is free for it now and not blocked; LEASE_NONE. A place that serves the
 * uid already comes first, then the emptiest (spread) or the fullest (pack), then the lowest. */
size_t placement_choose(const struct lease_table *table, const struct lease_request *request,
			const struct device_set *blocked);

/* Adds the candidates that could hold it one day: nobody behind it may take those first. */
void placement_reserve(const struct lease_table *table, const struct lease_request *request,
		       struct device_set *blocked);

/* Of the candidates, the place that comes nearest to having room, and what is in the way there.
 * LEASE_NONE when one has room, so that only the queue is in the way. */
size_t placement_obstacle(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE]);
