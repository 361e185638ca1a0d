/* SPDX-License-Identifier: MIT */
/*
 * A call with one answer, whole: open, send, hear. When the connection ends in the middle, the
 * supervisor may be restarting: then it is asked once more, if it is back within two seconds.
 */
#pragma once

#include <stdint.h>

#include "call.h"

#define EXCHANGE_AGAIN_USEC (2 * USEC_PER_SEC)

/* call is not opened yet; takes over parameters. *ret_again: it was asked twice, so the first time
 * may have had its effect. 0, or CALL_FAILED. */
int exchange(struct call *call, const char *method, json_t *parameters, json_t **ret_parameters,
	     bool *ret_again);

/* As exchange, bounded by CALL_PATIENCE_SEC. Prints the problem. 0, or the exit status. */
int exchange_once(const char *socket, const char *command, const char *method, json_t *parameters,
		  json_t **ret_parameters);

/* For what can be done without: bounded by patience_usec, asked once, and nothing is printed.
 * 0, or CALL_FAILED. */
int exchange_quietly(const char *socket, const char *command, const char *method,
		     uint64_t patience_usec, json_t **ret_parameters);
