/* SPDX-License-Identifier: MIT */
#include "placement.h"
#include "unit_lease.h"

#define ME 1000
#define OTHER 1001

/* What stands on four places, each of up to 4 clients: whose, and how many clients. */
struct standing {
	uint32_t uid;
	int clients;
};

static const struct {
	const char *what;
	bool pack, multi_user;
	struct standing places[4];
	uint64_t candidates, blocked;
	int clients;
	size_t chosen;
} choices[] = {
	{"all empty: the lowest", false, false, {}, 15, 0, 1, 0},
	{"all empty: the lowest", true, false, {}, 15, 0, 1, 0},
	{"only candidates", false, false, {}, 12, 0, 1, 2},
	{"only what is not blocked", false, false, {}, 15, 3, 1, 2},
	{"all blocked", false, false, {}, 15, 15, 1, LEASE_NONE},
	{"no candidate", false, false, {}, 0, 0, 1, LEASE_NONE},
	{"mine before an empty one", false, false, {{0}, {0}, {ME, 3}}, 15, 0, 1, 2},
	{"mine before an empty one", true, false, {{0}, {0}, {ME, 3}}, 15, 0, 1, 2},
	{"mine is full", false, false, {{OTHER, 1}, {0}, {ME, 4}}, 15, 0, 1, 1},
	{"spread over mine", false, false, {{ME, 3}, {ME, 1}, {ME, 2}, {ME, 1}}, 15, 0, 1, 1},
	{"pack into mine", true, false, {{ME, 1}, {ME, 2}, {ME, 3}, {ME, 3}}, 15, 0, 1, 2},
	{"pack where it fits", true, false, {{ME, 1}, {ME, 2}, {ME, 3}, {ME, 3}}, 15, 0, 2, 1},
	{"never another's", false, false, {{OTHER, 1}, {OTHER, 1}}, 3, 0, 1, LEASE_NONE},
	{"spread over all users", false, true, {{ME, 3}, {OTHER, 1}, {ME, 2}, {0}}, 7, 0, 1, 1},
	{"pack over all users", true, true, {{ME, 1}, {OTHER, 3}, {ME, 2}, {0}}, 15, 0, 1, 1},
	{"the empty one of many users", false, true, {{ME, 1}, {OTHER, 1}, {ME, 1}}, 15, 0, 1, 3},
};

START_TEST(chooses)
{
	struct lease_request request =
		unit_request(ME, choices[_i].candidates, choices[_i].clients);
	struct device_set blocked = {.words = {choices[_i].blocked}};

	unit_table_init(4);
	unit_table.rules.pack = choices[_i].pack;
	for (size_t i = 0; i < 4; i++) {
		const struct standing *standing = &choices[_i].places[i];

		unit_table.places[i].multi_user = choices[_i].multi_user;
		if (standing->clients == 0)
			continue;
		(void)unit_ask(standing->uid, UINT64_C(1) << i, standing->clients);
		ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	}
	ck_assert_uint_eq(placement_choose(&unit_table, &request, &blocked), choices[_i].chosen);
}
END_TEST

START_TEST(chooses_only_open_places)
{
	struct lease_request request = unit_request(ME, 3, 1);
	const struct device_set none = {};

	unit_table_init(2);
	unit_table.places[0].open = false;
	ck_assert_uint_eq(placement_choose(&unit_table, &request, &none), 1);
	unit_table.places[1].open = false;
	ck_assert_uint_eq(placement_choose(&unit_table, &request, &none), LEASE_NONE);
}
END_TEST

static const struct {
	const char *what;
	int max_clients[2];
	int64_t memory_bytes[2];
	uint64_t candidates;
	int clients;
	int64_t memory;
	const char *reason; /* NULL: possible */
} possibilities[] = {
	{"fits", {4, 4}, {0, 0}, 3, 4, 0, NULL},
	{"fits on one", {4, 8}, {0, 0}, 3, 8, 0, NULL},
	{"not on the candidate",
	 {4, 8},
	 {0, 0},
	 1,
	 5,
	 0,
	 "5 clients asked for, and a device takes"},
	{"too many", {4, 8}, {0, 0}, 3, 9, 0, "takes at most 8"},
	{"memory not known", {4, 4}, {0, 0}, 3, 1, INT64_MAX, NULL},
	{"memory known of one", {4, 4}, {100, 0}, 3, 1, 101, NULL},
	{"just fits", {4, 4}, {100, 200}, 3, 1, 200, NULL},
	{"does not",
	 {4, 4},
	 {100, 200},
	 3,
	 1,
	 201,
	 "201 bytes of memory asked for, and the largest"},
	{"does not", {4, 4}, {100, 200}, 3, 1, 201, "device has 200"},
	{"no candidate", {4, 4}, {0, 0}, 0, 1, 0, ""},
};

START_TEST(knows_the_impossible)
{
	struct lease_request request =
		unit_request(ME, possibilities[_i].candidates, possibilities[_i].clients);
	char reason[REASON_SIZE] = "";

	unit_table_init(2);
	request.memory_bytes = possibilities[_i].memory;
	for (size_t i = 0; i < 2; i++) {
		unit_table.places[i].max_clients = possibilities[_i].max_clients[i];
		unit_table.places[i].memory_bytes = possibilities[_i].memory_bytes[i];
		unit_table.places[i].open = false; /* may open one day */
	}
	ck_assert_int_eq(placement_impossible(&unit_table, &request, reason),
			 possibilities[_i].reason != NULL);
	if (possibilities[_i].reason)
		unit_assert_contains(reason, possibilities[_i].reason);
}
END_TEST

/* One place is too small in one way, the other in another: the sentence must be true. */
START_TEST(says_nothing_false_of_the_impossible)
{
	struct lease_request request = unit_request(ME, 3, 4);
	char reason[REASON_SIZE] = "";

	unit_table_init(2);
	unit_table.places[0].max_clients = 2;
	unit_table.places[0].memory_bytes = 100;
	unit_table.places[1].max_clients = 8;
	unit_table.places[1].memory_bytes = 10;
	request.memory_bytes = 50;
	ck_assert(placement_impossible(&unit_table, &request, reason));
	ck_assert_msg(strstr(reason, "largest device has 100") == NULL,
		      "50 bytes asked for: \"%s\"", reason);
}
END_TEST

START_TEST(a_full_place_is_not_impossible)
{
	struct lease_request request = unit_request(ME, 1, 4);
	char reason[REASON_SIZE] = "";

	unit_table_init(1);
	(void)unit_ask(OTHER, 1, 4);
	ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	ck_assert(!placement_impossible(&unit_table, &request, reason));
}
END_TEST

START_TEST(names_the_nearest_obstacle)
{
	struct lease_request request = unit_request(ME, 7, 2);
	char reason[REASON_SIZE] = "";

	unit_table_init(3);
	unit_table.places[0].max_clients = 1;
	(void)unit_ask(OTHER, 2, 1);
	ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	(void)unit_ask(ME, 4, 3);
	ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), 2);
	ck_assert_str_eq(reason, "full: 3/4 clients reserved");
	request.candidates.words[0] = 3;
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), 1);
	ck_assert_str_eq(reason, "GPU in use by uid 1001, 1 lease");
	request.candidates.words[0] = 1;
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), 0);
	ck_assert_str_eq(reason, "the device is too small");
	request.clients = 1;
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), LEASE_NONE);
}
END_TEST

START_TEST(counts_leases_in_words)
{
	struct lease_request request = unit_request(ME, 1, 1);
	char reason[REASON_SIZE] = "";

	unit_table_init(1);
	(void)unit_ask(OTHER, 1, 1);
	(void)unit_ask(OTHER, 1, 1);
	ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	ck_assert_uint_ne(unit_grant(), LEASE_NONE);
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), 0);
	ck_assert_str_eq(reason, "GPU in use by uid 1001, 2 leases");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("placement");

	unit_add_table(tcase, chooses, choices);
	tcase_add_test(tcase, chooses_only_open_places);
	unit_add_table(tcase, knows_the_impossible, possibilities);
	tcase_add_test(tcase, says_nothing_false_of_the_impossible);
	tcase_add_test(tcase, a_full_place_is_not_impossible);
	tcase_add_test(tcase, names_the_nearest_obstacle);
	tcase_add_test(tcase, counts_leases_in_words);
	return unit_run("placement", tcase);
}
