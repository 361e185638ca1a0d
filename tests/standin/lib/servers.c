/* SPDX-License-Identifier: MIT */
/*
 * The one server of a control daemon, and those who wait for it. Clients of the serving uid are
 * handed over at once; others wait until the server has no client any more, which is looked at with
 * doubling pauses. A server that fails to start is tried six times.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon.h"
#include "knobs.h"
#include "logline.h"
#include "util.h"

#define SERVER_NAME "nvidia-cuda-mps-server"
#define SERVER_TRIES 6
#define SERVER_BACKOFF_FIRST_MS 100
#define ERROR_CONNECTION_FAILED 805

static void server_record_pid(pid_t pid)
{
	const char *path = knob_text("refuse_start_while_server_lives");
	FILE *file;

	if (!path)
		return;
	file = fopen(path, "we");
	if (!file)
		return;
	fprintf(file, "%d\n", pid);
	fclose(file);
}

static void server_exec(struct daemon *daemon)
{
	char name[] = SERVER_NAME;
	char option[] = "-multiuser-server";
	char *argv[] = {name, daemon->multi_user ? option : NULL, NULL};
	const char *directories[] = {program_started_directory(), program_real_directory()};
	char path[PATH_MAX + sizeof(SERVER_NAME) + 1];

	execvp(SERVER_NAME, argv);
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", directories[i], SERVER_NAME);
		execv(path, argv);
	}
	_exit(1);
}

/* Runs in the child. */
static void server_become(struct daemon *daemon, uid_t uid)
{
	int r;

	if (!knob_is_535())
		log_control("Starting new server %d for user %d", getpid(), (int)uid);
	if (daemon->server_log_fd >= 0)
		(void)dup2(daemon->server_log_fd, STDOUT_FILENO);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	r = daemon->multi_user || uid == geteuid() ? 0 : setuid(uid);
	if (r < 0) {
		log_control("Failed to start server using uid %d, error: %s", (int)uid,
			    strerror(errno));
		_exit(1);
	}
	server_exec(daemon);
}

static void server_spawn(struct daemon *daemon, uid_t uid)
{
	struct server *server = &daemon->server;
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (pid == 0)
		server_become(daemon, uid);
	if (knob_is_535())
		log_control("Starting new server %d for user %d", pid, (int)uid);
	server_record_pid(pid);
	server->pid = pid;
	server->uid = uid;
	server->fd = -EBADF;
	server->ready = false;
	server->stopping = false;
	server->stop_wanted = false;
	server->broken = false;
	server->backoff_ms = 0;
	server->retry_at_ms = 0;
	server->percentage = daemon->default_percentage;
}

static void server_forget(struct server *server)
{
	if (server->fd >= 0)
		close(server->fd);
	server->fd = -EBADF;
	server->pid = 0;
	server->ready = false;
}

static void pending_remove(struct daemon *daemon, size_t i)
{
	if (daemon->pending[i].fd >= 0)
		close(daemon->pending[i].fd);
	daemon->n_pending--;
	memmove(&daemon->pending[i], &daemon->pending[i + 1],
		(daemon->n_pending - i) * sizeof(daemon->pending[0]));
}

static void client_refuse(int fd)
{
	struct wire_client_event event = {.error = ERROR_CONNECTION_FAILED};

	if (fd >= 0)
		(void)wire_send(fd, &event, sizeof(event));
}

static bool serves(const struct daemon *daemon, uid_t uid)
{
	return daemon->multi_user || daemon->server.uid == uid;
}

/* Everyone who waits for a server of this uid is told that there will be none. */
static void pending_drop(struct daemon *daemon, uid_t uid)
{
	for (size_t i = daemon->n_pending; i > 0; i--) {
		if (!daemon->multi_user && daemon->pending[i - 1].uid != uid)
			continue;
		client_refuse(daemon->pending[i - 1].fd);
		pending_remove(daemon, i - 1);
	}
}

static void pending_add(struct daemon *daemon, struct pending entry)
{
	if (daemon->n_pending == DAEMON_PENDING_MAX) {
		client_refuse(entry.fd);
		if (entry.fd >= 0)
			close(entry.fd);
		return;
	}
	daemon->pending[daemon->n_pending++] = entry;
}

static void server_hand_over(struct daemon *daemon, const struct pending *client)
{
	struct wire_request request = {
		.op = WIRE_OP_CLIENT,
		.pid = client->pid,
		.uid = (int32_t)client->uid,
	};

	(void)wire_send_descriptor(daemon->server.fd, &request, sizeof(request), client->fd);
}

void server_add_client(struct daemon *daemon, int fd, const struct wire_peer *peer)
{
	struct server *server = &daemon->server;
	bool exists =
		server->pid && server->ready && !server->stopping && serves(daemon, peer->uid);

	if (daemon->quitting) {
		log_control("The MPS control daemon is shutting down");
		client_refuse(fd);
		close(fd);
		return;
	}
	log_control("NEW CLIENT %d from user %d: %s", peer->pid, (int)peer->uid,
		    exists ? "Server already exists"
			   : "Server is not ready, push client to pending list");
	pending_add(daemon, (struct pending){.fd = fd, .pid = peer->pid, .uid = peer->uid});
}

void server_add_start(struct daemon *daemon, uid_t uid)
{
	struct server *server = &daemon->server;

	if (server->pid && !server->stopping && serves(daemon, uid))
		return;
	pending_add(daemon, (struct pending){.fd = -EBADF, .uid = uid});
}

void server_connected(struct daemon *daemon, int fd, const struct wire_peer *peer)
{
	struct server *server = &daemon->server;

	if (peer->pid != server->pid || server->ready) {
		log_control("NEW SERVER %d: Ignoring old connection request", peer->pid);
		close(fd);
		return;
	}
	log_control("NEW SERVER %d: Ready", peer->pid);
	server->fd = fd;
	server->ready = true;
}

bool server_ask(struct daemon *daemon, int op, pid_t pid, struct wire_reply *ret_reply)
{
	struct wire_request request = {.op = op, .pid = pid};
	ssize_t n;

	memset(ret_reply, 0, sizeof(*ret_reply));
	if (!wire_send(daemon->server.fd, &request, sizeof(request)))
		return false;
	n = wire_receive(daemon->server.fd, ret_reply, sizeof(*ret_reply), NULL);
	ret_reply->text[sizeof(ret_reply->text) - 1] = '\0';
	return n >= (ssize_t)sizeof(ret_reply->value);
}

/* A server that never came up: another try, or the end for those who wait. */
static void server_failed(struct daemon *daemon, int status)
{
	struct server *server = &daemon->server;

	if (server->tries_left > 0)
		server->tries_left--;
	if (server->tries_left != 0)
		return;
	daemon->last_status = status;
	pending_drop(daemon, server->uid);
	if (knob_is_535())
		log_control("Removed Shm file at ");
}

static void server_ended(struct daemon *daemon, pid_t pid, int wait_status)
{
	struct server *server = &daemon->server;
	int status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
	bool was_ready = server->ready;

	if (pid == server->pid && status != 0 && knob_text("server_fail_reason"))
		log_control("Server encountered a fatal exception. Shutting down");
	log_control("Server %d exited with status %d", pid, status);
	if (pid != server->pid)
		return;
	server_forget(server);
	if (!was_ready) {
		server_failed(daemon, status);
		return;
	}
	server->tries_left = 0;
	if (knob_is_535())
		log_control("Removed Shm file at ");
}

void server_reap(struct daemon *daemon)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		server_ended(daemon, pid, status);
}

static void server_retry_later(struct daemon *daemon, int n_contexts)
{
	struct server *server = &daemon->server;

	server->backoff_ms = server->backoff_ms ? server->backoff_ms * 2 : SERVER_BACKOFF_FIRST_MS;
	server->retry_at_ms = now_ms() + server->backoff_ms;
	log_control("Server %d has %d active worker threads. Server will not shutdown.",
		    server->pid, n_contexts);
	log_control("Control will try shutting down server %d again in at most %ldms", server->pid,
		    server->backoff_ms * 2);
}

/* Asks the server to go. Forced: NVIDIA's force kills nothing and spoils every later quit. */
void server_stop(struct daemon *daemon, bool forced)
{
	struct server *server = &daemon->server;
	struct wire_reply reply;

	log_control("Try shutting down server %d, backoff is %s", server->pid,
		    server->backoff_ms && !forced ? "enabled" : "disabled");
	if (!server_ask(daemon, WIRE_OP_SHUTDOWN, 0, &reply))
		return;
	if (reply.value == 0) {
		server->stopping = true;
	} else if (forced) {
		log_control("Server %d has %d active worker threads. Server will not shutdown.",
			    server->pid, reply.value);
		log_control("Force shutting down server %d", server->pid);
		server->broken = true;
	} else {
		server->stop_wanted = true;
		server_retry_later(daemon, reply.value);
	}
}

static bool somebody_else_waits(const struct daemon *daemon)
{
	for (size_t i = 0; i < daemon->n_pending; i++)
		if (!serves(daemon, daemon->pending[i].uid))
			return true;
	return false;
}

static void server_feed(struct daemon *daemon)
{
	const struct pending *entry;

	for (size_t i = 0; i < daemon->n_pending;) {
		entry = &daemon->pending[i];
		if (!serves(daemon, entry->uid)) {
			i++;
			continue;
		}
		if (entry->fd >= 0)
			server_hand_over(daemon, entry);
		pending_remove(daemon, i);
	}
}

static void server_start_for_first(struct daemon *daemon)
{
	struct server *server = &daemon->server;
	const struct pending *first = &daemon->pending[0];
	uid_t uid = daemon->multi_user ? geteuid() : first->uid;

	knobs_reload();
	if (server->tries_left == 0 || server->uid != uid) {
		server->tries_left = knob_number("server_tries", first->fd < 0 ? 1 : SERVER_TRIES);
		if (server->tries_left == 0)
			server->tries_left = -1; /* without end */
	}
	server_spawn(daemon, uid);
}

static void server_stop_if_wanted(struct daemon *daemon)
{
	struct server *server = &daemon->server;

	if (!daemon->quitting && !server->stop_wanted && !somebody_else_waits(daemon)) {
		server->backoff_ms = 0;
		server->retry_at_ms = 0;
	} else if (!server->broken && now_ms() >= server->retry_at_ms) {
		server_stop(daemon,
			    daemon->quit_deadline_ms && now_ms() >= daemon->quit_deadline_ms);
		daemon->wedged = server->broken && daemon->quitting;
	}
}

void server_serve(struct daemon *daemon)
{
	struct server *server = &daemon->server;

	if (!server->pid) {
		if (daemon->quitting)
			daemon_finish(daemon);
		if (daemon->n_pending > 0)
			server_start_for_first(daemon);
		return;
	}
	if (!server->ready || server->stopping)
		return;
	if (!daemon->quitting)
		server_feed(daemon);
	server_stop_if_wanted(daemon);
}
