/* SPDX-License-Identifier: MIT */
/* The front end: commands from standard input, answers to standard output. */
#pragma once

#define FRONTEND_DEFAULT_DIRECTORY "/tmp/nvidia-mps"

/* Returns the exit status. */
int frontend_run(void);
