/* SPDX-License-Identifier: MIT */
/* The commands of administrators, `drain`, `resume` and `restart`; and those yet to come. */
#include "call.h"
#include "commands.h"
#include "proto.h"
#include "simple_options.h"

static const struct simple_command drain = {
	.name = "drain",
	.what = "INSTANCE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.timeout = true,
	.help = "Usage: mpsctl drain INSTANCE... [--timeout SEC]\n"
		"\n"
		"Grants no more leases there, waits for those that are, stops MPS and keeps it\n"
		"stopped across restarts and boots, until `mpsctl resume`.\n"
		"\n"
		"      --timeout SEC   wait at most so long for the leases\n"
		"      --help          this text\n",
};

static const struct simple_command resume = {
	.name = "resume",
	.what = "INSTANCE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.help = "Usage: mpsctl resume INSTANCE...\n"
		"\n"
		"Gives back what `mpsctl drain` has emptied.\n",
};

static const struct simple_command restart = {
	.name = "restart",
	.what = "INSTANCE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.force = true,
	.help = "Usage: mpsctl restart INSTANCE... [--force]\n"
		"\n"
		"Recycles the MPS daemons of instances that have no lease.\n"
		"\n"
		"      --force   those with leases too: their holders are told\n"
		"      --help    this text\n",
};

static json_t *request(const struct simple_options *options, const char *instance)
{
	json_t *parameters = json_pack("{s:s}", "instance", instance);

	if (parameters && options->timeout_ms >= 0)
		(void)json_object_set_new(parameters, "wait_ms", json_integer(options->timeout_ms));
	if (parameters && options->force)
		(void)json_object_set_new(parameters, "force", json_true());
	return parameters;
}

static int operate(const struct simple_command *command, const char *method, const char *socket,
		   int argc, char *argv[])
{
	struct simple_options options;
	int result = CLI_OK, r;

	r = simple_options_parse(command, argc, argv, &options);
	if (r != 0)
		return r;
	if (options.help)
		return cli_help(command->help);
	for (int i = 0; i < options.n_names; i++) {
		_cleanup_json_ json_t *answer = NULL;

		r = call_patiently(socket, command->name, method,
				   request(&options, options.names[i]), &answer);
		if (r == CLI_NO_SUPERVISOR)
			return r; /* the same for all the others */
		result = r != 0 ? r : result;
	}
	return result;
}

int cmd_drain(const char *socket, int argc, char *argv[])
{
	return operate(&drain, PROTO_DRAIN, socket, argc, argv);
}

int cmd_resume(const char *socket, int argc, char *argv[])
{
	return operate(&resume, PROTO_RESUME, socket, argc, argv);
}

int cmd_restart(const char *socket, int argc, char *argv[])
{
	return operate(&restart, PROTO_RESTART, socket, argc, argv);
}

static int not_available(char *argv[])
{
	if (argv[1] && streq(argv[1], "--help")) {
		(void)printf("Usage: mpsctl %s\n\nNot available in this version.\n", argv[0]);
		return cli_flush();
	}
	cli_print("%s is not available in this version", argv[0]);
	return CLI_FAILED;
}

int cmd_doctor(const char *socket, int argc, char *argv[])
{
	(void)socket;
	(void)argc;
	return not_available(argv);
}

int cmd_metrics(const char *socket, int argc, char *argv[])
{
	(void)socket;
	(void)argc;
	return not_available(argv);
}
