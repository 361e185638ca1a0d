/* SPDX-License-Identifier: MIT */
#include <stdbool.h>

#include "stats.h"
#include "unit.h"

#define N_COUNTERS (sizeof(struct stats) / sizeof(uint64_t))

START_TEST(names_every_counter_once)
{
	struct stats stats;
	uint64_t raw[N_COUNTERS], value = 0;
	bool seen[N_COUNTERS] = {};

	for (size_t i = 0; i < N_COUNTERS; i++)
		raw[i] = 1000 + i;
	memcpy(&stats, raw, sizeof(stats));
	for (size_t i = 0; i < N_COUNTERS; i++) {
		const char *name = stats_get(&stats, i, &value);

		ck_assert_ptr_nonnull(name);
		ck_assert_str_ne(name, "");
		ck_assert_uint_ge(value, 1000);
		ck_assert_uint_lt(value, 1000 + N_COUNTERS);
		ck_assert_msg(!seen[value - 1000], "%s is there twice", name);
		seen[value - 1000] = true;
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(name, stats_get(&stats, j, &value));
	}
}
END_TEST

START_TEST(ends_after_the_last)
{
	struct stats stats = {};
	uint64_t value = 4711;

	ck_assert_ptr_null(stats_get(&stats, N_COUNTERS, &value));
	ck_assert_ptr_null(stats_get(&stats, SIZE_MAX, &value));
	ck_assert_uint_eq(value, 4711);
}
END_TEST

START_TEST(gives_the_value_of_the_name)
{
	struct stats stats = {.leases_granted = 7, .log_lines_cut = 9};
	uint64_t value;
	const char *name;
	int n = 0;

	for (size_t i = 0; (name = stats_get(&stats, i, &value)); i++) {
		if (streq(name, "leases_granted") || streq(name, "log_lines_cut")) {
			ck_assert_uint_eq(value, streq(name, "leases_granted") ? 7 : 9);
			n++;
		} else {
			ck_assert_uint_eq(value, 0);
		}
	}
	ck_assert_int_eq(n, 2);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("stats");

	tcase_add_test(tcase, names_every_counter_once);
	tcase_add_test(tcase, ends_after_the_last);
	tcase_add_test(tcase, gives_the_value_of_the_name);
	return unit_run("stats", tcase);
}
