/* SPDX-License-Identifier: MIT */
/*
 * One Varlink call to the supervisor: connect, ask, read answers one after another. What goes
 * wrong is kept as a sentence and printed by whoever knows that it matters, once.
 * For calls with one answer see exchange.h.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "varlink.h"

#define CALL_PROBLEM_MAX 1024
#define CALL_ERROR_MAX 128

/* What a CALL_FAILED was. */
enum call_failure {
	CALL_BROKEN,  /* anything else: no memory, no sense, no time left */
	CALL_ABSENT,  /* nobody listens there now */
	CALL_GONE,    /* the connection has ended in the middle */
	CALL_REFUSED, /* a Varlink error was answered */
};

struct call {
	struct varlink_stream stream;
	const char *socket;     /* borrowed; a path */
	const char *command;    /* borrowed; the mpsctl command, for sentences */
	json_t *request;        /* owned; the parameters that were sent last, for sentences */
	uint64_t deadline_usec; /* CLOCK_MONOTONIC; call_next waits no longer */
	int exit_status; /* of a failure: one of enum cli_exit, for commands but lease -- CMD */
	bool misuse;     /* of a failure: the request itself is wrong */
	enum call_failure failure;
	char error[CALL_ERROR_MAX]; /* of CALL_REFUSED: its name; cut */
	char problem[CALL_PROBLEM_MAX];
};

/* A call that call_done accepts whether or not it was opened. */
void call_init(struct call *call, const char *socket, const char *command);
void call_done(struct call *call);

/* Ends the connection, so that the call can be opened again. */
void call_reset(struct call *call);

enum {
	CALL_FAILED = 1
};

/* Connects. 0, or CALL_FAILED with problem and exit_status set. */
int call_open(struct call *call);

/* As call_open, which waits when many others connect: this one is CALL_ABSENT then. */
int call_open_now(struct call *call);

/* Sends a request; takes over parameters. 0, or CALL_FAILED as above. */
int call_send(struct call *call, const char *method, json_t *parameters, bool more);

/* Waits for the next answer: its parameters (an object, owned by the caller), and whether more
 * will follow. CALL_FAILED as above for a Varlink error, an answer that is none, or the end of
 * the connection. */
int call_next(struct call *call, json_t **ret_parameters, bool *ret_continues);

/* Takes an answer that has arrived, or reads what is there without waiting for more than one
 * read: 0, CALL_FAILED, or CALL_NOTHING. For callers that poll stream.fd. */
enum {
	CALL_NOTHING = 2
};
int call_take(struct call *call, json_t **ret_parameters, bool *ret_continues);
int call_read(struct call *call);

/* A failure that the caller found: problem is a sentence. CALL_FAILED. */
int call_fail(struct call *call, int exit_status, const char *format, ...) PRINTF_LIKE(3, 4);
int call_fail_malformed(struct call *call, const char *what);

/* Seconds that a supervisor has for an answer that needs no waiting. */
#define CALL_PATIENCE_SEC 30

/* Do both ends see the same pids? The supervisor's pid reads 0 from another pid namespace. */
bool call_shares_pids(const struct call *call);

/* Prints the problem of the last CALL_FAILED; returns its exit status. */
int call_complain(const struct call *call);
