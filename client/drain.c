/* SPDX-License-Identifier: MIT */
/* The command `drain`: empties instances, and names who is in the way meanwhile. */
#include <signal.h>
#include <sys/signalfd.h>

#include "commands.h"
#include "exchange.h"
#include "in_way.h"
#include "layout.h"
#include "operations.h"
#include "proto.h"
#include "simple_options.h"
#include "text.h"

/* How often to look who is in the way: without events, with them, and at most. */
#define LOOK_USEC (2 * USEC_PER_SEC)
#define LOOK_MONITORED_USEC (30 * USEC_PER_SEC)
#define LOOK_MIN_USEC (250 * USEC_PER_MSEC)
#define LOOK_PATIENCE_USEC (2 * USEC_PER_SEC)

static const struct simple_command command = {
	.name = "drain",
	.what = "INSTANCE",
	.names_min = 1,
	.names_max = INT32_MAX,
	.timeout = true,
	.help = "Usage: mpsctl drain INSTANCE... [--timeout SEC]\n"
		"\n"
		"Grants no more leases there, waits for those that are, stops MPS and keeps it\n"
		"stopped across restarts and boots, until `mpsctl resume`. Administrators only.\n"
		"INSTANCE: a UUID or unique prefix of one, a PCI address, an index as nvidia-smi\n"
		"counts, or all.\n"
		"\n"
		"      --timeout SEC   leases that are left by then are revoked\n"
		"      --help          this text\n",
};

struct drain_request {
	uint64_t deadline_usec; /* CLOCK_MONOTONIC; USEC_INFINITY without --timeout */
};

struct drain {
	struct operations operations;
	struct call monitor;
	bool monitored;
	int signal_fd; /* owned */
	sigset_t old_mask;
	uint64_t looked_usec, look_usec; /* the last time, and the next */
};

static json_t *drain_parameters(const struct operations *operations)
{
	const struct drain_request *request = operations->options;
	uint64_t now = clock_usec(CLOCK_MONOTONIC);
	json_t *parameters = json_object();
	uint64_t left_ms;

	if (!parameters || request->deadline_usec == USEC_INFINITY)
		return parameters;
	left_ms = request->deadline_usec > now ? (request->deadline_usec - now) / USEC_PER_MSEC + 1
					       : 0;
	(void)json_object_set_new(parameters, "wait_ms", json_integer((json_int_t)left_ms));
	return parameters;
}

static int drain_finish(const struct operation *operation)
{
	if (!json_is_true(json_object_get(operation->instance, "held"))) {
		cli_print("%s is not drained: it was given back meanwhile, and is %s",
			  operation->name, layout_text(operation->instance, "state", "?"));
		return CLI_FAILED;
	}
	layout_line(stdout, "%s is drained and held; mpsctl resume gives it back\n",
		    operation->name);
	return cli_flush();
}

static const struct operation_kind kind = {
	.command = "drain",
	.method = PROTO_DRAIN,
	.more = true,
	.repeatable = true,
	.parameters = drain_parameters,
	.finish = drain_finish,
};

/* Signals that end this command; those that were ignored before stay so. */
static int catch_signals(struct drain *drain)
{
	static const int ending[] = {SIGHUP, SIGINT, SIGTERM};
	struct sigaction action;
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ELEMENTSOF(ending); i++)
		if (sigaction(ending[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			(void)sigaddset(&set, ending[i]);
	if (sigprocmask(SIG_BLOCK, &set, &drain->old_mask) < 0)
		return -errno;
	drain->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return drain->signal_fd < 0 ? -errno : 0;
}

/* Of drains that were accepted and that nobody waits for any more. */
static void say_in_force(const struct operations *operations)
{
	for (size_t i = 0; i < operations->n; i++) {
		const struct operation *operation = &operations->items[i];

		if (operation->instance && (operation->state != OPERATION_DONE ||
					    operation->exit_status == CLI_NO_SUPERVISOR))
			cli_print("the drain of %s stays in force; mpsctl resume ends it",
				  operation->name);
	}
}

/* Says what becomes of the drains, and ends by the signal. */
static int end_by_signal(struct drain *drain)
{
	struct signalfd_siginfo info;
	sigset_t set;
	int number;

	if (read(drain->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return CLI_OK;
	number = (int)info.ssi_signo;
	say_in_force(&drain->operations);
	(void)signal(number, SIG_DFL);
	(void)raise(number);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, number);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	return 128 + number;
}

static void listen_to_events(struct drain *drain)
{
	call_reset(&drain->monitor);
	drain->monitored = call_open_now(&drain->monitor) == 0 &&
			   call_send(&drain->monitor, PROTO_MONITOR, NULL, true) == 0;
}

static void look_after(struct drain *drain, uint64_t pause_usec)
{
	drain->look_usec = MIN(drain->look_usec, drain->looked_usec + pause_usec);
}

/* Whatever has happened, it is time to look again. */
static void take_events(struct drain *drain)
{
	bool continues;
	int r = call_read(&drain->monitor);

	while (r == 0) {
		_cleanup_json_ json_t *event = NULL;

		r = call_take(&drain->monitor, &event, &continues);
		if (r == 0)
			look_after(drain, LOOK_MIN_USEC);
	}
	if (r == CALL_FAILED) {
		drain->monitored = false;
		look_after(drain, LOOK_USEC);
	}
}

static void say_in_way(struct operation *operation, const json_t *leases)
{
	char text[IN_WAY_TEXT_MAX];

	if (operation->state != OPERATION_ASKED || !operation->instance ||
	    in_way_describe(operation->instance, leases, text) == 0 ||
	    operation->said == text_hash(text))
		return;
	operation->said = text_hash(text);
	cli_print("%s waits for %s", operation->name, text);
}

static void look(struct drain *drain)
{
	struct operations *operations = &drain->operations;
	_cleanup_json_ json_t *answer = NULL;
	const json_t *leases;

	if (!drain->monitored)
		listen_to_events(drain);
	if (exchange_quietly(operations->socket, command.name, PROTO_LIST_LEASES,
			     LOOK_PATIENCE_USEC, &answer) == 0) {
		leases = json_object_get(answer, "leases");
		for (size_t i = 0; i < operations->n; i++)
			say_in_way(&operations->items[i], leases);
	}
	drain->looked_usec = clock_usec(CLOCK_MONOTONIC);
	drain->look_usec =
		drain->looked_usec + (drain->monitored ? LOOK_MONITORED_USEC : LOOK_USEC);
}

/* Until all drains are done, or a signal says that nobody waits for them. */
static int wait_drained(struct drain *drain)
{
	struct operations *operations = &drain->operations;

	while (operations_are_running(operations)) {
		struct pollfd extra[] = {
			{.fd = drain->signal_fd, .events = POLLIN},
			{.fd = drain->monitored ? drain->monitor.stream.fd : -1, .events = POLLIN},
		};
		size_t answers = operations->n_answers;

		operations_wait(operations, extra, ELEMENTSOF(extra), drain->look_usec);
		if (extra[0].revents)
			return end_by_signal(drain);
		if (extra[1].revents)
			take_events(drain);
		if (operations->n_answers != answers)
			look_after(drain, LOOK_MIN_USEC);
		if (operations_are_running(operations) &&
		    clock_usec(CLOCK_MONOTONIC) >= drain->look_usec)
			look(drain);
	}
	say_in_force(operations);
	return operations_exit_status(operations);
}

static void drain_done(struct drain *drain)
{
	operations_done(&drain->operations);
	call_done(&drain->monitor);
	drain->signal_fd = safe_close(drain->signal_fd);
}

static int run(const char *socket, const struct simple_options *options)
{
	_cleanup_(drain_done) struct drain drain = {
		.signal_fd = -EBADF,
		.look_usec = USEC_INFINITY,
	};
	struct drain_request request = {.deadline_usec = USEC_INFINITY};
	int r;

	call_init(&drain.monitor, socket, command.name);
	if (options->timeout_ms >= 0)
		request.deadline_usec =
			clock_usec(CLOCK_MONOTONIC) + (uint64_t)options->timeout_ms * USEC_PER_MSEC;
	r = catch_signals(&drain);
	if (r < 0) {
		cli_print("cannot wait for signals: %s", strerror(-r));
		return CLI_FAILED;
	}
	r = operations_start(&drain.operations, &kind, socket, &request, options->names,
			     options->n_names);
	return r != 0 ? r : wait_drained(&drain);
}

int cmd_drain(const char *socket, int argc, char *argv[])
{
	struct simple_options options;
	int r;

	r = simple_options_parse(&command, argc, argv, &options);
	if (r != 0)
		return r;
	return options.help ? cli_help(command.help) : run(socket, &options);
}
