/* SPDX-License-Identifier: MIT */
/* The commands `resume` and `restart`; and those yet to come. */
#include "commands.h"
#include "layout.h"
#include "operations.h"
#include "proto.h"
#include "simple_options.h"

static const struct simple_command resume = {
	.name = "resume",
	.what = "INSTANCE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.help = "Usage: mpsctl resume INSTANCE...\n"
		"\n"
		"Gives back what `mpsctl drain` has emptied, or is about to. Administrators only.\n"
		"INSTANCE: as in `mpsctl drain`.\n",
};

static const struct simple_command restart = {
	.name = "restart",
	.what = "INSTANCE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.force = true,
	.help = "Usage: mpsctl restart INSTANCE... [--force]\n"
		"\n"
		"Ends the MPS daemons of instances that have no lease, and starts new ones.\n"
		"Administrators only. INSTANCE: as in `mpsctl drain`.\n"
		"\n"
		"      --force   those with leases too: the jobs lose the GPU, and are told\n"
		"      --help    this text\n",
};

static json_t *resume_parameters(const struct operations *operations)
{
	(void)operations;
	return json_object();
}

static json_t *restart_parameters(const struct operations *operations)
{
	const struct simple_options *options = operations->options;

	return options->force ? json_pack("{s:b}", "force", 1) : json_object();
}

/* What it is instead of what was wanted. */
static int say_state(const struct operation *operation)
{
	const char *reason = layout_text(operation->instance, "reason", "");

	cli_print("%s is %s%s%s; see `mpsctl status`", operation->name,
		  layout_text(operation->instance, "state", "?"), *reason ? ": " : "", reason);
	return CLI_FAILED;
}

static int resume_finish(const struct operation *operation)
{
	if (streq(layout_text(operation->instance, "state", ""), "failed") ||
	    json_is_true(json_object_get(operation->instance, "held")))
		return say_state(operation);
	if (json_is_true(json_object_get(operation->before, "held")))
		layout_line(stdout, "%s is in use again\n", operation->name);
	else
		layout_line(stdout, "%s was not held; it is %s\n", operation->name,
			    layout_text(operation->instance, "state", "?"));
	return cli_flush();
}

static int restart_finish(const struct operation *operation)
{
	if (!streq(layout_text(operation->instance, "state", ""), "ready"))
		return say_state(operation);
	layout_line(stdout, "%s is ready again\n", operation->name);
	return cli_flush();
}

static const struct operation_kind resume_kind = {
	.command = "resume",
	.method = PROTO_RESUME,
	.repeatable = true,
	.parameters = resume_parameters,
	.finish = resume_finish,
};

/* Not repeatable: who asks twice takes the GPU from jobs twice. */
static const struct operation_kind restart_kind = {
	.command = "restart",
	.method = PROTO_RESTART,
	.parameters = restart_parameters,
	.finish = restart_finish,
};

static int operate(const struct simple_command *command, const struct operation_kind *kind,
		   const char *socket, int argc, char *argv[])
{
	_cleanup_(operations_done) struct operations operations = {};
	struct simple_options options;
	int r;

	r = simple_options_parse(command, argc, argv, &options);
	if (r != 0)
		return r;
	if (options.help)
		return cli_help(command->help);
	r = operations_start(&operations, kind, socket, &options, options.names, options.n_names);
	if (r != 0)
		return r;
	while (operations_are_running(&operations))
		operations_wait(&operations, NULL, 0, USEC_INFINITY);
	return operations_exit_status(&operations);
}

int cmd_resume(const char *socket, int argc, char *argv[])
{
	return operate(&resume, &resume_kind, socket, argc, argv);
}

int cmd_restart(const char *socket, int argc, char *argv[])
{
	return operate(&restart, &restart_kind, socket, argc, argv);
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
