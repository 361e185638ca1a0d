/* SPDX-License-Identifier: MIT */
/* Calls of operators that are answered when an instance has come to something: drained, or started
 * again. */
#pragma once

#include <systemd/sd-event.h>

#include "connection.h"
#include "instance.h"
#include "leases.h"

#define OPERATIONS_MAX 64

enum operation_kind {
	OPERATION_DRAIN,   /* until it is stopped and no gang has its device */
	OPERATION_RESTART, /* until it is ready, or is not going to be */
};

struct operation {
	struct connection *connection; /* NULL: free */
	struct instance *instance;
	enum operation_kind kind;
};

/* Of a drain: when the leases that are left are ended. */
struct patience {
	struct operations *operations;
	struct instance *instance;
	sd_event_source *timer; /* NULL: free */
};

struct operations {
	sd_event *event;
	struct leases *leases;
	struct operation list[OPERATIONS_MAX];
	struct patience patiences[DEVICES_MAX]; /* by place */
};

/* All borrowed. */
void operations_init(struct operations *operations, sd_event *event, struct leases *leases);
void operations_done(struct operations *operations);

/* The connection's call is answered when it is done: maybe at once. With `more` it is told of the
 * beginning too. -EUSERS when there are too many. */
int operations_start(struct operations *operations, enum operation_kind kind,
		     struct instance *instance, struct connection *connection, bool more);
/* Is it stopped, and its device in no gang? */
bool operations_is_drained(const struct operations *operations, const struct instance *instance);
/* The leases that a drained instance still has after this time are ended, and it is stopped. */
int operations_be_patient(struct operations *operations, struct instance *instance,
			  uint64_t patience_usec);
/* Its drain was taken back. */
void operations_forget(struct operations *operations, const struct instance *instance);

void operations_instance_changed(struct operations *operations, struct instance *instance);
/* Answers those that are done now. */
void operations_check(struct operations *operations);
void operations_connection_ended(struct operations *operations, struct connection *connection);
