/* SPDX-License-Identifier: MIT */
/* What /proc says of a process: facts to prove that a pid is who we think it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct procinfo {
	pid_t parent;
	uint64_t start_ticks; /* since boot; with the pid it names one process for ever */
	char state;           /* as in /proc/PID/stat: 'R', 'S', 'T', 'Z', ... */
	bool exiting;         /* on its way out: its descriptors may be closed already */
	uid_t uid;            /* effective; root for a process that nobody may look into */
};

/* -ESRCH when there is no such process. */
int procinfo_read(pid_t pid, struct procinfo *ret);

/* The real user id, also of a process that nobody may look into. */
int procinfo_real_uid(pid_t pid, uid_t *ret_uid);

/* Copies the value of an environment variable as the process started with it. -ENOENT when it
 * has none, -ESRCH, -EACCES, -ENAMETOOLONG. */
int procinfo_environment(pid_t pid, const char *name, char *ret_value, size_t size);

/* Does it see the same mounts as we do? False when that cannot be known. */
bool procinfo_shares_mounts(pid_t pid);

/* Anybody can have many mounts in a namespace of his own, and all of it is read. */
#define PROCINFO_MOUNTS_MAX ((size_t)256 * 1024)
/* The text of its mountinfo (mounts.h); the caller frees it. -E2BIG past the limit. */
int procinfo_mounts(pid_t pid, char **ret_text);

/* The command's name (/proc/PID/comm), which the process can choose: for messages only. */
int procinfo_name(pid_t pid, char *ret_name, size_t size);
