/* SPDX-License-Identifier: MIT */
/* Who holds a connection to a Unix socket, as far as the kernel tells. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* The processes that hold the client's end of a connection to a listening socket bound at one of
 * the paths, each once. By NETLINK_SOCK_DIAG and /proc/PID/fd: root sees all, others their own.
 * Returns how many (up to max), or -errno. Reads all of /proc: not for every day. */
int sockpeer_find(const char *const *paths, size_t n_paths, pid_t *ret_pids, size_t max);
