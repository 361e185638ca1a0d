/* SPDX-License-Identifier: MIT */
#include <signal.h>
#include <sys/epoll.h>

#include "instance_parts.h"
#include "procinfo.h"
#include "text.h"
#include "util.h"

static struct instance_server *find_server(struct instance *instance, pid_t pid)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance && instance->servers[i].process.pid == pid)
			return &instance->servers[i];
	return NULL;
}

static void unwatch_thread(struct instance_server *server)
{
	server->thread = sd_event_source_disable_unref(server->thread);
	server->thread_fd = safe_close(server->thread_fd);
}

static void forget(struct instance_server *server)
{
	unwatch_thread(server);
	process_unwatch(&server->process);
	*server = (struct instance_server){.process = PROCESS_INIT, .thread_fd = -EBADF};
}

/* ---------------------------------------------------------------- ends */

static bool was_ours(const struct instance *instance, int32_t pid)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->proven_servers[i] == pid)
			return true;
	return false;
}

/* A server failed: it never served, or ended with a status. Too often is too often, whatever the
 * control daemon thinks: it would go on for ever, and its clients would hang. */
static void count_failure(struct instance *instance, int32_t pid)
{
	char reason[REASON_SIZE];
	uint64_t delay_usec = 0;
	int r;

	if (instance->counted_server == pid)
		return;
	instance->counted_server = pid;
	r = backoff_death(&instance->server_backoff, &instance->settings.backoff,
			  instance_now_usec(instance), &delay_usec);
	instance->prestart_after_usec =
		instance_now_usec(instance) + MAX(delay_usec, instance->settings.backoff.min_usec);
	if (r != BACKOFF_GIVE_UP)
		return;
	(void)text_format(reason, sizeof(reason), "its MPS servers end again and again%s%s",
			  instance->failure[0] ? ": " : "", instance->failure);
	backoff_reset(&instance->server_backoff);
	instance_dispatch(instance, INSTANCE_EVENT_SERVERS_FAIL, reason);
}

static void report_loss(struct instance *instance, pid_t pid, int status)
{
	struct journal_context context = instance_context(instance, NULL, pid);
	struct instance_death *death = instance_death_add(instance, INSTANCE_LOSS_SERVER);

	context.message_id = JOURNAL_ID_SERVER_LOST;
	process_describe_exit(status, death->status, sizeof(death->status));
	(void)text_format(death->reason, sizeof(death->reason), "MPS server %d %s", pid,
			  death->status);
	instance_clients_all(instance, &death->hits);
	instance_clients_forget(instance, pid);
	journal_log(LOG_ERR, &context, "%s", death->reason);
	instance_dispatch(instance, INSTANCE_EVENT_SERVER_LOST, death->reason);
	/* With it went whoever a fault had hit. */
	instance_dispatch(instance, INSTANCE_EVENT_VICTIMS_GONE, NULL);
}

/* Gone, or on its way out: its descriptors may be closed already, its pidfd need not say so yet. */
static bool is_ending(pid_t pid)
{
	struct procinfo info;

	return procinfo_read(pid, &info) < 0 || info.exiting;
}

/* With its control daemon, also one that is being ended, a server ends too, and that is one loss:
 * the control daemon's. */
static bool control_lives(const struct instance *instance)
{
	pid_t pid = instance_control_pid(instance);

	return pid > 0 && instance->fsm.state != INSTANCE_STOPPING && !is_ending(pid);
}

bool instance_control_is_ending(const struct instance *instance)
{
	pid_t pid = instance_control_pid(instance);

	return pid > 0 && is_ending(pid);
}

static bool any_is_ending(const struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance && instance->servers[i].lost)
			return true;
	return false;
}

static void on_server_exit(struct process *process, int status, void *userdata)
{
	struct instance_server gone = *(struct instance_server *)userdata;
	struct instance *instance = gone.instance;
	struct journal_context context = instance_context(instance, NULL, process->pid);
	pid_t pid = process->pid;

	instance->setup.stats->server_deaths++;
	forget(userdata);
	if (control_lives(instance) && !gone.lost && gone.ready && !gone.expected) {
		report_loss(instance, pid, status);
	} else {
		journal_log(LOG_INFO, &context, "MPS server %d has ended", pid);
		if (control_lives(instance) && !gone.lost)
			instance_clients_forget(instance, pid);
		if (control_lives(instance) && !gone.ready && !gone.lost && !gone.expected)
			count_failure(instance, pid);
	}
	if (!instance_servers_alive(instance))
		instance_spawn_again(instance);
	if (!any_is_ending(instance) && !instance->ending_servers)
		instance_dispatch(instance, INSTANCE_EVENT_SERVER_GONE, NULL);
	instance_save_soon(instance);
	instance_warm_servers_changed(instance);
}

void instance_servers_catch_up(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++) {
		struct instance_server *server = &instance->servers[i];

		if (!server->instance || !server->ready || server->expected || server->lost ||
		    !control_lives(instance) || !is_ending(server->process.pid))
			continue;
		server->lost = true;
		report_loss(instance, server->process.pid, -1);
	}
}

static void watch_thread(struct instance_server *server);

/* A thread has ended: of a server that is being killed, or for reasons of its own; then another one
 * is watched. In the end the server's own pidfd tells. */
static int on_thread_end(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct instance_server *server = userdata;

	(void)source;
	(void)fd;
	(void)revents;
	unwatch_thread(server);
	instance_servers_catch_up(server->instance);
	if (server->instance && !server->lost)
		watch_thread(server);
	return 0;
}

static void watch_thread(struct instance_server *server)
{
	if (server->thread || process_open_thread(server->process.pid, &server->thread_fd) < 0)
		return;
	if (sd_event_add_io(server->process.processes->event, &server->thread, server->thread_fd,
			    EPOLLIN, on_thread_end, server) < 0)
		unwatch_thread(server);
	else
		(void)sd_event_source_set_priority(server->thread, PRIORITY_DEATH);
}

/* ---------------------------------------------------------------- births */

static struct instance_server *free_place(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (!instance->servers[i].instance)
			return &instance->servers[i];
	return NULL;
}

/* A number in a log line is a claim: prove that it is a child of our control daemon. */
static int open_server(struct instance *instance, pid_t pid, int *ret_pidfd)
{
	_cleanup_close_ int pidfd = -EBADF;
	struct procinfo info;
	int r;

	r = process_open(pid, &pidfd);
	if (r < 0)
		return r;
	r = procinfo_read(pid, &info);
	if (r < 0)
		return r;
	if (info.parent != instance_control_pid(instance))
		return -EPERM;
	*ret_pidfd = TAKE_FD(pidfd);
	return 0;
}

static void watch_server(struct instance *instance, struct instance_server *server, pid_t pid,
			 int pidfd, uint32_t uid)
{
	*server = (struct instance_server){
		.instance = instance,
		.process = PROCESS_INIT,
		.thread_fd = -EBADF,
		.uid = uid,
	};
	if (process_watch(&server->process, instance->setup.processes, pid, pidfd, on_server_exit,
			  server) < 0)
		forget(server);
}

static void add_server(struct instance *instance, const struct mpslog_line *line)
{
	struct instance_server *server = free_place(instance);
	int pidfd = -EBADF;

	if (line->pid <= 0 || find_server(instance, line->pid) || !server)
		return;
	instance->setup.stats->server_starts++;
	/* One that is gone already never served; its exit is in the log too. */
	if (open_server(instance, line->pid, &pidfd) < 0)
		return;
	instance->proven_servers[instance->n_proven_servers++ % INSTANCE_SERVERS_MAX] = line->pid;
	watch_server(instance, server, line->pid, pidfd, line->uid);
	instance_save_soon(instance);
	instance_warm_servers_changed(instance);
}

/* ---------------------------------------------------------------- what the log says of them */

static void set_expected(struct instance *instance, pid_t pid)
{
	struct instance_server *server = find_server(instance, pid);

	if (server)
		server->expected = true;
	for (size_t i = 0; i < instance->n_missing; i++)
		if (instance->missing[i] == pid)
			instance->missing[i] = 0;
}

static void set_kept(struct instance *instance, pid_t pid)
{
	struct instance_server *server = find_server(instance, pid);

	if (!server)
		return;
	server->expected = server->asked = false;
	instance_warm_kept(instance);
}

static void set_ready(struct instance *instance, pid_t pid)
{
	struct instance_server *server = find_server(instance, pid);

	if (server) {
		server->ready = true;
		watch_thread(server);
		instance_save_soon(instance);
	}
	instance->failure[0] = '\0';
	backoff_up(&instance->server_backoff, instance_now_usec(instance));
}

static void note_failure(struct instance *instance, const struct mpslog_line *line)
{
	static const char start[] = "Failed to start : ";
	size_t skip = sizeof(start) - 1;

	(void)text_format(instance->failure, sizeof(instance->failure), "%.*s",
			  (int)MIN(line->text_length - skip, sizeof(instance->failure) - 1),
			  line->text + skip);
}

void instance_servers_line(struct instance *instance, const struct mpslog_line *line)
{
	switch (line->kind) {
	case MPSLOG_SERVER_START:
		add_server(instance, line);
		return;
	case MPSLOG_SERVER_READY:
		set_ready(instance, line->pid);
		return;
	case MPSLOG_SERVER_NOTIFIED:
		set_expected(instance, line->writer);
		return;
	case MPSLOG_SERVER_KEPT:
		set_kept(instance, line->writer);
		return;
	case MPSLOG_SERVER_EXIT:
		/* Whoever reaches the socket can make the daemon write lines: its commands are
		 * logged with their line ends. */
		if (line->status != 0 && was_ours(instance, line->pid))
			count_failure(instance, line->pid);
		return;
	case MPSLOG_START_FAILED:
		note_failure(instance, line);
		return;
	default:
		return;
	}
}

void instance_servers_adopt(struct instance *instance, pid_t pid, int pidfd, uint32_t uid,
			    bool ready, bool asked, bool expected)
{
	struct instance_server *server = free_place(instance);

	if (!server) {
		(void)safe_close(pidfd);
		return;
	}
	instance->proven_servers[instance->n_proven_servers++ % INSTANCE_SERVERS_MAX] = pid;
	watch_server(instance, server, pid, pidfd, uid);
	server->ready = ready;
	server->asked = asked;
	server->expected = expected;
	if (ready && server->instance)
		watch_thread(server);
}

struct instance_server *instance_servers_list(struct instance *instance, pid_t pid)
{
	struct mpslog_line start = {.kind = MPSLOG_SERVER_START, .pid = pid};
	struct instance_server *server;

	if (!find_server(instance, pid) && procinfo_real_uid(pid, &start.uid) == 0)
		add_server(instance, &start);
	server = find_server(instance, pid);
	if (!server || server->lost)
		return NULL;
	if (!server->ready)
		set_ready(instance, pid);
	return server;
}

void instance_servers_lost_while_away(struct instance *instance, pid_t pid)
{
	if (pid > 0)
		report_loss(instance, pid, -1);
}

void instance_servers_shut_down(struct instance *instance)
{
	char command[CONTROL_COMMAND_SIZE];

	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++) {
		struct instance_server *server = &instance->servers[i];

		if (!server->instance || server->asked || server->lost)
			continue;
		server->asked = server->expected = true;
		(void)text_format(command, sizeof(command), "shutdown_server %d",
				  server->process.pid);
		/* When it cannot be sent or is not heeded, the machine's deadline comes. */
		(void)control_send(&instance->control, command, instance->settings.start_usec, NULL,
				   NULL);
	}
}

void instance_servers_end(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance) {
			(void)process_signal(&instance->servers[i].process, SIGKILL);
			instance->servers[i].lost = true;
		}
}

void instance_servers_forget(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance)
			forget(&instance->servers[i]);
}

bool instance_servers_has(const struct instance *instance, int32_t pid)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance && instance->servers[i].process.pid == pid)
			return true;
	return false;
}

bool instance_servers_alive(const struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance)
			return true;
	return false;
}

const struct instance_server *instance_servers_ready(const struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance && instance->servers[i].ready &&
		    !instance->servers[i].lost)
			return &instance->servers[i];
	return NULL;
}
