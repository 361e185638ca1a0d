/* SPDX-License-Identifier: MIT */
/*
 * The devices of the pretended machine, from the file "standin.gpus" beside the program (or named
 * by MPS_STANDIN_GPUS): one line each, MIG instances behind their GPU. README.md has the format.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* As many as a supervisor takes; a program whose file has more ends with status 2. */
#define GPUS_MAX 256
#define GPU_FIELD_MAX 96

enum gpu_field {
	GPU_INDEX,
	GPU_UUID,
	GPU_PCI_BUS_ID,
	GPU_NAME,
	GPU_COMPUTE_MODE,
	GPU_MIG_MODE,
	GPU_PERSISTENCE_MODE,
	GPU_MEMORY_TOTAL,
	GPU_N_FIELDS,
};

/* A GPU, or a MIG instance: then fields other than GPU_UUID, GPU_PCI_BUS_ID, GPU_NAME are empty. */
struct gpu {
	bool is_mig;
	int mig_device;
	char mig_profile[GPU_FIELD_MAX];
	char fields[GPU_N_FIELDS][GPU_FIELD_MAX];
};

struct gpus {
	char path[PATH_MAX]; /* empty when there is no file */
	size_t n_devices;
	struct gpu devices[GPUS_MAX];
};

void gpus_load(struct gpus *ret_gpus);

/* Replaces the file in one step; 0 or -errno. */
int gpus_save(const struct gpus *gpus);

/*
 * The devices that CUDA_VISIBLE_DEVICES leaves of all: UUIDs, beginnings of UUIDs or indexes, up to
 * the first that does not exist. NULL leaves all of them (GPUs only). Returns how many there are.
 */
size_t gpus_select(const struct gpus *all, const char *visible,
		   const struct gpu *ret_visible[GPUS_MAX]);

/* What a daemon with this CUDA_VISIBLE_DEVICES sees; a machine without a file has what it names. */
void gpus_of_daemon(struct gpus *ret_gpus);
