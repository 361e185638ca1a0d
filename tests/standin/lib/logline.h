/* SPDX-License-Identifier: MIT */
/*
 * Log lines in the format of the real programs, each with one plain write() to standard output: a
 * full blocking pipe stops the writer, a full non-blocking one loses the line.
 */
#pragma once

#include <sys/types.h>

void log_line(const char *role, pid_t pid, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_control(...) log_line("Control", getpid(), __VA_ARGS__)
#define log_server(...) log_line("Server", getpid(), __VA_ARGS__)
#define log_other(...) log_line("Other", getpid(), __VA_ARGS__)
