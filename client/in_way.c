/* SPDX-License-Identifier: MIT */
#include "in_way.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>

#include "layout.h"
#include "text.h"

#define NAMED_MAX 8 /* of the others there is only the number */

static bool is_on(const json_t *lease, const json_t *instance)
{
	const json_t *devices = json_object_get(instance, "devices");
	const char *name = layout_text(lease, "instance", "");
	const json_t *uuid, *device;
	size_t i, j;

	if (streq(layout_text(lease, "state", ""), "queued"))
		return false;
	if (streq(name, layout_text(instance, "name", "?")))
		return true;
	json_array_foreach(json_object_get(lease, "devices"), i, uuid) {
		const char *leased = json_string_value(uuid);

		json_array_foreach(devices, j, device)
			if (leased && streq(leased, layout_text(device, "uuid", "")))
				return true;
	}
	return false;
}

/* What does not fit is cut. */
static void PRINTF_LIKE(2, 3) add(char text[static IN_WAY_TEXT_MAX], const char *format, ...)
{
	size_t length = strlen(text);
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text + length, IN_WAY_TEXT_MAX - length, format, ap);
	va_end(ap);
}

static void add_attached(const json_t *lease, char text[static IN_WAY_TEXT_MAX])
{
	const json_t *attached = json_object_get(lease, "attached"), *pid;
	size_t i;

	add(text, ", draining");
	json_array_foreach(attached, i, pid) {
		if (i == NAMED_MAX)
			break;
		add(text, "%s%" PRId64, i ? ", " : " with attached pids ",
		    (int64_t)json_integer_value(pid));
	}
	if (json_array_size(attached) > NAMED_MAX)
		add(text, " and %zu more", json_array_size(attached) - NAMED_MAX);
}

static void add_lease(const json_t *lease, char text[static IN_WAY_TEXT_MAX])
{
	int64_t pid = layout_int(lease, "pid", -1);
	const char *name = layout_text(lease, "name", "");
	char user[LAYOUT_TEXT_MAX];

	add(text, "%s of %s", layout_text(lease, "id", "?"),
	    layout_user(layout_int(lease, "uid", -1), user));
	if (pid >= 0)
		add(text, ", pid %" PRId64, pid);
	if (*name)
		add(text, ", \"%s\"", name);
	if (streq(layout_text(lease, "state", ""), "draining"))
		add_attached(lease, text);
}

static size_t count(const json_t *instance, const json_t *leases)
{
	const json_t *lease;
	size_t i, n = 0;

	json_array_foreach(leases, i, lease)
		n += is_on(lease, instance);
	return n;
}

size_t in_way_describe(const json_t *instance, const json_t *leases,
		       char text[static IN_WAY_TEXT_MAX])
{
	size_t n = count(instance, leases), i, named = 0;
	const json_t *lease;

	text[0] = '\0';
	if (n > 0)
		add(text, "%zu lease%s: ", n, n > 1 ? "s" : "");
	json_array_foreach(leases, i, lease) {
		if (!is_on(lease, instance))
			continue;
		if (named == NAMED_MAX) {
			add(text, "; and %zu more", n - named);
			break;
		}
		add(text, "%s", named ? "; " : "");
		add_lease(lease, text);
		named++;
	}
	return n;
}
