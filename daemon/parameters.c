/* SPDX-License-Identifier: MIT */
#include "parameters.h"

#include "lease.h"
#include "util.h"

static int read_bind(const char *text, int *ret)
{
	static const enum lease_bind binds[] = {
		LEASE_BIND_CONNECTION,
		LEASE_BIND_PROCESS,
		LEASE_BIND_NONE,
	};

	for (size_t i = 0; text && i < ELEMENTSOF(binds); i++)
		if (streq(text, lease_bind_to_string(binds[i]))) {
			*ret = (int)binds[i];
			return 0;
		}
	return -EINVAL;
}

static bool all_strings(const json_t *array)
{
	for (size_t i = 0; i < json_array_size(array); i++)
		if (!json_is_string(json_array_get(array, i)))
			return false;
	return json_is_array(array);
}

static int read_value(json_t *value, enum parameter_type type, void *field)
{
	switch (type) {
	case PARAMETER_BOOL:
		if (!json_is_boolean(value))
			return -EINVAL;
		*(bool *)field = json_is_true(value);
		return 0;
	case PARAMETER_INT:
		if (!json_is_integer(value))
			return -EINVAL;
		*(int64_t *)field = json_integer_value(value);
		return 0;
	case PARAMETER_STRING:
		if (!json_is_string(value))
			return -EINVAL;
		*(const char **)field = json_string_value(value);
		return 0;
	case PARAMETER_STRINGS:
		if (!all_strings(value))
			return -EINVAL;
		*(json_t **)field = value;
		return 0;
	case PARAMETER_BIND:
		return read_bind(json_string_value(value), field);
	}
	return -EINVAL;
}

static const struct parameter *find(const struct parameter *table, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (streq(table[i].name, name))
			return &table[i];
	return NULL;
}

int parameters_read(json_t *parameters, const struct parameter *table, size_t n, void *values,
		    const char **ret_wrong)
{
	const char *name;
	json_t *value;

	json_object_foreach(parameters, name, value) {
		const struct parameter *parameter = find(table, n, name);

		*ret_wrong = name;
		if (!parameter)
			return -EINVAL;
		if (json_is_null(value) && !parameter->required)
			continue;
		if (read_value(value, parameter->type, (char *)values + parameter->offset) < 0)
			return -EINVAL;
		if (parameter->set_offset)
			*(bool *)((char *)values + parameter->set_offset) = true;
	}
	for (size_t i = 0; i < n; i++)
		if (table[i].required && !json_object_get(parameters, table[i].name)) {
			*ret_wrong = table[i].name;
			return -EINVAL;
		}
	return 0;
}
