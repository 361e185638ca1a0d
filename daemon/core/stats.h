/* SPDX-License-Identifier: MIT */
/* What is counted since the supervisor started. Only ever counts up. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct stats {
	uint64_t leases_requested;
	uint64_t leases_granted;
	uint64_t leases_refused;
	uint64_t leases_timed_out;
	uint64_t leases_ended;
	uint64_t interruptions;
	uint64_t control_starts;
	uint64_t control_deaths;
	uint64_t server_starts;
	uint64_t server_deaths;
	uint64_t control_commands;
	uint64_t control_commands_failed;
	uint64_t connections_accepted;
	uint64_t connections_refused;
	uint64_t log_lines;
	uint64_t log_lines_cut;
};

/* The i-th counter: its name in the protocol and its value. NULL past the last. */
const char *stats_get(const struct stats *stats, size_t i, uint64_t *ret_value);
