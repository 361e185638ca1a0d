/* SPDX-License-Identifier: MIT */
/* A lease table with places, for the tests of lease and placement. */
#pragma once

#include "lease.h"
#include "text.h"
#include "unit.h"

static struct lease unit_leases[LEASES_MAX];
static struct lease_table unit_table;

/* Open places, each for one user, 4 clients, memory not known. */
static inline void unit_table_init(size_t n_places)
{
	static const struct lease_rules rules = {.oversubscribe_threads = true};

	lease_table_init(&unit_table, unit_leases, &rules);
	for (size_t i = 0; i < n_places; i++)
		lease_add_place(&unit_table, &(struct lease_place){.max_clients = 4, .open = true});
}

/* bits: the first 64 places, as candidates. */
static inline struct lease_request unit_request(uint32_t uid, uint64_t bits, int clients)
{
	return (struct lease_request){
		.candidates = {.words = {bits}},
		.n_devices = 1,
		.uid = uid,
		.clients = clients,
	};
}

/* Must be queued; its index. */
static inline size_t unit_ask_for(const struct lease_request *request)
{
	static unsigned int next;
	char id[LEASE_ID_SIZE], reason[REASON_SIZE] = "";
	size_t index = LEASE_NONE;

	(void)text_format(id, sizeof(id), "%08x", next++);
	ck_assert_msg(lease_request(&unit_table, request, id, 1, &index, reason) == 0, "%s",
		      reason);
	lease_table_check(&unit_table);
	return index;
}

static inline size_t unit_ask(uint32_t uid, uint64_t bits, int clients)
{
	struct lease_request request = unit_request(uid, bits, clients);

	return unit_ask_for(&request);
}

/* One client on each of n_devices. */
static inline size_t unit_ask_gang(uint32_t uid, uint64_t bits, int n_devices)
{
	struct lease_request request = unit_request(uid, bits, 1);

	request.n_devices = n_devices;
	return unit_ask_for(&request);
}

static inline size_t unit_grant_next(int outcome)
{
	size_t index = LEASE_NONE;
	int r = lease_grant_next(&unit_table, 2, &index);

	lease_table_check(&unit_table);
	ck_assert_int_eq(r, index == LEASE_NONE ? LEASE_NOBODY : outcome);
	return index;
}

/* The next that is granted; LEASE_NONE for nobody. */
static inline size_t unit_grant(void)
{
	return unit_grant_next(0);
}

/* The next whose place must be prepared; LEASE_NONE for nobody. */
static inline size_t unit_prepare(void)
{
	return unit_grant_next(LEASE_PREPARE);
}

/* A gang that was formed for its lease, and has been started; its place. */
static inline size_t unit_open_gang(size_t index)
{
	size_t place = unit_leases[index].place;

	ck_assert_uint_ge(place, DEVICES_MAX);
	ck_assert_uint_lt(place, PLACES_MAX);
	unit_table.places[place].open = true;
	ck_assert_uint_eq(unit_grant(), index);
	return place;
}

static inline void unit_assert_waits_for(size_t index, const char *part)
{
	struct lease_obstacle obstacle;

	ck_assert(lease_is_waiting(&unit_leases[index]));
	lease_obstacle(&unit_table, index, &obstacle);
	unit_assert_contains(obstacle.reason, part);
}

static inline void unit_end(size_t index)
{
	lease_end(&unit_table, index);
	lease_table_check(&unit_table);
}
