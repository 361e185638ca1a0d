/* SPDX-License-Identifier: MIT */
/* Small helpers of the stand-ins; see util.h. */
#include "util.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "knobs.h"

static char started_directory[PATH_MAX];
static char real_directory[PATH_MAX];

long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(long ms)
{
	struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

	while (nanosleep(&rest, &rest) < 0)
		;
}

void text_copy(char *to, size_t size, const char *from)
{
	size_t length = strnlen(from, size - 1);

	memcpy(to, from, length);
	to[length] = '\0';
}

char *text_trim(char *text)
{
	size_t length;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
	return text;
}

bool process_lives(pid_t pid)
{
	char path[64];
	char line[512];
	const char *state;
	FILE *file;
	bool lives = false;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fgets(line, sizeof(line), file)) {
		state = strrchr(line, ')');
		lives = state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
	}
	fclose(file);
	return lives;
}

/* The directory part of path, made absolute without following a link at its end. */
static void set_directory(char *directory, const char *path)
{
	char part[PATH_MAX];
	char *slash;

	text_copy(part, sizeof(part), path);
	slash = strrchr(part, '/');
	if (!slash)
		text_copy(part, sizeof(part), ".");
	else
		slash[slash == part] = '\0';
	if (!realpath(part, directory))
		directory[0] = '\0';
}

void program_init(void)
{
	const char *started = (const char *)getauxval(AT_EXECFN);
	char executable[PATH_MAX];
	ssize_t length;

	if (started)
		set_directory(started_directory, started);
	length = readlink("/proc/self/exe", executable, sizeof(executable) - 1);
	if (length < 0)
		return;
	executable[length] = '\0';
	set_directory(real_directory, executable);
}

const char *program_started_directory(void)
{
	return started_directory;
}

const char *program_real_directory(void)
{
	return real_directory;
}

bool program_find_beside(const char *name, char path[static PATH_MAX])
{
	const char *directories[] = {started_directory, real_directory};
	char candidate[PATH_MAX];
	int length;

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		length = snprintf(candidate, sizeof(candidate), "%s/%s", directories[i], name);
		if (length >= (int)sizeof(candidate) || access(candidate, F_OK) < 0)
			continue;
		text_copy(path, PATH_MAX, candidate);
		return true;
	}
	return false;
}

static void dump_descriptors(FILE *file)
{
	DIR *directory = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[PATH_MAX];
	ssize_t length;
	int fd;

	if (!directory)
		return;
	while ((entry = readdir(directory))) {
		fd = (int)strtol(entry->d_name, NULL, 10);
		length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
		if (length < 0 || fd == dirfd(directory) || fd == fileno(file))
			continue;
		target[length] = '\0';
		fprintf(file, "fd %d %s\n", fd, target);
	}
	closedir(directory);
}

void program_dump(const char *role, char *const argv[])
{
	const char *path = knob_text("dump");
	FILE *file;
	int fd;

	if (!path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	(void)fchmod(fd, 0666);
	file = fdopen(fd, "a");
	if (!file) {
		close(fd);
		return;
	}
	fprintf(file, "== %s %d\n", role, getpid());
	for (; *argv; argv++)
		fprintf(file, "argv %s\n", *argv);
	for (char **variable = environ; *variable; variable++)
		fprintf(file, "env %s\n", *variable);
	dump_descriptors(file);
	fclose(file);
}
