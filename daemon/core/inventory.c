/* SPDX-License-Identifier: MIT */
#include "inventory.h"

#include <strings.h>

#include "text.h"

#define FIELDS 8
#define INDEX_MAX 4095
#define FIELD_SIZE 96
#define MEBIBYTE (INT64_C(1) << 20)

size_t device_set_count(const struct device_set *set)
{
	size_t n = 0;

	for (size_t i = 0; i < ELEMENTSOF(set->words); i++)
		n += (size_t)__builtin_popcountll(set->words[i]);
	return n;
}

/* Takes the next line off *text, without its end. NULL when there is none. */
static const char *next_line(const char **text, size_t *ret_length)
{
	const char *line = *text;
	size_t length = strcspn(line, "\n");

	if (*line == '\0')
		return NULL;
	*text = line + length + (line[length] == '\n');
	if (length > 0 && line[length - 1] == '\r')
		length--;
	*ret_length = length;
	return line;
}

/* Splits a CSV line at commas and trims blanks. -EINVAL unless it has just FIELDS fields. */
static int split(const char *line, size_t length, char fields[FIELDS][FIELD_SIZE])
{
	const char *end = line + length;
	size_t n = 0;

	for (const char *p = line; n < FIELDS; n++) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		const char *stop = comma ? comma : end;

		while (p < stop && *p == ' ')
			p++;
		while (stop > p && stop[-1] == ' ')
			stop--;
		if ((size_t)(stop - p) >= FIELD_SIZE)
			return -EINVAL;
		memcpy(fields[n], p, (size_t)(stop - p));
		fields[n][stop - p] = '\0';
		if (!comma)
			return n + 1 == FIELDS ? 0 : -EINVAL;
		p = comma + 1;
	}
	return -EINVAL;
}

static int parse_device(const char *line, size_t length, struct device *ret)
{
	char fields[FIELDS][FIELD_SIZE];
	struct device device = {};
	int64_t index, memory;

	if (split(line, length, fields) < 0 ||
	    text_parse_int(fields[0], 0, INDEX_MAX, &index) < 0 ||
	    !text_starts_with(fields[1], "GPU-") ||
	    text_copy(device.uuid, sizeof(device.uuid), fields[1]) < 0 ||
	    text_copy(device.pci_bus_id, sizeof(device.pci_bus_id), fields[2]) < 0 ||
	    text_copy(device.name, sizeof(device.name), fields[3]) < 0 ||
	    text_copy(device.compute_mode, sizeof(device.compute_mode), fields[4]) < 0)
		return -EINVAL;
	device.index = (int)index;
	device.mig_enabled = streq(fields[5], "Enabled");
	if (text_parse_int(fields[7], 0, INT64_MAX / MEBIBYTE, &memory) == 0)
		device.memory_bytes = memory * MEBIBYTE;
	*ret = device;
	return 0;
}

static int append(struct inventory *inventory, const struct device *device, char *error)
{
	if (inventory->n_devices == DEVICES_MAX) {
		(void)text_format(error, INVENTORY_ERROR_SIZE, "more than %d devices", DEVICES_MAX);
		return -E2BIG;
	}
	inventory->devices[inventory->n_devices++] = *device;
	return 0;
}

int inventory_parse(struct inventory *inventory, const char *csv,
		    char error[static INVENTORY_ERROR_SIZE])
{
	const char *line;
	size_t length;
	int r;

	inventory->n_devices = 0;
	while ((line = next_line(&csv, &length))) {
		struct device device;

		if (length == 0)
			continue;
		r = parse_device(line, length, &device);
		if (r < 0) {
			(void)text_format(error, INVENTORY_ERROR_SIZE, "not a device: \"%.*s\"",
					  (int)MIN(length, (size_t)160), line);
			return r;
		}
		r = append(inventory, &device, error);
		if (r < 0)
			return r;
	}
	return 0;
}

bool inventory_has_mig(const struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->n_devices; i++)
		if (inventory->devices[i].mig_enabled)
			return true;
	return false;
}

/* Copies what stands between "(UUID: " and ")" in the line. */
static int uuid_of_line(const char *line, size_t length, char *uuid)
{
	static const char key[] = "(UUID: ";
	const char *start = memmem(line, length, key, sizeof(key) - 1);
	const char *stop;

	if (!start)
		return -EINVAL;
	start += sizeof(key) - 1;
	stop = memchr(start, ')', length - (size_t)(start - line));
	if (!stop || stop == start || (size_t)(stop - start) >= DEVICE_UUID_SIZE)
		return -EINVAL;
	memcpy(uuid, start, (size_t)(stop - start));
	uuid[stop - start] = '\0';
	return 0;
}

/* The name of a MIG instance: its GPU's and its profile, which follows "MIG ". */
static void name_mig(struct device *mig, const struct device *gpu, const char *line, size_t length)
{
	const char *profile = memmem(line, length, "MIG ", 4);
	size_t n = 0;

	if (profile)
		for (profile += 4; profile + n < line + length && profile[n] != ' ';)
			n++;
	(void)text_format(mig->name, sizeof(mig->name), "%.60s MIG %.*s", gpu->name,
			  (int)MIN(n, (size_t)24), profile ? profile : "");
}

int inventory_add_mig(struct inventory *inventory, const char *listing,
		      char error[static INVENTORY_ERROR_SIZE])
{
	struct inventory found = {};
	const struct device *gpu = NULL;
	const char *line;
	size_t length;
	int r;

	while ((line = next_line(&listing, &length))) {
		char uuid[DEVICE_UUID_SIZE];
		struct device device = {};

		if (uuid_of_line(line, length, uuid) < 0)
			continue;
		if (text_starts_with(uuid, "GPU-")) {
			gpu = NULL;
			for (size_t i = 0; i < inventory->n_devices; i++)
				if (streq(inventory->devices[i].uuid, uuid))
					gpu = &inventory->devices[i];
			if (gpu && !gpu->mig_enabled) {
				r = append(&found, gpu, error);
				if (r < 0)
					return r;
			}
			continue;
		}
		if (!gpu || !gpu->mig_enabled)
			continue;
		device = *gpu;
		device.mig = true;
		device.mig_enabled = false;
		device.memory_bytes = 0;
		(void)text_copy(device.uuid, sizeof(device.uuid), uuid);
		name_mig(&device, gpu, line, length);
		r = append(&found, &device, error);
		if (r < 0)
			return r;
	}
	*inventory = found;
	return 0;
}

struct pci_address {
	unsigned int domain, bus, device, function;
};

/* "00000000:00:06.0", "0000:00:06.0" or "00:06.0". */
static bool parse_pci(const char *text, struct pci_address *ret)
{
	struct pci_address address = {};
	int n = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &address.domain, &address.bus, &address.device,
		   &address.function, &n) != 4 ||
	    text[n] != '\0') {
		address.domain = 0;
		n = 0;
		if (sscanf(text, "%2x:%2x.%1x%n", &address.bus, &address.device, &address.function,
			   &n) != 3 ||
		    text[n] != '\0')
			return false;
	}
	*ret = address;
	return true;
}

static bool same_pci(const char *text, const struct pci_address *wanted)
{
	struct pci_address address;

	return parse_pci(text, &address) && memcmp(&address, wanted, sizeof(address)) == 0;
}

static int select_uuid(const struct inventory *inventory, const char *prefix,
		       struct device_set *set)
{
	size_t n = 0, last = 0;

	for (size_t i = 0; i < inventory->n_devices; i++) {
		const char *uuid = inventory->devices[i].uuid;

		if (strcasecmp(uuid, prefix) == 0) {
			device_set_add(set, i);
			return 0;
		}
		if (strncasecmp(uuid, prefix, strlen(prefix)) == 0) {
			n++;
			last = i;
		}
	}
	if (n != 1)
		return n ? INVENTORY_AMBIGUOUS : INVENTORY_NO_MATCH;
	device_set_add(set, last);
	return 0;
}

int inventory_select(const struct inventory *inventory, const char *selector,
		     struct device_set *set)
{
	struct pci_address address;
	int64_t index = -1;
	bool by_pci = parse_pci(selector, &address);
	bool by_index = text_parse_int(selector, 0, INT32_MAX, &index) == 0;
	bool all = streq(selector, "all");
	int r = INVENTORY_NO_MATCH;

	if (!all && !by_pci && !by_index)
		return *selector ? select_uuid(inventory, selector, set) : INVENTORY_NO_MATCH;
	for (size_t i = 0; i < inventory->n_devices; i++) {
		const struct device *device = &inventory->devices[i];

		if (all || (by_index && device->index == index) ||
		    (by_pci && same_pci(device->pci_bus_id, &address))) {
			device_set_add(set, i);
			r = 0;
		}
	}
	return r;
}
