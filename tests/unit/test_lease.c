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
	 "full: 0.6KiB of 1.0KiB of memory reserved",
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
	holder.n_devices = waiter.n_devices = 1;
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

static void random_request(void)
{
	struct lease_request request =
		unit_request((uint32_t)rand() % 3 + 1000, (uint64_t)rand() & 31, rand() % 5 + 1);
	char id[LEASE_ID_SIZE], reason[REASON_SIZE] = "";
	static unsigned int next;
	size_t index, n = unit_table.n_queued;
	int r;

	request.n_devices = rand() % 3 ? 1 : rand() % 4 + 1;
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
	if (unit_leases[index].state == LEASE_GRANTED && rand() % 3 == 0)
		lease_drain(&unit_table, index);
	else
		lease_end(&unit_table, index);
}

/* As instances of devices and gangs go. */
static void random_place(void)
{
	size_t i = rand() % 2 ? (size_t)rand() % 5 : DEVICES_MAX + (size_t)rand() % 3;
	struct lease_place *place = &unit_table.places[i];

	if (i >= DEVICES_MAX && (place->n_devices == 0 || place->ending))
		return;
	place->open = rand() % 4 > 0;
	place->failed = !place->open && rand() % 4 == 0;
	place->has_server = rand() % 2;
	place->server_uid = rand() % 8 ? (uint32_t)rand() % 3 + 1000 : UINT32_MAX;
}

static void random_gangs_end(void)
{
	size_t place = lease_gang_unneeded(&unit_table);

	ck_assert(place == LEASE_NONE || unit_table.places[place].ending);
	for (size_t g = DEVICES_MAX; g < PLACES_MAX; g++)
		if (unit_table.places[g].ending && rand() % 2)
			lease_gang_gone(&unit_table, g);
}

/* Is it where it may be? */
static void check_place(size_t index, int outcome)
{
	const struct lease *lease = &unit_leases[index];
	const struct lease_place *place = &unit_table.places[lease->place];

	ck_assert_int_eq(lease->state, outcome == 0 ? LEASE_GRANTED : LEASE_ASSIGNED);
	for (size_t i = 0; i < 5; i++)
		if (lease->place == i || device_set_has(&place->devices, i))
			ck_assert(device_set_has(&lease->request.candidates, i));
	if (outcome == 0)
		ck_assert(place->open && (place->multi_user || !place->has_server ||
					  place->server_uid == lease->request.uid));
}

static void random_grants(void)
{
	size_t head, index;
	int r;

	while ((r = lease_grant_next(&unit_table, 2, &index)) != LEASE_NOBODY)
		check_place(index, r);
	/* Whoever is at the front can have nothing. */
	head = unit_table.queue.head;
	if (head != LEASE_NONE) {
		struct lease_obstacle obstacle;

		lease_obstacle(&unit_table, head, &obstacle);
		ck_assert_str_ne(obstacle.reason, "others were first");
		ck_assert_str_ne(obstacle.reason, "");
		if (lease_waiting_first(&unit_table) == head)
			ck_assert_int_eq(lease_position(&unit_table, head), 1);
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
		random_place();
		if (rand() % 2)
			random_request();
		else
			random_end();
		lease_table_check(&unit_table);
		if (rand() % 2)
			random_grants();
		if (rand() % 2)
			random_gangs_end();
		lease_table_check(&unit_table);
	}
	while (lease_first(&unit_table) != LEASE_NONE)
		unit_end(lease_first(&unit_table));
	for (int i = 0; i < 100; i++)
		random_gangs_end();
	ck_assert_uint_eq(unit_table.n_gangs, 0);
}
END_TEST

START_TEST(names_states_and_bindings)
{
	ck_assert_str_eq(lease_state_to_string(LEASE_FREE), "free");
	ck_assert_str_eq(lease_state_to_string(LEASE_QUEUED), "queued");
	ck_assert_str_eq(lease_state_to_string(LEASE_ASSIGNED), "queued");
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
	unit_add_table(tcase, says_what_is_in_the_way, obstacles);
	tcase_add_loop_test(tcase, survives_random_operations, 0, 4);
	tcase_add_test(tcase, names_states_and_bindings);
	return unit_run("lease", tcase);
}
