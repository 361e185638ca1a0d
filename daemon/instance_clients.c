/* SPDX-License-Identifier: MIT */
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>

#include "instance_parts.h"
#include "text.h"
#include "util.h"

static void forget(struct instance_client *client)
{
	client->end = sd_event_source_disable_unref(client->end);
	client->pidfd = safe_close(client->pidfd);
	*client = (struct instance_client){.pidfd = -EBADF};
}

struct instance_client *instance_clients_find(struct instance *instance, int32_t pid)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid == pid)
			return &instance->clients[i];
	return NULL;
}

/* A pidfd is readable when its process has ended. */
static bool has_ended(const struct instance_client *client)
{
	struct pollfd pollfd = {.fd = client->pidfd, .events = POLLIN};

	return client->pidfd < 0 || poll(&pollfd, 1, 0) > 0;
}

void instance_clients_add(struct instance *instance, int32_t pid, int32_t server)
{
	struct instance_client *client;

	/* A line for each context of a process: the first one counts, while it is the same process.
	 */
	client = pid > 0 ? instance_clients_find(instance, pid) : NULL;
	if (client && !has_ended(client))
		return;
	if (client)
		forget(client);
	client = pid > 0 ? instance_clients_find(instance, 0) : NULL;
	if (!client)
		return;
	*client = (struct instance_client){
		.instance = instance,
		.pid = pid,
		.pidfd = -EBADF,
		.server = server,
	};
	if (process_open(pid, &client->pidfd) == 0)
		instance->setup.handlers->identify(instance, pid, client->lease,
						   instance->setup.userdata);
	instance_save_soon(instance);
	instance_use_changed(instance);
}

static void tell(struct instance *instance)
{
	instance_save_soon(instance);
	instance_use_changed(instance);
	instance->setup.handlers->clients_left(instance, instance->setup.userdata);
}

void instance_clients_adopt(struct instance *instance, pid_t pid, int pidfd, int32_t server,
			    bool hit, const char *lease)
{
	struct instance_client *client = instance_clients_find(instance, 0);

	if (!client) {
		(void)safe_close(pidfd);
		return;
	}
	*client = (struct instance_client){
		.instance = instance,
		.pid = pid,
		.pidfd = pidfd,
		.server = server,
		.hit = hit,
	};
	(void)text_copy(client->lease, sizeof(client->lease), lease);
}

static void has_gone(struct instance *instance, struct instance_client *client)
{
	bool hit = client->hit;

	forget(client);
	tell(instance);
	if (hit)
		instance_fault_client_gone(instance);
}

/* Some client has left, and this release will never say which: who was only listed may be anybody.
 */
static void forget_listed(struct instance *instance)
{
	instance->nameless = true;
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0 && !instance->clients[i].hit)
			forget(&instance->clients[i]);
	tell(instance);
}

void instance_clients_line(struct instance *instance, const struct mpslog_line *line)
{
	struct instance_client *client;

	if (!instance_servers_has(instance, line->writer))
		return;
	if (line->kind == MPSLOG_CLIENT_CONNECTED) {
		instance_clients_add(instance, line->pid, line->writer);
	} else if (line->kind == MPSLOG_CLIENT_GONE && line->pid > 0) {
		client = instance_clients_find(instance, line->pid);
		if (client)
			has_gone(instance, client);
	} else if (line->kind == MPSLOG_CLIENT_GONE && !instance->nameless) {
		forget_listed(instance);
	}
}

void instance_clients_forget(struct instance *instance, int32_t server)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0 &&
		    (server == 0 || instance->clients[i].server == server))
			forget(&instance->clients[i]);
	tell(instance);
}

void instance_clients_drop(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		forget(&instance->clients[i]);
}

void instance_clients_prune(struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0 && has_ended(&instance->clients[i]))
			has_gone(instance, &instance->clients[i]);
}

size_t instance_clients_count(const struct instance *instance)
{
	size_t n = 0;

	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		n += instance->clients[i].pid > 0;
	return n;
}

void instance_clients_all(const struct instance *instance, struct instance_hits *ret)
{
	*ret = (struct instance_hits){};
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0)
			instance_hits_add(ret, instance->clients[i].pid,
					  instance->clients[i].lease);
}

/* ---------------------------------------------------------------- those of a lease */

static bool is_of(const struct instance_client *client, const char *lease)
{
	return client->pid > 0 && streq(client->lease, lease);
}

size_t instance_attached(const struct instance *instance, const char *lease, int32_t *pids,
			 size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		if (!is_of(&instance->clients[i], lease))
			continue;
		if (n < max)
			pids[n] = instance->clients[i].pid;
		n++;
	}
	return n;
}

/* What MPS wrote before that end comes first: it may be that a fault hit it. */
static int on_client_end(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct instance_client *client = userdata;
	struct instance *instance = client->instance;
	int32_t pid = client->pid;

	(void)fd;
	(void)revents;
	(void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
	output_catch_up(&instance->output);
	if (client->pid == pid)
		has_gone(instance, client);
	return 0;
}

void instance_watch_attached(struct instance *instance, const char *lease)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		struct instance_client *client = &instance->clients[i];

		if (!is_of(client, lease) || client->end)
			continue;
		/* When it cannot be watched, MPS's line or the next question tells. */
		(void)sd_event_add_io(instance->setup.processes->event, &client->end, client->pidfd,
				      EPOLLIN, on_client_end, client);
	}
}

void instance_signal_attached(struct instance *instance, const char *lease, int signal_number)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		const struct instance_client *client = &instance->clients[i];
		struct journal_context context = instance_context(instance, NULL, client->pid);

		if (!is_of(client, lease))
			continue;
		context.lease = client->lease;
		journal_log(LOG_WARNING, &context,
			    "client %d is attached still and the lease is over: %s", client->pid,
			    signal_number == SIGKILL ? "SIGKILL" : "SIGTERM");
		(void)process_signal_pidfd(client->pidfd, signal_number);
	}
}
