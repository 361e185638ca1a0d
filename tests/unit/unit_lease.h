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
	unit_table.n_places = n_places;
	for (size_t i = 0; i < n_places; i++) {
		unit_table.places[i].max_clients = 4;
		unit_table.places[i].open = true;
	}
}

/* bits: the first 64 places, as candidates. */
static inline struct lease_request unit_request(uint32_t uid, uint64_t bits, int clients)
{
	return (struct lease_request){
		.candidates = {.words = {bits}}, .uid = uid, .clients = clients};
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

/* The next that is granted; LEASE_NONE for nobody. */
static inline size_t unit_grant(void)
{
	size_t index = LEASE_NONE;
	int r = lease_grant_next(&unit_table, 2, &index);

	lease_table_check(&unit_table);
	ck_assert_int_eq(r, index == LEASE_NONE ? LEASE_NOBODY : 0);
	return index;
}

static inline void unit_end(size_t index)
{
	lease_end(&unit_table, index);
	lease_table_check(&unit_table);
}
