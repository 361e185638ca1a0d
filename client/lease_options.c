/* SPDX-License-Identifier: MIT */
#include "lease_options.h"

#include <pwd.h>

#include "cli.h"
#include "explain.h"
#include "proto.h"
#include "text.h"

#define COMMAND "lease"
#define WAIT_MS_KEY "wait_ms"

const char lease_options_help[] =
	"Usage: mpsctl lease [OPTIONS] -- CMD [ARG...]   run CMD under a lease\n"
	"       mpsctl lease [OPTIONS]                   a lease for the calling shell:\n"
	"                                                lease=$(mpsctl lease) && eval \"$lease\"\n"
	"\n"
	"  -g, --gpus N          devices in the lease, all shown to CMD (1)\n"
	"      --gpu SEL         out of these devices: UUID or prefix of one, PCI address,\n"
	"                        index, all; repeatable\n"
	"  -t, --threads PCT     share of the multiprocessors, 1-100\n"
	"  -m, --memory SIZE     device memory on each device: 512M, 20G\n"
	"  -c, --clients N       MPS client processes on each device at a time (1)\n"
	"  -x, --exclusive       nobody else on those devices meanwhile\n"
	"  -w, --wait SEC        how long to queue; the configuration has the default\n"
	"      --no-wait         fail at once instead\n"
	"      --name TEXT       shown in status\n"
	"      --uid USER        take the lease for USER (administrators)\n"
	"  -q, --quiet           only errors\n"
	"      --help            this text\n"
	"\n"
	"With CMD:\n"
	"      --on-loss WHAT    when the MPS server is lost: notify (default), terminate CMD,\n"
	"                        or rerun it\n"
	"      --reruns N        with --on-loss rerun: at most N times (3)\n"
	"      --fallback WHAT   when no lease can be had: none (default: fail), or\n"
	"                        time-slicing: run CMD without MPS\n"
	"      --private         a supervisor of one's own (not available in this version)\n"
	"\n"
	"Without CMD:\n"
	"      --pid PID         the lease lives as long as this process\n"
	"      --detach          until released (administrators)\n"
	"      --format FORMAT   what is printed: shell (default), env, json, path\n"
	"\n"
	"Exit status with CMD: CMD's own; 125 no lease, 126 CMD cannot be run, 127 not found.\n"
	"Without: 0; 1 refused, 2 wrong usage, 3 no supervisor, 4 timed out.\n";

enum {
	OPTION_GPU = 256,
	OPTION_NO_WAIT,
	OPTION_PRIVATE,
	OPTION_NAME,
	OPTION_PID,
	OPTION_DETACH,
	OPTION_UID,
	OPTION_FORMAT,
	OPTION_ON_LOSS,
	OPTION_RERUNS,
	OPTION_FALLBACK,
	OPTION_HELP,
};

#define SHORT_OPTIONS "+:g:t:m:c:w:xqh"

static const struct option long_options[] = {
	{"gpus", required_argument, NULL, 'g'},
	{"gpu", required_argument, NULL, OPTION_GPU},
	{"threads", required_argument, NULL, 't'},
	{"memory", required_argument, NULL, 'm'},
	{"clients", required_argument, NULL, 'c'},
	{"wait", required_argument, NULL, 'w'},
	{"no-wait", no_argument, NULL, OPTION_NO_WAIT},
	{"exclusive", no_argument, NULL, 'x'},
	{"private", no_argument, NULL, OPTION_PRIVATE},
	{"name", required_argument, NULL, OPTION_NAME},
	{"pid", required_argument, NULL, OPTION_PID},
	{"detach", no_argument, NULL, OPTION_DETACH},
	{"uid", required_argument, NULL, OPTION_UID},
	{"format", required_argument, NULL, OPTION_FORMAT},
	{"on-loss", required_argument, NULL, OPTION_ON_LOSS},
	{"reruns", required_argument, NULL, OPTION_RERUNS},
	{"fallback", required_argument, NULL, OPTION_FALLBACK},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, OPTION_HELP},
	{},
};

/* Which options were given; some make no sense without, or beside, others. */
struct given {
	bool format, on_loss, reruns, fallback, wait, no_wait;
};

static int add(struct lease_options *options, const char *key, json_t *value)
{
	if (json_object_set_new(options->request, key, value) == 0)
		return 0;
	return cli_usage(COMMAND, "%s: the value is not UTF-8", explain_option(COMMAND, key));
}

static int add_int(struct lease_options *options, const char *key, const char *option,
		   const char *text, int64_t max)
{
	int64_t value;
	int r;

	r = cli_parse_int(COMMAND, option, text, 1, max, &value);
	return r ? r : add(options, key, json_integer(value));
}

static int add_memory(struct lease_options *options, const char *text)
{
	int64_t bytes;
	int r;

	r = text_parse_bytes(text, &bytes);
	if (r == -ERANGE)
		return cli_usage(COMMAND, "--memory \"%s\" is more than any device has", text);
	if (r < 0)
		return cli_usage(COMMAND, "--memory \"%s\" is not a size such as 512M or 20G",
				 text);
	if (bytes < PROTO_MEMORY_MIN_BYTES)
		return cli_usage(COMMAND,
				 "--memory \"%s\" is less than 1M; a number without M or G counts "
				 "bytes: 20 GiB are 20G",
				 text);
	return add(options, "memory_bytes", json_integer(bytes));
}

static int add_name(struct lease_options *options, const char *text)
{
	if (strlen(text) > PROTO_NAME_MAX)
		return cli_usage(COMMAND, "--name is longer than %d bytes", PROTO_NAME_MAX);
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return cli_usage(COMMAND, "--name \"%s\" has control characters in it",
					 text);
	return add(options, "name", json_string(text));
}

static int add_wait(struct lease_options *options, const char *text)
{
	int64_t ms;
	int r;

	r = cli_parse_seconds(COMMAND, "--wait", text, &ms);
	return r ? r : add(options, WAIT_MS_KEY, json_integer(ms));
}

static int add_device(struct lease_options *options, const char *selector)
{
	json_t *devices = json_object_get(options->request, "devices");
	int r = 0;

	if (!devices)
		r = add(options, "devices", json_array());
	devices = json_object_get(options->request, "devices");
	if (r == 0 && json_array_append_new(devices, json_string(selector)) < 0)
		r = cli_usage(COMMAND, "--gpu \"%s\" is not UTF-8", selector);
	return r;
}

static int add_uid(struct lease_options *options, const char *text)
{
	const struct passwd *user;
	int64_t uid;

	if (text_parse_int(text, 0, UINT32_MAX - 1, &uid) == 0)
		return add(options, "uid", json_integer(uid));
	user = getpwnam(text);
	if (!user)
		return cli_usage(COMMAND, "--uid \"%s\" is neither a number nor a user", text);
	return add(options, "uid", json_integer(user->pw_uid));
}

static int set_pid(struct lease_options *options, const char *text)
{
	int64_t pid;

	if (text_parse_int(text, 1, INT32_MAX, &pid) < 0)
		return cli_usage(COMMAND, "--pid \"%s\" is not the number of a process", text);
	options->pid = (pid_t)pid;
	return 0;
}

static int set_reruns(struct lease_options *options, const char *text)
{
	int64_t n;
	int r;

	r = cli_parse_int(COMMAND, "--reruns", text, 0, RERUNS_MAX, &n);
	if (r == 0)
		options->reruns = (int)n;
	return r;
}

/* The position of text among names, which are in the order of an enum. */
static int choose(const char *option, const char *text, const char *const names[4], int *ret)
{
	char all[64] = "";

	for (int i = 0; i < 4 && names[i]; i++) {
		size_t length = strlen(all);

		if (streq(names[i], text)) {
			*ret = i;
			return 0;
		}
		(void)text_format(all + length, sizeof(all) - length, "%s%s", i ? ", " : "",
				  names[i]);
	}
	return cli_usage(COMMAND, "%s \"%s\" is none of %s", option, text, all);
}

static int set_format(struct lease_options *options, const char *text)
{
	static const char *const names[4] = {"shell", "env", "json", "path"};
	int value = 0, r;

	r = choose("--format", text, names, &value);
	if (r == 0)
		options->format = (enum lease_format)value;
	return r;
}

static int set_on_loss(struct lease_options *options, const char *text)
{
	static const char *const names[4] = {"notify", "terminate", "rerun"};
	int value = 0, r;

	r = choose("--on-loss", text, names, &value);
	if (r == 0)
		options->on_loss = (enum on_loss)value;
	return r;
}

static int set_fallback(struct lease_options *options, const char *text)
{
	static const char *const names[4] = {"none", "private", "time-slicing"};
	int value = 0, r;

	r = choose("--fallback", text, names, &value);
	if (r == 0)
		options->fallback = (enum fallback)value;
	return r;
}

/* Options that ask for something in the request. */
static int take_request(struct lease_options *options, int option)
{
	switch (option) {
	case 'g':
		return add_int(options, "count", "--gpus", optarg, PROTO_COUNT_MAX);
	case OPTION_GPU:
		return add_device(options, optarg);
	case 't':
		return add_int(options, "threads_percent", "--threads", optarg, 100);
	case 'm':
		return add_memory(options, optarg);
	case 'c':
		return add_int(options, "clients", "--clients", optarg, PROTO_CLIENTS_MAX);
	case 'x':
		return add(options, "exclusive", json_true());
	case OPTION_NAME:
		return add_name(options, optarg);
	default:
		return add_uid(options, optarg);
	}
}

static int take_option(struct lease_options *options, struct given *given, int option)
{
	switch (option) {
	case OPTION_PRIVATE:
		options->private = true;
		return 0;
	case OPTION_PID:
		return set_pid(options, optarg);
	case OPTION_DETACH:
		options->detach = true;
		return 0;
	case OPTION_FORMAT:
		given->format = true;
		return set_format(options, optarg);
	case OPTION_ON_LOSS:
		given->on_loss = true;
		return set_on_loss(options, optarg);
	case OPTION_RERUNS:
		given->reruns = true;
		return set_reruns(options, optarg);
	case OPTION_FALLBACK:
		given->fallback = true;
		return set_fallback(options, optarg);
	case 'w':
		given->wait = true;
		return add_wait(options, optarg);
	case OPTION_NO_WAIT:
		given->no_wait = true;
		return add(options, WAIT_MS_KEY, json_integer(0));
	case 'q':
		options->quiet = true;
		return 0;
	default:
		return take_request(options, option);
	}
}

static int check_with_command(const struct lease_options *options, const struct given *given)
{
	if (options->pid || options->detach)
		return cli_usage(COMMAND, "%s is for a lease without a command",
				 options->pid ? "--pid" : "--detach");
	if (given->format)
		return cli_usage(COMMAND, "--format is for a lease without a command");
	if (given->reruns && options->on_loss != ON_LOSS_RERUN)
		return cli_usage(COMMAND, "--reruns needs --on-loss rerun");
	return 0;
}

static int check_without_command(const struct lease_options *options, const struct given *given)
{
	if (options->pid && options->detach)
		return cli_usage(COMMAND, "--pid and --detach exclude each other");
	if (given->on_loss || given->reruns || given->fallback || options->private)
		return cli_usage(COMMAND, "%s needs a command: mpsctl lease [OPTIONS] -- CMD",
				 options->private  ? "--private"
				 : given->fallback ? "--fallback"
				 : given->on_loss  ? "--on-loss"
						   : "--reruns");
	return 0;
}

static int check(const struct lease_options *options, const struct given *given)
{
	if (given->wait && given->no_wait)
		return cli_usage(COMMAND, "--wait and --no-wait exclude each other");
	return options->command ? check_with_command(options, given)
				: check_without_command(options, given);
}

/* What is left of argv must be nothing, or "--" and a command. behind is the first word that no
 * option has taken: an option's value may be "--" too. */
static int take_command(struct lease_options *options, int argc, char *argv[], int behind)
{
	bool separated = optind > behind && streq(argv[optind - 1], "--");

	if (separated && optind == argc)
		return cli_usage(COMMAND, "there is no command after --");
	if (!separated && optind < argc)
		return cli_usage(COMMAND, "\"%s\" must come after --: mpsctl lease [OPTIONS] -- %s",
				 argv[optind], argv[optind]);
	options->command = separated ? &argv[optind] : NULL;
	return 0;
}

int lease_options_parse(int argc, char *argv[], struct lease_options *ret)
{
	struct given given = {};
	int behind = 1, option, r;

	*ret = (struct lease_options){.request = json_object(), .reruns = RERUNS_DEFAULT};
	cli_restart_options();
	while ((option = getopt_long(argc, argv, SHORT_OPTIONS, long_options, NULL)) != -1) {
		if (option == OPTION_HELP || option == 'h') {
			ret->help = true;
			return 0;
		}
		if (option == '?' || option == ':')
			return cli_bad_option(COMMAND, option, argv);
		r = take_option(ret, &given, option);
		if (r != 0)
			return r;
		behind = optind;
	}
	r = take_command(ret, argc, argv, behind);
	return r ? r : check(ret, &given);
}

void lease_options_done(struct lease_options *options)
{
	json_decref(TAKE_PTR(options->request));
}

bool lease_options_has_command(int argc, char *const argv[])
{
	for (int i = 1; i < argc; i++)
		if (streq(argv[i], "--"))
			return true;
	return false;
}
