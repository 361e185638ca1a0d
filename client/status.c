/* SPDX-License-Identifier: MIT */
/* The command `status`. */
#include "commands.h"
#include "exchange.h"
#include "instance_text.h"
#include "layout.h"
#include "proto.h"
#include "simple_options.h"
#include "targets.h"

static const struct simple_command command = {
	.name = "status",
	.names_max = 1,
	.json = true,
	.watch = true,
	.help = "Usage: mpsctl status [--json] [--watch[=SEC]] [INSTANCE]\n"
		"\n"
		"Shows instances with their leases. INSTANCE: a UUID or unique prefix of one, a\n"
		"PCI address, an index as nvidia-smi counts, or all.\n"
		"\n"
		"      --json          the answer of the supervisor as it is\n"
		"      --watch[=SEC]   again and again, every 2 seconds\n"
		"      --help          this text\n",
};

/* Leaves the instances that selector names in the answer. 0 or an exit status. */
static int select_instances(json_t *answer, const char *selector)
{
	json_t *found = NULL;
	int r;

	if (!selector)
		return 0;
	r = targets_find(json_object_get(answer, "instances"), selector, &found);
	if (r == 0 && json_object_set_new(answer, "instances", found) < 0)
		cli_print("no memory for the answer");
	return r;
}

static void print_text(const json_t *answer, const json_t *leases)
{
	int64_t now = (int64_t)clock_usec(CLOCK_REALTIME);
	int64_t started = layout_int(answer, "started_usec", now);
	const json_t *instance;
	char when[LAYOUT_TEXT_MAX], span[LAYOUT_TEXT_MAX];
	size_t i;

	layout_line(stdout, "mps-supervisord %s, pid %lld, up since %s (%s)\n",
		    layout_text(answer, "version", "?"), (long long)layout_int(answer, "pid", 0),
		    layout_time(started, when), layout_duration(now - started, span));
	json_array_foreach(json_object_get(answer, "instances"), i, instance) {
		(void)fputc('\n', stdout);
		instance_text_print(stdout, instance, leases, now);
	}
	if (i == 0)
		(void)fputs("\nno instances: the supervisor knows of no device\n", stdout);
}

static int show(const char *socket, const struct simple_options *options)
{
	_cleanup_json_ json_t *answer = NULL, *leases = NULL;
	const char *selector = options->n_names ? options->names[0] : NULL;
	int r;

	r = exchange_once(socket, command.name, PROTO_GET_STATUS, NULL, &answer);
	if (r == 0)
		r = select_instances(answer, selector);
	if (r == 0 && !options->json)
		r = exchange_once(socket, command.name, PROTO_LIST_LEASES, NULL, &leases);
	if (r != 0)
		return r;
	if (options->watch && isatty(STDOUT_FILENO))
		(void)fputs("\033[H\033[2J", stdout);
	if (options->json)
		layout_json(stdout, answer);
	else
		print_text(answer, json_object_get(leases, "leases"));
	return cli_flush();
}

static void wait_ms(int64_t ms)
{
	struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	(void)nanosleep(&span, NULL);
}

int cmd_status(const char *socket, int argc, char *argv[])
{
	struct simple_options options;
	int r;

	r = simple_options_parse(&command, argc, argv, &options);
	if (r != 0)
		return r;
	if (options.help)
		return cli_help(command.help);
	while ((r = show(socket, &options)) == 0 && options.watch)
		wait_ms(options.watch_ms);
	return r;
}
