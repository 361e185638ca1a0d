/* SPDX-License-Identifier: MIT */
#include "computemode_instances.h"

#include "computemode_plan.h"
#include "journal.h"
#include "text.h"
#include "util.h"

static const struct device *device_at(const struct modes *modes, size_t device)
{
	return &modes->setup.served->devices[device];
}

/* ---------------------------------------------------------------- when it is given back */

static bool is_over(const struct instance *instance, const struct device *device)
{
	if (!instance || instance->fsm.state == INSTANCE_STOPPED)
		return true;
	for (size_t i = 0; i < instance->setup.n_devices; i++)
		if (instance->setup.devices[i] == device)
			return false;
	return true;
}

static bool is_unused(const struct modes *modes, size_t device)
{
	for (size_t place = 0; place < PLACES_MAX; place++)
		if (!is_over(modes->setup.instances[place], device_at(modes, device)))
			return false;
	return true;
}

/* Not to be started: everything stops, or an administrator holds it and nobody has a lease. */
static bool is_kept_down(const struct modes *modes, size_t device)
{
	const struct lease_place *place = &modes->setup.leases->table.places[device];

	return modes->closing || (place->held && place->n_leases == 0);
}

static bool is_unwanted(const struct modes *modes, size_t device)
{
	return is_kept_down(modes, device) ||
	       (modes->setup.leases->table.places[device].held && !modes->waiting[device]);
}

/* Somebody may have set another mode while it was ours. */
static void give_back(struct modes *modes)
{
	for (size_t i = 0; i < modes->n_devices; i++)
		if (is_unwanted(modes, i) && is_unused(modes, i))
			(void)computemode_give_back(&modes->computemode, i, true);
}

/* ---------------------------------------------------------------- when it is needed */

/* As of the last look at it. */
static void explain_prohibited(const struct device *device, char *buffer, size_t size)
{
	(void)text_format(buffer, size,
			  "GPU %d was in compute mode " COMPUTEMODE_PROHIBITED
			  " when mps-supervisord looked: nobody can use it, through MPS neither; "
			  "nvidia-smi -i %d -c DEFAULT changes that",
			  device->index, device->index);
}

static void warn_of_prohibited(const struct modes *modes, size_t i)
{
	const struct device *device = device_at(modes, i);
	char reason[REASON_SIZE];

	if (!streq(device->compute_mode, COMPUTEMODE_PROHIBITED))
		return;
	explain_prohibited(device, reason, sizeof(reason));
	journal_log(LOG_WARNING, &(struct journal_context){.instance = device->uuid}, "%s", reason);
}

static bool claim(struct modes *modes, size_t device, bool look)
{
	return modes->exclusive && !device_at(modes, device)->mig &&
	       computemode_claim(&modes->computemode, device, look);
}

bool modes_prepare(struct modes *modes, size_t device)
{
	bool runs = instance_control_pid(modes->setup.instances[device]) > 0;
	bool kept_down = is_kept_down(modes, device) && !runs;
	bool pending = modes->exclusive && !kept_down
			       ? claim(modes, device, false)
			       : computemode_give_back(&modes->computemode, device, false);

	if (!pending)
		warn_of_prohibited(modes, device);
	modes->waiting[device] = pending && !runs && !kept_down;
	return modes->waiting[device];
}

/* It is not held any more, though it does not start yet. */
static void make_wait(struct modes *modes, struct instance *instance)
{
	modes->waiting[instance->setup.index] = true;
	instance->fsm.held = false;
	(void)text_copy(instance->fsm.reason, sizeof(instance->fsm.reason),
			"the compute mode of its GPU is being set");
}

void modes_resume(struct modes *modes, struct instance *instance)
{
	if (instance->fsm.state == INSTANCE_STOPPED && claim(modes, instance->setup.index, true))
		make_wait(modes, instance);
	else
		instance_start(instance);
}

/* ---------------------------------------------------------------- what happens */

static void on_served_settled(struct modes *modes, size_t device)
{
	struct instance *instance = modes->setup.instances[device];
	bool starts = modes->waiting[device] && !is_kept_down(modes, device);

	modes->waiting[device] = false;
	if (!is_kept_down(modes, device))
		warn_of_prohibited(modes, device);
	if (starts && instance->fsm.state == INSTANCE_STOPPED)
		modes->setup.start(device, modes->setup.userdata);
	give_back(modes);
}

static void on_settled(size_t device, void *userdata)
{
	struct modes *modes = userdata;

	if (device != COMPUTEMODE_OTHER)
		on_served_settled(modes, device);
	modes->setup.settled(device, modes->setup.userdata);
}

static void say_contradiction(struct instance *instance)
{
	for (size_t i = 0; i < instance->setup.n_devices; i++)
		if (streq(instance->setup.devices[i]->compute_mode, COMPUTEMODE_PROHIBITED))
			explain_prohibited(instance->setup.devices[i], instance->fsm.reason,
					   sizeof(instance->fsm.reason));
}

void modes_instance_changed(struct modes *modes, struct instance *instance)
{
	if (instance->fsm.state == INSTANCE_STOPPED)
		give_back(modes);
	else if (instance->fsm.state == INSTANCE_READY)
		say_contradiction(instance);
}

void modes_close(struct modes *modes, uint64_t after_usec)
{
	modes->closing = true;
	computemode_close(&modes->computemode, after_usec);
	give_back(modes);
}

bool modes_are_busy(const struct modes *modes)
{
	return computemode_is_busy(&modes->computemode);
}

bool modes_is_pending(const struct modes *modes, const struct instance *instance)
{
	return !instance_is_gang(instance) &&
	       computemode_is_pending(&modes->computemode, instance->setup.index);
}

int modes_init(struct modes *modes, const struct modes_setup *setup)
{
	modes->setup = *setup;
	modes->setup.config = NULL;
	modes->setup.present = NULL;
	modes->n_devices = setup->served->n_devices;
	modes->exclusive = setup->config->compute_mode == CONFIG_COMPUTE_MODE_EXCLUSIVE_PROCESS;
	return computemode_init(&modes->computemode,
				&(struct computemode_setup){
					.processes = setup->processes,
					.program = setup->program,
					.state_directory = setup->config->state_directory,
					.timeout_usec = setup->timeout_usec,
					.served = setup->served,
					.present = setup->present,
					.settled = on_settled,
					.userdata = modes,
				});
}

void modes_done(struct modes *modes)
{
	computemode_done(&modes->computemode);
}
