/* SPDX-License-Identifier: MIT */
#include "procinfo.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>

#include "text.h"
#include "util.h"

/* A flag of the kernel in the ninth field of /proc/PID/stat (include/linux/sched.h). */
#define PF_EXITING 0x4u
/* In the 31st: signals that wait for this thread; every one gets SIGKILL when a process ends. */
#define SIGKILL_BIT (1ull << (SIGKILL - 1))

#define ENVIRONMENT_MAX ((size_t)256 * 1024)

static int open_proc(pid_t pid, const char *name, int *ret_fd)
{
	char path[64];
	int fd;

	(void)text_format(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret_fd = fd;
	return 0;
}

/* A small file of the process, whole. -ESRCH when there is nothing, for then it has just ended. */
static int read_small(int fd, char *text, size_t size)
{
	ssize_t n = read(fd, text, size - 1);

	if (n <= 0)
		return -ESRCH;
	text[n] = '\0';
	return 0;
}

int procinfo_read(pid_t pid, struct procinfo *ret)
{
	_cleanup_close_ int fd = -EBADF;
	struct procinfo info = {};
	unsigned long long start, pending;
	char text[1024];
	struct stat st;
	char *tail;
	unsigned int flags;
	int r, parent;

	r = open_proc(pid, "stat", &fd);
	if (r == 0)
		r = read_small(fd, text, sizeof(text));
	if (r < 0)
		return r;
	/* The command's name stands in brackets and may hold anything, brackets too. */
	tail = strrchr(text, ')');
	if (!tail || sscanf(tail + 1,
			    " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			    "%*d %*d %llu %*u %*d %*u %*u %*u %*u %*u %*u %llu",
			    &info.state, &parent, &flags, &start, &pending) != 5)
		return -EBADMSG;
	if (fstat(fd, &st) < 0)
		return -errno;
	info.parent = parent;
	info.start_ticks = start;
	info.exiting = flags & PF_EXITING || pending & SIGKILL_BIT || info.state == 'Z' ||
		       info.state == 'X';
	info.uid = st.st_uid;
	*ret = info;
	return 0;
}

/* The value in a block of NUL-ended NAME=value, or NULL. */
static const char *find_variable(const char *block, size_t length, const char *name)
{
	size_t name_length = strlen(name);

	for (const char *p = block; p < block + length; p += strlen(p) + 1)
		if (strncmp(p, name, name_length) == 0 && p[name_length] == '=')
			return p + name_length + 1;
	return NULL;
}

int procinfo_environment(pid_t pid, const char *name, char *ret_value, size_t size)
{
	_cleanup_free_ char *block = NULL;
	_cleanup_close_ int fd = -EBADF;
	size_t room = ENVIRONMENT_MAX, length = 0;
	const char *value;
	ssize_t n;
	int r;

	r = open_proc(pid, "environ", &fd);
	if (r < 0)
		return r;
	block = malloc(room + 1);
	if (!block)
		return -ENOMEM;
	while (length < room && (n = read(fd, block + length, room - length)) != 0) {
		if (n < 0)
			return -errno;
		length += (size_t)n;
	}
	block[length] = '\0';
	value = find_variable(block, length, name);
	return value ? text_copy(ret_value, size, value) : -ENOENT;
}

int procinfo_name(pid_t pid, char *ret_name, size_t size)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	r = open_proc(pid, "comm", &fd);
	if (r == 0)
		r = read_small(fd, ret_name, size);
	if (r < 0)
		return r;
	ret_name[strcspn(ret_name, "\n")] = '\0';
	for (char *p = ret_name; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
	return 0;
}

int procinfo_mounts(pid_t pid, char **ret_text)
{
	_cleanup_free_ char *text = malloc(PROCINFO_MOUNTS_MAX + 1);
	_cleanup_close_ int fd = -EBADF;
	size_t length = 0;
	ssize_t n;
	int r;

	if (!text)
		return -ENOMEM;
	r = open_proc(pid, "mountinfo", &fd);
	if (r < 0)
		return r;
	while ((n = read(fd, text + length, PROCINFO_MOUNTS_MAX - length)) > 0)
		length += (size_t)n;
	if (n < 0)
		return -errno;
	if (length == PROCINFO_MOUNTS_MAX)
		return -E2BIG;
	text[length] = '\0';
	*ret_text = TAKE_PTR(text);
	return 0;
}

bool procinfo_shares_mounts(pid_t pid)
{
	struct stat ours, theirs;
	char path[64];

	(void)text_format(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return stat(path, &theirs) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 &&
	       ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

int procinfo_real_uid(pid_t pid, uid_t *ret_uid)
{
	_cleanup_close_ int fd = -EBADF;
	char text[4096];
	const char *line;
	int r;

	r = open_proc(pid, "status", &fd);
	if (r == 0)
		r = read_small(fd, text, sizeof(text));
	if (r < 0)
		return r;
	line = strstr(text, "\nUid:");
	return line && sscanf(line, "\nUid: %u", ret_uid) == 1 ? 0 : -EBADMSG;
}
