/* SPDX-License-Identifier: MIT */
/* Errors of the protocol as sentences: the thing, the reason, what to do. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What was asked for, where an answer's sentence or exit status depends on it. */
struct explain_context {
	const char *command; /* "lease", "drain", ... */
	const char *socket;
};

/* One sentence without newline for a Varlink error; parameters may lack any field or be NULL. */
void explain_error(const struct explain_context *context, const char *error,
		   const json_t *parameters, char *buffer, size_t size);

/* The exit status (of commands other than `lease -- CMD`) that belongs to it. */
int explain_exit_status(const char *error);

/* Does the request make no sense at all, so that doing without a lease cannot be meant either? */
bool explain_is_misuse(const char *error);
