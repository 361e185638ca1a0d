/* SPDX-License-Identifier: MIT */
#include "placement.h"
#include "unit_lease.h"

static size_t choose(const struct lease_request *request, const struct device_set *blocked)
{
	struct placement placement;

	return placement_choose(&unit_table, request, blocked, &placement) == 0 ? placement.place
										: LEASE_NONE;
}

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
	ck_assert_uint_eq(choose(&request, &blocked), choices[_i].chosen);
}
END_TEST

START_TEST(chooses_only_open_places)
{
	struct lease_request request = unit_request(ME, 3, 1);
	const struct device_set none = {};

	unit_table_init(2);
	unit_table.places[0].open = false;
	ck_assert_uint_eq(choose(&request, &none), 1);
	unit_table.places[1].open = false;
	ck_assert_uint_eq(choose(&request, &none), LEASE_NONE);
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
	 {100, INT64_C(20) << 30},
	 3,
	 1,
	 INT64_C(900) << 30,
	 "900GiB of memory asked for, and the largest device has 20GiB"},
	{"never both",
	 {4, 8},
	 {INT64_C(512) << 20, 100},
	 3,
	 8,
	 INT64_C(512) << 20,
	 "no device takes 8 clients and has 512MiB of memory too"},
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

/* No lease is anywhere, but servers that users left. */
static const struct {
	const char *what;
	bool pack;
	uint32_t servers[4]; /* whose; 0: there is none */
	struct standing standing[4];
	uint64_t candidates;
	size_t chosen;
} servers[] = {
	{"where there is no server of another", false, {OTHER, OTHER}, {}, 15, 2},
	{"where there is no server of another", true, {OTHER, OTHER}, {}, 15, 2},
	{"mine is as good as none", false, {OTHER, ME}, {}, 15, 1},
	{"none is as good as mine", false, {OTHER, 0, ME}, {}, 15, 1},
	{"the lowest when all are of others", false, {OTHER, OTHER, OTHER, 7}, {}, 14, 1},
	{"several users'", false, {UINT32_MAX}, {}, 3, 1},
	{"an emptier place before one without a server",
	 false,
	 {[3] = OTHER},
	 {{ME, 2}, {ME, 2}, {ME, 2}, {ME, 1}},
	 15,
	 3},
	{"a fuller place before one without a server",
	 true,
	 {[3] = OTHER},
	 {{ME, 1}, {ME, 1}, {ME, 1}, {ME, 2}},
	 15,
	 3},
	{"mine before one without a server", false, {[3] = OTHER}, {[3] = {ME, 1}}, 15, 3},
	{"of mine the one without", false, {OTHER}, {{ME, 1}, {ME, 1}}, 15, 1},
};

START_TEST(prefers_places_without_a_foreign_server)
{
	struct lease_request request = unit_request(ME, servers[_i].candidates, 1);
	const struct device_set none = {};

	unit_table_init(4);
	unit_table.rules.pack = servers[_i].pack;
	for (size_t i = 0; i < 4; i++) {
		const struct standing *standing = &servers[_i].standing[i];

		if (standing->clients > 0) {
			(void)unit_ask(standing->uid, UINT64_C(1) << i, standing->clients);
			ck_assert_uint_ne(unit_grant(), LEASE_NONE);
		}
		unit_table.places[i].has_server = servers[_i].servers[i] != 0;
		unit_table.places[i].server_uid = servers[_i].servers[i];
	}
	ck_assert_uint_eq(choose(&request, &none), servers[_i].chosen);
}
END_TEST

START_TEST(minds_no_server_where_many_may_be)
{
	struct lease_request request = unit_request(ME, 3, 1);
	const struct device_set none = {};

	unit_table_init(2);
	for (size_t i = 0; i < 2; i++)
		unit_table.places[i].multi_user = true;
	unit_table.places[0].has_server = true;
	unit_table.places[0].server_uid = OTHER;
	ck_assert_uint_eq(choose(&request, &none), 0);
}
END_TEST

/* On six devices: gangs of ME that were granted, by their devices, and single leases. */
static const struct {
	const char *what;
	bool pack;
	uint64_t gangs[2];
	int clients[2]; /* of each gang, on each of its devices */
	uint64_t occupied, closed, mig, candidates, blocked;
	int n_devices, n_clients;
	size_t gang;      /* chosen: which of the two, LEASE_NONE for a new one */
	uint64_t devices; /* of the new one; 0: none */
	const char *reason;
} gangs[] = {
	{"a new one: the lowest", false, {}, {}, 0, 0, 0, 63, 0, 2, 1, LEASE_NONE, 3, NULL},
	{"only candidates", false, {}, {}, 0, 0, 0, 52, 0, 2, 1, LEASE_NONE, 20, NULL},
	{"only what is not blocked", false, {}, {}, 0, 0, 0, 63, 5, 3, 1, LEASE_NONE, 26, NULL},
	{"only what is empty", false, {}, {}, 5, 0, 0, 63, 0, 3, 1, LEASE_NONE, 26, NULL},
	{"only what is open", false, {}, {}, 0, 5, 0, 63, 0, 3, 1, LEASE_NONE, 26, NULL},
	{"no MIG device", false, {}, {}, 0, 0, 5, 63, 0, 3, 1, LEASE_NONE, 26, NULL},
	{"all of them", false, {}, {}, 0, 0, 0, 63, 0, 6, 4, LEASE_NONE, 63, NULL},
	{"one is closed", false, {}, {}, 0, 8, 0, 63, 0, 6, 1, LEASE_NONE, 0, "5 free; CLOSED"},
	{"one is in use",
	 false,
	 {},
	 {},
	 8,
	 0,
	 0,
	 63,
	 0,
	 6,
	 1,
	 LEASE_NONE,
	 0,
	 "6 GPUs needed at once, 5 free; GPU in use by uid 1001, 1 lease"},
	{"one is blocked", false, {}, {}, 0, 0, 0, 63, 8, 6, 1, LEASE_NONE, 0, NULL},
	{"mine", false, {3}, {1}, 0, 0, 0, 63, 0, 2, 1, 0, 0, NULL},
	{"mine, spread", false, {3, 12}, {2, 1}, 0, 0, 0, 63, 0, 2, 1, 1, 0, NULL},
	{"mine, packed", true, {3, 12}, {1, 2}, 0, 0, 0, 63, 0, 2, 1, 1, 0, NULL},
	{"mine, packed where it fits", true, {3, 12}, {1, 2}, 0, 0, 0, 63, 0, 2, 3, 0, 0, NULL},
	{"mine is full", false, {3}, {4}, 0, 0, 0, 63, 0, 2, 1, LEASE_NONE, 12, NULL},
	{"mine has too many", false, {7}, {1}, 0, 0, 0, 63, 0, 2, 1, LEASE_NONE, 24, NULL},
	{"mine has too few", false, {3}, {1}, 0, 0, 0, 63, 0, 3, 1, LEASE_NONE, 28, NULL},
	{"mine has one that will not do",
	 false,
	 {3},
	 {1},
	 0,
	 0,
	 0,
	 62,
	 0,
	 2,
	 1,
	 LEASE_NONE,
	 12,
	 NULL},
	{"mine has a blocked one", false, {3}, {1}, 0, 0, 0, 63, 2, 2, 1, LEASE_NONE, 12, NULL},
	{"mine has the rest",
	 false,
	 {3, 12},
	 {4, 4},
	 0,
	 16,
	 0,
	 63,
	 0,
	 2,
	 1,
	 LEASE_NONE,
	 0,
	 "2 GPUs needed at once, 1 free; CLOSED"},
	{"mine has all that will do",
	 false,
	 {3, 12},
	 {4, 4},
	 0,
	 0,
	 0,
	 15,
	 0,
	 2,
	 1,
	 LEASE_NONE,
	 0,
	 "2 GPUs needed at once, 0 free; GPU in use by uid 1000, 1 lease of 2 GPUs"},
};

/* Its place. */
static size_t grant_gang(uint64_t devices, int clients)
{
	struct lease_request request = unit_request(ME, devices, clients);
	size_t index;

	request.n_devices = __builtin_popcountll(devices);
	index = unit_ask_for(&request);
	ck_assert_uint_eq(unit_prepare(), index);
	return unit_open_gang(index);
}

START_TEST(chooses_devices_for_gangs)
{
	struct lease_request request = unit_request(ME, gangs[_i].candidates, gangs[_i].n_clients);
	struct device_set blocked = {.words = {gangs[_i].blocked}};
	struct placement placement;
	char reason[REASON_SIZE] = "";
	size_t places[2] = {};
	int r;

	unit_table_init(6);
	request.n_devices = gangs[_i].n_devices;
	unit_table.rules.pack = gangs[_i].pack;
	for (size_t i = 0; i < 2; i++)
		if (gangs[_i].gangs[i] != 0)
			places[i] = grant_gang(gangs[_i].gangs[i], gangs[_i].clients[i]);
	for (size_t i = 0; i < 6; i++) {
		struct lease_place *place = &unit_table.places[i];

		if (gangs[_i].occupied >> i & 1)
			ck_assert_uint_ne((unit_ask(OTHER, UINT64_C(1) << i, 1), unit_grant()),
					  LEASE_NONE);
		place->open = !(gangs[_i].closed >> i & 1);
		place->mig = gangs[_i].mig >> i & 1;
		(void)text_copy(place->closed_reason, REASON_SIZE, "CLOSED");
	}
	r = placement_choose(&unit_table, &request, &blocked, &placement);
	if (gangs[_i].gang != LEASE_NONE) {
		ck_assert_int_eq(r, 0);
		ck_assert_uint_eq(placement.place, places[gangs[_i].gang]);
	} else if (gangs[_i].devices != 0) {
		ck_assert_int_eq(r, 0);
		ck_assert_uint_eq(placement.place, LEASE_NONE);
		ck_assert_uint_eq(placement.devices.words[0], gangs[_i].devices);
		ck_assert_uint_eq(device_set_count(&placement.devices), (size_t)request.n_devices);
	} else {
		ck_assert_int_eq(r, PLACEMENT_NONE);
	}
	if (!gangs[_i].reason)
		return;
	ck_assert_uint_ne(placement_obstacle(&unit_table, &request, reason), LEASE_NONE);
	unit_assert_contains(reason, gangs[_i].reason);
}
END_TEST

/* Behind who waits for a gang nobody takes a device of it, except such as it can never have. */
START_TEST(reserves_what_could_be_in_the_gang)
{
	struct lease_request request = unit_request(ME, 30, 2);
	struct device_set blocked = {.words = {1}};

	unit_table_init(6);
	request.n_devices = 2;
	unit_table.places[1].mig = true;
	unit_table.places[2].max_clients = 1;
	unit_table.places[3].open = false;
	placement_reserve(&unit_table, &request, &blocked);
	ck_assert_uint_eq(blocked.words[0], 25);
}
END_TEST

/* Its owner is known at the gang's place. */
START_TEST(names_the_gang_that_is_in_the_way)
{
	struct lease_request request = unit_request(OTHER, 4, 1);
	char reason[REASON_SIZE] = "";
	size_t gang;

	unit_table_init(4);
	gang = grant_gang(12, 1);
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), gang);
	ck_assert_str_eq(reason, "GPU in use by uid 1000, 1 lease of 2 GPUs");
	ck_assert_uint_ne((unit_ask_gang(ME, 12, 2), unit_grant()), LEASE_NONE);
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), gang);
	ck_assert_str_eq(reason, "GPU in use by uid 1000, 2 leases of 2 GPUs");
	/* One that ends has no leases: what its instance says. */
	while (lease_first(&unit_table) != LEASE_NONE)
		unit_end(lease_first(&unit_table));
	ck_assert_uint_eq(lease_gang_unneeded(&unit_table), gang);
	(void)text_copy(unit_table.places[gang].closed_reason, REASON_SIZE, "ENDS");
	ck_assert_uint_eq(placement_obstacle(&unit_table, &request, reason), gang);
	ck_assert_str_eq(reason, "ENDS");
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
	unit_add_table(tcase, prefers_places_without_a_foreign_server, servers);
	tcase_add_test(tcase, minds_no_server_where_many_may_be);
	unit_add_table(tcase, chooses_devices_for_gangs, gangs);
	tcase_add_test(tcase, reserves_what_could_be_in_the_gang);
	tcase_add_test(tcase, names_the_gang_that_is_in_the_way);
	return unit_run("placement", tcase);
}
