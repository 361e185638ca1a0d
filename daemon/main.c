/* SPDX-License-Identifier: MIT */
#include "daemon.h"
#include "util.h"

static int run(int argc, char **argv)
{
	struct options options;
	int r;

	r = options_parse(argc, argv, &options);
	if (r != 0)
		return r == OPTIONS_DONE ? EXIT_SUCCESS : 2;
	return daemon_run(&options);
}

int main(int argc, char **argv)
{
	return run(argc, argv);
}
