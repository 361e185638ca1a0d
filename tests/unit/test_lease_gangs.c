/* SPDX-License-Identifier: MIT */
#include "lease.h"
#include "unit_lease.h"

#define ME 1000
#define OTHER 1001

/* Asks for a gang, which must be formed for it now; the lease. */
static size_t form(uint32_t uid, uint64_t bits, int n_devices)
{
	size_t index = unit_ask_gang(uid, bits, n_devices);

	ck_assert_uint_eq(unit_prepare(), index);
	return index;
}

static struct lease_place *place_of(size_t index)
{
	return &unit_table.places[unit_leases[index].place];
}

/* The devices of a lease's gang, as bits. */
static uint64_t devices_of(size_t index)
{
	return place_of(index)->devices.words[0];
}

/* The gang that nobody needs ends. */
static void end_gang(size_t place)
{
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), place);
	lease_table_check(&unit_table);
	lease_gang_gone(&unit_table, place);
	lease_table_check(&unit_table);
}

START_TEST(is_formed_then_granted)
{
	struct lease_obstacle obstacle;
	size_t gang, place;

	unit_table_init(4);
	unit_table.places[1].open = false;
	gang = form(ME, 15, 2);
	place = unit_leases[gang].place;
	ck_assert_uint_ge(place, DEVICES_MAX);
	ck_assert_uint_eq(devices_of(gang), 5); /* the lowest that are open */
	ck_assert_int_eq(place_of(gang)->n_devices, 2);
	ck_assert_uint_eq(unit_table.places[0].gang, place);
	ck_assert_uint_eq(unit_table.places[1].gang, LEASE_NONE);
	ck_assert_uint_eq(unit_table.places[2].gang, place);
	ck_assert_uint_eq(unit_table.n_gangs, 1);
	/* It waits still. */
	ck_assert_int_eq(unit_leases[gang].state, LEASE_ASSIGNED);
	ck_assert_int_eq(place_of(gang)->n_assigned, 1);
	ck_assert_int_eq(lease_place_waiting(&unit_table, place), 1);
	ck_assert_uint_eq(unit_table.n_queued, 1);
	ck_assert_uint_eq(unit_table.n_granted, 0);
	ck_assert_int_eq(lease_position(&unit_table, gang), 1);
	unit_assert_waits_for(gang, "its devices are prepared");
	lease_obstacle(&unit_table, gang, &obstacle);
	ck_assert_int_eq(obstacle.n_leases, 0);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), LEASE_NONE);
	ck_assert_uint_eq(unit_open_gang(gang), place);
	ck_assert_int_eq(unit_leases[gang].state, LEASE_GRANTED);
	ck_assert_uint_eq(unit_leases[gang].granted_usec, 2);
	ck_assert_int_eq(place_of(gang)->n_assigned, 0);
	ck_assert_int_eq(place_of(gang)->n_leases, 1);
	ck_assert_uint_eq(unit_table.n_queued, 0);
	ck_assert_uint_eq(unit_table.n_granted, 1);
	ck_assert_uint_eq(lease_place_first(&unit_table, place), gang);
}
END_TEST

START_TEST(is_shared_by_its_user)
{
	size_t first, second, third, place;

	unit_table_init(3);
	first = form(ME, 7, 2);
	second = unit_ask_gang(ME, 7, 2);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE); /* it is not open */
	unit_assert_waits_for(second, "its devices are prepared");
	place = unit_open_gang(first);
	ck_assert_uint_eq(unit_grant(), second);
	ck_assert_uint_eq(unit_leases[second].place, place);
	ck_assert_int_eq(unit_table.places[place].clients, 2);
	third = unit_ask_gang(ME, 3, 2); /* whose candidates are just its devices */
	ck_assert_uint_eq(unit_grant(), third);
	ck_assert_uint_eq(unit_leases[third].place, place);
	ck_assert_uint_eq(unit_table.n_gangs, 1);
	/* It closes, and what was granted stays. */
	unit_table.places[place].open = false;
	ck_assert_uint_ne(unit_ask_gang(ME, 3, 2), LEASE_NONE);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	ck_assert_int_eq(unit_table.places[place].n_leases, 3);
}
END_TEST

static const struct {
	const char *what;
	uint32_t uid;
	uint64_t candidates;
	int n_devices, clients;
	bool exclusive, multi_user;
	const char *reason; /* NULL: shares it */
} sharers[] = {
	{"the same again", ME, 3, 2, 1, false, false, NULL},
	{"room for all that is left", ME, 3, 2, 3, false, false, NULL},
	{"one client too many", ME, 3, 2, 4, false, false, "1 lease of 2 GPUs"},
	{"another user", OTHER, 3, 2, 1, false, false, "GPU in use by uid 1000, 1 lease of 2 GPUs"},
	{"another user where many may", OTHER, 3, 2, 1, false, true, NULL},
	{"not these devices", ME, 6, 2, 1, false, false, "2 GPUs needed at once, 1 free"},
	{"more devices", ME, 7, 3, 1, false, false, "3 GPUs needed at once, 1 free"},
	{"alone", ME, 3, 2, 1, true, false, "2 GPUs needed at once, 0 free"},
	{"one device of it", ME, 1, 1, 1, false, false, "GPU in use by uid 1000, 1 lease of 2"},
	{"one device of it, others'", OTHER, 3, 1, 1, false, true, "GPU in use by uid 1000"},
};

START_TEST(is_shared_by_who_may)
{
	struct lease_request request =
		unit_request(sharers[_i].uid, sharers[_i].candidates, sharers[_i].clients);
	size_t first, second;

	unit_table_init(3);
	for (size_t i = 0; i < 3; i++)
		unit_table.places[i].multi_user = sharers[_i].multi_user;
	first = form(ME, 3, 2);
	(void)unit_open_gang(first);
	request.n_devices = sharers[_i].n_devices;
	request.exclusive = sharers[_i].exclusive;
	second = unit_ask_for(&request);
	ck_assert_uint_eq(unit_grant(), sharers[_i].reason ? LEASE_NONE : second);
	if (sharers[_i].reason)
		unit_assert_waits_for(second, sharers[_i].reason);
	else
		ck_assert_uint_eq(unit_leases[second].place, unit_leases[first].place);
}
END_TEST

START_TEST(is_alone_when_it_is_exclusive)
{
	struct lease_request request = unit_request(ME, 3, 1);
	size_t alone, second;

	unit_table_init(2);
	request.n_devices = 2;
	request.exclusive = true;
	alone = unit_ask_for(&request);
	ck_assert_uint_eq(unit_prepare(), alone);
	(void)unit_open_gang(alone);
	second = unit_ask_gang(ME, 3, 2);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(alone);
	/* The gang is open still: who comes next takes it over. */
	ck_assert_uint_eq(unit_grant(), second);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), LEASE_NONE);
}
END_TEST

START_TEST(keeps_its_devices_from_others)
{
	struct lease_obstacle obstacle;
	size_t gang, other, mine;

	unit_table_init(4);
	gang = form(ME, 3, 2);
	other = unit_ask(OTHER, 1, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_assert_waits_for(other, "GPU in use by uid 1000, 1 lease of 2 GPUs");
	lease_obstacle(&unit_table, other, &obstacle);
	ck_assert_uint_eq(obstacle.uid, ME);
	ck_assert_int_eq(obstacle.n_leases, 1);
	mine = unit_ask(ME, 2, 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	ck_assert_uint_ne((unit_ask(OTHER, 12, 1), unit_grant()), LEASE_NONE);
	ck_assert_uint_eq(unit_open_gang(gang), DEVICES_MAX);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(gang);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	end_gang(DEVICES_MAX);
	ck_assert_uint_eq(unit_grant(), other);
	ck_assert_uint_eq(unit_grant(), mine);
}
END_TEST

/* Even of the same user, and where there may be several. */
START_TEST(needs_devices_that_are_empty)
{
	size_t there, gang;

	unit_table_init(2);
	unit_table.places[0].multi_user = unit_table.places[1].multi_user = _i;
	there = unit_ask(ME, 2, 1);
	ck_assert_uint_eq(unit_grant(), there);
	gang = unit_ask_gang(ME, 3, 2);
	ck_assert_uint_eq(unit_prepare(), LEASE_NONE);
	unit_assert_waits_for(gang,
			      "2 GPUs needed at once, 1 free; GPU in use by uid 1000, 1 lease");
	unit_end(there);
	ck_assert_uint_eq(unit_prepare(), gang);
}
END_TEST

START_TEST(ends_when_nobody_needs_it)
{
	size_t first, second, next, place;

	unit_table_init(2);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), LEASE_NONE);
	first = form(ME, 3, 2);
	place = unit_open_gang(first);
	second = unit_ask_gang(ME, 3, 2);
	ck_assert_uint_eq(unit_grant(), second);
	unit_end(first);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), LEASE_NONE);
	/* Clients that are left need it. */
	lease_drain(&unit_table, second);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), LEASE_NONE);
	unit_end(second);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), place);
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), LEASE_NONE); /* once */
	ck_assert(unit_table.places[place].ending && !unit_table.places[place].open);
	/* An ending one is given to nobody, and has its devices still. */
	next = unit_ask_gang(ME, 3, 2);
	ck_assert_uint_eq(unit_prepare(), LEASE_NONE);
	unit_assert_waits_for(next, "2 GPUs needed at once, 0 free");
	ck_assert_uint_eq(unit_table.places[0].gang, place);
	lease_gang_gone(&unit_table, place);
	lease_table_check(&unit_table);
	ck_assert_uint_eq(unit_table.n_gangs, 0);
	ck_assert_uint_eq(unit_table.places[0].gang, LEASE_NONE);
	ck_assert_int_eq(unit_table.places[place].n_devices, 0);
	ck_assert_uint_eq(unit_prepare(), next);
	ck_assert(!unit_table.places[unit_leases[next].place].open);
}
END_TEST

START_TEST(is_not_needed_by_who_gives_up)
{
	size_t gang, behind;

	unit_table_init(2);
	gang = form(ME, 3, 2);
	behind = unit_ask(OTHER, 1, 1);
	ck_assert_int_eq(lease_position(&unit_table, behind), 2);
	unit_end(gang);
	ck_assert_int_eq(unit_table.places[DEVICES_MAX].n_assigned, 0);
	ck_assert_uint_eq(unit_table.n_queued, 1);
	ck_assert_int_eq(lease_position(&unit_table, behind), 1);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	end_gang(DEVICES_MAX);
	ck_assert_uint_eq(unit_grant(), behind);
}
END_TEST

START_TEST(is_hopeless_when_it_fails)
{
	char reason[REASON_SIZE] = "";
	size_t gang, place = 4711;

	unit_table_init(4);
	gang = form(ME, 15, 2);
	ck_assert(!lease_is_hopeless(&unit_table, gang, &place, reason));
	ck_assert_uint_eq(place, 4711);
	place_of(gang)->failed = true;
	(void)text_copy(place_of(gang)->closed_reason, REASON_SIZE, "WHY");
	/* Others that are free do not help: it has its place, until it is told. */
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	ck_assert_int_eq(unit_leases[gang].state, LEASE_ASSIGNED);
	ck_assert(lease_is_hopeless(&unit_table, gang, &place, reason));
	ck_assert_uint_eq(place, unit_leases[gang].place);
	ck_assert_str_eq(reason, "WHY");
	unit_assert_waits_for(gang, "WHY");
	unit_end(gang);
	end_gang(place);
}
END_TEST

START_TEST(is_hopeless_with_too_few_devices)
{
	struct lease_request request = unit_request(ME, 7, 1);
	char reason[REASON_SIZE] = "";
	size_t waiter, index = 4711;

	unit_table_init(3);
	request.n_devices = 2;
	for (size_t i = 0; i < 3; i++)
		unit_table.places[i].open = false;
	(void)text_copy(unit_table.places[1].closed_reason, REASON_SIZE, "WHY");
	waiter = unit_ask_for(&request);
	unit_table.places[1].failed = true;
	ck_assert(!lease_is_hopeless(&unit_table, waiter, &index, reason));
	ck_assert_int_eq(index, 4711);
	unit_table.places[2].failed = true;
	ck_assert(lease_is_hopeless(&unit_table, waiter, &index, reason));
	ck_assert_uint_eq(index, 1);
	ck_assert_str_eq(reason, "WHY");
	index = 4711;
	ck_assert_int_eq(lease_request(&unit_table, &request, "x", 1, &index, reason),
			 LEASE_ALL_FAILED);
	ck_assert_uint_eq(index, 1);
	lease_table_check(&unit_table);
}
END_TEST

/* Those who ask for one device come again and again. */
START_TEST(is_overtaken_by_nobody)
{
	size_t holders[2], gang;

	unit_table_init(2);
	for (size_t i = 0; i < 2; i++) {
		holders[i] = unit_ask(ME, UINT64_C(1) << i, 1);
		ck_assert_uint_eq(unit_grant(), holders[i]);
	}
	gang = unit_ask_gang(ME, 3, 2);
	for (int i = 0; i < 40; i++) {
		size_t single = unit_ask(ME, (uint64_t)i % 3 + 1, 1);

		ck_assert_uint_eq(unit_grant(), LEASE_NONE);
		unit_assert_waits_for(single, "others were first");
	}
	unit_end(holders[0]);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(holders[1]);
	ck_assert_uint_eq(unit_prepare(), gang);
	ck_assert_int_eq(lease_position(&unit_table, gang), 1);
	(void)unit_open_gang(gang);
}
END_TEST

/* Nor does who would share a gang go past somebody who waits for one of its devices. */
START_TEST(overtakes_nobody)
{
	size_t gang, single, sharer;

	unit_table_init(2);
	gang = form(ME, 3, 2);
	(void)unit_open_gang(gang);
	single = unit_ask(OTHER, 2, 1);
	sharer = unit_ask_gang(ME, 3, 2);
	ck_assert_uint_eq(unit_grant(), LEASE_NONE);
	unit_end(gang);
	end_gang(DEVICES_MAX);
	ck_assert_uint_eq(unit_grant(), single);
	ck_assert_uint_eq(unit_prepare(), LEASE_NONE);
	unit_end(single);
	ck_assert_uint_eq(unit_prepare(), sharer);
}
END_TEST

/* One MIG device is as good as another, and the rest may be a gang. */
START_TEST(passes_by_mig_devices)
{
	size_t gang;

	unit_table_init(4);
	unit_table.places[0].mig = unit_table.places[2].mig = true;
	gang = form(ME, 15, 2);
	ck_assert_uint_eq(devices_of(gang), 10);
	ck_assert_uint_ne((unit_ask(OTHER, 15, 1), unit_grant()), LEASE_NONE);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lease_gangs");

	tcase_add_test(tcase, is_formed_then_granted);
	tcase_add_test(tcase, is_shared_by_its_user);
	unit_add_table(tcase, is_shared_by_who_may, sharers);
	tcase_add_test(tcase, is_alone_when_it_is_exclusive);
	tcase_add_test(tcase, keeps_its_devices_from_others);
	tcase_add_loop_test(tcase, needs_devices_that_are_empty, 0, 2);
	tcase_add_test(tcase, ends_when_nobody_needs_it);
	tcase_add_test(tcase, is_not_needed_by_who_gives_up);
	tcase_add_test(tcase, is_hopeless_when_it_fails);
	tcase_add_test(tcase, is_hopeless_with_too_few_devices);
	tcase_add_test(tcase, is_overtaken_by_nobody);
	tcase_add_test(tcase, overtakes_nobody);
	tcase_add_test(tcase, passes_by_mig_devices);
	return unit_run("lease_gangs", tcase);
}
