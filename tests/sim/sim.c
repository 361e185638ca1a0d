/* SPDX-License-Identifier: MIT */
/*
 * Drives instance machines and the lease table through random events on a fake clock and asserts
 * what must always hold. The same seed gives the same run.
 *
 *   sim [EVENTS [SEED]]
 *
 * Asserted besides what the core asserts itself: one control daemon at most for each instance;
 * admission open exactly in `ready`, and grants only there; every lost generation told once, to
 * every holder it concerns; the deadline finite where it must be, and kept; the table's sums.
 */
#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>

#include "instance_fsm.h"
#include "lease.h"
#include "text.h"
#include "util.h"

#define PLACES 8
#define HOLDERS 300
#define DEFAULT_EVENTS 1000000

struct world_instance {
	struct instance_fsm fsm;
	bool alive;    /* a control daemon runs */
	bool asked;    /* a query is under way */
	uint64_t told; /* generations that were told as lost */
	uint64_t n_spawns;
};

static struct {
	uint64_t seed, random, now_usec, n_events;
	struct instance_settings settings;
	struct world_instance instances[PLACES];
	struct lease_table table;
	struct lease leases[LEASES_MAX];
	uint64_t seen[LEASES_MAX]; /* by lease: the generation its holder knows */
	uint64_t n_granted, n_told, next_id;
} world;

static uint64_t next_random(void)
{
	/* xorshift64* */
	world.random ^= world.random >> 12;
	world.random ^= world.random << 25;
	world.random ^= world.random >> 27;
	return world.random * UINT64_C(2685821657736338717);
}

static unsigned int below(unsigned int n)
{
	return (unsigned int)(next_random() >> 33) % n;
}

static bool chance(unsigned int percent)
{
	return below(100) < percent;
}

/* ---------------------------------------------------------------- instances */

static void step(size_t place, enum instance_event event);

static void tell(size_t place, bool all)
{
	struct world_instance *instance = &world.instances[place];

	/* The generation that is told is the one before; none is told twice or left out. */
	instance->told++;
	assert(instance->told == instance->fsm.generation - 1);
	for (size_t i = lease_first(&world.table); i != LEASE_NONE;
	     i = lease_next(&world.table, i)) {
		if (world.leases[i].place != place || (!all && chance(50)))
			continue;
		assert(world.seen[i] < instance->fsm.generation);
		world.seen[i] = instance->fsm.generation;
		world.n_told++;
	}
}

static void carry_out(size_t place, unsigned int effects)
{
	struct world_instance *instance = &world.instances[place];

	if (effects & (INSTANCE_OPEN | INSTANCE_CLOSE | INSTANCE_CHANGED)) {
		world.table.places[place].open = instance->fsm.state == INSTANCE_READY;
		world.table.places[place].failed = instance->fsm.state == INSTANCE_FAILED;
	}
	if (effects & INSTANCE_INTERRUPT)
		tell(place, true);
	if (effects & INSTANCE_TELL_HIT)
		tell(place, false);
	if (effects & INSTANCE_QUERY) {
		assert(!instance->asked);
		instance->asked = true;
	}
	if (effects & INSTANCE_CLEAN)
		instance->asked = false;
	if (effects & INSTANCE_SPAWN) {
		assert(!instance->alive);
		instance->n_spawns++;
		instance->alive = chance(90);
		step(place, instance->alive ? INSTANCE_EVENT_SPAWNED : INSTANCE_EVENT_SPAWN_FAILED);
	}
	if (effects & INSTANCE_KILL && instance->alive && chance(90)) {
		instance->alive = false;
		step(place, INSTANCE_EVENT_DIED);
	}
}

static void check_instance(size_t place)
{
	const struct world_instance *instance = &world.instances[place];
	const struct instance_fsm *fsm = &instance->fsm;

	assert(world.table.places[place].open == (fsm->state == INSTANCE_READY));
	assert(fsm->state != INSTANCE_READY || instance->alive);
	assert(fsm->state != INSTANCE_STOPPED || !instance->alive);
	assert(fsm->deadline_usec != USEC_INFINITY || fsm->state == INSTANCE_STOPPED);
	assert(instance->told == fsm->generation - 1 || fsm->untold);
}

static void step(size_t place, enum instance_event event)
{
	struct world_instance *instance = &world.instances[place];
	unsigned int effects;

	world.n_events++;
	effects = instance_fsm_step(&instance->fsm, &world.settings, event, "because",
				    world.now_usec);
	carry_out(place, effects);
}

static void random_instance_event(size_t place)
{
	struct world_instance *instance = &world.instances[place];
	static const enum instance_event answers[] = {
		INSTANCE_EVENT_ANSWERED,    INSTANCE_EVENT_ANSWERED,  INSTANCE_EVENT_ANSWERED,
		INSTANCE_EVENT_FAULT_STAYS, INSTANCE_EVENT_NO_ANSWER, INSTANCE_EVENT_TIMED_OUT,
	};
	static const enum instance_event others[] = {
		INSTANCE_EVENT_START,        INSTANCE_EVENT_START,
		INSTANCE_EVENT_HINT,         INSTANCE_EVENT_SERVER_LOST,
		INSTANCE_EVENT_FAULT,        INSTANCE_EVENT_VICTIMS_GONE,
		INSTANCE_EVENT_SERVERS_FAIL, INSTANCE_EVENT_SOCKET_LOST,
		INSTANCE_EVENT_RECYCLE,      INSTANCE_EVENT_SETTLED,
	};

	if (instance->asked && chance(60)) {
		instance->asked = false;
		step(place, answers[below(ELEMENTSOF(answers))]);
	} else if (chance(3) && instance->alive) {
		instance->alive = false;
		step(place, INSTANCE_EVENT_DIED);
	} else if (chance(1)) {
		step(place, INSTANCE_EVENT_STOP);
	} else if (chance(10)) {
		step(place, others[below(ELEMENTSOF(others))]);
	}
	if (chance(10))
		instance_fsm_set_use(&instance->fsm, &world.settings,
				     world.table.places[place].n_leases > 0, chance(50),
				     world.now_usec);
	check_instance(place);
}

/* The clock goes on to a random deadline, or just a little; whose time has come is told. */
static void pass_time(void)
{
	world.now_usec += chance(20) ? below(2000000) : below(20000);
	for (size_t i = 0; i < PLACES; i++) {
		if (world.instances[i].fsm.deadline_usec <= world.now_usec)
			step(i, INSTANCE_EVENT_DEADLINE);
		check_instance(i);
	}
}

/* ---------------------------------------------------------------- leases */

static void grant_all(void)
{
	size_t index;

	while (lease_grant_next(&world.table, world.now_usec, &index) == 0) {
		size_t place = world.leases[index].place;

		assert(world.instances[place].fsm.state == INSTANCE_READY);
		assert(device_set_has(&world.leases[index].request.candidates, place));
		world.seen[index] = world.instances[place].fsm.generation;
		world.n_granted++;
	}
}

static void request_lease(void)
{
	struct lease_request request = {
		.uid = 1000 + below(3),
		.clients = 1 + (int)below(4),
		.threads_percent = chance(30) ? 1 + (int)below(100) : 0,
		.memory_bytes = chance(30) ? 1 + (int64_t)below(1000) : 0,
		.exclusive = chance(5),
	};
	char id[LEASE_ID_SIZE], reason[REASON_SIZE];
	size_t index;

	for (size_t i = 0; i < PLACES; i++)
		if (chance(40))
			device_set_add(&request.candidates, i);
	(void)text_format(id, sizeof(id), "%08x", (unsigned int)world.next_id++);
	if (lease_request(&world.table, &request, id, world.now_usec, &index, reason) == 0)
		assert(lease_find(&world.table, id) == index);
}

static void end_some_lease(void)
{
	size_t n = below(HOLDERS), i = lease_first(&world.table);

	while (i != LEASE_NONE && n-- > 0)
		i = lease_next(&world.table, i);
	if (i != LEASE_NONE)
		lease_end(&world.table, i);
}

static void random_lease_event(void)
{
	world.n_events++;
	if (world.table.n_queued + world.table.n_granted < HOLDERS && chance(55))
		request_lease();
	else
		end_some_lease();
	grant_all();
}

/* ---------------------------------------------------------------- the run */

static void on_abort(int signal_number)
{
	char text[160];

	(void)signal_number;
	(void)text_format(text, sizeof(text),
			  "sim: failed after %" PRIu64 " events; replay: sim %" PRIu64 " %" PRIu64
			  "\n",
			  world.n_events, world.n_events + 1, world.seed);
	(void)!write(STDERR_FILENO, text, strlen(text));
}

static void build_world(uint64_t seed)
{
	struct lease_rules rules;

	world.seed = seed;
	world.random = seed ? seed : 1;
	world.now_usec = USEC_PER_SEC;
	world.settings = (struct instance_settings){
		.start_usec = 10 * USEC_PER_SEC,
		.stop_usec = 20 * USEC_PER_SEC,
		.interval_usec = 10 * USEC_PER_SEC,
		.idle_interval_usec = 60 * USEC_PER_SEC,
		.wedge_grace_usec = 30 * USEC_PER_SEC,
		.failed_retry_usec = 60 * USEC_PER_SEC,
		.fault_grace_usec = 5 * USEC_PER_SEC,
		.misses = 3,
		.backoff = {USEC_PER_SEC / 2, 30 * USEC_PER_SEC, 60 * USEC_PER_SEC, 5},
	};
	rules = (struct lease_rules){.pack = chance(50), .oversubscribe_threads = chance(50)};
	lease_table_init(&world.table, world.leases, &rules);
	world.table.n_places = PLACES;
	for (size_t i = 0; i < PLACES; i++) {
		instance_fsm_init(&world.instances[i].fsm, world.now_usec);
		world.table.places[i] = (struct lease_place){
			.multi_user = chance(30),
			.max_clients = 4 + (int)below(45),
			.memory_bytes = chance(80) ? 2000 : 0,
		};
		step(i, INSTANCE_EVENT_START);
	}
}

int main(int argc, char **argv)
{
	int64_t events = DEFAULT_EVENTS, seed = (int64_t)(clock_usec(CLOCK_REALTIME) & 0xffffffff);

	if ((argc > 1 && text_parse_int(argv[1], 1, INT64_MAX, &events) < 0) ||
	    (argc > 2 && text_parse_int(argv[2], 0, INT64_MAX, &seed) < 0)) {
		fputs("usage: sim [EVENTS [SEED]]\n", stderr);
		return 2;
	}
	printf("sim: seed %" PRId64 "\n", seed);
	(void)fflush(stdout);
	(void)signal(SIGABRT, on_abort);
	build_world((uint64_t)seed);
	while (world.n_events < (uint64_t)events) {
		random_instance_event(below(PLACES));
		random_lease_event();
		if (chance(50))
			pass_time();
		if (chance(2))
			lease_table_check(&world.table);
	}
	lease_table_check(&world.table);
	printf("sim: %" PRIu64 " events, %" PRIu64 " leases granted, %" PRIu64
	       " interruptions told, %" PRIu64 " simulated seconds\n",
	       world.n_events, world.n_granted, world.n_told, world.now_usec / USEC_PER_SEC);
	return 0;
}
