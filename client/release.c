/* SPDX-License-Identifier: MIT */
/* The command `release`. */
#include "call.h"
#include "commands.h"
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
		_cleanup_json_ json_t *answer = NULL;

		r = call_once(socket, command.name, PROTO_RELEASE_LEASE,
			      json_pack("{s:s}", "id", options.names[i]), &answer);
		if (r == CLI_NO_SUPERVISOR)
			return r; /* the same for all the others */
		if (r != 0)
			result = CLI_FAILED;
	}
	return result;
}
