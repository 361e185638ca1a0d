/* SPDX-License-Identifier: MIT */
/* mpsctl: global options, and which command it is. */
#include "cli.h"
#include "commands.h"
#include "fds.h"
#include "proto.h"

static const char help[] =
	"Usage: mpsctl [--socket PATH] COMMAND [OPTIONS]\n"
	"\n"
	"  lease [OPTIONS] -- CMD   run CMD under a lease\n"
	"  lease [OPTIONS]          take a lease for the calling shell\n"
	"  release LEASE...         end leases\n"
	"  status [INSTANCE]        instances with their leases\n"
	"  leases                   every lease and everyone who waits\n"
	"  monitor                  events as they happen\n"
	"  drain INSTANCE...        empty instances and hold them\n"
	"  resume INSTANCE...       give them back\n"
	"  restart INSTANCE...      end their MPS daemons and start new ones\n"
	"  doctor, metrics          not available in this version\n"
	"\n"
	"      --socket PATH   of the supervisor; also from MPS_SUPERVISOR_SOCKET;\n"
	"                      default " PROTO_DEFAULT_SOCKET "\n"
	"      --version\n"
	"      --help          this text; mpsctl COMMAND --help for a command\n";

static const struct option options[] = {
	{"socket", required_argument, NULL, 's'},
	{"version", no_argument, NULL, 'V'},
	{"help", no_argument, NULL, 'h'},
	{},
};

static const struct {
	const char *name;
	int (*run)(const char *socket, int argc, char *argv[]);
} commands[] = {
	{"lease", cmd_lease},     {"release", cmd_release}, {"status", cmd_status},
	{"leases", cmd_leases},   {"monitor", cmd_monitor}, {"drain", cmd_drain},
	{"resume", cmd_resume},   {"restart", cmd_restart}, {"doctor", cmd_doctor},
	{"metrics", cmd_metrics},
};

static const char *default_socket(void)
{
	const char *path = getenv("MPS_SUPERVISOR_SOCKET");

	return path && *path ? path : PROTO_DEFAULT_SOCKET;
}

static int run_command(const char *socket, int argc, char *argv[])
{
	if (argc == 0)
		return cli_usage("", "which command?");
	for (size_t i = 0; i < ELEMENTSOF(commands); i++)
		if (streq(commands[i].name, argv[0]))
			return commands[i].run(socket, argc, argv);
	return cli_usage("", "unknown command \"%s\"", argv[0]);
}

static int run(int argc, char *argv[])
{
	const char *socket = default_socket();
	int option;

	if (fds_fill_standard() < 0)
		return CLI_FAILED;
	cli_restart_options();
	while ((option = getopt_long(argc, argv, "+:h", options, NULL)) != -1)
		switch (option) {
		case 's':
			socket = optarg;
			break;
		case 'V':
			return cli_help("mpsctl " MPS_SUPERVISOR_VERSION "\n");
		case 'h':
			return cli_help(help);
		default:
			return cli_bad_option("", option, argv);
		}
	return run_command(socket, argc - optind, argv + optind);
}

int main(int argc, char *argv[])
{
	return run(argc, argv);
}
