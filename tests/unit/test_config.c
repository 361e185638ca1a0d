/* SPDX-License-Identifier: MIT */
#include "config.h"
#include "text.h"
#include "unit_config.h"

#define I(n)                                             \
	{                                                \
		.type = CONFIG_VALUE_INT, .integer = (n) \
	}
#define F(x)                                              \
	{                                                 \
		.type = CONFIG_VALUE_FLOAT, .number = (x) \
	}
#define B(b)                                              \
	{                                                 \
		.type = CONFIG_VALUE_BOOL, .boolean = (b) \
	}
#define S(s)                                               \
	{                                                  \
		.type = CONFIG_VALUE_STRING, .string = (s) \
	}
#define OTHER                              \
	{                                  \
		.type = CONFIG_VALUE_OTHER \
	}

#define TEN "/234567890"
#define SIXTY TEN TEN TEN TEN TEN TEN

START_TEST(has_the_documented_defaults)
{
	struct config config;

	memset(&config, 0xff, sizeof(config));
	config_defaults(&config);
	ck_assert_str_eq(config.runtime_directory, "/run/mps-supervisor");
	ck_assert_str_eq(config.state_directory, "/var/lib/mps-supervisor");
	ck_assert_str_eq(config.mps_control, "nvidia-cuda-mps-control");
	ck_assert_str_eq(config.nvidia_smi, "nvidia-smi");
	ck_assert_uint_eq(config.devices.n, 1);
	ck_assert_str_eq(config.devices.items[0], "all");
	ck_assert(!config.multi_user);
	ck_assert_int_eq(config.compute_mode, CONFIG_COMPUTE_MODE_KEEP);
	ck_assert_int_eq(config.placement, CONFIG_PLACEMENT_SPREAD);
	ck_assert_int_eq(config.max_clients, 48);
	ck_assert(config.oversubscribe_threads);
	ck_assert(config.prestart);
	ck_assert_uint_eq(config.idle_server_stop_usec, 300 * USEC_PER_SEC);
	ck_assert_uint_eq(config.access.lease_groups.n, 0);
	ck_assert_uint_eq(config.access.admin_groups.n, 0);
	ck_assert_int_eq(config.access.max_leases_per_user, 0);
	ck_assert_uint_eq(config.timeouts.start_usec, 10 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.query_usec, 2 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.stop_usec, 20 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.fault_grace_usec, 30 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.reclaim_usec, 30 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.straggler_grace_usec, 60 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.attach_grace_usec, 10 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.wait_usec, 0);
	ck_assert_uint_eq(config.health.interval_usec, 10 * USEC_PER_SEC);
	ck_assert_uint_eq(config.health.idle_interval_usec, 60 * USEC_PER_SEC);
	ck_assert_int_eq(config.health.misses, 3);
	ck_assert_uint_eq(config.health.wedge_grace_usec, 300 * USEC_PER_SEC);
	ck_assert_uint_eq(config.restart.backoff_min_usec, 500 * USEC_PER_MSEC);
	ck_assert_uint_eq(config.restart.backoff_max_usec, 30 * USEC_PER_SEC);
	ck_assert_int_eq(config.restart.limit, 5);
	ck_assert_uint_eq(config.restart.window_usec, 60 * USEC_PER_SEC);
	ck_assert_uint_eq(config.restart.failed_retry_usec, 600 * USEC_PER_SEC);
	ck_assert_uint_eq(config.n_gpus, 0);
}
END_TEST

#define INT_AT(field) offsetof(struct config, field)

static const struct {
	const char *path;
	size_t offset;
	int min, max;
} int_options[] = {
	{"max_clients", INT_AT(max_clients), 1, 1024},
	{"access.max_leases_per_user", INT_AT(access.max_leases_per_user), 0, 1000000},
	{"health.misses", INT_AT(health.misses), 1, 100},
	{"restart.limit", INT_AT(restart.limit), 1, 32},
};

/* Sets it; what it leaves behind must be whole when it refuses. */
static int set(struct config *config, const char *path, struct config_value value, char *error)
{
	struct config before = *config;
	int r;

	error[0] = '\0';
	r = config_set(config, path, &value, error);
	if (r == 0)
		return 0;
	ck_assert_int_eq(r, -EINVAL);
	ck_assert_mem_eq(config, &before, sizeof(before));
	unit_assert_contains(error, path);
	return r;
}

START_TEST(bounds_whole_numbers)
{
	const int64_t refused[] = {
		(int64_t)int_options[_i].min - 1,
		(int64_t)int_options[_i].max + 1,
		INT64_MIN,
		INT64_MAX,
		INT64_C(5000000000),
		(INT64_C(1) << 32) + int_options[_i].min,
	};
	const int accepted[] = {int_options[_i].max, int_options[_i].min};
	const char *path = int_options[_i].path;
	char error[CONFIG_ERROR_SIZE];
	struct config config;

	config_defaults(&config);
	for (size_t i = 0; i < ELEMENTSOF(accepted); i++) {
		const int *field = (const void *)((char *)&config + int_options[_i].offset);

		ck_assert_int_eq(set(&config, path, (struct config_value)I(accepted[i]), error), 0);
		ck_assert_int_eq(*field, accepted[i]);
	}
	for (size_t i = 0; i < ELEMENTSOF(refused); i++)
		ck_assert_int_lt(set(&config, path, (struct config_value)I(refused[i]), error), 0);
	ck_assert_int_lt(set(&config, path, (struct config_value)F(1.0), error), 0);
	ck_assert_int_lt(set(&config, path, (struct config_value)B(true), error), 0);
	ck_assert_int_lt(set(&config, path, (struct config_value)S("1"), error), 0);
	ck_assert_int_lt(set(&config, path, (struct config_value)OTHER, error), 0);
}
END_TEST

static const struct {
	const char *path;
	size_t offset;
	double min;
} second_options[] = {
	{"idle_server_stop", INT_AT(idle_server_stop_usec), 0},
	{"timeouts.start", INT_AT(timeouts.start_usec), 0.1},
	{"timeouts.query", INT_AT(timeouts.query_usec), 0.1},
	{"timeouts.stop", INT_AT(timeouts.stop_usec), 0.5},
	{"timeouts.fault_grace", INT_AT(timeouts.fault_grace_usec), 0},
	{"timeouts.reclaim", INT_AT(timeouts.reclaim_usec), 0},
	{"timeouts.straggler_grace", INT_AT(timeouts.straggler_grace_usec), 0},
	{"timeouts.attach_grace", INT_AT(timeouts.attach_grace_usec), 0},
	{"timeouts.wait", INT_AT(timeouts.wait_usec), 0},
	{"health.interval", INT_AT(health.interval_usec), 0.1},
	{"health.idle_interval", INT_AT(health.idle_interval_usec), 0.1},
	{"health.wedge_grace", INT_AT(health.wedge_grace_usec), 0},
	{"restart.backoff_min", INT_AT(restart.backoff_min_usec), 0.01},
	{"restart.backoff_max", INT_AT(restart.backoff_max_usec), 0.01},
	{"restart.window", INT_AT(restart.window_usec), 1},
	{"restart.failed_retry", INT_AT(restart.failed_retry_usec), 0},
};

START_TEST(bounds_seconds)
{
	const struct config_value refused[] = {
		F(second_options[_i].min - 0.000001),
		F(31536000.001),
		F(-1.0),
		F(1e300),
		F(-__builtin_inf()),
		F(__builtin_inf()),
		F(__builtin_nan("")),
		I(-1),
		I(31536001),
		I(INT64_MAX),
		I(INT64_MIN),
		B(true),
		S("10"),
		OTHER,
	};
	const char *path = second_options[_i].path;
	char error[CONFIG_ERROR_SIZE];
	const uint64_t *field;
	struct config config;

	config_defaults(&config);
	field = (const void *)((char *)&config + second_options[_i].offset);
	ck_assert_int_eq(set(&config, path, (struct config_value)F(second_options[_i].min), error),
			 0);
	ck_assert_uint_eq(*field, (uint64_t)(second_options[_i].min * 1e6 + 0.5));
	ck_assert_int_eq(set(&config, path, (struct config_value)I(31536000), error), 0);
	ck_assert_uint_eq(*field, UINT64_C(31536000) * USEC_PER_SEC);
	ck_assert_int_eq(set(&config, path, (struct config_value)F(1.234567), error), 0);
	ck_assert_uint_eq(*field, 1234567);
	for (size_t i = 0; i < ELEMENTSOF(refused); i++)
		ck_assert_msg(set(&config, path, refused[i], error) < 0, "%s: value %zu accepted",
			      path, i);
}
END_TEST

static const struct {
	const char *path;
	size_t offset;
} bool_options[] = {
	{"multi_user", INT_AT(multi_user)},
	{"oversubscribe_threads", INT_AT(oversubscribe_threads)},
	{"prestart", INT_AT(prestart)},
};

START_TEST(takes_truth)
{
	const char *path = bool_options[_i].path;
	char error[CONFIG_ERROR_SIZE];
	struct config config;

	config_defaults(&config);
	for (int i = 0; i < 4; i++) {
		const bool *field = (const void *)((char *)&config + bool_options[_i].offset);

		ck_assert_int_eq(set(&config, path, (struct config_value)B(i & 1), error), 0);
		ck_assert_int_eq(*field, i & 1);
	}
	ck_assert_int_lt(set(&config, path, (struct config_value)I(1), error), 0);
	ck_assert_int_lt(set(&config, path, (struct config_value)S("true"), error), 0);
	ck_assert_int_lt(set(&config, path, (struct config_value)OTHER, error), 0);
}
END_TEST

static const struct {
	const char *path;
	struct config_value value;
	const char *error; /* NULL: accepted */
} texts[] = {
	{"compute_mode", S("keep"), NULL},
	{"compute_mode", S("exclusive_process"), NULL},
	{"compute_mode", S("EXCLUSIVE_PROCESS"), "\"keep\" or \"exclusive_process\""},
	{"compute_mode", S(""), "\"keep\" or"},
	{"compute_mode", I(1), "a string"},
	{"placement", S("spread"), NULL},
	{"placement", S("pack"), NULL},
	{"placement", S("packed"), "\"spread\" or \"pack\", and is \"packed\""},
	{"placement", B(true), "a string"},
	{"mps_control", S("/opt/mps control"), NULL},
	{"mps_control", S(""), "1 to 255 bytes"},
	{"mps_control", F(1.0), "a string"},
	{"nvidia_smi", S("x"), NULL},
	{"nvidia_smi", OTHER, "a string"},
	{"devices", S("all"), "an array of strings"},
	{"access.lease_groups", S("gpu"), "an array of strings"},
	{"access.admin_groups", I(1), "an array of strings"},
	{"", S("x"), "unknown option"},
	{"timeout.start", I(1), "unknown option \"timeout.start\""},
	{"timeouts", I(1), "unknown option"},
	{"gpus", I(1), "unknown option"},
	{"MAX_CLIENTS", I(1), "unknown option"},
};

START_TEST(takes_texts_and_choices)
{
	char error[CONFIG_ERROR_SIZE] = "";
	struct config config;
	int r;

	config_defaults(&config);
	r = set(&config, texts[_i].path, texts[_i].value, error);
	ck_assert_int_eq(r, texts[_i].error ? -EINVAL : 0);
	if (texts[_i].error)
		unit_assert_contains(error, texts[_i].error);
}
END_TEST

START_TEST(keeps_the_chosen)
{
	char error[CONFIG_ERROR_SIZE];
	struct config config;

	config_defaults(&config);
	ck_assert_int_eq(set(&config, "placement", (struct config_value)S("pack"), error), 0);
	ck_assert_int_eq(config.placement, CONFIG_PLACEMENT_PACK);
	ck_assert_int_eq(
		set(&config, "compute_mode", (struct config_value)S("exclusive_process"), error),
		0);
	ck_assert_int_eq(config.compute_mode, CONFIG_COMPUTE_MODE_EXCLUSIVE_PROCESS);
}
END_TEST

START_TEST(bounds_texts)
{
	char error[CONFIG_ERROR_SIZE], text[CONFIG_TEXT_SIZE + 1];
	struct config config;

	config_defaults(&config);
	memset(text, 'x', sizeof(text));
	text[CONFIG_TEXT_SIZE] = '\0';
	ck_assert_int_lt(set(&config, "mps_control", (struct config_value)S(text), error), 0);
	unit_assert_contains(error, "256");
	text[CONFIG_TEXT_SIZE - 1] = '\0';
	ck_assert_int_eq(set(&config, "mps_control", (struct config_value)S(text), error), 0);
	ck_assert_str_eq(config.mps_control, text);
}
END_TEST

static const struct {
	const char *path, *value, *error;
} directories[] = {
	{"runtime_directory", "/run/x", NULL},
	{"runtime_directory", "/run/..x/x..", NULL},
	{"runtime_directory", "/tmp/nvidia-mps2", NULL},
	{"runtime_directory", "/tmp/nvidia", NULL},
	{"runtime_directory", "/run/nvidia-mpsx/y", NULL},
	{"runtime_directory", "/x/tmp/nvidia-mps", NULL},
	{"runtime_directory", "/tmp/nvidia-mps", "MPS's default directory"},
	{"runtime_directory", "/tmp/nvidia-mps/a", "MPS's default directory"},
	{"runtime_directory", "/run/nvidia-mps", "MPS's default directory"},
	{"runtime_directory", "/run/nvidia-mps/a/b", "MPS's default directory"},
	{"runtime_directory", "/var/run/nvidia-mps", "MPS's default directory"},
	{"state_directory", "/tmp/nvidia-mps/a", "MPS's default directory"},
	{"runtime_directory", "", "absolute"},
	{"runtime_directory", "run/x", "absolute"},
	{"runtime_directory", "./x", "absolute"},
	{"runtime_directory", "/run//x", "absolute"},
	{"runtime_directory", "//run", "absolute"},
	{"runtime_directory", "/run/x/", "absolute"},
	{"runtime_directory", "/run/../x", "absolute"},
	{"runtime_directory", "/run/./x", "absolute"},
	{"runtime_directory", "/tmp/./nvidia-mps", "absolute"},
	{"runtime_directory", "/run/x/..", "absolute"},
	{"runtime_directory", "/run/x/.", "absolute"},
	{"state_directory", "/var/lib/x/..", "absolute"},
	{"runtime_directory", SIXTY "/23456789", NULL}, /* 69 */
	{"runtime_directory", SIXTY TEN, "is 70 bytes long; at most 69"},
	{"runtime_directory", SIXTY TEN, "\"" SIXTY TEN "\""},
	{"runtime_directory", SIXTY TEN, "has 87 bytes"},
	{"state_directory", SIXTY TEN TEN "/234567", NULL}, /* 87 */
	{"state_directory", SIXTY TEN TEN "/2345678", "is 88 bytes long; at most 87"},
	{"state_directory", SIXTY SIXTY SIXTY SIXTY SIXTY SIXTY SIXTY SIXTY, "is 480 bytes long"},
};

START_TEST(checks_directories)
{
	const char *path = directories[_i].path;
	char error[CONFIG_ERROR_SIZE];
	struct config config;
	int r;

	config_defaults(&config);
	r = set(&config, path, (struct config_value)S(directories[_i].value), error);
	ck_assert_msg(r == (directories[_i].error ? -EINVAL : 0), "%s = \"%s\" gives %d", path,
		      directories[_i].value, r);
	if (directories[_i].error)
		unit_assert_contains(error, directories[_i].error);
}
END_TEST

static const char *const string_options[] = {
	"devices",
	"access.lease_groups",
	"access.admin_groups",
};

START_TEST(collects_strings)
{
	const char *path = string_options[_i];
	char error[CONFIG_ERROR_SIZE], long_text[DEVICE_UUID_SIZE + 1];
	struct config_value value = S("GPU-1");
	struct config config, before;

	config_defaults(&config);
	config_clear_strings(&config, path);
	for (int i = 0; i < CONFIG_STRINGS_MAX; i++)
		ck_assert_int_eq(config_append_string(&config, path, &value, error), 0);
	before = config;
	ck_assert_int_eq(config_append_string(&config, path, &value, error), -EINVAL);
	unit_assert_contains(error, path);
	unit_assert_contains(error, "more than 64");
	unit_assert_same_config(&config, &before);

	config_clear_strings(&config, path);
	before = config;
	memset(long_text, 'x', sizeof(long_text));
	long_text[DEVICE_UUID_SIZE] = '\0';
	for (int i = 0; i < 3; i++) {
		const struct config_value refused[] = {S(""), S(long_text), I(1)};

		ck_assert_int_eq(config_append_string(&config, path, &refused[i], error), -EINVAL);
		unit_assert_contains(error, path);
		unit_assert_same_config(&config, &before);
	}
	long_text[DEVICE_UUID_SIZE - 1] = '\0';
	value.string = long_text;
	ck_assert_int_eq(config_append_string(&config, path, &value, error), 0);
}
END_TEST

static const struct {
	const char *key;
	struct config_value value;
	const char *error;
} gpu_values[] = {
	{"match", S("GPU-1"), NULL},
	{"match", S(""), "match must be a string"},
	{"match", I(0), "match must be a string"},
	{"match", S(SIXTY "/234"), "match must be a string"},
	{"max_clients", I(1), NULL},
	{"max_clients", I(1024), NULL},
	{"max_clients", I(0), "max_clients must be"},
	{"max_clients", I(1025), "max_clients must be"},
	{"max_clients", I(INT64_C(4294967297)), "max_clients must be"},
	{"max_clients", S("8"), "max_clients must be"},
	{"multi_user", B(true), NULL},
	{"multi_user", B(false), NULL},
	{"multi_user", I(1), "multi_user must be"},
	{"placement", S("pack"), "unknown option \"placement\" in gpus"},
	{"", S("pack"), "unknown option"},
};

START_TEST(sets_exceptions)
{
	struct config_gpu gpu = {.match = "before", .max_clients = 7}, before = gpu;
	char error[CONFIG_ERROR_SIZE] = "";
	int r;

	r = config_gpu_set(&gpu, gpu_values[_i].key, &gpu_values[_i].value, error);
	ck_assert_int_eq(r, gpu_values[_i].error ? -EINVAL : 0);
	if (!gpu_values[_i].error)
		return;
	unit_assert_contains(error, gpu_values[_i].error);
	unit_assert_same_gpu(&gpu, &before);
}
END_TEST

START_TEST(limits_exceptions)
{
	struct config_gpu gpu = {.max_clients = 4};
	char error[CONFIG_ERROR_SIZE];
	struct config config;

	config_defaults(&config);
	ck_assert_int_eq(config_append_gpu(&config, &gpu, error), -EINVAL);
	unit_assert_contains(error, "match");
	(void)text_copy(gpu.match, sizeof(gpu.match), "0");
	for (int i = 0; i < CONFIG_GPUS_MAX; i++)
		ck_assert_int_eq(config_append_gpu(&config, &gpu, error), 0);
	ck_assert_int_eq(config_append_gpu(&config, &gpu, error), -EINVAL);
	unit_assert_contains(error, "more than 64");
	ck_assert_uint_eq(config.n_gpus, CONFIG_GPUS_MAX);
}
END_TEST

static const struct {
	const char *path;
	enum config_kind kind;
} kinds[] = {
	{"max_clients", CONFIG_KIND_VALUE}, {"timeouts.start", CONFIG_KIND_VALUE},
	{"devices", CONFIG_KIND_STRINGS},   {"access.admin_groups", CONFIG_KIND_STRINGS},
	{"access", CONFIG_KIND_GROUP},      {"timeouts", CONFIG_KIND_GROUP},
	{"health", CONFIG_KIND_GROUP},      {"restart", CONFIG_KIND_GROUP},
	{"gpus", CONFIG_KIND_GPUS},         {"start", CONFIG_KIND_UNKNOWN},
	{"timeouts.", CONFIG_KIND_UNKNOWN}, {"timeouts.max_clients", CONFIG_KIND_UNKNOWN},
	{"", CONFIG_KIND_UNKNOWN},
};

START_TEST(knows_what_belongs_where)
{
	ck_assert_int_eq(config_kind_of(kinds[_i].path), kinds[_i].kind);
}
END_TEST

START_TEST(prints_every_option)
{
	_cleanup_free_ char *text = NULL;
	size_t size = 0;
	struct config config;
	FILE *file = open_memstream(&text, &size);

	config_defaults(&config);
	config_print(&config, file);
	ck_assert_int_eq(fclose(file), 0);
	for (size_t i = 0; i < ELEMENTSOF(second_options); i++) {
		const char *dot = strchr(second_options[i].path, '.');
		char name[64];

		(void)text_format(name, sizeof(name),
				  "%s = ", dot ? dot + 1 : second_options[i].path);
		unit_assert_contains(text, name);
	}
	unit_assert_contains(text, "runtime_directory = \"/run/mps-supervisor\";\n");
	unit_assert_contains(text, "devices = [\"all\"];\n");
	unit_assert_contains(text, "\nrestart = {\n");
	unit_assert_contains(text, "gpus = ();\n");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("config");

	tcase_add_test(tcase, has_the_documented_defaults);
	unit_add_table(tcase, bounds_whole_numbers, int_options);
	unit_add_table(tcase, bounds_seconds, second_options);
	unit_add_table(tcase, takes_truth, bool_options);
	unit_add_table(tcase, takes_texts_and_choices, texts);
	tcase_add_test(tcase, keeps_the_chosen);
	tcase_add_test(tcase, bounds_texts);
	unit_add_table(tcase, checks_directories, directories);
	unit_add_table(tcase, collects_strings, string_options);
	unit_add_table(tcase, sets_exceptions, gpu_values);
	tcase_add_test(tcase, limits_exceptions);
	unit_add_table(tcase, knows_what_belongs_where, kinds);
	tcase_add_test(tcase, prints_every_option);
	return unit_run("config", tcase);
}
