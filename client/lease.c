/* SPDX-License-Identifier: MIT */
/* The command `lease`: asks, waits in the queue, and hands a granted lease to a job or a shell. */
#include "call.h"
#include "cli.h"
#include "commands.h"
#include "grant.h"
#include "job.h"
#include "lease_options.h"
#include "proto.h"
#include "rerun.h"
#include "shell.h"
#include "text.h"
#include "visible.h"

#define COMMAND "lease"

/* What is only for a note may not keep the job waiting. */
#define NOTE_PATIENCE_USEC USEC_PER_SEC

/* Where a lease waits, as it was last said. */
struct queue_place {
	char text[CLI_MESSAGE_MAX];
};

static int fail(struct call *call, const char *problem)
{
	(void)text_copy(call->problem, sizeof(call->problem), problem);
	call->exit_status = CLI_FAILED;
	return CALL_FAILED;
}

static int fail_malformed(struct call *call, const char *reason)
{
	(void)text_format(call->problem, sizeof(call->problem),
			  "what listens at %s does not answer as mps-supervisord: %s", call->socket,
			  reason);
	call->exit_status = CLI_FAILED;
	return CALL_FAILED;
}

static void announce_queued(struct queue_place *place, const json_t *lease)
{
	const char *reason = json_string_value(json_object_get(lease, "reason"));
	const json_t *position = json_object_get(lease, "position");
	char text[CLI_MESSAGE_MAX], where[48] = "";

	if (json_is_integer(position))
		(void)text_format(where, sizeof(where), " (position %lld)",
				  (long long)json_integer_value(position));
	(void)text_format(text, sizeof(text), "%s%s", reason ? reason : "no reason given", where);
	if (streq(text, place->text))
		return;
	(void)text_copy(place->text, sizeof(place->text), text);
	cli_print("waiting for a lease: %s", text);
}

/* Answers until the grant. 0 or CALL_FAILED. */
static int await_grant(struct call *call, bool quiet, struct grant *ret, bool *ret_continues)
{
	struct queue_place place = {};

	for (;;) {
		_cleanup_json_ json_t *parameters = NULL;
		const char *what, *reason;
		json_t *lease;
		int r;

		r = call_next(call, &parameters, ret_continues);
		if (r != 0)
			return r;
		what = json_string_value(json_object_get(parameters, "what"));
		lease = json_object_get(parameters, "lease");
		if (!what || !json_is_object(lease))
			return fail_malformed(call, "an answer without \"what\" or \"lease\"");
		if (streq(what, "granted"))
			return grant_init(ret, lease, &reason) < 0 ? fail_malformed(call, reason)
								   : 0;
		if (!streq(what, "queued"))
			return fail(call, "the request was ended before it was granted");
		if (!*ret_continues)
			return fail_malformed(call, "a queued request with no end");
		if (!quiet)
			announce_queued(&place, lease);
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
		return fail(call, "the supervisor does not see this pid namespace's processes; use "
				  "mpsctl lease -- CMD in a container");
	if (options->command)
		pid = call_shares_pids(call) ? getpid() : 0;
	else if (pid == 0 && shell_find(&pid) < 0)
		return fail(call, "there is no calling shell for the lease to live with; name a "
				  "process with --pid, or use mpsctl lease -- CMD");
	if (pid != 0)
		(void)json_object_set_new(options->request, "pid", json_integer(pid));
	return json_object_set_new(options->request, "bind", json_string("process"));
}

/* With answers that follow the first: to say why it waits, and whatever happens later. */
static bool wants_more(const struct lease_options *options)
{
	const json_t *wait_ms = json_object_get(options->request, "wait_ms");

	if (options->command)
		return true;
	return !options->quiet && !(wait_ms && json_integer_value(wait_ms) == 0);
}

static int acquire(struct call *call, const struct lease_options *options, struct grant *ret,
		   bool *ret_continues)
{
	int r;

	r = call_open(call);
	if (r != 0)
		return r;
	r = bind_request(call, options);
	if (r < 0)
		return fail(call, "no memory for the request");
	if (r != 0)
		return r;
	r = call_send(call, PROTO_ACQUIRE_LEASE, json_incref(options->request),
		      wants_more(options));
	return r != 0 ? r : await_grant(call, options->quiet, ret, ret_continues);
}

/* The lease counts, not what the caller's environment says; where they are not the same, say so.
 * Nothing that goes wrong here matters to the lease. */
static void note_other_devices(const char *socket, const struct grant *grant,
			       const struct lease_options *options)
{
	_cleanup_json_ json_t *status = NULL;
	const char *value = getenv("CUDA_VISIBLE_DEVICES");
	char note[VISIBLE_NOTE_MAX];

	if (options->quiet || !value)
		return;
	if (visible_has_numbers(value) &&
	    call_quietly(socket, COMMAND, PROTO_GET_STATUS, NOTE_PATIENCE_USEC, &status) != 0)
		return;
	if (visible_differs(value, options->request, grant->lease, status, note))
		cli_print("%s", note);
}

static int run_without_mps(const struct call *call, const struct lease_options *options)
{
	cli_print("%s; running %s without MPS (--fallback time-slicing)", call->problem,
		  options->command[0]);
	grant_clear_environment();
	return job_exec(options->command);
}

static int lease_for_job(struct call *call, const struct lease_options *options)
{
	_cleanup_(grant_done) struct grant grant = {};
	bool continues;
	int r;

	r = acquire(call, options, &grant, &continues);
	if (r != 0 && options->fallback == FALLBACK_TIME_SLICING && !call->misuse)
		return run_without_mps(call, options);
	if (r != 0) {
		(void)call_complain(call);
		return CLI_NO_LEASE;
	}
	note_other_devices(call->socket, &grant, options);
	if (options->on_loss == ON_LOSS_RERUN)
		return rerun_job(call, &grant, options, continues);
	return job_run(call, &grant, options, continues);
}

/* A lease that nobody could read about is given back. */
static int give_back(const char *socket, const struct grant *grant)
{
	_cleanup_json_ json_t *answer = NULL;

	(void)call_once(socket, COMMAND, PROTO_RELEASE_LEASE, json_pack("{s:s}", "id", grant->id),
			&answer);
	return CLI_FAILED;
}

static int lease_for_shell(struct call *call, const struct lease_options *options)
{
	_cleanup_(grant_done) struct grant grant = {};
	bool continues;
	int r;

	r = acquire(call, options, &grant, &continues);
	if (r != 0)
		return call_complain(call);
	note_other_devices(call->socket, &grant, options);
	shell_print(stdout, &grant, options->format);
	return cli_flush() == CLI_OK ? CLI_OK : give_back(call->socket, &grant);
}

int cmd_lease(const char *socket, int argc, char *argv[])
{
	_cleanup_(lease_options_done) struct lease_options options;
	_cleanup_(call_done) struct call call;
	int r;

	call_init(&call, socket, COMMAND);
	r = lease_options_parse(argc, argv, &options);
	if (r != 0)
		return lease_options_has_command(argc, argv) ? CLI_NO_LEASE : r;
	if (options.help)
		return cli_help(lease_options_help);
	if (options.private || options.fallback == FALLBACK_PRIVATE) {
		cli_print("--private is not available in this version; use a system supervisor");
		return CLI_NO_LEASE;
	}
	return options.command ? lease_for_job(&call, &options) : lease_for_shell(&call, &options);
}
