/* SPDX-License-Identifier: MIT */
#include "instance.h"

#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include "instance_servers.h"
#include "journal.h"
#include "procinfo.h"
#include "rundir.h"
#include "spawn.h"
#include "text.h"
#include "util.h"

#define PROGRAM_DIRECTORIES "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void dispatch(struct instance *instance, enum instance_event event, const char *reason);
static void do_spawn(struct instance *instance);

static uint64_t now_usec(const struct instance *instance)
{
	uint64_t usec;

	if (sd_event_now(instance->setup.processes->event, CLOCK_MONOTONIC, &usec) < 0)
		usec = clock_usec(CLOCK_MONOTONIC);
	return usec;
}

static const char *uuid_of(const struct instance *instance)
{
	return instance->setup.device->uuid;
}

static struct journal_context context_of(const struct instance *instance, const char *role, int pid)
{
	return (struct journal_context){.instance = uuid_of(instance), .role = role, .pid = pid};
}

/* ---------------------------------------------------------------- what it says */

static void remember_words(struct instance *instance, const struct mpslog_line *line)
{
	size_t length = MIN(line->text_length, sizeof(instance->words) - 1);

	if (line->kind == MPSLOG_NOISE || length == 0)
		return;
	memcpy(instance->words, line->text, length);
	instance->words[length] = '\0';
}

static void on_line(const char *text, size_t length, void *userdata)
{
	struct instance *instance = userdata;
	struct mpslog_line line;
	struct journal_context context;

	mpslog_parse(text, length, &line);
	context = context_of(instance,
			     line.writer == instance_control_pid(instance) ? "control" : "server",
			     line.writer);
	journal_log_foreign(line.kind == MPSLOG_NOISE ? LOG_DEBUG : LOG_INFO, &context, line.text,
			    line.text_length);
	remember_words(instance, &line);
	if (line.kind == MPSLOG_STARTING)
		dispatch(instance, INSTANCE_EVENT_HINT, NULL);
	else
		instance_servers_line(instance, &line);
}

/* ---------------------------------------------------------------- its life and death */

static struct instance_death *record_death(struct instance *instance, enum instance_loss what)
{
	struct instance_death *death =
		&instance->deaths[instance->n_deaths++ % INSTANCE_DEATHS_MAX];

	*death = (struct instance_death){.at_usec = clock_usec(CLOCK_REALTIME), .what = what};
	return death;
}

static void on_daemon_exit(struct process *process, int status, void *userdata)
{
	struct instance *instance = userdata;
	struct journal_context context = context_of(instance, NULL, process->pid);
	struct instance_death *death;
	char reason[REASON_SIZE];

	output_drain(&instance->output);
	instance->setup.stats->control_deaths++;
	death = record_death(instance, INSTANCE_LOSS_CONTROL);
	process_describe_exit(status, death->status, sizeof(death->status));
	(void)text_format(reason, sizeof(reason), "control daemon %d %s%s%s", process->pid,
			  death->status, instance->words[0] ? "; its last words: " : "",
			  instance->words);
	(void)text_copy(death->reason, sizeof(death->reason), reason);
	journal_log(instance->fsm.state == INSTANCE_STOPPING ? LOG_INFO : LOG_ERR, &context, "%s",
		    reason);
	dispatch(instance, INSTANCE_EVENT_DIED, reason);
}

void instance_server_lost(struct instance *instance, pid_t pid, int status)
{
	struct journal_context context = context_of(instance, NULL, pid);
	struct instance_death *death = record_death(instance, INSTANCE_LOSS_SERVER);

	process_describe_exit(status, death->status, sizeof(death->status));
	(void)text_format(death->reason, sizeof(death->reason), "MPS server %d %s", pid,
			  death->status);
	journal_log(LOG_ERR, &context, "%s", death->reason);
	dispatch(instance, INSTANCE_EVENT_SERVER_LOST, death->reason);
}

/* ---------------------------------------------------------------- effects */

static void on_stale_exit(struct process *process, int status, void *userdata)
{
	struct instance *instance = userdata;

	(void)process;
	(void)status;
	if (instance->spawn_waits && instance->fsm.state == INSTANCE_STARTING)
		do_spawn(instance);
}

/* Is it a control daemon on our directory, started by our user? */
static bool is_ours(const struct instance *instance, pid_t pid)
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
	struct journal_context context = context_of(instance, NULL, pid);
	int pidfd, r;

	r = process_open(pid, &pidfd);
	if (r == 0 && !is_ours(instance, pid)) {
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
	r = process_watch(&instance->daemon, instance->setup.processes, pid, pidfd, on_daemon_exit,
			  instance);
	if (r < 0)
		(void)kill(pid, SIGKILL); /* our child, and not reaped yet */
	return r;
}

static void do_spawn(struct instance *instance)
{
	struct journal_context context = context_of(instance, NULL, 0);
	char reason[REASON_SIZE];
	int r;

	instance->spawn_waits = true;
	if (instance_servers_alive(instance) || process_is_watched(&instance->stale))
		return;
	r = prepare(instance, reason);
	if (r == INSTANCE_WAITS)
		return;
	instance->spawn_waits = false;
	instance->words[0] = instance->failure[0] = '\0';
	if (r == 0) {
		r = spawn_daemon(instance);
		(void)text_format(reason, sizeof(reason), "cannot start %.100s: %s",
				  instance->setup.program, strerror(-r));
	}
	if (r < 0) {
		dispatch(instance, INSTANCE_EVENT_SPAWN_FAILED, reason);
		return;
	}
	instance->setup.stats->control_starts++;
	context.pid = instance->daemon.pid;
	journal_log(LOG_INFO, &context, "started control daemon %d", context.pid);
	dispatch(instance, INSTANCE_EVENT_SPAWNED, NULL);
}

void instance_servers_gone(struct instance *instance)
{
	if (instance->spawn_waits && instance->fsm.state == INSTANCE_STARTING)
		do_spawn(instance);
}

static void on_answer(const struct command_outcome *outcome, void *userdata)
{
	struct instance *instance = userdata;
	enum instance_event event = INSTANCE_EVENT_NO_ANSWER;

	if (control_is_answer(outcome))
		event = INSTANCE_EVENT_ANSWERED;
	else if (outcome->result == COMMAND_TIMED_OUT)
		event = INSTANCE_EVENT_TIMED_OUT;
	dispatch(instance, event, NULL);
}

/* get_server_list may be empty and right; this one always has something to say. */
static void do_query(struct instance *instance)
{
	const struct config *config = instance->setup.config;

	if (control_send(&instance->control, "get_default_active_thread_percentage",
			 config->timeouts.query_usec, on_answer, instance) < 0)
		dispatch(instance, INSTANCE_EVENT_NO_ANSWER, NULL);
}

static void do_clean(struct instance *instance)
{
	control_drop(&instance->control);
	instance_servers_end(instance);
	if (instance->fsm.state == INSTANCE_STOPPED)
		rundir_remove_instance(instance->directory);
}

static void do_quit(struct instance *instance)
{
	control_drop(&instance->control);
	if (control_send(&instance->control, "quit", instance->settings.stop_usec / 2, NULL, NULL) <
	    0)
		(void)process_signal(&instance->daemon, SIGTERM);
}

static void report_change(struct instance *instance)
{
	struct journal_context context = context_of(instance, NULL, 0);
	const struct instance_fsm *fsm = &instance->fsm;
	int level = fsm->state == INSTANCE_FAILED || fsm->state == INSTANCE_BACKOFF ||
				    fsm->state == INSTANCE_UNRESPONSIVE
			    ? LOG_WARNING
			    : LOG_INFO;

	instance->since_usec = clock_usec(CLOCK_REALTIME);
	journal_log(level, &context, "%s%s%s", instance_state_to_string(fsm->state),
		    fsm->reason[0] ? ": " : "", fsm->reason);
	instance->setup.handlers->changed(instance, instance->setup.userdata);
}

static void interrupt(struct instance *instance)
{
	const struct instance_death *death =
		&instance->deaths[(instance->n_deaths - 1) % INSTANCE_DEATHS_MAX];

	instance->setup.handlers->interrupted(instance, death, instance->setup.userdata);
}

/* In the order that instance_fsm.h gives; what follows from an effect comes after all of them. */
static void carry_out(struct instance *instance, unsigned int effects)
{
	if (effects & INSTANCE_OPEN)
		instance->setup.handlers->opening(instance, instance->setup.userdata);
	if (effects & INSTANCE_CHANGED)
		report_change(instance);
	if (effects & INSTANCE_INTERRUPT)
		interrupt(instance);
	if (effects & INSTANCE_QUIT)
		do_quit(instance);
	if (effects & INSTANCE_TERM)
		(void)process_signal(&instance->daemon, SIGTERM);
	if (effects & INSTANCE_KILL)
		(void)process_signal(&instance->daemon, SIGKILL);
	if (effects & INSTANCE_CLEAN)
		do_clean(instance);
	if (effects & INSTANCE_SPAWN)
		do_spawn(instance);
	if (effects & INSTANCE_QUERY)
		do_query(instance);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	dispatch(userdata, INSTANCE_EVENT_DEADLINE, NULL);
	return 0;
}

static void arm_timer(struct instance *instance)
{
	uint64_t deadline_usec = instance->fsm.deadline_usec;

	if (deadline_usec == USEC_INFINITY) {
		(void)sd_event_source_set_enabled(instance->timer, SD_EVENT_OFF);
		return;
	}
	(void)sd_event_source_set_time(instance->timer, deadline_usec);
	(void)sd_event_source_set_enabled(instance->timer, SD_EVENT_ONESHOT);
}

/* May be called again from inside carry_out: each step leaves the machine whole. */
static void dispatch(struct instance *instance, enum instance_event event, const char *reason)
{
	unsigned int effects = instance_fsm_step(&instance->fsm, &instance->settings, event, reason,
						 now_usec(instance));

	carry_out(instance, effects);
	arm_timer(instance);
}

/* ---------------------------------------------------------------- from outside */

void instance_configure(struct instance *instance, const struct config *config)
{
	instance->setup.config = config;
	instance->settings = (struct instance_settings){
		.start_usec = config->timeouts.start_usec,
		.stop_usec = config->timeouts.stop_usec,
		.interval_usec = config->health.interval_usec,
		.idle_interval_usec = config->health.idle_interval_usec,
		.wedge_grace_usec = config->health.wedge_grace_usec,
		.failed_retry_usec = config->restart.failed_retry_usec,
		.misses = (unsigned int)config->health.misses,
		.backoff =
			{
				.min_usec = config->restart.backoff_min_usec,
				.max_usec = config->restart.backoff_max_usec,
				.window_usec = config->restart.window_usec,
				.limit = (unsigned int)config->restart.limit,
			},
	};
}

/* The daemon finds its server through PATH: beside itself first. */
static int make_environment(struct instance *instance)
{
	const char *program = instance->setup.program;
	int r;

	r = text_format(instance->path_variable, sizeof(instance->path_variable), "PATH=%.*s:%s",
			(int)(strrchr(program, '/') - program), program, PROGRAM_DIRECTORIES);
	if (r < 0)
		return r;
	(void)text_format(instance->pipe_variable, sizeof(instance->pipe_variable),
			  "CUDA_MPS_PIPE_DIRECTORY=%s", instance->directory);
	(void)text_format(instance->log_variable, sizeof(instance->log_variable),
			  "CUDA_MPS_LOG_DIRECTORY=%s", instance->directory);
	(void)text_format(instance->device_variable, sizeof(instance->device_variable),
			  "CUDA_VISIBLE_DEVICES=%s", uuid_of(instance));
	return 0;
}

static int make_paths(struct instance *instance)
{
	char name[9];
	int r;

	rundir_short_name(uuid_of(instance), name);
	r = text_format(instance->directory, sizeof(instance->directory), "%s/instance/%s",
			instance->setup.runtime_directory, name);
	if (r < 0)
		return r;
	r = text_format(instance->fifo, sizeof(instance->fifo), "%s/state/%s.output",
			instance->setup.runtime_directory, name);
	return r < 0 ? r : make_environment(instance);
}

static int add_timer(struct instance *instance)
{
	int r;

	r = sd_event_add_time(instance->setup.processes->event, &instance->timer, CLOCK_MONOTONIC,
			      0, USEC_PER_MSEC, on_timer, instance);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(instance->timer, SD_EVENT_OFF);
	return sd_event_source_set_priority(instance->timer, PRIORITY_TIMER);
}

static void instance_freep(struct instance **instance)
{
	(void)instance_free(*instance);
}

int instance_new(const struct instance_setup *setup, struct instance **ret)
{
	_cleanup_(instance_freep) struct instance *instance = calloc(1, sizeof(*instance));
	int r;

	if (!instance)
		return -ENOMEM;
	instance->setup = *setup;
	instance->daemon = PROCESS_INIT;
	instance->stale = PROCESS_INIT;
	instance->output.fd = -EBADF;
	instance->since_usec = clock_usec(CLOCK_REALTIME);
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		instance->servers[i].process = PROCESS_INIT;
	instance_configure(instance, setup->config);
	instance_fsm_init(&instance->fsm, now_usec(instance));
	r = make_paths(instance);
	if (r < 0)
		return r;
	control_init(&instance->control, setup->processes, setup->program, instance->path_variable,
		     instance->pipe_variable, &setup->stats->control_commands,
		     &setup->stats->control_commands_failed);
	r = output_open(&instance->output, setup->processes->event, instance->fifo, on_line,
			instance, &setup->stats->log_lines, &setup->stats->log_lines_cut);
	if (r < 0)
		return r;
	r = add_timer(instance);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(instance);
	return 0;
}

struct instance *instance_free(struct instance *instance)
{
	if (!instance)
		return NULL;
	control_drop(&instance->control);
	(void)process_signal(&instance->daemon, SIGKILL);
	process_unwatch(&instance->daemon);
	process_unwatch(&instance->stale);
	instance_servers_end(instance);
	instance_servers_forget(instance);
	if (instance->output.fd >= 0) {
		output_close(&instance->output);
		(void)unlink(instance->fifo);
		rundir_remove_instance(instance->directory);
	}
	sd_event_source_disable_unref(instance->timer);
	free(instance);
	return NULL;
}

void instance_start(struct instance *instance)
{
	dispatch(instance, INSTANCE_EVENT_START, NULL);
}

void instance_stop(struct instance *instance)
{
	dispatch(instance, INSTANCE_EVENT_STOP, NULL);
}

void instance_set_occupied(struct instance *instance, bool occupied)
{
	instance_fsm_set_occupied(&instance->fsm, occupied);
}

void instance_prestart(struct instance *instance, uint32_t uid)
{
	char command[CONTROL_COMMAND_SIZE];

	if (instance->fsm.state != INSTANCE_READY || instance_servers_alive(instance))
		return;
	(void)text_format(command, sizeof(command), "start_server -uid %u", uid);
	(void)control_send(&instance->control, command, instance->setup.config->timeouts.query_usec,
			   NULL, NULL);
}

const char *instance_loss_to_string(enum instance_loss loss)
{
	switch (loss) {
	case INSTANCE_LOSS_CONTROL:
		return "control";
	case INSTANCE_LOSS_SERVER:
		return "server";
	}
	return "?";
}
