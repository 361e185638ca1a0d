/* SPDX-License-Identifier: MIT */
/* Those who wait. They are told why and at which position, a few in each turn, so that thousands
 * of them neither delay a grant nor flood the sockets. */
#include "leases_parts.h"
#include "proto.h"
#include "text.h"
#include "util.h"
#include "varlink.h"

/* So many are told, then all others get this long: 3,200 a second. */
#define REFRESH_PER_TURN 64
#define REFRESH_PAUSE_USEC (20 * USEC_PER_MSEC)
/* A wait may end this much late, so that timers can share a wake-up. */
#define WAIT_ACCURACY_USEC (10 * USEC_PER_MSEC)

/* ---------------------------------------------------------------- telling */

/* When what it was told last is not true any more. */
static void tell_waiter(struct holding *holding, int position)
{
	struct leases *leases = holding->leases;
	struct lease_obstacle obstacle;
	uint32_t reason;

	lease_obstacle(&leases->table, holding->index, &obstacle);
	if (obstacle.passing)
		return;
	reason = text_hash(obstacle.reason);
	if (position == holding->told_position && reason == holding->told_reason)
		return;
	holding->told_position = position;
	holding->told_reason = reason;
	leases_tell_queued(holding, position);
}

/* Where a round that was interrupted goes on. */
static size_t next_of_round(const struct leases *leases)
{
	const struct lease_table *table = &leases->table;
	size_t i = lease_waiting_first(table);

	while (i != LEASE_NONE && leases->round.queue && table->leases[i].state == LEASE_ASSIGNED)
		i = lease_waiting_next(table, i);
	while (i != LEASE_NONE && table->leases[i].sequence <= leases->round.sequence &&
	       (table->leases[i].state == LEASE_QUEUED) == leases->round.queue)
		i = lease_waiting_next(table, i);
	return i;
}

static void tell_next(struct leases *leases, size_t i)
{
	const struct lease *lease = &leases->table.leases[i];
	int position = lease_sweep_position(&leases->round.sweep, &leases->table, i);

	leases->round.queue = lease->state == LEASE_QUEUED;
	leases->round.sequence = lease->sequence;
	if (leases->holdings[i].streaming)
		tell_waiter(&leases->holdings[i], position);
}

static void start_round(struct leases *leases)
{
	leases->round.under_way = true;
	leases->round.again = leases->round.queue = false;
	leases->round.sequence = 0;
	leases->round.sweep = (struct lease_sweep){};
}

/* Not so soon after the last turn. */
static void wake_up(struct leases *leases)
{
	(void)sd_event_source_set_time(leases->refresh,
				       leases->round.turn_usec + REFRESH_PAUSE_USEC);
	(void)sd_event_source_set_enabled(leases->refresh, SD_EVENT_ONESHOT);
}

static int on_refresh(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct leases *leases = userdata;
	int budget = REFRESH_PER_TURN;
	size_t i;

	(void)source;
	(void)usec;
	leases->round.turn_usec = leases_now_usec(leases);
	if (!leases->round.under_way)
		start_round(leases);
	for (i = next_of_round(leases); i != LEASE_NONE && budget-- > 0;
	     i = lease_waiting_next(&leases->table, i))
		tell_next(leases, i);
	if (i == LEASE_NONE)
		leases->round.under_way = false;
	if (i != LEASE_NONE || leases->round.again)
		wake_up(leases);
	return 0;
}

void leases_ask_refresh(struct leases *leases)
{
	int enabled = SD_EVENT_OFF;

	(void)sd_event_source_get_enabled(leases->refresh, &enabled);
	leases->round.again = leases->round.under_way || enabled != SD_EVENT_OFF;
	if (enabled == SD_EVENT_OFF)
		wake_up(leases);
}

/* ---------------------------------------------------------------- the end of a wait */

static int on_wait_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct holding *holding = userdata;
	struct leases *leases = holding->leases;
	struct lease_obstacle obstacle;
	uint64_t waited_usec = leases_now_usec(leases) - holding->asked_usec;

	(void)source;
	(void)usec;
	lease_obstacle(&leases->table, holding->index, &obstacle);
	leases->stats->leases_timed_out++;
	leases_refuse(holding, PROTO_TIMED_OUT,
		      json_pack("{s:I, s:s}", "waited_ms",
				(json_int_t)(waited_usec / USEC_PER_MSEC), "reason",
				obstacle.reason));
	leases_finish(holding, "timed out waiting");
	return 0;
}

void leases_refuse_busy(struct holding *holding)
{
	struct leases *leases = holding->leases;
	struct lease_obstacle obstacle;
	bool owned;

	lease_obstacle(&leases->table, holding->index, &obstacle);
	owned = obstacle.n_leases > 0;
	leases->stats->leases_refused++;
	leases_refuse(holding, PROTO_BUSY,
		      json_pack("{s:o, s:o, s:o, s:i}", "reason", varlink_text(obstacle.reason),
				"uid", owned ? json_integer(obstacle.uid) : json_null(), "leases",
				owned ? json_integer(obstacle.n_leases) : json_null(), "position",
				lease_position(&leases->table, holding->index)));
	leases_finish(holding, "refused: it would have to wait");
}

static size_t find_impatient(const struct leases *leases)
{
	const struct lease_table *table = &leases->table;

	for (size_t i = lease_waiting_first(table); i != LEASE_NONE;
	     i = lease_waiting_next(table, i))
		if (table->leases[i].state == LEASE_QUEUED && leases->holdings[i].impatient)
			return i;
	return LEASE_NONE;
}

void leases_refuse_impatient(struct leases *leases)
{
	size_t index;

	while (leases->n_impatient > 0 && (index = find_impatient(leases)) != LEASE_NONE)
		leases_refuse_busy(&leases->holdings[index]);
}

int leases_start_waiting(struct holding *holding, uint64_t wait_usec)
{
	struct leases *leases = holding->leases;

	if (holding->streaming)
		tell_waiter(holding, lease_position(&leases->table, holding->index));
	if (wait_usec == USEC_INFINITY)
		return 0;
	return sd_event_add_time_relative(leases->processes->event, &holding->timer,
					  CLOCK_MONOTONIC, wait_usec, WAIT_ACCURACY_USEC,
					  on_wait_over, holding);
}

int leases_wait_init(struct leases *leases)
{
	int r;

	r = sd_event_add_time(leases->processes->event, &leases->refresh, CLOCK_MONOTONIC, 0,
			      USEC_PER_MSEC, on_refresh, leases);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(leases->refresh, SD_EVENT_OFF);
}
