/* SPDX-License-Identifier: MIT */
/*
 * One instance: a control daemon and its servers, made to do what core/instance_fsm decides.
 * Owns the child, the watches on its servers, its output, its commands and its pipe directory.
 * Knows nothing of leases and connections; tells its owner through handlers.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "control.h"
#include "instance_fsm.h"
#include "inventory.h"
#include "output.h"
#include "process.h"
#include "stats.h"

#define INSTANCE_SERVERS_MAX 32
#define INSTANCE_DEATHS_MAX 8
#define INSTANCE_WORDS_SIZE 160

struct instance;

enum instance_loss {
	INSTANCE_LOSS_CONTROL,
	INSTANCE_LOSS_SERVER,
};

struct instance_death {
	uint64_t at_usec; /* realtime */
	enum instance_loss what;
	char status[64];
	char reason[REASON_SIZE];
};

struct instance_server {
	struct instance *instance; /* NULL: free */
	struct process process;
	uint32_t uid;
	bool ready;    /* has served, or could have */
	bool expected; /* was asked to end, so its end is no loss */
};

/* Called from the event loop. */
struct instance_handlers {
	/* Before admission opens: the socket is a new one. */
	void (*opening)(struct instance *instance, void *userdata);
	/* The state is another one; admission may have opened or closed. */
	void (*changed)(struct instance *instance, void *userdata);
	/* The generation before this one is lost, and every client context with it. */
	void (*interrupted)(struct instance *instance, const struct instance_death *death,
			    void *userdata);
};

struct instance_setup {
	const struct device *device; /* borrowed */
	const struct config *config; /* borrowed */
	bool multi_user;
	const char *runtime_directory, *program; /* copied; borrowed */
	struct processes *processes;
	struct stats *stats;
	const struct instance_handlers *handlers;
	void *userdata;
};

struct instance {
	struct instance_setup setup;
	struct instance_settings settings;
	struct instance_fsm fsm;
	char directory[PIPE_DIRECTORY_MAX + 1];
	char fifo[CONFIG_TEXT_SIZE + 32];
	char path_variable[512], pipe_variable[128], log_variable[128], device_variable[96];
	struct control control;
	struct output output;
	struct process daemon;
	struct process stale; /* a daemon that an earlier supervisor left, while it ends */
	struct instance_server servers[INSTANCE_SERVERS_MAX];
	struct instance_death deaths[INSTANCE_DEATHS_MAX]; /* ring */
	uint64_t n_deaths;
	uint64_t since_usec;               /* realtime, of the state */
	char words[INSTANCE_WORDS_SIZE];   /* the last thing it said that was no noise */
	char failure[INSTANCE_WORDS_SIZE]; /* why the last server could not start; or empty */
	bool spawn_waits;                  /* for old processes to be gone */
	sd_event_source *timer;
};

int instance_new(const struct instance_setup *setup, struct instance **ret);
/* Ends what still runs, at once, and removes its files. NULL is fine. Returns NULL. */
struct instance *instance_free(struct instance *instance);

void instance_start(struct instance *instance);
void instance_stop(struct instance *instance);
void instance_set_occupied(struct instance *instance, bool occupied);

/* Starts a server for uid ahead of its first client, unless one runs. Nobody waits for it: the
 * daemon is deaf meanwhile. */
void instance_prestart(struct instance *instance, uint32_t uid);

/* The settings that the configuration gives; instances take a new one over as they run. */
void instance_configure(struct instance *instance, const struct config *config);

static inline pid_t instance_control_pid(const struct instance *instance)
{
	return process_is_watched(&instance->daemon) ? instance->daemon.pid : 0;
}

const char *instance_loss_to_string(enum instance_loss loss);
