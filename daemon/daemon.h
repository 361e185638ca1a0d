/* SPDX-License-Identifier: MIT */
/* The whole life of mps-supervisord, behind its main(). */
#pragma once

#include "options.h"

/* The exit status of the program. */
int daemon_run(const struct options *options);
