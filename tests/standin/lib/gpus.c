/* SPDX-License-Identifier: MIT */
/* The devices of the pretended machine; see gpus.h. */
#include "gpus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define DEFAULT_UUID "GPU-11111111-2222-3333-4444-555555555550"
#define DEFAULT_NAME "NVIDIA H200"

/* Splits at commas, in place; returns how many parts there were (at most max). */
static size_t split(char *line, char *parts[], size_t max)
{
	size_t n = 0;
	char *rest = line;
	char *part;

	while (n < max && (part = strsep(&rest, ",")))
		parts[n++] = text_trim(part);
	return n;
}

static void parse_line(struct gpus *gpus, char *line)
{
	struct gpu *gpu = &gpus->devices[gpus->n_devices];
	const struct gpu *previous = gpus->n_devices > 0 ? gpu - 1 : NULL;
	char *parts[GPU_N_FIELDS];
	size_t n = split(line, parts, GPU_N_FIELDS);

	if (gpus->n_devices == GPUS_MAX) {
		fprintf(stderr, "%s: more than %d devices\n", gpus->path, GPUS_MAX);
		exit(2);
	}
	if (n == 4 && strcmp(parts[0], "mig") == 0 && previous) {
		gpu->is_mig = true;
		gpu->mig_device = (int)strtol(parts[2], NULL, 10);
		text_copy(gpu->mig_profile, GPU_FIELD_MAX, parts[1]);
		text_copy(gpu->fields[GPU_UUID], GPU_FIELD_MAX, parts[3]);
		text_copy(gpu->fields[GPU_PCI_BUS_ID], GPU_FIELD_MAX,
			  previous->fields[GPU_PCI_BUS_ID]);
		text_copy(gpu->fields[GPU_NAME], GPU_FIELD_MAX, previous->fields[GPU_NAME]);
	} else if (n == GPU_N_FIELDS) {
		for (size_t i = 0; i < n; i++)
			text_copy(gpu->fields[i], GPU_FIELD_MAX, parts[i]);
	} else {
		fprintf(stderr, "%s: a line has %zu fields\n", gpus->path, n);
		exit(2);
	}
	gpus->n_devices++;
}

void gpus_load(struct gpus *ret_gpus)
{
	const char *given = getenv("MPS_STANDIN_GPUS");
	char line[GPU_N_FIELDS * GPU_FIELD_MAX];
	char *text;
	FILE *file;

	memset(ret_gpus, 0, sizeof(*ret_gpus));
	if (given)
		text_copy(ret_gpus->path, sizeof(ret_gpus->path), given);
	else if (!program_find_beside("standin.gpus", ret_gpus->path))
		return;
	file = fopen(ret_gpus->path, "re");
	if (!file) {
		ret_gpus->path[0] = '\0';
		return;
	}
	while (fgets(line, sizeof(line), file)) {
		text = text_trim(line);
		if (*text != '\0' && *text != '#')
			parse_line(ret_gpus, text);
	}
	fclose(file);
}

static void print_gpu(FILE *file, const struct gpu *gpu)
{
	if (gpu->is_mig) {
		fprintf(file, "mig, %s, %d, %s\n", gpu->mig_profile, gpu->mig_device,
			gpu->fields[GPU_UUID]);
		return;
	}
	for (size_t i = 0; i < GPU_N_FIELDS; i++)
		fprintf(file, "%s%s", i > 0 ? ", " : "", gpu->fields[i]);
	fputc('\n', file);
}

int gpus_save(const struct gpus *gpus)
{
	char path[PATH_MAX + 32];
	FILE *file;

	snprintf(path, sizeof(path), "%s.%d", gpus->path, getpid());
	file = fopen(path, "we");
	if (!file)
		return -errno;
	for (size_t i = 0; i < gpus->n_devices; i++)
		print_gpu(file, &gpus->devices[i]);
	if (fclose(file) != 0 || rename(path, gpus->path) < 0)
		return -errno;
	return 0;
}

static const struct gpu *find_visible(const struct gpus *all, const char *word)
{
	char *end;
	unsigned long index = strtoul(word, &end, 10);

	for (size_t i = 0; i < all->n_devices; i++) {
		const struct gpu *gpu = &all->devices[i];

		if (*word == '\0')
			return NULL;
		if (*end == '\0' && !gpu->is_mig && index-- == 0)
			return gpu;
		if (*end != '\0' && strncmp(gpu->fields[GPU_UUID], word, strlen(word)) == 0)
			return gpu;
	}
	return NULL;
}

size_t gpus_select(const struct gpus *all, const char *visible,
		   const struct gpu *ret_visible[GPUS_MAX])
{
	char list[4096];
	char *words[GPUS_MAX];
	size_t n_words;
	size_t n = 0;

	if (!visible) {
		for (size_t i = 0; i < all->n_devices; i++)
			if (!all->devices[i].is_mig)
				ret_visible[n++] = &all->devices[i];
		return n;
	}
	text_copy(list, sizeof(list), visible);
	n_words = split(list, words, GPUS_MAX);
	while (n < n_words) {
		ret_visible[n] = find_visible(all, words[n]);
		if (!ret_visible[n])
			break;
		n++;
	}
	return n;
}

/* Without a file: the devices that the variable names by UUID, else one. */
static void invent_devices(struct gpus *gpus, const char *visible)
{
	char list[4096];
	char *words[GPUS_MAX];
	size_t n;

	text_copy(list, sizeof(list), visible ? visible : DEFAULT_UUID);
	n = split(list, words, GPUS_MAX);
	for (size_t i = 0; i < n && *words[i] != '\0'; i++) {
		struct gpu *gpu = &gpus->devices[gpus->n_devices++];

		text_copy(gpu->fields[GPU_UUID], GPU_FIELD_MAX,
			  strchr(words[i], '-') ? words[i] : DEFAULT_UUID);
		text_copy(gpu->fields[GPU_NAME], GPU_FIELD_MAX, DEFAULT_NAME);
		snprintf(gpu->fields[GPU_PCI_BUS_ID], GPU_FIELD_MAX, "00000000:00:%02zX.0", 6 + i);
	}
}

void gpus_of_daemon(struct gpus *ret_gpus)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	const struct gpu *selected[GPUS_MAX];
	static struct gpus all;
	size_t n;

	gpus_load(&all);
	memset(ret_gpus, 0, sizeof(*ret_gpus));
	if (all.path[0] == '\0') {
		invent_devices(ret_gpus, visible);
		return;
	}
	n = gpus_select(&all, visible, selected);
	for (size_t i = 0; i < n; i++)
		ret_gpus->devices[i] = *selected[i];
	ret_gpus->n_devices = n;
}
