/* SPDX-License-Identifier: MIT */
/*
 * Running the command. It is exec'ed in place of mpsctl: the job *is* the process that was asked to
 * run, so that its process group, terminal, signals and exit status need no help, and the lease
 * ends with it however it ends.
 *
 * What remains to be told about the lease is told by the keeper, a process of its own that is no
 * child of the job, holds nothing of it but stderr, and ends with it. When the supervisor is
 * restarted it reclaims the lease, and the job does not notice.
 */
#pragma once

#include <stdbool.h>

#include "call.h"
#include "grant.h"
#include "lease_options.h"

/* From SIGTERM to SIGKILL. */
#define JOB_KILL_USEC (10 * USEC_PER_SEC)

/* Execs command; returns only when that failed: CLI_CANNOT_RUN or CLI_NOT_FOUND, said. */
int job_exec(char *const command[]);

/* Runs options->command under a granted lease. call is the lease's connection; continues says that
 * more answers will come. Returns only when it failed: the exit status, said. */
int job_run(struct call *call, const struct grant *grant, const struct lease_options *options,
	    bool continues);
