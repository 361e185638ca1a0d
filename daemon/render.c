/* SPDX-License-Identifier: MIT */
#include "render.h"

#include "text.h"
#include "util.h"

#define MEBIBYTE (INT64_C(1) << 20)
#define GIBIBYTE (INT64_C(1) << 30)

json_t *render_text(const char *text)
{
	json_t *json = json_string(text);
	_cleanup_free_ char *copy = NULL;

	if (json)
		return json;
	copy = strdup(text);
	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return copy ? json_string(copy) : NULL;
}

/* Values that may be absent are JSON null then. */
static json_t *text_or_null(const char *text)
{
	return text && *text ? render_text(text) : json_null();
}

static json_t *number_or_null(int64_t value)
{
	return value > 0 ? json_integer(value) : json_null();
}

json_t *render_device(const struct device *device)
{
	return json_pack("{s:s, s:i, s:s, s:s, s:I, s:s, s:b}", "uuid", device->uuid, "index",
			 device->index, "pci_bus_id", device->pci_bus_id, "name", device->name,
			 "memory_bytes", (json_int_t)device->memory_bytes, "compute_mode",
			 device->compute_mode, "mig", device->mig);
}

/* In MPS's own words. */
static const char *server_state(const struct instance *instance,
				const struct instance_server *server)
{
	if (!server->ready)
		return "INITIALIZING";
	return instance->fsm.state == INSTANCE_FAULTED ? "FAULT" : "ACTIVE";
}

static json_t *render_servers(const struct instance *instance)
{
	json_t *servers = json_array();

	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++) {
		const struct instance_server *server = &instance->servers[i];

		if (server->instance)
			json_array_append_new(servers, json_pack("{s:i, s:I, s:s}", "pid",
								 server->process.pid, "uid",
								 (json_int_t)server->uid, "state",
								 server_state(instance, server)));
	}
	return servers;
}

static json_t *render_hit_pids(const struct instance_hits *hits)
{
	json_t *pids = json_array();

	for (size_t i = 0; hits && i < hits->n_pids; i++)
		json_array_append_new(pids, json_integer(hits->pids[i]));
	return pids;
}

static json_t *render_hit_leases(const struct instance_hits *hits)
{
	json_t *leases = json_array();

	for (size_t i = 0; hits && i < hits->n_leases; i++)
		json_array_append_new(leases, json_string(hits->leases[i]));
	return leases;
}

/* The reason, and below it the last lines that were said. Foreign bytes that are no UTF-8 would
 * be no JSON. */
static json_t *render_last_words(const struct instance_death *death)
{
	char text[REASON_SIZE + INSTANCE_LINES_MAX * (INSTANCE_LINE_SIZE + 1)];
	const char *line;
	size_t length;

	(void)text_copy(text, sizeof(text), death->reason);
	for (size_t i = 0; (line = instance_lines_get(&death->lines, i)); i++) {
		length = strlen(text);
		(void)text_format(text + length, sizeof(text) - length, "\n%s", line);
	}
	return render_text(text);
}

static json_t *render_death(const struct instance_death *death)
{
	return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o}", "at_usec", (json_int_t)death->at_usec,
			 "what", instance_loss_to_string(death->what), "status",
			 text_or_null(death->status), "reason", render_last_words(death),
			 "hit_pids", render_hit_pids(&death->hits), "hit_leases",
			 render_hit_leases(&death->hits));
}

/* The newest first. */
static json_t *render_deaths(const struct instance *instance)
{
	uint64_t n = MIN(instance->n_deaths, (uint64_t)INSTANCE_DEATHS_MAX);
	json_t *deaths = json_array();

	for (uint64_t i = 1; i <= n; i++)
		json_array_append_new(
			deaths,
			render_death(
				&instance->deaths[(instance->n_deaths - i) % INSTANCE_DEATHS_MAX]));
	return deaths;
}

static json_t *render_clients(const struct instance *instance)
{
	json_t *clients = json_array();

	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0)
			json_array_append_new(clients, json_integer(instance->clients[i].pid));
	return clients;
}

/* The clients that came through the lease's directory. */
static json_t *render_attached(const struct instance *instance, const char *id)
{
	json_t *attached = json_array();

	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0 && streq(instance->clients[i].lease, id))
			json_array_append_new(attached, json_integer(instance->clients[i].pid));
	return attached;
}

static json_t *render_suspects(const struct instance *instance)
{
	json_t *suspects = json_array();
	int present, faults;
	const char *name;
	uint32_t uid;

	for (size_t i = 0; instance_suspect(instance, i, &uid, &name, &present, &faults); i++)
		json_array_append_new(suspects,
				      json_pack("{s:I, s:o, s:i, s:i}", "uid", (json_int_t)uid,
						"name", text_or_null(name), "present", present,
						"faults", faults));
	return suspects;
}

static int count_waiting(const struct leases *leases, size_t place)
{
	const struct lease_table *table = &leases->table;
	int n = 0;

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i))
		n += table->leases[i].state == LEASE_QUEUED &&
		     device_set_has(&table->leases[i].request.candidates, place);
	return n;
}

static json_t *render_place(const struct leases *leases, size_t index)
{
	const struct lease_place *place = &leases->table.places[index];
	bool owned = place->n_leases > 0 && !place->multi_user;

	return json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:I}", "uid",
			 owned ? json_integer(place->uid) : json_null(), "max_clients",
			 place->max_clients, "leases", place->n_leases, "waiting",
			 count_waiting(leases, index), "clients_reserved", place->clients,
			 "threads_reserved_percent", place->threads_percent,
			 "memory_reserved_bytes", (json_int_t)place->memory_reserved_bytes);
}

json_t *render_instance(const struct leases *leases, const struct instance *instance)
{
	const struct instance_fsm *fsm = &instance->fsm;
	const struct device *device = instance->setup.device;
	_cleanup_json_ json_t *place = render_place(leases, instance->setup.index);
	json_t *json;

	json = json_pack("{s:s, s:s, s:[o], s:s, s:o, s:b, s:I, s:I, s:b, s:o, s:o, s:o, s:I, "
			 "s:o, s:o}",
			 "name", device->uuid, "kind", device->mig ? "mig" : "gpu", "devices",
			 render_device(device), "state", instance_state_to_string(fsm->state),
			 "reason", text_or_null(fsm->reason), "held", 0, "since_usec",
			 (json_int_t)instance->since_usec, "generation",
			 (json_int_t)fsm->generation, "multi_user", instance->setup.multi_user,
			 "control_pid", number_or_null(instance_control_pid(instance)), "servers",
			 render_servers(instance), "clients", render_clients(instance), "restarts",
			 (json_int_t)fsm->restarts, "deaths", render_deaths(instance), "suspects",
			 render_suspects(instance));
	json_object_update(json, place);
	return json;
}

/* MPS takes whole mebibytes or gibibytes; the ordinal is the client's own, which is 0. */
static void memory_limit(int64_t bytes, char *buffer, size_t size)
{
	if (bytes % GIBIBYTE == 0)
		(void)text_format(buffer, size, "0=%lldG", (long long)(bytes / GIBIBYTE));
	else
		(void)text_format(buffer, size, "0=%lldM", (long long)(bytes / MEBIBYTE));
}

/* What the job's environment must hold. */
static json_t *render_environment(const struct lease *lease, const char *directory,
				  const char *uuid)
{
	json_t *environment =
		json_pack("{s:s, s:s, s:s}", "CUDA_MPS_PIPE_DIRECTORY", directory,
			  "CUDA_VISIBLE_DEVICES", uuid, "MPS_SUPERVISOR_LEASE", lease->id);
	char value[32];

	if (lease->request.threads_percent > 0) {
		(void)text_format(value, sizeof(value), "%d", lease->request.threads_percent);
		json_object_set_new(environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
				    json_string(value));
	}
	if (lease->request.memory_bytes > 0) {
		memory_limit(lease->request.memory_bytes, value, sizeof(value));
		json_object_set_new(environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
				    json_string(value));
	}
	return environment;
}

static void add_place_of_lease(json_t *json, const struct leases *leases, const struct lease *lease)
{
	const struct instance *instance = leases->instances[lease->place];
	const char *uuid = instance->setup.device->uuid;
	char directory[PIPE_DIRECTORY_MAX + 1];

	leases_directory(leases, lease, directory);
	json_object_set_new(json, "instance", json_string(uuid));
	json_object_set_new(json, "devices", json_pack("[s]", uuid));
	json_object_set_new(json, "pipe_directory", json_string(directory));
	json_object_set_new(json, "environment", render_environment(lease, directory, uuid));
	json_object_set_new(json, "attached", render_attached(instance, lease->id));
	json_object_set_new(json, "generation", json_integer((json_int_t)instance->fsm.generation));
	json_object_set_new(json, "granted_usec", json_integer((json_int_t)lease->granted_usec));
}

static void add_wait_of_lease(json_t *json, const struct leases *leases, size_t index)
{
	struct lease_obstacle obstacle;

	lease_obstacle(&leases->table, index, &obstacle);
	json_object_set_new(json, "position", json_integer(lease_position(&leases->table, index)));
	json_object_set_new(json, "reason", json_string(obstacle.reason));
}

json_t *render_lease(const struct leases *leases, size_t index)
{
	const struct lease *lease = &leases->table.leases[index];
	const struct lease_request *request = &lease->request;
	json_t *json;

	json = json_pack("{s:s, s:s, s:n, s:[], s:I, s:o, s:s, s:o, s:n, s:{}, s:n, s:o, s:o, s:i, "
			 "s:b, s:[], s:I, s:n, s:n, s:n}",
			 "id", lease->id, "state", lease_state_to_string(lease->state), "instance",
			 "devices", "uid", (json_int_t)request->uid, "pid",
			 number_or_null(request->pid), "bind", lease_bind_to_string(request->bind),
			 "name", text_or_null(request->name), "pipe_directory", "environment",
			 "generation", "threads_percent", number_or_null(request->threads_percent),
			 "memory_bytes", number_or_null(request->memory_bytes), "clients",
			 request->clients, "exclusive", request->exclusive, "attached",
			 "requested_usec", (json_int_t)lease->requested_usec, "granted_usec",
			 "position", "reason");
	if (!json)
		return NULL;
	if (lease->state == LEASE_QUEUED)
		add_wait_of_lease(json, leases, index);
	else
		add_place_of_lease(json, leases, lease);
	return json;
}

json_t *render_event(const struct event *event)
{
	return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "at_usec",
			 (json_int_t)clock_usec(CLOCK_REALTIME), "kind", event->kind, "instance",
			 text_or_null(event->instance), "lease", text_or_null(event->lease), "pid",
			 number_or_null(event->pid), "uid",
			 event->has_uid ? json_integer(event->uid) : json_null(), "generation",
			 number_or_null((int64_t)event->generation), "cause",
			 text_or_null(event->cause), "hit_pids", render_hit_pids(event->hits),
			 "hit_leases", render_hit_leases(event->hits), "message",
			 render_text(event->message));
}

json_t *render_counters(const struct stats *stats)
{
	json_t *counters = json_object();
	const char *name;
	uint64_t value;

	for (size_t i = 0; (name = stats_get(stats, i, &value)); i++)
		json_object_set_new(counters, name, json_integer((json_int_t)value));
	return counters;
}
