/* SPDX-License-Identifier: MIT */
/* The knob file: "name=value" lines, "#" comments, "[GPU-uuid]" sections; see knobs.h. */
#include "knobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define KNOB_VALUE_MAX 512

struct knob {
	const char *name;
	bool set;
	char value[KNOB_VALUE_MAX];
};

static struct knob knobs[] = {
	{.name = "version"},
	{.name = "dump"},
	/* nvidia-smi */
	{.name = "smi_delay_ms"},
	{.name = "smi_hang"},
	{.name = "smi_exit"},
	{.name = "smi_error"},
	{.name = "smi_garbage"},
	/* control daemon */
	{.name = "start_delay_ms"},
	{.name = "answer_delay_ms"},
	{.name = "command_delay_ms"},
	{.name = "exit_at_start"},
	{.name = "exit_after_ms"},
	{.name = "exit_status"},
	{.name = "ignore_quit"},
	{.name = "ignore_term"},
	{.name = "hang_on"},
	{.name = "odd_output"},
	{.name = "empty_answers"},
	{.name = "status_text"},
	{.name = "flood_bytes_per_s"},
	{.name = "server_tries"},
	{.name = "refuse_start_while_server_lives"},
	/* server */
	{.name = "server_start_ms"},
	{.name = "server_exit_after_ms"},
	{.name = "server_exit_status"},
	{.name = "server_fail_reason"},
	{.name = "server_survives_parent"},
	{.name = "server_ignore_shutdown"},
	{.name = "max_clients"},
};

#define N_KNOBS (sizeof(knobs) / sizeof(knobs[0]))

static struct knob *knob_find(const char *name)
{
	for (size_t i = 0; i < N_KNOBS; i++)
		if (strcmp(knobs[i].name, name) == 0)
			return &knobs[i];
	return NULL;
}

static bool section_applies(char *section)
{
	const char *devices = getenv("CUDA_VISIBLE_DEVICES");
	char *end = strchr(section, ']');

	if (end)
		*end = '\0';
	if (strcmp(section, "*") == 0)
		return true;
	return devices && strncmp(devices, section, strlen(section)) == 0;
}

/* One "name=value" line; returns false when there is no knob of that name. */
static bool knob_assign(char *line)
{
	char *value = strchr(line, '=');
	struct knob *knob;

	if (value)
		*value++ = '\0';
	knob = knob_find(text_trim(line));
	if (!knob)
		return false;
	knob->set = true;
	text_copy(knob->value, sizeof(knob->value), value ? text_trim(value) : "1");
	return true;
}

static bool knobs_read(FILE *file, const char *path)
{
	char line[KNOB_VALUE_MAX + 64];
	bool applies = true;
	bool good = true;
	char *text;

	while (fgets(line, sizeof(line), file)) {
		text = text_trim(line);
		if (*text == '\0' || *text == '#')
			continue;
		if (*text == '[')
			applies = section_applies(text + 1);
		else if (applies && !knob_assign(text)) {
			fprintf(stderr, "%s: unknown knob \"%s\"\n", path, text);
			good = false;
		}
	}
	return good;
}

static bool knobs_read_file(void)
{
	const char *given = getenv("MPS_STANDIN_KNOBS");
	char path[PATH_MAX];
	bool good;
	FILE *file;

	for (size_t i = 0; i < N_KNOBS; i++)
		knobs[i].set = false;
	if (given)
		text_copy(path, sizeof(path), given);
	else if (!program_find_beside("standin.knobs", path))
		return true;
	file = fopen(path, "re");
	if (!file)
		return true;
	good = knobs_read(file, path);
	fclose(file);
	return good;
}

void knobs_load(void)
{
	if (!knobs_read_file())
		exit(2);
}

void knobs_reload(void)
{
	(void)knobs_read_file();
}

const char *knob_text(const char *name)
{
	const struct knob *knob = knob_find(name);

	if (!knob)
		abort();
	return knob->set ? knob->value : NULL;
}

long knob_number(const char *name, long otherwise)
{
	const char *text = knob_text(name);

	return text && *text ? strtol(text, NULL, 10) : otherwise;
}

bool knob_on(const char *name)
{
	const char *text = knob_text(name);

	return text && *text && strcmp(text, "0") != 0;
}

bool knob_is_535(void)
{
	const char *version = knob_text("version");

	return version && strcmp(version, "535") == 0;
}
