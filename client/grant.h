/* SPDX-License-Identifier: MIT */
/*
 * A granted lease as the client uses it: checked once, when it comes from the socket. What ends up
 * in an environment or in a shell's eval is a variable's name and one line of text.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct grant {
	json_t *lease;              /* owned; the Lease object */
	json_t *environment;        /* borrowed from it */
	const char *id;             /* borrowed */
	const char *instance;       /* borrowed; "?" when the answer has none */
	const char *pipe_directory; /* borrowed */
};

void grant_done(struct grant *grant);

/* Takes a reference of a Lease object. -EBADMSG when something is missing or could not be a
 * variable; the reason is a constant. */
int grant_init(struct grant *grant, json_t *lease, const char **ret_reason);

/* Variables that a lease governs and that are removed when it does not set them; NULL-ended.
 * A wrong value of one of them would silently lead elsewhere, or throttle. */
extern const char *const grant_governed[];

/* Sets the lease's variables in this process and removes the governed others. 0 or -errno. */
int grant_apply(const struct grant *grant);

/* Removes every variable of MPS and of a lease. */
void grant_clear_environment(void);
