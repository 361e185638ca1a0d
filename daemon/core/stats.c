/* SPDX-License-Identifier: MIT */
#include "stats.h"

#include "util.h"

#define COUNTER(name)                               \
	{                                           \
#name, offsetof(struct stats, name) \
	}

static const struct {
	const char *name;
	size_t offset;
} counters[] = {
	COUNTER(leases_requested),
	COUNTER(leases_granted),
	COUNTER(leases_refused),
	COUNTER(leases_timed_out),
	COUNTER(leases_ended),
	COUNTER(interruptions),
	COUNTER(control_starts),
	COUNTER(control_deaths),
	COUNTER(server_starts),
	COUNTER(server_deaths),
	COUNTER(control_commands),
	COUNTER(control_commands_failed),
	COUNTER(connections_accepted),
	COUNTER(connections_refused),
	COUNTER(log_lines),
	COUNTER(log_lines_cut),
};

const char *stats_get(const struct stats *stats, size_t i, uint64_t *ret_value)
{
	if (i >= ELEMENTSOF(counters))
		return NULL;
	*ret_value = *(const uint64_t *)(const void *)((const char *)stats + counters[i].offset);
	return counters[i].name;
}
