/* SPDX-License-Identifier: MIT */
#include "match.h"

#include <strings.h>

#include "layout.h"
#include "text.h"
#include "util.h"

static bool is_index(const char *selector, int64_t *ret)
{
	return text_parse_int(selector, 0, INT32_MAX, ret) == 0;
}

/* "00000000:3B:00.0" as nvidia-smi writes it, "0000:3b:00.0" as the kernel does, "3b:00.0". */
static bool is_pci(const char *text, unsigned int ret[4])
{
	int end = -1;

	ret[0] = 0;
	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &ret[0], &ret[1], &ret[2], &ret[3], &end) == 4 &&
	    text[end] == '\0')
		return true;
	ret[0] = 0;
	end = -1;
	return sscanf(text, "%2x:%2x.%1x%n", &ret[1], &ret[2], &ret[3], &end) == 3 &&
	       text[end] == '\0';
}

static bool same_pci(const char *address, const char *selector)
{
	unsigned int a[4], b[4];

	return is_pci(address, a) && is_pci(selector, b) && memcmp(a, b, sizeof(a)) == 0;
}

static bool is_prefix(const char *text, const char *prefix)
{
	return *prefix && strncasecmp(text, prefix, strlen(prefix)) == 0;
}

static bool match_device(const json_t *device, const char *selector)
{
	int64_t index;

	if (is_index(selector, &index))
		return layout_int(device, "index", -1) == index;
	return is_prefix(layout_text(device, "uuid", ""), selector) ||
	       same_pci(layout_text(device, "pci_bus_id", ""), selector);
}

bool match_is_named(const json_t *instance, const char *selector)
{
	int64_t index;

	return !is_index(selector, &index) &&
	       is_prefix(layout_text(instance, "name", ""), selector);
}

bool match_instance(const json_t *instance, const char *selector)
{
	const json_t *device;
	size_t i;

	if (streq(selector, "all"))
		return true;
	json_array_foreach(json_object_get(instance, "devices"), i, device)
		if (match_device(device, selector))
			return true;
	return match_is_named(instance, selector);
}

/* Only a prefix can mean one and hit several: an index or an address stands for all MIG instances
 * of a GPU, and a gang that is not named itself shows a device of another instance. */
static bool is_ambiguous(const json_t *found, const char *selector)
{
	unsigned int address[4];
	const json_t *instance;
	size_t i, others = 0;
	int64_t index;

	if (streq(selector, "all") || is_index(selector, &index) || is_pci(selector, address))
		return false;
	json_array_foreach(found, i, instance) {
		const char *name = layout_text(instance, "name", "");

		if (strcasecmp(name, selector) == 0)
			return false;
		others += !streq(layout_text(instance, "kind", ""), "gang") ||
			  is_prefix(name, selector);
	}
	return others > 1;
}

int match_instances(json_t *instances, const char *selector, json_t **ret)
{
	_cleanup_(json_decrefp) json_t *found = json_array();
	json_t *instance;
	size_t i;

	if (!found)
		return -ENOMEM;
	json_array_foreach(instances, i, instance)
		if ((!selector || match_instance(instance, selector)) &&
		    json_array_append(found, instance) < 0)
			return -ENOMEM;
	if (selector && json_array_size(found) == 0)
		return MATCH_NONE;
	if (selector && is_ambiguous(found, selector))
		return MATCH_AMBIGUOUS;
	*ret = TAKE_PTR(found);
	return 0;
}
