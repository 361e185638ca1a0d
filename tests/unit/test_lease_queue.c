/* SPDX-License-Identifier: MIT */
#include "lease.h"
#include "unit_lease.h"

#define ME 1000
#define OTHER 1001

/* A server that is left there by a user, with no lease. */
static void leave_server(size_t place, uint32_t uid)
{
	unit_table.places[place].has_server = true;
	unit_table.places[place].server_uid = uid;
}

static const struct {
	const char *what;
	bool has_server;
	uint32_t server_uid;
	bool multi_user;
	int outcome;
} servers[] = {
	{"none", false, OTHER, false, 0},
	{"mine", true, ME, false, 0},
	{"another user's", true, OTHER, false, LEASE_PREPARE},
	{"root's", true, 0, false, LEASE_PREPARE},
	{"several users'", true, UINT32_MAX, false, LEASE_PREPARE},
	{"another user's where many may", true, OTHER, true, 0},
	{"several users' where many may", true, UINT32_MAX, true, 0},
};

START_TEST(ends_the_server_of_another_user)
{
	size_t index;

	unit_table_init(1);
	unit_table.places[0].has_server = servers[_i].has_server;
	unit_table.places[0].server_uid = servers[_i].server_uid;
	unit_table.places[0].multi_user = servers[_i].multi_user;
	index = unit_ask(ME, 1, 1);
	ck_assert_uint_eq(unit_grant_next(servers[_i].outcome), index);
	ck_assert_int_eq(unit_leases[index].state,
			 servers[_i].outcome == 0 ? LEASE_GRANTED : LEASE_ASSIGNED);
	ck_assert_uint_eq(unit_leases[index].place, 0);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
}
END_TEST

/* Its place is kept for it meanwhile, and closes while the server ends. */
START_TEST(is_granted_when_the_server_is_gone)
{
	struct lease_place *place = &unit_table.places[0];
	size_t index, theirs;

	unit_table_init(1);
	(void)text_copy(place->closed_reason, REASON_SIZE, "CLOSED");
	leave_server(0, OTHER);
	index = unit_ask(ME, 1, 1);
	ck_assert_uint_eq(unit_prepare(), index);
	unit_assert_waits_for(index, "the MPS server of another user is ending");
	ck_assert_int_eq(place->n_leases, 1);
	ck_assert_int_eq(place->n_assigned, 1);
	ck_assert_uint_eq(lease_place_first(&unit_table, 0), index);
	ck_assert_uint_eq(unit_table.n_queued, 1);
	/* Whose server it was, comes too late. */
	theirs = unit_ask(OTHER, 1, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_assert_waits_for(theirs, "GPU in use by uid 1000");
	ck_assert_int_eq(lease_position(&unit_table, theirs), 2);
	place->open = false;
	unit_assert_waits_for(index, "CLOSED");
	place->has_server = false;
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	place->open = true;
	ck_assert_uint_eq(unit_grant(), index);
	ck_assert_int_eq(place->n_assigned, 0);
	ck_assert_int_eq(place->n_leases, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(index);
	ck_assert_uint_eq(unit_grant(), theirs);
}
END_TEST

/* It is asked once for all who come while somebody is there. */
START_TEST(a_place_that_nobody_had_must_answer)
{
	struct lease_place *place = &unit_table.places[0];
	size_t first, second;

	unit_table_init(1);
	unit_table.rules.prove = true;
	lease_prove(&unit_table, 0);
	ck_assert(!place->proven);
	first = unit_ask(ME, 1, 1);
	ck_assert_uint_eq(unit_prepare(), first);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_assert_waits_for(first, "asked whether it answers");
	lease_prove(&unit_table, 0);
	ck_assert_uint_eq(unit_grant(), first);
	second = unit_ask(ME, 1, 1);
	ck_assert_uint_eq(unit_grant(), second);
	unit_end(first);
	ck_assert(place->proven);
	unit_end(second);
	ck_assert(!place->proven);
	first = unit_ask(ME, 1, 1);
	ck_assert_uint_eq(unit_prepare(), first);
}
END_TEST

START_TEST(looks_for_another_place_when_its_own_is_silent)
{
	size_t index;

	unit_table_init(2);
	unit_table.rules.prove = true;
	index = unit_ask(ME, 3, 1);
	ck_assert_uint_eq(unit_prepare(), index);
	ck_assert_uint_eq(unit_leases[index].place, 0);
	unit_table.places[0].open = false;
	unit_table.places[0].silent = true;
	ck_assert_uint_eq(unit_prepare(), index);
	ck_assert_uint_eq(unit_leases[index].place, 1);
	lease_prove(&unit_table, 1);
	ck_assert_uint_eq(unit_grant(), index);
}
END_TEST

START_TEST(gives_its_place_up)
{
	size_t index, theirs;

	unit_table_init(1);
	leave_server(0, OTHER);
	index = unit_ask(ME, 1, 1);
	ck_assert_uint_eq(unit_prepare(), index);
	theirs = unit_ask(OTHER, 1, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(index);
	ck_assert_int_eq(unit_table.places[0].n_leases, 0);
	ck_assert_int_eq(unit_table.places[0].n_assigned, 0);
	ck_assert_uint_eq(unit_grant(), theirs);
}
END_TEST

/* All who were assigned get in, in the order they asked. */
START_TEST(keeps_the_order_of_the_assigned)
{
	size_t waiting[4], late;

	unit_table_init(1);
	leave_server(0, OTHER);
	for (size_t i = 0; i < 3; i++) {
		waiting[i] = unit_ask(ME, 1, 1);
		ck_assert_uint_eq(unit_prepare(), waiting[i]);
	}
	ck_assert_int_eq(lease_place_waiting(&unit_table, 0), 3);
	waiting[3] = unit_ask(ME, 1, 1);
	late = unit_ask(ME, 1, 4);
	unit_table.places[0].has_server = false;
	for (size_t i = 0; i < 4; i++)
		ck_assert_uint_eq(unit_grant(), waiting[i]);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_assert_waits_for(late, "full: 4/4 clients reserved");
}
END_TEST

START_TEST(looks_for_another_place_when_its_own_failed)
{
	size_t holder, before, index, behind, place;
	char reason[REASON_SIZE] = "";

	unit_table_init(3);
	holder = unit_ask(OTHER, 6, 4);
	ck_assert_uint_eq(unit_grant(), holder);
	before = unit_ask(ME, 2, 1);
	leave_server(0, OTHER);
	index = unit_ask(ME, 3, 1);
	ck_assert_uint_eq(unit_prepare(), index);
	behind = unit_ask(ME, 3, 4);
	ck_assert_uint_eq(lease_waiting_first(&unit_table), index);
	/* Closed is not failed. */
	unit_table.places[0].open = false;
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	ck_assert_int_eq(unit_leases[index].state, LEASE_ASSIGNED);
	unit_table.places[0].failed = true;
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	ck_assert_int_eq(unit_leases[index].state, LEASE_QUEUED);
	ck_assert_int_eq(unit_table.places[0].n_leases, 0);
	ck_assert_uint_eq(lease_waiting_first(&unit_table), before);
	ck_assert_uint_eq(lease_waiting_next(&unit_table, before), index);
	ck_assert_uint_eq(lease_waiting_next(&unit_table, index), behind);
	ck_assert_uint_eq(lease_waiting_next(&unit_table, behind), LEASE_NONE);
	ck_assert_int_eq(lease_position(&unit_table, index), 2);
	ck_assert(!lease_is_hopeless(&unit_table, index, &place, reason));
	unit_end(holder);
	ck_assert_uint_eq(unit_grant(), before);
	ck_assert_uint_eq(unit_grant(), index);
	ck_assert_uint_eq(unit_leases[index].place, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
}
END_TEST

START_TEST(goes_straight_to_another_place)
{
	size_t holder, index;

	unit_table_init(2);
	leave_server(0, OTHER);
	holder = unit_ask(OTHER, 2, 1);
	ck_assert_uint_eq(unit_grant(), holder);
	index = unit_ask(ME, 3, 1);
	ck_assert_uint_eq(unit_prepare(), index);
	unit_table.places[0].open = false;
	unit_table.places[0].failed = true;
	unit_end(holder);
	ck_assert_uint_eq(unit_grant(), index);
	ck_assert_uint_eq(unit_leases[index].place, 1);
}
END_TEST

START_TEST(is_hopeless_when_its_only_place_failed)
{
	char reason[REASON_SIZE] = "";
	size_t index, place = 4711;

	unit_table_init(2);
	leave_server(1, OTHER);
	index = unit_ask(ME, 2, 1);
	ck_assert_uint_eq(unit_prepare(), index);
	ck_assert(!lease_is_hopeless(&unit_table, index, &place, reason));
	unit_table.places[1].open = false;
	unit_table.places[1].failed = true;
	(void)text_copy(unit_table.places[1].closed_reason, REASON_SIZE, "WHY");
	ck_assert(lease_is_hopeless(&unit_table, index, &place, reason));
	ck_assert_uint_eq(place, 1);
	ck_assert_str_eq(reason, "WHY");
}
END_TEST

START_TEST(draining_keeps_the_place)
{
	struct lease_request request = unit_request(ME, 1, 1);
	char reason[REASON_SIZE] = "";
	size_t index, waiter, unused;
	uint32_t uids[2];

	unit_table_init(1);
	unit_table.rules.max_per_user = 1;
	index = unit_ask(ME, 1, 3);
	ck_assert_uint_eq(unit_grant(), index);
	waiter = unit_ask(OTHER, 1, 1);
	lease_drain(&unit_table, index);
	lease_table_check(&unit_table);
	ck_assert_int_eq(unit_leases[index].state, LEASE_DRAINING);
	ck_assert(!lease_is_waiting(&unit_leases[index]));
	ck_assert_int_eq(unit_table.places[0].clients, 3);
	ck_assert_uint_eq(unit_table.n_granted, 1);
	ck_assert_uint_eq(lease_place_uids(&unit_table, 0, uids, 2), 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_assert_waits_for(waiter, "GPU in use by uid 1000, 1 lease");
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &unused, reason),
			 LEASE_USER_LIMIT);
	unit_end(index);
	ck_assert_uint_eq(unit_table.n_granted, 0);
	ck_assert_uint_eq(unit_grant(), waiter);
}
END_TEST

static void assert_leases_on(size_t place, const size_t *leases, size_t n)
{
	size_t i = lease_place_first(&unit_table, place);

	for (size_t k = 0; k < n; k++, i = lease_place_next(&unit_table, i))
		ck_assert_uint_eq(i, leases[k]);
	ck_assert_uint_eq(i, LEASE_NONE);
}

START_TEST(a_place_lists_its_leases_in_order)
{
	size_t l[6];

	unit_table_init(2);
	unit_table.places[0].max_clients = 8;
	assert_leases_on(0, NULL, 0);
	for (size_t i = 0; i < 5; i++) {
		l[i] = unit_ask(ME, i == 1 ? 2 : 1, 1);
		ck_assert_uint_eq(unit_grant(), l[i]);
	}
	assert_leases_on(0, (size_t[]){l[0], l[2], l[3], l[4]}, 4);
	assert_leases_on(1, (size_t[]){l[1]}, 1);
	unit_end(l[3]); /* in the middle */
	assert_leases_on(0, (size_t[]){l[0], l[2], l[4]}, 3);
	unit_end(l[0]); /* the first */
	assert_leases_on(0, (size_t[]){l[2], l[4]}, 2);
	l[5] = unit_ask(ME, 1, 1); /* where another was in the table */
	ck_assert_uint_eq(unit_grant(), l[5]);
	assert_leases_on(0, (size_t[]){l[2], l[4], l[5]}, 3);
	unit_end(l[5]); /* the last */
	assert_leases_on(0, (size_t[]){l[2], l[4]}, 2);
	unit_end(l[2]);
	unit_end(l[4]);
	assert_leases_on(0, NULL, 0);
	assert_leases_on(1, (size_t[]){l[1]}, 1);
}
END_TEST

#define N_PLACES 10

/* By the definition: how many who wait are before it and could use a device that it could. */
static void check_positions(void)
{
	struct lease_sweep sweep = {};
	int n_waiting[N_PLACES] = {};

	for (size_t i = lease_waiting_first(&unit_table); i != LEASE_NONE;
	     i = lease_waiting_next(&unit_table, i)) {
		uint64_t mine = unit_leases[i].request.candidates.words[0];
		int position = 1;

		for (size_t j = lease_waiting_first(&unit_table); j != i;
		     j = lease_waiting_next(&unit_table, j))
			position += (unit_leases[j].request.candidates.words[0] & mine) != 0;
		ck_assert_int_eq(lease_position(&unit_table, i), position);
		ck_assert_int_eq(lease_sweep_position(&sweep, &unit_table, i), position);
		for (size_t p = 0; p < N_PLACES; p++)
			n_waiting[p] += (int)(mine >> p & 1);
	}
	for (size_t p = 0; p < N_PLACES; p++)
		ck_assert_int_eq(lease_place_waiting(&unit_table, p), n_waiting[p]);
}

/* One who waits, at random. */
static size_t any_waiter(void)
{
	size_t index = lease_waiting_first(&unit_table);

	for (size_t n = (size_t)rand() % unit_table.n_queued; n > 0; n--)
		index = lease_waiting_next(&unit_table, index);
	return index;
}

/* With a few sets of devices, and with more than are counted together. */
START_TEST(positions_are_right_for_any_queue)
{
	const uint64_t n_sets = _i % 2 ? (1 << N_PLACES) - 1 : 7;
	unsigned int seed = (unsigned int)time(NULL) + (unsigned int)_i;
	bool past_kinds = false;
	size_t index;

	printf("seed %u\n", seed);
	srand(seed);
	unit_table_init(N_PLACES);
	for (size_t i = 0; i < N_PLACES; i++) {
		unit_table.places[i].open = i % 2;
		unit_table.places[i].max_clients = 1000;
		leave_server(i, OTHER);
	}
	for (int i = 0; i < 300; i++) {
		(void)unit_ask(ME, (uint64_t)rand() % n_sets + 1, 1);
		if (rand() % 4 == 0)
			(void)lease_grant_next(&unit_table, 2, &index);
		past_kinds |= unit_table.n_without_kind > 0;
		if (i % 10 == 0)
			check_positions();
	}
	ck_assert_int_eq(past_kinds, _i % 2);
	ck_assert_uint_ne(unit_table.assigned.head, LEASE_NONE);
	while (unit_table.n_queued > 0) {
		unit_end(any_waiter());
		if (unit_table.n_queued % 10 == 0)
			check_positions();
	}
	ck_assert_uint_eq(unit_table.n_without_kind, 0);
}
END_TEST

#define IDS 6000

/* Where each id is; LEASE_NONE when it is not. */
static size_t where[IDS];

static const char *id_of(unsigned int n)
{
	static char id[LEASE_ID_SIZE];

	(void)text_format(id, sizeof(id), "%08x", n * 2654435761u);
	return id;
}

static void check_ids(void)
{
	for (unsigned int n = 0; n < IDS; n++)
		ck_assert_uint_eq(lease_find(&unit_table, id_of(n)), where[n]);
}

START_TEST(finds_leases_after_many_came_and_went)
{
	struct lease_request request = unit_request(ME, 1, 1);
	unsigned int seed = (unsigned int)time(NULL);
	char reason[REASON_SIZE] = "";

	printf("seed %u\n", seed);
	srand(seed);
	unit_table_init(1);
	for (size_t n = 0; n < IDS; n++)
		where[n] = LEASE_NONE;
	for (int i = 1; i <= 40000; i++) {
		unsigned int n = (unsigned int)rand() % IDS;

		if (where[n] == LEASE_NONE) {
			ck_assert_int_eq(lease_request(&unit_table, &request, id_of(n), 1,
						       &where[n], reason),
					 0);
		} else {
			lease_end(&unit_table, where[n]);
			where[n] = LEASE_NONE;
		}
		if (i % 10000 == 0)
			check_ids();
	}
	lease_table_check(&unit_table);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lease_queue");

	unit_add_table(tcase, ends_the_server_of_another_user, servers);
	tcase_add_test(tcase, is_granted_when_the_server_is_gone);
	tcase_add_test(tcase, a_place_that_nobody_had_must_answer);
	tcase_add_test(tcase, looks_for_another_place_when_its_own_is_silent);
	tcase_add_test(tcase, gives_its_place_up);
	tcase_add_test(tcase, keeps_the_order_of_the_assigned);
	tcase_add_test(tcase, looks_for_another_place_when_its_own_failed);
	tcase_add_test(tcase, goes_straight_to_another_place);
	tcase_add_test(tcase, is_hopeless_when_its_only_place_failed);
	tcase_add_test(tcase, draining_keeps_the_place);
	tcase_add_test(tcase, a_place_lists_its_leases_in_order);
	tcase_add_loop_test(tcase, positions_are_right_for_any_queue, 0, 4);
	tcase_add_test(tcase, finds_leases_after_many_came_and_went);
	return unit_run("lease_queue", tcase);
}
