/* SPDX-License-Identifier: MIT */
#include "lease_table.h"

#include <inttypes.h>
#include <stdbool.h>

#include "layout.h"
#include "text.h"

static const char *const titles_of_all[] = {"LEASE",   "INSTANCE", "STATE",    "USER", "PID", "AGE",
					    "THREADS", "MEMORY",   "ATTACHED", "NAME", "WHY", NULL};
static const char *const titles_of_one[] = {"LEASE",  "STATE",    "USER", "PID", "AGE", "THREADS",
					    "MEMORY", "ATTACHED", "NAME", "WHY", NULL};

static void add_number(struct layout_table *table, const json_t *lease, const char *key,
		       const char *unit)
{
	int64_t value = layout_int(lease, key, -1);
	char text[LAYOUT_TEXT_MAX];

	layout_cell(table, "%s%s", layout_number(value, text), value < 0 ? "" : unit);
}

static void add_memory(struct layout_table *table, const json_t *lease)
{
	char text[LAYOUT_TEXT_MAX];

	layout_cell(table, "%s", layout_bytes(layout_int(lease, "memory_bytes", -1), text));
}

/* A gang's name says nothing about its size. */
static void add_instance(struct layout_table *table, const json_t *lease, size_t n_devices)
{
	const char *name = layout_text(lease, "instance", "-");

	if (n_devices > 1)
		layout_cell(table, "%s (%zu GPUs)", name, n_devices);
	else
		layout_cell(table, "%s", name);
}

/* Processes that attached beside places reserved, which a gang has on each of its devices. */
static void add_clients(struct layout_table *table, const json_t *lease, size_t n_devices)
{
	layout_cell(table, "%zu/%" PRId64 "%s", json_array_size(json_object_get(lease, "attached")),
		    layout_int(lease, "clients", 1), n_devices > 1 ? " per GPU" : "");
}

/* Why it waits, with its place; or why else the supervisor has something to say about it. */
static void add_reason(struct layout_table *table, const json_t *lease)
{
	int64_t position = layout_int(lease, "position", -1);
	char reason[LAYOUT_REASON_MAX];

	(void)layout_reason(layout_text(lease, "reason", ""), reason);
	if (position >= 0)
		layout_cell(table, "position %" PRId64 "%s%s", position, *reason ? ": " : "",
			    reason);
	else
		layout_cell(table, "%s", *reason ? reason : "-");
}

static void add_lease(struct layout_table *table, const json_t *lease, bool with_instance,
		      int64_t now_usec)
{
	int64_t since =
		layout_int(lease, "granted_usec", layout_int(lease, "requested_usec", now_usec));
	size_t n_devices = json_array_size(json_object_get(lease, "devices"));
	char user[LAYOUT_TEXT_MAX], age[LAYOUT_TEXT_MAX];

	layout_cell(table, "%s", layout_text(lease, "id", "-"));
	if (with_instance)
		add_instance(table, lease, n_devices);
	layout_cell(table, "%s%s", layout_text(lease, "state", "-"),
		    json_is_true(json_object_get(lease, "exclusive")) ? ",exclusive" : "");
	layout_cell(table, "%s", layout_user(layout_int(lease, "uid", -1), user));
	add_number(table, lease, "pid", "");
	layout_cell(table, "%s", layout_duration(now_usec - since, age));
	add_number(table, lease, "threads_percent", "%");
	add_memory(table, lease);
	add_clients(table, lease, n_devices);
	layout_cell(table, "%s", layout_text(lease, "name", "-"));
	add_reason(table, lease);
}

size_t lease_table_print(FILE *file, const json_t *leases, const char *instance, int64_t now_usec,
			 int indent)
{
	_cleanup_(layout_table_done) struct layout_table table;
	const json_t *lease;
	size_t i, n = 0;

	layout_table_init(&table, instance ? titles_of_one : titles_of_all);
	json_array_foreach(leases, i, lease) {
		if (instance && !streq(layout_text(lease, "instance", ""), instance))
			continue;
		add_lease(&table, lease, !instance, now_usec);
		n++;
	}
	if (n > 0)
		layout_table_print(&table, file, indent);
	return n;
}
