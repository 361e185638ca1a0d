/* SPDX-License-Identifier: MIT */
#include "job.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "cli.h"
#include "lease_line.h"
#include "notice.h"
#include "pidwatch.h"
#include "text.h"

/* A supervisor that answers does so within milliseconds; somebody may wait for our standard error.
 */
#define HEAR_OUT_USEC USEC_PER_SEC

struct keeper {
	struct lease_line line;
	int job_fd; /* pidfd */
	bool terminate;
	uint64_t kill_usec; /* when SIGKILL follows; USEC_INFINITY */
	char socket[PATH_MAX];
};

int job_exec(char *const command[])
{
	(void)execvp(command[0], command);
	if (errno == ENOENT) {
		cli_print("%s: command not found", command[0]);
		return CLI_NOT_FOUND;
	}
	cli_print("cannot run %s: %s", command[0], strerror(errno));
	return CLI_CANNOT_RUN;
}

/* Away from the job's standard streams, directory and whatever it inherited: somebody may wait
 * for the end of that pipe. */
static void let_go(const struct keeper *keeper)
{
	int line_fd = keeper->line.call->stream.fd;
	unsigned int low = (unsigned int)MIN(line_fd, keeper->job_fd);
	unsigned int high = (unsigned int)MAX(line_fd, keeper->job_fd);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)dup2(null_fd, STDIN_FILENO);
	(void)dup2(null_fd, STDOUT_FILENO);
	if (low > 3)
		(void)close_range(3, low - 1, 0);
	if (high > low + 1)
		(void)close_range(low + 1, high - 1, 0);
	(void)close_range(high + 1, ~0u, 0);
	if (chdir("/") < 0)
		return; /* then it stays where it is */
}

/* The socket will be needed again when the supervisor was restarted, from another directory. */
static void find_socket(struct keeper *keeper)
{
	struct call *call = keeper->line.call;
	char here[PATH_MAX];

	if (call->socket[0] == '/' || !getcwd(here, sizeof(here)) ||
	    text_format(keeper->socket, sizeof(keeper->socket), "%s/%s", here, call->socket) < 0)
		return;
	call->socket = keeper->socket;
}

static void keeper_prepare(struct keeper *keeper)
{
	static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};

	for (size_t i = 0; i < ELEMENTSOF(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
	(void)prctl(PR_SET_NAME, "mpsctl-keeper");
	find_socket(keeper);
	let_go(keeper);
}

static void keeper_handle(struct keeper *keeper, const json_t *parameters)
{
	char text[CLI_MESSAGE_MAX];

	enum notice notice = notice_read(parameters, text, sizeof(text));
	bool ended = pidwatch_has_ended(keeper->job_fd);

	/* That the lease ends with its job needs no words; why the job may have ended does. */
	if (notice == NOTICE_NONE || (notice == NOTICE_REVOKED && ended))
		return;
	if (!keeper->terminate || ended) {
		cli_print("%s", text);
		return;
	}
	if (keeper->kill_usec != USEC_INFINITY)
		return;
	cli_print("%s; ending the job with SIGTERM, after %d s with SIGKILL", text,
		  (int)(JOB_KILL_USEC / USEC_PER_SEC));
	(void)pidwatch_signal(keeper->job_fd, SIGTERM);
	keeper->kill_usec = clock_usec(CLOCK_MONOTONIC) + JOB_KILL_USEC;
}

/* Handles all that has arrived. */
static void keeper_take(struct keeper *keeper)
{
	json_t *parameters;

	while (lease_line_take(&keeper->line, &parameters)) {
		keeper_handle(keeper, parameters);
		json_decref(parameters);
	}
}

/* The job has ended, perhaps because of what the supervisor is about to say: until it has said
 * that the lease is over. */
static void keeper_hear_out(struct keeper *keeper)
{
	uint64_t limit_usec = clock_usec(CLOCK_MONOTONIC) + HEAR_OUT_USEC;

	for (keeper_take(keeper); keeper->line.state == LEASE_LINE_UP; keeper_take(keeper)) {
		struct pollfd pollfd = {.fd = lease_line_fd(&keeper->line), .events = POLLIN};
		int n = poll(&pollfd, 1, pidwatch_timeout_ms(limit_usec));

		if ((n < 0 && errno != EINTR) || clock_usec(CLOCK_MONOTONIC) >= limit_usec)
			return;
		lease_line_attend(&keeper->line, n > 0);
	}
}

/* Until something is to be done. False when the job has ended. */
static bool keeper_wait(struct keeper *keeper)
{
	uint64_t until_usec = MIN(keeper->kill_usec, lease_line_retry_usec(&keeper->line));
	struct pollfd fds[] = {
		{.fd = keeper->job_fd, .events = POLLIN},
		{.fd = lease_line_fd(&keeper->line), .events = POLLIN},
	};
	int n = poll(fds, ELEMENTSOF(fds), pidwatch_timeout_ms(until_usec));

	if ((n < 0 && errno != EINTR) || (n > 0 && fds[0].revents))
		return false;
	lease_line_attend(&keeper->line, n > 0 && fds[1].revents);
	return true;
}

/* Until the job has ended, or nothing is left to do for it. */
static void keeper_run(struct keeper *keeper)
{
	for (keeper_take(keeper);
	     keeper->line.state != LEASE_LINE_OVER || keeper->kill_usec != USEC_INFINITY;
	     keeper_take(keeper)) {
		if (!keeper_wait(keeper)) {
			keeper_hear_out(keeper);
			return;
		}
		if (clock_usec(CLOCK_MONOTONIC) >= keeper->kill_usec) {
			(void)pidwatch_signal(keeper->job_fd, SIGKILL);
			return;
		}
	}
}

/* In the child between: the keeper must not be the job's child, which the job could wait for. */
static _Noreturn void fork_keeper(struct keeper *keeper)
{
	pid_t pid;

	(void)setsid();
	pid = fork();
	if (pid != 0)
		_exit(pid < 0 ? errno : 0);
	keeper_prepare(keeper);
	keeper_run(keeper);
	_exit(0);
}

/* Leaves neither a zombie nor, where SIGCHLD is blocked, a pending signal to the job. */
static int reap(pid_t pid)
{
	static const struct timespec at_once = {};
	sigset_t set;
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigtimedwait(&set, NULL, &at_once);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

static int start_keeper(struct call *call, const struct grant *grant,
			const struct lease_options *options)
{
	_cleanup_close_ int job_fd = -EBADF;
	struct keeper keeper = {
		.terminate = options->on_loss == ON_LOSS_TERMINATE,
		.kill_usec = USEC_INFINITY,
	};
	pid_t pid;
	int r;

	lease_line_init(&keeper.line, call, grant->id, true);
	r = pidwatch_open(getpid(), &job_fd);
	if (r < 0)
		return r;
	keeper.job_fd = job_fd;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		fork_keeper(&keeper);
	return reap(pid);
}

/* As init of a container mpsctl would inherit the keeper, and a job that waits for all its
 * children would wait for it: then only --on-loss terminate is worth that. */
static bool wants_keeper(const struct lease_options *options)
{
	if (options->on_loss == ON_LOSS_TERMINATE)
		return true;
	return !options->quiet && getpid() != 1;
}

int job_run(struct call *call, const struct grant *grant, const struct lease_options *options,
	    bool continues)
{
	int r;

	r = grant_apply(grant);
	if (r == 0 && continues && wants_keeper(options))
		r = start_keeper(call, grant, options);
	if (r < 0) {
		cli_print("cannot prepare the job of lease %s: %s", grant->id, strerror(-r));
		return CLI_NO_LEASE;
	}
	return job_exec(options->command);
}
