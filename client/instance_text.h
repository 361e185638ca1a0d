/* SPDX-License-Identifier: MIT */
/* An instance as a block of text. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* leases: those of all instances, of which the own ones are shown. now in realtime. */
void instance_text_print(FILE *file, const json_t *instance, const json_t *leases,
			 int64_t now_usec);
