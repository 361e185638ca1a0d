/* SPDX-License-Identifier: MIT */
/* An event loop with watched processes and a temporary directory, for the tests of os/. */
#pragma once

#include <signal.h>
#include <sys/prctl.h>

#include "process.h"
#include "unit_directory.h"

/* What has not happened by then never will. */
#define UNIT_WAIT_USEC (30 * USEC_PER_SEC)

static sd_event *unit_event;
static struct processes unit_processes;

static inline void unit_loop_setup(void)
{
	sigset_t mask;

	unit_directory_setup();
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGCHLD);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &mask, NULL), 0);
	ck_assert_int_ge(sd_event_new(&unit_event), 0);
	ck_assert_int_ge(processes_init(&unit_processes, unit_event), 0);
}

static inline void unit_loop_teardown(void)
{
	processes_done(&unit_processes);
	unit_event = sd_event_unref(unit_event);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 0);
	unit_directory_teardown();
}

/* valgrind 3.19 knows no pidfd_open(2); without it nothing of this can run. Says so. */
static inline bool unit_has_pidfds(void)
{
	int pidfd;

	if (process_open(getpid(), &pidfd) == -ENOSYS) {
		printf("skipped: no pidfd_open(2) here\n");
		return false;
	}
	(void)safe_close(pidfd);
	return true;
}

/* Runs the loop until *value reaches wanted. */
static inline void unit_run_until(const int *value, int wanted)
{
	uint64_t deadline_usec = clock_usec(CLOCK_MONOTONIC) + UNIT_WAIT_USEC;

	while (*value < wanted) {
		uint64_t now_usec = clock_usec(CLOCK_MONOTONIC);

		ck_assert_msg(now_usec < deadline_usec, "waited in vain");
		ck_assert_int_ge(sd_event_run(unit_event, deadline_usec - now_usec), 0);
	}
}

/* Handles everything that is ready now. */
static inline void unit_run_ready(void)
{
	int r;

	do {
		r = sd_event_run(unit_event, 0);
		ck_assert_int_ge(r, 0);
	} while (r > 0);
}
