/* SPDX-License-Identifier: MIT */
/* INSTANCE as people write it, against the instances of GetStatus. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Does a selector name this instance: its name or a device's UUID or a prefix of one, a device's
 * PCI address (the domain may be left out), a device's index, or "all"? Letters of any case. */
bool match_instance(const json_t *instance, const char *selector);

/* Is the selector (the beginning of) the instance's own name? */
bool match_is_named(const json_t *instance, const char *selector);

enum {
	MATCH_NONE = 1,
	MATCH_AMBIGUOUS
};
/* New array with the instances that selector (NULL: all) names. MATCH_AMBIGUOUS: it is a
 * prefix of several; -ENOMEM. */
int match_instances(json_t *instances, const char *selector, json_t **ret);
