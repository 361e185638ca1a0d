/* SPDX-License-Identifier: MIT */
/* The command `leases`. */
#include "commands.h"
#include "exchange.h"
#include "layout.h"
#include "lease_table.h"
#include "proto.h"
#include "simple_options.h"

static const struct simple_command command = {
	.name = "leases",
	.json = true,
	.help = "Usage: mpsctl leases [--json]\n"
		"\n"
		"Lists every lease and everyone who waits for one.\n"
		"\n"
		"      --json   the answer of the supervisor as it is\n"
		"      --help   this text\n",
};

int cmd_leases(const char *socket, int argc, char *argv[])
{
	_cleanup_json_ json_t *answer = NULL;
	struct simple_options options;
	int r;

	r = simple_options_parse(&command, argc, argv, &options);
	if (r != 0)
		return r;
	if (options.help)
		return cli_help(command.help);
	r = exchange_once(socket, command.name, PROTO_LIST_LEASES, NULL, &answer);
	if (r != 0)
		return r;
	if (options.json)
		layout_json(stdout, answer);
	else if (lease_table_print(stdout, json_object_get(answer, "leases"), NULL,
				   (int64_t)clock_usec(CLOCK_REALTIME), 0) == 0)
		(void)fputs("no leases\n", stdout);
	return cli_flush();
}
