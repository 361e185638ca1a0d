/* SPDX-License-Identifier: MIT */
/*
 * Knobs: how a test makes a stand-in misbehave. They come from a file, not from the environment,
 * because a supervisor decides the environment of the daemons it starts. README.md lists them all.
 */
#pragma once

#include <stdbool.h>

/* Reads the file for the first time; an unknown knob ends the program with status 2. */
void knobs_load(void);

/* Reads it again; what has become unknown is told on stderr and left out. */
void knobs_reload(void);

/* The value, or NULL when the knob is not set. Valid until the next knobs_reload(). */
const char *knob_text(const char *name);
long knob_number(const char *name, long otherwise);

/* Set, and neither empty nor "0". */
bool knob_on(const char *name);

/* The release whose manners are shown: 580 unless the knob "version" says 535. */
bool knob_is_535(void);
