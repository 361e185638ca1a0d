/* SPDX-License-Identifier: MIT */
/* The devices that an administrator holds: kept on disk, across restarts and boots. */
#pragma once

#include <stdbool.h>

#include "caps.h"
#include "config.h"

struct held {
	char path[CONFIG_TEXT_SIZE + 16];
	char names[DEVICES_MAX][DEVICE_UUID_SIZE];
	size_t n;
};

/* Reads what is held; a file that cannot be read holds nothing, and is warned about. */
void held_load(struct held *held, const char *state_directory);
bool held_has(const struct held *held, const char *name);
/* On disk when this returns 0. -errno, and then nothing has changed. */
int held_set(struct held *held, const char *name, bool is_held);
