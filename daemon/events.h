/* SPDX-License-Identifier: MIT */
/* What happens, told to everybody who monitors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "connection.h"
#include "instance.h"

struct event {
	const char *kind;                     /* "lease-granted", ...; see mpsctl(1) */
	const char *instance, *lease, *cause; /* may be NULL */
	int pid;                              /* 0: none */
	bool has_uid;
	uint32_t uid;
	uint64_t generation;              /* 0: none */
	const struct instance_hits *hits; /* may be NULL */
	const char *message;
};

#define EVENTS_SUBSCRIBERS_MAX 64

struct events {
	struct connection *subscribers[EVENTS_SUBSCRIBERS_MAX];
	size_t n_subscribers;
};

/* The connection's Monitor call gets every event from now on. -EUSERS when there are too many. */
int events_subscribe(struct events *events, struct connection *connection);
/* The connection has ended. */
void events_unsubscribe(struct events *events, const struct connection *connection);
void events_emit(struct events *events, const struct event *event);
