/* SPDX-License-Identifier: MIT */
#include <poll.h>

#include "instance_parts.h"
#include "text.h"
#include "util.h"

static void forget(struct instance_client *client)
{
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
	*client = (struct instance_client){.pid = pid, .pidfd = -EBADF, .server = server};
	if (process_open(pid, &client->pidfd) == 0)
		instance->setup.handlers->identify(instance, pid, client->lease,
						   instance->setup.userdata);
	instance_use_changed(instance);
}

static void has_gone(struct instance *instance, struct instance_client *client)
{
	bool hit = client->hit;

	forget(client);
	instance_use_changed(instance);
	if (hit)
		instance_fault_client_gone(instance);
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
	}
}

void instance_clients_forget(struct instance *instance, int32_t server)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0 &&
		    (server == 0 || instance->clients[i].server == server))
			forget(&instance->clients[i]);
	instance_use_changed(instance);
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
