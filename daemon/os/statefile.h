/* SPDX-License-Identifier: MIT */
/*
 * Small JSON files that outlive us. Each is written whole, under another name, and renamed, so that
 * a reader finds the old or the new one. Each says what it is, in which version, and of which boot:
 * anything else is not read.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#define STATEFILE_VERSION 1
#define STATEFILE_MAX ((size_t)1024 * 1024)

/* Adds to content, which is taken over, what a reader checks. kind: what it is. durable: it must
 * outlive a power cut, and the boot does not matter; its directory is made when it is missing,
 * 0700. -errno. */
int statefile_write(const char *path, const char *kind, json_t *content, bool durable);

/* -ENOENT, also when it is of another boot; -EPROTO for another kind or version; -EBADMSG when it
 * is torn or no such file; -EPERM when somebody else could have written it. */
int statefile_read(const char *path, const char *kind, json_t **ret);

/* The path of each file in the directory whose name ends with suffix; stops when handler returns
 * false. The handler may remove the file. */
void statefile_each(const char *directory, const char *suffix,
		    bool (*handler)(const char *path, void *userdata), void *userdata);
