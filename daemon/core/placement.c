/* SPDX-License-Identifier: MIT */
#include "placement.h"

#include "text.h"

/* What keeps a request from a place, the nearest to having it first. */
enum obstacle {
	OBSTACLE_NONE,
	OBSTACLE_CLOSED,
	OBSTACLE_CLIENTS,
	OBSTACLE_THREADS,
	OBSTACLE_MEMORY,
	OBSTACLE_USER,
	OBSTACLE_NOT_EMPTY,
	OBSTACLE_EXCLUSIVE,
	OBSTACLE_TOO_SMALL, /* for good */
};

static bool too_small(const struct lease_place *place, const struct lease_request *request)
{
	return request->clients > place->max_clients ||
	       (place->memory_bytes > 0 && request->memory_bytes > place->memory_bytes);
}

static enum obstacle obstacle(const struct lease_table *table, const struct lease_place *place,
			      const struct lease_request *request)
{
	if (too_small(place, request))
		return OBSTACLE_TOO_SMALL;
	if (place->n_leases > 0 && place->exclusive)
		return OBSTACLE_EXCLUSIVE;
	if (place->n_leases > 0 && request->exclusive)
		return OBSTACLE_NOT_EMPTY;
	if (place->n_leases > 0 && !place->multi_user && place->uid != request->uid)
		return OBSTACLE_USER;
	if (request->memory_bytes > (place->memory_bytes > 0 ? place->memory_bytes : INT64_MAX) -
					    place->memory_reserved_bytes)
		return OBSTACLE_MEMORY;
	if (!table->rules.oversubscribe_threads &&
	    place->threads_percent + request->threads_percent > 100)
		return OBSTACLE_THREADS;
	if (place->clients + request->clients > place->max_clients)
		return OBSTACLE_CLIENTS;
	return place->open ? OBSTACLE_NONE : OBSTACLE_CLOSED;
}

bool placement_impossible(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE])
{
	int max_clients = 0;
	int64_t memory_bytes = 0;

	for (size_t i = 0; i < table->n_places; i++) {
		const struct lease_place *place = &table->places[i];

		if (!device_set_has(&request->candidates, i))
			continue;
		if (!too_small(place, request))
			return false;
		if (place->max_clients > max_clients)
			max_clients = place->max_clients;
		if (place->memory_bytes > memory_bytes)
			memory_bytes = place->memory_bytes;
	}
	if (request->clients <= max_clients && request->memory_bytes <= memory_bytes)
		(void)text_format(reason, REASON_SIZE,
				  "no device takes %d clients and has %lld bytes of memory too",
				  request->clients, (long long)request->memory_bytes);
	else if (request->clients > max_clients)
		(void)text_format(reason, REASON_SIZE,
				  "%d clients asked for, and a device takes at most %d",
				  request->clients, max_clients);
	else
		(void)text_format(reason, REASON_SIZE,
				  "%lld bytes of memory asked for, and the largest device has %lld",
				  (long long)request->memory_bytes, (long long)memory_bytes);
	return true;
}

bool placement_all_failed(const struct lease_table *table, const struct lease_request *request,
			  size_t *ret_place, char reason[static REASON_SIZE])
{
	size_t failed = LEASE_NONE;

	for (size_t i = 0; i < table->n_places; i++) {
		if (!device_set_has(&request->candidates, i) ||
		    too_small(&table->places[i], request))
			continue;
		if (!table->places[i].failed)
			return false;
		if (failed == LEASE_NONE)
			failed = i;
	}
	if (failed == LEASE_NONE)
		return false;
	*ret_place = failed;
	(void)text_copy(reason, REASON_SIZE, table->places[failed].closed_reason);
	return true;
}

/* Is a better than b for this request? */
static bool better(const struct lease_table *table, const struct lease_place *a,
		   const struct lease_place *b, const struct lease_request *request)
{
	bool a_serves = a->n_leases > 0 && a->uid == request->uid;
	bool b_serves = b->n_leases > 0 && b->uid == request->uid;

	if (a_serves != b_serves && !a->multi_user && !b->multi_user)
		return a_serves;
	return table->rules.pack ? a->clients > b->clients : a->clients < b->clients;
}

size_t placement_choose(const struct lease_table *table, const struct lease_request *request,
			const struct device_set *blocked)
{
	size_t best = LEASE_NONE;

	for (size_t i = 0; i < table->n_places; i++) {
		const struct lease_place *place = &table->places[i];

		if (!device_set_has(&request->candidates, i) || device_set_has(blocked, i) ||
		    obstacle(table, place, request) != OBSTACLE_NONE)
			continue;
		if (best == LEASE_NONE || better(table, place, &table->places[best], request))
			best = i;
	}
	return best;
}

void placement_reserve(const struct lease_table *table, const struct lease_request *request,
		       struct device_set *blocked)
{
	for (size_t i = 0; i < table->n_places; i++)
		if (device_set_has(&request->candidates, i) &&
		    !too_small(&table->places[i], request))
			device_set_add(blocked, i);
}

static void say(enum obstacle what, const struct lease_place *place, char *reason)
{
	switch (what) {
	case OBSTACLE_NONE:
		break;
	case OBSTACLE_CLOSED:
		(void)text_copy(reason, REASON_SIZE, place->closed_reason);
		break;
	case OBSTACLE_CLIENTS:
		(void)text_format(reason, REASON_SIZE, "full: %d/%d clients reserved",
				  place->clients, place->max_clients);
		break;
	case OBSTACLE_THREADS:
		(void)text_format(reason, REASON_SIZE, "full: %d%% of the threads reserved",
				  place->threads_percent);
		break;
	case OBSTACLE_MEMORY:
		(void)text_format(
			reason, REASON_SIZE, "full: %lld of %lld bytes of memory reserved",
			(long long)place->memory_reserved_bytes, (long long)place->memory_bytes);
		break;
	case OBSTACLE_USER:
	case OBSTACLE_NOT_EMPTY:
		(void)text_format(reason, REASON_SIZE, "GPU in use by uid %u, %d lease%s",
				  place->uid, place->n_leases, place->n_leases == 1 ? "" : "s");
		break;
	case OBSTACLE_EXCLUSIVE:
		(void)text_format(reason, REASON_SIZE, "GPU in exclusive use by uid %u",
				  place->uid);
		break;
	case OBSTACLE_TOO_SMALL:
		(void)text_copy(reason, REASON_SIZE, "the device is too small");
		break;
	}
}

size_t placement_obstacle(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE])
{
	enum obstacle nearest = OBSTACLE_TOO_SMALL;
	size_t best = LEASE_NONE;

	for (size_t i = 0; i < table->n_places; i++) {
		enum obstacle what;

		if (!device_set_has(&request->candidates, i))
			continue;
		what = obstacle(table, &table->places[i], request);
		if (what == OBSTACLE_NONE)
			return LEASE_NONE;
		if (best == LEASE_NONE || what < nearest) {
			nearest = what;
			best = i;
		}
	}
	if (best != LEASE_NONE)
		say(nearest, &table->places[best], reason);
	return best;
}
