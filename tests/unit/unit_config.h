/* SPDX-License-Identifier: MIT */
/* Equality of configurations: what counts, not what earlier values left behind a NUL. */
#pragma once

#include "config.h"
#include "unit.h"

static inline void unit_assert_same_strings(const struct config_strings *a,
					    const struct config_strings *b)
{
	ck_assert_uint_eq(a->n, b->n);
	for (size_t i = 0; i < a->n; i++)
		ck_assert_str_eq(a->items[i], b->items[i]);
}

static inline void unit_assert_same_gpu(const struct config_gpu *a, const struct config_gpu *b)
{
	ck_assert_str_eq(a->match, b->match);
	ck_assert_int_eq(a->max_clients, b->max_clients);
	ck_assert_int_eq(a->multi_user_set, b->multi_user_set);
	ck_assert_int_eq(a->multi_user, b->multi_user);
}

static inline void unit_assert_same_config(const struct config *a, const struct config *b)
{
	ck_assert_str_eq(a->runtime_directory, b->runtime_directory);
	ck_assert_str_eq(a->state_directory, b->state_directory);
	ck_assert_str_eq(a->mps_control, b->mps_control);
	ck_assert_str_eq(a->nvidia_smi, b->nvidia_smi);
	unit_assert_same_strings(&a->devices, &b->devices);
	ck_assert_int_eq(a->multi_user, b->multi_user);
	ck_assert_int_eq(a->compute_mode, b->compute_mode);
	ck_assert_int_eq(a->placement, b->placement);
	ck_assert_int_eq(a->max_clients, b->max_clients);
	ck_assert_int_eq(a->oversubscribe_threads, b->oversubscribe_threads);
	ck_assert_int_eq(a->prestart, b->prestart);
	ck_assert_uint_eq(a->idle_server_stop_usec, b->idle_server_stop_usec);
	unit_assert_same_strings(&a->access.lease_groups, &b->access.lease_groups);
	unit_assert_same_strings(&a->access.admin_groups, &b->access.admin_groups);
	ck_assert_int_eq(a->access.max_leases_per_user, b->access.max_leases_per_user);
	ck_assert_mem_eq(&a->timeouts, &b->timeouts, sizeof(a->timeouts));
	ck_assert_uint_eq(a->health.interval_usec, b->health.interval_usec);
	ck_assert_uint_eq(a->health.idle_interval_usec, b->health.idle_interval_usec);
	ck_assert_uint_eq(a->health.wedge_grace_usec, b->health.wedge_grace_usec);
	ck_assert_int_eq(a->health.misses, b->health.misses);
	ck_assert_uint_eq(a->restart.backoff_min_usec, b->restart.backoff_min_usec);
	ck_assert_uint_eq(a->restart.backoff_max_usec, b->restart.backoff_max_usec);
	ck_assert_uint_eq(a->restart.window_usec, b->restart.window_usec);
	ck_assert_uint_eq(a->restart.failed_retry_usec, b->restart.failed_retry_usec);
	ck_assert_int_eq(a->restart.limit, b->restart.limit);
	ck_assert_uint_eq(a->n_gpus, b->n_gpus);
	for (size_t i = 0; i < a->n_gpus; i++)
		unit_assert_same_gpu(&a->gpus[i], &b->gpus[i]);
}
