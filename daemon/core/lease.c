/* SPDX-License-Identifier: MIT */
#include "lease.h"

#include <assert.h>

#include "lease_parts.h"
#include "placement.h"
#include "text.h"

static const struct lease_place no_place = {
	.gang = LEASE_NONE,
	.first = LEASE_NONE,
	.last = LEASE_NONE,
};

void lease_table_init(struct lease_table *table, struct lease *leases,
		      const struct lease_rules *rules)
{
	memset(table, 0, sizeof(*table));
	table->leases = leases;
	table->rules = *rules;
	table->free_head = LEASE_NONE;
	table->next_sequence = 1;
	for (size_t i = 0; i < LEASES_BUCKETS; i++)
		table->buckets[i] = LEASE_NONE;
	for (size_t i = 0; i < PLACES_MAX; i++)
		table->places[i] = no_place;
	lease_queue_init(table);
}

void lease_add_place(struct lease_table *table, const struct lease_place *place)
{
	struct lease_place *added = &table->places[table->n_places++];

	*added = *place;
	added->gang = added->first = added->last = LEASE_NONE;
}

static size_t take_free(struct lease_table *table)
{
	size_t index = table->free_head;

	if (index != LEASE_NONE) {
		table->free_head = table->leases[index].next;
		return index;
	}
	return table->top < LEASES_MAX ? table->top++ : LEASE_NONE;
}

/* ---------------------------------------------------------------- ids */

static size_t *bucket_of(struct lease_table *table, const char *id)
{
	return &table->buckets[text_hash(id) % LEASES_BUCKETS];
}

static void remember_id(struct lease_table *table, size_t index)
{
	size_t *bucket = bucket_of(table, table->leases[index].id);

	table->leases[index].same_bucket = *bucket;
	*bucket = index;
	table->tallies[table->leases[index].request.uid % LEASE_TALLIES]++;
}

static void forget_id(struct lease_table *table, size_t index)
{
	size_t *link = bucket_of(table, table->leases[index].id);

	while (*link != index)
		link = &table->leases[*link].same_bucket;
	*link = table->leases[index].same_bucket;
	table->tallies[table->leases[index].request.uid % LEASE_TALLIES]--;
}

size_t lease_find(const struct lease_table *table, const char *id)
{
	size_t i = table->buckets[text_hash(id) % LEASES_BUCKETS];

	while (i != LEASE_NONE && !streq(table->leases[i].id, id))
		i = table->leases[i].same_bucket;
	return i;
}

/* ---------------------------------------------------------------- asking */

static int count_of_user(const struct lease_table *table, uint32_t uid)
{
	int n = 0;

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i))
		n += table->leases[i].request.uid == uid;
	return n;
}

static int *tally_of(struct lease_table *table, uint32_t uid)
{
	return &table->tallies[uid % LEASE_TALLIES];
}

/* Nobody has all to himself. Users share a tally, so that is only looked at closely when it is
 * high. */
static bool has_room_for(struct lease_table *table, uint32_t uid)
{
	return *tally_of(table, uid) < LEASES_MAX / 2 || count_of_user(table, uid) < LEASES_MAX / 2;
}

int lease_request(struct lease_table *table, const struct lease_request *request, const char *id,
		  uint64_t now_usec, size_t *ret_index, char reason[static REASON_SIZE])
{
	struct lease *lease;
	size_t index, place;

	assert(request->n_devices >= 1);
	if (placement_impossible(table, request, reason))
		return LEASE_UNSATISFIABLE;
	if (placement_all_failed(table, request, &place, reason)) {
		*ret_index = place;
		return LEASE_ALL_FAILED;
	}
	if (table->rules.max_per_user > 0 &&
	    *tally_of(table, request->uid) >= table->rules.max_per_user &&
	    count_of_user(table, request->uid) >= table->rules.max_per_user) {
		(void)text_format(
			reason, REASON_SIZE,
			"uid %u has %d leases and requests, and access.max_leases_per_user "
			"is %d; one of them must end first",
			request->uid, count_of_user(table, request->uid),
			table->rules.max_per_user);
		return LEASE_USER_LIMIT;
	}
	if (request->uid != 0 && !has_room_for(table, request->uid)) {
		(void)text_format(reason, REASON_SIZE,
				  "uid %u has half of all %d leases and requests there can be",
				  request->uid, LEASES_MAX);
		return LEASE_TABLE_FULL;
	}
	/* The last places are root's: nobody keeps an administrator out. */
	index = LEASE_NONE;
	if (request->uid == 0 || table->n_queued + table->n_granted < LEASES_MAX - LEASES_RESERVED)
		index = take_free(table);
	if (index == LEASE_NONE) {
		(void)text_format(reason, REASON_SIZE, "full: %d leases and requests", LEASES_MAX);
		return LEASE_TABLE_FULL;
	}
	lease = &table->leases[index];
	*lease = (struct lease){
		.state = LEASE_QUEUED,
		.request = *request,
		.place = LEASE_NONE,
		.sequence = table->next_sequence++,
		.requested_usec = now_usec,
	};
	(void)text_copy(lease->id, sizeof(lease->id), id);
	remember_id(table, index);
	lease_queue_enter(table, index);
	*ret_index = index;
	return 0;
}

bool lease_is_hopeless(const struct lease_table *table, size_t index, size_t *ret_place,
		       char reason[static REASON_SIZE])
{
	const struct lease *lease = &table->leases[index];

	if (lease->state == LEASE_ASSIGNED && lease->place >= DEVICES_MAX &&
	    table->places[lease->place].failed) {
		*ret_place = lease->place;
		(void)text_copy(reason, REASON_SIZE, table->places[lease->place].closed_reason);
		return true;
	}
	return placement_all_failed(table, &lease->request, ret_place, reason);
}

/* ---------------------------------------------------------------- places */

static void occupy(struct lease_table *table, size_t index, size_t place_index)
{
	struct lease_place *place = &table->places[place_index];
	struct lease *lease = &table->leases[index];

	lease->place = place_index;
	lease->place_previous = place->last;
	lease->place_next = LEASE_NONE;
	if (place->last == LEASE_NONE)
		place->first = index;
	else
		table->leases[place->last].place_next = index;
	place->last = index;
	place->uid = lease->request.uid;
	place->n_leases++;
	place->clients += lease->request.clients;
	place->threads_percent += lease->request.threads_percent;
	place->memory_reserved_bytes += lease->request.memory_bytes;
	place->exclusive = lease->request.exclusive;
}

static void vacate(struct lease_table *table, size_t index)
{
	struct lease *lease = &table->leases[index];
	struct lease_place *place = &table->places[lease->place];

	if (lease->place_previous == LEASE_NONE)
		place->first = lease->place_next;
	else
		table->leases[lease->place_previous].place_next = lease->place_next;
	if (lease->place_next == LEASE_NONE)
		place->last = lease->place_previous;
	else
		table->leases[lease->place_next].place_previous = lease->place_previous;
	place->n_leases--;
	place->clients -= lease->request.clients;
	place->threads_percent -= lease->request.threads_percent;
	place->memory_reserved_bytes -= lease->request.memory_bytes;
	place->exclusive = false;
	place->proven = place->proven && place->n_leases > 0;
	lease->place = LEASE_NONE;
}

/* A gang's place takes what the poorest of its devices does. */
static void add_device(struct lease_table *table, size_t gang, size_t device)
{
	struct lease_place *place = &table->places[gang];
	const struct lease_place *of = &table->places[device];

	table->places[device].gang = gang;
	place->multi_user = place->multi_user && of->multi_user;
	place->max_clients =
		place->n_devices == 0 ? of->max_clients : MIN(place->max_clients, of->max_clients);
	if (place->memory_bytes == 0 ||
	    (of->memory_bytes > 0 && of->memory_bytes < place->memory_bytes))
		place->memory_bytes = of->memory_bytes;
	place->n_devices++;
}

static bool holds_any(const struct lease_table *table, size_t gang)
{
	for (size_t i = 0; i < table->n_places; i++)
		if (table->places[i].gang == gang && table->places[i].held)
			return true;
	return false;
}

/* There is always a place: a gang has two devices of its own. */
static size_t form_gang(struct lease_table *table, const struct device_set *devices)
{
	size_t gang = DEVICES_MAX;

	while (table->places[gang].n_devices > 0)
		gang++;
	assert(gang < PLACES_MAX);
	table->places[gang] = no_place;
	table->places[gang].multi_user = true;
	table->places[gang].devices = *devices;
	(void)text_copy(table->places[gang].closed_reason, REASON_SIZE, "its devices are prepared");
	for (size_t i = 0; i < table->n_places; i++)
		if (device_set_has(devices, i))
			add_device(table, gang, i);
	table->places[gang].held = holds_any(table, gang);
	table->n_gangs++;
	return gang;
}

void lease_hold(struct lease_table *table, size_t device, bool held)
{
	size_t gang = table->places[device].gang;

	table->places[device].held = held;
	if (gang != LEASE_NONE)
		table->places[gang].held = holds_any(table, gang);
}

size_t lease_gang_unneeded(struct lease_table *table)
{
	for (size_t g = DEVICES_MAX; table->n_gangs > 0 && g < PLACES_MAX; g++) {
		struct lease_place *place = &table->places[g];

		if (place->n_devices == 0 || place->n_leases > 0 || place->ending)
			continue;
		place->ending = true;
		place->open = false;
		return g;
	}
	return LEASE_NONE;
}

void lease_gang_gone(struct lease_table *table, size_t gang)
{
	assert(table->places[gang].ending && table->places[gang].n_leases == 0);
	for (size_t i = 0; i < table->n_places; i++)
		if (table->places[i].gang == gang)
			table->places[i].gang = LEASE_NONE;
	table->places[gang] = no_place;
	table->n_gangs--;
}

/* ---------------------------------------------------------------- granting */

/* For MPS lets nobody wait in the open. */
bool lease_has_foreign_server(const struct lease_table *table, size_t index)
{
	const struct lease_place *place = &table->places[index];

	return place->has_server && !place->multi_user && place->server_uid != place->uid;
}

void lease_prove(struct lease_table *table, size_t place)
{
	table->places[place].proven = table->places[place].n_leases > 0;
}

/* A gang has answered just now: it was made for who has it. */
static bool is_prepared(const struct lease_table *table, const struct lease *lease)
{
	const struct lease_place *place = &table->places[lease->place];

	return place->open && !place->held && !lease_has_foreign_server(table, lease->place) &&
	       (place->proven || !table->rules.prove || place->n_devices > 0);
}

static void grant(struct lease_table *table, size_t index, uint64_t now_usec)
{
	struct lease *lease = &table->leases[index];

	lease_queue_leave(table, index);
	table->places[lease->place].n_assigned -= lease->state == LEASE_ASSIGNED;
	table->n_granted++;
	lease->state = LEASE_GRANTED;
	lease->granted_usec = now_usec;
}

/* Held, failed or silent; a gang that is so is the shell's to refuse. */
static bool is_lost(const struct lease_table *table, size_t place)
{
	const struct lease_place *of = &table->places[place];

	return of->held || (of->n_devices == 0 && (of->failed || of->silent));
}

/* The first of those whose place is prepared. Who has one that has failed, is silent or is held
 * looks for another. */
static size_t find_prepared(struct lease_table *table)
{
	size_t next;

	for (size_t i = table->assigned.head; i != LEASE_NONE; i = next) {
		struct lease *lease = &table->leases[i];

		next = lease->next;
		if (is_prepared(table, lease))
			return i;
		if (!is_lost(table, lease->place))
			continue;
		table->places[lease->place].n_assigned--;
		vacate(table, i);
		lease_queue_return(table, i);
	}
	return LEASE_NONE;
}

static void take_place(struct lease_table *table, size_t index, const struct placement *placement)
{
	occupy(table, index,
	       placement->place != LEASE_NONE ? placement->place
					      : form_gang(table, &placement->devices));
}

/* The first in the queue for whom there is a place now. */
static size_t place_next(struct lease_table *table)
{
	struct device_set blocked = {};
	struct placement placement;

	for (size_t i = table->queue.head; i != LEASE_NONE; i = table->leases[i].next) {
		const struct lease_request *request = &table->leases[i].request;

		if (placement_choose(table, request, &blocked, &placement) == 0) {
			take_place(table, i, &placement);
			return i;
		}
		placement_reserve(table, request, &blocked);
		if (device_set_count(&blocked) == table->n_places)
			return LEASE_NONE;
	}
	return LEASE_NONE;
}

int lease_grant_next(struct lease_table *table, uint64_t now_usec, size_t *ret_index)
{
	size_t index = find_prepared(table);

	if (index == LEASE_NONE)
		index = place_next(table);
	if (index == LEASE_NONE)
		return LEASE_NOBODY;
	*ret_index = index;
	if (is_prepared(table, &table->leases[index])) {
		grant(table, index, now_usec);
		return 0;
	}
	lease_queue_assign(table, index);
	table->places[table->leases[index].place].n_assigned++;
	return LEASE_PREPARE;
}

bool lease_restore(struct lease_table *table, const struct lease_request *request, const char *id,
		   size_t place, uint64_t requested_usec, uint64_t granted_usec, size_t *ret_index)
{
	size_t index = lease_find(table, id) == LEASE_NONE ? take_free(table) : LEASE_NONE;
	struct lease *lease;

	if (index == LEASE_NONE)
		return false;
	lease = &table->leases[index];
	*lease = (struct lease){
		.state = LEASE_GRANTED,
		.request = *request,
		.sequence = table->next_sequence++,
		.requested_usec = requested_usec,
		.granted_usec = granted_usec,
	};
	(void)text_copy(lease->id, sizeof(lease->id), id);
	remember_id(table, index);
	occupy(table, index, place);
	table->n_granted++;
	*ret_index = index;
	return true;
}

size_t lease_restore_gang(struct lease_table *table, const struct device_set *devices)
{
	if (device_set_count(devices) < 2)
		return LEASE_NONE;
	for (size_t i = 0; i < table->n_places; i++)
		if (device_set_has(devices, i) &&
		    (table->places[i].gang != LEASE_NONE || table->places[i].n_leases > 0))
			return LEASE_NONE;
	return form_gang(table, devices);
}

void lease_drain(struct lease_table *table, size_t index)
{
	assert(table->leases[index].state == LEASE_GRANTED);
	table->leases[index].state = LEASE_DRAINING;
}

void lease_end(struct lease_table *table, size_t index)
{
	struct lease *lease = &table->leases[index];

	assert(lease->state != LEASE_FREE);
	if (lease_is_waiting(lease))
		lease_queue_leave(table, index);
	else
		table->n_granted--;
	if (lease->place != LEASE_NONE) {
		table->places[lease->place].n_assigned -= lease->state == LEASE_ASSIGNED;
		vacate(table, index);
	}
	forget_id(table, index);
	*lease = (struct lease){.state = LEASE_FREE, .next = table->free_head};
	table->free_head = index;
}

/* ---------------------------------------------------------------- walks */

static size_t used_from(const struct lease_table *table, size_t index)
{
	while (index < table->top && table->leases[index].state == LEASE_FREE)
		index++;
	return index < table->top ? index : LEASE_NONE;
}

size_t lease_first(const struct lease_table *table)
{
	return used_from(table, 0);
}

size_t lease_next(const struct lease_table *table, size_t index)
{
	return used_from(table, index + 1);
}

size_t lease_place_first(const struct lease_table *table, size_t place)
{
	return table->places[place].first;
}

size_t lease_place_next(const struct lease_table *table, size_t index)
{
	return table->leases[index].place_next;
}

static void say_what_it_waits_for(const struct lease_table *table, size_t place,
				  struct lease_obstacle *ret)
{
	const char *reason = "the MPS daemon is asked whether it answers";

	ret->passing = table->places[place].open && !lease_has_foreign_server(table, place);
	if (!table->places[place].open)
		reason = table->places[place].closed_reason;
	else if (!ret->passing)
		reason = "the MPS server of another user is ending";
	(void)text_copy(ret->reason, sizeof(ret->reason), reason);
}

void lease_obstacle(const struct lease_table *table, size_t index, struct lease_obstacle *ret)
{
	const struct lease *lease = &table->leases[index];
	size_t place;

	*ret = (struct lease_obstacle){};
	if (lease->state == LEASE_ASSIGNED) {
		say_what_it_waits_for(table, lease->place, ret);
		return;
	}
	place = placement_obstacle(table, &lease->request, ret->reason);
	if (place == LEASE_NONE) {
		(void)text_copy(ret->reason, sizeof(ret->reason), "others were first");
		return;
	}
	ret->uid = table->places[place].uid;
	ret->n_leases = table->places[place].n_leases;
}

static bool contains(const uint32_t *uids, size_t n, uint32_t uid)
{
	for (size_t i = 0; i < n; i++)
		if (uids[i] == uid)
			return true;
	return false;
}

size_t lease_place_uids(const struct lease_table *table, size_t place, uint32_t *uids, size_t max)
{
	size_t n = 0;

	for (size_t i = lease_place_first(table, place); i != LEASE_NONE && n < max;
	     i = lease_place_next(table, i))
		if (!contains(uids, n, table->leases[i].request.uid))
			uids[n++] = table->leases[i].request.uid;
	return n;
}

const char *lease_state_to_string(enum lease_state state)
{
	switch (state) {
	case LEASE_FREE:
		return "free";
	case LEASE_QUEUED:
	case LEASE_ASSIGNED:
		return "queued";
	case LEASE_GRANTED:
		return "granted";
	case LEASE_DRAINING:
		return "draining";
	}
	return "?";
}

const char *lease_bind_to_string(enum lease_bind bind)
{
	switch (bind) {
	case LEASE_BIND_CONNECTION:
		return "connection";
	case LEASE_BIND_PROCESS:
		return "process";
	case LEASE_BIND_NONE:
		return "none";
	}
	return "?";
}
