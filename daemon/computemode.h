/* SPDX-License-Identifier: MIT */
/*
 * Compute modes of GPUs: makes them exclusive, keeps on disk what they were before, and gives that
 * back. Does so with nvidia-smi, one run at a time; decides nothing of when. A mode is recorded
 * before it is changed, and the record goes when it has been given back: what a crash leaves is
 * known to the next start.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "command.h"
#include "config.h"
#include "inventory.h"

/* GPUs that are served, and others with a record. */
#define COMPUTEMODE_ENTRIES_MAX ((size_t)2 * DEVICES_MAX)
#define COMPUTEMODE_NAME_SIZE 32

enum computemode_task {
	COMPUTEMODE_NOTHING,
	COMPUTEMODE_CLAIM,
	COMPUTEMODE_GIVE_BACK,
};

#define COMPUTEMODE_OTHER SIZE_MAX /* a device that is not served */

struct computemode_entry {
	char uuid[DEVICE_UUID_SIZE];
	char previous[COMPUTEMODE_NAME_SIZE]; /* as on disk; empty: nothing to be given back */
	char present[COMPUTEMODE_NAME_SIZE];  /* when it was last seen or set; empty: not known */
	struct device *device;                /* borrowed; NULL: it is not served */
	enum computemode_task task;
	bool look;   /* first, for the present mode may be another one by now */
	bool failed; /* it could not be given back, and is not tried again */
};

struct computemode_setup {
	struct processes *processes;     /* borrowed */
	const char *program;             /* nvidia-smi; borrowed */
	const char *state_directory;     /* borrowed until computemode_init returns */
	uint64_t timeout_usec;           /* of each run of nvidia-smi */
	struct inventory *served;        /* borrowed; modes that change are changed in it */
	const struct inventory *present; /* all of the machine; borrowed as state_directory */
	/* What was asked for a served device is done, or was given up. From the event loop, and
	 * never from a function of this module. */
	void (*settled)(size_t device, void *userdata); /* or COMPUTEMODE_OTHER */
	void *userdata;
};

struct computemode {
	struct computemode_setup setup;
	char path[CONFIG_TEXT_SIZE + 16];
	char path_variable[512];
	struct computemode_entry entries[COMPUTEMODE_ENTRIES_MAX]; /* the served ones first */
	size_t n_entries;
	sd_event_source *turn, *limit;
	struct command *running;
	struct computemode_entry *entry; /* that `running` is for */
	enum computemode_task task;      /* likewise */
	bool closed;                     /* there is no time left for anything */
};

/* Reads what is recorded, and gives back what is recorded of devices that are not served. */
int computemode_init(struct computemode *modes, const struct computemode_setup *setup);
/* What runs is killed; records stay. */
void computemode_done(struct computemode *modes);

/* Makes a served device exclusive. look: ask for the present mode first, which may be another than
 * at the last look or change. False when there is nothing to do; else it will be settled. */
bool computemode_claim(struct computemode *modes, size_t device, bool look);
/* Gives back what it had before, if that is recorded and was not tried in vain already. */
bool computemode_give_back(struct computemode *modes, size_t device, bool look);

bool computemode_is_pending(const struct computemode *modes, size_t device);
bool computemode_is_busy(const struct computemode *modes);

/* What is not done by then is given up, and its record stays. */
void computemode_close(struct computemode *modes, uint64_t after_usec);
