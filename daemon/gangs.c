/* SPDX-License-Identifier: MIT */
#include "gangs.h"

#include "journal.h"
#include "statefile.h"
#include "text.h"
#include "util.h"

static struct lease_place *place_at(const struct gangs *gangs, size_t place)
{
	return &gangs->leases->table.places[place];
}

/* A name of its own for these devices, the same in every run. */
static void make_name(const struct instance_setup *setup, char name[static DEVICE_UUID_SIZE])
{
	char text[GANG_DEVICES_MAX * DEVICE_UUID_SIZE] = "";
	size_t length = 0;

	for (size_t i = 0; i < setup->n_devices; i++) {
		(void)text_format(text + length, sizeof(text) - length, "%s,",
				  setup->devices[i]->uuid);
		length = strlen(text);
	}
	(void)text_format(name, DEVICE_UUID_SIZE, "gang-%08x", text_hash(text));
}

static int make_instance(struct gangs *gangs, size_t place)
{
	struct instance_setup setup = gangs->setup;
	char name[DEVICE_UUID_SIZE];

	setup.index = place;
	setup.multi_user = place_at(gangs, place)->multi_user;
	setup.n_devices = 0;
	for (size_t i = 0; i < gangs->inventory->n_devices; i++)
		if (device_set_has(&place_at(gangs, place)->devices, i) &&
		    setup.n_devices < GANG_DEVICES_MAX)
			setup.devices[setup.n_devices++] = &gangs->inventory->devices[i];
	make_name(&setup, name);
	setup.name = name;
	return instance_new(&setup, &gangs->instances[place]);
}

/* The servers below it would hold memory of its devices, and be time-sliced against its own. */
static bool is_clear(const struct gangs *gangs, size_t place)
{
	uint32_t uid;

	for (size_t i = 0; i < gangs->inventory->n_devices; i++)
		if (place_at(gangs, i)->gang == place &&
		    instance_has_server(gangs->instances[i], &uid))
			return false;
	return true;
}

static void start_when_clear(struct gangs *gangs, size_t place)
{
	struct instance *instance = gangs->instances[place];

	if (instance && !gangs->leases->closed && !place_at(gangs, place)->ending &&
	    is_clear(gangs, place))
		instance_start(instance);
}

/* Ends the servers below a gang that waits for that; of a device that is not ready, when it is. */
static void clear(struct gangs *gangs, size_t place)
{
	for (size_t i = 0; i < gangs->inventory->n_devices; i++)
		if (place_at(gangs, i)->gang == place)
			instance_end_servers(gangs->instances[i],
					     "its MPS server is ending: its GPU is leased together "
					     "with others");
}

void gangs_form(struct gangs *gangs, size_t place)
{
	struct lease_place *of = place_at(gangs, place);
	int r;

	if (gangs->instances[place]) {
		instance_end_servers(gangs->instances[place],
				     "the MPS server of another user is ending");
		return;
	}
	r = make_instance(gangs, place);
	if (r < 0) {
		log_error("cannot set up an instance for %d devices: %s", of->n_devices,
			  strerror(-r));
		of->failed = true;
		(void)text_format(of->closed_reason, sizeof(of->closed_reason),
				  "cannot set up an instance for %d devices: %s", of->n_devices,
				  strerror(-r));
		return;
	}
	(void)text_format(of->closed_reason, sizeof(of->closed_reason),
			  "%s is to be started when the MPS servers on its GPUs have ended",
			  instance_name(gangs->instances[place]));
	clear(gangs, place);
	start_when_clear(gangs, place);
}

void gangs_servers_changed(struct gangs *gangs, const struct instance *instance)
{
	size_t gang;

	if (instance_is_gang(instance))
		return;
	gang = place_at(gangs, instance->setup.index)->gang;
	if (gang != LEASE_NONE && gangs->instances[gang] &&
	    gangs->instances[gang]->fsm.state == INSTANCE_STOPPED)
		start_when_clear(gangs, gang);
}

static void sweep_soon(struct gangs *gangs)
{
	(void)sd_event_source_set_enabled(gangs->sweep, SD_EVENT_ONESHOT);
}

void gangs_state_changed(struct gangs *gangs, struct instance *instance)
{
	size_t gang = place_at(gangs, instance->setup.index)->gang;

	if (instance_is_gang(instance)) {
		if (instance->fsm.state == INSTANCE_STOPPED)
			sweep_soon(gangs);
	} else if (gang != LEASE_NONE && instance->fsm.state == INSTANCE_READY &&
		   gangs->instances[gang] &&
		   gangs->instances[gang]->fsm.state == INSTANCE_STOPPED) {
		clear(gangs, gang);
		start_when_clear(gangs, gang);
	}
}

void gangs_end(struct gangs *gangs, size_t place)
{
	if (gangs->instances[place])
		instance_stop(gangs->instances[place], GANGS_UNNEEDED);
	sweep_soon(gangs);
}

/* Not in the middle of what made it stop. */
static int on_sweep(sd_event_source *source, void *userdata)
{
	struct gangs *gangs = userdata;

	(void)source;
	for (size_t place = DEVICES_MAX; place < PLACES_MAX; place++) {
		struct instance *instance = gangs->instances[place];

		if (!place_at(gangs, place)->ending ||
		    (instance && instance->fsm.state != INSTANCE_STOPPED))
			continue;
		gangs->instances[place] = instance_free(instance);
		leases_gang_gone(gangs->leases, place);
		gangs->gone(gangs->setup.userdata);
	}
	return 0;
}

/* ---------------------------------------------------------------- after a restart */

static void take_up(struct gangs *gangs, const struct device_set *devices)
{
	size_t place = lease_restore_gang(&gangs->leases->table, devices);

	if (place == LEASE_NONE)
		return;
	if (make_instance(gangs, place) < 0 || instance_restore(gangs->instances[place]) < 0)
		log_error("cannot take up the instance of several devices that was there");
}

static bool restore(const char *path, void *userdata)
{
	struct gangs *gangs = userdata;
	struct instance_record record;
	struct device_set devices = {};
	size_t n = 0;

	if (instance_read_record(path, &record) < 0 || record.n_devices < 2)
		return true;
	for (size_t i = 0; i < record.n_devices; i++)
		for (size_t k = 0; k < gangs->inventory->n_devices; k++)
			if (streq(gangs->inventory->devices[k].uuid, record.devices[i])) {
				device_set_add(&devices, k);
				n++;
			}
	if (n == record.n_devices)
		take_up(gangs, &devices);
	return true;
}

void gangs_restore(struct gangs *gangs, const char *state_directory)
{
	statefile_each(state_directory, INSTANCE_STATE_SUFFIX, restore, gangs);
}

int gangs_init(struct gangs *gangs, struct leases *leases, struct instance **instances,
	       const struct inventory *inventory, const struct instance_setup *setup,
	       void (*gone)(void *userdata))
{
	int r;

	*gangs = (struct gangs){
		.leases = leases,
		.instances = instances,
		.inventory = inventory,
		.setup = *setup,
		.gone = gone,
	};
	r = sd_event_add_defer(setup->processes->event, &gangs->sweep, on_sweep, gangs);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(gangs->sweep, SD_EVENT_OFF);
}

void gangs_done(struct gangs *gangs)
{
	gangs->sweep = sd_event_source_disable_unref(gangs->sweep);
}
