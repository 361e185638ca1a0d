/* SPDX-License-Identifier: MIT */
/* The instances that words on the command line mean. What goes wrong is said on stderr. */
#pragma once

#include <jansson.h>

/* Those of an array of Instance that one selector names, as a new array. 0, or CLI_FAILED with a
 * message. */
int targets_find(json_t *instances, const char *selector, json_t **ret);

/* For commands that do something to instances: those that any of the words names, each once, in
 * the order of the words. A gang must be named itself: it comes and goes with its leases, and
 * stands on the devices of others. 0, or CLI_FAILED with a message. */
int targets_collect(json_t *instances, char *const words[], int n_words, json_t **ret);
