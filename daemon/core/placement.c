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
	OBSTACLE_GANG,
	OBSTACLE_TOO_SMALL, /* for good */
};

static bool too_small(const struct lease_place *place, const struct lease_request *request)
{
	return request->clients > place->max_clients ||
	       (place->memory_bytes > 0 && request->memory_bytes > place->memory_bytes) ||
	       (place->mig && request->n_devices > 1);
}

static enum obstacle obstacle(const struct lease_table *table, const struct lease_place *place,
			      const struct lease_request *request)
{
	if (too_small(place, request))
		return OBSTACLE_TOO_SMALL;
	if (place->gang != LEASE_NONE)
		return OBSTACLE_GANG;
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
	return place->open && !place->held ? OBSTACLE_NONE : OBSTACLE_CLOSED;
}

/* And for a device of a gang that is to be formed: nobody may be there. */
static enum obstacle obstacle_of_device(const struct lease_table *table, size_t device,
					const struct lease_request *request)
{
	const struct lease_place *place = &table->places[device];
	enum obstacle what = obstacle(table, place, request);

	if (request->n_devices > 1 && what < OBSTACLE_NOT_EMPTY && place->n_leases > 0)
		return place->multi_user ? OBSTACLE_NOT_EMPTY : OBSTACLE_USER;
	return what;
}

/* The next device at or after i that is in `set` and not in `without`; LEASE_NONE. */
static size_t next_device(const struct device_set *set, const struct device_set *without, size_t i)
{
	uint64_t word;

	for (size_t w = i / 64; w < ELEMENTSOF(set->words); w++, i = 64 * w) {
		word = set->words[w] & ~without->words[w] & (UINT64_MAX << (i % 64));
		if (word != 0)
			return 64 * w + (size_t)__builtin_ctzll(word);
	}
	return LEASE_NONE;
}

static const struct device_set no_devices;

#define FOREACH_DEVICE(i, set, without)                                      \
	for (size_t i = next_device((set), (without), 0); (i) != LEASE_NONE; \
	     (i) = next_device((set), (without), (i) + 1))

/* ---------------------------------------------------------------- never */

static void say_too_small(const struct lease_request *request, int max_clients,
			  int64_t memory_bytes, char *reason)
{
	char asked[TEXT_BYTES_SIZE], largest[TEXT_BYTES_SIZE];

	(void)text_bytes(request->memory_bytes, asked);
	if (request->clients <= max_clients && request->memory_bytes <= memory_bytes)
		(void)text_format(reason, REASON_SIZE,
				  "no device takes %d clients and has %siB of memory too",
				  request->clients, asked);
	else if (request->clients > max_clients)
		(void)text_format(reason, REASON_SIZE,
				  "%d clients asked for, and a device takes at most %d",
				  request->clients, max_clients);
	else
		(void)text_format(reason, REASON_SIZE,
				  "%siB of memory asked for, and the largest device has %siB",
				  asked, text_bytes(memory_bytes, largest));
}

bool placement_impossible(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE])
{
	int max_clients = 0, n_fit = 0, n_plain = 0, n = 0;
	int64_t memory_bytes = 0;

	FOREACH_DEVICE(i, &request->candidates, &no_devices) {
		const struct lease_place *place = &table->places[i];

		n++;
		n_plain += !place->mig;
		n_fit += !too_small(place, request);
		max_clients = MAX(max_clients, place->max_clients);
		memory_bytes = MAX(memory_bytes, place->memory_bytes);
	}
	if (n_fit >= request->n_devices && request->n_devices <= GANG_DEVICES_MAX)
		return false;
	if (request->n_devices > GANG_DEVICES_MAX)
		(void)text_format(reason, REASON_SIZE,
				  "%d devices asked for, and a lease has at most %d",
				  request->n_devices, GANG_DEVICES_MAX);
	else if (n < request->n_devices)
		(void)text_format(reason, REASON_SIZE, "%d devices asked for, and there %s %d",
				  request->n_devices, n == 1 ? "is" : "are", n);
	else if (request->n_devices > 1 && n_plain < request->n_devices)
		(void)text_format(reason, REASON_SIZE,
				  "%d devices asked for, and a CUDA process can use only one when "
				  "it is a MIG device",
				  request->n_devices);
	else if (n_fit > 0)
		(void)text_format(reason, REASON_SIZE,
				  "%d devices asked for, and only %d could hold that much",
				  request->n_devices, n_fit);
	else
		say_too_small(request, max_clients, memory_bytes, reason);
	return true;
}

bool placement_all_failed(const struct lease_table *table, const struct lease_request *request,
			  size_t *ret_place, char reason[static REASON_SIZE])
{
	size_t failed = LEASE_NONE;
	int n_left = 0;

	FOREACH_DEVICE(i, &request->candidates, &no_devices) {
		if (too_small(&table->places[i], request))
			continue;
		if (!table->places[i].failed && !table->places[i].held)
			n_left++;
		else if (failed == LEASE_NONE)
			failed = i;
	}
	if (failed == LEASE_NONE || n_left >= request->n_devices)
		return false;
	*ret_place = failed;
	(void)text_copy(reason, REASON_SIZE, table->places[failed].closed_reason);
	return true;
}

/* ---------------------------------------------------------------- now */

/* Must a server of somebody else end first? */
static bool has_foreign_server(const struct lease_place *place, const struct lease_request *request)
{
	return place->has_server && !place->multi_user && place->server_uid != request->uid;
}

/* Is a better than b for this request? */
static bool better(const struct lease_table *table, const struct lease_place *a,
		   const struct lease_place *b, const struct lease_request *request)
{
	bool a_serves = a->n_leases > 0 && a->uid == request->uid;
	bool b_serves = b->n_leases > 0 && b->uid == request->uid;

	if (a_serves != b_serves && !a->multi_user && !b->multi_user)
		return a_serves;
	if (a->clients != b->clients)
		return table->rules.pack ? a->clients > b->clients : a->clients < b->clients;
	return !has_foreign_server(a, request) && has_foreign_server(b, request);
}

static int choose_device(const struct lease_table *table, const struct lease_request *request,
			 const struct device_set *blocked, struct placement *ret)
{
	ret->place = LEASE_NONE;
	FOREACH_DEVICE(i, &request->candidates, blocked) {
		const struct lease_place *place = &table->places[i];

		if (obstacle(table, place, request) == OBSTACLE_NONE &&
		    (ret->place == LEASE_NONE ||
		     better(table, place, &table->places[ret->place], request)))
			ret->place = i;
	}
	return ret->place == LEASE_NONE ? PLACEMENT_NONE : 0;
}

/* Has it as many devices as are asked for, all of them among those that will do? */
static bool is_such_a_gang(const struct lease_place *gang, const struct lease_request *request,
			   const struct device_set *blocked)
{
	if (gang->n_devices != request->n_devices || gang->ending)
		return false;
	for (size_t w = 0; w < ELEMENTSOF(gang->devices.words); w++)
		if (gang->devices.words[w] & ~(request->candidates.words[w] & ~blocked->words[w]))
			return false;
	return true;
}

static int choose_gang(const struct lease_table *table, const struct lease_request *request,
		       const struct device_set *blocked, struct placement *ret)
{
	ret->place = LEASE_NONE;
	for (size_t g = DEVICES_MAX; table->n_gangs > 0 && g < PLACES_MAX; g++) {
		const struct lease_place *gang = &table->places[g];

		if (is_such_a_gang(gang, request, blocked) &&
		    obstacle(table, gang, request) == OBSTACLE_NONE &&
		    (ret->place == LEASE_NONE ||
		     better(table, gang, &table->places[ret->place], request)))
			ret->place = g;
	}
	return ret->place == LEASE_NONE ? PLACEMENT_NONE : 0;
}

static int choose_devices(const struct lease_table *table, const struct lease_request *request,
			  const struct device_set *blocked, struct placement *ret)
{
	int n = 0;

	*ret = (struct placement){.place = LEASE_NONE};
	FOREACH_DEVICE(i, &request->candidates, blocked) {
		if (n == request->n_devices)
			break;
		if (obstacle_of_device(table, i, request) != OBSTACLE_NONE)
			continue;
		device_set_add(&ret->devices, i);
		n++;
	}
	return n == request->n_devices ? 0 : PLACEMENT_NONE;
}

int placement_choose(const struct lease_table *table, const struct lease_request *request,
		     const struct device_set *blocked, struct placement *ret)
{
	if (request->n_devices == 1)
		return choose_device(table, request, blocked, ret);
	if (choose_gang(table, request, blocked, ret) == 0)
		return 0;
	return choose_devices(table, request, blocked, ret);
}

void placement_reserve(const struct lease_table *table, const struct lease_request *request,
		       struct device_set *blocked)
{
	FOREACH_DEVICE(i, &request->candidates, blocked)
		if (!too_small(&table->places[i], request))
			device_set_add(blocked, i);
}

/* ---------------------------------------------------------------- why not */

static void say(enum obstacle what, const struct lease_place *place, char *reason)
{
	char reserved[TEXT_BYTES_SIZE], all[TEXT_BYTES_SIZE];

	switch (what) {
	case OBSTACLE_NONE:
		break;
	case OBSTACLE_CLOSED:
		(void)text_copy(reason, REASON_SIZE,
				place->held ? "held by an administrator" : place->closed_reason);
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
		(void)text_format(reason, REASON_SIZE, "full: %siB of %siB of memory reserved",
				  text_bytes(place->memory_reserved_bytes, reserved),
				  text_bytes(place->memory_bytes, all));
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
	case OBSTACLE_GANG:
		if (place->n_leases == 0)
			(void)text_copy(reason, REASON_SIZE, place->closed_reason);
		else
			(void)text_format(reason, REASON_SIZE,
					  "GPU in use by uid %u, %d lease%s of %d GPUs", place->uid,
					  place->n_leases, place->n_leases == 1 ? "" : "s",
					  place->n_devices);
		break;
	case OBSTACLE_TOO_SMALL:
		(void)text_copy(reason, REASON_SIZE, "the device is too small");
		break;
	}
}

/* Before why the nearest device is not free. */
static void say_how_many(const struct lease_request *request, int n_free, char *reason)
{
	char why[REASON_SIZE];

	(void)text_copy(why, sizeof(why), reason);
	(void)text_format(reason, REASON_SIZE, "%d GPUs needed at once, %d free; %.200s",
			  request->n_devices, n_free, why);
}

/* A gang with room for it: what is in the way there, if anything. */
static size_t find_gang(const struct lease_table *table, const struct lease_request *request,
			enum obstacle *ret)
{
	for (size_t g = DEVICES_MAX; table->n_gangs > 0 && g < PLACES_MAX; g++) {
		const struct lease_place *gang = &table->places[g];

		if (!is_such_a_gang(gang, request, &no_devices))
			continue;
		*ret = obstacle(table, gang, request);
		if (*ret == OBSTACLE_NONE || *ret == OBSTACLE_CLOSED)
			return g;
	}
	return LEASE_NONE;
}

static size_t obstacle_of_gang(const struct lease_table *table, size_t gang, enum obstacle what,
			       char *reason)
{
	if (what == OBSTACLE_NONE)
		return LEASE_NONE;
	say(what, &table->places[gang], reason);
	return gang;
}

size_t placement_obstacle(const struct lease_table *table, const struct lease_request *request,
			  char reason[static REASON_SIZE])
{
	enum obstacle nearest = OBSTACLE_TOO_SMALL, of_gang;
	size_t best = LEASE_NONE, gang;
	int n_free = 0;

	gang = request->n_devices > 1 ? find_gang(table, request, &of_gang) : LEASE_NONE;
	if (gang != LEASE_NONE)
		return obstacle_of_gang(table, gang, of_gang, reason);
	FOREACH_DEVICE(i, &request->candidates, &no_devices) {
		enum obstacle what = obstacle_of_device(table, i, request);

		if (what == OBSTACLE_NONE && ++n_free == request->n_devices)
			return LEASE_NONE;
		if (what != OBSTACLE_NONE && (best == LEASE_NONE || what < nearest)) {
			nearest = what;
			best = i;
		}
	}
	if (best == LEASE_NONE)
		return LEASE_NONE;
	/* Whose the gang is, is known there. */
	if (nearest == OBSTACLE_GANG)
		best = table->places[best].gang;
	say(nearest, &table->places[best], reason);
	if (request->n_devices > 1)
		say_how_many(request, n_free, reason);
	return best;
}
