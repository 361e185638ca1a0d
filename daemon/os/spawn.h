/* SPDX-License-Identifier: MIT */
/* Starting programs with nothing inherited but what is named here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct spawn {
	const char *path; /* absolute */
	char *const *argv, *const *envp;
	int stdin_fd, stdout_fd, stderr_fd; /* -EBADF: /dev/null */
	bool own_session;                   /* out of reach of a terminal */
	bool die_with_parent;               /* SIGKILL when we die */
};

/* Every other descriptor must be CLOEXEC. Signals of the child are as at boot; it stands in "/",
 * umask 022. Returns -errno also for a failed execve(2). The child is the caller's to reap. */
int spawn_process(const struct spawn *spawn, pid_t *ret_pid, int *ret_pidfd);

/* The absolute path of a program: name itself when it has a slash, else the first executable of
 * that name in PATH. -ENOENT, -ENAMETOOLONG, or -EACCES when it is no executable file. */
int spawn_find_program(const char *name, char *ret_path, size_t size);
