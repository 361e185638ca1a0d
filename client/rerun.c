/* SPDX-License-Identifier: MIT */
#include "rerun.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "cli.h"
#include "exchange.h"
#include "lease_line.h"
#include "notice.h"
#include "pidwatch.h"
#include "proto.h"

/* A job that dies of a lost server may do so before the supervisor has said why. */
#define LOSS_GRACE_USEC (500 * USEC_PER_MSEC)
/* The same when the supervisor is being restarted. */
#define AWAY_GRACE_USEC (10 * USEC_PER_SEC)
/* How long, and how often asked, the instance may take to come back. */
#define READY_PATIENCE_USEC (300 * USEC_PER_SEC)
#define READY_INTERVAL_USEC (250 * USEC_PER_MSEC)

struct rerun {
	struct lease_line line;
	const struct grant *grant;
	const struct lease_options *options;
	sigset_t old_mask;
	struct sigaction old_child; /* SIGCHLD */
	int signal_fd;              /* owned */
	int job_fd;                 /* owned; pidfd of the running job */
	uint64_t kill_usec;         /* when SIGKILL follows; USEC_INFINITY */
	bool lost;                  /* this run's GPU contexts */
	bool revoked;
	bool stopped; /* somebody sent a signal that ends jobs: no more runs */
};

static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
				SIGUSR2, SIGCONT, SIGTSTP, SIGWINCH};

static void rerun_done(struct rerun *rerun)
{
	rerun->signal_fd = safe_close(rerun->signal_fd);
	rerun->job_fd = safe_close(rerun->job_fd);
}

/* SIGCHLD may be inherited as ignored: then no exit status would be kept for us. */
static int rerun_prepare(struct rerun *rerun)
{
	struct sigaction initial = {.sa_handler = SIG_DFL};
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ELEMENTSOF(passed_on); i++)
		(void)sigaddset(&set, passed_on[i]);
	if (sigprocmask(SIG_BLOCK, &set, &rerun->old_mask) < 0 ||
	    sigaction(SIGCHLD, &initial, &rerun->old_child) < 0)
		return -errno;
	rerun->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return rerun->signal_fd < 0 ? -errno : 0;
}

static int start_job(struct rerun *rerun)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		/* Should mpsctl be killed, the lease ends; a job without one should too. */
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		(void)sigaction(SIGCHLD, &rerun->old_child, NULL);
		(void)sigprocmask(SIG_SETMASK, &rerun->old_mask, NULL);
		_exit(job_exec(rerun->options->command));
	}
	rerun->lost = false;
	rerun->kill_usec = USEC_INFINITY;
	return pidwatch_open(pid, &rerun->job_fd);
}

/* What the terminal generates (SI_KERNEL) has reached the job, which is in our process group.
 * Stopped from the terminal or not, the shell must see us stop. */
static void pass_signal_on(struct rerun *rerun, const struct signalfd_siginfo *info)
{
	int number = (int)info->ssi_signo;

	if (info->ssi_code != SI_KERNEL && rerun->job_fd >= 0)
		(void)pidwatch_signal(rerun->job_fd, number);
	if (number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM)
		rerun->stopped = true;
	if (number == SIGTSTP)
		(void)raise(SIGSTOP);
}

static void take_signals(struct rerun *rerun)
{
	struct signalfd_siginfo info;

	while (read(rerun->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		pass_signal_on(rerun, &info);
}

/* Ends the job after a loss. */
static void end_job(struct rerun *rerun)
{
	if (rerun->job_fd < 0 || rerun->kill_usec != USEC_INFINITY)
		return;
	(void)pidwatch_signal(rerun->job_fd, SIGTERM);
	rerun->kill_usec = clock_usec(CLOCK_MONOTONIC) + JOB_KILL_USEC;
}

static void take_notice(struct rerun *rerun, const json_t *parameters)
{
	char text[CLI_MESSAGE_MAX];

	switch (notice_read(parameters, text, sizeof(text))) {
	case NOTICE_NONE:
		return;
	case NOTICE_INTERRUPTED:
		rerun->lost = true;
		break;
	case NOTICE_REVOKED:
		rerun->revoked = true;
		break;
	}
	cli_print("%s", text);
	end_job(rerun);
}

static void take_notices(struct rerun *rerun)
{
	json_t *parameters;

	while (lease_line_take(&rerun->line, &parameters)) {
		take_notice(rerun, parameters);
		json_decref(parameters);
	}
}

/* Waits for anything, handles it. True when the job has ended; notices come first then. */
static bool wait_event(struct rerun *rerun, uint64_t until_usec)
{
	struct pollfd fds[] = {
		{.fd = rerun->job_fd, .events = POLLIN},
		{.fd = rerun->signal_fd, .events = POLLIN},
		{.fd = lease_line_fd(&rerun->line), .events = POLLIN},
	};
	int n;

	until_usec = MIN(until_usec, lease_line_retry_usec(&rerun->line));
	n = poll(fds, ELEMENTSOF(fds), pidwatch_timeout_ms(until_usec));
	if (n > 0 && fds[1].revents)
		take_signals(rerun);
	lease_line_attend(&rerun->line, n > 0 && fds[2].revents);
	take_notices(rerun);
	return n > 0 && fds[0].revents;
}

/* Until the job has ended; it is reaped. */
static void watch_job(struct rerun *rerun, siginfo_t *ret)
{
	while (!wait_event(rerun, rerun->kill_usec)) {
		if (clock_usec(CLOCK_MONOTONIC) < rerun->kill_usec)
			continue;
		(void)pidwatch_signal(rerun->job_fd, SIGKILL);
		rerun->kill_usec = USEC_INFINITY;
	}
	*ret = (siginfo_t){};
	while (waitid((idtype_t)P_PIDFD, (id_t)rerun->job_fd, ret, WEXITED) < 0 && errno == EINTR)
		;
	rerun->job_fd = safe_close(rerun->job_fd);
}

static bool succeeded(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED && info->si_status == 0;
}

/* Waits for the reason why the job has ended. A supervisor that is away has longer for it. */
static void hear_out(struct rerun *rerun)
{
	uint64_t now = clock_usec(CLOCK_MONOTONIC);
	uint64_t limit = now + AWAY_GRACE_USEC, until = limit;

	while (!rerun->lost && !rerun->revoked && !rerun->stopped &&
	       rerun->line.state != LEASE_LINE_OVER && now < until) {
		until = lease_line_is_heard(&rerun->line) ? MIN(until, now + LOSS_GRACE_USEC)
							  : limit;
		(void)wait_event(rerun, until);
		now = clock_usec(CLOCK_MONOTONIC);
	}
}

/* Was it the loss that ended the job? */
static bool ended_by_loss(struct rerun *rerun, const siginfo_t *info)
{
	if (rerun->kill_usec == USEC_INFINITY && !rerun->lost && succeeded(info))
		return false;
	hear_out(rerun);
	return rerun->lost;
}

/* The state of the lease's instance, owned by *ret_status; NULL when it cannot be had now. */
static const char *ask_state(struct rerun *rerun, json_t **ret_status)
{
	const struct call *call = rerun->line.call;
	const json_t *instance;
	size_t i;

	if (exchange_quietly(call->socket, call->command, PROTO_GET_STATUS,
			     CALL_PATIENCE_SEC * USEC_PER_SEC, ret_status) != 0)
		return NULL;
	json_array_foreach(json_object_get(*ret_status, "instances"), i, instance) {
		const char *name = json_string_value(json_object_get(instance, "name"));

		if (name && streq(name, rerun->grant->instance))
			return json_string_value(json_object_get(instance, "state"));
	}
	return "gone";
}

/* One that an administrator drains waits for this very lease to end. */
static bool is_hopeless(const char *state)
{
	return streq(state, "failed") || streq(state, "stopped") || streq(state, "draining") ||
	       streq(state, "gone");
}

/* Started too early, the job would run beside MPS instead of in it, and nobody would see. */
static bool wait_ready(struct rerun *rerun)
{
	uint64_t now = clock_usec(CLOCK_MONOTONIC);
	uint64_t until = now + READY_PATIENCE_USEC;

	for (; now < until && !rerun->stopped && !rerun->revoked;
	     now = clock_usec(CLOCK_MONOTONIC)) {
		_cleanup_json_ json_t *status = NULL;
		const char *state = ask_state(rerun, &status);

		if (state && streq(state, "ready"))
			return true;
		if (state && is_hopeless(state)) {
			cli_print("instance %s is %s; not running %s again; see `mpsctl status`",
				  rerun->grant->instance, state, rerun->options->command[0]);
			return false;
		}
		(void)wait_event(rerun, now + READY_INTERVAL_USEC);
	}
	if (now >= until)
		cli_print("instance %s did not come back within %d s; not running %s again",
			  rerun->grant->instance, (int)(READY_PATIENCE_USEC / USEC_PER_SEC),
			  rerun->options->command[0]);
	return false;
}

/* May, and can, there be another run? done counts those there were. */
static bool run_again(struct rerun *rerun, const siginfo_t *info, int done)
{
	const char *command = rerun->options->command[0];

	if (!ended_by_loss(rerun, info) || rerun->revoked || rerun->stopped)
		return false;
	if (done > rerun->options->reruns) {
		cli_print("not running %s again: --reruns %d used up", command,
			  rerun->options->reruns);
		return false;
	}
	if (!wait_ready(rerun))
		return false;
	cli_print("running %s again (%d of %d)", command, done, rerun->options->reruns);
	return true;
}

/* Ends as the job did. */
static int end_like(const siginfo_t *info)
{
	struct rlimit no_core = {};
	sigset_t set;

	if (info->si_code == CLD_EXITED)
		return info->si_status;
	(void)setrlimit(RLIMIT_CORE, &no_core);
	(void)signal(info->si_status, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, info->si_status);
	(void)raise(info->si_status);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	return 128 + info->si_status;
}

int rerun_job(struct call *call, const struct grant *grant, const struct lease_options *options,
	      bool continues)
{
	_cleanup_(rerun_done) struct rerun rerun = {
		.grant = grant,
		.options = options,
		.signal_fd = -EBADF,
		.job_fd = -EBADF,
	};
	siginfo_t info;
	int done = 0, r;

	lease_line_init(&rerun.line, call, grant->id, continues);
	r = grant_apply(grant);
	if (r == 0)
		r = rerun_prepare(&rerun);
	do {
		if (r == 0)
			r = start_job(&rerun);
		if (r < 0) {
			cli_print("cannot start the job of lease %s: %s", grant->id, strerror(-r));
			return CLI_NO_LEASE;
		}
		watch_job(&rerun, &info);
	} while (run_again(&rerun, &info, ++done));
	return end_like(&info);
}
