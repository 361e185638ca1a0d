/* SPDX-License-Identifier: MIT */
/* Small helpers of the stand-ins: time, text, processes, and where this program was started from.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

long long now_ms(void);
void sleep_ms(long ms);

/* Copies at most size - 1 bytes and always terminates. */
void text_copy(char *to, size_t size, const char *from);

/* Cuts white space off both ends, in place; returns the new start. */
char *text_trim(char *text);

/* False for a process that is gone and for one that only waits to be reaped. */
bool process_lives(pid_t pid);

/*
 * The directories in which files beside the program are looked for: where it was started from (the
 * path given to execve, which a symbolic link does not hide) and where the executable lies. Call
 * program_init() before anything changes the working directory.
 */
void program_init(void);
const char *program_started_directory(void);
const char *program_real_directory(void);

/* Finds NAME beside the program. Returns false and leaves path alone when there is none. */
bool program_find_beside(const char *name, char path[static PATH_MAX]);

/* Appends argv, environment and open descriptors to the file of the knob "dump", if it is set. */
void program_dump(const char *role, char *const argv[]);
