/* SPDX-License-Identifier: MIT */
#include "backoff.h"
#include "unit.h"

#define SEC USEC_PER_SEC
#define GIVE_UP UINT64_MAX

/* Deaths at these times; each with the delay that must follow. up: ready that long before it. */
struct death {
	uint64_t at_usec, up_usec, delay_usec;
};

static const struct backoff_settings usual = {
	.min_usec = SEC / 2, .max_usec = 4 * SEC, .window_usec = 60 * SEC, .limit = 6};
static const struct backoff_settings one = {
	.min_usec = SEC, .max_usec = SEC, .window_usec = SEC, .limit = 1};

static const struct {
	const char *what;
	const struct backoff_settings *settings;
	struct death deaths[10];
} scenarios[] = {
	{"at once, then doubling up to the cap, then no more",
	 &usual,
	 {{1 * SEC, 0, 0},
	  {2 * SEC, 0, SEC / 2},
	  {3 * SEC, 0, SEC},
	  {4 * SEC, 0, 2 * SEC},
	  {5 * SEC, 0, 4 * SEC},
	  {6 * SEC, 0, GIVE_UP}}},
	{"stays at the cap while deaths are rare enough",
	 &usual,
	 {{1 * SEC, 0, 0},
	  {20 * SEC, 0, SEC / 2},
	  {40 * SEC, 0, SEC},
	  {60 * SEC, 0, 2 * SEC},
	  {80 * SEC, 0, 4 * SEC},
	  {100 * SEC, 0, 4 * SEC},
	  {120 * SEC, 0, 4 * SEC},
	  {140 * SEC, 0, 4 * SEC}}},
	{"being ready for a while is not enough",
	 &usual,
	 {{1 * SEC, 0, 0},
	  {100 * SEC, 60 * SEC - 1, SEC / 2},
	  {200 * SEC, 30 * SEC, SEC},
	  {300 * SEC, 1, 2 * SEC}}},
	{"forgets after a whole window up",
	 &usual,
	 {{1 * SEC, 0, 0},
	  {2 * SEC, 0, SEC / 2},
	  {100 * SEC, 60 * SEC, 0},
	  {101 * SEC, 0, SEC / 2},
	  {200 * SEC, 90 * SEC, 0}}},
	{"a long time down is no time up",
	 &usual,
	 {{2 * SEC, SEC, 0}, {1000 * SEC, 0, SEC / 2}, {9000 * SEC, 0, SEC}}},
	{"the window has an end",
	 &usual,
	 {{1 * SEC, 0, 0},
	  {2 * SEC, 0, SEC / 2},
	  {3 * SEC, 0, SEC},
	  {4 * SEC, 0, 2 * SEC},
	  {5 * SEC, 0, 4 * SEC},
	  {61 * SEC, 0, 4 * SEC},
	  {62 * SEC - 1, 0, GIVE_UP}}},
	{"a limit of one gives up at once", &one, {{1 * SEC, 0, GIVE_UP}, {9 * SEC, 0, GIVE_UP}}},
};

static void die(struct backoff *backoff, const struct backoff_settings *settings,
		const struct death *death)
{
	uint64_t delay_usec = 4711;
	int r;

	if (death->up_usec > 0)
		backoff_up(backoff, death->at_usec - death->up_usec);
	r = backoff_death(backoff, settings, death->at_usec, &delay_usec);
	ck_assert_int_eq(r, death->delay_usec == GIVE_UP ? BACKOFF_GIVE_UP : 0);
	ck_assert_uint_eq(delay_usec, r ? 4711 : death->delay_usec);
}

START_TEST(follows_the_scenario)
{
	struct backoff backoff;

	backoff_reset(&backoff);
	for (size_t i = 0; scenarios[_i].deaths[i].at_usec > 0; i++)
		die(&backoff, scenarios[_i].settings, &scenarios[_i].deaths[i]);
}
END_TEST

/* Up to and past the size of the ring, for every limit: it must be the right death that counts. */
START_TEST(counts_past_the_ring)
{
	struct backoff_settings settings = {.min_usec = 1, .max_usec = 1, .window_usec = 1000};
	struct backoff backoff;
	uint64_t now_usec = 1, delay_usec;

	settings.limit = (unsigned int)_i;
	backoff_reset(&backoff);
	/* limit deaths take just the window: never too many. */
	for (int i = 0; i < 5 * BACKOFF_LIMIT_MAX; i++) {
		ck_assert_int_eq(backoff_death(&backoff, &settings, now_usec, &delay_usec), 0);
		now_usec += 1000 / (settings.limit - 1) + 1;
	}
	/* Now quickly: the death that is the limit-th in the window is one too many. */
	now_usec += 1000;
	for (unsigned int i = 1; i <= settings.limit; i++)
		ck_assert_int_eq(backoff_death(&backoff, &settings, now_usec, &delay_usec),
				 i == settings.limit ? BACKOFF_GIVE_UP : 0);
	backoff_reset(&backoff);
	ck_assert_int_eq(backoff_death(&backoff, &settings, now_usec, &delay_usec), 0);
	ck_assert_uint_eq(delay_usec, 0);
}
END_TEST

/* Both can be configured on their own. */
START_TEST(never_waits_longer_than_the_maximum)
{
	const struct backoff_settings settings = {
		.min_usec = 10 * SEC, .max_usec = SEC, .window_usec = SEC, .limit = 32};
	struct backoff backoff;

	backoff_reset(&backoff);
	for (uint64_t i = 1; i < 10; i++) {
		uint64_t delay_usec;

		ck_assert_int_eq(backoff_death(&backoff, &settings, i * SEC, &delay_usec), 0);
		ck_assert_uint_le(delay_usec, settings.max_usec);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("backoff");

	unit_add_table(tcase, follows_the_scenario, scenarios);
	tcase_add_loop_test(tcase, counts_past_the_ring, 2, BACKOFF_LIMIT_MAX + 1);
	tcase_add_test(tcase, never_waits_longer_than_the_maximum);
	return unit_run("backoff", tcase);
}
