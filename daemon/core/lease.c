/* SPDX-License-Identifier: MIT */
#include "lease.h"

#include <assert.h>

#include "placement.h"
#include "text.h"

void lease_table_init(struct lease_table *table, struct lease *leases,
		      const struct lease_rules *rules)
{
	memset(table, 0, sizeof(*table));
	table->leases = leases;
	table->rules = *rules;
	table->free_head = LEASE_NONE;
	table->queue_head = LEASE_NONE;
	table->queue_tail = LEASE_NONE;
	table->next_sequence = 1;
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

static void enqueue(struct lease_table *table, size_t index)
{
	struct lease *lease = &table->leases[index];

	lease->next = LEASE_NONE;
	lease->previous = table->queue_tail;
	if (table->queue_tail != LEASE_NONE)
		table->leases[table->queue_tail].next = index;
	else
		table->queue_head = index;
	table->queue_tail = index;
	table->n_queued++;
}

static void dequeue(struct lease_table *table, size_t index)
{
	struct lease *lease = &table->leases[index];

	if (lease->previous != LEASE_NONE)
		table->leases[lease->previous].next = lease->next;
	else
		table->queue_head = lease->next;
	if (lease->next != LEASE_NONE)
		table->leases[lease->next].previous = lease->previous;
	else
		table->queue_tail = lease->previous;
	table->n_queued--;
}

static int count_of_user(const struct lease_table *table, uint32_t uid)
{
	int n = 0;

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i))
		n += table->leases[i].request.uid == uid;
	return n;
}

int lease_request(struct lease_table *table, const struct lease_request *request, const char *id,
		  uint64_t now_usec, size_t *ret_index, char reason[static REASON_SIZE])
{
	struct lease *lease;
	size_t index, place;

	if (placement_impossible(table, request, reason))
		return LEASE_UNSATISFIABLE;
	if (placement_all_failed(table, request, &place, reason)) {
		*ret_index = place;
		return LEASE_ALL_FAILED;
	}
	if (table->rules.max_per_user > 0 &&
	    count_of_user(table, request->uid) >= table->rules.max_per_user) {
		(void)text_format(reason, REASON_SIZE,
				  "uid %u has %d leases and requests, as many as one user may have",
				  request->uid, table->rules.max_per_user);
		return LEASE_USER_LIMIT;
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
	enqueue(table, index);
	*ret_index = index;
	return 0;
}

bool lease_is_hopeless(const struct lease_table *table, size_t index, size_t *ret_place,
		       char reason[static REASON_SIZE])
{
	return placement_all_failed(table, &table->leases[index].request, ret_place, reason);
}

static void occupy(struct lease_table *table, struct lease *lease, size_t place_index)
{
	struct lease_place *place = &table->places[place_index];

	lease->place = place_index;
	place->uid = lease->request.uid;
	place->n_leases++;
	place->clients += lease->request.clients;
	place->threads_percent += lease->request.threads_percent;
	place->memory_reserved_bytes += lease->request.memory_bytes;
	place->exclusive = lease->request.exclusive;
	table->n_granted++;
}

static void vacate(struct lease_table *table, struct lease *lease)
{
	struct lease_place *place = &table->places[lease->place];

	place->n_leases--;
	place->clients -= lease->request.clients;
	place->threads_percent -= lease->request.threads_percent;
	place->memory_reserved_bytes -= lease->request.memory_bytes;
	place->exclusive = false;
	table->n_granted--;
}

int lease_grant_next(struct lease_table *table, uint64_t now_usec, size_t *ret_index)
{
	struct device_set blocked = {};
	size_t n_blocked = 0;

	for (size_t i = table->queue_head; i != LEASE_NONE && n_blocked < table->n_places;
	     i = table->leases[i].next) {
		struct lease *lease = &table->leases[i];
		size_t place = placement_choose(table, &lease->request, &blocked);

		if (place == LEASE_NONE) {
			placement_reserve(table, &lease->request, &blocked);
			n_blocked = device_set_count(&blocked);
			continue;
		}
		dequeue(table, i);
		lease->state = LEASE_GRANTED;
		lease->granted_usec = now_usec;
		occupy(table, lease, place);
		*ret_index = i;
		return 0;
	}
	return LEASE_NOBODY;
}

void lease_end(struct lease_table *table, size_t index)
{
	struct lease *lease = &table->leases[index];

	assert(lease->state != LEASE_FREE);
	if (lease->state == LEASE_QUEUED)
		dequeue(table, index);
	else
		vacate(table, lease);
	*lease = (struct lease){.state = LEASE_FREE, .next = table->free_head};
	table->free_head = index;
}

size_t lease_find(const struct lease_table *table, const char *id)
{
	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i))
		if (streq(table->leases[i].id, id))
			return i;
	return LEASE_NONE;
}

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

static bool share_a_place(const struct lease *a, const struct lease *b)
{
	for (size_t w = 0; w < ELEMENTSOF(a->request.candidates.words); w++)
		if (a->request.candidates.words[w] & b->request.candidates.words[w])
			return true;
	return false;
}

int lease_position(const struct lease_table *table, size_t index)
{
	const struct lease *lease = &table->leases[index];
	int position = 1;

	for (size_t i = lease->previous; i != LEASE_NONE; i = table->leases[i].previous)
		position += share_a_place(&table->leases[i], lease);
	return position;
}

void lease_obstacle(const struct lease_table *table, size_t index, struct lease_obstacle *ret)
{
	const struct lease *lease = &table->leases[index];
	size_t place;

	*ret = (struct lease_obstacle){};
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

	if (table->places[place].n_leases > 0 && !table->places[place].multi_user && max > 0) {
		uids[0] = table->places[place].uid;
		return 1;
	}
	for (size_t i = lease_first(table); i != LEASE_NONE && n < max; i = lease_next(table, i)) {
		const struct lease *lease = &table->leases[i];

		if (lease->place == place && !contains(uids, n, lease->request.uid))
			uids[n++] = lease->request.uid;
	}
	return n;
}

static void check_place(const struct lease_table *table, size_t index)
{
	const struct lease_place *place = &table->places[index];
	struct lease_place sum = {};

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i)) {
		const struct lease *lease = &table->leases[i];

		if (lease->place != index)
			continue;
		sum.n_leases++;
		sum.clients += lease->request.clients;
		sum.threads_percent += lease->request.threads_percent;
		sum.memory_reserved_bytes += lease->request.memory_bytes;
		assert(place->multi_user || lease->request.uid == place->uid);
		assert(!lease->request.exclusive || place->n_leases == 1);
	}
	assert(sum.n_leases == place->n_leases);
	assert(sum.clients == place->clients && sum.clients <= place->max_clients);
	assert(sum.threads_percent == place->threads_percent);
	assert(table->rules.oversubscribe_threads || sum.threads_percent <= 100);
	assert(sum.memory_reserved_bytes == place->memory_reserved_bytes);
	assert(place->memory_bytes == 0 || sum.memory_reserved_bytes <= place->memory_bytes);
}

void lease_table_check(const struct lease_table *table)
{
	size_t n_queued = 0, n_granted = 0;

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i)) {
		n_queued += table->leases[i].state == LEASE_QUEUED;
		n_granted += table->leases[i].state != LEASE_QUEUED;
	}
	assert(n_queued == table->n_queued && n_granted == table->n_granted);
	for (size_t i = table->queue_head; i != LEASE_NONE; i = table->leases[i].next) {
		size_t next = table->leases[i].next;

		assert(table->leases[i].state == LEASE_QUEUED && n_queued > 0);
		n_queued--;
		assert(next == LEASE_NONE ||
		       table->leases[next].sequence > table->leases[i].sequence);
	}
	assert(n_queued == 0);
	for (size_t i = 0; i < table->n_places; i++)
		check_place(table, i);
}

const char *lease_state_to_string(enum lease_state state)
{
	switch (state) {
	case LEASE_FREE:
		return "free";
	case LEASE_QUEUED:
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
