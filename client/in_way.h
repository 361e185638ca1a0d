/* SPDX-License-Identifier: MIT */
/* Who keeps an instance from being empty. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#define IN_WAY_TEXT_MAX 1024

/*
 * "2 leases: 7862ed16 of 1000 (alice), pid 123, "train"; 73746a4a of ...": those of an array of
 * Lease that are on one of the instance's devices, through itself or through a gang. Returns their
 * number; without any the text is empty.
 */
size_t in_way_describe(const json_t *instance, const json_t *leases,
		       char text[static IN_WAY_TEXT_MAX]);
