/* SPDX-License-Identifier: MIT */
#include "instance_servers.h"

#include <signal.h>

#include "journal.h"
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

static void forget(struct instance_server *server)
{
	process_unwatch(&server->process);
	*server = (struct instance_server){.process = PROCESS_INIT};
}

static void on_server_exit(struct process *process, int status, void *userdata)
{
	struct instance_server *server = userdata;
	struct instance *instance = server->instance;
	bool lost = server->ready && !server->expected && instance_control_pid(instance) > 0;
	struct journal_context context = {
		.instance = instance->setup.device->uuid,
		.pid = process->pid,
	};
	pid_t pid = process->pid;

	instance->setup.stats->server_deaths++;
	forget(server);
	if (lost)
		instance_server_lost(instance, pid, status);
	else
		journal_log(LOG_INFO, &context, "MPS server %d ended", pid);
	if (!instance_servers_alive(instance))
		instance_servers_gone(instance);
}

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

static void add_server(struct instance *instance, const struct mpslog_line *line)
{
	struct instance_server *server = free_place(instance);
	int pidfd;

	if (line->pid <= 0 || find_server(instance, line->pid) || !server)
		return;
	if (open_server(instance, line->pid, &pidfd) < 0)
		return;
	instance->setup.stats->server_starts++;
	*server = (struct instance_server){
		.instance = instance,
		.process = PROCESS_INIT,
		.uid = line->uid,
	};
	if (process_watch(&server->process, instance->setup.processes, line->pid, pidfd,
			  on_server_exit, server) < 0)
		forget(server);
}

static void set_expected(struct instance *instance, pid_t pid, bool expected)
{
	struct instance_server *server = find_server(instance, pid);

	if (server)
		server->expected = expected;
}

static void note_failure(struct instance *instance, const struct mpslog_line *line)
{
	(void)text_format(instance->failure, sizeof(instance->failure), "%.*s",
			  (int)MIN(line->text_length, sizeof(instance->failure) - 1), line->text);
}

void instance_servers_line(struct instance *instance, const struct mpslog_line *line)
{
	struct instance_server *server;

	switch (line->kind) {
	case MPSLOG_SERVER_START:
		add_server(instance, line);
		return;
	case MPSLOG_SERVER_READY:
		server = find_server(instance, line->pid);
		if (server)
			server->ready = true;
		instance->failure[0] = '\0';
		return;
	case MPSLOG_SERVER_NOTIFIED:
		set_expected(instance, line->writer, true);
		return;
	case MPSLOG_SERVER_KEPT:
		set_expected(instance, line->writer, false);
		return;
	case MPSLOG_START_FAILED:
		note_failure(instance, line);
		return;
	default:
		return;
	}
}

void instance_servers_end(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance)
			(void)process_signal(&instance->servers[i].process, SIGKILL);
}

void instance_servers_forget(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance)
			forget(&instance->servers[i]);
}

bool instance_servers_alive(const struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance)
			return true;
	return false;
}
