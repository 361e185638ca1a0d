/* SPDX-License-Identifier: MIT */
/*
 * The control daemon. It does one thing at a time, as the real one: while a connection that it has
 * accepted says nothing, or a server initialises, it hears nobody else.
 *
 * daemon.c owns files, sockets and the loop; servers.c the server and who waits for it; commands.c
 * what a front end may ask.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "gpus.h"
#include "wire.h"

#define DAEMON_PENDING_MAX 512

/* Longest pipe directory that works, in bytes: with one more, 535 was seen to end without a word.
 */
#define DAEMON_PIPE_DIRECTORY_MAX 88
#define DAEMON_PIPE_DIRECTORY_MAX_535 87

struct server {
	pid_t pid; /* 0: none */
	uid_t uid;
	int fd; /* owned; -EBADF until it has connected */
	bool ready;
	bool stopping;    /* it has agreed to go */
	bool stop_wanted; /* shutdown_server found clients there */
	bool broken;      /* after shutdown_server -f no quit ever ends */
	long tries_left;
	long backoff_ms;
	long long retry_at_ms;
	double percentage;
};

/* A client that waits for a server of its uid, or (fd -EBADF) a start_server command. */
struct pending {
	int fd;
	pid_t pid;
	uid_t uid;
};

struct daemon {
	char pipe_directory[PATH_MAX];
	char log_directory[PATH_MAX];
	bool multi_user;
	bool in_background;
	int lock_fd;
	int log_fifo_fd;
	int control_fd;
	int privileged_fd;
	int child_fd;      /* readable when a child has ended */
	int server_log_fd; /* where servers write with -d; else -EBADF */
	int ready_fd;      /* with -d: the starting process waits for a byte */

	int ui_fd;
	struct wire_peer ui_peer;
	bool ui_privileged;
	bool ui_held; /* after quit: only the end of the daemon answers it */

	struct server server;
	struct pending pending[DAEMON_PENDING_MAX];
	size_t n_pending;
	int last_status; /* of the last server that failed for good */

	bool quitting;
	bool wedged; /* quit -t ran out of time: nothing is answered any more */
	long long quit_deadline_ms;

	double default_percentage;
	int default_priority;
	char default_memory_limit[GPUS_MAX][32];
	struct gpus gpus;
};

/* Runs until quit; returns the exit status. */
int daemon_run(bool in_background, bool multi_user);

/* Removes what goes at a graceful end and exits. */
void daemon_finish(struct daemon *daemon) __attribute__((noreturn));

/* Ends the front end's turn with the final message; does nothing when there is none. */
void ui_end(struct daemon *daemon, int status);

/* Reads one command of the front end and carries it out. */
void ui_handle(struct daemon *daemon);

/* servers.c */
void server_add_client(struct daemon *daemon, int fd, const struct wire_peer *peer);
void server_add_start(struct daemon *daemon, uid_t uid);
void server_connected(struct daemon *daemon, int fd, const struct wire_peer *peer);
void server_reap(struct daemon *daemon);
void server_stop(struct daemon *daemon, bool forced);

/* Starts, feeds and stops the server as those who wait for one require. */
void server_serve(struct daemon *daemon);

/* Asks the server; false when it has gone. Blocks as long as the server does not answer. */
bool server_ask(struct daemon *daemon, int op, pid_t pid, struct wire_reply *ret_reply);
