/* SPDX-License-Identifier: MIT */
/*
 * What all commands share: exit statuses, messages on stderr, usage texts, options. A message is
 * one line, written at once, and whatever in it came from somewhere else cannot move the cursor.
 */
#pragma once

#include <getopt.h>
#include <stdint.h>

#include "util.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1, /* refused or failed */
	CLI_USAGE = 2,
	CLI_NO_SUPERVISOR = 3,
	CLI_TIMED_OUT = 4,
	CLI_NO_LEASE = 125, /* of `lease -- CMD` alone, as are the next two */
	CLI_CANNOT_RUN = 126,
	CLI_NOT_FOUND = 127,
};

#define CLI_MESSAGE_MAX 2048 /* longer ones are cut */

/* "mpsctl: " and the message and a newline. */
void cli_print(const char *format, ...) PRINTF_LIKE(1, 2);

/* As cli_print, then where to read more. Returns CLI_USAGE. */
int cli_usage(const char *command, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same for what getopt_long (with opterr 0 and ':' first in the short options) answered with
 * '?' or ':'. Returns CLI_USAGE. */
int cli_bad_option(const char *command, int answer, char *const argv[]);

/* Makes getopt_long begin a new argv and leave messages to cli_bad_option. */
void cli_restart_options(void);

/* Prints help on stdout. CLI_OK, or CLI_FAILED when that could not be written. */
int cli_help(const char *text);

/* Flushes stdout. CLI_OK, or CLI_FAILED with a message when not all could be written. */
int cli_flush(void);

/* Reads a whole number in [min, max]. 0, or CLI_USAGE with a message. */
int cli_parse_int(const char *command, const char *option, const char *text, int64_t min,
		  int64_t max, int64_t *ret);
/* Seconds as milliseconds, rounded up. 0, or CLI_USAGE with a message. */
int cli_parse_seconds(const char *command, const char *option, const char *text, int64_t *ret_ms);

/* Replaces control characters (C0, DEL, and C1 in UTF-8) by '?', in place. */
void cli_sanitize(char *text);
