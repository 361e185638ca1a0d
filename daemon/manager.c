/* SPDX-License-Identifier: MIT */
#include "manager.h"

#include <grp.h>
#include <pwd.h>

#include "conffile.h"
#include "journal.h"
#include "manager_parts.h"
#include "methods.h"
#include "service.h"
#include "spawn.h"
#include "text.h"
#include "util.h"

/* Without persistence mode nvidia-smi takes seconds for each GPU, so it gets more time than a
 * control daemon to start. */
#define SCAN_TIMEOUT_FACTOR 3
#define REPORT_PAUSE_USEC (100 * USEC_PER_MSEC)
/* Beyond what instances may take to stop: for their GPUs' compute modes to be given back. */
#define GIVE_BACK_USEC (5 * USEC_PER_SEC)

/* ---------------------------------------------------------------- what the parts tell */

static size_t count_ready(const struct manager *manager)
{
	size_t n = 0;

	for (size_t i = 0; i < manager->n_instances; i++)
		n += manager->instances[i]->fsm.state == INSTANCE_READY;
	return n;
}

void manager_report_status(struct manager *manager)
{
	const struct lease_table *table = &manager->leases.table;

	manager->told_ready = count_ready(manager);
	manager->told_leases = table->n_granted;
	manager->told_waiting = table->n_queued;
	service_status("%zu of %zu instances ready, %zu leases, %zu waiting", manager->told_ready,
		       manager->n_instances, manager->told_leases, manager->told_waiting);
}

static int on_report(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	manager_report_status(userdata);
	return 0;
}

/* After every turn of the loop: leases come and go much faster than anybody wants to hear. */
static int on_look(sd_event_source *source, void *userdata)
{
	struct manager *manager = userdata;
	const struct lease_table *table = &manager->leases.table;
	int enabled = SD_EVENT_OFF;

	(void)source;
	if (table->n_granted == manager->told_leases && table->n_queued == manager->told_waiting)
		return 0;
	(void)sd_event_source_get_enabled(manager->report, &enabled);
	if (enabled != SD_EVENT_OFF)
		return 0;
	(void)sd_event_source_set_time_relative(manager->report, REPORT_PAUSE_USEC);
	return sd_event_source_set_enabled(manager->report, SD_EVENT_ONESHOT);
}

static int add_reports(struct manager *manager)
{
	int r;

	r = sd_event_add_time(manager->event, &manager->report, CLOCK_MONOTONIC, 0,
			      REPORT_PAUSE_USEC, on_report, manager);
	if (r >= 0)
		r = sd_event_source_set_enabled(manager->report, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_post(manager->event, &manager->look, on_look, manager);
	return r < 0 ? r : 0;
}

void manager_exit_when_stopped(struct manager *manager)
{
	if (!manager->stopping || modes_are_busy(&manager->modes))
		return;
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i] && manager->instances[i]->fsm.state != INSTANCE_STOPPED)
			return;
	(void)sd_event_exit(manager->event, 0);
}

static void on_opening(struct instance *instance, void *userdata)
{
	struct manager *manager = userdata;

	leases_renew(&manager->leases, instance);
}

static void on_changed(struct instance *instance, void *userdata)
{
	struct manager *manager = userdata;
	const struct instance_fsm *fsm = &instance->fsm;
	char message[REASON_SIZE + 64];

	modes_instance_changed(&manager->modes, instance);
	leases_place_changed(&manager->leases, instance);
	gangs_state_changed(&manager->gangs, instance);
	if (!modes_is_pending(&manager->modes, instance))
		operations_instance_changed(&manager->operations, instance);
	(void)text_format(message, sizeof(message), "%s%s%s", instance_state_to_string(fsm->state),
			  fsm->reason[0] ? ": " : "", fsm->reason);
	events_emit(&manager->events, &(struct event){
					      .kind = "instance-state",
					      .instance = instance_name(instance),
					      .pid = instance_control_pid(instance),
					      .generation = fsm->generation,
					      .message = message,
				      });
	manager_report_status(manager);
	manager_exit_when_stopped(manager);
}

static void on_lost(struct instance *instance, struct instance_death *death, void *userdata)
{
	struct manager *manager = userdata;

	leases_name_hit(&manager->leases, instance, death);
}

static void on_interrupted(struct instance *instance, const struct instance_death *death,
			   void *userdata)
{
	struct manager *manager = userdata;

	leases_interrupt(&manager->leases, instance, death);
}

static void on_identify(struct instance *instance, pid_t pid, char ret_id[static LEASE_ID_SIZE],
			void *userdata)
{
	struct manager *manager = userdata;

	leases_identify(&manager->leases, instance, pid, ret_id);
}

static void on_servers_changed(struct instance *instance, void *userdata)
{
	struct manager *manager = userdata;

	leases_servers_changed(&manager->leases, instance);
	gangs_servers_changed(&manager->gangs, instance);
}

static void on_answered(struct instance *instance, void *userdata)
{
	struct manager *manager = userdata;

	leases_answered(&manager->leases, instance);
}

static void on_clients_left(struct instance *instance, void *userdata)
{
	struct manager *manager = userdata;

	(void)instance;
	leases_clients_left(&manager->leases);
}

static bool on_describe(struct instance *instance, const char *id, uint32_t *ret_uid,
			const char **ret_name, void *userdata)
{
	struct manager *manager = userdata;
	size_t index = lease_find(&manager->leases.table, id);

	(void)instance;
	if (index == LEASE_NONE)
		return false;
	*ret_uid = manager->leases.table.leases[index].request.uid;
	*ret_name = manager->leases.table.leases[index].request.name;
	return true;
}

const struct instance_handlers manager_instance_handlers = {
	.opening = on_opening,
	.changed = on_changed,
	.lost = on_lost,
	.interrupted = on_interrupted,
	.identify = on_identify,
	.servers_changed = on_servers_changed,
	.answered = on_answered,
	.clients_left = on_clients_left,
	.describe = on_describe,
};

static void on_prepare(size_t place, void *userdata)
{
	struct manager *manager = userdata;

	if (place >= DEVICES_MAX)
		gangs_form(&manager->gangs, place);
	else if (lease_has_foreign_server(&manager->leases.table, place))
		instance_end_servers(manager->instances[place],
				     "the MPS server of another user is ending");
	else
		instance_prove(manager->instances[place]);
}

static void on_end_gang(size_t place, void *userdata)
{
	struct manager *manager = userdata;

	gangs_end(&manager->gangs, place);
}

static const struct leases_handlers leases_handlers = {
	.prepare = on_prepare,
	.end_gang = on_end_gang,
};

static void on_call(struct connection *connection, const struct varlink_call *call, void *userdata)
{
	methods_call(userdata, connection, call);
}

static void on_connection_ended(struct connection *connection, void *userdata)
{
	struct manager *manager = userdata;

	events_unsubscribe(&manager->events, connection);
	operations_connection_ended(&manager->operations, connection);
	leases_connection_ended(&manager->leases, connection);
}

const struct server_handlers manager_server_handlers = {
	.call = on_call,
	.ended = on_connection_ended,
};

/* ---------------------------------------------------------------- configuration */

static size_t resolve_groups(const struct config_strings *names, uint32_t *gids)
{
	size_t n = 0;

	for (size_t i = 0; i < names->n; i++) {
		const struct group *group = getgrnam(names->items[i]);

		if (group)
			gids[n++] = group->gr_gid;
		else
			log_warning("access: there is no group \"%s\"; nobody gets rights by it",
				    names->items[i]);
	}
	return n;
}

static void make_policy(struct manager *manager)
{
	const struct config *config = &manager->config;
	struct policy *policy = &manager->policy;

	policy->own_uid = geteuid();
	policy->restrict_leases = config->access.lease_groups.n > 0;
	policy->n_lease_gids = resolve_groups(&config->access.lease_groups, policy->lease_gids);
	policy->n_admin_gids = resolve_groups(&config->access.admin_groups, policy->admin_gids);
}

static int find_program(const char *name, const char *option, char *ret, size_t size)
{
	int r;

	r = spawn_find_program(name, ret, size);
	if (r == -ENOENT && !strchr(name, '/'))
		log_error("%s: \"%s\" is not in PATH (%s); install it or give its path in the "
			  "configuration",
			  option, name, getenv("PATH") ? getenv("PATH") : "not set");
	else if (r < 0)
		log_error("%s: \"%s\" cannot be run: %s; correct it in the configuration", option,
			  name, strerror(-r));
	return r;
}

static int find_programs(struct manager *manager)
{
	int r;

	r = find_program(manager->config.mps_control, "mps_control", manager->program,
			 sizeof(manager->program));
	if (r < 0)
		return r;
	return find_program(manager->config.nvidia_smi, "nvidia_smi", manager->smi,
			    sizeof(manager->smi));
}

void manager_reload(struct manager *manager)
{
	_cleanup_free_ struct config *config = malloc(sizeof(*config));
	struct conffile_error error;

	if (!config || conffile_load(config, manager->config_path, NULL, &error) < 0) {
		log_error("the configuration is kept as it was: %s:%d: %s",
			  config ? error.file : "", config ? error.line : 0,
			  config ? error.text : "out of memory");
		return;
	}
	/* What instances and paths were made from stays until the next start. */
	manager->config.timeouts = config->timeouts;
	manager->config.health = config->health;
	manager->config.restart = config->restart;
	manager->config.access = config->access;
	manager->config.placement = config->placement;
	manager->config.oversubscribe_threads = config->oversubscribe_threads;
	manager->config.prestart = config->prestart;
	manager->config.idle_server_stop_usec = config->idle_server_stop_usec;
	manager->leases.table.rules = leases_rules(&manager->config);
	make_policy(manager);
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i])
			instance_configure(manager->instances[i], &manager->config);
	log_info("the configuration was read again; directories, programs, devices, max_clients, "
		 "multi_user and compute_mode take effect at the next start");
}

/* ---------------------------------------------------------------- beginning and end */

static void on_scanned(int r, const struct inventory *inventory, const char *reason, void *userdata)
{
	struct manager *manager = userdata;

	if (r < 0)
		log_error("cannot list the devices: %s", reason);
	else if (!manager->stopping)
		r = manager_serve(manager, inventory);
	if (r < 0)
		(void)sd_event_exit(manager->event, r);
}

static void manager_freep(struct manager **manager)
{
	(void)manager_free(*manager);
}

static int take_runtime_directory(struct manager *manager)
{
	char where[PIPE_DIRECTORY_MAX + 32];
	int r;

	r = rundir_open(&manager->rundir, manager->config.runtime_directory, where, sizeof(where));
	if (r == -EBUSY)
		log_error("runtime_directory %s is in use by another mps-supervisord; end it or "
			  "configure another directory",
			  manager->config.runtime_directory);
	else if (r < 0)
		log_error("cannot use runtime_directory: %s: %s", where, strerror(-r));
	return r;
}

int manager_new(sd_event *event, const struct config *config, const char *config_path,
		struct manager **ret)
{
	_cleanup_(manager_freep) struct manager *manager = calloc(1, sizeof(*manager));
	int r;

	if (!manager)
		return -ENOMEM;
	manager->event = event;
	manager->config = *config;
	manager->config_path = config_path;
	manager->rundir.lock_fd = -EBADF;
	manager->server.fd = -EBADF;
	manager->started_usec = clock_usec(CLOCK_REALTIME);
	held_load(&manager->held, config->state_directory);
	operations_init(&manager->operations, event, &manager->leases);
	make_policy(manager);
	r = find_programs(manager);
	if (r < 0)
		return r;
	r = take_runtime_directory(manager);
	if (r < 0)
		return r;
	r = processes_init(&manager->processes, event);
	if (r == 0)
		r = leases_init(&manager->leases, &(struct leases_setup){
							  .processes = &manager->processes,
							  .stats = &manager->stats,
							  .events = &manager->events,
							  .instances = manager->instances,
							  .config = &manager->config,
							  .handlers = &leases_handlers,
							  .userdata = manager,
						  });
	if (r == 0)
		r = add_reports(manager);
	if (r == 0)
		r = gpuscan_start(&manager->scan, &manager->processes, manager->smi,
				  manager->config.timeouts.start_usec * SCAN_TIMEOUT_FACTOR,
				  on_scanned, manager);
	if (r < 0) {
		log_error("cannot start: %s", strerror(-r));
		return r;
	}
	*ret = TAKE_PTR(manager);
	return 0;
}

struct manager *manager_free(struct manager *manager)
{
	char path[PIPE_DIRECTORY_MAX + 16];

	if (!manager)
		return NULL;
	gpuscan_cancel(&manager->scan);
	sd_event_source_disable_unref(manager->look);
	sd_event_source_disable_unref(manager->report);
	(void)text_format(path, sizeof(path), "%s/socket", manager->config.runtime_directory);
	if (manager->own_socket)
		(void)unlink(path);
	if (manager->listening)
		server_done(&manager->server);
	operations_done(&manager->operations);
	leases_done(&manager->leases);
	gangs_done(&manager->gangs);
	modes_done(&manager->modes);
	for (size_t i = 0; i < PLACES_MAX; i++)
		manager->instances[i] = instance_free(manager->instances[i]);
	processes_done(&manager->processes);
	rundir_close(&manager->rundir);
	free(manager);
	return NULL;
}

void manager_leave(struct manager *manager)
{
	if (manager->stopping)
		return;
	log_info("restarting: MPS, %zu leases and their jobs go on",
		 manager->leases.table.n_granted);
	manager->stopping = true;
	leases_leave(&manager->leases);
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i])
			instance_leave(manager->instances[i]);
	(void)sd_event_exit(manager->event, 0);
}

void manager_stop(struct manager *manager)
{
	if (manager->stopping)
		return;
	manager->stopping = true;
	log_info("stopping: %zu leases, %zu waiting", manager->leases.table.n_granted,
		 manager->leases.table.n_queued);
	gpuscan_cancel(&manager->scan);
	leases_close(&manager->leases, "the supervisor is stopping");
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i])
			instance_stop(manager->instances[i], "shutting down");
	modes_close(&manager->modes, manager->config.timeouts.stop_usec + GIVE_BACK_USEC);
	manager_exit_when_stopped(manager);
}
