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
	const char *instance;   /* MPS_INSTANCE=, and in front of the text */
	const char *role;       /* MPS_ROLE=: supervisor (none given), control or server */
	const char *lease;      /* MPS_LEASE= */
	int pid;                /* MPS_PID=: whom it speaks of */
	const char *message_id; /* MESSAGE_ID=: one of these, explained in the catalog */
};

#define JOURNAL_ID_CONTROL_LOST "0dcf210d952749d3a2a78e7b3405621d"
#define JOURNAL_ID_SERVER_LOST "db232e26a9af4ce8879e4b4c2c48c5a3"
#define JOURNAL_ID_FAULT "bb421cb52dd046f4a97b11da399c020e"
#define JOURNAL_ID_UNRESPONSIVE "da6e3abd33924bbd82cc52f8135b16c6"
#define JOURNAL_ID_FAILED "9b747d25404e4154aa86e30055536552"
#define JOURNAL_ID_SOCKET_LOST "deb082187eda49319a7c37746b6baec3"

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
#define log_info(...) journal_log(LOG_INFO, NULL, __VA_ARGS__)
