/* SPDX-License-Identifier: MIT */
#include "operations.h"

#include "cli.h"
#include "exchange.h"
#include "layout.h"
#include "pidwatch.h"
#include "proto.h"
#include "targets.h"
#include "text.h"

static void finish(struct operation *operation, int exit_status)
{
	call_reset(&operation->call);
	operation->state = OPERATION_DONE;
	operation->exit_status = exit_status;
}

/* Is the error one of this instance, not of the caller or the supervisor? */
static bool concerns_one(const struct call *call)
{
	static const char *const errors[] = {
		PROTO_NO_SUCH_INSTANCE,
		PROTO_BUSY,
		PROTO_NOT_READY,
		PROTO_TIMED_OUT,
	};

	if (call->failure != CALL_REFUSED)
		return false;
	for (size_t i = 0; i < ELEMENTSOF(errors); i++)
		if (streq(call->error, errors[i]))
			return true;
	return false;
}

static void complain(struct operations *operations, const struct operation *operation)
{
	const char *problem = operation->call.problem;

	if (concerns_one(&operation->call)) {
		cli_print("%s: %s", operation->name, problem);
		return;
	}
	if (streq(problem, operations->complaint))
		return;
	(void)text_copy(operations->complaint, sizeof(operations->complaint), problem);
	cli_print("%s", problem);
}

/* The supervisor has been away for too long. */
static void give_up(struct operations *operations)
{
	for (size_t i = 0; i < operations->n; i++)
		if (operations->items[i].state == OPERATION_AWAY)
			finish(&operations->items[i], CLI_NO_SUPERVISOR);
	cli_print("the supervisor at %s has gone, and was not back within %d s; is mps-supervisor "
		  "running? (systemctl status mps-supervisor)",
		  operations->socket, OPERATIONS_ABSENCE_SEC);
}

/* One pause for all of them. */
static void plan_retry(struct operations *operations)
{
	bool is_new = absence_is_new(&operations->absence);

	if (operations->retry_usec != USEC_INFINITY)
		return;
	if (!absence_goes_on(&operations->absence, clock_usec(CLOCK_MONOTONIC),
			     OPERATIONS_ABSENCE_SEC * USEC_PER_SEC, &operations->retry_usec))
		give_up(operations);
	else if (is_new)
		cli_print("the supervisor has gone; asking again when it is back");
}

static void fail(struct operations *operations, struct operation *operation)
{
	const struct call *call = &operation->call;
	int exit_status = call->exit_status;

	if (operations->kind->repeatable &&
	    (call->failure == CALL_GONE || call->failure == CALL_ABSENT)) {
		call_reset(&operation->call);
		operation->state = OPERATION_AWAY;
		return;
	}
	complain(operations, operation);
	finish(operation, exit_status);
}

static void ask(struct operations *operations, struct operation *operation)
{
	const struct operation_kind *kind = operations->kind;
	json_t *parameters = kind->parameters(operations);
	int r;

	if (parameters)
		(void)json_object_set_new(parameters, "instance", json_string(operation->name));
	operation->state = OPERATION_ASKED;
	r = call_open_now(&operation->call);
	if (r == 0)
		r = call_send(&operation->call, kind->method, TAKE_PTR(parameters), kind->more);
	if (r != 0)
		fail(operations, operation);
	json_decref(parameters);
}

static void take_answer(struct operations *operations, struct operation *operation,
			const json_t *parameters, bool continues)
{
	json_t *instance = json_object_get(parameters, "instance");

	absence_end(&operations->absence);
	operations->n_answers++;
	if (!json_is_object(instance)) {
		(void)call_fail_malformed(&operation->call, "an answer without \"instance\"");
		fail(operations, operation);
		return;
	}
	json_decref(operation->instance);
	operation->instance = json_incref(instance);
	if (!continues)
		finish(operation, operations->kind->finish(operation));
}

/* Handles all that has arrived. */
static void take(struct operations *operations, struct operation *operation)
{
	while (operation->state == OPERATION_ASKED) {
		_cleanup_json_ json_t *parameters = NULL;
		bool continues;
		int r;

		r = call_take(&operation->call, &parameters, &continues);
		if (r == CALL_NOTHING)
			return;
		if (r == 0)
			take_answer(operations, operation, parameters, continues);
		else
			fail(operations, operation);
	}
}

static void ask_again(struct operations *operations)
{
	operations->retry_usec = USEC_INFINITY;
	for (size_t i = 0; i < operations->n; i++)
		if (operations->items[i].state == OPERATION_AWAY)
			ask(operations, &operations->items[i]);
}

static bool any_is(const struct operations *operations, int state)
{
	for (size_t i = 0; i < operations->n; i++)
		if ((int)operations->items[i].state == state)
			return true;
	return false;
}

bool operations_are_running(const struct operations *operations)
{
	return any_is(operations, OPERATION_ASKED) || any_is(operations, OPERATION_AWAY);
}

/* After each round of asking or hearing. */
static void settle(struct operations *operations)
{
	if (any_is(operations, OPERATION_AWAY))
		plan_retry(operations);
}

/* The answers that poll(2) has shown. */
static void hear(struct operations *operations)
{
	for (size_t i = 0; i < operations->n; i++) {
		struct operation *operation = &operations->items[i];

		if (operation->state != OPERATION_ASKED || !operations->fds[i].revents)
			continue;
		if (call_read(&operation->call) != 0)
			fail(operations, operation);
		take(operations, operation);
	}
}

void operations_wait(struct operations *operations, struct pollfd *extra, size_t n_extra,
		     uint64_t until_usec)
{
	struct pollfd *fds = operations->fds;
	size_t n = operations->n;

	for (size_t i = 0; i < n; i++) {
		const struct operation *operation = &operations->items[i];
		bool asked = operation->state == OPERATION_ASKED;

		fds[i] = (struct pollfd){.fd = asked ? operation->call.stream.fd : -1,
					 .events = POLLIN};
	}
	for (size_t i = 0; i < n_extra; i++)
		fds[n + i] = extra[i];
	until_usec = MIN(until_usec, operations->retry_usec);
	if (poll(fds, n + n_extra, pidwatch_timeout_ms(until_usec)) > 0)
		hear(operations);
	else
		for (size_t i = 0; i < n_extra; i++)
			fds[n + i].revents = 0;
	for (size_t i = 0; i < n_extra; i++)
		extra[i].revents = fds[n + i].revents;
	if (clock_usec(CLOCK_MONOTONIC) >= operations->retry_usec)
		ask_again(operations);
	settle(operations);
}

static int collect(struct operations *operations, char *const words[], int n_words)
{
	_cleanup_json_ json_t *answer = NULL;
	int r;

	r = exchange_once(operations->socket, operations->kind->command, PROTO_GET_STATUS, NULL,
			  &answer);
	if (r == 0)
		r = targets_collect(json_object_get(answer, "instances"), words, n_words,
				    &operations->targets);
	return r;
}

static int allocate(struct operations *operations)
{
	size_t n = json_array_size(operations->targets);

	operations->items = calloc(n, sizeof(*operations->items));
	operations->fds = calloc(n + OPERATIONS_EXTRA_MAX, sizeof(*operations->fds));
	if (!operations->items || !operations->fds) {
		cli_print("no memory for the request");
		return CLI_FAILED;
	}
	for (; operations->n < n; operations->n++) {
		struct operation *operation = &operations->items[operations->n];

		call_init(&operation->call, operations->socket, operations->kind->command);
		operation->before = json_array_get(operations->targets, operations->n);
		operation->name = layout_text(operation->before, "name", "?");
	}
	return 0;
}

int operations_start(struct operations *operations, const struct operation_kind *kind,
		     const char *socket, const void *options, char *const words[], int n_words)
{
	int r;

	*operations = (struct operations){
		.kind = kind,
		.socket = socket,
		.options = options,
		.retry_usec = USEC_INFINITY,
	};
	r = collect(operations, words, n_words);
	if (r == 0)
		r = allocate(operations);
	for (size_t i = 0; r == 0 && i < operations->n; i++)
		ask(operations, &operations->items[i]);
	settle(operations);
	return r;
}

void operations_done(struct operations *operations)
{
	for (size_t i = 0; i < operations->n; i++) {
		call_done(&operations->items[i].call);
		json_decref(operations->items[i].instance);
	}
	free(TAKE_PTR(operations->items));
	free(TAKE_PTR(operations->fds));
	json_decref(TAKE_PTR(operations->targets));
	operations->n = 0;
}

int operations_exit_status(const struct operations *operations)
{
	for (size_t i = 0; i < operations->n; i++)
		if (operations->items[i].exit_status != 0)
			return operations->items[i].exit_status;
	return CLI_OK;
}
