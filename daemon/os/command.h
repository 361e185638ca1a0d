/* SPDX-License-Identifier: MIT */
/* One run of a program we do not control: some input, what it prints, a deadline. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "process.h"

/* What a command may print; more is a failure, not a reason to wait. `ps` of 48 clients has 5 KB.
 */
#define COMMAND_OUTPUT_MAX ((size_t)256 * 1024)
#define COMMAND_INPUT_MAX 4096u

enum command_result {
	COMMAND_DONE,      /* ended; see status and output */
	COMMAND_TIMED_OUT, /* killed at the deadline */
	COMMAND_TOO_LONG,  /* killed: it printed more than COMMAND_OUTPUT_MAX */
	COMMAND_FAILED,    /* could not be started, or read; status is -errno */
};

struct command_outcome {
	enum command_result result;
	int status;         /* as for waitpid(2) */
	const char *output; /* standard output and error, NUL-ended; valid in the handler */
	size_t output_length;
};

typedef void (*command_handler)(const struct command_outcome *outcome, void *userdata);

struct command; /* freed by itself after its handler, or by command_cancel */

struct command_plan {
	const char *path;
	char *const *argv, *const *envp;
	const char *input; /* may be NULL; up to COMMAND_INPUT_MAX bytes */
	uint64_t timeout_usec;
};

/* The handler is called once and from the event loop, never from here; not at all when this
 * fails with -errno (also for a failed execve) or after command_cancel. */
int command_start(struct processes *processes, const struct command_plan *plan,
		  command_handler handler, void *userdata, struct command **ret);

/* Kills it and forgets it. NULL is fine. Returns NULL. */
struct command *command_cancel(struct command *command);
