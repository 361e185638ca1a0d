/* SPDX-License-Identifier: MIT */
/*
 * The servers of an instance, known from what the control daemon logs. A pid in a line becomes a
 * process only when it is a child of our control daemon; from then on its pidfd tells its end.
 * Part of instance.c, which alone calls this.
 */
#pragma once

#include <stdbool.h>

#include "instance.h"
#include "mpslog.h"

/* Takes note of a line about a server. */
void instance_servers_line(struct instance *instance, const struct mpslog_line *line);

/* SIGKILL to all that still run: their control daemon is gone. */
void instance_servers_end(struct instance *instance);
/* Stops watching them. */
void instance_servers_forget(struct instance *instance);
/* Does any process of them still exist? */
bool instance_servers_alive(const struct instance *instance);

/* Given by instance.c. */
void instance_server_lost(struct instance *instance, pid_t pid, int status);
void instance_servers_gone(struct instance *instance);
