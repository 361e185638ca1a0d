/* SPDX-License-Identifier: MIT */
#include "held.h"

#include "journal.h"
#include "statefile.h"
#include "text.h"
#include "util.h"
#include "varlink.h"

#define KIND "held"

static void add(struct held *held, const char *name)
{
	if (held->n < DEVICES_MAX && text_copy(held->names[held->n], DEVICE_UUID_SIZE, name) == 0)
		held->n++;
}

static void take_out(struct held *held, size_t i)
{
	held->n--;
	memmove(held->names[i], held->names[i + 1], (held->n - i) * DEVICE_UUID_SIZE);
}

void held_load(struct held *held, const char *state_directory)
{
	_cleanup_json_ json_t *content = NULL;
	const json_t *name;
	size_t i;
	int r;

	held->n = 0;
	(void)text_format(held->path, sizeof(held->path), "%s/held", state_directory);
	r = statefile_read(held->path, KIND, &content);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		log_warning("cannot read %s: %s; nothing is held", held->path, strerror(-r));
	json_array_foreach(json_object_get(content, "names"), i, name) {
		if (json_is_string(name))
			add(held, json_string_value(name));
	}
}

static size_t find(const struct held *held, const char *name)
{
	size_t i = 0;

	while (i < held->n && !streq(held->names[i], name))
		i++;
	return i;
}

bool held_has(const struct held *held, const char *name)
{
	return find(held, name) < held->n;
}

static int store(const struct held *held)
{
	json_t *names = json_array();

	for (size_t i = 0; i < held->n; i++)
		json_array_append_new(names, json_string(held->names[i]));
	return statefile_write(held->path, KIND, json_pack("{s:o}", "names", names), true);
}

int held_set(struct held *held, const char *name, bool is_held)
{
	size_t i = find(held, name);
	int r;

	if ((i < held->n) == is_held)
		return 0;
	if (is_held && held->n == DEVICES_MAX)
		return -ENOSPC;
	if (is_held)
		add(held, name);
	else
		take_out(held, i);
	r = store(held);
	if (r < 0 && is_held)
		take_out(held, find(held, name));
	else if (r < 0)
		add(held, name);
	return r;
}
