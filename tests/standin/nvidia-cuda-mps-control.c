/* SPDX-License-Identifier: MIT */
/*
 * Stand-in for NVIDIA's nvidia-cuda-mps-control: the daemon with -f (in the foreground) or -d, the
 * front end without. README.md says what it imitates and how a test makes it misbehave.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon.h"
#include "frontend.h"
#include "knobs.h"
#include "util.h"

static int print_help(void)
{
	puts("CUDA MPS Control, the stand-in of a test suite.\n\n"
	     "  nvidia-cuda-mps-control -f | -d [-multiuser-server]\n"
	     "  nvidia-cuda-mps-control < COMMANDS");
	return 0;
}

int main(int argc, char *argv[])
{
	bool is_daemon = false;
	bool in_background = false;
	bool multi_user = false;

	signal(SIGPIPE, SIG_IGN);
	program_init();
	knobs_load();
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return print_help();
		in_background = in_background || strcmp(argv[i], "-d") == 0;
		is_daemon = is_daemon || in_background || strcmp(argv[i], "-f") == 0;
		multi_user = multi_user || strcmp(argv[i], "-multiuser-server") == 0 ||
			     (strcmp(argv[i], "-M") == 0 && !knob_is_535());
	}
	if (!is_daemon)
		return frontend_run();
	program_dump("control", argv);
	return daemon_run(in_background, multi_user);
}
