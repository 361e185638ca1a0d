/* SPDX-License-Identifier: MIT */
/*
 * --on-loss rerun: mpsctl stays, runs the command as its child in the same process group, passes
 * signals on, and starts it again when its GPU contexts were lost. The lease is mpsctl's and stays
 * the same.
 */
#pragma once

#include "job.h"

/* As job_run. Returns the exit status of the last run, and does not return when that ended by a
 * signal: then mpsctl ends by it too. */
int rerun_job(struct call *call, const struct grant *grant, const struct lease_options *options,
	      bool continues);
