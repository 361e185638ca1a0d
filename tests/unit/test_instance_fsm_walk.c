/* SPDX-License-Identifier: MIT */
/* Any events in any order, as far as a shell can see them. */
#include "instance_fsm.h"
#include "unit_instance_fsm.h"

/* What a shell that does as it is told may see: events that fit what the machine asked for. */
struct world {
	bool alive, spawn_waits, query_waits;
	int n_interrupts;
};

static bool event_can_be(const struct world *world, enum instance_event event)
{
	switch (event) {
	case INSTANCE_EVENT_SPAWNED:
	case INSTANCE_EVENT_SPAWN_FAILED:
	case INSTANCE_EVENT_ADOPTED:
		return world->spawn_waits;
	case INSTANCE_EVENT_ANSWERED:
	case INSTANCE_EVENT_FAULT_STAYS:
	case INSTANCE_EVENT_NO_ANSWER:
	case INSTANCE_EVENT_NOT_ASKED:
	case INSTANCE_EVENT_TIMED_OUT:
		return world->query_waits;
	case INSTANCE_EVENT_ASK:
	case INSTANCE_EVENT_HALTED:
	case INSTANCE_EVENT_END_SERVERS:
	case INSTANCE_EVENT_SERVER_GONE:
	case INSTANCE_EVENT_SERVERS_FAIL:
	case INSTANCE_EVENT_QUIT_OVER:
	case INSTANCE_EVENT_SOCKET_LOST:
	case INSTANCE_EVENT_FAULT:
	case INSTANCE_EVENT_SETTLED:
	case INSTANCE_EVENT_VICTIMS_GONE:
	case INSTANCE_EVENT_DIED:
	case INSTANCE_EVENT_SERVER_LOST:
	case INSTANCE_EVENT_HINT:
		return world->alive;
	case INSTANCE_EVENT_START:
	case INSTANCE_EVENT_STOP:
	case INSTANCE_EVENT_RECYCLE:
	case INSTANCE_EVENT_DRAIN:
	case INSTANCE_EVENT_DEADLINE:
		return true;
	}
	return false;
}

static void follow(struct world *world, enum instance_event event, unsigned int effects)
{
	if (event == INSTANCE_EVENT_SPAWNED || event == INSTANCE_EVENT_ADOPTED)
		world->alive = true;
	if (event == INSTANCE_EVENT_DIED)
		world->alive = false;
	if (event == INSTANCE_EVENT_SPAWNED || event == INSTANCE_EVENT_SPAWN_FAILED ||
	    event == INSTANCE_EVENT_ADOPTED)
		world->spawn_waits = false;
	if (event == INSTANCE_EVENT_ANSWERED || event == INSTANCE_EVENT_NO_ANSWER ||
	    event == INSTANCE_EVENT_TIMED_OUT || event == INSTANCE_EVENT_NOT_ASKED ||
	    event == INSTANCE_EVENT_FAULT_STAYS)
		world->query_waits = false;
	if (effects & CLEAN) /* drops the commands under way */
		world->query_waits = false;
	if (effects & SPAWN) {
		ck_assert(!world->alive);
		world->spawn_waits = true;
	}
	if (effects & (TERM | KILL | QUIT | QUERY))
		ck_assert(world->alive);
	if (effects & QUERY) {
		ck_assert(!world->query_waits);
		world->query_waits = true;
	}
	world->n_interrupts += (effects & (INTERRUPT | INSTANCE_TELL_HIT)) != 0;
}

START_TEST(survives_a_random_walk)
{
	unsigned int seed = (unsigned int)time(NULL) + (unsigned int)_i;
	struct instance_settings with = settings;
	struct world world = {};
	struct instance_fsm fsm;
	uint64_t now_usec = T0;
	bool open = false;

	printf("seed %u\n", seed);
	srand(seed);
	with.failed_retry_usec = _i & 1 ? 0 : settings.failed_retry_usec;
	instance_fsm_init(&fsm, 0, now_usec);
	for (int i = 0; i < 20000; i++) {
		enum instance_event event =
			(enum instance_event)(rand() % (INSTANCE_EVENT_DEADLINE + 1));
		enum instance_state before = fsm.state;
		unsigned int effects;

		if (!event_can_be(&world, event))
			continue;
		if (event == INSTANCE_EVENT_DEADLINE && fsm.deadline_usec != NEVER && rand() % 8)
			now_usec = MAX(now_usec, fsm.deadline_usec);
		else
			now_usec += (uint64_t)rand() % (rand() % 16 ? SEC / 8 : 100 * SEC);
		set_use(&fsm, rand() % 2);
		effects =
			instance_fsm_step(&fsm, &with, event, rand() % 2 ? "WHY" : NULL, now_usec);
		follow(&world, event, effects);
		if (fsm.state != INSTANCE_STARTING)
			world.spawn_waits = false;
		ck_assert_int_eq((effects & CHANGED) != 0, before != fsm.state);
		ck_assert_int_eq((effects & OPEN) != 0, !open && fsm.state == INSTANCE_READY);
		ck_assert_int_eq((effects & CLOSE) != 0, open && fsm.state != INSTANCE_READY);
		open = fsm.state == INSTANCE_READY;
		ck_assert_uint_eq(fsm.generation, (uint64_t)world.n_interrupts + 1 + fsm.untold);
	}
	/* From wherever it is, it stops in finite time. */
	(void)instance_fsm_step(&fsm, &with, INSTANCE_EVENT_STOP, NULL, now_usec);
	for (int i = 0; i < 8 && fsm.state != INSTANCE_STOPPED; i++) {
		unsigned int effects;

		now_usec = fsm.deadline_usec;
		effects = instance_fsm_step(&fsm, &with, INSTANCE_EVENT_DEADLINE, NULL, now_usec);
		if (effects & KILL)
			(void)instance_fsm_step(&fsm, &with, INSTANCE_EVENT_DIED, NULL, now_usec);
	}
	ck_assert_int_eq(fsm.state, INSTANCE_STOPPED);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("instance_fsm_walk");

	tcase_add_loop_test(tcase, survives_a_random_walk, 0, 4);
	return unit_run("instance_fsm_walk", tcase);
}
