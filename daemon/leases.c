/* SPDX-License-Identifier: MIT */
#include "leases.h"

#include "journal.h"
#include "leases_parts.h"
#include "procinfo.h"
#include "proto.h"
#include "rundir.h"
#include "text.h"
#include "util.h"

struct lease *leases_lease_of(const struct holding *holding)
{
	return &holding->leases->table.leases[holding->index];
}

struct instance *leases_instance_of(const struct holding *holding)
{
	return holding->leases->instances[leases_lease_of(holding)->place];
}

uint64_t leases_now_usec(const struct leases *leases)
{
	uint64_t usec;

	if (sd_event_now(leases->processes->event, CLOCK_MONOTONIC, &usec) < 0)
		usec = clock_usec(CLOCK_MONOTONIC);
	return usec;
}

void leases_directory(const struct leases *leases, const struct lease *lease,
		      char ret[static PIPE_DIRECTORY_MAX + 1])
{
	(void)text_format(ret, PIPE_DIRECTORY_MAX + 1, "%s/lease/%s", leases->runtime_directory,
			  lease->id);
}

/* ---------------------------------------------------------------- who may traverse where */

/* One uid, or none, is what most places have most of the time: that need not be set again. */
static bool is_known(const struct leases_access *access, const uid_t *uids, size_t n)
{
	return access->known && access->n == n && (n == 0 || access->uid == uids[0]);
}

int leases_update_access(struct leases *leases, size_t place, bool anew)
{
	const struct instance *instance = leases->instances[place];
	struct leases_access *access = &leases->access[place];
	struct journal_context context = {.instance = instance_name(instance)};
	uid_t uids[LEASE_PLACE_UIDS_MAX];
	size_t n = lease_place_uids(&leases->table, place, uids, ELEMENTSOF(uids));
	int r;

	if (!anew && is_known(access, uids, n))
		return 0;
	r = rundir_set_access(instance->directory, uids, n);
	*access = (struct leases_access){
		.known = r == 0 && n <= 1, .n = n, .uid = n > 0 ? uids[0] : 0};
	if (r < 0 && r != -ENOENT)
		journal_log(LOG_ERR, &context, "cannot set the access list of %s: %s",
			    instance->directory, strerror(-r));
	return r;
}

void leases_update_use(struct leases *leases, size_t place)
{
	instance_set_occupied(leases->instances[place], leases->table.places[place].n_leases > 0);
}

static int update_place(struct leases *leases, size_t place)
{
	leases_update_use(leases, place);
	return leases_update_access(leases, place, false);
}

/* ---------------------------------------------------------------- the life of a holding */

void leases_unlink(struct holding *holding)
{
	if (!holding->connection)
		return;
	if (holding->previous)
		holding->previous->next = holding->next;
	else
		holding->connection->holdings = holding->next;
	if (holding->next)
		holding->next->previous = holding->previous;
	holding->next = holding->previous = NULL;
	holding->connection = NULL;
}

void leases_link(struct holding *holding, struct connection *connection)
{
	holding->connection = connection;
	holding->next = connection->holdings;
	if (holding->next)
		holding->next->previous = holding;
	connection->holdings = holding;
}

void leases_let_go(struct holding *holding)
{
	leases_unlink(holding);
	holding->answering = false;
	process_unwatch(&holding->holder);
	holding->timer = sd_event_source_disable_unref(holding->timer);
}

void leases_finish(struct holding *holding, const char *message)
{
	struct leases *leases = holding->leases;
	struct lease *lease = leases_lease_of(holding);
	bool was_granted = !lease_is_waiting(lease);
	size_t index = holding->index, place = lease->place;
	char directory[PIPE_DIRECTORY_MAX + 1];

	leases_emit(holding, was_granted ? "lease-ended" : "request-ended", message);
	leases_directory(leases, lease, directory);
	leases->n_draining -= lease->state == LEASE_DRAINING;
	leases_let_go(holding);
	leases->n_impatient -= holding->impatient;
	if (was_granted)
		leases_forget(leases, lease);
	*holding = (struct holding){.holder = PROCESS_INIT};
	lease_end(&leases->table, index);
	if (was_granted) {
		leases->stats->leases_ended++;
		rundir_remove_lease(directory);
	}
	if (place != LEASE_NONE && leases->instances[place])
		(void)update_place(leases, place);
	leases_dispatch(leases);
	leases_ask_refresh(leases);
}

void leases_let_end(struct holding *holding, const char *why)
{
	const struct lease *lease = leases_lease_of(holding);

	if (lease->state == LEASE_GRANTED && !holding->leases->closed && leases_drain(holding, why))
		return;
	/* Once more released, or its gone holder's connection: it drains already. */
	if (lease->state == LEASE_DRAINING && !holding->leases->closed)
		return;
	leases_finish(holding, why);
}

void leases_end(struct leases *leases, size_t index, const char *why)
{
	struct holding *holding = &leases->holdings[index];
	struct event event = leases_event(holding, "revoked", why);

	if (lease_is_waiting(leases_lease_of(holding)) && leases->closed)
		leases_refuse(holding, PROTO_SHUTTING_DOWN, NULL);
	else
		leases_tell(holding, "revoked", &event, false);
	leases_let_end(holding, why);
}

static void on_holder_exit(struct process *process, int status, void *userdata)
{
	struct holding *holding = userdata;
	struct leases *leases = holding->leases;

	(void)process;
	(void)status;
	if (!lease_is_waiting(leases_lease_of(holding))) {
		instance_catch_up(leases_instance_of(holding));
		/* Nobody gets the place of who died with the daemon: its end is told next. */
		if (instance_control_is_ending(leases_instance_of(holding)))
			leases->table.places[leases_lease_of(holding)->place].open = false;
		leases_tell_ahead(holding);
	}
	leases_end(leases, holding->index, "its process has ended");
}

int leases_watch_holder(struct holding *holding, pid_t pid, int pidfd)
{
	struct procinfo info;
	int r;

	r = process_watch(&holding->holder, holding->leases->processes, pid, pidfd, on_holder_exit,
			  holding);
	if (r < 0)
		return r;
	process_set_priority(&holding->holder, PRIORITY_HOLDER);
	/* One that has ended just now: its pidfd tells. */
	if (procinfo_read(pid, &info) == 0)
		holding->start_ticks = info.start_ticks;
	return 0;
}

/* ---------------------------------------------------------------- granting */

static int make_true(struct holding *holding)
{
	struct leases *leases = holding->leases;
	const struct lease *lease = leases_lease_of(holding);
	char directory[PIPE_DIRECTORY_MAX + 1];
	int r;

	r = update_place(leases, lease->place);
	if (r < 0)
		return r;
	leases_directory(leases, lease, directory);
	r = rundir_make_lease(directory, leases_instance_of(holding)->directory,
			      lease->request.uid);
	if (r < 0)
		return r;
	holding->told_generation = leases_instance_of(holding)->fsm.generation;
	(void)leases_save(holding);
	return 0;
}

static void grant(struct holding *holding)
{
	struct leases *leases = holding->leases;
	struct instance *instance = leases_instance_of(holding);
	uint32_t uid = leases_lease_of(holding)->request.uid;
	int r;

	holding->timer = sd_event_source_disable_unref(holding->timer);
	leases->n_impatient -= holding->impatient;
	holding->impatient = false;
	r = make_true(holding);
	if (r < 0) {
		leases->stats->leases_refused++;
		leases_refuse(holding, PROTO_NOT_READY,
			      json_pack("{s:s, s:s, s:s+%}", "instance", instance_name(instance),
					"state", instance_state_to_string(instance->fsm.state),
					"reason", "cannot make the lease's directory: ",
					strerror(-r), strlen(strerror(-r))));
		leases_finish(holding, "its directory could not be made");
		return;
	}
	leases->stats->leases_granted++;
	holding->attached_usec = leases_now_usec(leases);
	leases_emit(holding, "lease-granted", "granted");
	leases_tell(holding, "granted", NULL, holding->streaming);
	if (leases->config->prestart)
		instance_prestart(instance, uid);
}

/* It has its place, and waits for that to be made ready. */
static void prepare(struct holding *holding)
{
	struct leases *leases = holding->leases;
	size_t place = leases_lease_of(holding)->place;

	leases->handlers->prepare(place, leases->userdata);
	/* Its instance may have failed already, and all who wait for it been refused. */
	if (!holding->leases || leases_lease_of(holding)->state != LEASE_ASSIGNED)
		return;
	if (leases->table.places[place].failed) {
		leases->stats->leases_refused++;
		leases_refuse(holding, PROTO_NOT_READY, leases_not_ready(leases, place));
		leases_finish(holding, leases->table.places[place].closed_reason);
	} else {
		instance_set_occupied(leases->instances[place], true);
	}
}

void leases_end_gangs(struct leases *leases)
{
	size_t place;

	while ((place = lease_gang_unneeded(&leases->table)) != LEASE_NONE)
		leases->handlers->end_gang(place, leases->userdata);
}

/* A grant that fails ends its lease, which asks for this again: that is done here, not deeper. */
void leases_dispatch(struct leases *leases)
{
	size_t index;
	int r;

	if (leases->dispatching)
		return;
	leases->dispatching = true;
	while (!leases->closed && (r = lease_grant_next(&leases->table, clock_usec(CLOCK_REALTIME),
							&index)) != LEASE_NOBODY) {
		if (r == LEASE_PREPARE)
			prepare(&leases->holdings[index]);
		else
			grant(&leases->holdings[index]);
	}
	if (!leases->closed) {
		leases_refuse_impatient(leases);
		leases_end_gangs(leases);
	}
	leases->dispatching = false;
}

/* ---------------------------------------------------------------- what happens around them */

/* Those with clients stay, and drain. */
static size_t find_granted(const struct leases *leases, size_t place)
{
	size_t i = lease_place_first(&leases->table, place);

	while (i != LEASE_NONE && leases->table.leases[i].state != LEASE_GRANTED)
		i = lease_place_next(&leases->table, i);
	return i;
}

static void end_all_of(struct leases *leases, size_t place, const char *why)
{
	size_t i;

	while ((i = find_granted(leases, place)) != LEASE_NONE)
		leases_end(leases, i, why);
}

void leases_end_all(struct leases *leases, size_t device, const char *why)
{
	size_t gang = leases->table.places[device].gang;

	end_all_of(leases, device, why);
	if (gang != LEASE_NONE)
		end_all_of(leases, gang, why);
}

static void end_with_connection(struct holding *holding)
{
	instance_catch_up(leases_instance_of(holding));
	leases_let_end(holding, "its connection has ended");
}

void leases_connection_ended(struct leases *leases, struct connection *connection)
{
	while (connection->holdings) {
		struct holding *holding = connection->holdings;
		const struct lease *lease = leases_lease_of(holding);

		leases_unlink(holding);
		holding->answering = false;
		if (leases->left)
			continue;
		if (lease_is_waiting(lease))
			leases_finish(holding, "gave up waiting");
		else if (lease->request.bind == LEASE_BIND_CONNECTION)
			end_with_connection(holding);
	}
}

void leases_close(struct leases *leases, const char *why)
{
	size_t next;

	leases->closed = true;
	for (size_t i = lease_first(&leases->table); i != LEASE_NONE; i = next) {
		leases_end(leases, i, why);
		next = lease_next(&leases->table, i);
	}
}

/* ---------------------------------------------------------------- beginning and end */

struct lease_rules leases_rules(const struct config *config)
{
	return (struct lease_rules){
		.pack = config->placement == CONFIG_PLACEMENT_PACK,
		.oversubscribe_threads = config->oversubscribe_threads,
		.prove = true,
		.max_per_user = config->access.max_leases_per_user,
	};
}

/* Where the runtime directory really is, to know it again through other mounts. */
static void locate(struct leases *leases)
{
	_cleanup_free_ char *path = realpath(leases->runtime_directory, NULL);
	_cleanup_free_ char *mountinfo = NULL;

	leases->located = path && procinfo_mounts(getpid(), &mountinfo) == 0 &&
			  mounts_locate(mountinfo, path, &leases->location) == 0;
	if (!leases->located)
		log_warning("cannot find out where %s is mounted; clients in containers that mount "
			    "a lease's directory at another path are not told apart",
			    leases->runtime_directory);
}

int leases_init(struct leases *leases, const struct leases_setup *setup)
{
	struct lease_rules rules = leases_rules(setup->config);
	int r;

	*leases = (struct leases){
		.processes = setup->processes,
		.stats = setup->stats,
		.events = setup->events,
		.instances = setup->instances,
		.config = setup->config,
		.handlers = setup->handlers,
		.userdata = setup->userdata,
		.storage = calloc(LEASES_MAX, sizeof(struct lease)),
		.holdings = calloc(LEASES_MAX, sizeof(struct holding)),
	};
	if (!leases->storage || !leases->holdings)
		return -ENOMEM;
	lease_table_init(&leases->table, leases->storage, &rules);
	r = text_copy(leases->runtime_directory, sizeof(leases->runtime_directory),
		      setup->config->runtime_directory);
	if (r == 0)
		r = leases_wait_init(leases);
	if (r == 0)
		r = leases_drain_init(leases);
	if (r == 0)
		locate(leases);
	return r;
}

/* Only what is in memory. */
static void abandon(struct leases *leases)
{
	for (size_t i = lease_first(&leases->table); i != LEASE_NONE;
	     i = lease_next(&leases->table, i))
		leases_let_go(&leases->holdings[i]);
}

void leases_done(struct leases *leases)
{
	leases->closed = true;
	if (leases->left)
		abandon(leases);
	else if (leases->storage && leases->holdings)
		for (size_t i; (i = lease_first(&leases->table)) != LEASE_NONE;)
			leases_finish(&leases->holdings[i], "the supervisor ends");
	leases->refresh = sd_event_source_disable_unref(leases->refresh);
	leases->drained = sd_event_source_disable_unref(leases->drained);
	free(TAKE_PTR(leases->storage));
	free(TAKE_PTR(leases->holdings));
}
