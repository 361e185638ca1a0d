/* SPDX-License-Identifier: MIT */
/* What methods.c and methods_operate.c give each other; nobody else includes this. */
#pragma once

#include "manager.h"
#include "parameters.h"

struct request {
	struct manager *manager;
	struct connection *connection;
	const struct varlink_call *call;
	struct principal who;
};

/* methods.c: answers with an error. */
void methods_fail(struct request *request, const char *error, json_t *parameters);
void methods_fail_invalid(struct request *request, const char *field, const char *reason);
void methods_deny(struct request *request, const char *reason);
/* As methods_deny, for what administrators may do: says who they are, too. */
void methods_deny_to_users(struct request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* Reads parameters, or answers what is wrong with them. */
int methods_read_parameters(struct request *request, const struct parameter *table, size_t n,
			    void *values);

/* methods_operate.c */
void methods_drain(struct request *request);
void methods_resume(struct request *request);
void methods_restart(struct request *request);
