/* SPDX-License-Identifier: MIT */
/* The command line of mps-supervisord. */
#pragma once

#include <stdbool.h>

struct options {
	const char *config_path; /* borrowed from argv; NULL: the default */
	bool check, print, verbose;
};

enum {
	OPTIONS_DONE = 1, /* --help or --version was answered */
	OPTIONS_WRONG,    /* and it was said what */
};
int options_parse(int argc, char **argv, struct options *ret);
