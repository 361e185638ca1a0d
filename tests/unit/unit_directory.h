/* SPDX-License-Identifier: MIT */
/* A temporary directory for each test, and files in it. */
#pragma once

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>

#include "text.h"
#include "unit.h"

static char unit_directory[32];

static inline void unit_directory_setup(void)
{
	(void)text_copy(unit_directory, sizeof(unit_directory), "/tmp/mps-unit.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(unit_directory));
	ck_assert_int_eq(chmod(unit_directory, 0755), 0);
}

static inline int unit_remove_entry(const char *path, const struct stat *st, int type,
				    struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void unit_directory_teardown(void)
{
	(void)nftw(unit_directory, unit_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of name in the directory; valid until the 32nd call after this one. */
static inline const char *unit_path(const char *name)
{
	static char paths[32][PATH_MAX];
	static unsigned int next;
	char *path = paths[next++ % ELEMENTSOF(paths)];

	ck_assert_int_eq(text_format(path, PATH_MAX, "%s/%s", unit_directory, name), 0);
	return path;
}

static inline const char *unit_write_bytes(const char *name, const void *bytes, size_t length,
					   mode_t mode)
{
	const char *path = unit_path(name);
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
	return path;
}

static inline const char *unit_write(const char *name, const char *text)
{
	return unit_write_bytes(name, text, strlen(text), 0644);
}

/* A program for /bin/sh. */
static inline const char *unit_write_script(const char *name, const char *body)
{
	char text[4096];

	ck_assert_int_eq(text_format(text, sizeof(text), "#!/bin/sh\n%s\n", body), 0);
	return unit_write_bytes(name, text, strlen(text), 0755);
}

/* What a file holds, NUL-ended; cut at size. */
static inline size_t unit_read(const char *path, char *buffer, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t n;

	ck_assert_msg(file != NULL, "%s cannot be opened", path);
	n = fread(buffer, 1, size - 1, file);
	buffer[n] = '\0';
	ck_assert_int_eq(fclose(file), 0);
	return n;
}
