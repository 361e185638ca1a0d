/* SPDX-License-Identifier: MIT */
/*
 * Stand-in for nvidia-smi: the queries and the change of the compute mode that a supervisor of MPS
 * needs, over the devices of the file standin.gpus. README.md has the file's format.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpus.h"
#include "knobs.h"
#include "util.h"

#define EXIT_NO_DEVICES 6
#define EXIT_USAGE 2

static const char *const field_names[GPU_N_FIELDS] = {
	[GPU_INDEX] = "index",
	[GPU_UUID] = "uuid",
	[GPU_PCI_BUS_ID] = "pci.bus_id",
	[GPU_NAME] = "name",
	[GPU_COMPUTE_MODE] = "compute_mode",
	[GPU_MIG_MODE] = "mig.mode.current",
	[GPU_PERSISTENCE_MODE] = "persistence_mode",
	[GPU_MEMORY_TOTAL] = "memory.total",
};

struct options {
	const char *query;
	const char *format;
	const char *selector;
	const char *compute_mode;
	bool list;
};

static int field_find(const char *name)
{
	for (int i = 0; i < GPU_N_FIELDS; i++)
		if (strcmp(field_names[i], name) == 0)
			return i;
	return -1;
}

/* Reads "a,b,c"; returns how many, or -1 after the message about a field that there is not. */
static int fields_parse(const char *query, int fields[GPU_N_FIELDS * 2])
{
	char list[512];
	char *rest = list;
	char *name;
	int n = 0;

	text_copy(list, sizeof(list), query);
	while (n < GPU_N_FIELDS * 2 && (name = strsep(&rest, ","))) {
		fields[n] = field_find(text_trim(name));
		if (fields[n] < 0) {
			printf("Field \"%s\" is not a valid field to query.\n\n", text_trim(name));
			return -1;
		}
		n++;
	}
	return n;
}

static bool is_selected(const struct gpu *gpu, const char *selector)
{
	return !selector || strcmp(gpu->fields[GPU_INDEX], selector) == 0 ||
	       strcmp(gpu->fields[GPU_UUID], selector) == 0 ||
	       strcasecmp(gpu->fields[GPU_PCI_BUS_ID], selector) == 0;
}

static int print_query(const struct gpus *gpus, const struct options *options)
{
	int fields[GPU_N_FIELDS * 2];
	int n_fields = fields_parse(options->query, fields);

	if (n_fields < 0)
		return EXIT_USAGE;
	for (size_t i = 0; i < gpus->n_devices; i++) {
		const struct gpu *gpu = &gpus->devices[i];

		if (gpu->is_mig || !is_selected(gpu, options->selector))
			continue;
		for (int j = 0; j < n_fields; j++)
			printf("%s%s", j > 0 ? ", " : "", gpu->fields[fields[j]]);
		putchar('\n');
	}
	return 0;
}

static int print_list(const struct gpus *gpus)
{
	for (size_t i = 0; i < gpus->n_devices; i++) {
		const struct gpu *gpu = &gpus->devices[i];

		if (gpu->is_mig)
			printf("  MIG %-11s Device %2d: (UUID: %s)\n", gpu->mig_profile,
			       gpu->mig_device, gpu->fields[GPU_UUID]);
		else
			printf("GPU %s: %s (UUID: %s)\n", gpu->fields[GPU_INDEX],
			       gpu->fields[GPU_NAME], gpu->fields[GPU_UUID]);
	}
	return 0;
}

struct mode {
	const char *number;
	const char *option;
	const char *shown; /* as a query shows it */
};

static const struct mode *mode_find(const char *text)
{
	static const struct mode modes[] = {
		{"0", "DEFAULT", "Default"},
		{"2", "PROHIBITED", "Prohibited"},
		{"3", "EXCLUSIVE_PROCESS", "Exclusive_Process"},
	};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i].number, text) == 0 || strcasecmp(modes[i].option, text) == 0)
			return &modes[i];
	return NULL;
}

static int set_mode(struct gpus *gpus, const struct options *options)
{
	const struct mode *mode = mode_find(options->compute_mode);
	bool found = false;

	if (!mode) {
		printf("Invalid compute mode \"%s\".\n", options->compute_mode);
		return EXIT_USAGE;
	}
	if (geteuid() != 0) {
		puts("Unable to set the compute mode: Insufficient Permissions");
		return 4;
	}
	for (size_t i = 0; i < gpus->n_devices; i++) {
		struct gpu *gpu = &gpus->devices[i];

		if (gpu->is_mig || !is_selected(gpu, options->selector))
			continue;
		found = true;
		text_copy(gpu->fields[GPU_COMPUTE_MODE], GPU_FIELD_MAX, mode->shown);
		printf("Set compute mode to %s for GPU %s.\n", mode->option,
		       gpu->fields[GPU_PCI_BUS_ID]);
	}
	if (!found) {
		puts("No devices were found");
		return EXIT_NO_DEVICES;
	}
	if (gpus_save(gpus) < 0)
		return 1;
	puts("All done.");
	return 0;
}

/* Values come as "--name=value", "-x value" or "-x=value". */
static const char *option_value(char *argv[], int *i, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(argv[*i], name, length) != 0)
		return NULL;
	if (argv[*i][length] == '=')
		return argv[*i] + length + 1;
	if (argv[*i][length] == '\0' && argv[*i + 1])
		return argv[++*i];
	return NULL;
}

static bool options_parse(char *argv[], struct options *options)
{
	const char *value;

	for (int i = 1; argv[i]; i++) {
		if (strcmp(argv[i], "-L") == 0 || strcmp(argv[i], "--list-gpus") == 0)
			options->list = true;
		else if ((value = option_value(argv, &i, "--query-gpu")))
			options->query = value;
		else if ((value = option_value(argv, &i, "--format")))
			options->format = value;
		else if ((value = option_value(argv, &i, "-i")) ||
			 (value = option_value(argv, &i, "--id")))
			options->selector = value;
		else if ((value = option_value(argv, &i, "-c")) ||
			 (value = option_value(argv, &i, "--compute-mode")))
			options->compute_mode = value;
		else {
			printf("Invalid combination of input arguments: %s\n", argv[i]);
			return false;
		}
	}
	return true;
}

/* What the knobs say instead of an answer; -1: answer. */
static int misbehave(void)
{
	const char *garbage = knob_text("smi_garbage");

	sleep_ms(knob_number("smi_delay_ms", 0));
	while (knob_on("smi_hang"))
		pause();
	if (knob_text("smi_error"))
		puts(knob_text("smi_error"));
	if (garbage)
		fwrite(garbage, 1, strlen(garbage), stdout);
	if (knob_text("smi_exit"))
		return (int)knob_number("smi_exit", 1);
	return garbage ? 0 : -1;
}

int main(int argc, char *argv[])
{
	static struct gpus gpus;
	struct options options = {0};
	int status;

	(void)argc;
	signal(SIGPIPE, SIG_IGN);
	program_init();
	knobs_load();
	status = misbehave();
	if (status >= 0)
		return status;
	if (!options_parse(argv, &options))
		return EXIT_USAGE;
	gpus_load(&gpus);
	if (gpus.n_devices == 0) {
		puts("No devices were found");
		return EXIT_NO_DEVICES;
	}
	if (options.compute_mode)
		return set_mode(&gpus, &options);
	if (options.query)
		return print_query(&gpus, &options);
	if (options.list)
		return print_list(&gpus);
	puts("NVIDIA-SMI: the stand-in of a test suite");
	return 0;
}
