/* SPDX-License-Identifier: MIT */
/* The command `release`. */
#include "commands.h"
#include "exchange.h"
#include "proto.h"
#include "simple_options.h"

static const struct simple_command command = {
	.name = "release",
	.what = "LEASE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.help = "Usage: mpsctl release LEASE...\n"
		"\n"
		"Ends leases: one's own, or anybody's for administrators. `mpsctl leases` lists\n"
		"them.\n",
};

/* 0 or an exit status. */
static int release(const char *socket, const char *id)
{
	_cleanup_(call_done) struct call call;
	_cleanup_json_ json_t *answer = NULL;
	bool again;

	call_init(&call, socket, command.name);
	call.deadline_usec = clock_usec(CLOCK_MONOTONIC) + CALL_PATIENCE_SEC * USEC_PER_SEC;
	if (exchange(&call, PROTO_RELEASE_LEASE, json_pack("{s:s}", "id", id), &answer, &again) ==
	    0)
		return 0;
	/* Asked twice, the first time has done it. */
	if (again && call.failure == CALL_REFUSED && streq(call.error, PROTO_NO_SUCH_LEASE))
		return 0;
	return call_complain(&call);
}

int cmd_release(const char *socket, int argc, char *argv[])
{
	struct simple_options options;
	int result = CLI_OK, r;

	r = simple_options_parse(&command, argc, argv, &options);
	if (r != 0)
		return r;
	if (options.help)
		return cli_help(command.help);
	for (int i = 0; i < options.n_names; i++) {
		r = release(socket, options.names[i]);
		if (r == CLI_NO_SUPERVISOR)
			return r; /* the same for all the others */
		if (r != 0)
			result = CLI_FAILED;
	}
	return result;
}
