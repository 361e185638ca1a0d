/* SPDX-License-Identifier: MIT */
#include "statefile.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "text.h"
#include "util.h"

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_SIZE 37

static void closedirp(DIR **directory)
{
	if (*directory)
		(void)closedir(*directory);
}

/* Of this boot; empty when the kernel does not say. */
static const char *boot_id(void)
{
	static char id[BOOT_ID_SIZE];
	_cleanup_close_ int fd = -EBADF;
	ssize_t n;

	if (id[0])
		return id;
	fd = open(BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, id, sizeof(id) - 1);
	id[n > 0 ? n : 0] = '\0';
	return id;
}

static int write_all(int fd, const char *text, size_t length)
{
	while (length > 0) {
		ssize_t n = write(fd, text, length);

		if (n < 0)
			return -errno;
		text += n;
		length -= (size_t)n;
	}
	return 0;
}

static int directory_of(const char *path, char directory[static PATH_MAX])
{
	char *slash;

	if (text_copy(directory, PATH_MAX, path) < 0)
		return -ENAMETOOLONG;
	slash = strrchr(directory, '/');
	if (slash)
		*slash = '\0';
	return 0;
}

static int make_directory(const char *path)
{
	char directory[PATH_MAX];
	int r = directory_of(path, directory);

	if (r < 0)
		return r;
	return mkdir(directory, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int sync_directory(const char *path)
{
	char directory[PATH_MAX];
	_cleanup_close_ int fd = -EBADF;
	int r = directory_of(path, directory);

	if (r < 0)
		return r;
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

static int write_new(const char *path, const char *text, bool durable)
{
	_cleanup_close_ int fd =
		open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = write_all(fd, text, strlen(text));
	if (r == 0 && durable && fsync(fd) < 0)
		r = -errno;
	return r;
}

int statefile_write(const char *path, const char *kind, json_t *content, bool durable)
{
	_cleanup_free_ char *text = NULL;
	char fresh[PATH_MAX];
	int r;

	if (content &&
	    (json_object_set_new(content, "kind", json_string(kind)) < 0 ||
	     json_object_set_new(content, "version", json_integer(STATEFILE_VERSION)) < 0 ||
	     json_object_set_new(content, "boot_id", json_string(durable ? "" : boot_id())) < 0)) {
		json_decref(content);
		content = NULL;
	}
	text = content ? json_dumps(content, JSON_COMPACT) : NULL;
	json_decref(content);
	if (!text)
		return -ENOMEM;
	r = text_format(fresh, sizeof(fresh), "%s.new", path);
	if (r == 0 && durable)
		r = make_directory(path);
	if (r == 0)
		r = write_new(fresh, text, durable);
	if (r == 0 && rename(fresh, path) < 0)
		r = -errno;
	if (r == 0 && durable)
		r = sync_directory(path);
	if (r < 0)
		(void)unlink(fresh);
	return r;
}

/* Nobody but us, or root, can have written it. */
static int check_owner(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return (size_t)st.st_size > STATEFILE_MAX ? -EBADMSG : 0;
}

static int check_content(json_t *content, const char *kind)
{
	const char *is = json_string_value(json_object_get(content, "kind"));
	const char *of = json_string_value(json_object_get(content, "boot_id"));
	json_t *version = json_object_get(content, "version");

	if (!is || !of || !json_is_integer(version))
		return -EBADMSG;
	if (!streq(is, kind) || json_integer_value(version) != STATEFILE_VERSION)
		return -EPROTO;
	return *of && !streq(of, boot_id()) ? -ENOENT : 0;
}

int statefile_read(const char *path, const char *kind, json_t **ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	json_t *content;
	int r;

	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	r = check_owner(fd);
	if (r < 0)
		return r;
	content = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
	if (!content)
		return -EBADMSG;
	r = check_content(content, kind);
	if (r < 0)
		json_decref(content);
	else
		*ret = content;
	return r;
}

void statefile_each(const char *directory, const char *suffix,
		    bool (*handler)(const char *path, void *userdata), void *userdata)
{
	_cleanup_(closedirp) DIR *stream = opendir(directory);
	const struct dirent *entry;
	char path[PATH_MAX];

	while (stream && (entry = readdir(stream))) {
		size_t length = strlen(entry->d_name), tail = strlen(suffix);

		if (length <= tail || !streq(entry->d_name + length - tail, suffix) ||
		    text_format(path, sizeof(path), "%s/%s", directory, entry->d_name) < 0)
			continue;
		if (!handler(path, userdata))
			return;
	}
}
