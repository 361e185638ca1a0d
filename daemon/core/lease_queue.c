/* SPDX-License-Identifier: MIT */
/* Those who wait: first the ones that have their place already, then the queue. */
#include "lease_parts.h"
#include "util.h"

#define KIND_NONE SIZE_MAX

/* ---------------------------------------------------------------- kinds */

static bool intersect(const struct device_set *a, const struct device_set *b)
{
	for (size_t w = 0; w < ELEMENTSOF(a->words); w++)
		if (a->words[w] & b->words[w])
			return true;
	return false;
}

static size_t find_kind(const struct lease_table *table, const struct device_set *candidates)
{
	size_t unused = KIND_NONE;

	for (size_t k = 0; k < LEASE_KINDS_MAX; k++) {
		if (table->kinds[k].n_waiting == 0)
			unused = unused == KIND_NONE ? k : unused;
		else if (memcmp(&table->kinds[k].candidates, candidates, sizeof(*candidates)) == 0)
			return k;
	}
	return unused;
}

static void count_in(struct lease_table *table, struct lease *lease)
{
	lease->kind = find_kind(table, &lease->request.candidates);
	if (lease->kind == KIND_NONE) {
		table->n_without_kind++;
		return;
	}
	table->kinds[lease->kind].candidates = lease->request.candidates;
	table->kinds[lease->kind].n_waiting++;
}

static void count_out(struct lease_table *table, const struct lease *lease)
{
	if (lease->kind == KIND_NONE)
		table->n_without_kind--;
	else
		table->kinds[lease->kind].n_waiting--;
}

/* ---------------------------------------------------------------- lists */

static struct lease_list *list_of(struct lease_table *table, const struct lease *lease)
{
	return lease->state == LEASE_ASSIGNED ? &table->assigned : &table->queue;
}

/* Behind `previous`; LEASE_NONE: in front. */
static void insert(struct lease_table *table, struct lease_list *list, size_t index,
		   size_t previous)
{
	struct lease *lease = &table->leases[index];

	lease->previous = previous;
	lease->next = previous == LEASE_NONE ? list->head : table->leases[previous].next;
	if (previous == LEASE_NONE)
		list->head = index;
	else
		table->leases[previous].next = index;
	if (lease->next == LEASE_NONE)
		list->tail = index;
	else
		table->leases[lease->next].previous = index;
}

static void take_out(struct lease_table *table, struct lease_list *list, size_t index)
{
	const struct lease *lease = &table->leases[index];

	if (lease->previous == LEASE_NONE)
		list->head = lease->next;
	else
		table->leases[lease->previous].next = lease->next;
	if (lease->next == LEASE_NONE)
		list->tail = lease->previous;
	else
		table->leases[lease->next].previous = lease->previous;
}

/* The last in the list that asked before. */
static size_t predecessor(const struct lease_table *table, const struct lease_list *list,
			  uint64_t sequence)
{
	size_t i = list->tail;

	while (i != LEASE_NONE && table->leases[i].sequence > sequence)
		i = table->leases[i].previous;
	return i;
}

static void move_to(struct lease_table *table, struct lease_list *list, size_t index)
{
	insert(table, list, index, predecessor(table, list, table->leases[index].sequence));
}

void lease_queue_init(struct lease_table *table)
{
	table->queue = (struct lease_list){LEASE_NONE, LEASE_NONE};
	table->assigned = table->queue;
}

void lease_queue_enter(struct lease_table *table, size_t index)
{
	move_to(table, &table->queue, index);
	count_in(table, &table->leases[index]);
	table->n_queued++;
}

void lease_queue_leave(struct lease_table *table, size_t index)
{
	take_out(table, list_of(table, &table->leases[index]), index);
	count_out(table, &table->leases[index]);
	table->n_queued--;
}

void lease_queue_assign(struct lease_table *table, size_t index)
{
	take_out(table, &table->queue, index);
	table->leases[index].state = LEASE_ASSIGNED;
	move_to(table, &table->assigned, index);
}

void lease_queue_return(struct lease_table *table, size_t index)
{
	take_out(table, &table->assigned, index);
	table->leases[index].state = LEASE_QUEUED;
	move_to(table, &table->queue, index);
}

size_t lease_waiting_first(const struct lease_table *table)
{
	return table->assigned.head != LEASE_NONE ? table->assigned.head : table->queue.head;
}

size_t lease_waiting_next(const struct lease_table *table, size_t index)
{
	const struct lease *lease = &table->leases[index];

	if (lease->next == LEASE_NONE && lease->state == LEASE_ASSIGNED)
		return table->queue.head;
	return lease->next;
}

/* ---------------------------------------------------------------- positions */

static int count_before(const struct lease_table *table, size_t index)
{
	const struct device_set *candidates = &table->leases[index].request.candidates;
	int n = 0;

	for (size_t i = lease_waiting_first(table); i != LEASE_NONE && i != index;
	     i = lease_waiting_next(table, i))
		n += intersect(&table->leases[i].request.candidates, candidates);
	return n;
}

int lease_position(const struct lease_table *table, size_t index)
{
	const struct lease *lease = &table->leases[index];
	int position = 0;

	if (index != table->queue.tail || table->n_without_kind > 0)
		return count_before(table, index) + 1;
	for (size_t k = 0; k < LEASE_KINDS_MAX; k++)
		if (table->kinds[k].n_waiting > 0 &&
		    intersect(&table->kinds[k].candidates, &lease->request.candidates))
			position += table->kinds[k].n_waiting;
	return position;
}

int lease_sweep_position(struct lease_sweep *sweep, const struct lease_table *table, size_t index)
{
	const struct lease *lease = &table->leases[index];
	int position = 1;

	if (table->n_without_kind > 0)
		return lease_position(table, index);
	for (size_t k = 0; k < LEASE_KINDS_MAX; k++)
		if (sweep->before[k] > 0 &&
		    intersect(&table->kinds[k].candidates, &lease->request.candidates))
			position += sweep->before[k];
	sweep->before[lease->kind]++;
	return position;
}

static int count_waiting(const struct lease_table *table, size_t device)
{
	int n = 0;

	if (table->n_without_kind > 0) {
		for (size_t i = lease_waiting_first(table); i != LEASE_NONE;
		     i = lease_waiting_next(table, i))
			n += device_set_has(&table->leases[i].request.candidates, device);
		return n;
	}
	for (size_t k = 0; k < LEASE_KINDS_MAX; k++)
		if (table->kinds[k].n_waiting > 0 &&
		    device_set_has(&table->kinds[k].candidates, device))
			n += table->kinds[k].n_waiting;
	return n;
}

int lease_place_waiting(const struct lease_table *table, size_t place)
{
	const struct lease_place *of = &table->places[place];

	return of->n_devices > 0 ? of->n_assigned : count_waiting(table, place);
}
