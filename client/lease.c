/* SPDX-License-Identifier: MIT */
/* The command `lease`: hands a granted lease to a job or a shell. */
#include "acquire.h"
#include "cli.h"
#include "commands.h"
#include "exchange.h"
#include "job.h"
#include "proto.h"
#include "rerun.h"
#include "shell.h"
#include "visible.h"

#define COMMAND "lease"

/* What is only for a note may not keep the job waiting. */
#define NOTE_PATIENCE_USEC USEC_PER_SEC

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
	    exchange_quietly(socket, COMMAND, PROTO_GET_STATUS, NOTE_PATIENCE_USEC, &status) != 0)
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

	(void)exchange_once(socket, COMMAND, PROTO_RELEASE_LEASE,
			    json_pack("{s:s}", "id", grant->id), &answer);
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
		cli_print("%s is not available in this version; use a system supervisor",
			  options.private ? "--private" : "--fallback private");
		return CLI_NO_LEASE;
	}
	return options.command ? lease_for_job(&call, &options) : lease_for_shell(&call, &options);
}
