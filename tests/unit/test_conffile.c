/* SPDX-License-Identifier: MIT */
#include "conffile.h"
#include "unit_config.h"
#include "unit_directory.h"

#define SHIPPED "conf/mps-supervisor.conf" /* from the root of the source tree */

static struct conffile_error error;
static struct conffile_list list;

static int load(struct config *config, const char *path)
{
	error = (struct conffile_error){.line = -1};
	return conffile_load(config, path, &list, &error);
}

START_TEST(empty_means_defaults)
{
	const char *path = unit_write("x.conf", "# nothing\n");
	struct config config, defaults;

	config_defaults(&defaults);
	ck_assert_int_eq(load(&config, path), 0);
	unit_assert_same_config(&config, &defaults);
	ck_assert_uint_eq(list.n, 1);
	ck_assert_str_eq(list.files[0], path);
	ck_assert_int_eq(conffile_load(&config, path, NULL, &error), 0);
}
END_TEST

START_TEST(reads_every_kind_of_value)
{
	struct config config;

	ck_assert_int_eq(load(&config, unit_write("x.conf",
						  "runtime_directory = \"/run/x\";\n"
						  "max_clients = 8\n"
						  "multi_user = true;\n"
						  "placement : \"pack\";\n"
						  "devices = [\"GPU-1\", \"0\"];\n"
						  "idle_server_stop = 0;\n"
						  "timeouts = { start = 2; query = 0.25; };\n"
						  "access : { lease_groups = (\"a\"); };\n"
						  "gpus = ( { match = \"0\"; max_clients = 3; },\n"
						  "  { match = \"1\"; multi_user = false; } );\n")),
			 0);
	ck_assert_str_eq(config.runtime_directory, "/run/x");
	ck_assert_int_eq(config.max_clients, 8);
	ck_assert(config.multi_user);
	ck_assert_int_eq(config.placement, CONFIG_PLACEMENT_PACK);
	ck_assert_uint_eq(config.devices.n, 2);
	ck_assert_str_eq(config.devices.items[1], "0");
	ck_assert_uint_eq(config.idle_server_stop_usec, 0);
	ck_assert_uint_eq(config.timeouts.start_usec, 2 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.query_usec, 250 * USEC_PER_MSEC);
	ck_assert_uint_eq(config.access.lease_groups.n, 1);
	ck_assert_uint_eq(config.n_gpus, 2);
	ck_assert_int_eq(config.gpus[0].max_clients, 3);
	ck_assert(!config.gpus[0].multi_user_set);
	ck_assert(config.gpus[1].multi_user_set && !config.gpus[1].multi_user);
}
END_TEST

static const struct {
	const char *text;
	int line;
	const char *error;
} wrong[] = {
	{"a = 1;\n", 1, "unknown option \"a\""},
	{"\n\nmax_client = 1;\n", 3, "unknown option \"max_client\""},
	{"timeouts = {\n\tstart = 1;\n\tstrat = 1;\n};\n", 3, "unknown option \"timeouts.strat\""},
	{"max_clients = \"8\";\n", 1, "max_clients must be a whole number"},
	{"max_clients = 8.0;\n", 1, "max_clients must be a whole number"},
	{"\nmax_clients = { };\n", 2, "max_clients must be a whole number"},
	{"max_clients = 0;\n", 1, "max_clients must be 1 to 1024, and is 0"},
	{"multi_user = 1;\n", 1, "multi_user must be true or false"},
	{"\nruntime_directory = \"/tmp/nvidia-mps\";\n", 2, "MPS's default directory"},
	{"timeouts = 3;\n", 1, "timeouts must be a group"},
	{"devices = \"all\";\n", 1, "devices must be an array"},
	{"devices = [1, 2];\n", 1, "devices must be an array"},
	{"devices = [\"\"];\n", 1, "devices"},
	{"gpus = { match = \"0\"; };\n", 1, "gpus must be a list"},
	{"gpus = [ \"0\" ];\n", 1, "gpus must be a list"},
	{"gpus = ( \"0\" );\n", 1, "must be a group"},
	{"gpus = (\n{ max_clients = 1; } );\n", 2, "no match"},
	{"gpus = ( { match = \"0\";\nclients = 1; } );\n", 2, "unknown option \"clients\""},
	{"max_clients = 8;\n\nmax_clients = 9;\n", 3, "duplicate"},
	{"max_clients = 8;\nplacement = ;\n", 2, "syntax error"},
	{"timeouts = {\nstart = 1;\n", 3, "syntax error"},
	{"max_clients = 5000000000;\n", 1, "5000000000"},
	{"\nmax_clients = 5000000000L;\n", 2, "5000000000"},
	{"\n\nidle_server_stop = 5000000000;\n", 3, "5000000000"},
	{"idle_server_stop = 5000000000L;\n", 1, "idle_server_stop must be"},
	{"max_clients = -5000000000;\n", 1, "5000000000"},
	{"max_clients = +5000000000;\n", 1, "5000000000"},
	{"max_clients=4294967304;\n", 1, "4294967304"},
	{"max_clients = 99999999999999999999999999999999999999999;\n", 1, "out of range"},
	{"/* 1\n2 */ max_clients = 5000000000;\n", 2, "5000000000"},
	{"mps_control = \"a\\\"b\"; max_clients = 5000000000;\n", 1, "5000000000"},
	{"gpus = ( { match = \"0\";\nmax_clients = 4294967297; } );\n", 2, "4294967297"},
	{"max_clients = 0x100000008;\n", 1, ""},
	{"max_clients = 0x100000008L;\n", 1, "max_clients"},
};

START_TEST(says_where_and_why)
{
	const char *path = unit_write("x.conf", wrong[_i].text);
	struct config config;
	int r = load(&config, path);

	ck_assert_msg(r < 0, "accepted: %s", wrong[_i].text);
	ck_assert_str_eq(error.file, path);
	ck_assert_int_eq(error.line, wrong[_i].line);
	unit_assert_contains(error.text, wrong[_i].error);
}
END_TEST

static const char *const right[] = {
	"# max_clients = 5000000000\nmax_clients = 8;\n",
	"// 5000000000\nmax_clients = 8;\n",
	"/* 5000000000\n 5000000000 */ max_clients = 8;\n",
	"mps_control = \"5000000000\"; max_clients = 8;\n",
	"mps_control = \"a \\\" 5000000000\"; max_clients = 8;\n",
	"mps_control = \"a\" \" 5000000000\"; max_clients = 8;\n",
	"mps_control = \"# /*\"; max_clients = 8;\n",
	"max_clients = 8L;\n",
	"max_clients = 0x8;\n",
	"max_clients = 8; /* \" */ # \"\n",
	"max_clients = 8; # 5000000000",
	"timeouts = { start = 2147483.647; }; max_clients = 8;",
};

START_TEST(leaves_numbers_in_texts_alone)
{
	struct config config;
	int r = load(&config, unit_write("x.conf", right[_i]));

	ck_assert_msg(r == 0, "line %d: %s", error.line, error.text);
	ck_assert_int_eq(config.max_clients, 8);
}
END_TEST

START_TEST(reads_fragments_in_order)
{
	struct config config;
	const char *path;

	path = unit_write("x.conf", "max_clients = 1; prestart = false;\n"
				    "timeouts = { start = 1; query = 1; };\n"
				    "devices = [\"0\", \"1\"]; gpus = ( { match = \"0\"; } );\n");
	ck_assert_int_eq(mkdir(unit_path("conf.d"), 0755), 0);
	(void)unit_write("conf.d/20.conf", "max_clients = 20; devices = [\"2\"]; gpus = ();\n");
	(void)unit_write("conf.d/10.conf", "max_clients = 10; timeouts = { start = 10; };\n");
	(void)unit_write("conf.d/30.conf.bak", "max_clients = 30;\n");
	(void)unit_write("conf.d/.40.conf", "max_clients = 40;\n");
	(void)unit_write("50.conf", "max_clients = 50;\n");
	ck_assert_int_eq(load(&config, path), 0);
	ck_assert_int_eq(config.max_clients, 20);
	ck_assert(!config.prestart);
	ck_assert_uint_eq(config.timeouts.start_usec, 10 * USEC_PER_SEC);
	ck_assert_uint_eq(config.timeouts.query_usec, 1 * USEC_PER_SEC);
	ck_assert_uint_eq(config.devices.n, 1);
	ck_assert_str_eq(config.devices.items[0], "2");
	ck_assert_uint_eq(config.n_gpus, 0);
	ck_assert_uint_eq(list.n, 3);
	ck_assert_str_eq(list.files[0], path);
	ck_assert_str_eq(list.files[1], unit_path("conf.d/10.conf"));
	ck_assert_str_eq(list.files[2], unit_path("conf.d/20.conf"));
}
END_TEST

START_TEST(names_the_wrong_fragment)
{
	const char *path = unit_write("x.conf", "");
	struct config config;

	ck_assert_int_eq(mkdir(unit_path("conf.d"), 0755), 0);
	(void)unit_write("conf.d/a.conf", "\nmax_clients = 0;\n");
	ck_assert_int_eq(load(&config, path), -EINVAL);
	ck_assert_str_eq(error.file, unit_path("conf.d/a.conf"));
	ck_assert_int_eq(error.line, 2);
}
END_TEST

START_TEST(finds_fragments_whatever_the_directory_is_called)
{
	struct config config;
	const char *path;

	ck_assert_int_eq(mkdir(unit_path("[a]*"), 0755), 0);
	ck_assert_int_eq(mkdir(unit_path("[a]*/conf.d"), 0755), 0);
	path = unit_write("[a]*/x.conf", "max_clients = 1;\n");
	(void)unit_write("[a]*/conf.d/a.conf", "max_clients = 2;\n");
	ck_assert_int_eq(load(&config, path), 0);
	ck_assert_int_eq(config.max_clients, 2);
}
END_TEST

/* libconfig reads an included file itself; a number there must not wrap either. */
START_TEST(checks_included_files)
{
	struct config config;
	char text[PATH_MAX + 16];

	(void)text_format(text, sizeof(text), "@include \"%s\"\n",
			  unit_write("included", "\nmax_clients = 4294967304;\n"));
	ck_assert_msg(load(&config, unit_write("x.conf", text)) < 0,
		      "4294967304 was read as %d clients", config.max_clients);
}
END_TEST

START_TEST(tells_what_cannot_be_read)
{
	static const char nul[] = "max_clients = 8;\n\0max_clients = 9;\n";
	struct config config;

	ck_assert_int_eq(load(&config, unit_path("missing.conf")), -ENOENT);
	ck_assert_str_eq(error.file, unit_path("missing.conf"));
	ck_assert_int_eq(error.line, 0);
	unit_assert_contains(error.text, "cannot be read: No such file");
	ck_assert_int_eq(load(&config, unit_directory), -EISDIR);
	unit_assert_contains(error.text, "Is a directory");
	ck_assert_int_eq(load(&config, unit_write_bytes("nul.conf", nul, sizeof(nul), 0644)),
			 -EILSEQ);
	unit_assert_contains(error.text, "NUL byte");
	ck_assert_int_eq(load(&config, "/dev/zero"), -EFBIG);
}
END_TEST

START_TEST(limits_the_size)
{
	size_t size = 1024 * 1024;
	_cleanup_free_ char *text = malloc(size + 1);
	struct config config;

	ck_assert_ptr_nonnull(text);
	memset(text, '\n', size + 1);
	ck_assert_int_eq(load(&config, unit_write_bytes("x.conf", text, size, 0644)), 0);
	ck_assert_int_eq(load(&config, unit_write_bytes("x.conf", text, size + 1, 0644)), -EFBIG);
}
END_TEST

static void change_everything(struct config *config)
{
	char why[CONFIG_ERROR_SIZE];
	static const struct {
		const char *path;
		struct config_value value;
	} values[] = {
		{"runtime_directory", {.type = CONFIG_VALUE_STRING, .string = "/run/\"x\" \\y"}},
		{"state_directory", {.type = CONFIG_VALUE_STRING, .string = "/s/\xc3\xa4"}},
		{"mps_control", {.type = CONFIG_VALUE_STRING, .string = "a\nb\tc\x01\x1f#/*"}},
		{"nvidia_smi", {.type = CONFIG_VALUE_STRING, .string = "5000000000"}},
		{"multi_user", {.type = CONFIG_VALUE_BOOL, .boolean = true}},
		{"compute_mode", {.type = CONFIG_VALUE_STRING, .string = "exclusive_process"}},
		{"placement", {.type = CONFIG_VALUE_STRING, .string = "pack"}},
		{"max_clients", {.type = CONFIG_VALUE_INT, .integer = 1024}},
		{"oversubscribe_threads", {.type = CONFIG_VALUE_BOOL, .boolean = false}},
		{"prestart", {.type = CONFIG_VALUE_BOOL, .boolean = false}},
		{"idle_server_stop", {.type = CONFIG_VALUE_FLOAT, .number = 31535999.999999}},
		{"access.max_leases_per_user", {.type = CONFIG_VALUE_INT, .integer = 1000000}},
		{"timeouts.start", {.type = CONFIG_VALUE_FLOAT, .number = 0.100001}},
		{"timeouts.query", {.type = CONFIG_VALUE_FLOAT, .number = 1.000001}},
		{"timeouts.stop", {.type = CONFIG_VALUE_FLOAT, .number = 0.5}},
		{"timeouts.fault_grace", {.type = CONFIG_VALUE_FLOAT, .number = 0.000001}},
		{"timeouts.reclaim", {.type = CONFIG_VALUE_INT, .integer = 31536000}},
		{"timeouts.straggler_grace", {.type = CONFIG_VALUE_INT, .integer = 0}},
		{"timeouts.attach_grace", {.type = CONFIG_VALUE_FLOAT, .number = 0.25}},
		{"timeouts.wait", {.type = CONFIG_VALUE_FLOAT, .number = 3.141592}},
		{"health.interval", {.type = CONFIG_VALUE_FLOAT, .number = 9.999999}},
		{"health.idle_interval", {.type = CONFIG_VALUE_FLOAT, .number = 0.3}},
		{"health.misses", {.type = CONFIG_VALUE_INT, .integer = 100}},
		{"health.wedge_grace", {.type = CONFIG_VALUE_FLOAT, .number = 0.7}},
		{"restart.backoff_min", {.type = CONFIG_VALUE_FLOAT, .number = 0.01}},
		{"restart.backoff_max", {.type = CONFIG_VALUE_FLOAT, .number = 0.123456}},
		{"restart.limit", {.type = CONFIG_VALUE_INT, .integer = 32}},
		{"restart.window", {.type = CONFIG_VALUE_FLOAT, .number = 1.1}},
		{"restart.failed_retry", {.type = CONFIG_VALUE_INT, .integer = 0}},
	};
	static const struct config_value text = {.type = CONFIG_VALUE_STRING, .string = "a \"b\""};
	struct config_gpu gpu = {.match = "GPU-\\", .multi_user = true, .multi_user_set = true};

	for (size_t i = 0; i < ELEMENTSOF(values); i++)
		ck_assert_int_eq(config_set(config, values[i].path, &values[i].value, why), 0);
	config_clear_strings(config, "devices");
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(config_append_string(config, "access.admin_groups", &text, why),
				 0);
		ck_assert_int_eq(config_append_gpu(config, &gpu, why), 0);
		gpu.max_clients += 7;
		gpu.multi_user_set = gpu.multi_user = false;
	}
}

START_TEST(reads_back_what_is_printed)
{
	struct config config, again;
	const char *path = unit_path("x.conf");
	FILE *file;

	config_defaults(&config);
	if (_i == 1)
		change_everything(&config);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	config_print(&config, file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_msg(load(&again, path) == 0, "line %d: %s", error.line, error.text);
	unit_assert_same_config(&config, &again);
}
END_TEST

START_TEST(the_shipped_file_shows_the_defaults)
{
	struct config config, defaults;

	if (access(SHIPPED, R_OK) < 0)
		return;
	config_defaults(&defaults);
	ck_assert_msg(load(&config, SHIPPED) == 0, "line %d: %s", error.line, error.text);
	unit_assert_same_config(&config, &defaults);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("conffile");

	tcase_add_checked_fixture(tcase, unit_directory_setup, unit_directory_teardown);
	tcase_add_test(tcase, empty_means_defaults);
	tcase_add_test(tcase, reads_every_kind_of_value);
	unit_add_table(tcase, says_where_and_why, wrong);
	unit_add_table(tcase, leaves_numbers_in_texts_alone, right);
	tcase_add_test(tcase, reads_fragments_in_order);
	tcase_add_test(tcase, names_the_wrong_fragment);
	tcase_add_test(tcase, finds_fragments_whatever_the_directory_is_called);
	tcase_add_test(tcase, checks_included_files);
	tcase_add_test(tcase, tells_what_cannot_be_read);
	tcase_add_test(tcase, limits_the_size);
	tcase_add_loop_test(tcase, reads_back_what_is_printed, 0, 2);
	tcase_add_test(tcase, the_shipped_file_shows_the_defaults);
	return unit_run("conffile", tcase);
}
