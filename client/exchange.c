/* SPDX-License-Identifier: MIT */
#include "exchange.h"

#include "absence.h"

static int ask(struct call *call, const char *method, const json_t *parameters,
	       json_t **ret_parameters)
{
	bool continues;
	int r;

	r = call_open(call);
	if (r == 0)
		r = call_send(call, method, json_deep_copy(parameters), false);
	return r == 0 ? call_next(call, ret_parameters, &continues) : r;
}

int exchange(struct call *call, const char *method, json_t *parameters, json_t **ret_parameters,
	     bool *ret_again)
{
	_cleanup_json_ json_t *owned = parameters;
	struct absence absence = {};
	uint64_t next_usec;
	int r;

	r = ask(call, method, owned, ret_parameters);
	*ret_again = r != 0 && call->failure == CALL_GONE;
	if (!*ret_again)
		return r;
	do {
		if (!absence_goes_on(&absence, clock_usec(CLOCK_MONOTONIC), EXCHANGE_AGAIN_USEC,
				     &next_usec))
			return r;
		absence_pause(next_usec);
		call_reset(call);
		r = ask(call, method, owned, ret_parameters);
	} while (r != 0 && call->failure == CALL_ABSENT);
	return r;
}

int exchange_once(const char *socket, const char *command, const char *method, json_t *parameters,
		  json_t **ret_parameters)
{
	_cleanup_(call_done) struct call call;
	bool again;

	call_init(&call, socket, command);
	call.deadline_usec = clock_usec(CLOCK_MONOTONIC) + CALL_PATIENCE_SEC * USEC_PER_SEC;
	if (exchange(&call, method, parameters, ret_parameters, &again) != 0)
		return call_complain(&call);
	return 0;
}

int exchange_quietly(const char *socket, const char *command, const char *method,
		     uint64_t patience_usec, json_t **ret_parameters)
{
	_cleanup_(call_done) struct call call;

	call_init(&call, socket, command);
	call.deadline_usec = clock_usec(CLOCK_MONOTONIC) + patience_usec;
	return ask(&call, method, NULL, ret_parameters);
}
