/* SPDX-License-Identifier: MIT */
/*
 * Messages of the daemon: to the journal with fields when systemd started us, else lines on
 * standard error. Only the shell (daemon/) calls this.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <syslog.h>

#include "util.h"

/* What a message is about; any of them may be NULL or 0. */
struct journal_context {
	const char *instance; /* MPS_INSTANCE=, and in front of the text */
	const char *role;     /* MPS_ROLE=: supervisor (none given), control or server */
	const char *lease;    /* MPS_LEASE= */
	int pid;              /* MPS_PID=: whom it speaks of */
};

/* verbose: also LOG_DEBUG. Finds out by itself whether standard error is the journal. */
void journal_init(const char *program, bool verbose);

void journal_log(int level, const struct journal_context *context, const char *format, ...)
	PRINTF_LIKE(3, 4);
/* Text that somebody else wrote; need not end with NUL. Control characters become '?'. */
void journal_log_foreign(int level, const struct journal_context *context, const char *text,
			 size_t length);
bool journal_wants(int level);

#define log_error(...) journal_log(LOG_ERR, NULL, __VA_ARGS__)
#define log_warning(...) journal_log(LOG_WARNING, NULL, __VA_ARGS__)
#define log_notice(...) journal_log(LOG_NOTICE, NULL, __VA_ARGS__)
#define log_info(...) journal_log(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...) journal_log(LOG_DEBUG, NULL, __VA_ARGS__)
