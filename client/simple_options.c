/* SPDX-License-Identifier: MIT */
#include "simple_options.h"

#define WATCH_MS_DEFAULT 2000
#define WATCH_MS_MIN 100

enum {
	OPTION_JSON = 256,
	OPTION_WATCH,
	OPTION_FORCE,
	OPTION_TIMEOUT
};

static const struct option long_options[] = {
	{"help", no_argument, NULL, 'h'},
	{"json", no_argument, NULL, OPTION_JSON},
	{"watch", optional_argument, NULL, OPTION_WATCH},
	{"force", no_argument, NULL, OPTION_FORCE},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{},
};

static int take_watch(const struct simple_command *command, struct simple_options *options)
{
	int r;

	options->watch = true;
	options->watch_ms = WATCH_MS_DEFAULT;
	if (!optarg)
		return 0;
	r = cli_parse_seconds(command->name, "--watch", optarg, &options->watch_ms);
	options->watch_ms = MAX(options->watch_ms, (int64_t)WATCH_MS_MIN);
	return r;
}

static bool takes(const struct simple_command *command, int option)
{
	switch (option) {
	case OPTION_JSON:
		return command->json;
	case OPTION_WATCH:
		return command->watch;
	case OPTION_FORCE:
		return command->force;
	case OPTION_TIMEOUT:
		return command->timeout;
	default:
		return option == 'h';
	}
}

static int take_option(const struct simple_command *command, struct simple_options *options,
		       int option)
{
	switch (option) {
	case OPTION_JSON:
		options->json = true;
		return 0;
	case OPTION_WATCH:
		return take_watch(command, options);
	case OPTION_FORCE:
		options->force = true;
		return 0;
	case OPTION_TIMEOUT:
		return cli_parse_seconds(command->name, "--timeout", optarg, &options->timeout_ms);
	default:
		options->help = true;
		return 0;
	}
}

static const char *option_name(int option)
{
	for (size_t i = 0; long_options[i].name; i++)
		if (long_options[i].val == option)
			return long_options[i].name;
	return "?";
}

static int take_names(const struct simple_command *command, struct simple_options *options,
		      int argc, char *argv[])
{
	options->names = &argv[optind];
	options->n_names = argc - optind;
	if (options->n_names > command->names_max)
		return cli_usage(command->name, "\"%s\" is one word too many",
				 argv[optind + command->names_max]);
	if (options->n_names < command->names_min)
		return cli_usage(command->name, "which %s?", command->what);
	return 0;
}

int simple_options_parse(const struct simple_command *command, int argc, char *argv[],
			 struct simple_options *ret)
{
	int option, r;

	*ret = (struct simple_options){.timeout_ms = -1};
	cli_restart_options();
	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
		if (option == '?' || option == ':')
			return cli_bad_option(command->name, option, argv);
		if (!takes(command, option))
			return cli_usage(command->name, "unknown option --%s", option_name(option));
		r = take_option(command, ret, option);
		if (r != 0 || ret->help)
			return r;
	}
	return take_names(command, ret, argc, argv);
}
