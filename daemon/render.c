/* SPDX-License-Identifier: MIT */
#include "render.h"

#include "text.h"
#include "util.h"
#include "varlink.h"

#define MEBIBYTE (INT64_C(1) << 20)
#define GIBIBYTE (INT64_C(1) << 30)

/* Values that may be absent are JSON null then. */
static json_t *text_or_null(const char *text)
{
	return text && *text ? varlink_text(text) : json_null();
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
	return varlink_text(text);
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

static json_t *render_place(const struct leases *leases, size_t index)
{
	const struct lease_place *place = &leases->table.places[index];
	bool owned = place->n_leases > 0 && !place->multi_user;

	return json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:I}", "uid",
			 owned ? json_integer(place->uid) : json_null(), "max_clients",
			 place->max_clients, "leases", place->n_leases - place->n_assigned,
			 "waiting", lease_place_waiting(&leases->table, index), "clients_reserved",
			 place->clients, "threads_reserved_percent", place->threads_percent,
			 "memory_reserved_bytes", (json_int_t)place->memory_reserved_bytes);
}

static json_t *render_devices(const struct instance *instance)
{
	json_t *devices = json_array();

	for (size_t i = 0; i < instance->setup.n_devices; i++)
		json_array_append_new(devices, render_device(instance->setup.devices[i]));
	return devices;
}

static const char *kind_of(const struct instance *instance)
{
	if (instance_is_gang(instance))
		return "gang";
	return instance->setup.devices[0]->mig ? "mig" : "gpu";
}

/* The gang that has its device; NULL. */
static const struct instance *gang_over(const struct leases *leases,
					const struct instance *instance)
{
	size_t gang = leases->table.places[instance->setup.index].gang;

	return gang == LEASE_NONE ? NULL : leases->instances[gang];
}

/* Stopped by a drain, but its device is in use: it is not drained yet. */
static bool is_in_use(const struct leases *leases, const struct instance *instance)
{
	return instance->fsm.held && instance->fsm.state == INSTANCE_STOPPED &&
	       gang_over(leases, instance);
}

/* Of one below a gang that is ready itself, that it is kept empty. */
static json_t *render_reason(const struct leases *leases, const struct instance *instance)
{
	const struct instance *gang = gang_over(leases, instance);
	char reason[REASON_SIZE];

	if (!gang || (instance->fsm.reason[0] && !is_in_use(leases, instance)))
		return text_or_null(instance->fsm.reason);
	(void)text_format(reason, sizeof(reason), "%s %s",
			  instance->fsm.held ? "held by an administrator; waits for the leases of"
					     : "held empty for",
			  instance_name(gang));
	return json_string(reason);
}

json_t *render_instance(const struct leases *leases, const struct instance *instance)
{
	const struct instance_fsm *fsm = &instance->fsm;
	_cleanup_json_ json_t *place = render_place(leases, instance->setup.index);
	json_t *json;

	json = json_pack("{s:s, s:s, s:o, s:s, s:o, s:b, s:I, s:I, s:b, s:o, s:o, s:o, s:I, "
			 "s:o, s:o}",
			 "name", instance_name(instance), "kind", kind_of(instance), "devices",
			 render_devices(instance), "state",
			 instance_state_to_string(is_in_use(leases, instance) ? INSTANCE_DRAINING
									      : fsm->state),
			 "reason", render_reason(leases, instance), "held", instance->fsm.held,
			 "since_usec", (json_int_t)instance->since_usec, "generation",
			 (json_int_t)fsm->generation, "multi_user", instance->setup.multi_user,
			 "control_pid", number_or_null(instance_control_pid(instance)), "servers",
			 render_servers(instance), "clients", render_clients(instance), "restarts",
			 (json_int_t)fsm->restarts, "deaths", render_deaths(instance), "suspects",
			 render_suspects(instance));
	json_object_update(json, place);
	return json;
}

/* MPS takes whole mebibytes or gibibytes, for each device by the client's own ordinal. */
static void memory_limit(int64_t bytes, size_t n_devices, char *buffer, size_t size)
{
	bool whole = bytes % GIBIBYTE == 0;
	size_t length = 0;

	for (size_t i = 0; i < n_devices; i++) {
		(void)text_format(buffer + length, size - length, "%s%zu=%lld%c", i > 0 ? "," : "",
				  i, (long long)(bytes / (whole ? GIBIBYTE : MEBIBYTE)),
				  whole ? 'G' : 'M');
		length = strlen(buffer);
	}
}

/* What the job's environment must hold. */
static json_t *render_environment(const struct lease *lease, const char *directory,
				  const struct instance *instance)
{
	/* The devices as the daemon shows them. */
	const char *uuids = strchr(instance->device_variable, '=') + 1;
	json_t *environment =
		json_pack("{s:s, s:s, s:s}", "CUDA_MPS_PIPE_DIRECTORY", directory,
			  "CUDA_VISIBLE_DEVICES", uuids, "MPS_SUPERVISOR_LEASE", lease->id);
	char value[GANG_DEVICES_MAX * 32];

	if (lease->request.threads_percent > 0) {
		(void)text_format(value, sizeof(value), "%d", lease->request.threads_percent);
		json_object_set_new(environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
				    json_string(value));
	}
	if (lease->request.memory_bytes > 0) {
		memory_limit(lease->request.memory_bytes, instance->setup.n_devices, value,
			     sizeof(value));
		json_object_set_new(environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
				    json_string(value));
	}
	return environment;
}

static json_t *render_uuids(const struct instance *instance)
{
	json_t *uuids = json_array();

	for (size_t i = 0; i < instance->setup.n_devices; i++)
		json_array_append_new(uuids, json_string(instance->setup.devices[i]->uuid));
	return uuids;
}

static void add_place_of_lease(json_t *json, const struct leases *leases, size_t index)
{
	const struct lease *lease = &leases->table.leases[index];
	const struct instance *instance = leases->instances[lease->place];
	char directory[PIPE_DIRECTORY_MAX + 1], reason[REASON_SIZE];

	leases_directory(leases, lease, directory);
	leases_describe(leases, index, reason);
	json_object_set_new(json, "instance", json_string(instance_name(instance)));
	json_object_set_new(json, "devices", render_uuids(instance));
	json_object_set_new(json, "pipe_directory", json_string(directory));
	json_object_set_new(json, "environment", render_environment(lease, directory, instance));
	json_object_set_new(json, "attached", render_attached(instance, lease->id));
	json_object_set_new(json, "generation", json_integer((json_int_t)instance->fsm.generation));
	json_object_set_new(json, "granted_usec", json_integer((json_int_t)lease->granted_usec));
	json_object_set_new(json, "reason", text_or_null(reason));
}

static void add_wait_of_lease(json_t *json, const struct leases *leases, size_t index, int position)
{
	struct lease_obstacle obstacle;

	lease_obstacle(&leases->table, index, &obstacle);
	json_object_set_new(json, "position", json_integer(position));
	json_object_set_new(json, "reason", varlink_text(obstacle.reason));
}

static json_t *render_at(const struct leases *leases, size_t index, int position)
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
	if (lease_is_waiting(lease))
		add_wait_of_lease(json, leases, index, position);
	else
		add_place_of_lease(json, leases, index);
	return json;
}

json_t *render_lease(const struct leases *leases, size_t index)
{
	bool waits = lease_is_waiting(&leases->table.leases[index]);

	return render_at(leases, index, waits ? lease_position(&leases->table, index) : 0);
}

json_t *render_waiter(const struct leases *leases, size_t index, int position)
{
	return render_at(leases, index, position);
}

json_t *render_leases(const struct leases *leases)
{
	const struct lease_table *table = &leases->table;
	struct lease_sweep sweep = {};
	json_t *list = json_array();

	for (size_t i = lease_first(table); i != LEASE_NONE; i = lease_next(table, i))
		if (!lease_is_waiting(&table->leases[i]))
			json_array_append_new(list, render_at(leases, i, 0));
	for (size_t i = lease_waiting_first(table); i != LEASE_NONE;
	     i = lease_waiting_next(table, i))
		json_array_append_new(list,
				      render_at(leases, i, lease_sweep_position(&sweep, table, i)));
	return list;
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
			 varlink_text(event->message));
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
