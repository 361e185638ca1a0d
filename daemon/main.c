/* SPDX-License-Identifier: MIT */
#include "daemon.h"
#include "fds.h"
#include "util.h"

static int run(int argc, char **argv)
{
	struct options options;
	int r;

	if (fds_fill_standard() < 0)
		return EXIT_FAILURE;
	r = options_parse(argc, argv, &options);
	if (r != 0)
		return r == OPTIONS_DONE ? EXIT_SUCCESS : 2;
	return daemon_run(&options);
}

int main(int argc, char **argv)
{
	return run(argc, argv);
}
