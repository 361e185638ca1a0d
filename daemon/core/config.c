/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <assert.h>

#include "text.h"

#define SECONDS_MAX 31536000.0 /* a year */

enum option_type {
	OPTION_TEXT,
	OPTION_DIRECTORY,
	OPTION_BOOL,
	OPTION_INT,
	OPTION_SECONDS,
	OPTION_CHOICE,
	OPTION_STRINGS,
};

struct option {
	const char *path;
	enum option_type type;
	size_t offset;
	double min, max;            /* OPTION_INT, OPTION_SECONDS; bytes for OPTION_DIRECTORY */
	const char *const *choices; /* OPTION_CHOICE: NULL-ended, in the order of the enum */
	const char *initial;
};

static const char *const compute_modes[] = {"keep", "exclusive_process", NULL};
static const char *const placements[] = {"spread", "pack", NULL};

#define AT(field) offsetof(struct config, field)
#define SECONDS(name, field, low, start)                                       \
	{                                                                      \
		name, OPTION_SECONDS, AT(field), low, SECONDS_MAX, NULL, start \
	}

/* In the order of printing: options of a group stand together. */
static const struct option options[] = {
	{"runtime_directory", OPTION_DIRECTORY, AT(runtime_directory), 0, RUNTIME_DIRECTORY_MAX,
	 NULL, "/run/mps-supervisor"},
	{"state_directory", OPTION_DIRECTORY, AT(state_directory), 0, PIPE_DIRECTORY_MAX, NULL,
	 "/var/lib/mps-supervisor"},
	{"mps_control", OPTION_TEXT, AT(mps_control), 0, 0, NULL, "nvidia-cuda-mps-control"},
	{"nvidia_smi", OPTION_TEXT, AT(nvidia_smi), 0, 0, NULL, "nvidia-smi"},
	{"devices", OPTION_STRINGS, AT(devices), 0, 0, NULL, "all"},
	{"multi_user", OPTION_BOOL, AT(multi_user), 0, 0, NULL, "false"},
	{"compute_mode", OPTION_CHOICE, AT(compute_mode), 0, 0, compute_modes, "keep"},
	{"placement", OPTION_CHOICE, AT(placement), 0, 0, placements, "spread"},
	{"max_clients", OPTION_INT, AT(max_clients), 1, 1024, NULL, "48"},
	{"oversubscribe_threads", OPTION_BOOL, AT(oversubscribe_threads), 0, 0, NULL, "true"},
	{"prestart", OPTION_BOOL, AT(prestart), 0, 0, NULL, "true"},
	SECONDS("idle_server_stop", idle_server_stop_usec, 0, "300"),
	{"access.lease_groups", OPTION_STRINGS, AT(access.lease_groups), 0, 0, NULL, NULL},
	{"access.admin_groups", OPTION_STRINGS, AT(access.admin_groups), 0, 0, NULL, NULL},
	{"access.max_leases_per_user", OPTION_INT, AT(access.max_leases_per_user), 0, 1000000, NULL,
	 "0"},
	SECONDS("timeouts.start", timeouts.start_usec, 0.1, "10"),
	SECONDS("timeouts.query", timeouts.query_usec, 0.1, "2"),
	SECONDS("timeouts.stop", timeouts.stop_usec, 0.5, "20"),
	SECONDS("timeouts.fault_grace", timeouts.fault_grace_usec, 0, "30"),
	SECONDS("timeouts.reclaim", timeouts.reclaim_usec, 0, "30"),
	SECONDS("timeouts.straggler_grace", timeouts.straggler_grace_usec, 0, "60"),
	SECONDS("timeouts.attach_grace", timeouts.attach_grace_usec, 0, "10"),
	SECONDS("timeouts.wait", timeouts.wait_usec, 0, "0"),
	SECONDS("health.interval", health.interval_usec, 0.1, "10"),
	SECONDS("health.idle_interval", health.idle_interval_usec, 0.1, "60"),
	{"health.misses", OPTION_INT, AT(health.misses), 1, 100, NULL, "3"},
	SECONDS("health.wedge_grace", health.wedge_grace_usec, 0, "300"),
	SECONDS("restart.backoff_min", restart.backoff_min_usec, 0.01, "0.5"),
	SECONDS("restart.backoff_max", restart.backoff_max_usec, 0.01, "30"),
	{"restart.limit", OPTION_INT, AT(restart.limit), 1, 32, NULL, "5"},
	SECONDS("restart.window", restart.window_usec, 1, "60"),
	SECONDS("restart.failed_retry", restart.failed_retry_usec, 0, "600"),
};

static const char *const groups[] = {"access", "timeouts", "health", "restart"};

/* MPS's own defaults: every CUDA program probes them, so that a daemon there captures the whole
 * machine (https://docs.nvidia.com/deploy/mps/). */
static const char *const forbidden_directories[] = {"/tmp/nvidia-mps", "/run/nvidia-mps",
						    "/var/run/nvidia-mps"};

static void *field_of(struct config *config, const struct option *option)
{
	return (char *)config + option->offset;
}

static const struct option *find_option(const char *path)
{
	for (size_t i = 0; i < ELEMENTSOF(options); i++)
		if (streq(options[i].path, path))
			return &options[i];
	return NULL;
}

enum config_kind config_kind_of(const char *path)
{
	const struct option *option = find_option(path);

	if (option)
		return option->type == OPTION_STRINGS ? CONFIG_KIND_STRINGS : CONFIG_KIND_VALUE;
	for (size_t i = 0; i < ELEMENTSOF(groups); i++)
		if (streq(groups[i], path))
			return CONFIG_KIND_GROUP;
	return streq(path, "gpus") ? CONFIG_KIND_GPUS : CONFIG_KIND_UNKNOWN;
}

static int wrong_type(const char *path, const char *wanted, char *error)
{
	(void)text_format(error, CONFIG_ERROR_SIZE, "%s must be %s", path, wanted);
	return -EINVAL;
}

static bool below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return strncmp(path, directory, length) == 0 &&
	       (path[length] == '\0' || path[length] == '/');
}

/* Absolute, with no empty component, "." or "..", and not the root itself. */
static bool is_clean_path(const char *path)
{
	if (path[0] != '/')
		return false;
	while (*path) {
		size_t length = strcspn(++path, "/");

		if (length == 0 || (length == 1 && path[0] == '.') ||
		    (length == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += length;
	}
	return true;
}

static int check_directory(const struct option *option, const char *path, char *error)
{
	size_t length = strlen(path);

	if (!is_clean_path(path)) {
		(void)text_format(error, CONFIG_ERROR_SIZE,
				  "%s: \"%.300s\" is not an absolute path without \"..\", \".\", "
				  "\"//\" and a slash at its end",
				  option->path, path);
		return -EINVAL;
	}
	for (size_t i = 0; i < ELEMENTSOF(forbidden_directories); i++)
		if (below(path, forbidden_directories[i])) {
			(void)text_format(error, CONFIG_ERROR_SIZE,
					  "%s: \"%.300s\" is MPS's default directory, which every "
					  "CUDA program on the machine would use; choose another",
					  option->path, path);
			return -EINVAL;
		}
	if (length > (size_t)option->max) {
		(void)text_format(error, CONFIG_ERROR_SIZE,
				  "%s: \"%.300s\" is %zu bytes long; at most %d, because the "
				  "longest pipe directory that MPS can use has %d bytes; choose a "
				  "shorter path",
				  option->path, path, length, (int)option->max, PIPE_DIRECTORY_MAX);
		return -EINVAL;
	}
	return 0;
}

static int set_text(struct config *config, const struct option *option,
		    const struct config_value *value, char *error)
{
	int r;

	if (value->type != CONFIG_VALUE_STRING)
		return wrong_type(option->path, "a string", error);
	if (option->type == OPTION_DIRECTORY) {
		r = check_directory(option, value->string, error);
		if (r < 0)
			return r;
	}
	if (value->string[0] == '\0' || strlen(value->string) >= CONFIG_TEXT_SIZE) {
		(void)text_format(error, CONFIG_ERROR_SIZE,
				  "%s must have 1 to %d bytes, and has %zu", option->path,
				  CONFIG_TEXT_SIZE - 1, strlen(value->string));
		return -EINVAL;
	}
	return text_copy(field_of(config, option), CONFIG_TEXT_SIZE, value->string);
}

static int set_bool(struct config *config, const struct option *option,
		    const struct config_value *value, char *error)
{
	if (value->type != CONFIG_VALUE_BOOL)
		return wrong_type(option->path, "true or false", error);
	*(bool *)field_of(config, option) = value->boolean;
	return 0;
}

static int set_int(struct config *config, const struct option *option,
		   const struct config_value *value, char *error)
{
	if (value->type != CONFIG_VALUE_INT)
		return wrong_type(option->path, "a whole number", error);
	if (value->integer < (int64_t)option->min || value->integer > (int64_t)option->max) {
		(void)text_format(error, CONFIG_ERROR_SIZE, "%s must be %d to %d, and is %lld",
				  option->path, (int)option->min, (int)option->max,
				  (long long)value->integer);
		return -EINVAL;
	}
	*(int *)field_of(config, option) = (int)value->integer;
	return 0;
}

static int set_seconds(struct config *config, const struct option *option,
		       const struct config_value *value, char *error)
{
	double seconds = value->type == CONFIG_VALUE_INT ? (double)value->integer : value->number;

	if (value->type != CONFIG_VALUE_INT && value->type != CONFIG_VALUE_FLOAT)
		return wrong_type(option->path, "a number of seconds", error);
	if (!(seconds >= option->min && seconds <= option->max)) {
		(void)text_format(error, CONFIG_ERROR_SIZE,
				  "%s must be %g to %.0f seconds, and is %g", option->path,
				  option->min, option->max, seconds);
		return -EINVAL;
	}
	*(uint64_t *)field_of(config, option) = (uint64_t)(seconds * 1e6 + 0.5);
	return 0;
}

static int set_choice(struct config *config, const struct option *option,
		      const struct config_value *value, char *error)
{
	if (value->type != CONFIG_VALUE_STRING)
		return wrong_type(option->path, "a string", error);
	for (int i = 0; option->choices[i]; i++)
		if (streq(option->choices[i], value->string)) {
			*(int *)field_of(config, option) = i;
			return 0;
		}
	(void)text_format(error, CONFIG_ERROR_SIZE,
			  "%s must be \"%s\" or \"%s\", and is \"%.200s\"", option->path,
			  option->choices[0], option->choices[1], value->string);
	return -EINVAL;
}

int config_set(struct config *config, const char *path, const struct config_value *value,
	       char error[static CONFIG_ERROR_SIZE])
{
	const struct option *option = find_option(path);

	if (!option) {
		(void)text_format(error, CONFIG_ERROR_SIZE, "unknown option \"%.200s\"", path);
		return -EINVAL;
	}
	switch (option->type) {
	case OPTION_TEXT:
	case OPTION_DIRECTORY:
		return set_text(config, option, value, error);
	case OPTION_BOOL:
		return set_bool(config, option, value, error);
	case OPTION_INT:
		return set_int(config, option, value, error);
	case OPTION_SECONDS:
		return set_seconds(config, option, value, error);
	case OPTION_CHOICE:
		return set_choice(config, option, value, error);
	case OPTION_STRINGS:
		return wrong_type(option->path, "an array of strings", error);
	}
	return -EINVAL;
}

/* The caller has asked config_kind_of what belongs at path. */
static struct config_strings *strings_at(struct config *config, const char *path)
{
	const struct option *option = find_option(path);

	assert(option && option->type == OPTION_STRINGS);
	return field_of(config, option);
}

void config_clear_strings(struct config *config, const char *path)
{
	struct config_strings *strings = strings_at(config, path);

	strings->n = 0;
}

int config_append_string(struct config *config, const char *path, const struct config_value *value,
			 char error[static CONFIG_ERROR_SIZE])
{
	struct config_strings *strings = strings_at(config, path);

	if (value->type != CONFIG_VALUE_STRING)
		return wrong_type(path, "an array of strings", error);
	if (strings->n == CONFIG_STRINGS_MAX) {
		(void)text_format(error, CONFIG_ERROR_SIZE, "%s has more than %d entries", path,
				  CONFIG_STRINGS_MAX);
		return -EINVAL;
	}
	if (value->string[0] == '\0' ||
	    text_copy(strings->items[strings->n], DEVICE_UUID_SIZE, value->string) < 0) {
		(void)text_format(error, CONFIG_ERROR_SIZE,
				  "%s: an entry must have 1 to %d bytes: \"%.200s\"", path,
				  DEVICE_UUID_SIZE - 1, value->string);
		return -EINVAL;
	}
	strings->n++;
	return 0;
}

static int gpu_set_max_clients(struct config_gpu *gpu, const struct config_value *value,
			       char *error)
{
	if (value->type != CONFIG_VALUE_INT || value->integer < 1 || value->integer > 1024)
		return wrong_type("max_clients", "a whole number, 1 to 1024", error);
	gpu->max_clients = (int)value->integer;
	return 0;
}

int config_gpu_set(struct config_gpu *gpu, const char *key, const struct config_value *value,
		   char error[static CONFIG_ERROR_SIZE])
{
	if (streq(key, "max_clients"))
		return gpu_set_max_clients(gpu, value, error);
	if (streq(key, "multi_user")) {
		if (value->type != CONFIG_VALUE_BOOL)
			return wrong_type(key, "true or false", error);
		gpu->multi_user = value->boolean;
		gpu->multi_user_set = true;
		return 0;
	}
	if (streq(key, "match")) {
		if (value->type != CONFIG_VALUE_STRING || value->string[0] == '\0' ||
		    strlen(value->string) >= sizeof(gpu->match))
			return wrong_type(key, "a string of 1 to 63 bytes", error);
		return text_copy(gpu->match, sizeof(gpu->match), value->string);
	}
	(void)text_format(error, CONFIG_ERROR_SIZE,
			  "unknown option \"%.200s\" in gpus (known: match, max_clients, "
			  "multi_user)",
			  key);
	return -EINVAL;
}

int config_append_gpu(struct config *config, const struct config_gpu *gpu,
		      char error[static CONFIG_ERROR_SIZE])
{
	if (gpu->match[0] == '\0') {
		(void)text_format(error, CONFIG_ERROR_SIZE, "an entry of gpus has no match");
		return -EINVAL;
	}
	if (config->n_gpus == CONFIG_GPUS_MAX) {
		(void)text_format(error, CONFIG_ERROR_SIZE, "gpus has more than %d entries",
				  CONFIG_GPUS_MAX);
		return -EINVAL;
	}
	config->gpus[config->n_gpus++] = *gpu;
	return 0;
}

/* A default, as the table writes it, as the value that a file would give. */
static struct config_value initial_value(const struct option *option)
{
	struct config_value value = {.type = CONFIG_VALUE_STRING, .string = option->initial};

	if (option->type == OPTION_BOOL) {
		value.type = CONFIG_VALUE_BOOL;
		value.boolean = streq(option->initial, "true");
	} else if (option->type == OPTION_INT) {
		value.type = CONFIG_VALUE_INT;
		(void)text_parse_int(option->initial, INT64_MIN + 1, INT64_MAX, &value.integer);
	} else if (option->type == OPTION_SECONDS) {
		uint64_t usec = 0;

		value.type = CONFIG_VALUE_FLOAT;
		(void)text_parse_seconds(option->initial, &usec);
		value.number = (double)usec / 1e6;
	}
	return value;
}

void config_defaults(struct config *config)
{
	char error[CONFIG_ERROR_SIZE];

	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < ELEMENTSOF(options); i++) {
		struct config_value value = initial_value(&options[i]);

		if (options[i].type != OPTION_STRINGS)
			(void)config_set(config, options[i].path, &value, error);
		else if (value.string)
			(void)config_append_string(config, options[i].path, &value, error);
	}
}

static void print_string(const char *text, FILE *file)
{
	fputc('"', file);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(file, "\\%c", *p);
		else if (*p < 0x20)
			fprintf(file, "\\x%02x", *p);
		else
			fputc(*p, file);
	}
	fputc('"', file);
}

static void print_strings(const struct config_strings *strings, FILE *file)
{
	fputs("[", file);
	for (size_t i = 0; i < strings->n; i++) {
		fputs(i ? ", " : "", file);
		print_string(strings->items[i], file);
	}
	fputs("]", file);
}

static void print_value(const struct config *config, const struct option *option, FILE *file)
{
	const void *field = (const char *)config + option->offset;
	uint64_t usec;

	switch (option->type) {
	case OPTION_TEXT:
	case OPTION_DIRECTORY:
		print_string(field, file);
		break;
	case OPTION_BOOL:
		fputs(*(const bool *)field ? "true" : "false", file);
		break;
	case OPTION_INT:
		fprintf(file, "%d", *(const int *)field);
		break;
	case OPTION_SECONDS:
		usec = *(const uint64_t *)field;
		fprintf(file, "%llu.%06llu", (unsigned long long)(usec / USEC_PER_SEC),
			(unsigned long long)(usec % USEC_PER_SEC));
		break;
	case OPTION_CHOICE:
		print_string(option->choices[*(const int *)field], file);
		break;
	case OPTION_STRINGS:
		print_strings(field, file);
		break;
	}
}

static void print_gpus(const struct config *config, FILE *file)
{
	fputs("gpus = (", file);
	for (size_t i = 0; i < config->n_gpus; i++) {
		const struct config_gpu *gpu = &config->gpus[i];

		fputs(i ? ",\n\t{ match = " : "\n\t{ match = ", file);
		print_string(gpu->match, file);
		fputs(";", file);
		if (gpu->max_clients > 0)
			fprintf(file, " max_clients = %d;", gpu->max_clients);
		if (gpu->multi_user_set)
			fprintf(file, " multi_user = %s;", gpu->multi_user ? "true" : "false");
		fputs(" }", file);
	}
	fputs(config->n_gpus ? "\n);\n" : ");\n", file);
}

/* The length of the group's name in path, 0 at the top. */
static size_t group_length(const char *path)
{
	const char *dot = strchr(path, '.');

	return dot ? (size_t)(dot - path) : 0;
}

void config_print(const struct config *config, FILE *file)
{
	const char *group = "";
	size_t open = 0;

	for (size_t i = 0; i < ELEMENTSOF(options); i++) {
		const char *path = options[i].path;
		size_t length = group_length(path);

		if (open > 0 && (length != open || strncmp(group, path, open) != 0)) {
			fputs("};\n", file);
			open = 0;
		}
		if (length > 0 && open == 0)
			fprintf(file, "%.*s = {\n", (int)length, path);
		group = path;
		open = length;
		fprintf(file, "%s%s = ", length ? "\t" : "", path + (length ? length + 1 : 0));
		print_value(config, &options[i], file);
		fputs(";\n", file);
	}
	if (open > 0)
		fputs("};\n", file);
	print_gpus(config, file);
}
