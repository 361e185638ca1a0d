/* SPDX-License-Identifier: MIT */
/* Starting a control daemon, when what was there before it is out of the way. */
#include <limits.h>
#include <signal.h>

#include "instance_parts.h"
#include "procinfo.h"
#include "rundir.h"
#include "spawn.h"
#include "text.h"
#include "util.h"

/* With old servers, before a new daemon is started. */
#define PATIENCE_USEC (30 * USEC_PER_MSEC)

static void on_stale_exit(struct process *process, int status, void *userdata)
{
	struct instance *instance = userdata;

	(void)process;
	(void)status;
	instance_spawn_again(instance);
}

bool instance_is_our_daemon(const struct instance *instance, pid_t pid)
{
	char directory[PATH_MAX];
	struct procinfo info;

	return procinfo_read(pid, &info) == 0 && info.uid == geteuid() &&
	       procinfo_environment(pid, "CUDA_MPS_PIPE_DIRECTORY", directory, sizeof(directory)) ==
		       0 &&
	       streq(directory, instance->directory);
}

/*
 * A control daemon holds our directory and is nobody's child: an earlier supervisor was killed.
 * Proven by the lock, its user and its environment it is ended, and the start goes on when it is
 * gone. INSTANCE_WAITS then.
 */
enum {
	INSTANCE_WAITS = 1
};
static int end_stale_daemon(struct instance *instance, pid_t pid, char *reason)
{
	struct journal_context context = instance_context(instance, NULL, pid);
	int pidfd, r;

	r = process_open(pid, &pidfd);
	if (r == 0 && !instance_is_our_daemon(instance, pid)) {
		(void)safe_close(pidfd);
		r = -EBUSY;
	}
	if (r == 0)
		r = process_watch(&instance->stale, instance->setup.processes, pid, pidfd,
				  on_stale_exit, instance);
	if (r < 0) {
		(void)text_format(reason, REASON_SIZE,
				  "process %d holds the lock of %s and is no daemon of ours; end "
				  "it first",
				  pid, instance->directory);
		return r;
	}
	journal_log(LOG_WARNING, &context,
		    "ending control daemon %d, which an earlier supervisor left", pid);
	(void)process_signal(&instance->stale, SIGKILL);
	return INSTANCE_WAITS;
}

static int prepare(struct instance *instance, char *reason)
{
	pid_t holder;
	int r;

	r = rundir_prepare_instance(instance->directory, &holder);
	if (r == 0 && holder != 0)
		return end_stale_daemon(instance, holder, reason);
	if (r < 0)
		(void)text_format(reason, REASON_SIZE, "cannot prepare %s: %s", instance->directory,
				  strerror(-r));
	return r;
}

static int spawn_daemon(struct instance *instance)
{
	char *argv[] = {(char *)instance->setup.program, (char *)"-f",
			instance->setup.multi_user ? (char *)"-multiuser-server" : NULL, NULL};
	char *envp[] = {instance->path_variable, instance->pipe_variable, instance->log_variable,
			instance->device_variable, NULL};
	int pidfd, r;
	pid_t pid;

	r = spawn_process(
		&(struct spawn){
			.path = instance->setup.program,
			.argv = argv,
			.envp = envp,
			.stdin_fd = -EBADF,
			.stdout_fd = instance->output.fd,
			.stderr_fd = instance->output.fd,
			.own_session = true,
		},
		&pid, &pidfd);
	if (r < 0)
		return r;
	r = process_watch(&instance->daemon, instance->setup.processes, pid, pidfd,
			  instance_daemon_ended, instance);
	if (r < 0)
		(void)kill(pid, SIGKILL); /* our child, and not reaped yet */
	return r;
}

static bool must_wait(const struct instance *instance)
{
	return process_is_watched(&instance->stale) ||
	       (instance_servers_alive(instance) && !instance->impatient);
}

static int on_patience_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct instance *instance = userdata;

	(void)source;
	(void)usec;
	instance->impatient = true;
	instance_spawn_again(instance);
	return 0;
}

/* Old servers have SIGKILL and are on their way; one with GPU contexts takes a while to go, and the
 * new daemon can do without seeing its end. A daemon on our directory cannot be done without. */
static void wait_for_the_old(struct instance *instance)
{
	if (instance->spawn_waits)
		return;
	instance->spawn_waits = true;
	(void)sd_event_source_set_time_relative(instance->patience, PATIENCE_USEC);
	(void)sd_event_source_set_enabled(instance->patience, SD_EVENT_ONESHOT);
}

void instance_spawn(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);
	char reason[REASON_SIZE];
	int r;

	if (process_is_watched(&instance->daemon)) {
		instance_adopt(instance);
		return;
	}
	if (must_wait(instance)) {
		wait_for_the_old(instance);
		return;
	}
	r = prepare(instance, reason);
	if (r == INSTANCE_WAITS) {
		instance->spawn_waits = true;
		return;
	}
	instance->spawn_waits = instance->impatient = false;
	(void)sd_event_source_set_enabled(instance->patience, SD_EVENT_OFF);
	instance->lines = (struct instance_lines){};
	instance->failure[0] = '\0';
	instance->no_status = instance->nameless = instance->answering = false;
	instance->unlisted = false;
	instance_fault_forget(instance);
	if (!instance->occupied)
		instance->setup.multi_user = instance->multi_user;
	if (r == 0) {
		r = spawn_daemon(instance);
		(void)text_format(reason, sizeof(reason), "cannot start %.100s: %s",
				  instance->setup.program, strerror(-r));
	}
	if (r < 0) {
		instance_dispatch(instance, INSTANCE_EVENT_SPAWN_FAILED, reason);
		return;
	}
	instance->setup.stats->control_starts++;
	context.pid = instance->daemon.pid;
	journal_log(LOG_INFO, &context, "started control daemon %d", context.pid);
	instance_save(instance);
	instance_files_watch(instance);
	instance_dispatch(instance, INSTANCE_EVENT_SPAWNED, NULL);
}

void instance_spawn_again(struct instance *instance)
{
	if (instance->spawn_waits && instance->fsm.state == INSTANCE_STARTING)
		instance_spawn(instance);
}

int instance_spawn_init(struct instance *instance)
{
	int r;

	r = sd_event_add_time(instance->setup.processes->event, &instance->patience,
			      CLOCK_MONOTONIC, 0, USEC_PER_MSEC, on_patience_over, instance);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(instance->patience, SD_EVENT_OFF);
}
