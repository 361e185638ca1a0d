/* SPDX-License-Identifier: MIT */
/* The command `monitor`: events until interrupted, each written out at once. */
#include "call.h"
#include "commands.h"
#include "layout.h"
#include "proto.h"
#include "simple_options.h"

static const struct simple_command command = {
	.name = "monitor",
	.json = true,
	.help = "Usage: mpsctl monitor [--json]\n"
		"\n"
		"Prints events as they happen: time, kind, instance, lease, message.\n"
		"\n"
		"      --json   one Event object a line\n"
		"      --help   this text\n",
};

static void print_event(const json_t *event, bool json)
{
	char when[LAYOUT_TEXT_MAX];

	if (json) {
		(void)json_dumpf(event, stdout, JSON_COMPACT);
		(void)fputc('\n', stdout);
		return;
	}
	layout_line(stdout, "%s %s %s %s %s\n", layout_time(layout_int(event, "at_usec", -1), when),
		    layout_text(event, "kind", "-"), layout_text(event, "instance", "-"),
		    layout_text(event, "lease", "-"), layout_text(event, "message", ""));
}

static int print_events(struct call *call, bool json)
{
	bool continues = true;

	while (continues) {
		_cleanup_json_ json_t *parameters = NULL;
		const json_t *event;
		int r;

		if (call_next(call, &parameters, &continues) != 0)
			return call_complain(call);
		event = json_object_get(parameters, "event");
		if (!json_is_object(event))
			continue;
		print_event(event, json);
		r = cli_flush();
		if (r != CLI_OK)
			return r;
	}
	return CLI_OK;
}

int cmd_monitor(const char *socket, int argc, char *argv[])
{
	_cleanup_(call_done) struct call call;
	struct simple_options options;
	int r;

	call_init(&call, socket, command.name);
	r = simple_options_parse(&command, argc, argv, &options);
	if (r != 0)
		return r;
	if (options.help)
		return cli_help(command.help);
	if (call_open(&call) != 0 || call_send(&call, PROTO_MONITOR, NULL, true) != 0)
		return call_complain(&call);
	return print_events(&call, options.json);
}
