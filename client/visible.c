/* SPDX-License-Identifier: MIT */
#include "visible.h"

#include <inttypes.h>
#include <strings.h>

#include "layout.h"
#include "text.h"
#include "util.h"

#define ENTRY_MAX 128
#define VALUE_SHOWN 128 /* bytes */
#define DEVICES_SHOWN 8

struct comparison {
	const char *value;
	const json_t *devices; /* the lease's: UUIDs */
	const json_t *status;
	size_t n_entries, n_elsewhere; /* entries; those that name none of devices */
};

/* The next entry, without the spaces around it. False at the end, and at what names no device. */
static bool next_entry(const char **value, char entry[static ENTRY_MAX])
{
	const char *begin = *value + strspn(*value, " \t");
	size_t length = strcspn(begin, ",");
	int64_t number;

	*value = begin + length + (begin[length] == ',');
	while (length > 0 && strchr(" \t", begin[length - 1]))
		length--;
	if (length == 0 || length >= ENTRY_MAX)
		return false;
	memcpy(entry, begin, length);
	entry[length] = '\0';
	return text_parse_int(entry, 0, INT32_MAX, &number) == 0 ||
	       strncasecmp(entry, "GPU-", 4) == 0 || strncasecmp(entry, "MIG-", 4) == 0;
}

static bool is_number(const char *entry)
{
	return *entry >= '0' && *entry <= '9';
}

bool visible_has_numbers(const char *value)
{
	char entry[ENTRY_MAX];

	while (next_entry(&value, entry))
		if (is_number(entry))
			return true;
	return false;
}

/* As nvidia-smi counts; -1 when the answer does not tell. */
static int64_t index_of(const json_t *status, const char *uuid)
{
	const json_t *instance, *device;
	size_t i, j;

	json_array_foreach(json_object_get(status, "instances"), i, instance) {
		json_array_foreach(json_object_get(instance, "devices"), j, device) {
			if (strcasecmp(layout_text(device, "uuid", ""), uuid) == 0)
				return layout_int(device, "index", -1);
		}
	}
	return -1;
}

static bool names(const struct comparison *comparison, const char *entry, const char *uuid)
{
	int64_t number;

	if (is_number(entry) && text_parse_int(entry, 0, INT32_MAX, &number) == 0)
		return index_of(comparison->status, uuid) == number;
	return strncasecmp(uuid, entry, strlen(entry)) == 0;
}

static bool names_any(const struct comparison *comparison, const char *entry)
{
	const json_t *device;
	size_t i;

	json_array_foreach(comparison->devices, i, device) {
		if (names(comparison, entry, json_string_value(device)))
			return true;
	}
	return false;
}

static void count_entries(struct comparison *comparison)
{
	const char *rest = comparison->value;
	char entry[ENTRY_MAX];

	for (; next_entry(&rest, entry); comparison->n_entries++)
		comparison->n_elsewhere += !names_any(comparison, entry);
}

static bool is_named(const struct comparison *comparison, const char *uuid)
{
	const char *rest = comparison->value;
	char entry[ENTRY_MAX];

	while (next_entry(&rest, entry))
		if (names(comparison, entry, uuid))
			return true;
	return false;
}

/* The lease's devices, each known as far as the comparison needs it. */
static bool can_compare(const struct comparison *comparison)
{
	bool by_number = visible_has_numbers(comparison->value);
	const json_t *device;
	size_t i;

	json_array_foreach(comparison->devices, i, device) {
		const char *uuid = json_string_value(device);

		if (!uuid || (by_number && index_of(comparison->status, uuid) < 0))
			return false;
	}
	return json_array_size(comparison->devices) > 0;
}

static bool are_all_named(const struct comparison *comparison)
{
	const json_t *device;
	size_t i;

	json_array_foreach(comparison->devices, i, device) {
		if (!is_named(comparison, json_string_value(device)))
			return false;
	}
	return true;
}

/* "GPU 0 (GPU-1b52…), GPU 1 (GPU-77aa…)" */
static void list_devices(const struct comparison *comparison, char *list, size_t size)
{
	const json_t *device;
	size_t i;

	list[0] = '\0';
	json_array_foreach(comparison->devices, i, device) {
		const char *uuid = json_string_value(device);
		int64_t number = index_of(comparison->status, uuid);
		size_t length = strlen(list);

		if (i == DEVICES_SHOWN) {
			(void)text_format(list + length, size - length, " and %zu more",
					  json_array_size(comparison->devices) - i);
			return;
		}
		if (number >= 0)
			(void)text_format(list + length, size - length, "%sGPU %" PRId64 " (%s)",
					  i ? ", " : "", number, uuid);
		else
			(void)text_format(list + length, size - length, "%s%s", i ? ", " : "",
					  uuid);
	}
}

/* Fewer than named, and meant to be. Of several MIG instances a CUDA process uses one anyway. */
static bool may_be_fewer(const struct comparison *comparison, const json_t *request)
{
	const char *uuid = json_string_value(json_array_get(comparison->devices, 0));

	return json_object_get(request, "count") || json_object_get(request, "devices") ||
	       text_starts_with(uuid, "MIG-");
}

bool visible_differs(const char *value, const json_t *request, const json_t *lease,
		     const json_t *status, char note[static VISIBLE_NOTE_MAX])
{
	struct comparison comparison = {
		.value = value,
		.devices = json_object_get(lease, "devices"),
		.status = status,
	};
	char list[VISIBLE_NOTE_MAX - 256], advice[80] = "";
	bool all_named;

	if (!can_compare(&comparison))
		return false;
	count_entries(&comparison);
	all_named = are_all_named(&comparison);
	if (comparison.n_entries == 0)
		return false;
	if (all_named && (comparison.n_elsewhere == 0 || may_be_fewer(&comparison, request)))
		return false;
	if (all_named)
		(void)text_format(advice, sizeof(advice), "; --gpus %zu asks for as many",
				  comparison.n_entries);
	else if (!json_object_get(request, "devices"))
		(void)text_copy(advice, sizeof(advice),
				"; name a device with --gpu when it matters");
	list_devices(&comparison, list, sizeof(list));
	(void)text_format(note, VISIBLE_NOTE_MAX,
			  "CUDA_VISIBLE_DEVICES=%.*s was set, the lease is on %s%s", VALUE_SHOWN,
			  value, list, advice);
	return true;
}
