/* SPDX-License-Identifier: MIT */
/* What a front end may ask of the control daemon, and the answers. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon.h"
#include "knobs.h"
#include "logline.h"
#include "util.h"

struct client_entry {
	int pid;
	int id;
	int device;
};

static void answer_text(struct daemon *daemon, const char *text)
{
	char message[sizeof(int32_t) + WIRE_TEXT_MAX] = {WIRE_ANSWER_TEXT};
	size_t length = strnlen(text, WIRE_TEXT_MAX - 1);

	if (knob_on("empty_answers"))
		return;
	memcpy(message + sizeof(int32_t), text, length);
	(void)wire_send(daemon->ui_fd, message, sizeof(int32_t) + length);
}

static void __attribute__((format(printf, 2, 3)))
answer(struct daemon *daemon, const char *format, ...)
{
	char text[WIRE_TEXT_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_control("%s", text);
	answer_text(daemon, text);
}

void ui_end(struct daemon *daemon, int status)
{
	int32_t message[2] = {WIRE_ANSWER_END, status};

	if (daemon->ui_fd < 0)
		return;
	(void)wire_send(daemon->ui_fd, message, sizeof(message));
	close(daemon->ui_fd);
	daemon->ui_fd = -EBADF;
}

static void ui_close(struct daemon *daemon)
{
	ui_end(daemon, 0);
	log_control("UI closed");
}

/* The server of the pid that the arguments begin with; answers by itself when there is none. */
static bool require_server(struct daemon *daemon, const char *arguments)
{
	long pid = strtol(arguments, NULL, 10);

	if (daemon->server.pid && daemon->server.ready && daemon->server.pid == pid)
		return true;
	answer(daemon, "Server %ld not found", pid);
	return false;
}

/* 580 lets only root and the daemon's own user change anything; 535 lets everybody. */
static bool require_privilege(struct daemon *daemon)
{
	uid_t uid = daemon->ui_peer.uid;

	if (knob_is_535() || uid == 0 || uid == geteuid())
		return true;
	answer(daemon,
	       "Insufficient privileges for UID %d. Control deamon settings can only be modified "
	       "by the "
	       "user who started it or by the root user.",
	       (int)uid);
	return false;
}

static const char *skip_word(const char *text)
{
	while (*text && !isspace((unsigned char)*text))
		text++;
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

/* Reads one "pid id device" line of a server's list; returns what follows, NULL at the end. */
static const char *next_client(const char *list, struct client_entry *ret_client)
{
	const char *line_end = strchr(list, '\n');

	if (!line_end ||
	    sscanf(list, "%d %d %d", &ret_client->pid, &ret_client->id, &ret_client->device) != 3)
		return NULL;
	return line_end + 1;
}

static void get_server_list(struct daemon *daemon, const char *arguments)
{
	(void)arguments;
	if (daemon->server.pid && daemon->server.ready)
		answer(daemon, "%d", daemon->server.pid);
}

static void get_server_status(struct daemon *daemon, const char *arguments)
{
	static struct wire_reply reply;
	const char *text = knob_text("status_text");

	if (!require_server(daemon, arguments))
		return;
	if (text)
		answer(daemon, "%s", text);
	else if (server_ask(daemon, WIRE_OP_STATUS, 0, &reply))
		answer(daemon, "%s", reply.text);
}

static void get_client_list(struct daemon *daemon, const char *arguments)
{
	static struct wire_reply reply;
	struct client_entry client;
	const char *list = reply.text;

	if (!require_server(daemon, arguments) || !server_ask(daemon, WIRE_OP_LIST, 0, &reply))
		return;
	while ((list = next_client(list, &client)))
		answer(daemon, "%d", client.pid);
}

static void list_device_clients(struct daemon *daemon, int device, const char *list)
{
	const struct gpu *gpu = &daemon->gpus.devices[device];
	struct client_entry client;
	bool headed = false;

	while ((list = next_client(list, &client))) {
		if (client.device != device)
			continue;
		if (!headed)
			answer(daemon, "[%d] 00:00.0, %s", device, gpu->fields[GPU_NAME]);
		headed = true;
		answer(daemon, "%d.1", client.pid);
	}
}

static void get_device_client_list(struct daemon *daemon, const char *arguments)
{
	static struct wire_reply reply;

	if (isdigit((unsigned char)*arguments)) {
		if (!require_server(daemon, arguments))
			return;
	} else if (!daemon->server.ready) {
		return;
	}
	if (!server_ask(daemon, WIRE_OP_LIST, 0, &reply))
		return;
	for (size_t i = 0; i < daemon->gpus.n_devices; i++)
		list_device_clients(daemon, (int)i, reply.text);
}

static unsigned long long namespace_of(pid_t pid)
{
	char path[64];
	struct stat status;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	return stat(path, &status) < 0 ? 0 : (unsigned long long)status.st_ino;
}

static void command_of(pid_t pid, char *command, size_t size)
{
	char path[64];
	FILE *file;
	size_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	file = fopen(path, "re");
	if (file) {
		n = fread(command, 1, size - 1, file);
		fclose(file);
	}
	command[n] = '\0';
}

static void list_processes(struct daemon *daemon)
{
	static struct wire_reply reply;
	struct client_entry client;
	const char *list = reply.text;
	const char *uuid;
	char command[256];

	if (!server_ask(daemon, WIRE_OP_LIST, 0, &reply) || reply.text[0] == '\0')
		return;
	answer(daemon, "%-10s%-10s%-15s%-26s%-15s%-15s", "PID", "ID", "SERVER", "DEVICE",
	       "NAMESPACE", "COMMAND");
	while ((list = next_client(list, &client))) {
		uuid = daemon->gpus.devices[client.device].fields[GPU_UUID];
		command_of(client.pid, command, sizeof(command));
		answer(daemon, "%-10d%-10d%-15d%-26.22s%-15llu%-15s", client.pid, client.id,
		       daemon->server.pid, uuid, namespace_of(client.pid), command);
	}
}

static void ps(struct daemon *daemon, const char *arguments)
{
	char option = '\0';
	int pid = 0;

	if (sscanf(arguments, "-%c %d", &option, &pid) == 2 && option == 'p') {
		if (daemon->server.ready && daemon->server.pid == pid) {
			list_processes(daemon);
			return;
		}
		answer(daemon, "Server %d not found", pid);
		if (knob_is_535()) {
			char text[64];

			snprintf(text, sizeof(text), "Server %d not found\n", pid);
			log_control("Server %d not found", pid);
			answer_text(daemon, text);
		}
	} else if (daemon->server.ready) {
		list_processes(daemon);
	} else {
		answer(daemon, "Server not found");
	}
}

static void list_devices(struct daemon *daemon, const char *title, bool csv)
{
	char pci[32];
	unsigned int domain, bus, slot, function;

	answer(daemon, "%s", title);
	if (csv)
		answer(daemon, "Device Ordinal,PCI IDs,UUID,Name,Attributes");
	else
		answer(daemon, "%-16s%-15s%-42s%-34s%s", "Device Ordinal", "PCI IDs", "UUID",
		       "Name", "Attributes");
	for (size_t i = 0; i < daemon->gpus.n_devices; i++) {
		const struct gpu *gpu = &daemon->gpus.devices[i];

		text_copy(pci, sizeof(pci), gpu->fields[GPU_PCI_BUS_ID]);
		if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4)
			snprintf(pci, sizeof(pci), "%04x:%02x.%02x.%02x", domain, bus, slot,
				 function);
		answer(daemon, csv ? "%zu,%s,%s,%s,N/A" : "%-16zu%-15s%-42s%-34sN/A", i, pci,
		       gpu->fields[GPU_UUID], gpu->fields[GPU_NAME]);
	}
}

static void device_query(struct daemon *daemon, const char *arguments)
{
	bool csv = strstr(arguments, "--csv") != NULL;
	char title[64];

	list_devices(daemon, "Default", csv);
	if (!daemon->server.ready)
		return;
	answer(daemon, "%s", "");
	snprintf(title, sizeof(title), "Server %d", daemon->server.pid);
	list_devices(daemon, title, csv);
}

static void start_server(struct daemon *daemon, const char *arguments)
{
	int uid;

	if (sscanf(arguments, "-uid %d", &uid) != 1) {
		answer(daemon, "A user id (UID) is required to start a new server");
		return;
	}
	if (daemon->ui_peer.uid != 0 && daemon->ui_peer.uid != (uid_t)uid) {
		answer(daemon, "Insufficient privileges for UID %u", daemon->ui_peer.uid);
		return;
	}
	server_add_start(daemon, (uid_t)uid);
}

static void shutdown_server(struct daemon *daemon, const char *arguments)
{
	if (require_server(daemon, arguments) && require_privilege(daemon))
		server_stop(daemon, strstr(arguments, "-f") != NULL);
}

static void terminate_client(struct daemon *daemon, const char *arguments)
{
	static struct wire_reply reply;
	int client = (int)strtol(skip_word(arguments), NULL, 10);

	if (!require_server(daemon, arguments)) {
		answer(daemon, "Server %ld not found!", strtol(arguments, NULL, 10));
		answer(daemon, "1");
		return;
	}
	if (!require_privilege(daemon) || !server_ask(daemon, WIRE_OP_TERMINATE, client, &reply))
		return;
	if (reply.value != 0)
		answer(daemon, "Invalid process %d!", client);
	answer(daemon, "%d", reply.value);
}

static bool percentage_is_valid(double percentage)
{
	return percentage > 0.0 && percentage <= 100.0;
}

static void get_default_percentage(struct daemon *daemon, const char *arguments)
{
	(void)arguments;
	answer(daemon, "%.1f", daemon->default_percentage);
}

/* A value that makes no sense is told to the log alone. */
static void set_default_percentage(struct daemon *daemon, const char *arguments)
{
	double percentage = strtod(arguments, NULL);

	if (!require_privilege(daemon))
		return;
	if (percentage_is_valid(percentage))
		daemon->default_percentage = percentage;
	else
		log_control("Invalid percentage, expected between (0.0, 100.0]");
	answer(daemon, "%.1f", daemon->default_percentage);
}

static void get_percentage(struct daemon *daemon, const char *arguments)
{
	if (require_server(daemon, arguments))
		answer(daemon, "%.1f", daemon->server.percentage);
}

static void set_percentage(struct daemon *daemon, const char *arguments)
{
	double percentage = strtod(skip_word(arguments), NULL);

	if (!require_server(daemon, arguments) || !require_privilege(daemon))
		return;
	if (percentage_is_valid(percentage))
		daemon->server.percentage = percentage;
	else
		log_control("Invalid percentage, expected between (0.0, 100.0]");
	answer(daemon, "%.1f", daemon->server.percentage);
}

static void get_default_priority(struct daemon *daemon, const char *arguments)
{
	(void)arguments;
	answer(daemon, "%d", daemon->default_priority);
}

static void set_default_priority(struct daemon *daemon, const char *arguments)
{
	long priority = strtol(arguments, NULL, 10);

	if (!require_privilege(daemon))
		return;
	if (priority == 0 || priority == 1)
		daemon->default_priority = (int)priority;
	else
		answer(daemon, "Invalid priority value - must be 0 or 1!");
}

static char *memory_limit(struct daemon *daemon, const char *arguments)
{
	unsigned long device = strtoul(arguments, NULL, 10);

	return device < GPUS_MAX ? daemon->default_memory_limit[device] : NULL;
}

static void get_default_memory_limit(struct daemon *daemon, const char *arguments)
{
	const char *limit = memory_limit(daemon, arguments);

	if (limit && *limit)
		answer(daemon, "%s", limit);
	else
		log_control("No default pinned memory limit set for the device!");
}

static void set_default_memory_limit(struct daemon *daemon, const char *arguments)
{
	char *limit = memory_limit(daemon, arguments);

	if (require_privilege(daemon) && limit)
		text_copy(limit, sizeof(daemon->default_memory_limit[0]), skip_word(arguments));
}

static void server_memory_limit(struct daemon *daemon, const char *arguments)
{
	(void)require_server(daemon, arguments);
}

/* The front end is held until the last server has gone. */
static void quit(struct daemon *daemon, const char *arguments)
{
	unsigned int seconds;

	if (!daemon->ui_privileged) {
		answer(daemon, "Not enough privilege to execute quit command");
		return;
	}
	daemon->ui_held = true;
	if (knob_on("ignore_quit"))
		return;
	if (sscanf(arguments, "-t %u", &seconds) == 1) {
		log_control("quit command issued with timeout of %u", seconds);
		daemon->quit_deadline_ms = now_ms() + (long long)seconds * 1000;
	}
	daemon->quitting = true;
	daemon->wedged = daemon->server.broken;
}

struct command {
	const char *name;
	void (*run)(struct daemon *daemon, const char *arguments);
	bool unknown_to_535;
};

static const struct command commands[] = {
	{"get_server_list", get_server_list, false},
	{"get_server_status", get_server_status, true},
	{"get_client_list", get_client_list, false},
	{"get_device_client_list", get_device_client_list, false},
	{"ps", ps, false},
	{"device_query", device_query, true},
	{"start_server", start_server, false},
	{"shutdown_server", shutdown_server, false},
	{"terminate_client", terminate_client, false},
	{"get_default_active_thread_percentage", get_default_percentage, false},
	{"set_default_active_thread_percentage", set_default_percentage, false},
	{"get_active_thread_percentage", get_percentage, false},
	{"set_active_thread_percentage", set_percentage, false},
	{"get_default_client_priority", get_default_priority, false},
	{"set_default_client_priority", set_default_priority, false},
	{"get_default_device_pinned_mem_limit", get_default_memory_limit, false},
	{"set_default_device_pinned_mem_limit", set_default_memory_limit, false},
	{"get_device_pinned_mem_limit", server_memory_limit, false},
	{"set_device_pinned_mem_limit", server_memory_limit, false},
	{"quit", quit, false},
};

static const struct command *command_find(const char *word)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, word) == 0)
			return commands[i].unknown_to_535 && knob_is_535() ? NULL : &commands[i];
	return NULL;
}

/* As long as the knob file says so. */
static void hang_if_told(const char *word)
{
	const char *hang = knob_text("hang_on");

	while (hang && (strcmp(hang, word) == 0 || strcmp(hang, "*") == 0)) {
		sleep_ms(20);
		knobs_reload();
		hang = knob_text("hang_on");
	}
}

static void ui_execute(struct daemon *daemon, const char *line)
{
	const struct command *command;
	const char *odd;
	char word[256] = "";

	log_control("Cmd:%s", line);
	(void)sscanf(line, "%255s", word);
	knobs_reload();
	hang_if_told(word);
	sleep_ms(knob_number("command_delay_ms", 0));
	odd = knob_text("odd_output");
	command = command_find(word);
	if (odd && strcmp(word, "quit") != 0)
		answer(daemon, "%s", odd);
	else if (command)
		command->run(daemon, skip_word(line + strspn(line, " \t")));
	else
		answer(daemon, "Unknown command \"%s\"", word);
}

void ui_handle(struct daemon *daemon)
{
	char text[WIRE_TEXT_MAX + 1];
	int64_t size = 0;
	ssize_t n = wire_receive(daemon->ui_fd, &size, sizeof(size), NULL);

	if (n != sizeof(size) || size <= 0) {
		if (n != sizeof(size) || !daemon->ui_held)
			ui_close(daemon);
		return;
	}
	n = wire_receive(daemon->ui_fd, text, sizeof(text) - 1, NULL);
	if (n != size) {
		ui_close(daemon);
		return;
	}
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	ui_execute(daemon, text);
}
