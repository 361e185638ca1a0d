/* SPDX-License-Identifier: MIT */
/* Scenarios of the instance machine: what happens to it, step by step, and what it answers. */
#pragma once

#include <limits.h>

#include "unit_instance_fsm.h"

/* One step of a scenario. The time of a deadline is the machine's own; others come at_usec after
 * the last one. deadline_usec: from the step on, UINT64_MAX for none. */
struct scene {
	enum instance_event event;
	uint64_t after_usec;
	unsigned int effects;
	enum instance_state state;
	uint64_t deadline_usec;
	uint64_t generation;
	const char *reason; /* in the state's reason; NULL: whatever */
};

#define END_OF_SCENES INT_MAX

/* Ways that many scenarios share. */
#define STARTS                                                                          \
	{INSTANCE_EVENT_START, 0, SPAWN | CHANGED, INSTANCE_STARTING, 10 * SEC, 1, ""}, \
	{                                                                               \
		INSTANCE_EVENT_SPAWNED, 0, 0, INSTANCE_STARTING, 20 * MS, 1, ""         \
	}
#define GETS_READY                                                                               \
	STARTS, {INSTANCE_EVENT_DEADLINE, 0, QUERY, INSTANCE_STARTING, 9980 * MS, 1, NULL},      \
	{                                                                                        \
		INSTANCE_EVENT_ANSWERED, 5 * MS, OPEN | CHANGED, INSTANCE_READY, 60 * SEC, 1, "" \
	}

struct scenario {
	const char *what;
	bool occupied;
	struct scene scenes[24];
};

static inline void play_scene(struct instance_fsm *fsm, const struct scene *scene,
			      uint64_t *now_usec)
{
	unsigned int effects;

	if (scene->event == INSTANCE_EVENT_DEADLINE)
		*now_usec = fsm->deadline_usec;
	else
		*now_usec += scene->after_usec;
	effects = instance_fsm_step(fsm, &settings, scene->event, "WHY", *now_usec);
	ck_assert_str_eq(instance_state_to_string(fsm->state),
			 instance_state_to_string(scene->state));
	ck_assert_msg(effects == scene->effects, "effects %#x, not %#x", effects, scene->effects);
	ck_assert_uint_eq(fsm->generation, scene->generation);
	if (scene->reason && *scene->reason)
		unit_assert_contains(fsm->reason, scene->reason);
	else if (scene->reason)
		ck_assert_str_eq(fsm->reason, "");
	if (scene->effects & CHANGED)
		ck_assert_uint_eq(fsm->since_usec, *now_usec);
	if (scene->deadline_usec == NEVER)
		ck_assert_uint_eq(fsm->deadline_usec, NEVER);
	else if (scene->deadline_usec != NEVER - 1)
		ck_assert_uint_eq(fsm->deadline_usec - *now_usec, scene->deadline_usec);
}

static inline void play(const struct scenario *scenario)
{
	struct instance_fsm fsm;
	uint64_t now_usec = T0;

	instance_fsm_init(&fsm, 0, now_usec);
	for (size_t i = 0; scenario->scenes[i].event != END_OF_SCENES; i++) {
		ck_assert_uint_lt(i, ELEMENTSOF(scenario->scenes));
		play_scene(&fsm, &scenario->scenes[i], &now_usec);
		set_use(&fsm, scenario->occupied && fsm.state != INSTANCE_STARTING);
	}
}

static inline void get_ready(struct instance_fsm *fsm, const struct instance_settings *with,
			     uint64_t now_usec)
{
	(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_START, NULL, now_usec);
	if (fsm->state == INSTANCE_STARTING && !fsm->alive)
		(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_SPAWNED, NULL, now_usec);
	(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_HINT, NULL, now_usec);
	(void)instance_fsm_step(fsm, with, INSTANCE_EVENT_ANSWERED, NULL, now_usec);
	ck_assert_int_eq(fsm->state, INSTANCE_READY);
}
