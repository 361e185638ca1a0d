/* SPDX-License-Identifier: MIT */
/*
 * Commands to one control daemon, through NVIDIA's own front end as a child. One at a time:
 * overlapping commands fail or come back empty with status 0 (measured, 535 and 580). Each has a
 * deadline. Never `quit -t`, never `shutdown_server -f`: 580 does not recover from them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"

#define CONTROL_QUEUE_MAX 16
#define CONTROL_COMMAND_SIZE 64

typedef command_handler control_handler;

struct control_request {
	char text[CONTROL_COMMAND_SIZE]; /* with its newline */
	uint64_t timeout_usec;
	control_handler handler; /* may be NULL: nobody wants the answer */
	void *userdata;
};

struct control {
	struct processes *processes; /* borrowed, like the texts below */
	const char *program, *path_variable, *pipe_directory_variable;
	struct command *running;
	struct control_request queue[CONTROL_QUEUE_MAX];
	size_t head, n;
	uint64_t *n_commands, *n_failed; /* counters; borrowed */
};

/* pipe_directory_variable: "CUDA_MPS_PIPE_DIRECTORY=..."; path_variable: "PATH=...". */
void control_init(struct control *control, struct processes *processes, const char *program,
		  const char *path_variable, const char *pipe_directory_variable,
		  uint64_t *n_commands, uint64_t *n_failed);

/* Queues a command, or starts it when none is under way. The handler is called from the event
 * loop, exactly once unless the command is dropped or this fails: -ENOBUFS when the queue is full,
 * -ENAMETOOLONG, -errno when it could not be started. */
int control_send(struct control *control, const char *command, uint64_t timeout_usec,
		 control_handler handler, void *userdata);

/* Forgets what waits; no handler is called. What runs goes on: one that is killed keeps the next
 * out until its control daemon has noticed. */
void control_withdraw(struct control *control);

/* Kills what runs and forgets what waits; no handler is called. */
void control_drop(struct control *control);

/* Was the command put and carried out? What it wrote may be nothing: an empty list is. */
bool control_is_done(const struct command_outcome *outcome);
/* Is this an answer? Only text with status 0 is: an empty one proves nothing. */
bool control_is_answer(const struct command_outcome *outcome);
