/* SPDX-License-Identifier: MIT */
/* A lease without a command: which process it lives with, and how it is printed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "grant.h"
#include "lease_options.h"

/* The shell that called: see the comment in shell.c. 0, or -ESRCH when there is none that could
 * be seen. */
int shell_find(pid_t *ret_pid);

/* Is it the parent of this process, or of that, and so on? */
bool shell_is_above(int64_t pid);

/* 'text', with every ' in it as '\''. */
void shell_quote(FILE *file, const char *text);

void shell_print(FILE *file, const struct grant *grant, enum lease_format format);
