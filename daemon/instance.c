/* SPDX-License-Identifier: MIT */
#include "instance.h"

#include <limits.h>
#include <signal.h>

#include "instance_parts.h"
#include "procinfo.h"
#include "rundir.h"
#include "sockpeer.h"
#include "spawn.h"
#include "text.h"
#include "util.h"

/* Coprime to the 256 phases, so that neighbours are far from each other. */
#define PHASE_STEP 97
/* Of the timers of instances with leases: many of them at once would keep others waiting. */
#define BUSY_ACCURACY_USEC (20 * USEC_PER_MSEC)
#define PROGRAM_DIRECTORIES "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

uint64_t instance_now_usec(const struct instance *instance)
{
	uint64_t usec;

	if (sd_event_now(instance->setup.processes->event, CLOCK_MONOTONIC, &usec) < 0)
		usec = clock_usec(CLOCK_MONOTONIC);
	return usec;
}

struct journal_context instance_context(const struct instance *instance, const char *role, int pid)
{
	return (struct journal_context){
		.instance = instance_name(instance),
		.role = role,
		.pid = pid,
	};
}

/* ---------------------------------------------------------------- its death */

static void describe_death(struct instance *instance, struct instance_death *death, pid_t pid)
{
	const char *words =
		instance->lines.n > 0
			? instance_lines_get(&instance->lines,
					     MIN(instance->lines.n, (uint64_t)INSTANCE_LINES_MAX) -
						     1)
			: "";
	bool ordered = instance->fsm.state == INSTANCE_STOPPING && instance->fsm.reason[0];

	(void)text_format(death->reason, sizeof(death->reason), "%s%scontrol daemon %d %s%s%.*s",
			  ordered ? instance->fsm.reason : "", ordered ? "; " : "", pid,
			  death->status, !ordered && *words ? "; its last words: " : "",
			  ordered ? 0 : INSTANCE_LINE_SIZE, words);
}

/* What was ordered, and harms nobody. */
static void report_end(struct instance *instance, pid_t pid, int status)
{
	struct journal_context context = instance_context(instance, NULL, pid);
	char how[64];

	process_describe_exit(status, how, sizeof(how));
	journal_log(LOG_INFO, &context, "control daemon %d %s", pid, how);
	instance_clients_forget(instance, 0);
	instance_dispatch(instance, INSTANCE_EVENT_DIED, "");
}

void instance_daemon_ended(struct process *process, int status, void *userdata)
{
	struct instance *instance = userdata;
	struct journal_context context = instance_context(instance, NULL, process->pid);
	bool ordered = instance->fsm.state == INSTANCE_STOPPING;
	struct instance_death *death;

	output_drain(&instance->output);
	if (instance_fsm_is_harmless(&instance->fsm)) {
		report_end(instance, process->pid, status);
		return;
	}
	instance->setup.stats->control_deaths++;
	death = instance_death_add(instance, instance->fsm.wedged ? INSTANCE_LOSS_WEDGE
								  : INSTANCE_LOSS_CONTROL);
	process_describe_exit(status, death->status, sizeof(death->status));
	describe_death(instance, death, process->pid);
	instance_clients_all(instance, &death->hits);
	instance_clients_forget(instance, 0);
	context.message_id = ordered ? NULL : JOURNAL_ID_CONTROL_LOST;
	journal_log(ordered ? LOG_INFO : LOG_ERR, &context, "%s", death->reason);
	instance_dispatch(instance, INSTANCE_EVENT_DIED, death->reason);
}

/* ---------------------------------------------------------------- effects */

static void do_clean(struct instance *instance)
{
	control_drop(&instance->control);
	instance_files_unwatch(instance);
	instance_servers_end(instance);
	instance_warm_forget(instance);
	if (instance->fsm.state == INSTANCE_STOPPED)
		rundir_remove_instance(instance->directory);
}

static void on_quit_over(const struct command_outcome *outcome, void *userdata)
{
	(void)outcome;
	instance_dispatch(userdata, INSTANCE_EVENT_QUIT_OVER, NULL);
}

static void do_quit(struct instance *instance)
{
	control_withdraw(&instance->control);
	if (control_send(&instance->control, "quit", instance->settings.stop_usec / 2, on_quit_over,
			 instance) < 0)
		(void)process_signal(&instance->daemon, SIGTERM);
}

/* Why does it not answer: whoever holds the other end of a connection that says nothing makes
 * it deaf (measured). Its servers and clients, and our own commands, hold some too. */
static void name_silent_peer(struct instance *instance)
{
	char control[PIPE_DIRECTORY_MAX + 32], privileged[PIPE_DIRECTORY_MAX + 32];
	const char *paths[] = {control, privileged};
	pid_t pids[32];
	int n;

	(void)text_format(control, sizeof(control), "%s/control", instance->directory);
	(void)text_format(privileged, sizeof(privileged), "%s/control_privileged",
			  instance->directory);
	n = sockpeer_find(paths, ELEMENTSOF(paths), pids, ELEMENTSOF(pids));
	for (int i = 0; i < n; i++) {
		struct procinfo info;
		char name[32];

		if (procinfo_read(pids[i], &info) < 0 || procinfo_name(pids[i], name, 32) < 0 ||
		    info.parent == getpid() || info.parent == instance_control_pid(instance) ||
		    instance_clients_find(instance, pids[i]))
			continue;
		(void)text_format(instance->fsm.reason, sizeof(instance->fsm.reason),
				  "does not answer commands; process %d (%s) of uid %u holds a "
				  "connection to its control socket",
				  pids[i], name, info.uid);
		return;
	}
}

static const char *message_id_of(enum instance_state state)
{
	return state == INSTANCE_FAILED         ? JOURNAL_ID_FAILED
	       : state == INSTANCE_UNRESPONSIVE ? JOURNAL_ID_UNRESPONSIVE
						: NULL;
}

static void report_change(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);
	const struct instance_fsm *fsm = &instance->fsm;
	int level = fsm->state == INSTANCE_FAILED || fsm->state == INSTANCE_BACKOFF ||
				    fsm->state == INSTANCE_UNRESPONSIVE ||
				    fsm->state == INSTANCE_FAULTED
			    ? LOG_WARNING
			    : LOG_INFO;

	if (fsm->state == INSTANCE_UNRESPONSIVE)
		name_silent_peer(instance);
	/* Of one that had been told before we came. */
	if (fsm->state == INSTANCE_FAULTED && !fsm->untold)
		instance_fault_describe(instance);
	instance->since_usec = clock_usec(CLOCK_REALTIME);
	instance_save_soon(instance);
	context.message_id = message_id_of(fsm->state);
	journal_log(level, &context, "%s%s%s", instance_state_to_string(fsm->state),
		    fsm->reason[0] ? ": " : "", fsm->reason);
	instance->setup.handlers->changed(instance, instance->setup.userdata);
}

/* Orderly stopping waits for clients: say for whom. */
static void report_blockers(struct instance *instance)
{
	struct instance_hits blockers;
	struct journal_context context;

	instance_clients_all(instance, &blockers);
	for (size_t i = 0; i < blockers.n_pids; i++) {
		context = instance_context(instance, NULL, blockers.pids[i]);
		journal_log(LOG_WARNING, &context, "client %d did not let the daemon quit in time",
			    blockers.pids[i]);
	}
}

static void do_term(struct instance *instance)
{
	report_blockers(instance);
	(void)process_signal(&instance->daemon, SIGTERM);
}

static void do_open(struct instance *instance)
{
	instance_files_remember(instance);
	instance->setup.handlers->opening(instance, instance->setup.userdata);
}

static void do_interrupt(struct instance *instance)
{
	struct instance_death *death = instance_death_last(instance);

	instance_fault_forget(instance);
	instance->setup.handlers->lost(instance, death, instance->setup.userdata);
	instance_save(instance);
	instance->setup.handlers->interrupted(instance, death, instance->setup.userdata);
}

static void do_kill(struct instance *instance)
{
	(void)process_signal(&instance->daemon, SIGKILL);
}

static void do_term_holdouts(struct instance *instance)
{
	instance_fault_signal(instance, SIGTERM);
}

static void do_kill_holdouts(struct instance *instance)
{
	instance_fault_signal(instance, SIGKILL);
}

/* Has an effect before it, by what others did when they heard of it, led somewhere else? */
static bool is_overtaken(const struct instance *instance, unsigned int effect)
{
	return effect == INSTANCE_SPAWN && instance->fsm.state != INSTANCE_STARTING;
}

/* In this order; what follows from an effect comes after all before it. */
static void carry_out(struct instance *instance, unsigned int effects)
{
	static const struct {
		unsigned int effects;
		void (*carry_out)(struct instance *instance);
	} table[] = {
		{INSTANCE_OPEN | INSTANCE_RENEW, do_open},
		{INSTANCE_CHANGED, report_change},
		{INSTANCE_INTERRUPT, do_interrupt},
		{INSTANCE_TELL_HIT, instance_fault_tell},
		{INSTANCE_TERMINATE_HOLDOUTS, instance_fault_terminate},
		{INSTANCE_TERM_HOLDOUTS, do_term_holdouts},
		{INSTANCE_KILL_HOLDOUTS, do_kill_holdouts},
		{INSTANCE_END_SERVERS, instance_warm_end_servers},
		{INSTANCE_QUIT, do_quit},
		{INSTANCE_TERM, do_term},
		{INSTANCE_KILL, do_kill},
		{INSTANCE_CLEAN, do_clean},
		{INSTANCE_SPAWN, instance_spawn},
		{INSTANCE_QUERY, instance_query},
	};

	for (size_t i = 0; i < ELEMENTSOF(table); i++)
		if (effects & table[i].effects && !is_overtaken(instance, table[i].effects))
			table[i].carry_out(instance);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	instance_dispatch(userdata, INSTANCE_EVENT_DEADLINE, NULL);
	return 0;
}

/* The farther a deadline, the less a delay matters, and the more timers share a wake-up. */
static uint64_t accuracy_of(const struct instance *instance, uint64_t deadline_usec)
{
	uint64_t now_usec = instance_now_usec(instance);
	uint64_t left_usec = deadline_usec - MIN(deadline_usec, now_usec);

	return MIN(MAX(left_usec / 32, USEC_PER_MSEC),
		   instance->occupied ? BUSY_ACCURACY_USEC : USEC_PER_SEC);
}

static void arm_timer(struct instance *instance)
{
	uint64_t deadline_usec = instance->fsm.deadline_usec;

	if (deadline_usec == USEC_INFINITY) {
		(void)sd_event_source_set_enabled(instance->timer, SD_EVENT_OFF);
		return;
	}
	(void)sd_event_source_set_time(instance->timer, deadline_usec);
	(void)sd_event_source_set_time_accuracy(instance->timer,
						accuracy_of(instance, deadline_usec));
	(void)sd_event_source_set_enabled(instance->timer, SD_EVENT_ONESHOT);
}

/* May be called again from inside carry_out: each step leaves the machine whole. */
void instance_dispatch(struct instance *instance, enum instance_event event, const char *reason)
{
	unsigned int effects = instance_fsm_step(&instance->fsm, &instance->settings, event, reason,
						 instance_now_usec(instance));

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
		.fault_grace_usec = config->timeouts.fault_grace_usec,
		.server_end_usec =
			config->timeouts.start_usec + config->timeouts.straggler_grace_usec,
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

/* The devices it shows, in this order. */
static int make_device_variable(struct instance *instance)
{
	static const char name[] = "CUDA_VISIBLE_DEVICES=";
	size_t size = sizeof(name) + instance->setup.n_devices * DEVICE_UUID_SIZE;
	char *text = malloc(size);
	size_t length = sizeof(name) - 1;

	if (!text)
		return -ENOMEM;
	(void)text_copy(text, size, name);
	for (size_t i = 0; i < instance->setup.n_devices; i++) {
		(void)text_format(text + length, size - length, "%s%s", i > 0 ? "," : "",
				  instance->setup.devices[i]->uuid);
		length = strlen(text);
	}
	instance->device_variable = text;
	return 0;
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
	return make_device_variable(instance);
}

static int make_paths(struct instance *instance)
{
	char name[9];
	int r;

	rundir_short_name(instance_name(instance), name);
	r = text_format(instance->directory, sizeof(instance->directory), "%s/instance/%s",
			instance->setup.runtime_directory, name);
	if (r < 0)
		return r;
	r = text_format(instance->fifo, sizeof(instance->fifo), "%s/state/%s.output",
			instance->setup.runtime_directory, name);
	if (r < 0)
		return r;
	r = text_format(instance->state_path, sizeof(instance->state_path),
			"%s/state/%s" INSTANCE_STATE_SUFFIX, instance->setup.runtime_directory,
			name);
	return r < 0 ? r : make_environment(instance);
}

static int add_timers(struct instance *instance)
{
	int r;

	r = sd_event_add_time(instance->setup.processes->event, &instance->timer, CLOCK_MONOTONIC,
			      0, USEC_PER_MSEC, on_timer, instance);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(instance->timer, SD_EVENT_OFF);
	(void)sd_event_source_set_priority(instance->timer, PRIORITY_TIMER);
	r = instance_warm_init(instance);
	if (r == 0)
		r = instance_state_init(instance);
	if (r < 0)
		return r;
	return instance_spawn_init(instance);
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
	(void)text_copy(instance->name, sizeof(instance->name), setup->name);
	instance->setup.name = instance->name;
	instance->multi_user = setup->multi_user;
	instance->daemon = PROCESS_INIT;
	instance->stale = PROCESS_INIT;
	instance->output.fd = -EBADF;
	instance->since_usec = clock_usec(CLOCK_REALTIME);
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		instance->servers[i] = (struct instance_server){
			.process = PROCESS_INIT,
			.thread_fd = -EBADF,
		};
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		instance->clients[i].pidfd = -EBADF;
	instance_configure(instance, setup->config);
	instance_fsm_init(&instance->fsm, (unsigned int)setup->index * PHASE_STEP,
			  instance_now_usec(instance));
	r = make_paths(instance);
	if (r < 0)
		return r;
	control_init(&instance->control, setup->processes, setup->program, instance->path_variable,
		     instance->pipe_variable, &setup->stats->control_commands,
		     &setup->stats->control_commands_failed);
	r = output_open(&instance->output, setup->processes->event, instance->fifo,
			instance_output_line, instance, &setup->stats->log_lines,
			&setup->stats->log_lines_cut);
	if (r < 0)
		return r;
	r = add_timers(instance);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(instance);
	return 0;
}

static void end_at_once(struct instance *instance)
{
	(void)process_signal(&instance->daemon, SIGKILL);
	instance_servers_end(instance);
	if (instance->output.fd < 0)
		return;
	(void)unlink(instance->fifo);
	(void)unlink(instance->state_path);
	rundir_remove_instance(instance->directory);
}

void instance_leave(struct instance *instance)
{
	instance_save(instance);
	instance->left = true;
}

struct instance *instance_free(struct instance *instance)
{
	if (!instance)
		return NULL;
	control_drop(&instance->control);
	if (!instance->left)
		end_at_once(instance);
	process_unwatch(&instance->daemon);
	process_unwatch(&instance->stale);
	instance_files_unwatch(instance);
	instance_servers_forget(instance);
	instance_clients_drop(instance);
	if (instance->output.fd >= 0)
		output_close(&instance->output);
	sd_event_source_disable_unref(instance->timer);
	sd_event_source_disable_unref(instance->patience);
	sd_event_source_disable_unref(instance->idle);
	sd_event_source_disable_unref(instance->save);
	free(instance->device_variable);
	free(instance);
	return NULL;
}

void instance_start(struct instance *instance)
{
	instance_dispatch(instance, INSTANCE_EVENT_START, NULL);
}

void instance_stop(struct instance *instance, const char *why)
{
	instance_dispatch(instance, INSTANCE_EVENT_STOP, why);
}

void instance_drain(struct instance *instance)
{
	instance_dispatch(instance, INSTANCE_EVENT_DRAIN, NULL);
}

void instance_recycle(struct instance *instance)
{
	instance_dispatch(instance, INSTANCE_EVENT_RECYCLE, NULL);
}

void instance_catch_up(struct instance *instance)
{
	output_catch_up(&instance->output);
	instance_dispatch(instance, INSTANCE_EVENT_SETTLED, NULL);
	instance_clients_prune(instance);
	instance_servers_catch_up(instance);
}

/* Who has a lease may be about to become a client, so both count where nobody is to be harmed. */
void instance_use_changed(struct instance *instance)
{
	instance_fsm_set_use(&instance->fsm, &instance->settings, instance->occupied,
			     instance->occupied || instance_clients_count(instance) > 0,
			     instance_now_usec(instance));
	arm_timer(instance);
}

void instance_set_occupied(struct instance *instance, bool occupied)
{
	bool changed = instance->occupied != occupied;

	instance->occupied = occupied;
	instance_use_changed(instance);
	if (changed)
		instance_warm_use_changed(instance);
	if (changed && !occupied && instance->fsm.held)
		instance_drain(instance);
}
