/* SPDX-License-Identifier: MIT */
#include "instance_text.h"

#include <inttypes.h>
#include <stdbool.h>

#include "in_way.h"
#include "layout.h"
#include "lease_table.h"
#include "text.h"

#define DEATHS_SHOWN 3
#define LIST_MAX 1024 /* 64 pids or ids */

static void print_devices(FILE *file, const json_t *instance)
{
	const json_t *device;
	char memory[LAYOUT_TEXT_MAX], number[LAYOUT_TEXT_MAX];
	size_t i;

	json_array_foreach(json_object_get(instance, "devices"), i, device) {
		const char *mode = layout_text(device, "compute_mode", "");
		const char *uuid = layout_text(device, "uuid", "?");
		/* An instance of one device is called after it. */
		bool named = streq(uuid, layout_text(instance, "name", ""));

		layout_line(
			file, "  device      %s %s, %s, %s%s%s%s%s\n",
			layout_number(layout_int(device, "index", -1), number),
			layout_text(device, "name", "?"), layout_text(device, "pci_bus_id", "?"),
			layout_bytes(layout_int(device, "memory_bytes", -1), memory),
			*mode ? ", compute mode " : "", mode, named ? "" : ", ", named ? "" : uuid);
	}
}

static void print_state(FILE *file, const json_t *instance, int64_t now_usec)
{
	const char *reason = layout_text(instance, "reason", "");
	bool held = json_is_true(json_object_get(instance, "held"));
	/* "stopped, held by an administrator" need not say it twice. */
	bool says_so = held && text_starts_with(reason, "held by ");
	int64_t since = layout_int(instance, "since_usec", now_usec);
	char when[LAYOUT_TEXT_MAX], span[LAYOUT_TEXT_MAX];

	layout_line(file, "  state       %s%s%s%s, since %s (%s)\n",
		    layout_text(instance, "state", "?"), held && !says_so ? ", held" : "",
		    says_so   ? ", "
		    : *reason ? ": "
			      : "",
		    reason, layout_time(since, when), layout_duration(now_usec - since, span));
}

/* Whom an instance that is drained waits for: maybe those of a gang over its device. */
static void print_in_way(FILE *file, const json_t *instance, const json_t *leases)
{
	char text[IN_WAY_TEXT_MAX];

	if (json_is_true(json_object_get(instance, "held")) &&
	    in_way_describe(instance, leases, text) > 0)
		layout_line(file, "  waits for   %s\n", text);
}

static void print_use(FILE *file, const json_t *instance)
{
	bool multi_user = json_is_true(json_object_get(instance, "multi_user"));
	bool several = json_array_size(json_object_get(instance, "devices")) > 1;
	const char *each = several ? " on each device" : "";
	int64_t reserved = layout_int(instance, "memory_reserved_bytes", 0);
	char user[LAYOUT_TEXT_MAX], memory[LAYOUT_TEXT_MAX];

	layout_line(file, "  user        %s%s\n",
		    layout_user(layout_int(instance, "uid", -1), user),
		    multi_user ? ", several at a time" : "");
	layout_line(file, "  clients     %" PRId64 " of %" PRId64 " reserved%s, %zu attached\n",
		    layout_int(instance, "clients_reserved", 0),
		    layout_int(instance, "max_clients", 0), each,
		    json_array_size(json_object_get(instance, "clients")));
	layout_line(file, "  shares      threads %" PRId64 "%%%s%s%s\n",
		    layout_int(instance, "threads_reserved_percent", 0),
		    reserved > 0 ? ", memory " : "",
		    reserved > 0 ? layout_bytes(reserved, memory) : "", each);
	layout_line(file, "  leases      %" PRId64 ", %" PRId64 " waiting\n",
		    layout_int(instance, "leases", 0), layout_int(instance, "waiting", 0));
}

static void print_daemons(FILE *file, const json_t *instance)
{
	int64_t control = layout_int(instance, "control_pid", 0);
	char list[LIST_MAX] = "";
	const json_t *server;
	size_t i;

	json_array_foreach(json_object_get(instance, "servers"), i, server) {
		size_t length = strlen(list);

		(void)text_format(list + length, sizeof(list) - length,
				  ", server %" PRId64 " (uid %" PRId64 ", %s)",
				  layout_int(server, "pid", 0), layout_int(server, "uid", 0),
				  layout_text(server, "state", "?"));
	}
	layout_line(file, "  generation  %" PRId64 ", %" PRId64 " restarts\n",
		    layout_int(instance, "generation", 0), layout_int(instance, "restarts", 0));
	if (control > 0)
		layout_line(file, "  processes   control %" PRId64 "%s\n", control, list);
	else
		layout_line(file, "  processes   none%s\n", list);
}

/* "pids 12, 34" or "leases 7f3a…", as the array holds numbers or strings. */
static void print_hit(FILE *file, const json_t *array, const char *what)
{
	char list[LIST_MAX] = "";
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item) {
		size_t length = strlen(list);

		if (json_is_string(item))
			(void)text_format(list + length, sizeof(list) - length, "%s%s",
					  i ? ", " : "", json_string_value(item));
		else
			(void)text_format(list + length, sizeof(list) - length, "%s%" PRId64,
					  i ? ", " : "", (int64_t)json_integer_value(item));
	}
	if (json_array_size(array) > 0)
		layout_line(file, "    hit       %s %s\n", what, list);
}

/* A reason is a sentence, which says the status too, and below it the last lines that MPS wrote. */
static void print_death(FILE *file, const json_t *death, bool with_lines)
{
	const char *reason = layout_text(death, "reason", layout_text(death, "status", "?"));
	size_t length = strcspn(reason, "\n");
	char when[LAYOUT_TEXT_MAX];

	layout_line(file, "  death       %s %s: %.*s\n",
		    layout_time(layout_int(death, "at_usec", -1), when),
		    layout_text(death, "what", "?"), (int)length, reason);
	print_hit(file, json_object_get(death, "hit_pids"), "pids");
	print_hit(file, json_object_get(death, "hit_leases"), "leases");
	while (with_lines && reason[length] == '\n') {
		reason += length + 1;
		length = strcspn(reason, "\n");
		layout_line(file, "    said      %.*s\n", (int)length, reason);
	}
}

/* The newest comes first; its last words are shown too. */
static void print_deaths(FILE *file, const json_t *instance)
{
	const json_t *deaths = json_object_get(instance, "deaths");
	size_t n = MIN(json_array_size(deaths), (size_t)DEATHS_SHOWN);

	for (size_t i = 0; i < n; i++)
		print_death(file, json_array_get(deaths, i), i == 0);
}

static void print_suspects(FILE *file, const json_t *instance)
{
	const json_t *suspect;
	char user[LAYOUT_TEXT_MAX];
	size_t i;

	json_array_foreach(json_object_get(instance, "suspects"), i, suspect) {
		const char *name = layout_text(suspect, "name", "");

		layout_line(file,
			    "  suspect     %s%s%s: present at %" PRId64 " of the last %" PRId64
			    " faults\n",
			    layout_user(layout_int(suspect, "uid", -1), user), *name ? ", " : "",
			    name, layout_int(suspect, "present", 0),
			    layout_int(suspect, "faults", 0));
	}
}

void instance_text_print(FILE *file, const json_t *instance, const json_t *leases, int64_t now_usec)
{
	const char *name = layout_text(instance, "name", "?");

	layout_line(file, "%s (%s)\n", name, layout_text(instance, "kind", "?"));
	print_devices(file, instance);
	print_state(file, instance, now_usec);
	print_in_way(file, instance, leases);
	print_use(file, instance);
	print_daemons(file, instance);
	print_deaths(file, instance);
	print_suspects(file, instance);
	(void)lease_table_print(file, leases, name, now_usec, 2);
}
