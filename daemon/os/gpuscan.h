/* SPDX-License-Identifier: MIT */
/* Asks nvidia-smi which devices there are. */
#pragma once

#include "command.h"
#include "inventory.h"

#define GPUSCAN_REASON_SIZE 320

/* r: 0 with the inventory (which may be empty), or -errno with a sentence. From the event loop. */
typedef void (*gpuscan_handler)(int r, const struct inventory *inventory, const char *reason,
				void *userdata);

struct gpuscan {
	struct processes *processes;
	const char *program; /* borrowed */
	char path_variable[512];
	uint64_t timeout_usec; /* of each run of nvidia-smi; there are two when MIG is in use */
	struct command *running;
	struct inventory inventory;
	gpuscan_handler handler;
	void *userdata;
};

/* -errno when the program could not be started. */
int gpuscan_start(struct gpuscan *scan, struct processes *processes, const char *program,
		  uint64_t timeout_usec, gpuscan_handler handler, void *userdata);
void gpuscan_cancel(struct gpuscan *scan);
