/* SPDX-License-Identifier: MIT */
/*
 * Owns everything the daemon has and lets the parts meet: instances and leases, connections and
 * methods. Starts with the inventory, ends when every instance is stopped.
 */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#include "computemode_instances.h"
#include "config.h"
#include "events.h"
#include "gangs.h"
#include "gpuscan.h"
#include "held.h"
#include "instance.h"
#include "leases.h"
#include "operations.h"
#include "policy.h"
#include "rundir.h"
#include "server.h"
#include "stats.h"

struct manager {
	sd_event *event; /* borrowed */
	struct config config;
	const char *config_path; /* borrowed; NULL: the default */
	struct policy policy;
	struct stats stats;
	struct processes processes;
	struct rundir rundir;
	struct gpuscan scan;
	struct inventory inventory;             /* the devices that are served */
	struct instance *instances[PLACES_MAX]; /* by place; NULL where there is none */
	size_t n_instances;                     /* of single devices */
	struct leases leases;
	struct gangs gangs;
	struct held held;
	struct modes modes;
	struct operations operations;
	struct events events;
	struct server server;
	char program[CONFIG_TEXT_SIZE], smi[CONFIG_TEXT_SIZE];
	uint64_t started_usec;          /* realtime */
	sd_event_source *look, *report; /* for what systemd is told of numbers */
	size_t told_ready, told_leases, told_waiting;
	bool listening, own_socket, stopping;
};

/* Checks what can be checked, takes the runtime directory and asks for the devices. When the
 * event loop has run on, instances start and the socket opens. -errno after a message. */
int manager_new(sd_event *event, const struct config *config, const char *config_path,
		struct manager **ret);
struct manager *manager_free(struct manager *manager);

/* Ends leases and instances in order; the event loop ends when that is done. */
void manager_stop(struct manager *manager);

/* Ends the event loop, and nothing else: control daemons, leases and jobs are for the next
 * supervisor. */
void manager_leave(struct manager *manager);

/* Reads the configuration again and applies what can be applied to what runs; or says why not. */
void manager_reload(struct manager *manager);
