/* SPDX-License-Identifier: MIT */
/* What happens to instances, as it matters to leases. */
#include <limits.h>

#include "journal.h"
#include "leases_parts.h"
#include "procinfo.h"
#include "proto.h"
#include "rundir.h"
#include "text.h"
#include "util.h"
#include "varlink.h"

void leases_renew(struct leases *leases, const struct instance *instance)
{
	struct journal_context context = {.instance = instance_name(instance)};
	size_t place = instance->setup.index;
	char directory[PIPE_DIRECTORY_MAX + 1];
	int r;

	(void)leases_update_access(leases, place, true);
	for (size_t i = lease_place_first(&leases->table, place); i != LEASE_NONE;
	     i = lease_place_next(&leases->table, i)) {
		const struct lease *lease = &leases->table.leases[i];

		if (lease->state != LEASE_GRANTED)
			continue;
		leases_directory(leases, lease, directory);
		r = rundir_renew_lease(directory, instance->directory);
		context.lease = lease->id;
		if (r < 0)
			journal_log(LOG_ERR, &context, "cannot renew %s: %s", directory,
				    strerror(-r));
	}
}

const char *leases_no_hope(const struct leases *leases, size_t place)
{
	return leases->table.places[place].held ? PROTO_HELD : PROTO_NOT_READY;
}

json_t *leases_not_ready(const struct leases *leases, size_t place)
{
	const struct instance *instance = leases->instances[place];

	if (leases->table.places[place].held)
		return json_pack("{s:s}", "instance", instance_name(instance));
	if (!instance)
		return json_pack("{s:s, s:s, s:o}", "instance", "gang", "state", "failed", "reason",
				 varlink_text(leases->table.places[place].closed_reason));
	return json_pack("{s:s, s:s, s:o}", "instance", instance_name(instance), "state",
			 instance_state_to_string(instance->fsm.state), "reason",
			 varlink_text(instance->fsm.reason));
}

static size_t find_hopeless(const struct leases *leases, size_t *ret_place, char *reason)
{
	const struct lease_table *table = &leases->table;

	for (size_t i = lease_waiting_first(table); i != LEASE_NONE;
	     i = lease_waiting_next(table, i))
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
		leases_refuse(holding, leases_no_hope(leases, place),
			      leases_not_ready(leases, place));
		leases_finish(holding, reason);
	}
}

static void prepare_again(struct leases *leases, size_t index)
{
	const struct lease_place *place = &leases->table.places[index];

	/* It opened, and who waits for it was not granted: it has a server of somebody else. */
	if (place->open && place->n_assigned > 0 && !leases->closed)
		leases->handlers->prepare(index, leases->userdata);
}

void leases_place_changed(struct leases *leases, struct instance *instance)
{
	struct lease_place *place = &leases->table.places[instance->setup.index];
	const struct instance_fsm *fsm = &instance->fsm;

	place->multi_user = instance->setup.multi_user;
	place->open = fsm->state == INSTANCE_READY && !place->ending;
	place->failed = fsm->state == INSTANCE_FAILED;
	place->silent = fsm->state == INSTANCE_UNRESPONSIVE;
	(void)text_format(place->closed_reason, sizeof(place->closed_reason), "%.48s is %s%s%.120s",
			  instance_name(instance), instance_state_to_string(fsm->state),
			  fsm->reason[0] ? ": " : "", fsm->reason);
	if (place->failed)
		refuse_hopeless(leases);
	leases_dispatch(leases);
	if (place->failed)
		leases_update_use(leases, instance->setup.index);
	prepare_again(leases, instance->setup.index);
	leases_ask_refresh(leases);
}

void leases_hold(struct leases *leases, size_t place, bool held)
{
	lease_hold(&leases->table, place, held);
	if (held)
		refuse_hopeless(leases);
	leases_dispatch(leases);
	leases_update_use(leases, place);
	leases_ask_refresh(leases);
}

void leases_servers_changed(struct leases *leases, struct instance *instance)
{
	struct lease_place *place = &leases->table.places[instance->setup.index];

	place->has_server = instance_has_server(instance, &place->server_uid);
	if (place->n_assigned > 0)
		leases_dispatch(leases);
}

void leases_answered(struct leases *leases, struct instance *instance)
{
	size_t place = instance->setup.index;

	lease_prove(&leases->table, place);
	if (leases->table.places[place].n_assigned > 0)
		leases_dispatch(leases);
}

void leases_gang_gone(struct leases *leases, size_t place)
{
	lease_gang_gone(&leases->table, place);
	leases->access[place] = (struct leases_access){};
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

/* What the holder cannot be told now, it is told when it comes back. Whom it does not concern need
 * never be. */
static void interrupt(struct holding *holding, const struct instance_death *death)
{
	struct event event = leases_event(holding, "interrupted", death->reason);

	holding->leases->stats->interruptions++;
	leases_log(holding, death->reason);
	if (!holding->streaming || !holding->answering)
		return;
	event.generation = leases_instance_of(holding)->fsm.generation;
	event.cause = instance_loss_to_string(death->what);
	event.hits = &death->hits;
	leases_tell(holding, "interrupted", &event, true);
	holding->told_generation = event.generation;
	(void)leases_save(holding);
}

static void pass_over(struct holding *holding)
{
	holding->told_generation = leases_instance_of(holding)->fsm.generation;
	(void)leases_save(holding);
}

void leases_tell_late(struct holding *holding)
{
	struct instance *instance = leases_instance_of(holding);
	struct instance_death unknown = {.what = INSTANCE_LOSS_CONTROL};

	/* Of a fault that settles still all are told together. */
	if (holding->told_generation + instance->fsm.untold >= instance->fsm.generation)
		return;
	(void)text_copy(unknown.reason, sizeof(unknown.reason), "lost while nobody could be told");
	interrupt(holding, instance->n_deaths > 0 ? instance_last_death(instance) : &unknown);
}

void leases_tell_ahead(struct holding *holding)
{
	const struct instance_fsm *fsm = &leases_instance_of(holding)->fsm;
	struct event event = leases_event(holding, "interrupted", fsm->reason);

	if (!holding->streaming || !instance_fsm_is_forced(fsm))
		return;
	event.generation = fsm->generation + 1;
	event.cause =
		instance_loss_to_string(fsm->wedged ? INSTANCE_LOSS_WEDGE : INSTANCE_LOSS_CONTROL);
	leases_tell(holding, "interrupted", &event, true);
}

/* When a daemon or a server is lost, every lease is hit: what used the GPU under it has lost it. */
void leases_name_hit(const struct leases *leases, const struct instance *instance,
		     struct instance_death *death)
{
	struct instance_hits *hits = &death->hits;
	size_t place = instance->setup.index;

	if (death->what == INSTANCE_LOSS_FAULT)
		return;
	hits->n_leases = 0;
	for (size_t i = lease_place_first(&leases->table, place);
	     i != LEASE_NONE && hits->n_leases < INSTANCE_HITS_MAX;
	     i = lease_place_next(&leases->table, i))
		if (!lease_is_waiting(&leases->table.leases[i]))
			(void)text_copy(hits->leases[hits->n_leases++], LEASE_ID_SIZE,
					leases->table.leases[i].id);
}

void leases_interrupt(struct leases *leases, const struct instance *instance,
		      const struct instance_death *death)
{
	size_t place = instance->setup.index;
	size_t next;

	events_emit(leases->events, &(struct event){
					    .kind = "interrupted",
					    .instance = instance_name(instance),
					    .generation = instance->fsm.generation,
					    .cause = instance_loss_to_string(death->what),
					    .hits = &death->hits,
					    .message = death->reason,
				    });
	for (size_t i = lease_place_first(&leases->table, place); i != LEASE_NONE; i = next) {
		const struct lease *lease = &leases->table.leases[i];

		next = lease_place_next(&leases->table, i);
		if (lease_is_waiting(lease))
			continue;
		if (is_hit(death, lease->id))
			interrupt(&leases->holdings[i], death);
		else
			pass_over(&leases->holdings[i]);
	}
}

/* What the path is below `directory`, which the other must begin with: the lease; LEASE_NONE. */
static size_t find_below(const struct leases *leases, const char *directory, const char *path)
{
	static const char middle[] = "/lease/";
	size_t length = strlen(directory);

	if (strncmp(path, directory, length) != 0 || !text_starts_with(path + length, middle))
		return LEASE_NONE;
	return lease_find(&leases->table, path + length + strlen(middle));
}

/* A container mounts the directory anywhere. Nothing is looked up by the path, which is what the
 * process says: that could block for as long as its file system likes. The kernel's list of its
 * mounts says what the path names. */
static size_t find_mounted(const struct leases *leases, pid_t pid, const char *path)
{
	_cleanup_free_ char *mountinfo = NULL;
	struct mounts_location location;

	if (!leases->located || procinfo_mounts(pid, &mountinfo) < 0 ||
	    mounts_locate(mountinfo, path, &location) < 0 ||
	    location.major != leases->location.major || location.minor != leases->location.minor)
		return LEASE_NONE;
	return find_below(leases, leases->location.path, location.path);
}

/* Its own user, also of one that nobody may look into: /proc shows that as root's. */
static bool runs_as(pid_t pid, const struct procinfo *info, uid_t uid)
{
	uid_t real;

	if (info->uid != 0)
		return info->uid == uid;
	return procinfo_real_uid(pid, &real) == 0 && (real == uid || real == 0);
}

void leases_identify(struct leases *leases, struct instance *instance, pid_t pid,
		     char ret_id[static LEASE_ID_SIZE])
{
	const struct lease *lease;
	struct procinfo info;
	char path[PATH_MAX];
	size_t i, length;

	if (procinfo_read(pid, &info) < 0 ||
	    procinfo_environment(pid, "CUDA_MPS_PIPE_DIRECTORY", path, sizeof(path)) < 0)
		return;
	for (length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
		path[length - 1] = '\0';
	i = LEASE_NONE;
	if (procinfo_shares_mounts(pid))
		i = find_below(leases, leases->runtime_directory, path);
	if (i == LEASE_NONE)
		i = find_mounted(leases, pid, path);
	if (i == LEASE_NONE)
		return;
	lease = &leases->table.leases[i];
	if (lease->place != instance->setup.index || lease_is_waiting(lease) ||
	    !runs_as(pid, &info, lease->request.uid))
		return;
	(void)text_copy(ret_id, LEASE_ID_SIZE, lease->id);
	leases->holdings[i].attached_usec = leases_now_usec(leases);
	/* One that got in while the lease began to drain. */
	if (lease->state == LEASE_DRAINING)
		instance_watch_attached(instance, lease->id);
}
