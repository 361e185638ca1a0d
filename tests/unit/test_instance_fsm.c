/* SPDX-License-Identifier: MIT */
/* Starting, dying, stopping, and what an operator orders. */
#include "instance_fsm.h"
#include "unit_instance_scenes.h"

static const struct scenario scenarios[] = {
	{"starts, is asked, is ready",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"a hint asks at once, and only once",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_HINT, 8 * MS, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_HINT, MS, 0, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {INSTANCE_EVENT_HINT, MS, 0, INSTANCE_READY, NEVER - 1, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"probes again with growing pauses",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, 9980 * MS, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 10 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 20 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 40 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_TIMED_OUT, 2 * SEC, 0, INSTANCE_STARTING, 80 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 160 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 200 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_NO_ANSWER, MS, 0, INSTANCE_STARTING, 200 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"not ready in time: killed until it is gone",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, 9980 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL | CHANGED, INSTANCE_STOPPING, SEC, 1,
	   "not ready after 10 s"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "not ready after 10 s"},
	  {INSTANCE_EVENT_ANSWERED, MS, 0, INSTANCE_STOPPING, NEVER - 1, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"never spawned in time: tried again",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1,
	   "not ready after 10 s"},
	  {.event = END_OF_SCENES}}},
	{"cannot be spawned: once more, waits, gives up, tries again after a pause",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_START, SEC, 0, INSTANCE_FAILED, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"dies while starting: nobody is told",
	 true,
	 {STARTS,
	  {INSTANCE_EVENT_DIED, MS, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, NULL},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, 0, INSTANCE_BACKOFF, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, NULL},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 1, "WHY"},
	  {.event = END_OF_SCENES}}},
	{"dies while ready: told once",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DIED, SEC, CLOSE | INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_DIED, 0, 0, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 2, ""},
	  {INSTANCE_EVENT_DIED, SEC, CLOSE | INTERRUPT | CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2,
	   3, "WHY"},
	  {.event = END_OF_SCENES}}},
	{"a whole window up makes it start at once again",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_DIED, SEC, CLOSE | INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 2, ""},
	  {INSTANCE_EVENT_DIED, 60 * SEC, CLOSE | INTERRUPT | CLEAN | SPAWN | CHANGED,
	   INSTANCE_STARTING, 10 * SEC, 3, NULL},
	  {.event = END_OF_SCENES}}},
	{"stops by the ladder",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_STOP, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, TERM, INSTANCE_STOPPING, 2 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_START, SEC, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"a request to end that is refused is made again",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_QUIT_OVER, SEC, 0, INSTANCE_READY, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_QUIT_OVER, SEC, 0, INSTANCE_STOPPING, 200 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, QUIT, INSTANCE_STOPPING, 8800 * MS, 1, "WHY"},
	  {INSTANCE_EVENT_QUIT_OVER, 8700 * MS, 0, INSTANCE_STOPPING, 100 * MS, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, TERM, INSTANCE_STOPPING, 2 * SEC, 1, "WHY"},
	  {INSTANCE_EVENT_QUIT_OVER, SEC, 0, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DEADLINE, 0, KILL, INSTANCE_STOPPING, SEC, 1, "WHY"},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops while starting",
	 false,
	 {STARTS,
	  {INSTANCE_EVENT_STOP, MS, TERM | CHANGED, INSTANCE_STOPPING, 2 * SEC, 1, NULL},
	  {INSTANCE_EVENT_DIED, MS, CLEAN | CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops before it is spawned",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_STOP, MS, CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_STOP, MS, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"stops while it waits to start again",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, NULL},
	  {INSTANCE_EVENT_STOP, MS, CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {INSTANCE_EVENT_START, MS, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {.event = END_OF_SCENES}}},
	{"stops while failed",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, NULL},
	  {INSTANCE_EVENT_DEADLINE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_FAILED, 600 * SEC, 1, NULL},
	  {INSTANCE_EVENT_STOP, MS, CHANGED, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"wanted again while it stops",
	 false,
	 {GETS_READY,
	  {INSTANCE_EVENT_STOP, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_START, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 1, NULL},
	  {INSTANCE_EVENT_DIED, SEC, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {.event = END_OF_SCENES}}},
	{"is recycled",
	 true,
	 {GETS_READY,
	  {INSTANCE_EVENT_RECYCLE, SEC, CLOSE | QUIT | CHANGED, INSTANCE_STOPPING, 10 * SEC, 1,
	   "restarted"},
	  {INSTANCE_EVENT_RECYCLE, SEC, 0, INSTANCE_STOPPING, NEVER - 1, 1, "restarted"},
	  {INSTANCE_EVENT_DIED, MS, INTERRUPT | CLEAN | SPAWN | CHANGED, INSTANCE_STARTING,
	   10 * SEC, 2, NULL},
	  {INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 2, NULL},
	  {INSTANCE_EVENT_HINT, MS, QUERY, INSTANCE_STARTING, NEVER - 1, 2, NULL},
	  {INSTANCE_EVENT_ANSWERED, MS, OPEN | CHANGED, INSTANCE_READY, NEVER - 1, 2, ""},
	  {.event = END_OF_SCENES}}},
	{"is tried at once when an operator says so",
	 false,
	 {{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | SPAWN, INSTANCE_STARTING, 10 * SEC, 1, NULL},
	  {INSTANCE_EVENT_SPAWN_FAILED, 0, CLEAN | CHANGED, INSTANCE_BACKOFF, SEC / 2, 1, NULL},
	  {INSTANCE_EVENT_RECYCLE, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, ""},
	  {.event = END_OF_SCENES}}},
	{"is not recycled when it is not wanted",
	 false,
	 {{INSTANCE_EVENT_RECYCLE, 0, 0, INSTANCE_STOPPED, NEVER, 1, ""},
	  {.event = END_OF_SCENES}}},
};

START_TEST(plays_the_scenario)
{
	play(&scenarios[_i]);
}
END_TEST

START_TEST(ignores_an_early_deadline)
{
	struct instance_fsm fsm, before;

	instance_fsm_init(&fsm, 0, T0);
	get_ready(&fsm, &settings, T0);
	before = fsm;
	ck_assert_uint_eq(instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_DEADLINE, NULL,
					    fsm.deadline_usec - 1),
			  0);
	ck_assert_mem_eq(&fsm, &before, sizeof(fsm));
}
END_TEST

START_TEST(stays_failed_without_retry)
{
	struct instance_settings never = settings;
	struct instance_fsm fsm;

	never.failed_retry_usec = 0;
	never.backoff.limit = 1;
	instance_fsm_init(&fsm, 0, T0);
	get_ready(&fsm, &never, T0);
	(void)instance_fsm_step(&fsm, &never, INSTANCE_EVENT_DIED, NULL, T0 + SEC);
	ck_assert_int_eq(fsm.state, INSTANCE_FAILED);
	ck_assert_str_eq(fsm.reason, "the control daemon died");
	ck_assert_uint_eq(fsm.deadline_usec, NEVER);
	ck_assert_uint_eq(fsm.restarts, 1);
}
END_TEST

/* An operator who recycles it often has not made it fail. */
START_TEST(recycling_is_no_failure)
{
	struct instance_fsm fsm;

	instance_fsm_init(&fsm, 0, T0);
	for (uint64_t i = 0; i < 5; i++) {
		get_ready(&fsm, &settings, T0 + i * SEC);
		(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_RECYCLE, NULL,
					T0 + i * SEC);
		(void)instance_fsm_step(&fsm, &settings, INSTANCE_EVENT_DIED,
					"exited with status 0", T0 + i * SEC);
		ck_assert_msg(fsm.state == INSTANCE_STARTING, "recycled %d times: %s", (int)i + 1,
			      instance_state_to_string(fsm.state));
	}
}
END_TEST

START_TEST(keeps_long_reasons_whole_enough)
{
	struct instance_settings quick = settings;
	char reason[4 * REASON_SIZE];
	struct instance_fsm fsm;

	memset(reason, 'x', sizeof(reason));
	reason[sizeof(reason) - 1] = '\0';
	quick.backoff.limit = 1;
	instance_fsm_init(&fsm, 0, T0);
	get_ready(&fsm, &quick, T0);
	(void)instance_fsm_step(&fsm, &quick, INSTANCE_EVENT_DIED, reason, T0);
	ck_assert_uint_eq(strlen(fsm.reason), REASON_SIZE - 1);
}
END_TEST

START_TEST(names_states_and_events)
{
	for (int i = INSTANCE_STOPPED; i <= INSTANCE_FAILED; i++)
		ck_assert_str_ne(instance_state_to_string((enum instance_state)i), "?");
	for (int i = INSTANCE_EVENT_START; i <= INSTANCE_EVENT_DEADLINE; i++)
		ck_assert_str_ne(instance_event_to_string((enum instance_event)i), "?");
	ck_assert_str_eq(instance_state_to_string((enum instance_state)99), "?");
	ck_assert_str_eq(instance_event_to_string((enum instance_event)99), "?");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("instance_fsm");

	unit_add_table(tcase, plays_the_scenario, scenarios);
	tcase_add_test(tcase, ignores_an_early_deadline);
	tcase_add_test(tcase, stays_failed_without_retry);
	tcase_add_test(tcase, recycling_is_no_failure);
	tcase_add_test(tcase, keeps_long_reasons_whole_enough);
	tcase_add_test(tcase, names_states_and_events);
	return unit_run("instance_fsm", tcase);
}
