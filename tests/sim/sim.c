/* SPDX-License-Identifier: MIT */
/*
 * Drives instance machines and the lease table through random events on a fake clock and asserts
 * what must always hold. The same seed gives the same run.
 *
 *   sim [EVENTS [SEED]]
 *
 * Asserted besides what the core asserts itself: one control daemon at most for each instance;
 * admission open exactly in `ready`, and grants only there; every lost generation told once, to
 * every holder it concerns; the deadline finite where it must be, and kept; the table's sums; no
 * device in a gang and in a lease of its own; no lease beside another user's server; nobody is
 * passed by somebody who asked later for the same devices.
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
#define GANGS (PLACES / 2)
#define HOLDERS 300
#define WEATHER_EVENTS 20000 /* calm and trouble take turns */
#define DEFAULT_EVENTS 1000000

struct world_instance {
	struct instance_fsm fsm;
	bool alive;    /* a control daemon runs */
	bool asked;    /* a query is under way */
	uint64_t told; /* generations that were told as lost */
	uint64_t n_spawns;
	bool ending_servers;
};

static struct {
	uint64_t seed, random, now_usec, n_events;
	struct instance_settings settings;
	struct world_instance instances[PLACES + GANGS];
	struct lease_table table;
	struct lease leases[LEASES_MAX];
	uint64_t seen[LEASES_MAX]; /* by lease: the generation its holder knows */
	bool placed[LEASES_MAX];   /* by lease: has got its place before it is granted */
	uint64_t n_granted, n_told, next_id, n_gangs, n_turns, n_asked;
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

/* A gang's place is one of the last. */
static struct world_instance *instance_at(size_t place)
{
	assert(place < PLACES || (place >= DEVICES_MAX && place - DEVICES_MAX < GANGS));
	return &world.instances[place < PLACES ? place : PLACES + place - DEVICES_MAX];
}

static bool exists(size_t place)
{
	return place < PLACES || world.table.places[place].n_devices > 0;
}

static size_t random_place(void)
{
	size_t i = below(PLACES + GANGS);

	return i < PLACES ? i : DEVICES_MAX + i - PLACES;
}

/* ---------------------------------------------------------------- instances */

static void step(size_t place, enum instance_event event);

static void tell(size_t place, bool all)
{
	struct world_instance *instance = instance_at(place);

	/* The generation that is told is the one before; none is told twice or left out. */
	instance->told++;
	assert(instance->told == instance->fsm.generation - 1);
	for (size_t i = lease_first(&world.table); i != LEASE_NONE;
	     i = lease_next(&world.table, i)) {
		if (world.leases[i].place != place || lease_is_waiting(&world.leases[i]) ||
		    (!all && chance(50)))
			continue;
		assert(world.seen[i] < instance->fsm.generation);
		world.seen[i] = instance->fsm.generation;
		world.n_told++;
	}
}

static void carry_out(size_t place, unsigned int effects)
{
	struct world_instance *instance = instance_at(place);

	if (effects & (INSTANCE_OPEN | INSTANCE_CLOSE | INSTANCE_CHANGED)) {
		world.table.places[place].open =
			instance->fsm.state == INSTANCE_READY && !world.table.places[place].ending;
		world.table.places[place].failed = instance->fsm.state == INSTANCE_FAILED;
		world.table.places[place].silent = instance->fsm.state == INSTANCE_UNRESPONSIVE;
	}
	if (place < PLACES && world.table.places[place].held != instance->fsm.held)
		lease_hold(&world.table, place, instance->fsm.held);
	if (effects & INSTANCE_INTERRUPT)
		tell(place, true);
	if (effects & INSTANCE_TELL_HIT)
		tell(place, false);
	if (effects & INSTANCE_QUERY) {
		assert(!instance->asked);
		instance->asked = true;
	}
	if (effects & INSTANCE_END_SERVERS)
		instance->ending_servers = true;
	if (effects & INSTANCE_CLEAN) {
		instance->asked = instance->ending_servers = false;
		world.table.places[place].has_server = false;
	}
	if (effects & INSTANCE_SPAWN) {
		assert(!instance->alive);
		instance->n_spawns++;
		instance->alive = chance(90);
		step(place, !instance->alive ? INSTANCE_EVENT_SPAWN_FAILED
			    : chance(10)     ? INSTANCE_EVENT_ADOPTED
					     : INSTANCE_EVENT_SPAWNED);
	}
	if (effects & INSTANCE_KILL && instance->alive && chance(90)) {
		instance->alive = false;
		step(place, INSTANCE_EVENT_DIED);
	}
}

static void check_instance(size_t place)
{
	const struct world_instance *instance = instance_at(place);
	const struct instance_fsm *fsm = &instance->fsm;

	assert(world.table.places[place].open ==
	       (fsm->state == INSTANCE_READY && !world.table.places[place].ending));
	assert(fsm->state != INSTANCE_READY || instance->alive);
	assert(fsm->state != INSTANCE_STOPPED || !instance->alive);
	assert(fsm->deadline_usec != USEC_INFINITY || fsm->state == INSTANCE_STOPPED);
	assert(instance->told == fsm->generation - 1 || fsm->untold);
}

static void step(size_t place, enum instance_event event)
{
	struct world_instance *instance = instance_at(place);
	unsigned int effects;

	world.n_events++;
	effects = instance_fsm_step(&instance->fsm, &world.settings, event, "because",
				    world.now_usec);
	carry_out(place, effects);
	if (event == INSTANCE_EVENT_ANSWERED)
		lease_prove(&world.table, place);
}

static bool is_calm(void)
{
	return world.n_events / WEATHER_EVENTS % 2 == 1;
}

static void random_instance_event(size_t place)
{
	struct world_instance *instance = instance_at(place);
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
		INSTANCE_EVENT_DRAIN,        INSTANCE_EVENT_HALTED,
	};

	if (instance->asked && chance(60)) {
		instance->asked = false;
		step(place,
		     is_calm() ? INSTANCE_EVENT_ANSWERED : answers[below(ELEMENTSOF(answers))]);
	} else if (is_calm() && (!instance->ending_servers || chance(50))) {
		step(place, chance(50) ? INSTANCE_EVENT_START : INSTANCE_EVENT_HINT);
	} else if (chance(3) && instance->alive) {
		instance->alive = false;
		step(place, INSTANCE_EVENT_DIED);
	} else if (chance(1)) {
		step(place, INSTANCE_EVENT_STOP);
	} else if (instance->ending_servers && chance(50)) {
		instance->ending_servers = false;
		world.table.places[place].has_server = false;
		step(place, INSTANCE_EVENT_SERVER_GONE);
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
	for (size_t i = 0; i < DEVICES_MAX + GANGS; i = i == PLACES - 1 ? DEVICES_MAX : i + 1) {
		if (!exists(i))
			continue;
		if (instance_at(i)->fsm.deadline_usec <= world.now_usec)
			step(i, INSTANCE_EVENT_DEADLINE);
		check_instance(i);
	}
}

/* ---------------------------------------------------------------- leases */

/* Nobody who asked before could have used a device of it and was passed over: whoever waits in the
 * queue and is older wants other devices, or could be given none of these now. */
static void check_order(size_t index)
{
	const struct lease *lease = &world.leases[index];
	const struct lease_place *place = &world.table.places[lease->place];

	for (size_t i = world.table.queue.head; i != LEASE_NONE; i = world.leases[i].next) {
		const struct lease *other = &world.leases[i];

		if (other->sequence > lease->sequence || other->request.n_devices > 1 ||
		    lease->request.n_devices > 1)
			continue;
		assert(!device_set_has(&other->request.candidates, lease->place) ||
		       other->request.clients > place->max_clients ||
		       (place->memory_bytes > 0 &&
			other->request.memory_bytes > place->memory_bytes));
	}
}

static void check_grant(size_t index)
{
	const struct lease *lease = &world.leases[index];
	const struct lease_place *place = &world.table.places[lease->place];

	assert(instance_at(lease->place)->fsm.state == INSTANCE_READY);
	assert(place->proven || !world.table.rules.prove || place->n_devices > 0);
	assert(place->multi_user || !place->has_server || place->server_uid == lease->request.uid);
	assert((lease->place >= DEVICES_MAX) == (lease->request.n_devices > 1));
	for (size_t i = 0; i < PLACES; i++) {
		bool in_gang = lease->place >= DEVICES_MAX && device_set_has(&place->devices, i);

		assert(!in_gang || world.table.places[i].n_leases == 0);
		if (in_gang || lease->place == i)
			assert(device_set_has(&lease->request.candidates, i));
	}
}

static void prepare(size_t place)
{
	struct world_instance *instance = instance_at(place);

	if (place < DEVICES_MAX && lease_has_foreign_server(&world.table, place)) {
		world.n_turns++;
		step(place, INSTANCE_EVENT_END_SERVERS);
		return;
	}
	if (place < DEVICES_MAX) {
		world.n_asked++;
		step(place, INSTANCE_EVENT_ASK);
		return;
	}
	if (world.table.places[place].n_leases > 1)
		return;
	world.n_gangs++;
	*instance = (struct world_instance){};
	instance_fsm_init(&instance->fsm, below(256), world.now_usec);
	step(place, INSTANCE_EVENT_START);
}

static void end_gangs(void)
{
	size_t place;

	while ((place = lease_gang_unneeded(&world.table)) != LEASE_NONE)
		step(place, INSTANCE_EVENT_STOP);
	for (place = DEVICES_MAX; place < DEVICES_MAX + GANGS; place++)
		if (world.table.places[place].ending &&
		    instance_at(place)->fsm.state == INSTANCE_STOPPED)
			lease_gang_gone(&world.table, place);
}

/* A gang that cannot start is refused to those who wait for it. */
static void refuse_hopeless(void)
{
	char reason[REASON_SIZE];
	size_t next, place;

	for (size_t i = lease_waiting_first(&world.table); i != LEASE_NONE; i = next) {
		next = lease_waiting_next(&world.table, i);
		if (lease_is_hopeless(&world.table, i, &place, reason))
			lease_end(&world.table, i);
	}
}

/* What the shell does when a place has opened: who waits for it, waits for its servers' end. */
static void prepare_again(void)
{
	for (size_t i = 0; i < PLACES; i++)
		if (world.table.places[i].n_assigned > 0 && world.table.places[i].open)
			prepare(i);
}

static void grant_all(void)
{
	size_t index;
	int r;

	refuse_hopeless();
	while ((r = lease_grant_next(&world.table, world.now_usec, &index)) != LEASE_NOBODY) {
		size_t place = world.leases[index].place;

		if (!world.placed[index])
			check_order(index);
		world.placed[index] = r == LEASE_PREPARE;
		if (r == LEASE_PREPARE) {
			prepare(place);
			continue;
		}
		check_grant(index);
		world.seen[index] = instance_at(place)->fsm.generation;
		world.n_granted++;
		if (chance(70)) {
			world.table.places[place].has_server = true;
			world.table.places[place].server_uid = world.leases[index].request.uid;
		}
	}
	end_gangs();
	prepare_again();
}

static void request_lease(void)
{
	struct lease_request request = {
		.n_devices = chance(75) ? 1 : 2 + (int)below(3),
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
		world.placed[index] = false;
}

static size_t random_lease(void)
{
	size_t n = below(HOLDERS), i = lease_first(&world.table);

	while (i != LEASE_NONE && n-- > 0)
		i = lease_next(&world.table, i);
	return i;
}

/* Mostly somebody who has had a place, else few would get one. */
static void end_some_lease(void)
{
	size_t i = chance(80) ? lease_place_first(&world.table, random_place()) : random_lease();

	if (i == LEASE_NONE)
		return;
	if (world.leases[i].state == LEASE_GRANTED && chance(20))
		lease_drain(&world.table, i);
	else
		lease_end(&world.table, i);
}

/* All positions at once are those of each one. */
static void check_positions(void)
{
	struct lease_sweep sweep = {};

	for (size_t i = lease_waiting_first(&world.table); i != LEASE_NONE;
	     i = lease_waiting_next(&world.table, i))
		assert(lease_sweep_position(&sweep, &world.table, i) ==
		       lease_position(&world.table, i));
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
	rules = (struct lease_rules){
		.pack = chance(50), .oversubscribe_threads = chance(50), .prove = true};
	lease_table_init(&world.table, world.leases, &rules);
	for (size_t i = 0; i < PLACES; i++) {
		instance_fsm_init(&world.instances[i].fsm, (unsigned int)i * 97, world.now_usec);
		lease_add_place(&world.table, &(struct lease_place){
						      .multi_user = chance(30),
						      .mig = chance(5),
						      .max_clients = 4 + (int)below(45),
						      .memory_bytes = chance(80) ? 2000 : 0,
					      });
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
		size_t place = random_place();

		if (exists(place))
			random_instance_event(place);
		random_lease_event();
		if (chance(50))
			pass_time();
		if (chance(2)) {
			lease_table_check(&world.table);
			check_positions();
		}
	}
	lease_table_check(&world.table);
	printf("sim: %" PRIu64 " events, %" PRIu64 " leases granted, %" PRIu64 " gangs, %" PRIu64
	       " changes of user, %" PRIu64 " proofs wanted, %" PRIu64
	       " interruptions told, %" PRIu64 " simulated seconds\n",
	       world.n_events, world.n_granted, world.n_gangs, world.n_turns, world.n_asked,
	       world.n_told, world.now_usec / USEC_PER_SEC);
	return 0;
}
