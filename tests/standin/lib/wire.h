/* SPDX-License-Identifier: MIT */
/*
 * What goes over the sockets. Greeting and user interface are those of the real programs (seen with
 * strace); what clients, servers and the control daemon say to each other is the stand-ins' own.
 *
 * Who connects waits for "OUTBHELL", answers "OUTBCRED" with its credentials and then says what it
 * is. The control daemon reads both synchronously: a connection that says nothing makes it deaf.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_TEXT_MAX 4096
#define WIRE_LIST_MAX 32768
#define WIRE_UUID_MAX 96

enum wire_kind {
	WIRE_KIND_SERVER = 1,
	WIRE_KIND_CLIENT = 2,
	WIRE_KIND_DEBUGGEE = 3,
	WIRE_KIND_UI = 4,
};

/* Daemon to front end. */
enum wire_answer {
	WIRE_ANSWER_TEXT = 0,
	WIRE_ANSWER_END = 1,
};

/* Control daemon to server; each but WIRE_OP_CLIENT is answered by a struct wire_reply. */
enum wire_op {
	WIRE_OP_CLIENT = 1,    /* pid and uid, with the client's connection */
	WIRE_OP_STATUS = 2,    /* text: the status */
	WIRE_OP_LIST = 3,      /* text: "pid id device" lines */
	WIRE_OP_SHUTDOWN = 4,  /* value: contexts still there; 0: the server goes */
	WIRE_OP_TERMINATE = 5, /* value: 0, or 1 when there is no such client */
};

struct wire_request {
	int32_t op;
	int32_t pid;
	int32_t uid;
};

struct wire_reply {
	int32_t value;
	char text[WIRE_LIST_MAX];
};

/* First message of a client behind its kind: its CUDA_VISIBLE_DEVICES. */
struct wire_client_hello {
	int32_t has_devices;
	char devices[1024];
};

/* To the client: the outcome of its initialisation, later what befell it. */
struct wire_client_event {
	int32_t error;
	int32_t server_pid;
	char device[WIRE_UUID_MAX];
};

/* From the client: it breaks the device with this error. */
struct wire_client_fault {
	int32_t error;
};

struct wire_peer {
	pid_t pid;
	uid_t uid;
	int kind;
};

/* Each returns a descriptor or -errno. A listener replaces a file in its way. */
int wire_listen(const char *path);
int wire_connect(const char *path);

/* The connecting side. 0, or -errno; -EPROTO when the peer does not greet. */
int wire_receive_hello(int fd);
int wire_send_kind(int fd, int kind);

/* The accepting side: greets and reads who it is. -EACCES without credentials, -EPROTO without
 * kind. */
int wire_accept(int listener);
int wire_receive_peer(int fd, struct wire_peer *ret_peer);

/* One message; true when it went out whole. */
bool wire_send(int fd, const void *message, size_t size);
bool wire_send_descriptor(int fd, const void *message, size_t size, int passed);

/* Bytes received, 0 at the end, -errno. *ret_passed is -EBADF or a descriptor that the caller owns.
 */
ssize_t wire_receive(int fd, void *message, size_t size, int *ret_passed);
