/* SPDX-License-Identifier: MIT */
/* Mounting in a test, where that is allowed. */
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

/* Calls it in a child that has mounts of its own; a check that fails in there is one here. */
static inline void unit_with_own_mounts(void (*call)(void))
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (unshare(CLONE_NEWNS) < 0 || mount("", "/", "", MS_REC | MS_PRIVATE, NULL) < 0)
			_exit(EXIT_SUCCESS); /* not allowed here */
		call();
		_exit(EXIT_SUCCESS);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
