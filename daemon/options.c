/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <getopt.h>

#include "conffile.h"
#include "util.h"

static const char usage[] =
	"Usage: mps-supervisord [-c FILE] [-n] [-v] [--print-config] [--version] [--help]\n"
	"Supervises an NVIDIA MPS control daemon for each GPU and leases places on them.\n"
	"\n"
	"  -c, --config FILE    read FILE and conf.d/*.conf beside it\n"
	"                       (" CONFFILE_MAIN ")\n"
	"  -n, --check-config   check the configuration and exit: 0 when it is good, else 1\n"
	"      --print-config   print the effective configuration as a file and exit\n"
	"  -v, --verbose        log more, every line of MPS too\n"
	"      --version        print the version and exit\n"
	"  -h, --help           print this and exit\n"
	"\n"
	"See mps-supervisord(8) and mps-supervisor.conf(5).\n";

int options_parse(int argc, char **argv, struct options *ret)
{
	static const struct option long_options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check-config", no_argument, NULL, 'n'},
		{"print-config", no_argument, NULL, 'p'},
		{"verbose", no_argument, NULL, 'v'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{},
	};
	struct options options = {};
	int c;

	while ((c = getopt_long(argc, argv, "c:nvh", long_options, NULL)) >= 0) {
		switch (c) {
		case 'c':
			options.config_path = optarg;
			break;
		case 'n':
			options.check = true;
			break;
		case 'p':
			options.print = true;
			break;
		case 'v':
			options.verbose = true;
			break;
		case 'V':
			puts("mps-supervisord " MPS_SUPERVISOR_VERSION);
			return OPTIONS_DONE;
		case 'h':
			fputs(usage, stdout);
			return OPTIONS_DONE;
		default:
			fputs("Try 'mps-supervisord --help'.\n", stderr);
			return OPTIONS_WRONG;
		}
	}
	if (optind < argc) {
		fprintf(stderr,
			"mps-supervisord: unexpected argument \"%s\"\n"
			"Try 'mps-supervisord --help'.\n",
			argv[optind]);
		return OPTIONS_WRONG;
	}
	*ret = options;
	return 0;
}
