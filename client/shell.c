/* SPDX-License-Identifier: MIT */
#include "shell.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>

#include "text.h"
#include "util.h"

#define CMDLINE_MAX 4096 /* longer ones are compared that far */
#define WALK_MAX 64      /* how deep subshells may be nested */

struct process {
	pid_t pid, parent, group;
	char executable[PATH_MAX];
	char cmdline[CMDLINE_MAX];
	size_t cmdline_length;
	uint64_t start_stack; /* the address; 0 when it is not shown to us */
};

static int read_file(pid_t pid, const char *name, char *buffer, size_t size, size_t *ret_length)
{
	_cleanup_close_ int fd = -EBADF;
	char path[64];
	ssize_t n;

	(void)text_format(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, buffer, size);
	if (n < 0)
		return -errno;
	*ret_length = (size_t)n;
	return 0;
}

/* proc(5): fields 4 and 5 behind the name, which may hold anything but ends at the last ')';
 * 28 is the bottom of the stack. */
static int read_stat(struct process *process)
{
	char text[1024], *fields;
	size_t length = 0;
	int parent, group;
	int r;

	r = read_file(process->pid, "stat", text, sizeof(text) - 1, &length);
	if (r < 0)
		return r;
	text[length] = '\0';
	fields = strrchr(text, ')');
	if (!fields || sscanf(fields, ") %*c %d %d", &parent, &group) != 2)
		return -EBADMSG;
	process->parent = parent;
	process->group = group;
	if (sscanf(fields,
		   ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
		   "%*d %*u %*u %*d %*u %*u %*u %" SCNu64,
		   &process->start_stack) != 1)
		process->start_stack = 0;
	return 0;
}

static int read_process(pid_t pid, struct process *ret)
{
	char path[64];
	ssize_t n;
	int r;

	*ret = (struct process){.pid = pid};
	r = read_stat(ret);
	if (r < 0)
		return r;
	(void)text_format(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, ret->executable, sizeof(ret->executable) - 1);
	if (n < 0)
		return -errno;
	return read_file(pid, "cmdline", ret->cmdline, sizeof(ret->cmdline), &ret->cmdline_length);
}

/*
 * Has child been forked by parent and not exec'ed since? fork(2) keeps the program, its words, its
 * process group and its addresses; exec lays out a new stack at random.
 */
static bool is_copy(const struct process *child, const struct process *parent)
{
	return child->group == parent->group && child->start_stack == parent->start_stack &&
	       child->cmdline_length == parent->cmdline_length &&
	       memcmp(child->cmdline, parent->cmdline, child->cmdline_length) == 0 &&
	       streq(child->executable, parent->executable);
}

/*
 * In `eval "$(mpsctl lease)"` our parent may be the shell itself or a copy that it forked for the
 * substitution, which is gone in a moment and would take the lease along. So the walk goes up as
 * long as a process is nothing but a copy of its parent.
 */
int shell_find(pid_t *ret_pid)
{
	_cleanup_free_ struct process *pair = calloc(2, sizeof(*pair));
	struct process *child = &pair[0], *parent = &pair[1];
	pid_t pid = getppid();

	if (!pair)
		return -ENOMEM;
	if (pid <= 1)
		return -ESRCH;
	*ret_pid = pid;
	if (read_process(pid, child) < 0)
		return 0;
	for (int i = 0; i < WALK_MAX && child->parent > 1; i++) {
		struct process *swap = child;

		if (read_process(child->parent, parent) < 0 || !is_copy(child, parent))
			break;
		*ret_pid = parent->pid;
		child = parent;
		parent = swap;
	}
	return 0;
}

bool shell_is_above(int64_t pid)
{
	_cleanup_free_ struct process *process = calloc(1, sizeof(*process));

	if (!process)
		return false;
	process->pid = getpid();
	for (int i = 0; i < WALK_MAX && process->pid > 1 && read_stat(process) == 0; i++) {
		if (process->parent == pid)
			return true;
		process->pid = process->parent;
	}
	return false;
}

void shell_quote(FILE *file, const char *text)
{
	(void)fputc('\'', file);
	for (; *text; text++)
		if (*text == '\'')
			(void)fputs("'\\''", file);
		else
			(void)fputc(*text, file);
	(void)fputc('\'', file);
}

static void print_exports(FILE *file, const struct grant *grant)
{
	const char *name;
	json_t *value;

	json_object_foreach(grant->environment, name, value) {
		(void)fprintf(file, "export %s=", name);
		shell_quote(file, json_string_value(value));
		(void)fputc('\n', file);
	}
	(void)fputs("unset", file);
	for (size_t i = 0; grant_governed[i]; i++)
		if (!json_object_get(grant->environment, grant_governed[i]))
			(void)fprintf(file, " %s", grant_governed[i]);
	(void)fputc('\n', file);
}

static void print_assignments(FILE *file, const struct grant *grant)
{
	const char *name;
	json_t *value;

	json_object_foreach(grant->environment, name, value)
		(void)fprintf(file, "%s=%s\n", name, json_string_value(value));
}

void shell_print(FILE *file, const struct grant *grant, enum lease_format format)
{
	switch (format) {
	case LEASE_FORMAT_SHELL:
		print_exports(file, grant);
		return;
	case LEASE_FORMAT_ENV:
		print_assignments(file, grant);
		return;
	case LEASE_FORMAT_JSON:
		(void)json_dumpf(grant->lease, file, JSON_INDENT(2));
		(void)fputc('\n', file);
		return;
	case LEASE_FORMAT_PATH:
		(void)fprintf(file, "%s\n", grant->pipe_directory);
		return;
	}
}
