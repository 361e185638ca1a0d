/* SPDX-License-Identifier: MIT */
/*
 * Whom an adopted daemon has. A line that the supervisor before had read, and not written down when
 * it was killed, is lost; so the daemon is asked, once it answers. That adds who is not known and
 * takes nobody away: an empty answer proves nothing. Releases that do not name the clients who
 * leave are not asked: who has left would stay.
 */
#include "instance_parts.h"
#include "text.h"
#include "util.h"

/* Calls handler for each line that is a pid. */
static void each_pid(const char *text,
		     void (*handler)(struct instance *instance, int32_t pid, int32_t server),
		     struct instance *instance, int32_t server)
{
	struct mpslog_line line;

	for (size_t length; *text; text += length + (text[length] != '\0')) {
		length = strcspn(text, "\n");
		mpslog_parse(text, length, &line);
		if (line.kind == MPSLOG_NUMBER && line.pid > 0)
			handler(instance, line.pid, server);
	}
}

static void on_clients(const struct command_outcome *outcome, void *userdata)
{
	const struct instance_server *server = userdata;
	struct instance *instance = server->instance;

	if (!instance || instance->nameless || instance->no_status)
		return;
	if (control_is_done(outcome))
		each_pid(outcome->output, instance_clients_add, instance, server->process.pid);
	else
		instance->unlisted = true;
	/* Who has left since it was asked. */
	instance_clients_prune(instance);
}

static void list_server(struct instance *instance, int32_t pid, int32_t unused)
{
	struct instance_server *server = instance_servers_list(instance, pid);
	char command[CONTROL_COMMAND_SIZE];

	(void)unused;
	if (!server)
		return;
	(void)text_format(command, sizeof(command), "get_client_list %d", pid);
	if (control_send(&instance->control, command, instance->setup.config->timeouts.query_usec,
			 on_clients, server) < 0)
		instance->unlisted = true;
}

static void on_servers(const struct command_outcome *outcome, void *userdata)
{
	struct instance *instance = userdata;

	if (control_is_done(outcome))
		each_pid(outcome->output, list_server, instance, 0);
	else
		instance->unlisted = true;
}

void instance_call_roll(struct instance *instance)
{
	if (!instance->unlisted || instance->nameless || instance->no_status)
		return;
	instance->unlisted =
		control_send(&instance->control, "get_server_list",
			     instance->setup.config->timeouts.query_usec, on_servers, instance) < 0;
}
