/* SPDX-License-Identifier: MIT */
/*
 * Draining leases: their holder is gone, or has given them back, and clients that came through them
 * are still attached. They hold a context on the GPU, so the lease keeps its place, and nobody else
 * is promised it. Nobody new gets in. After a grace time the stragglers are ended.
 */
#include <signal.h>

#include "leases_parts.h"
#include "rundir.h"
#include "text.h"
#include "util.h"

/* From SIGTERM to SIGKILL, and to the next: a process that hangs in the kernel may take long. */
#define KILL_AFTER_USEC (5 * USEC_PER_SEC)
#define ACCURACY_USEC (50 * USEC_PER_MSEC)
#define NAMED_MAX 16

static int on_grace_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct holding *holding = userdata;

	(void)usec;
	instance_signal_attached(leases_instance_of(holding), leases_lease_of(holding)->id,
				 holding->terminated ? SIGKILL : SIGTERM);
	holding->terminated = true;
	(void)sd_event_source_set_time_relative(source, KILL_AFTER_USEC);
	(void)sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
	return 0;
}

static void start_grace(struct holding *holding)
{
	struct leases *leases = holding->leases;
	int r;

	r = sd_event_add_time_relative(leases->processes->event, &holding->timer, CLOCK_MONOTONIC,
				       leases->config->timeouts.straggler_grace_usec, ACCURACY_USEC,
				       on_grace_over, holding);
	if (r < 0)
		leases_log(holding, "its stragglers will not be ended: out of memory");
}

bool leases_drain(struct holding *holding, const char *why)
{
	struct leases *leases = holding->leases;
	struct lease *lease = leases_lease_of(holding);
	struct instance *instance = leases_instance_of(holding);
	char directory[PIPE_DIRECTORY_MAX + 1], reason[REASON_SIZE];

	if (instance_attached(instance, lease->id, NULL, 0) == 0)
		return false;
	leases_let_go(holding);
	lease_drain(&leases->table, holding->index);
	leases->n_draining++;
	if (why != holding->why)
		(void)text_copy(holding->why, sizeof(holding->why), why);
	leases_directory(leases, lease, directory);
	rundir_close_lease(directory);
	instance_watch_attached(instance, lease->id);
	start_grace(holding);
	(void)leases_save(holding);
	leases_describe(leases, holding->index, reason);
	leases_emit(holding, "lease-draining", reason);
	return true;
}

static size_t find_drained(const struct leases *leases)
{
	for (size_t i = lease_first(&leases->table); i != LEASE_NONE;
	     i = lease_next(&leases->table, i)) {
		const struct lease *lease = &leases->table.leases[i];

		if (lease->state == LEASE_DRAINING &&
		    instance_attached(leases->instances[lease->place], lease->id, NULL, 0) == 0)
			return i;
	}
	return LEASE_NONE;
}

static int on_drained(sd_event_source *source, void *userdata)
{
	struct leases *leases = userdata;
	size_t index;

	(void)source;
	while (leases->n_draining > 0 && (index = find_drained(leases)) != LEASE_NONE)
		leases_finish(&leases->holdings[index], "its last client has left");
	return 0;
}

/* Not at once: this may be in the middle of a loss that others must be told of first. */
void leases_clients_left(struct leases *leases)
{
	if (leases->n_draining > 0)
		(void)sd_event_source_set_enabled(leases->drained, SD_EVENT_ONESHOT);
}

int leases_drain_init(struct leases *leases)
{
	int r;

	r = sd_event_add_defer(leases->processes->event, &leases->drained, on_drained, leases);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(leases->drained, SD_EVENT_OFF);
}

/* ---------------------------------------------------------------- in words */

static void name_stragglers(const struct instance *instance, const struct holding *holding,
			    char *reason)
{
	int32_t pids[NAMED_MAX];
	size_t n = instance_attached(instance, leases_lease_of(holding)->id, pids, NAMED_MAX);
	size_t length;

	(void)text_format(reason, REASON_SIZE, "%s; still attached: pid%s", holding->why,
			  n == 1 ? "" : "s");
	for (size_t i = 0; i < MIN(n, (size_t)NAMED_MAX); i++) {
		length = strlen(reason);
		(void)text_format(reason + length, REASON_SIZE - length, "%s%d", i > 0 ? ", " : " ",
				  pids[i]);
	}
	length = strlen(reason);
	if (n > NAMED_MAX)
		(void)text_format(reason + length, REASON_SIZE - length, " and %zu more",
				  n - NAMED_MAX);
}

/* Releases that do not name their clients leave that open. */
static bool is_unattached(const struct leases *leases, const struct instance *instance,
			  const struct holding *holding)
{
	uint64_t grace_usec = leases->config->timeouts.attach_grace_usec;

	return grace_usec > 0 && !instance->nameless && !instance->no_status &&
	       instance_attached(instance, leases_lease_of(holding)->id, NULL, 0) == 0 &&
	       leases_now_usec(leases) - holding->attached_usec >= grace_usec;
}

void leases_describe(const struct leases *leases, size_t index, char reason[static REASON_SIZE])
{
	const struct holding *holding = &leases->holdings[index];
	const struct lease *lease = leases_lease_of(holding);
	const struct instance *instance = leases_instance_of(holding);

	(void)text_copy(reason, REASON_SIZE, "");
	if (lease->state == LEASE_DRAINING)
		name_stragglers(instance, holding, reason);
	else if (is_unattached(leases, instance, holding))
		(void)text_copy(reason, REASON_SIZE, "no client attached");
}
