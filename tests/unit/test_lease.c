/* SPDX-License-Identifier: MIT */
#include "lease.h"
#include "unit_lease.h"

START_TEST(grants_and_ends)
{
	char reason[REASON_SIZE];
	struct lease_request request = unit_request(1000, 1, 2);
	size_t index = 4711;

	unit_table_init(1);
	ck_assert_uint_eq(lease_first(&unit_table), LEASE_NONE);
	ck_assert_uint_eq(lease_find(&unit_table, "0badcafe"), LEASE_NONE);
	request.threads_percent = 30;
	request.memory_bytes = 12345;
	ck_assert_int_eq(lease_request(&unit_table, &request, "0badcafe", 77, &index, reason), 0);
	ck_assert_uint_eq(lease_find(&unit_table, "0badcafe"), index);
	ck_assert_int_eq(unit_leases[index].state, LEASE_QUEUED);
	ck_assert_uint_eq(unit_leases[index].place, LEASE_NONE);
	ck_assert_uint_eq(unit_leases[index].requested_usec, 77);
	ck_assert_int_eq(lease_grant_next(&unit_table, 88, &index), 0);
	ck_assert_int_eq(unit_leases[index].state, LEASE_GRANTED);
	ck_assert_uint_eq(unit_leases[index].place, 0);
	ck_assert_uint_eq(unit_leases[index].granted_usec, 88);
	ck_assert_int_eq(unit_table.places[0].n_leases, 1);
	ck_assert_int_eq(unit_table.places[0].clients, 2);
	ck_assert_int_eq(unit_table.places[0].threads_percent, 30);
	ck_assert_int_eq(unit_table.places[0].memory_reserved_bytes, 12345);
	lease_table_check(&unit_table);
	unit_end(index);
	ck_assert_int_eq(unit_table.places[0].n_leases, 0);
	ck_assert_int_eq(unit_table.places[0].clients, 0);
	ck_assert_int_eq(unit_table.places[0].threads_percent, 0);
	ck_assert_int_eq(unit_table.places[0].memory_reserved_bytes, 0);
	ck_assert_uint_eq(lease_first(&unit_table), LEASE_NONE);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
}
END_TEST

START_TEST(first_come_first_served)
{
	size_t waiting[4], front;

	unit_table_init(1);
	front = unit_ask(1000, 1, 4);
	ck_assert_uint_eq(unit_grant(), front);
	for (size_t i = 0; i < ELEMENTSOF(waiting); i++) {
		waiting[i] = unit_ask(1000, 1, 4);
		ck_assert_int_eq(lease_position(&unit_table, waiting[i]), (int)i + 1);
	}
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	/* One in the middle goes away. */
	unit_end(waiting[1]);
	ck_assert_int_eq(lease_position(&unit_table, waiting[2]), 2);
	unit_end(front);
	ck_assert_uint_eq(unit_grant(), waiting[0]);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(waiting[0]);
	ck_assert_uint_eq(unit_grant(), waiting[2]);
	unit_end(waiting[2]);
	ck_assert_uint_eq(unit_grant(), waiting[3]);
}
END_TEST

START_TEST(nobody_overtakes_on_a_shared_place)
{
	size_t front, large, small, other;

	unit_table_init(2);
	front = unit_ask(1000, 1, 2);
	ck_assert_uint_eq(unit_grant(), front);
	large = unit_ask(1000, 1, 4);
	small = unit_ask(1000, 1, 1); /* would fit */
	other = unit_ask(1000, 3, 1); /* would fit on both, has another */
	ck_assert_uint_eq(unit_grant(), other);
	ck_assert_uint_eq(unit_leases[other].place, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(front);
	ck_assert_uint_eq(unit_grant(), large);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(large);
	ck_assert_uint_eq(unit_grant(), small);
}
END_TEST

START_TEST(independent_places_do_overtake)
{
	size_t front, both, free_place;

	unit_table_init(3);
	front = unit_ask(1000, 1, 4);
	ck_assert_uint_eq(unit_grant(), front);
	(void)unit_ask(1001, 1, 1);
	free_place = unit_ask(1002, 4, 1);
	ck_assert_int_eq(lease_position(&unit_table, free_place), 1);
	ck_assert_uint_eq(unit_grant(), free_place);
	/* A waiter keeps all that it could use. */
	unit_table.places[1].open = false;
	both = unit_ask(1003, 3, 1);
	ck_assert_int_eq(lease_position(&unit_table, both), 2);
	ck_assert_int_eq(lease_position(&unit_table, unit_ask(1003, 2, 1)), 2);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_table.places[1].open = true;
	ck_assert_uint_eq(unit_grant(), both);
	ck_assert_uint_eq(unit_leases[both].place, 1);
}
END_TEST

START_TEST(one_user_at_a_time)
{
	size_t mine, also_mine, theirs, after;

	unit_table_init(1);
	mine = unit_ask(1000, 1, 1);
	also_mine = unit_ask(1000, 1, 1);
	ck_assert_uint_eq(unit_grant(), mine);
	ck_assert_uint_eq(unit_grant(), also_mine);
	ck_assert_uint_eq(unit_table.places[0].uid, 1000);
	theirs = unit_ask(1001, 1, 1);
	after = unit_ask(1000, 1, 1); /* the first user must not starve the second */
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(mine);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(also_mine);
	ck_assert_uint_eq(unit_grant(), theirs);
	ck_assert_uint_eq(unit_table.places[0].uid, 1001);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(theirs);
	ck_assert_uint_eq(unit_grant(), after);
}
END_TEST

START_TEST(several_users_where_allowed)
{
	uint32_t uids[4] = {};

	unit_table_init(2);
	unit_table.places[0].multi_user = true;
	ck_assert_uint_ne((unit_ask(1000, 1, 1), unit_grant()), LEASE_NONE);
	ck_assert_uint_ne((unit_ask(1001, 1, 1), unit_grant()), LEASE_NONE);
	ck_assert_uint_ne((unit_ask(1000, 1, 1), unit_grant()), LEASE_NONE);
	ck_assert_uint_ne((unit_ask(1002, 1, 1), unit_grant()), LEASE_NONE);
	(void)unit_ask(1009, 1, 1); /* only waits */
	ck_assert_uint_eq(lease_place_uids(&unit_table, 0, uids, ELEMENTSOF(uids)), 3);
	ck_assert_uint_eq(uids[0] + uids[1] + uids[2], 3003);
	ck_assert_uint_eq(lease_place_uids(&unit_table, 0, uids, 2), 2);
	ck_assert_uint_eq(lease_place_uids(&unit_table, 0, uids, 0), 0);
	ck_assert_uint_eq(lease_place_uids(&unit_table, 1, uids, 4), 0);
	ck_assert_uint_ne((unit_ask(1007, 2, 1), unit_grant()), LEASE_NONE);
	ck_assert_uint_eq(lease_place_uids(&unit_table, 1, uids, 4), 1);
	ck_assert_uint_eq(uids[0], 1007);
}
END_TEST

START_TEST(exclusive_is_alone)
{
	struct lease_request alone = unit_request(1000, 1, 1);
	size_t shared, exclusive, after;

	unit_table_init(1);
	unit_table.places[0].multi_user = true;
	alone.exclusive = true;
	shared = unit_ask(1000, 1, 1);
	ck_assert_uint_eq(unit_grant(), shared);
	exclusive = unit_ask_for(&alone);
	after = unit_ask(1000, 1, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(shared);
	ck_assert_uint_eq(unit_grant(), exclusive);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(exclusive);
	ck_assert(!unit_table.places[0].exclusive);
	ck_assert_uint_eq(unit_grant(), after);
}
END_TEST

START_TEST(never_more_clients_than_the_cap)
{
	int granted = 0;

	unit_table_init(1);
	for (int i = 0; i < 40; i++)
		(void)unit_ask(1000, 1, 1);
	while (unit_grant() != LEASE_NONE)
		granted++;
	ck_assert_int_eq(granted, 4);
	/* All of them are served in the end, and never too many at a time. */
	while (lease_first(&unit_table) != LEASE_NONE) {
		for (size_t i = lease_first(&unit_table); i != LEASE_NONE;
		     i = lease_next(&unit_table, i))
			if (unit_leases[i].state == LEASE_GRANTED) {
				unit_end(i);
				break;
			}
		while (unit_grant() != LEASE_NONE)
			granted++;
		ck_assert_int_le(unit_table.places[0].clients, 4);
	}
	ck_assert_int_eq(granted, 40);
}
END_TEST

START_TEST(threads_add_up_to_all)
{
	struct lease_request request = unit_request(1000, 1, 1);
	size_t first, second, third;

	unit_table_init(1);
	unit_table.rules.oversubscribe_threads = _i;
	request.threads_percent = 60;
	first = unit_ask_for(&request);
	request.threads_percent = 40;
	second = unit_ask_for(&request);
	request.threads_percent = 1;
	third = unit_ask_for(&request);
	ck_assert_uint_eq(unit_grant(), first);
	ck_assert_uint_eq(unit_grant(), second);
	ck_assert_uint_eq(unit_grant(), _i ? third : LEASE_NONE);
	unit_end(second);
	if (!_i)
		ck_assert_uint_eq(unit_grant(), third);
}
END_TEST

START_TEST(memory_adds_up_to_what_there_is)
{
	struct lease_request request = unit_request(1000, 1, 1);
	size_t first, second, third, none;

	unit_table_init(1);
	unit_table.places[0].memory_bytes = 100;
	request.memory_bytes = 60;
	first = unit_ask_for(&request);
	request.memory_bytes = 40;
	second = unit_ask_for(&request);
	ck_assert_uint_eq(unit_grant(), first);
	ck_assert_uint_eq(unit_grant(), second);
	request.memory_bytes = 0; /* asks for no limit, so it takes none away */
	none = unit_ask_for(&request);
	ck_assert_uint_eq(unit_grant(), none);
	request.memory_bytes = 1;
	third = unit_ask_for(&request);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(second);
	ck_assert_uint_eq(unit_grant(), third);
}
END_TEST

/* Where the size is not known, the sum of what was asked for must still be one. */
START_TEST(unknown_memory_does_not_overflow)
{
	struct lease_request request = unit_request(1000, 1, 1);

	unit_table_init(1);
	request.memory_bytes = INT64_MAX / 2 + 2;
	(void)unit_ask_for(&request);
	(void)unit_ask_for(&request);
	ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	(void)unit_grant();
	ck_assert_int_ge(unit_table.places[0].memory_reserved_bytes, 0);
}
END_TEST

START_TEST(limits_each_user)
{
	char reason[REASON_SIZE] = "";
	struct lease_request request = unit_request(1000, 1, 1);
	size_t index = 4711, first;

	unit_table_init(1);
	unit_table.rules.max_per_user = 2;
	first = unit_ask(1000, 1, 1);
	ck_assert_uint_eq(unit_grant(), first);
	(void)unit_ask(1000, 1, 4); /* those who wait count too */
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &index, reason),
			 LEASE_USER_LIMIT);
	ck_assert_uint_eq(index, 4711);
	unit_assert_contains(reason, "uid 1000 has 2 leases");
	lease_table_check(&unit_table);
	ck_assert_uint_eq(unit_table.n_queued, 1);
	(void)unit_ask(1001, 1, 1);
	unit_end(first);
	(void)unit_ask(1000, 1, 1);
}
END_TEST

START_TEST(says_what_can_never_be)
{
	char reason[REASON_SIZE] = "";
	struct lease_request request = unit_request(1000, 1, 5);
	size_t index = 4711;

	unit_table_init(1);
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &index, reason),
			 LEASE_UNSATISFIABLE);
	unit_assert_contains(reason, "5 clients asked for, and a device takes at most 4");
	ck_assert_uint_eq(index, 4711);
	ck_assert_uint_eq(lease_first(&unit_table), LEASE_NONE);
	lease_table_check(&unit_table);
}
END_TEST

START_TEST(full_is_an_outcome)
{
	struct lease_request request = unit_request(0, 1, 1);
	char id[LEASE_ID_SIZE], reason[REASON_SIZE] = "";
	size_t index = 4711;

	unit_table_init(1);
	for (int i = 0; i < LEASES_MAX; i++) {
		(void)text_format(id, sizeof(id), "%08x", (unsigned int)i);
		if (i == LEASES_MAX - LEASES_RESERVED) {
			/* The rest is for root alone. */
			request.uid = 1000;
			ck_assert_int_eq(
				lease_request(&unit_table, &request, "x", 1, &index, reason),
				LEASE_TABLE_FULL);
			request.uid = 0;
		}
		ck_assert_int_eq(lease_request(&unit_table, &request, id, 1, &index, reason), 0);
	}
	index = 4711;
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &index, reason),
			 LEASE_TABLE_FULL);
	ck_assert_uint_eq(index, 4711);
	unit_assert_contains(reason, "full: 8192");
	lease_table_check(&unit_table);
	ck_assert_int_eq(lease_position(&unit_table, lease_find(&unit_table, "00001fff")),
			 LEASES_MAX);
	unit_end(lease_find(&unit_table, "00000007"));
	ck_assert_int_eq(lease_request(&unit_table, &request, "again", 1, &index, reason), 0);
	ck_assert_uint_eq(lease_find(&unit_table, "again"), index);
	ck_assert_int_eq(lease_position(&unit_table, index), LEASES_MAX);
}
END_TEST

static const struct {
	const char *what;
	struct lease_request holder, waiter; /* holder without clients: none */
	bool closed;
	const char *reason;
	int n_leases;
} obstacles[] = {
	{"nothing is in the way", {}, {.uid = 1, .clients = 1}, false, "others were first", 0},
	{"closed", {}, {.uid = 1, .clients = 1}, true, "CLOSED", 0},
	{"full",
	 {.uid = 1, .clients = 4},
	 {.uid = 1, .clients = 1},
	 false,
	 "full: 4/4 clients reserved",
	 1},
	{"threads",
	 {.uid = 1, .clients = 1, .threads_percent = 70},
	 {.uid = 1, .clients = 1, .threads_percent = 31},
	 false,
	 "full: 70% of the threads reserved",
	 1},
	{"memory",
	 {.uid = 1, .clients = 1, .memory_bytes = 600},
	 {.uid = 1, .clients = 1, .memory_bytes = 401},
	 false,
	 "full: 600 of 1000 bytes of memory reserved",
	 1},
	{"another user",
	 {.uid = 7, .clients = 1},
	 {.uid = 1, .clients = 1},
	 false,
	 "GPU in use by uid 7, 1 lease",
	 1},
	{"must be alone",
	 {.uid = 1, .clients = 1},
	 {.uid = 1, .clients = 1, .exclusive = true},
	 false,
	 "GPU in use by uid 1, 1 lease",
	 1},
	{"exclusive",
	 {.uid = 7, .clients = 1, .exclusive = true},
	 {.uid = 1, .clients = 1},
	 false,
	 "GPU in exclusive use by uid 7",
	 1},
	{"closed and another's: the other is what matters",
	 {.uid = 7, .clients = 1},
	 {.uid = 1, .clients = 1},
	 true,
	 "GPU in use by uid 7",
	 1},
};

START_TEST(says_what_is_in_the_way)
{
	struct lease_request holder = obstacles[_i].holder, waiter = obstacles[_i].waiter;
	struct lease_place *place = &unit_table.places[0];
	struct lease_obstacle obstacle;

	unit_table_init(1);
	unit_table.rules.oversubscribe_threads = false;
	place->memory_bytes = 1000;
	(void)text_copy(place->closed_reason, sizeof(place->closed_reason), "CLOSED");
	holder.candidates.words[0] = waiter.candidates.words[0] = 1;
	if (holder.clients > 0) {
		(void)unit_ask_for(&holder);
		ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	}
	place->open = !obstacles[_i].closed;
	memset(&obstacle, 0xff, sizeof(obstacle));
	lease_obstacle(&unit_table, unit_ask_for(&waiter), &obstacle);
	unit_assert_contains(obstacle.reason, obstacles[_i].reason);
	ck_assert_int_eq(obstacle.n_leases, obstacles[_i].n_leases);
	if (obstacle.n_leases > 0)
		ck_assert_uint_eq(obstacle.uid, holder.uid);
	ck_assert_int_eq(unit_grant() == LEASE_NONE,
			 !streq(obstacles[_i].reason, "others were first"));
}
END_TEST

/* The last places and words of the sets. */
START_TEST(uses_all_places)
{
	struct lease_request request = unit_request(1000, 0, 4);
	int granted = 0;

	unit_table_init(DEVICES_MAX);
	memset(&request.candidates, 0xff, sizeof(request.candidates));
	for (int i = 0; i < DEVICES_MAX + 1; i++)
		(void)unit_ask_for(&request);
	while (unit_grant() != LEASE_NONE)
		granted++;
	ck_assert_int_eq(granted, DEVICES_MAX);
	ck_assert_int_eq(unit_table.places[DEVICES_MAX - 1].clients, 4);
}
END_TEST

static void random_request(void)
{
	struct lease_request request =
		unit_request((uint32_t)rand() % 3 + 1000, (uint64_t)rand() & 31, rand() % 5 + 1);
	char id[LEASE_ID_SIZE], reason[REASON_SIZE] = "";
	static unsigned int next;
	size_t index, n = unit_table.n_queued;
	int r;

	request.threads_percent = rand() % 2 ? rand() % 100 + 1 : 0;
	request.memory_bytes = rand() % 2 ? rand() % 120 : 0;
	request.exclusive = rand() % 10 == 0;
	(void)text_format(id, sizeof(id), "%08x", next++);
	r = lease_request(&unit_table, &request, id, 1, &index, reason);
	ck_assert_uint_eq(unit_table.n_queued, n + (r == 0));
	ck_assert_int_eq(r != 0, reason[0] != '\0');
}

static void random_end(void)
{
	size_t n = unit_table.n_queued + unit_table.n_granted, index;

	if (n == 0)
		return;
	index = lease_first(&unit_table);
	for (n = (size_t)rand() % n; n > 0; n--)
		index = lease_next(&unit_table, index);
	ck_assert_uint_ne(index, LEASE_NONE);
	lease_end(&unit_table, index);
}

static void random_grants(void)
{
	size_t index;

	while (lease_grant_next(&unit_table, 2, &index) == 0)
		ck_assert(device_set_has(&unit_leases[index].request.candidates,
					 unit_leases[index].place));
	/* Whoever is at the front can have nothing. */
	if (unit_table.queue_head != LEASE_NONE) {
		struct lease_obstacle obstacle;

		lease_obstacle(&unit_table, unit_table.queue_head, &obstacle);
		ck_assert_str_ne(obstacle.reason, "others were first");
		ck_assert_int_eq(lease_position(&unit_table, unit_table.queue_head), 1);
	}
}

START_TEST(survives_random_operations)
{
	unsigned int seed = (unsigned int)time(NULL) + (unsigned int)_i;

	printf("seed %u\n", seed);
	srand(seed);
	unit_table_init(5);
	unit_table.rules.pack = _i & 1;
	unit_table.rules.oversubscribe_threads = _i & 2;
	unit_table.rules.max_per_user = 30;
	for (size_t i = 0; i < 5; i++) {
		unit_table.places[i].multi_user = i & 1;
		unit_table.places[i].memory_bytes = i & 2 ? 100 : 0;
		(void)text_copy(unit_table.places[i].closed_reason, REASON_SIZE, "closed");
	}
	for (int i = 0; i < 5000; i++) {
		unit_table.places[(size_t)rand() % 5].open = rand() % 4 > 0;
		if (rand() % 2)
			random_request();
		else
			random_end();
		lease_table_check(&unit_table);
		if (rand() % 2)
			random_grants();
		lease_table_check(&unit_table);
	}
	while (lease_first(&unit_table) != LEASE_NONE)
		unit_end(lease_first(&unit_table));
}
END_TEST

START_TEST(names_states_and_bindings)
{
	ck_assert_str_eq(lease_state_to_string(LEASE_FREE), "free");
	ck_assert_str_eq(lease_state_to_string(LEASE_QUEUED), "queued");
	ck_assert_str_eq(lease_state_to_string(LEASE_GRANTED), "granted");
	ck_assert_str_eq(lease_state_to_string(LEASE_DRAINING), "draining");
	ck_assert_str_eq(lease_state_to_string((enum lease_state)99), "?");
	ck_assert_str_eq(lease_bind_to_string(LEASE_BIND_CONNECTION), "connection");
	ck_assert_str_eq(lease_bind_to_string(LEASE_BIND_PROCESS), "process");
	ck_assert_str_eq(lease_bind_to_string(LEASE_BIND_NONE), "none");
	ck_assert_str_eq(lease_bind_to_string((enum lease_bind)99), "?");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lease");

	tcase_add_test(tcase, grants_and_ends);
	tcase_add_test(tcase, first_come_first_served);
	tcase_add_test(tcase, nobody_overtakes_on_a_shared_place);
	tcase_add_test(tcase, independent_places_do_overtake);
	tcase_add_test(tcase, one_user_at_a_time);
	tcase_add_test(tcase, several_users_where_allowed);
	tcase_add_test(tcase, exclusive_is_alone);
	tcase_add_test(tcase, never_more_clients_than_the_cap);
	tcase_add_loop_test(tcase, threads_add_up_to_all, 0, 2);
	tcase_add_test(tcase, memory_adds_up_to_what_there_is);
	tcase_add_test(tcase, unknown_memory_does_not_overflow);
	tcase_add_test(tcase, limits_each_user);
	tcase_add_test(tcase, says_what_can_never_be);
	tcase_add_test(tcase, full_is_an_outcome);
	unit_add_table(tcase, says_what_is_in_the_way, obstacles);
	tcase_add_test(tcase, uses_all_places);
	tcase_add_loop_test(tcase, survives_random_operations, 0, 4);
	tcase_add_test(tcase, names_states_and_bindings);
	return unit_run("lease", tcase);
}
