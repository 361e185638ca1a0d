/* SPDX-License-Identifier: MIT */
/* From the list of devices to serving them: which, an instance for each, what an earlier supervisor
 * left of them, the socket. */
#include "journal.h"
#include "manager_parts.h"
#include "service.h"
#include "statefile.h"
#include "text.h"
#include "usock.h"
#include "util.h"

#define SOCKET_MODE 0666 /* rights are decided by who asks */

/* The configured devices: those that a selector names, less those that a "!selector" does. */
static int choose_devices(const struct config *config, const struct inventory *all,
			  struct device_set *ret)
{
	struct device_set chosen = {};

	for (size_t i = 0; i < config->devices.n; i++) {
		const char *selector = config->devices.items[i];
		bool leave_out = selector[0] == '!';
		struct device_set named = {};
		int r = inventory_select(all, selector + leave_out, &named);

		if (r != 0 && !(leave_out && r == INVENTORY_NO_MATCH) && !streq(selector, "all")) {
			log_error("devices: \"%s\" names %s (see nvidia-smi -L)", selector,
				  r == INVENTORY_AMBIGUOUS
					  ? "several devices; give more of the UUID"
					  : "no device of this machine");
			return -ENODEV;
		}
		for (size_t w = 0; w < ELEMENTSOF(chosen.words); w++)
			chosen.words[w] = leave_out ? chosen.words[w] & ~named.words[w]
						    : chosen.words[w] | named.words[w];
	}
	*ret = chosen;
	return 0;
}

/* The exceptions that are made for a device: the last one that sets something wins. */
static void apply_exceptions(const struct manager *manager, size_t device, int *max_clients,
			     bool *multi_user)
{
	const struct config *config = &manager->config;

	for (size_t i = 0; i < config->n_gpus; i++) {
		const struct config_gpu *gpu = &config->gpus[i];
		struct device_set named = {};

		if (inventory_select(&manager->inventory, gpu->match, &named) != 0 ||
		    !device_set_has(&named, device))
			continue;
		if (gpu->max_clients > 0)
			*max_clients = gpu->max_clients;
		if (gpu->multi_user_set)
			*multi_user = gpu->multi_user;
	}
}

static struct instance_setup common_setup(struct manager *manager)
{
	return (struct instance_setup){
		.config = &manager->config,
		.runtime_directory = manager->config.runtime_directory,
		.program = manager->program,
		.processes = &manager->processes,
		.stats = &manager->stats,
		.handlers = &manager_instance_handlers,
		.userdata = manager,
	};
}

static int add_instance(struct manager *manager, size_t device)
{
	const struct device *of = &manager->inventory.devices[device];
	struct instance_setup setup = common_setup(manager);
	int max_clients = manager->config.max_clients, r;
	struct lease_place place;

	setup.multi_user = manager->config.multi_user;
	apply_exceptions(manager, device, &max_clients, &setup.multi_user);
	setup.index = device;
	setup.name = of->uuid;
	setup.devices[0] = of;
	setup.n_devices = 1;
	r = instance_new(&setup, &manager->instances[device]);
	if (r < 0)
		return r;
	place = (struct lease_place){
		.multi_user = setup.multi_user,
		.mig = of->mig,
		.max_clients = max_clients,
		.memory_bytes = of->memory_bytes,
	};
	(void)text_copy(place.closed_reason, sizeof(place.closed_reason), "starting");
	lease_add_place(&manager->leases.table, &place);
	manager->n_instances++;
	return 0;
}

static bool is_served(const struct manager *manager, const char *state_path)
{
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i] && streq(manager->instances[i]->state_path, state_path))
			return true;
	return false;
}

static bool end_orphan(const char *path, void *userdata)
{
	struct manager *manager = userdata;

	if (!is_served(manager, path))
		instance_end_orphan(path, manager->config.runtime_directory);
	return true;
}

/* What was being written when its writer was killed. */
static bool remove_unfinished(const char *path, void *userdata)
{
	(void)userdata;
	(void)unlink(path);
	return true;
}

static void restore_instance(struct instance *instance)
{
	int r = instance_restore(instance);

	if (r < 0 && r != -ENOENT)
		log_warning("%s cannot be used (%s): what runs of %s is not taken up",
			    instance->state_path, strerror(-r), instance_name(instance));
}

/* What an earlier supervisor left goes on: instances, gangs, leases. */
static void restore(struct manager *manager)
{
	char directory[PIPE_DIRECTORY_MAX + 16];

	(void)text_format(directory, sizeof(directory), "%s/state",
			  manager->config.runtime_directory);
	for (size_t i = 0; i < manager->n_instances; i++) {
		restore_instance(manager->instances[i]);
		/* One that runs goes on as it was started. */
		manager->leases.table.places[i].multi_user =
			manager->instances[i]->setup.multi_user;
	}
	for (size_t i = 0; i < manager->n_instances; i++)
		lease_hold(&manager->leases.table, i,
			   held_has(&manager->held, instance_name(manager->instances[i])));
	statefile_each(directory, ".new", remove_unfinished, NULL);
	gangs_restore(&manager->gangs, directory);
	statefile_each(directory, INSTANCE_STATE_SUFFIX, end_orphan, manager);
	leases_restore(&manager->leases);
}

/* One that an administrator holds goes on only as far as there is something to be emptied; and a
 * gang that nobody needs any more is taken up only to be ended in order. */
static void start_instance(size_t place, void *userdata)
{
	struct manager *manager = userdata;
	struct instance *instance = manager->instances[place];
	const struct lease_place *of = &manager->leases.table.places[place];
	bool held = of->held && !instance_is_gang(instance);
	bool unwanted = of->ending || (held && of->n_leases == 0);

	if (!unwanted || instance_control_pid(instance) > 0)
		instance_start(instance);
	if (held)
		instance_drain(instance);
	if (of->ending)
		instance_stop(instance, GANGS_UNNEEDED);
}

static void on_mode_settled(size_t device, void *userdata)
{
	struct manager *manager = userdata;

	if (device != COMPUTEMODE_OTHER)
		operations_instance_changed(&manager->operations, manager->instances[device]);
	operations_check(&manager->operations);
	manager_exit_when_stopped(manager);
}

static int add_modes(struct manager *manager, const struct inventory *all)
{
	struct modes_setup setup = {
		.config = &manager->config,
		.processes = &manager->processes,
		.program = manager->smi,
		.timeout_usec = manager->scan.timeout_usec,
		.served = &manager->inventory,
		.present = all,
		.instances = manager->instances,
		.leases = &manager->leases,
		.start = start_instance,
		.settled = on_mode_settled,
		.userdata = manager,
	};

	return modes_init(&manager->modes, &setup);
}

static void on_gang_gone(void *userdata)
{
	struct manager *manager = userdata;

	/* Else when that is settled. */
	if (!modes_are_busy(&manager->modes))
		operations_check(&manager->operations);
}

static int add_gangs(struct manager *manager)
{
	struct instance_setup setup = common_setup(manager);

	return gangs_init(&manager->gangs, &manager->leases, manager->instances,
			  &manager->inventory, &setup, on_gang_gone);
}

/* systemd's socket, when it gave us one: that outlives us. */
static int get_socket(struct manager *manager, int *ret_fd)
{
	char path[PIPE_DIRECTORY_MAX + 16];
	int r;

	if (service_take_socket(ret_fd))
		return 0;
	(void)text_format(path, sizeof(path), "%s/socket", manager->config.runtime_directory);
	r = usock_listen(path, SOCKET_MODE, ret_fd);
	if (r < 0)
		log_error("cannot listen at %s: %s", path, strerror(-r));
	manager->own_socket = r == 0;
	return r;
}

static int listen_to_clients(struct manager *manager)
{
	int fd, r;

	r = get_socket(manager, &fd);
	if (r < 0)
		return r;
	r = server_init(&manager->server, manager->event, fd, &manager_server_handlers, manager,
			&manager->stats);
	if (r < 0) {
		log_error("cannot serve the socket: %s", strerror(-r));
		return r;
	}
	manager->listening = true;
	return 0;
}

static int take_devices(struct manager *manager, const struct inventory *all)
{
	struct device_set chosen;
	int r;

	r = choose_devices(&manager->config, all, &chosen);
	if (r < 0)
		return r;
	for (size_t i = 0; i < all->n_devices; i++)
		if (device_set_has(&chosen, i))
			manager->inventory.devices[manager->inventory.n_devices++] =
				all->devices[i];
	if (manager->inventory.n_devices > 0)
		return 0;
	log_error("no device to serve: %s lists %zu, and `devices` in the configuration leaves "
		  "none; is the driver loaded (nvidia-smi -L)?",
		  manager->smi, all->n_devices);
	return -ENODEV;
}

static void start_instances(struct manager *manager)
{
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i] &&
		    (i >= manager->n_instances || !modes_prepare(&manager->modes, i)))
			start_instance(i, manager);
}

int manager_serve(struct manager *manager, const struct inventory *all)
{
	int r;

	r = take_devices(manager, all);
	if (r < 0)
		return r;
	for (size_t i = 0; i < manager->inventory.n_devices; i++) {
		r = add_instance(manager, i);
		if (r < 0) {
			log_error("cannot set up an instance for %s: %s",
				  manager->inventory.devices[i].uuid, strerror(-r));
			return r;
		}
	}
	r = add_gangs(manager);
	if (r >= 0)
		r = add_modes(manager, all);
	if (r < 0)
		return r;
	restore(manager);
	r = listen_to_clients(manager);
	if (r < 0)
		return r;
	start_instances(manager);
	leases_settle(&manager->leases);
	service_ready();
	manager_report_status(manager);
	return 0;
}
