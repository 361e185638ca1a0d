/* SPDX-License-Identifier: MIT */
#include "gpuscan.h"

#include <sys/wait.h>

#include "text.h"
#include "util.h"

static int run(struct gpuscan *scan, char *const *argv, command_handler handler)
{
	const char *path = getenv("PATH");
	char *envp[] = {scan->path_variable, (char *)"LC_ALL=C", NULL};

	(void)text_format(scan->path_variable, sizeof(scan->path_variable), "PATH=%s",
			  path ? path : "/usr/local/bin:/usr/bin:/bin");
	return command_start(scan->processes,
			     &(struct command_plan){
				     .path = scan->program,
				     .argv = argv,
				     .envp = envp,
				     .timeout_usec = scan->timeout_usec,
			     },
			     handler, scan, &scan->running);
}

static void finish(struct gpuscan *scan, int r, const char *reason)
{
	scan->handler(r, &scan->inventory, reason, scan->userdata);
}

/* First line of what it said, for a message. */
static void first_line(const char *output, char *buffer, size_t size)
{
	(void)text_format(buffer, size, "%.*s", (int)MIN(strcspn(output, "\r\n"), size - 1),
			  output);
}

/* 0 when the program ended well; else reports and returns -errno. */
static int check(struct gpuscan *scan, const struct command_outcome *outcome)
{
	char said[160], how[64], reason[GPUSCAN_REASON_SIZE];

	scan->running = NULL;
	if (outcome->result == COMMAND_DONE && WIFEXITED(outcome->status) &&
	    WEXITSTATUS(outcome->status) == 0)
		return 0;
	first_line(outcome->output, said, sizeof(said));
	if (outcome->result == COMMAND_TIMED_OUT) {
		(void)text_format(reason, sizeof(reason), "%s did not answer in %g s",
				  scan->program, (double)scan->timeout_usec / 1e6);
	} else if (outcome->result == COMMAND_DONE) {
		process_describe_exit(outcome->status, how, sizeof(how));
		(void)text_format(reason, sizeof(reason), "%.80s %s: %s", scan->program, how,
				  *said ? said : "it said nothing");
	} else {
		(void)text_format(reason, sizeof(reason), "%.80s could not be run: %s",
				  scan->program,
				  outcome->result == COMMAND_TOO_LONG ? "it printed too much"
								      : strerror(-outcome->status));
	}
	finish(scan, -EIO, reason);
	return -EIO;
}

static void on_mig(const struct command_outcome *outcome, void *userdata)
{
	char error[INVENTORY_ERROR_SIZE], reason[GPUSCAN_REASON_SIZE];
	struct gpuscan *scan = userdata;
	int r;

	if (check(scan, outcome) < 0)
		return;
	r = inventory_add_mig(&scan->inventory, outcome->output, error);
	if (r < 0)
		(void)text_format(reason, sizeof(reason), "nvidia-smi -L: %s", error);
	finish(scan, r, r < 0 ? reason : NULL);
}

static void on_query(const struct command_outcome *outcome, void *userdata)
{
	char error[INVENTORY_ERROR_SIZE], reason[GPUSCAN_REASON_SIZE];
	struct gpuscan *scan = userdata;
	char *argv[] = {(char *)scan->program, (char *)"-L", NULL};
	int r;

	/* "No devices were found" comes with a status of its own (6). */
	if (outcome->result == COMMAND_DONE && strstr(outcome->output, "No devices were found")) {
		scan->running = NULL;
		finish(scan, 0, NULL);
		return;
	}
	if (check(scan, outcome) < 0)
		return;
	r = inventory_parse(&scan->inventory, outcome->output, error);
	if (r == 0 && inventory_has_mig(&scan->inventory)) {
		r = run(scan, argv, on_mig);
		if (r == 0)
			return;
		(void)text_copy(error, sizeof(error), strerror(-r));
	}
	if (r < 0)
		(void)text_format(reason, sizeof(reason), "%.60s: %s", scan->program, error);
	finish(scan, r, r < 0 ? reason : NULL);
}

int gpuscan_start(struct gpuscan *scan, struct processes *processes, const char *program,
		  uint64_t timeout_usec, gpuscan_handler handler, void *userdata)
{
	char *argv[] = {(char *)program, (char *)INVENTORY_QUERY, (char *)INVENTORY_FORMAT, NULL};

	*scan = (struct gpuscan){
		.processes = processes,
		.program = program,
		.timeout_usec = timeout_usec,
		.handler = handler,
		.userdata = userdata,
	};
	return run(scan, argv, on_query);
}

void gpuscan_cancel(struct gpuscan *scan)
{
	scan->running = command_cancel(scan->running);
}
