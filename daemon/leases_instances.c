/* SPDX-License-Identifier: MIT */
/* What happens to instances, as it matters to leases. */
#include <limits.h>

#include "journal.h"
#include "leases_parts.h"
#include "procinfo.h"
#include "proto.h"
#include "render.h"
#include "rundir.h"
#include "text.h"
#include "util.h"

void leases_renew(struct leases *leases, const struct instance *instance)
{
	struct journal_context context = {.instance = instance_uuid(instance)};
	size_t place = instance->setup.index;
	char directory[PIPE_DIRECTORY_MAX + 1];
	int r;

	(void)leases_update_access(leases, place);
	for (size_t i = lease_first(&leases->table); i != LEASE_NONE;
	     i = lease_next(&leases->table, i)) {
		const struct lease *lease = &leases->table.leases[i];

		if (lease->place != place)
			continue;
		leases_directory(leases, lease, directory);
		r = rundir_renew_lease(directory, instance->directory);
		context.lease = lease->id;
		if (r < 0)
			journal_log(LOG_ERR, &context, "cannot renew %s: %s", directory,
				    strerror(-r));
	}
}

json_t *leases_not_ready(const struct leases *leases, size_t place)
{
	const struct instance *instance = leases->instances[place];

	return json_pack("{s:s, s:s, s:o}", "instance", instance_uuid(instance), "state",
			 instance_state_to_string(instance->fsm.state), "reason",
			 render_text(instance->fsm.reason));
}

static size_t find_hopeless(const struct leases *leases, size_t *ret_place, char *reason)
{
	const struct lease_table *table = &leases->table;

	for (size_t i = table->queue_head; i != LEASE_NONE; i = table->leases[i].next)
		if (lease_is_hopeless(table, i, ret_place, reason))
			return i;
	return LEASE_NONE;
}

/* Nobody waits for what has failed for good. */
static void refuse_hopeless(struct leases *leases)
{
	char reason[REASON_SIZE];
	size_t index, place;

	while ((index = find_hopeless(leases, &place, reason)) != LEASE_NONE) {
		struct holding *holding = &leases->holdings[index];

		leases->stats->leases_refused++;
		leases_refuse(holding, PROTO_NOT_READY, leases_not_ready(leases, place));
		leases_finish(holding, reason);
	}
}

void leases_place_changed(struct leases *leases, struct instance *instance)
{
	struct lease_place *place = &leases->table.places[instance->setup.index];
	const struct instance_fsm *fsm = &instance->fsm;

	place->open = fsm->state == INSTANCE_READY;
	place->failed = fsm->state == INSTANCE_FAILED;
	(void)text_format(place->closed_reason, sizeof(place->closed_reason), "%.48s is %s%s%.120s",
			  instance_uuid(instance), instance_state_to_string(fsm->state),
			  fsm->reason[0] ? ": " : "", fsm->reason);
	if (place->failed)
		refuse_hopeless(leases);
	leases_dispatch(leases);
	leases_ask_refresh(leases);
}

static bool is_hit(const struct instance_death *death, const char *id)
{
	for (size_t i = 0; i < death->hits.n_leases; i++)
		if (streq(death->hits.leases[i], id))
			return true;
	return death->what != INSTANCE_LOSS_FAULT;
}

static json_t *render_interruption(const struct leases *leases, const struct lease *lease,
				   const struct instance_death *death)
{
	const struct instance *instance = leases->instances[lease->place];

	return render_event(&(struct event){
		.kind = "interrupted",
		.instance = instance_uuid(instance),
		.lease = lease->id,
		.pid = lease->request.pid,
		.has_uid = true,
		.uid = lease->request.uid,
		.generation = instance->fsm.generation,
		.cause = instance_loss_to_string(death->what),
		.hits = &death->hits,
		.message = death->reason,
	});
}

static void interrupt(struct holding *holding, const struct instance_death *death)
{
	struct leases *leases = holding->leases;

	leases->stats->interruptions++;
	leases_log(holding, death->reason);
	if (holding->streaming)
		leases_tell(holding, "interrupted",
			    render_interruption(leases, leases_lease_of(holding), death), true);
}

void leases_tell_ahead(struct holding *holding)
{
	const struct lease *lease = leases_lease_of(holding);
	const struct instance *instance = holding->leases->instances[lease->place];
	bool wedged = instance->fsm.wedged;

	if (!holding->streaming || !instance_fsm_is_forced(&instance->fsm))
		return;
	leases_tell(holding, "interrupted",
		    render_event(&(struct event){
			    .kind = "interrupted",
			    .instance = instance_uuid(instance),
			    .lease = lease->id,
			    .pid = lease->request.pid,
			    .has_uid = true,
			    .uid = lease->request.uid,
			    .generation = instance->fsm.generation + 1,
			    .cause = instance_loss_to_string(wedged ? INSTANCE_LOSS_WEDGE
								    : INSTANCE_LOSS_CONTROL),
			    .message = instance->fsm.reason,
		    }),
		    true);
}

/* When a daemon or a server is lost, every lease is hit: what used the GPU under it has lost it. */
static void add_hit_leases(const struct leases *leases, size_t place, struct instance_death *death)
{
	struct instance_hits *hits = &death->hits;

	if (death->what == INSTANCE_LOSS_FAULT)
		return;
	hits->n_leases = 0;
	for (size_t i = lease_first(&leases->table);
	     i != LEASE_NONE && hits->n_leases < INSTANCE_HITS_MAX;
	     i = lease_next(&leases->table, i))
		if (leases->table.leases[i].place == place)
			(void)text_copy(hits->leases[hits->n_leases++], LEASE_ID_SIZE,
					leases->table.leases[i].id);
}

void leases_interrupt(struct leases *leases, const struct instance *instance,
		      struct instance_death *death)
{
	size_t place = instance->setup.index;
	size_t next;

	add_hit_leases(leases, place, death);

	events_emit(leases->events, &(struct event){
					    .kind = "interrupted",
					    .instance = instance_uuid(instance),
					    .generation = instance->fsm.generation,
					    .cause = instance_loss_to_string(death->what),
					    .hits = &death->hits,
					    .message = death->reason,
				    });
	for (size_t i = lease_first(&leases->table); i != LEASE_NONE; i = next) {
		const struct lease *lease = &leases->table.leases[i];

		if (lease->place == place && is_hit(death, lease->id))
			interrupt(&leases->holdings[i], death);
		next = lease_next(&leases->table, i);
	}
}

/* A path is what the process says, and nothing is looked up by it: that could block for as long as
 * its file system likes. */
void leases_identify(const struct leases *leases, const struct instance *instance, pid_t pid,
		     char ret_id[static LEASE_ID_SIZE])
{
	char directory[PIPE_DIRECTORY_MAX + 1], path[PATH_MAX];
	struct procinfo info;

	if (procinfo_read(pid, &info) < 0 ||
	    procinfo_environment(pid, "CUDA_MPS_PIPE_DIRECTORY", path, sizeof(path)) < 0)
		return;
	for (size_t i = lease_first(&leases->table); i != LEASE_NONE;
	     i = lease_next(&leases->table, i)) {
		const struct lease *lease = &leases->table.leases[i];

		leases_directory(leases, lease, directory);
		if (lease->place == instance->setup.index && streq(directory, path) &&
		    (info.uid == lease->request.uid || info.uid == 0)) {
			(void)text_copy(ret_id, LEASE_ID_SIZE, lease->id);
			return;
		}
	}
}
