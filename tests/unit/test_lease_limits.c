/* SPDX-License-Identifier: MIT */
/* How much a lease table and its places take, and who is refused. */
#include "lease.h"
#include "unit_lease.h"

#define ME 1000
#define OTHER 1001

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

static const struct {
	const char *what;
	uint64_t candidates;
	int n_devices, clients;
	uint64_t mig;
	const char *reason;
} impossible_gangs[] = {
	{"more than there are", 3, 3, 1, 0, "3 devices asked for, and there are 2"},
	{"two of one", 1, 2, 1, 0, "2 devices asked for, and there is 1"},
	{"MIG", 15, 2, 1, 15, "only one when it is a MIG device"},
	{"MIG, all but one", 15, 2, 1, 14, "only one when it is a MIG device"},
	{"too few that large", 15, 2, 5, 0, "2 devices asked for, and only 1 could hold that much"},
	{"none that large", 7, 2, 5, 0, "5 clients asked for, and a device takes at most 4"},
	{"too many", 15, GANG_DEVICES_MAX + 1, 1, 0, "65 devices asked for, and a lease has at"},
};

START_TEST(says_which_gangs_can_never_be)
{
	struct lease_request request =
		unit_request(ME, impossible_gangs[_i].candidates, impossible_gangs[_i].clients);
	char reason[REASON_SIZE] = "";
	size_t index = 4711;

	unit_table_init(4);
	unit_table.places[3].max_clients = 8;
	for (size_t i = 0; i < 4; i++)
		unit_table.places[i].mig = impossible_gangs[_i].mig >> i & 1;
	request.n_devices = impossible_gangs[_i].n_devices;
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &index, reason),
			 LEASE_UNSATISFIABLE);
	unit_assert_contains(reason, impossible_gangs[_i].reason);
	ck_assert_uint_eq(index, 4711);
	ck_assert_uint_eq(unit_table.n_queued, 0);
}
END_TEST

/* As many gangs as there can be; then the largest. */
START_TEST(forms_as_many_gangs_as_there_can_be)
{
	static size_t gangs[GANGS_MAX];
	struct lease_request request = unit_request(ME, 0, 1);
	bool ended[GANGS_MAX] = {};
	char reason[REASON_SIZE] = "";
	size_t place, n = 0;

	unit_table_init(DEVICES_MAX);
	memset(&request.candidates, 0xff, sizeof(request.candidates));
	request.n_devices = 2;
	for (size_t i = 0; i < GANGS_MAX; i++) {
		gangs[i] = unit_ask_for(&request);
		ck_assert_uint_eq(unit_prepare(), gangs[i]);
		ck_assert_uint_eq(unit_table.places[2 * i + 1].gang, unit_leases[gangs[i]].place);
	}
	request.uid = OTHER;
	(void)unit_ask_for(&request);
	ck_assert_uint_eq(unit_prepare(), LEASE_NONE);
	ck_assert_uint_eq(unit_table.n_gangs, GANGS_MAX);
	for (size_t i = 0; i < GANGS_MAX; i++) {
		(void)unit_open_gang(gangs[i]);
		unit_end(gangs[i]);
	}
	unit_end(lease_waiting_first(&unit_table));
	for (; (place = lease_gang_unneeded(&unit_table)) != LEASE_NONE; n++) {
		ck_assert(!ended[place - DEVICES_MAX]);
		ended[place - DEVICES_MAX] = true;
		lease_gang_gone(&unit_table, place);
		lease_table_check(&unit_table);
	}
	ck_assert_uint_eq(n, GANGS_MAX);
	request.n_devices = GANG_DEVICES_MAX;
	gangs[0] = unit_ask_for(&request);
	ck_assert_uint_eq(unit_prepare(), gangs[0]);
	ck_assert_int_eq(unit_table.places[unit_leases[gangs[0]].place].n_devices,
			 GANG_DEVICES_MAX);
	ck_assert_uint_eq(unit_table.places[GANG_DEVICES_MAX].gang, LEASE_NONE);
	request.n_devices = GANG_DEVICES_MAX + 1;
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &place, reason),
			 LEASE_UNSATISFIABLE);
	unit_assert_contains(reason, "65 devices asked for, and a lease has at most 64");
}
END_TEST

static const struct {
	const char *what;
	int max_clients[3];
	int64_t memory_bytes[3];
	bool multi_user[3];
	int clients;
	int64_t memory;
	bool several_users;
} poorest[] = {
	{"all alike", {4, 4, 4}, {9, 9, 9}, {true, true, true}, 4, 9, true},
	{"the first", {2, 4, 4}, {5, 9, 9}, {false, true, true}, 2, 5, false},
	{"the last", {4, 4, 3}, {9, 9, 6}, {true, true, false}, 3, 6, false},
	{"each another", {4, 3, 5}, {7, 9, 8}, {true, false, true}, 3, 7, false},
	{"memory not known of one", {4, 4, 4}, {0, 9, 8}, {true, true, true}, 4, 8, true},
	{"memory not known of the last", {4, 4, 4}, {9, 8, 0}, {true, true, true}, 4, 8, true},
	{"memory known of none", {4, 4, 4}, {0}, {false, false, false}, 4, 0, false},
};

START_TEST(a_gang_takes_what_its_poorest_device_does)
{
	const struct lease_place *place;
	size_t index;

	unit_table_init(3);
	for (size_t i = 0; i < 3; i++) {
		unit_table.places[i].max_clients = poorest[_i].max_clients[i];
		unit_table.places[i].memory_bytes = poorest[_i].memory_bytes[i];
		unit_table.places[i].multi_user = poorest[_i].multi_user[i];
	}
	index = unit_ask_gang(ME, 7, 3);
	ck_assert_uint_eq(unit_prepare(), index);
	place = &unit_table.places[unit_leases[index].place];
	ck_assert_int_eq(place->max_clients, poorest[_i].clients);
	ck_assert_int_eq(place->memory_bytes, poorest[_i].memory);
	ck_assert_int_eq(place->multi_user, poorest[_i].several_users);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lease_limits");

	tcase_add_test(tcase, never_more_clients_than_the_cap);
	tcase_add_loop_test(tcase, threads_add_up_to_all, 0, 2);
	tcase_add_test(tcase, memory_adds_up_to_what_there_is);
	tcase_add_test(tcase, unknown_memory_does_not_overflow);
	tcase_add_test(tcase, limits_each_user);
	tcase_add_test(tcase, says_what_can_never_be);
	tcase_add_test(tcase, full_is_an_outcome);
	tcase_add_test(tcase, uses_all_places);
	unit_add_table(tcase, says_which_gangs_can_never_be, impossible_gangs);
	tcase_add_test(tcase, forms_as_many_gangs_as_there_can_be);
	unit_add_table(tcase, a_gang_takes_what_its_poorest_device_does, poorest);
	return unit_run("lease_limits", tcase);
}
