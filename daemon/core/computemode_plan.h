/* SPDX-License-Identifier: MIT */
/* What is to be done about a GPU's compute mode, given what it is and what it was before us. */
#pragma once

#include <stdbool.h>

/* As nvidia-smi shows them. */
#define COMPUTEMODE_EXCLUSIVE "Exclusive_Process"
#define COMPUTEMODE_PROHIBITED "Prohibited"

/* What `nvidia-smi -c` takes for a mode as nvidia-smi shows it; NULL for what cannot be set. */
const char *computemode_option(const char *shown);

/* In this order. */
struct computemode_plan {
	bool record;     /* the present mode, as the one to be given back */
	const char *set; /* this mode; NULL: none. Borrowed from what was asked with, or static */
	bool forget;     /* what is recorded */
};

/* present: NULL when it is not known. previous: what is recorded as to be given back; NULL:
 * nothing.
 *
 * To have it exclusive: what was recorded stays, for after a crash the present mode is our own. But
 * a present mode that is neither ours nor the recorded one was chosen by somebody since (or by a
 * boot), and is the one to be given back. Nothing when the present mode could not be given back. */
struct computemode_plan computemode_plan_claim(const char *present, const char *previous);

/* To give back what is recorded, unless somebody has chosen another mode since. */
struct computemode_plan computemode_plan_give_back(const char *present, const char *previous);
