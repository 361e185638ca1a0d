/* SPDX-License-Identifier: MIT */
/*
 * Which GPU is to have which compute mode when: exclusive from before its instance starts until
 * that is stopped for good, or by an administrator, if so configured; else what it had. A GPU is
 * not touched while an instance of it runs, one of several devices included, but to make it
 * exclusive. MIG instances are left alone: the mode is their GPU's.
 */
#pragma once

#include "computemode.h"
#include "instance.h"
#include "leases.h"

struct modes_setup {
	const struct config *config; /* borrowed until modes_init returns */
	struct processes *processes; /* borrowed, this and what follows */
	const char *program;
	uint64_t timeout_usec; /* of each run of it: nvidia-smi */
	struct inventory *served;
	const struct inventory *present; /* as config */
	struct instance **instances;     /* by place */
	const struct leases *leases;
	/* The instance of a device may start now. */
	void (*start)(size_t device, void *userdata);
	/* What was to be done about a device's mode is done, or was given up. */
	void (*settled)(size_t device, void *userdata);
	void *userdata;
};

struct modes {
	struct modes_setup setup;
	struct computemode computemode;
	size_t n_devices;
	bool waiting[DEVICES_MAX]; /* its instance waits for its mode */
	bool exclusive, closing;
};

int modes_init(struct modes *modes, const struct modes_setup *setup);
void modes_done(struct modes *modes);

/* Before a device's instance is started for the first time. True: `start` will say when; false: it
 * can be started now. One that runs already is not waited for. */
bool modes_prepare(struct modes *modes, size_t device);
/* Starts one that an administrator gives back, when its GPU has the mode that it is to have. */
void modes_resume(struct modes *modes, struct instance *instance);
/* Before others are told of its new state. */
void modes_instance_changed(struct modes *modes, struct instance *instance);

/* Everything stops: modes are given back within this time, or at the next start. */
void modes_close(struct modes *modes, uint64_t after_usec);
/* Is anything still to be done, of all devices? Of one? */
bool modes_are_busy(const struct modes *modes);
bool modes_is_pending(const struct modes *modes, const struct instance *instance);
