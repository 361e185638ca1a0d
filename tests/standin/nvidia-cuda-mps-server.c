/* SPDX-License-Identifier: MIT */
/*
 * Stand-in for NVIDIA's nvidia-cuda-mps-server, started by the stand-in control daemon. It connects
 * back to the daemon, is handed the clients' connections, and imitates what becomes of them:
 * limits, faults, termination. It ends with its control daemon unless a knob says otherwise.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend.h"
#include "gpus.h"
#include "knobs.h"
#include "logline.h"
#include "util.h"
#include "wire.h"

#define CLIENTS_MAX 256
#define CONTEXTS_PER_CLIENT 2
#define MAX_CLIENTS_DEFAULT 48
#define SERVER_START_MS_DEFAULT 100
#define RECOVERY_MS 50
#define SHUTDOWN_MS 40

#define ERROR_DEVICES_UNAVAILABLE 46
#define ERROR_NO_DEVICE 100
#define ERROR_ILLEGAL_ADDRESS 700
#define ERROR_SERVER_NOT_READY 807
#define ERROR_CLIENT_TERMINATED 810

struct client {
	int fd; /* owned */
	pid_t pid;
	int id;
	int device;
	bool hit; /* by a fault; it holds the device until it has gone */
};

struct mps_server {
	int control_fd;
	struct gpus gpus;
	struct client clients[CLIENTS_MAX];
	size_t n_clients;
	int last_id;
	pid_t previous_pid;
	long long faulted_until_ms[GPUS_MAX]; /* recovery after the last hit client has left */
	long long exit_at_ms;
};

static void exit_when_due(const struct mps_server *server)
{
	if (server->exit_at_ms && now_ms() >= server->exit_at_ms)
		exit((int)knob_number("server_exit_status", 1));
}

static bool device_is_faulted(const struct mps_server *server, int device)
{
	for (size_t i = 0; i < server->n_clients; i++)
		if (server->clients[i].hit && server->clients[i].device == device)
			return true;
	return now_ms() < server->faulted_until_ms[device];
}

static bool is_faulted(const struct mps_server *server)
{
	for (size_t i = 0; i < server->gpus.n_devices; i++)
		if (device_is_faulted(server, (int)i))
			return true;
	return false;
}

static void log_context_lost(pid_t pid, int context)
{
	log_server("Server failed to recevie command with status 806, assuming client {PID: %d, "
		   "Context ID: %d} exit",
		   pid, context);
}

static void log_disconnection(const struct mps_server *server, const struct client *client)
{
	if (knob_is_535()) {
		log_server("Client process disconnected");
		return;
	}
	log_context_lost(client->pid, 1);
	log_server(
		"Client {PID: %d, Context ID: 1} exiting. Number of active client contexts is %zu.",
		client->pid, server->n_clients);
	log_context_lost(client->pid, 0);
	log_server("Client process %d disconnected", client->pid);
}

static void client_remove(struct mps_server *server, size_t i)
{
	struct client client = server->clients[i];

	close(client.fd);
	server->n_clients--;
	memmove(&server->clients[i], &server->clients[i + 1],
		(server->n_clients - i) * sizeof(server->clients[0]));
	log_disconnection(server, &client);
	if (client.hit && !device_is_faulted(server, client.device))
		server->faulted_until_ms[client.device] = now_ms() + RECOVERY_MS;
}

static void client_tell(const struct mps_server *server, int fd, int error, int device)
{
	struct wire_client_event event = {.error = error, .server_pid = getpid()};

	if (device >= 0)
		text_copy(event.device, sizeof(event.device),
			  server->gpus.devices[device].fields[GPU_UUID]);
	(void)wire_send(fd, &event, sizeof(event));
}

static void log_acceptance(const struct mps_server *server, pid_t pid, int device)
{
	const struct gpu *gpu = &server->gpus.devices[device];

	if (knob_is_535())
		return;
	for (int context = 0; context < CONTEXTS_PER_CLIENT; context++) {
		log_server("Received new client request for {PID: %d, Context ID: %d}",
			   context > 0 ? pid : server->previous_pid, 0);
		log_server("Client {PID: %d, Context ID: %d} connected", pid, context);
		log_server("Creating worker thread for client {PID: %d, Context ID: %d}", pid,
			   context);
	}
	log_server("Device %s (uuid %s) is associated", gpu->fields[GPU_NAME],
		   gpu->fields[GPU_UUID]);
	log_server("Status of client {PID: %d, Context ID: 1} is ACTIVE", pid);
}

/* 0, or the error that the client's initialisation gets; the device counts only with 0 and 807. */
static int client_check(const struct mps_server *server, int fd, int *ret_device)
{
	struct wire_client_hello hello = {0};
	const struct gpu *selected[GPUS_MAX];

	*ret_device = 0;
	if (wire_receive(fd, &hello, sizeof(hello), NULL) != sizeof(hello))
		return ERROR_NO_DEVICE;
	hello.devices[sizeof(hello.devices) - 1] = '\0';
	if (!hello.has_devices)
		selected[0] = &server->gpus.devices[0];
	else if (gpus_select(&server->gpus, hello.devices, selected) == 0)
		return ERROR_NO_DEVICE;
	*ret_device = (int)(selected[0] - server->gpus.devices);
	if (device_is_faulted(server, *ret_device))
		return ERROR_SERVER_NOT_READY;
	if ((long)server->n_clients >= knob_number("max_clients", MAX_CLIENTS_DEFAULT) ||
	    server->n_clients == CLIENTS_MAX)
		return ERROR_DEVICES_UNAVAILABLE;
	return 0;
}

static void log_refusal(pid_t pid, int error, long limit)
{
	if (error == ERROR_SERVER_NOT_READY)
		log_server("Server teardown in progress. Refusing to accept new client {PID: %d, "
			   "Context "
			   "ID: 0}",
			   pid);
	if (error == ERROR_SERVER_NOT_READY)
		log_server("Failed to accept client {PID: %d, Context ID: 0} with status %d", pid,
			   error);
	if (error == ERROR_DEVICES_UNAVAILABLE)
		log_server("Failed to accept new client. Maximum number of clients (%ld) reached.",
			   limit);
}

static void client_add(struct mps_server *server, pid_t pid, int fd)
{
	int device;
	int error;

	knobs_reload();
	error = client_check(server, fd, &device);
	if (error != 0) {
		log_refusal(pid, error, knob_number("max_clients", MAX_CLIENTS_DEFAULT));
		client_tell(server, fd, error, -1);
		close(fd);
		return;
	}
	log_acceptance(server, pid, device);
	server->previous_pid = pid;
	server->clients[server->n_clients++] = (struct client){
		.fd = fd,
		.pid = pid,
		.id = ++server->last_id,
		.device = device,
	};
	client_tell(server, fd, 0, device);
}

/* The line that names one client names the first of the device, guilty or not; a trap has no such
 * line. */
static void log_fault(const struct mps_server *server, int device, int error, const size_t hit[],
		      size_t n_hit)
{
	const struct client *clients = server->clients;

	if (error == ERROR_ILLEGAL_ADDRESS)
		log_server("Client {PID: %d, Context: 1} encountered a fatal GPU error.",
			   clients[hit[0]].pid);
	log_server("Server is handling a fatal GPU error.");
	for (size_t i = 0; i < n_hit; i++)
		log_server("Client {PID: %d, Context ID: 1} on device %d to be torn down",
			   clients[hit[i]].pid, device);
	for (size_t i = 0; i < n_hit; i++) {
		log_server("All clients belonging to error trigging process %d will be torn down",
			   clients[hit[i]].pid);
		log_server("Client {PID: %d, Context ID: 1} on the error-trigging process %d to be "
			   "torn "
			   "down",
			   clients[hit[i]].pid, clients[hit[i]].pid);
	}
	log_server("The following devices will be reset:");
	log_server("%d", device);
	log_server("The following client process have a sticky error set:");
	for (size_t i = 0; i < n_hit; i++)
		log_server("%d", clients[hit[i]].pid);
}

static void device_fault(struct mps_server *server, int device, int error)
{
	size_t hit[CLIENTS_MAX];
	size_t n_hit = 0;

	for (size_t i = 0; i < server->n_clients; i++)
		if (server->clients[i].device == device)
			hit[n_hit++] = i;
	log_fault(server, device, error, hit, n_hit);
	for (size_t i = 0; i < n_hit; i++) {
		server->clients[hit[i]].hit = true;
		client_tell(server, server->clients[hit[i]].fd, error, device);
	}
}

static int client_terminate(struct mps_server *server, pid_t pid)
{
	for (size_t i = 0; i < server->n_clients; i++) {
		if (server->clients[i].pid != pid)
			continue;
		log_server("MPS server requesting client {PID: %d, Context ID: 1} to exit", pid);
		client_tell(server, server->clients[i].fd, ERROR_CLIENT_TERMINATED, -1);
		log_server("Client termination succeeded.");
		client_remove(server, i);
		return 0;
	}
	return 1;
}

static void list_clients(const struct mps_server *server, char *text, size_t size)
{
	const struct client *client;
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < server->n_clients && used < size; i++) {
		client = &server->clients[i];
		used += (size_t)snprintf(text + used, size - used, "%d %d %d\n", client->pid,
					 client->id, client->device);
	}
}

static void server_shut_down(struct mps_server *server)
{
	log_server("Server has been notified to shutdown");
	if (knob_on("server_ignore_shutdown"))
		return;
	if (server->n_clients > 0) {
		log_server("Server was unable to shutdown due to %zu active clients",
			   server->n_clients * CONTEXTS_PER_CLIENT);
		return;
	}
	log_server("Waiting for current clients to finish");
	log_server("Exiting");
}

static void control_answer(struct mps_server *server, const struct wire_request *request)
{
	static struct wire_reply reply;
	bool goes = false;

	reply.value = 0;
	text_copy(reply.text, sizeof(reply.text), "");
	if (request->op == WIRE_OP_STATUS) {
		text_copy(reply.text, sizeof(reply.text), is_faulted(server) ? "FAULT" : "ACTIVE");
	} else if (request->op == WIRE_OP_LIST) {
		list_clients(server, reply.text, sizeof(reply.text));
	} else if (request->op == WIRE_OP_TERMINATE) {
		reply.value = client_terminate(server, request->pid);
	} else if (request->op == WIRE_OP_SHUTDOWN) {
		knobs_reload();
		server_shut_down(server);
		reply.value = (int32_t)server->n_clients * CONTEXTS_PER_CLIENT;
		goes = reply.value == 0 && !knob_on("server_ignore_shutdown");
	}
	(void)wire_send(server->control_fd, &reply,
			offsetof(struct wire_reply, text) + strlen(reply.text) + 1);
	if (goes) {
		sleep_ms(SHUTDOWN_MS);
		exit(0);
	}
}

/* The control daemon has gone. */
static void control_lost(struct mps_server *server)
{
	knobs_reload();
	if (!knob_on("server_survives_parent"))
		exit(0);
	close(server->control_fd);
	server->control_fd = -EBADF;
}

static void control_handle(struct mps_server *server)
{
	struct wire_request request = {0};
	int passed = -EBADF;
	ssize_t n = wire_receive(server->control_fd, &request, sizeof(request), &passed);

	if (n <= 0)
		control_lost(server);
	else if (request.op != WIRE_OP_CLIENT)
		control_answer(server, &request);
	else if (passed >= 0)
		client_add(server, request.pid, passed);
}

static void client_handle(struct mps_server *server, size_t i)
{
	struct wire_client_fault fault = {0};
	ssize_t n = wire_receive(server->clients[i].fd, &fault, sizeof(fault), NULL);

	if (n <= 0)
		client_remove(server, i);
	else if (n == sizeof(fault))
		device_fault(server, server->clients[i].device, fault.error);
}

static int time_left_ms(const struct mps_server *server)
{
	long long left = server->exit_at_ms - now_ms();

	if (!server->exit_at_ms)
		return -1;
	return left > 0 ? (int)left : 0;
}

/* One event a turn: handling one may move the others. */
static void serve(struct mps_server *server)
{
	struct pollfd fds[1 + CLIENTS_MAX];

	fds[0] = (struct pollfd){.fd = server->control_fd, .events = POLLIN};
	for (size_t i = 0; i < server->n_clients; i++)
		fds[1 + i] = (struct pollfd){.fd = server->clients[i].fd, .events = POLLIN};
	if (poll(fds, 1 + server->n_clients, time_left_ms(server)) > 0) {
		size_t ready = 0;

		while (!fds[ready].revents)
			ready++;
		if (ready == 0)
			control_handle(server);
		else
			client_handle(server, ready - 1);
	}
	exit_when_due(server);
}

/* Initialising takes a while, in which only the end of the control daemon is noticed. */
static void initialise(struct mps_server *server)
{
	long long ready_at_ms = now_ms() + knob_number("server_start_ms", SERVER_START_MS_DEFAULT);
	struct pollfd fd = {.fd = server->control_fd, .events = POLLIN};

	for (long long now = now_ms(); now < ready_at_ms; now = now_ms()) {
		exit_when_due(server);
		if (poll(&fd, 1, ready_at_ms - now > 20 ? 20 : (int)(ready_at_ms - now)) > 0)
			control_lost(server);
		fd.fd = server->control_fd;
	}
	if (wire_send_kind(server->control_fd, WIRE_KIND_SERVER) < 0)
		exit(0);
}

static void log_startup(const struct mps_server *server)
{
	for (size_t i = 0; i < server->gpus.n_devices; i++)
		log_server("Creating server context on device %zu (%s)", i,
			   server->gpus.devices[i].fields[GPU_NAME]);
	log_server("Created anonymous shared memory region mps.shm.%d.%d", (int)geteuid(),
		   getpid());
	log_server("CUDA MPS Server for Linux/Unix. Binary version: %s",
		   knob_is_535() ? "12020" : "13000");
	log_server("Display Driver version: %s", knob_is_535() ? "535" : "580");
	log_server("Active Threads Percentage set to 100.0");
	log_server("Server Priority set to 0");
	log_server("Server has started");
}

static void connect_to_control(struct mps_server *server)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	const char *reason = knob_text("server_fail_reason");
	char path[PATH_MAX];

	if (!reason && server->gpus.n_devices == 0)
		reason = "no CUDA-capable device is detected";
	snprintf(path, sizeof(path), "%s/control",
		 directory ? directory : FRONTEND_DEFAULT_DIRECTORY);
	if (access(path, W_OK) < 0)
		exit(0); /* seen: no message, status 0 */
	log_other("Startup");
	log_other("Connecting to control daemon on socket: %s", path);
	log_other("Initializing server process");
	if (reason) {
		log_other("Failed to start : %s", reason);
		exit((int)knob_number("server_exit_status", 1));
	}
	server->control_fd = wire_connect(path);
	if (server->control_fd < 0 || wire_receive_hello(server->control_fd) < 0)
		exit(0);
}

int main(int argc, char *argv[])
{
	static struct mps_server server;
	long exit_after_ms;

	(void)argc;
	signal(SIGPIPE, SIG_IGN);
	program_init();
	knobs_load();
	program_dump("server", argv);
	exit_after_ms = knob_number("server_exit_after_ms", 0);
	if (exit_after_ms > 0)
		server.exit_at_ms = now_ms() + exit_after_ms;
	if (knob_on("server_survives_parent"))
		(void)setsid();
	gpus_of_daemon(&server.gpus);
	connect_to_control(&server);
	initialise(&server);
	log_startup(&server);
	for (;;)
		serve(&server);
}
