/* SPDX-License-Identifier: MIT */
#include "acquire.h"

#include "absence.h"
#include "around.h"
#include "cli.h"
#include "layout.h"
#include "lost_answer.h"
#include "proto.h"
#include "shell.h"
#include "text.h"

#define ID_SIZE 64 /* longer ones are cut, and found no more */

struct asking {
	struct call *call;
	const struct lease_options *options;
	uint64_t deadline_usec; /* of --wait; USEC_INFINITY without */
	bool was_there;         /* the supervisor, once */
	bool noted;             /* a lease around this one */
	int64_t asked_usec;     /* the last time, realtime; 0 before the first */
	char id[ID_SIZE];       /* as it was told while the request waited; "" */
	struct absence absence;
	char place[CLI_MESSAGE_MAX]; /* where the request waits, as it was last said */
};

static void announce_queued(struct asking *asking, const json_t *lease)
{
	const json_t *position = json_object_get(lease, "position");
	char text[CLI_MESSAGE_MAX], reason[LAYOUT_REASON_MAX], where[48] = "";

	(void)layout_reason(layout_text(lease, "reason", "no reason given"), reason);
	if (json_is_integer(position))
		(void)text_format(where, sizeof(where), " (position %lld)",
				  (long long)json_integer_value(position));
	(void)text_format(text, sizeof(text), "%s%s", reason, where);
	if (streq(text, asking->place))
		return;
	(void)text_copy(asking->place, sizeof(asking->place), text);
	cli_print("waiting for a lease: %s", text);
	if (!asking->noted)
		around_note(asking->call->socket);
	asking->noted = true;
}

/* Answers until the grant. 0 or CALL_FAILED. */
static int await_grant(struct asking *asking, struct grant *ret, bool *ret_continues)
{
	struct call *call = asking->call;

	for (;;) {
		_cleanup_json_ json_t *parameters = NULL;
		const char *what, *reason;
		json_t *lease;
		int r;

		r = call_next(call, &parameters, ret_continues);
		if (r != 0)
			return r;
		absence_end(&asking->absence);
		what = json_string_value(json_object_get(parameters, "what"));
		lease = json_object_get(parameters, "lease");
		if (!what || !json_is_object(lease))
			return call_fail_malformed(call, "an answer without \"what\" or \"lease\"");
		if (streq(what, "granted"))
			return grant_init(ret, lease, &reason) < 0
				       ? call_fail_malformed(call, reason)
				       : 0;
		if (!streq(what, "queued"))
			return call_fail(call, CLI_FAILED,
					 "the request was ended before it was granted");
		if (!*ret_continues)
			return call_fail_malformed(call, "a queued request with no end");
		(void)text_copy(asking->id, sizeof(asking->id), layout_text(lease, "id", ""));
		if (!asking->options->quiet)
			announce_queued(asking, lease);
	}
}

/* Which process the lease lives with. The supervisor knows its caller better than by a pid, which
 * means nothing to it when it comes from another pid namespace. */
static int bind_request(struct call *call, const struct lease_options *options)
{
	pid_t pid = options->pid;

	if (options->detach)
		return json_object_set_new(options->request, "bind", json_string("none"));
	if (!call_shares_pids(call) && !options->command)
		return call_fail(call, CLI_FAILED,
				 "the supervisor does not see this pid namespace's processes; use "
				 "mpsctl lease -- CMD in a container");
	if (options->command)
		pid = call_shares_pids(call) ? getpid() : 0;
	else if (pid == 0 && shell_find(&pid) < 0)
		return call_fail(call, CLI_FAILED,
				 "there is no calling shell for the lease to live with; name a "
				 "process with --pid, or use mpsctl lease -- CMD");
	if (pid != 0)
		(void)json_object_set_new(options->request, "pid", json_integer(pid));
	return json_object_set_new(options->request, "bind", json_string("process"));
}

static int64_t wait_ms(const struct lease_options *options)
{
	const json_t *value = json_object_get(options->request, "wait_ms");

	return value ? json_integer_value(value) : -1;
}

/* With answers that follow the first: to say why it waits, and whatever happens later. */
static bool wants_more(const struct lease_options *options)
{
	return options->command || (!options->quiet && wait_ms(options) != 0);
}

enum {
	NOT_GRANTED = 2
};
/* Takes the lease that the request before, if there was one, was granted without our hearing of it.
 * 0, CALL_FAILED, or NOT_GRANTED. */
static int take_up(struct asking *asking, struct grant *ret, bool *ret_continues)
{
	_cleanup_json_ json_t *answer = NULL;
	struct call *call = asking->call;
	const char *id;
	struct lost_answer lost = {
		.request = asking->options->request,
		.uid = geteuid(),
		.asked_usec = asking->asked_usec,
		.id = asking->id,
		.around_id = around_id(),
	};
	int r;

	if (asking->asked_usec == 0)
		return NOT_GRANTED;
	r = call_send(call, PROTO_LIST_LEASES, NULL, false);
	if (r == 0)
		r = call_next(call, &answer, ret_continues);
	if (r != 0)
		return r;
	id = lost_answer_find(&lost, json_object_get(answer, "leases"));
	if (!id)
		return NOT_GRANTED;
	r = call_send(call, PROTO_RECLAIM_LEASE, json_pack("{s:s}", "id", id),
		      wants_more(asking->options));
	if (r == 0)
		r = await_grant(asking, ret, ret_continues);
	/* It has ended just now. */
	return r == CALL_FAILED && call->failure == CALL_REFUSED ? NOT_GRANTED : r;
}

static int request(struct asking *asking, struct grant *ret, bool *ret_continues)
{
	const struct lease_options *options = asking->options;
	struct call *call = asking->call;
	int r;

	asking->place[0] = asking->id[0] = '\0';
	asking->asked_usec = (int64_t)clock_usec(CLOCK_REALTIME);
	r = call_send(call, PROTO_ACQUIRE_LEASE, json_incref(options->request),
		      wants_more(options));
	return r != 0 ? r : await_grant(asking, ret, ret_continues);
}

/* Asks once. 0 or CALL_FAILED. */
static int ask(struct asking *asking, struct grant *ret, bool *ret_continues)
{
	const struct lease_options *options = asking->options;
	struct call *call = asking->call;
	int r;

	r = call_open(call);
	if (r != 0)
		return r;
	asking->was_there = true;
	r = bind_request(call, options);
	if (r < 0)
		return call_fail(call, CLI_FAILED, "no memory for the request");
	if (r == 0)
		r = take_up(asking, ret, ret_continues);
	return r == NOT_GRANTED ? request(asking, ret, ret_continues) : r;
}

static bool give_up(struct call *call)
{
	(void)call_fail(call, CLI_NO_SUPERVISOR,
			"the supervisor at %s has gone, and was not back within %d s; is "
			"mps-supervisor running? (systemctl status mps-supervisor)",
			call->socket, ACQUIRE_ABSENCE_SEC);
	return false;
}

/* The rest of --wait, for the next request. False when there is none. */
static bool shorten_wait(struct asking *asking, uint64_t now)
{
	uint64_t left_ms;

	if (asking->deadline_usec == USEC_INFINITY)
		return true;
	if (now >= asking->deadline_usec) {
		(void)call_fail(asking->call, CLI_TIMED_OUT,
				"timed out: the supervisor at %s has gone and is not back yet",
				asking->call->socket);
		return false;
	}
	left_ms = (asking->deadline_usec - now) / USEC_PER_MSEC + 1;
	(void)json_object_set_new(asking->options->request, "wait_ms",
				  json_integer((json_int_t)left_ms));
	return true;
}

/* After a failure: may it be a restart of the supervisor? Waits a moment then. */
static bool may_ask_again(struct asking *asking)
{
	struct call *call = asking->call;
	bool is_new = absence_is_new(&asking->absence);
	uint64_t next;

	if (!asking->was_there || (call->failure != CALL_GONE && call->failure != CALL_ABSENT))
		return false;
	if (!absence_goes_on(&asking->absence, clock_usec(CLOCK_MONOTONIC),
			     ACQUIRE_ABSENCE_SEC * USEC_PER_SEC, &next))
		return give_up(call);
	if (is_new && !asking->options->quiet)
		cli_print("the supervisor has gone; asking again when it is back");
	absence_pause(MIN(next, asking->deadline_usec));
	call_reset(call);
	return shorten_wait(asking, clock_usec(CLOCK_MONOTONIC));
}

int acquire(struct call *call, const struct lease_options *options, struct grant *ret,
	    bool *ret_continues)
{
	struct asking asking = {
		.call = call,
		.options = options,
		.deadline_usec = USEC_INFINITY,
	};
	int r;

	if (wait_ms(options) > 0)
		asking.deadline_usec =
			clock_usec(CLOCK_MONOTONIC) + (uint64_t)wait_ms(options) * USEC_PER_MSEC;
	do {
		r = ask(&asking, ret, ret_continues);
	} while (r == CALL_FAILED && may_ask_again(&asking));
	return r;
}
