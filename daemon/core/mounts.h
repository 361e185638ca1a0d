/* SPDX-License-Identifier: MIT */
/*
 * Where a path of a process really is: on which file system, and where on it. Out of the text of
 * /proc/PID/mountinfo, so that no file system is asked and none can block. Symbolic links are not
 * followed.
 */
#pragma once

#define MOUNTS_PATH_SIZE 4096

struct mounts_location {
	unsigned int major, minor;   /* of the file system's device */
	char path[MOUNTS_PATH_SIZE]; /* from the file system's root, which itself is "" */
};

/* path: absolute, without "." and "..", and no "/" at its end. -ENOENT when no mount leads there,
 * -EINVAL for another path, -ENAMETOOLONG. The format is proc(5)'s. */
int mounts_locate(const char *mountinfo, const char *path, struct mounts_location *ret);
