/* SPDX-License-Identifier: MIT */
/* The invariants of the lease table. */
#include <assert.h>

#include "lease.h"

static void add_up(struct lease_place *sum, const struct lease *lease)
{
	sum->n_leases++;
	sum->n_assigned += lease->state == LEASE_ASSIGNED;
	sum->clients += lease->request.clients;
	sum->threads_percent += lease->request.threads_percent;
	sum->memory_reserved_bytes += lease->request.memory_bytes;
}

static void check_sums(const struct lease_table *table, size_t index)
{
	const struct lease_place *place = &table->places[index];
	struct lease_place sum = {};

	for (size_t i = lease_place_first(table, index); i != LEASE_NONE;
	     i = lease_place_next(table, i)) {
		const struct lease *lease = &table->leases[i];

		assert(lease->place == index && lease->state > LEASE_QUEUED);
		assert(lease->request.n_devices == (index < DEVICES_MAX ? 1 : place->n_devices));
		assert(place->multi_user || lease->request.uid == place->uid);
		assert(!lease->request.exclusive || place->n_leases == 1);
		add_up(&sum, lease);
	}
	assert(sum.n_leases == place->n_leases && sum.n_assigned == place->n_assigned);
	assert(sum.clients == place->clients && sum.clients <= place->max_clients);
	assert(sum.threads_percent == place->threads_percent);
	assert(table->rules.oversubscribe_threads || sum.threads_percent <= 100);
	assert(sum.memory_reserved_bytes == place->memory_reserved_bytes);
	assert(place->memory_bytes == 0 || sum.memory_reserved_bytes <= place->memory_bytes);
}

/* No device is in two hands. */
static void check_devices(const struct lease_table *table)
{
	for (size_t i = 0; i < table->n_places; i++) {
		size_t gang = table->places[i].gang;

		assert(gang == LEASE_NONE || table->places[i].n_leases == 0);
		assert(gang == LEASE_NONE || device_set_has(&table->places[gang].devices, i));
		for (size_t g = DEVICES_MAX; g < PLACES_MAX; g++)
			assert(!device_set_has(&table->places[g].devices, i) || gang == g);
	}
}

static void check_gangs(const struct lease_table *table)
{
	size_t n = 0;

	for (size_t g = DEVICES_MAX; g < PLACES_MAX; g++) {
		const struct lease_place *place = &table->places[g];

		n += place->n_devices > 0;
		assert((size_t)place->n_devices == device_set_count(&place->devices));
		assert(place->n_devices != 1);
		assert(!place->proven || place->n_leases > 0);
		assert(!place->ending || (place->n_leases == 0 && !place->open));
		if (place->n_devices > 0)
			check_sums(table, g);
	}
	assert(n == table->n_gangs);
}

static void check_waiting(const struct lease_table *table)
{
	const struct lease *before = NULL;
	size_t n = 0;

	for (size_t i = lease_waiting_first(table); i != LEASE_NONE;
	     i = lease_waiting_next(table, i)) {
		const struct lease *lease = &table->leases[i];

		n++;
		assert(lease_is_waiting(lease) && n <= table->n_queued);
		assert((lease->place != LEASE_NONE) == (lease->state == LEASE_ASSIGNED));
		assert(!before || before->state != lease->state ||
		       before->sequence < lease->sequence);
		before = lease;
	}
	assert(n == table->n_queued);
}

void lease_table_check(const struct lease_table *table)
{
	size_t n_queued = 0, n_granted = 0, n_kinds = table->n_without_kind;

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i)) {
		n_queued += lease_is_waiting(&table->leases[i]);
		n_granted += !lease_is_waiting(&table->leases[i]);
		assert(lease_find(table, table->leases[i].id) == i);
	}
	assert(n_queued == table->n_queued && n_granted == table->n_granted);
	for (size_t k = 0; k < LEASE_KINDS_MAX; k++)
		n_kinds += (size_t)table->kinds[k].n_waiting;
	assert(n_kinds == n_queued);
	check_waiting(table);
	check_devices(table);
	check_gangs(table);
	for (size_t i = 0; i < table->n_places; i++)
		check_sums(table, i);
}
