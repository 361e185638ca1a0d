/* SPDX-License-Identifier: MIT */
/*
 * What a line that the control daemon or a server writes means. Lines were read off 580 and 535;
 * those it does not know are MPSLOG_OTHER and never an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mpslog_kind {
	MPSLOG_OTHER,
	MPSLOG_NOISE,   /* what every command or client makes it say, and means nothing */
	MPSLOG_COMMAND, /* a command has come; its answer follows, by the same writer */
	MPSLOG_COMMAND_OVER,
	MPSLOG_STARTING,         /* the control daemon is about to open its sockets */
	MPSLOG_NEW_CLIENT,       /* pid, uid; asks to be let in */
	MPSLOG_CLIENT_PENDING,   /* pid, uid; waits for a server */
	MPSLOG_CLIENT_CONNECTED, /* pid; writer is its server */
	MPSLOG_CLIENT_GONE,      /* pid; 0 when the line names none (550) */
	MPSLOG_CLIENT_LIMIT,     /* a client was refused: the server is full */
	MPSLOG_SERVER_START,     /* pid, uid */
	MPSLOG_SERVER_READY,     /* pid */
	MPSLOG_SERVER_NOTIFIED,  /* writer: the server was asked to end and will */
	MPSLOG_SERVER_KEPT,      /* writer: it was asked to end and cannot: it has clients */
	MPSLOG_SERVER_EXIT,      /* pid, status */
	MPSLOG_SERVER_BROKE,     /* one did, says the control daemon; not which */
	MPSLOG_START_FAILED,     /* text: why a server could not start */
	MPSLOG_FAULT,            /* writer: the server handles a fatal GPU error */
	MPSLOG_FAULT_HIT,        /* pid: this client lost its context */
	MPSLOG_FAULT_LIST,       /* pids that were hit follow, one a line */
	MPSLOG_NUMBER,           /* pid: a line of nothing but a number; what it means depends */
	MPSLOG_CONTROL_EXIT,     /* status */
	MPSLOG_ORDER,            /* a step of what it was ordered to: to end a server or a client */
};

/* What a line is to somebody who will want to know why the daemon died. */
enum mpslog_worth {
	MPSLOG_CHATTER,  /* of a command, ours mostly */
	MPSLOG_EXPECTED, /* it follows from what we ordered */
	MPSLOG_NEWS,
};

struct mpslog_line {
	enum mpslog_kind kind;
	int32_t writer; /* pid in the prefix, 0 without one; a claim like every pid here */
	int32_t pid;
	int32_t status;
	uint32_t uid;
	const char *text; /* in the line, behind the prefix */
	size_t text_length;
};

/* Reads one line (without its end). Understands every input; pids out of range read as 0. */
void mpslog_parse(const char *line, size_t length, struct mpslog_line *ret);

/* Lines of one control daemon in order. ordered: it was told to end, or to end servers or clients.
 * answering: false before the first line; kept from one to the next. */
enum mpslog_worth mpslog_judge(const struct mpslog_line *line, int32_t control, bool ordered,
			       bool *answering);

const char *mpslog_kind_to_string(enum mpslog_kind kind);
