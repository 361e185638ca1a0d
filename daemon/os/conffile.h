/* SPDX-License-Identifier: MIT */
/* Configuration files (libconfig syntax) into core/config. */
#pragma once

#include <limits.h>

#include "config.h"

#define CONFFILE_MAIN MPS_SUPERVISOR_SYSCONFDIR "/mps-supervisor/mps-supervisor.conf"
#define CONFFILE_FILES_MAX 64

struct conffile_error {
	char file[PATH_MAX];
	int line; /* 0: the file as a whole */
	char text[CONFIG_ERROR_SIZE];
};

struct conffile_list {
	char files[CONFFILE_FILES_MAX][PATH_MAX]; /* that were read, in this order */
	size_t n;
};

/* Defaults, then path, then conf.d/ *.conf beside it in the order of their names, each
 * overriding those before. path NULL: CONFFILE_MAIN, which may be missing. -errno, with where and
 * why in error; config is undefined then. list may be NULL. */
int conffile_load(struct config *config, const char *path, struct conffile_list *list,
		  struct conffile_error *error);
