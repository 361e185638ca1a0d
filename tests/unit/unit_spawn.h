/* SPDX-License-Identifier: MIT */
/* A shell as a child whose output goes to a file. */
#pragma once

#include <fcntl.h>

#include "spawn.h"
#include "unit_loop.h"

static inline void unit_close_pid(pid_t pid, int pidfd)
{
	(void)kill(pid, SIGKILL);
	(void)safe_close(pidfd);
}

/* Starts /bin/sh -c script; output: where its output goes, NULL for nowhere. */
static inline void unit_start_shell(const char *script, const char *output, pid_t *ret_pid,
				    int *ret_pidfd)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
	char *envp[] = {(char *)"PATH=/usr/bin:/bin", NULL};
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (output) {
		fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		ck_assert_int_ge(fd, 0);
	}
	r = spawn_process(
		&(struct spawn){
			.path = "/bin/sh",
			.argv = argv,
			.envp = envp,
			.stdin_fd = -EBADF,
			.stdout_fd = fd,
			.stderr_fd = fd,
			.die_with_parent = true,
		},
		ret_pid, ret_pidfd);
	ck_assert_msg(r == 0, "cannot start a shell: %s", strerror(-r));
}
