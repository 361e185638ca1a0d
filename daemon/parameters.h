/* SPDX-License-Identifier: MIT */
/*
 * The parameters of a call against a table of what its method takes. A missing, unknown or
 * mistyped one is the specification's InvalidParameter.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum parameter_type {
	PARAMETER_BOOL,    /* bool */
	PARAMETER_INT,     /* int64_t */
	PARAMETER_STRING,  /* const char *, borrowed from the message */
	PARAMETER_STRINGS, /* json_t *, borrowed: an array of strings */
	PARAMETER_BIND,    /* int: an enum lease_bind */
};

struct parameter {
	const char *name;
	enum parameter_type type;
	bool required;
	size_t offset;     /* of the value in the structure that is filled */
	size_t set_offset; /* of a bool that says whether it was given; 0: none */
};

/* Fills values, which holds the defaults. JSON null counts as absent. -EINVAL with the name of the
 * first parameter that is wrong (borrowed from the table or the message). parameters may be NULL.
 */
int parameters_read(json_t *parameters, const struct parameter *table, size_t n, void *values,
		    const char **ret_wrong);
