/* SPDX-License-Identifier: MIT */
/* Processes by descriptor. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* 0 or -errno. */
int pidwatch_open(pid_t pid, int *ret_fd);
int pidwatch_signal(int fd, int signal_number);

bool pidwatch_has_ended(int fd);

/* What poll(2) takes to wait until a time of CLOCK_MONOTONIC, rounded up; -1 for
 * USEC_INFINITY. */
int pidwatch_timeout_ms(uint64_t until_usec);
