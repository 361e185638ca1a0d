/* SPDX-License-Identifier: MIT */
#include "leases.h"

#include <sys/random.h>

#include "journal.h"
#include "leases_parts.h"
#include "proto.h"
#include "render.h"
#include "rundir.h"
#include "text.h"
#include "util.h"

/* A wait may end this much late, so that timers can share a wake-up. */
#define REFRESH_PER_TURN 32
#define WAIT_ACCURACY_USEC (10 * USEC_PER_MSEC)

struct lease *leases_lease_of(const struct holding *holding)
{
	return &holding->leases->table.leases[holding->index];
}

static struct instance *instance_of(const struct holding *holding)
{
	return holding->leases->instances[leases_lease_of(holding)->place];
}

static uint64_t monotonic_usec(const struct leases *leases)
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

/* ---------------------------------------------------------------- answers and events */

static const char *instance_name_of(const struct holding *holding)
{
	return leases_lease_of(holding)->place == LEASE_NONE ? NULL
							     : instance_uuid(instance_of(holding));
}

void leases_log(const struct holding *holding, const char *message)
{
	const struct lease *lease = leases_lease_of(holding);
	struct journal_context context = {
		.instance = instance_name_of(holding),
		.lease = lease->id,
		.pid = lease->request.pid,
	};

	journal_log(LOG_INFO, &context, "lease %s of uid %u: %s", lease->id, lease->request.uid,
		    message);
}

static void emit(const struct holding *holding, const char *kind, const char *message)
{
	const struct lease *lease = leases_lease_of(holding);

	leases_log(holding, message);
	events_emit(holding->leases->events, &(struct event){
						     .kind = kind,
						     .instance = instance_name_of(holding),
						     .lease = lease->id,
						     .pid = lease->request.pid,
						     .has_uid = true,
						     .uid = lease->request.uid,
						     .message = message,
					     });
}

/* A lease that is waited for or held; event may be NULL and is taken over. */
void leases_tell(struct holding *holding, const char *what, json_t *event, bool continues)
{
	json_t *reply;

	if (!holding->answering || !holding->connection) {
		json_decref(event);
		return;
	}
	reply = json_pack("{s:s, s:o, s:o*}", "what", what, "lease",
			  render_lease(holding->leases, holding->index), "event", event);
	if (!continues)
		holding->answering = false;
	connection_reply(holding->connection, reply, continues);
}

void leases_refuse(struct holding *holding, const char *error, json_t *parameters)
{
	if (!holding->answering || !holding->connection) {
		json_decref(parameters);
		return;
	}
	holding->answering = false;
	connection_error(holding->connection, error, parameters);
}

/* ---------------------------------------------------------------- who may traverse where */

int leases_update_access(struct leases *leases, size_t place)
{
	const struct instance *instance = leases->instances[place];
	struct journal_context context = {.instance = instance_uuid(instance)};
	const struct lease_table *table = &leases->table;
	uid_t uids[LEASE_PLACE_UIDS_MAX];
	size_t n = lease_place_uids(table, place, uids, ELEMENTSOF(uids));
	int r;

	r = rundir_set_access(instance->directory, uids, n);
	if (r < 0 && r != -ENOENT)
		journal_log(LOG_ERR, &context, "cannot set the access list of %s: %s",
			    instance->directory, strerror(-r));
	return r;
}

static int update_place(struct leases *leases, size_t place)
{
	instance_set_occupied(leases->instances[place], leases->table.places[place].n_leases > 0);
	return leases_update_access(leases, place);
}

/* ---------------------------------------------------------------- the life of a holding */

static void unlink_holding(struct holding *holding)
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

static void link_holding(struct holding *holding, struct connection *connection)
{
	holding->connection = connection;
	holding->next = connection->holdings;
	if (holding->next)
		holding->next->previous = holding;
	connection->holdings = holding;
}

void leases_ask_refresh(struct leases *leases)
{
	(void)sd_event_source_set_enabled(leases->refresh, SD_EVENT_ONESHOT);
}

/* Takes the lease out of the table and everything of it away. */
void leases_finish(struct holding *holding, const char *message)
{
	struct leases *leases = holding->leases;
	struct lease *lease = leases_lease_of(holding);
	size_t index = holding->index, place = lease->place;
	char directory[PIPE_DIRECTORY_MAX + 1];

	emit(holding, place == LEASE_NONE ? "request-ended" : "lease-ended", message);
	leases_directory(leases, lease, directory);
	unlink_holding(holding);
	process_unwatch(&holding->holder);
	sd_event_source_disable_unref(holding->timer);
	*holding = (struct holding){.holder = PROCESS_INIT};
	lease_end(&leases->table, index);
	if (place != LEASE_NONE) {
		leases->stats->leases_ended++;
		rundir_remove_lease(directory);
		(void)update_place(leases, place);
	}
	leases_dispatch(leases);
	leases_ask_refresh(leases);
}

void leases_end(struct leases *leases, size_t index, const char *why)
{
	struct holding *holding = &leases->holdings[index];
	const struct lease *lease = leases_lease_of(holding);

	if (lease->state == LEASE_QUEUED && leases->closed)
		leases_refuse(holding, PROTO_SHUTTING_DOWN, NULL);
	else
		leases_tell(holding, "revoked",
			    render_event(&(struct event){
				    .kind = "revoked",
				    .instance = instance_name_of(holding),
				    .lease = lease->id,
				    .pid = lease->request.pid,
				    .has_uid = true,
				    .uid = lease->request.uid,
				    .message = why,
			    }),
			    false);
	leases_finish(holding, why);
}

static void on_holder_exit(struct process *process, int status, void *userdata)
{
	struct holding *holding = userdata;
	struct leases *leases = holding->leases;

	(void)process;
	(void)status;
	if (leases_lease_of(holding)->state != LEASE_QUEUED) {
		instance_catch_up(instance_of(holding));
		leases_tell_ahead(holding);
	}
	leases_end(leases, holding->index, "its process has ended");
}

static int on_wait_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct holding *holding = userdata;
	struct leases *leases = holding->leases;
	struct lease_obstacle obstacle;
	uint64_t waited_usec = monotonic_usec(leases) - holding->asked_usec;

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
	return rundir_make_lease(directory, instance_of(holding)->directory, lease->request.uid);
}

static void grant(struct holding *holding)
{
	struct leases *leases = holding->leases;
	struct instance *instance = instance_of(holding);
	uint32_t uid = leases_lease_of(holding)->request.uid;
	int r;

	holding->timer = sd_event_source_disable_unref(holding->timer);
	r = make_true(holding);
	if (r < 0) {
		leases->stats->leases_refused++;
		leases_refuse(holding, PROTO_NOT_READY,
			      json_pack("{s:s, s:s, s:s+%}", "instance", instance_uuid(instance),
					"state", instance_state_to_string(instance->fsm.state),
					"reason", "cannot make the lease's directory: ",
					strerror(-r), strlen(strerror(-r))));
		leases_finish(holding, "its directory could not be made");
		return;
	}
	leases->stats->leases_granted++;
	emit(holding, "lease-granted", "granted");
	leases_tell(holding, "granted", NULL, holding->streaming);
	if (leases->config->prestart)
		instance_prestart(instance, uid);
}

/* A grant that fails ends its lease, which asks for this again: that is done here, not deeper. */
void leases_dispatch(struct leases *leases)
{
	size_t index;

	if (leases->dispatching)
		return;
	leases->dispatching = true;
	while (!leases->closed &&
	       lease_grant_next(&leases->table, clock_usec(CLOCK_REALTIME), &index) == 0)
		grant(&leases->holdings[index]);
	leases->dispatching = false;
}

/* To a waiter that wants to know: why it waits and where it stands, when that has changed. */
static void tell_waiter(struct holding *holding)
{
	struct leases *leases = holding->leases;
	struct lease_obstacle obstacle;
	int position = lease_position(&leases->table, holding->index);
	uint32_t reason;

	lease_obstacle(&leases->table, holding->index, &obstacle);
	reason = text_hash(obstacle.reason);
	if (position == holding->told_position && reason == holding->told_reason)
		return;
	holding->told_position = position;
	holding->told_reason = reason;
	leases_tell(holding, "queued", NULL, true);
}

/* A part of the queue in each turn of the loop, so that others get theirs. */
static int on_refresh(sd_event_source *source, void *userdata)
{
	struct leases *leases = userdata;
	const struct lease_table *table = &leases->table;
	int budget = REFRESH_PER_TURN;
	size_t i = table->queue_head;

	(void)source;
	while (i != LEASE_NONE && table->leases[i].sequence <= leases->refreshed)
		i = table->leases[i].next;
	for (; i != LEASE_NONE && budget-- > 0; i = table->leases[i].next) {
		leases->refreshed = table->leases[i].sequence;
		if (leases->holdings[i].streaming)
			tell_waiter(&leases->holdings[i]);
	}
	if (i == LEASE_NONE) {
		leases->refreshed = 0;
		if (!leases->refresh_again)
			return 0;
		leases->refresh_again = false;
	}
	return sd_event_source_set_enabled(leases->refresh, SD_EVENT_ONESHOT);
}

/* ---------------------------------------------------------------- asking */

static int new_id(const struct leases *leases, char id[static LEASE_ID_SIZE])
{
	uint32_t random;

	do {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		(void)text_format(id, LEASE_ID_SIZE, "%08x", random);
	} while (lease_find(&leases->table, id) != LEASE_NONE);
	return 0;
}

static void refuse_request(struct leases *leases, const struct leases_ask *ask, int outcome,
			   size_t place, const char *reason)
{
	const char *error = PROTO_BUSY;

	leases->stats->leases_refused++;
	if (outcome == LEASE_ALL_FAILED) {
		connection_error(ask->connection, PROTO_NOT_READY, leases_not_ready(leases, place));
		return;
	}
	if (outcome == LEASE_UNSATISFIABLE || outcome < 0)
		error = PROTO_UNSATISFIABLE;
	connection_error(ask->connection, error, json_pack("{s:s}", "reason", reason));
}

/* It was not granted at once and will not wait. */
static void refuse_busy(struct holding *holding)
{
	struct leases *leases = holding->leases;
	struct lease_obstacle obstacle;
	bool owned;

	lease_obstacle(&leases->table, holding->index, &obstacle);
	owned = obstacle.n_leases > 0;
	leases->stats->leases_refused++;
	leases_refuse(holding, PROTO_BUSY,
		      json_pack("{s:o, s:o, s:o, s:i}", "reason", render_text(obstacle.reason),
				"uid", owned ? json_integer(obstacle.uid) : json_null(), "leases",
				owned ? json_integer(obstacle.n_leases) : json_null(), "position",
				lease_position(&leases->table, holding->index)));
	leases_finish(holding, "refused: it would have to wait");
}

static int start_waiting(struct holding *holding, uint64_t wait_usec)
{
	struct leases *leases = holding->leases;

	if (holding->streaming)
		tell_waiter(holding);
	if (wait_usec == USEC_INFINITY)
		return 0;
	return sd_event_add_time_relative(leases->processes->event, &holding->timer,
					  CLOCK_MONOTONIC, wait_usec, WAIT_ACCURACY_USEC,
					  on_wait_over, holding);
}

static int enter(struct leases *leases, struct leases_ask *ask, size_t index)
{
	struct holding *holding = &leases->holdings[index];
	int r;

	*holding = (struct holding){
		.leases = leases,
		.index = index,
		.holder = PROCESS_INIT,
		.answering = true,
		.streaming = ask->more,
		.asked_usec = monotonic_usec(leases),
	};
	link_holding(holding, ask->connection);
	if (ask->holder_pidfd < 0)
		return 0;
	r = process_watch(&holding->holder, leases->processes, ask->request.pid,
			  TAKE_FD(ask->holder_pidfd), on_holder_exit, holding);
	if (r == 0)
		process_set_priority(&holding->holder, PRIORITY_HOLDER);
	return r;
}

void leases_acquire(struct leases *leases, struct leases_ask *ask)
{
	_cleanup_close_ int pidfd = TAKE_FD(ask->holder_pidfd);
	char id[LEASE_ID_SIZE], reason[REASON_SIZE] = "";
	struct holding *holding;
	size_t index = LEASE_NONE;
	int r;

	leases->stats->leases_requested++;
	r = new_id(leases, id);
	if (r == 0)
		r = lease_request(&leases->table, &ask->request, id, clock_usec(CLOCK_REALTIME),
				  &index, reason);
	if (r != 0) {
		refuse_request(leases, ask, r, index, r < 0 ? strerror(-r) : reason);
		return;
	}
	ask->holder_pidfd = TAKE_FD(pidfd);
	holding = &leases->holdings[index];
	r = enter(leases, ask, index);
	if (r == 0)
		leases_dispatch(leases);
	if (r == 0 && holding->leases && leases_lease_of(holding)->state == LEASE_QUEUED) {
		if (ask->wait_usec == 0)
			refuse_busy(holding);
		else
			r = start_waiting(holding, ask->wait_usec);
	}
	if (r < 0) {
		leases_refuse(holding, PROTO_UNSATISFIABLE,
			      json_pack("{s:s}", "reason", strerror(-r)));
		leases_finish(holding, strerror(-r));
	}
}

/* ---------------------------------------------------------------- what happens around them */

void leases_connection_ended(struct leases *leases, struct connection *connection)
{
	while (connection->holdings) {
		struct holding *holding = connection->holdings;
		const struct lease *lease = leases_lease_of(holding);

		unlink_holding(holding);
		holding->answering = false;
		if (lease->state == LEASE_QUEUED)
			leases_finish(holding, "gave up waiting");
		else if (lease->request.bind == LEASE_BIND_CONNECTION)
			leases_finish(holding, "its connection has ended");
	}
	(void)leases;
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
		.max_per_user = config->access.max_leases_per_user,
	};
}

int leases_init(struct leases *leases, struct processes *processes, struct stats *stats,
		struct events *events, const struct config *config)
{
	struct lease_rules rules = leases_rules(config);
	int r;

	*leases = (struct leases){
		.processes = processes,
		.stats = stats,
		.events = events,
		.config = config,
		.storage = calloc(LEASES_MAX, sizeof(struct lease)),
		.holdings = calloc(LEASES_MAX, sizeof(struct holding)),
	};
	if (!leases->storage || !leases->holdings)
		return -ENOMEM;
	lease_table_init(&leases->table, leases->storage, &rules);
	r = text_copy(leases->runtime_directory, sizeof(leases->runtime_directory),
		      config->runtime_directory);
	if (r < 0)
		return r;
	r = sd_event_add_defer(processes->event, &leases->refresh, on_refresh, leases);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(leases->refresh, SD_EVENT_OFF);
}

void leases_done(struct leases *leases)
{
	leases->closed = true;
	if (leases->storage && leases->holdings)
		for (size_t i; (i = lease_first(&leases->table)) != LEASE_NONE;)
			leases_finish(&leases->holdings[i], "the supervisor ends");
	leases->refresh = sd_event_source_disable_unref(leases->refresh);
	free(TAKE_PTR(leases->storage));
	free(TAKE_PTR(leases->holdings));
}
