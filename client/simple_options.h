/* SPDX-License-Identifier: MIT */
/* The command line of commands that take little: --help, --json, and names. */
#pragma once

#include <stdbool.h>

#include "cli.h"

struct simple_options {
	bool json, watch, force, help;
	int64_t watch_ms;   /* with watch */
	int64_t timeout_ms; /* --timeout; -1 without */
	int n_names;
	char **names; /* borrowed from argv */
};

/* What a command takes beside --help. */
struct simple_command {
	const char *name;
	const char *what; /* the names are: "LEASE", "INSTANCE" */
	int names_min, names_max;
	bool json, watch, force, timeout;
	const char *help;
};

/* Options may stand behind names. 0, or CLI_USAGE with a message. */
int simple_options_parse(const struct simple_command *command, int argc, char *argv[],
			 struct simple_options *ret);
