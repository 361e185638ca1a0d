/* SPDX-License-Identifier: MIT */
/*
 * The line on which the supervisor tells of a granted lease. When the supervisor goes without
 * having said that the lease is over, it may be restarting and the lease lives on: the line then
 * connects again, as often as it takes, and reclaims the lease. Nothing here waits.
 */
#pragma once

#include <stdbool.h>

#include "absence.h"
#include "call.h"

struct lease_line {
	struct call *call; /* borrowed */
	const char *id;    /* borrowed; the lease's */
	enum {
		LEASE_LINE_OVER, /* nothing will be said any more */
		LEASE_LINE_UP,
		LEASE_LINE_AWAY, /* the supervisor is */
	} state;
	bool reclaiming;            /* asked, and not answered yet */
	json_int_t told_generation; /* of the last interruption; 0 */
	uint64_t retry_usec;        /* when away: the next try, CLOCK_MONOTONIC */
	struct absence absence;
};

/* call is the lease's connection; continues: more answers will come on it. */
void lease_line_init(struct lease_line *line, struct call *call, const char *id, bool continues);

/* What to wait for: the descriptor to read from, or -1; the time of the next try, or
 * USEC_INFINITY. */
int lease_line_fd(const struct lease_line *line);
uint64_t lease_line_retry_usec(const struct lease_line *line);

/* Is the supervisor there, as far as can be known? */
bool lease_line_is_heard(const struct lease_line *line);

/* Does what is due: reads when the descriptor was readable, connects when it is time. */
void lease_line_attend(struct lease_line *line, bool readable);

/* The next thing that was said: the parameters of an answer, owned by the caller. A lease that is
 * over when it is reclaimed is said to be revoked; an interruption is told once. False when there
 * is none for now. To be called until then after each lease_line_attend. */
bool lease_line_take(struct lease_line *line, json_t **ret);
