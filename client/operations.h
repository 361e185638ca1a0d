/* SPDX-License-Identifier: MIT */
/*
 * One method that an administrator calls for several instances at a time, each on a connection of
 * its own: all are asked, then all are waited for. What goes wrong is said on stderr; whatever
 * concerns all of them, once.
 *
 * When the supervisor goes in the middle, what may be asked twice is asked again when it is back.
 */
#pragma once

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "absence.h"
#include "call.h"

#define OPERATIONS_ABSENCE_SEC 30
#define OPERATIONS_EXTRA_MAX 2

struct operation {
	const char *name;     /* borrowed; of the instance */
	const json_t *before; /* borrowed; the instance before anything was asked */
	struct call call;
	enum {
		OPERATION_ASKED,
		OPERATION_AWAY, /* to be asked again */
		OPERATION_DONE,
	} state;
	json_t *instance; /* owned; as it was last answered; NULL before */
	int exit_status;  /* when done */
	uint32_t said;    /* for who waits: a hash of what it has said last about it */
};

struct operations;

struct operation_kind {
	const char *command, *method;
	bool more;       /* answers may follow the first */
	bool repeatable; /* asked twice, it does the same */
	/* New parameters, but for the instance's name; NULL is out of memory. */
	json_t *(*parameters)(const struct operations *operations);
	/* The last answer has come: says so. Returns the exit status. */
	int (*finish)(const struct operation *operation);
};

struct operations {
	const struct operation_kind *kind; /* borrowed */
	const char *socket;                /* borrowed */
	const void *options;               /* borrowed; what kind->parameters needs */
	json_t *targets;                   /* owned; array of Instance */
	size_t n;
	struct operation *items; /* owned */
	struct pollfd *fds;      /* owned; n and OPERATIONS_EXTRA_MAX */
	size_t n_answers;        /* so far */
	struct absence absence;
	uint64_t retry_usec;              /* CLOCK_MONOTONIC; USEC_INFINITY unless some are away */
	char complaint[CALL_PROBLEM_MAX]; /* the last that concerned all */
};

/* Asks for the instances that the words name. 0, or an exit status with a message. operations is to
 * be ended by operations_done in both cases. */
int operations_start(struct operations *operations, const struct operation_kind *kind,
		     const char *socket, const void *options, char *const words[], int n_words);
void operations_done(struct operations *operations);

/* Is any still to be answered? */
bool operations_are_running(const struct operations *operations);

/* Waits for answers, for a time of CLOCK_MONOTONIC, or for extra descriptors, of which it sets
 * revents; handles the answers. */
void operations_wait(struct operations *operations, struct pollfd *extra, size_t n_extra,
		     uint64_t until_usec);

/* 0, or that of the first that has failed. */
int operations_exit_status(const struct operations *operations);
