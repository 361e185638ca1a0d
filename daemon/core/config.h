/* SPDX-License-Identifier: MIT */
/*
 * The configuration: every option with its type, range and default, in one table. Values come
 * from outside by path ("timeouts.start"); nothing here reads a file. No allocation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "caps.h"

#define CONFIG_TEXT_SIZE 256
#define CONFIG_STRINGS_MAX 64
#define CONFIG_GPUS_MAX 64
#define CONFIG_ERROR_SIZE 512

/* Below the runtime directory lie the pipe directories "/instance/XXXXXXXX" and
 * "/lease/XXXXXXXX"; the longer one decides. */
#define RUNTIME_DIRECTORY_MAX (PIPE_DIRECTORY_MAX - 18)

enum config_compute_mode {
	CONFIG_COMPUTE_MODE_KEEP,
	CONFIG_COMPUTE_MODE_EXCLUSIVE_PROCESS,
};

enum config_placement {
	CONFIG_PLACEMENT_SPREAD,
	CONFIG_PLACEMENT_PACK,
};

struct config_strings {
	char items[CONFIG_STRINGS_MAX][DEVICE_UUID_SIZE];
	size_t n;
};

/* An exception for the devices that match (a selector). */
struct config_gpu {
	char match[DEVICE_UUID_SIZE];
	int max_clients; /* 0: not set */
	bool multi_user, multi_user_set;
};

struct config {
	char runtime_directory[CONFIG_TEXT_SIZE];
	char state_directory[CONFIG_TEXT_SIZE];
	char mps_control[CONFIG_TEXT_SIZE];
	char nvidia_smi[CONFIG_TEXT_SIZE];
	struct config_strings devices;
	bool multi_user;
	int compute_mode; /* enum config_compute_mode */
	int placement;    /* enum config_placement */
	int max_clients;
	bool oversubscribe_threads;
	bool prestart;
	uint64_t idle_server_stop_usec; /* 0: never */
	struct {
		struct config_strings lease_groups, admin_groups;
		int max_leases_per_user; /* 0: no limit */
	} access;
	struct {
		uint64_t start_usec, query_usec, stop_usec, fault_grace_usec, reclaim_usec;
		uint64_t straggler_grace_usec, attach_grace_usec;
		uint64_t wait_usec; /* 0: for ever */
	} timeouts;
	struct {
		uint64_t interval_usec, idle_interval_usec, wedge_grace_usec;
		int misses;
	} health;
	struct {
		uint64_t backoff_min_usec, backoff_max_usec, window_usec;
		uint64_t failed_retry_usec; /* 0: never */
		int limit;
	} restart;
	struct config_gpu gpus[CONFIG_GPUS_MAX];
	size_t n_gpus;
};

enum config_value_type {
	CONFIG_VALUE_INT,
	CONFIG_VALUE_FLOAT,
	CONFIG_VALUE_BOOL,
	CONFIG_VALUE_STRING,
	CONFIG_VALUE_OTHER, /* a group or list where a single value belongs */
};

struct config_value {
	enum config_value_type type;
	int64_t integer;
	double number;
	bool boolean;
	const char *string;
};

void config_defaults(struct config *config);

enum config_kind {
	CONFIG_KIND_UNKNOWN,
	CONFIG_KIND_VALUE,
	CONFIG_KIND_STRINGS, /* an array of strings */
	CONFIG_KIND_GROUP,
	CONFIG_KIND_GPUS, /* the list of exceptions */
};

/* What belongs at path. */
enum config_kind config_kind_of(const char *path);

/* Each sets one value; -EINVAL with a sentence in error (it names the option) leaves the
 * configuration as it was. */
int config_set(struct config *config, const char *path, const struct config_value *value,
	       char error[static CONFIG_ERROR_SIZE]);
void config_clear_strings(struct config *config, const char *path);
int config_append_string(struct config *config, const char *path, const struct config_value *value,
			 char error[static CONFIG_ERROR_SIZE]);
int config_gpu_set(struct config_gpu *gpu, const char *key, const struct config_value *value,
		   char error[static CONFIG_ERROR_SIZE]);
/* -EINVAL when the exception lacks what it needs, or there is no room. */
int config_append_gpu(struct config *config, const struct config_gpu *gpu,
		      char error[static CONFIG_ERROR_SIZE]);

/* Writes every option so that reading it back gives the same configuration. */
void config_print(const struct config *config, FILE *file);
