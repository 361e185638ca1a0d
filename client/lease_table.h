/* SPDX-License-Identifier: MIT */
/* Leases as a table. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Prints the leases of one instance, or of all and those that wait (instance NULL), as they are
 * at now (realtime). Nothing at all without any. Returns how many. */
size_t lease_table_print(FILE *file, const json_t *leases, const char *instance, int64_t now_usec,
			 int indent);
