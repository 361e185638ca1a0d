/* SPDX-License-Identifier: MIT */
/* Errors of the protocol as sentences: the thing, the reason, what to do. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What was asked for, where an answer's sentence or exit status depends on it. */
struct explain_context {
	const char *command; /* "lease", "drain", ... */
	const char *socket;
	const json_t *request; /* its parameters; may be NULL */
};

/* One sentence without newline for a Varlink error; parameters may lack any field or be NULL. */
void explain_error(const struct explain_context *context, const char *error,
		   const json_t *parameters, char *buffer, size_t size);

/* What the user writes for a field of a command's request: "--memory"; NULL when it has no such
 * thing. */
const char *explain_option(const char *command, const char *field);

/* The exit status (of commands other than `lease -- CMD`) that belongs to it. */
int explain_exit_status(const char *error);

/* Does the request make no sense at all, so that doing without a lease cannot be meant either? */
bool explain_is_misuse(const char *error);
