/* SPDX-License-Identifier: MIT */
/*
 * CUDA_VISIBLE_DEVICES as the caller had it, beside the devices of a lease: a batch system may have
 * meant others. The lease counts; all that is done here is to say so. Pure.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define VISIBLE_NOTE_MAX 1024

/* Does it name devices by number? Only GetStatus knows those of a lease's devices. */
bool visible_has_numbers(const char *value);

/*
 * True, with a sentence in note, when value names other devices than the lease has; also when it
 * names more, unless request (what AcquireLease was asked for) has "count" or "devices": then fewer
 * were wanted. Numbers count as nvidia-smi counts, and mean each MIG instance of that GPU;
 * everything else is a UUID or its beginning. As for CUDA, the first entry that can be neither is
 * the end. False as well when value names none, or when status (an answer of GetStatus, or NULL)
 * does not have the numbers that it takes.
 */
bool visible_differs(const char *value, const json_t *request, const json_t *lease,
		     const json_t *status, char note[static VISIBLE_NOTE_MAX]);
