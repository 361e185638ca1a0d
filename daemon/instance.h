/* SPDX-License-Identifier: MIT */
/*
 * One instance: a control daemon and its servers, made to do what core/instance_fsm decides.
 * Owns the child, the watches on its servers and clients, its output, its commands and its pipe
 * directory. Knows nothing of leases and connections; tells its owner through handlers.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backoff.h"
#include "config.h"
#include "control.h"
#include "instance_fsm.h"
#include "inventory.h"
#include "output.h"
#include "process.h"
#include "stats.h"

#define INSTANCE_SERVERS_MAX 32
#define INSTANCE_CLIENTS_MAX 256
#define INSTANCE_DEATHS_MAX 8
#define INSTANCE_HITS_MAX 256
#define INSTANCE_LINES_MAX 20
#define INSTANCE_LINE_SIZE 160
#define INSTANCE_FAULTS_MAX 8
#define INSTANCE_PRESENT_MAX 16

struct instance;

enum instance_loss {
	INSTANCE_LOSS_CONTROL,
	INSTANCE_LOSS_SERVER,
	INSTANCE_LOSS_FAULT,
	INSTANCE_LOSS_WEDGE,
};

/* Who lost a context: as MPS names them, and the leases they came through. */
struct instance_hits {
	int32_t pids[INSTANCE_HITS_MAX];
	char leases[INSTANCE_HITS_MAX][LEASE_ID_SIZE];
	size_t n_pids, n_leases;
};

struct instance_lines {
	char texts[INSTANCE_LINES_MAX][INSTANCE_LINE_SIZE]; /* ring */
	uint64_t n;
};

struct instance_death {
	uint64_t at_usec; /* realtime */
	enum instance_loss what;
	char status[64];
	char reason[REASON_SIZE];
	struct instance_hits hits;
	struct instance_lines lines; /* what it said last */
};

struct instance_server {
	struct instance *instance; /* NULL: free */
	struct process process;
	uint32_t uid;
	bool ready;    /* has served, or could have */
	bool asked;    /* by us to end, as it is idle */
	bool expected; /* was asked to end, by whomever, so its end is no loss */
	int thread_fd; /* owned: a pidfd of one of its threads, or -EBADF */
	sd_event_source *thread;
	bool lost; /* counted as lost or ended already, and not quite gone yet */
};

/* A process that MPS reported as attached. */
struct instance_client {
	int32_t pid; /* 0: free */
	int pidfd;   /* owned; -EBADF when it was gone already */
	int32_t server;
	bool hit;                  /* by the fault at hand */
	char lease[LEASE_ID_SIZE]; /* whose directory it came through; empty: none */
	struct instance *instance;
	sd_event_source *end; /* its pidfd, when its end is waited for */
};

/* Whose processes were there at a fault; MPS does not say whose fault it was. */
struct instance_presence {
	struct {
		uint32_t uid;
		char name[64];
	} who[INSTANCE_PRESENT_MAX];
	size_t n;
};

/* Called from the event loop. */
struct instance_handlers {
	/* Before admission opens: the socket is a new one. */
	void (*opening)(struct instance *instance, void *userdata);
	/* The state is another one; admission may have opened or closed. */
	void (*changed)(struct instance *instance, void *userdata);
	/* A loss is about to be written down and told: adds the leases that it hit, where the death
	 * does not name them. */
	void (*lost)(struct instance *instance, struct instance_death *death, void *userdata);
	/* The generation before this one is lost: for all, or after a fault for those it hit. */
	void (*interrupted)(struct instance *instance, const struct instance_death *death,
			    void *userdata);
	/* Which lease's directory does this process use? Fills ret_id, or leaves it empty. */
	void (*identify)(struct instance *instance, pid_t pid, char ret_id[static LEASE_ID_SIZE],
			 void *userdata);
	/* Servers have come or gone. */
	void (*servers_changed)(struct instance *instance, void *userdata);
	/* It has answered, and all is well. */
	void (*answered)(struct instance *instance, void *userdata);
	/* Clients have left. */
	void (*clients_left)(struct instance *instance, void *userdata);
	/* Whose is the lease? False when there is none. */
	bool (*describe)(struct instance *instance, const char *id, uint32_t *ret_uid,
			 const char **ret_name, void *userdata);
};

struct instance_setup {
	size_t index;     /* its place in the lease table; of a single device, that one's index */
	const char *name; /* borrowed until instance_new returns */
	const struct device *devices[GANG_DEVICES_MAX]; /* borrowed; in the order of their index */
	size_t n_devices;
	const struct config *config; /* borrowed */
	bool multi_user;
	const char *runtime_directory, *program; /* borrowed */
	struct processes *processes;
	struct stats *stats;
	const struct instance_handlers *handlers;
	void *userdata;
};

struct instance {
	struct instance_setup setup; /* multi_user: of the daemon that runs */
	struct instance_settings settings;
	struct instance_fsm fsm;
	char name[DEVICE_UUID_SIZE];
	char directory[PIPE_DIRECTORY_MAX + 1];
	char fifo[CONFIG_TEXT_SIZE + 32];
	char path_variable[512], pipe_variable[128], log_variable[128];
	char *device_variable; /* owned */
	struct control control;
	struct output output;
	struct process daemon;
	struct process stale; /* a daemon that an earlier supervisor left, while it ends */
	sd_event_source *timer;
	sd_event_source *patience; /* with old processes, before a start */
	uint64_t since_usec;       /* realtime, of the state */
	uint64_t answered_usec;    /* monotonic, the last time; 0: never */
	bool multi_user;           /* of the next daemon, when nobody has a lease then */
	bool spawn_waits;          /* for old processes to be gone */
	bool impatient;            /* it has waited long enough for old servers */
	bool occupied;             /* somebody has a lease */
	bool restored;             /* from what an earlier supervisor left */
	bool died_away;            /* its control daemon, while no supervisor ran */
	bool left;                 /* its processes and files are for the next supervisor */
	bool prestarting;          /* a start_server is under way */
	bool must_end_servers;     /* somebody waits for it */
	bool ending_servers;       /* they were asked to end, and have not all gone */
	bool answering;            /* what the daemon writes is the answer to a command */
	bool no_status;            /* this version does not know get_server_status */
	bool nameless;             /* this version does not name its clients */
	bool unlisted;             /* adopted, and to be asked whom it has */
	int32_t fault_lister;      /* the server that is listing whom a fault hit; 0: none */
	int32_t counted_server;    /* whose failure was counted last */
	uint32_t prestart_uid;     /* for whom a server is started */

	struct instance_server servers[INSTANCE_SERVERS_MAX];
	char failure[INSTANCE_LINE_SIZE]; /* why the last server could not start; or empty */
	struct backoff server_backoff;
	int32_t proven_servers[INSTANCE_SERVERS_MAX]; /* ring: pids that were children of ours */
	uint64_t n_proven_servers;
	int32_t missing[INSTANCE_SERVERS_MAX]; /* gone when it was adopted */
	size_t n_missing;
	uint64_t prestart_after_usec; /* monotonic; after servers failed to start */
	sd_event_source *idle;        /* until the servers of an unused instance are ended */

	struct instance_client clients[INSTANCE_CLIENTS_MAX];
	struct instance_hits fault_hits;
	struct instance_presence faults[INSTANCE_FAULTS_MAX]; /* ring */
	uint64_t n_faults;

	struct instance_lines lines;
	uint64_t lines_from_usec; /* monotonic: of the second that is counted */
	unsigned int lines_logged, lines_kept_back;
	struct instance_death deaths[INSTANCE_DEATHS_MAX]; /* ring */
	uint64_t n_deaths;

	char state_path[CONFIG_TEXT_SIZE + 32];
	sd_event_source *save; /* writes the state */

	sd_event_source *files; /* inotify */
	uint64_t socket_inode;
};

int instance_new(const struct instance_setup *setup, struct instance **ret);
/* Ends what still runs, at once, and removes its files. NULL is fine. Returns NULL. */
struct instance *instance_free(struct instance *instance);

#define INSTANCE_STATE_SUFFIX ".instance"
/* What a state file says that an instance is. -errno as statefile_read. */
struct instance_record {
	char name[DEVICE_UUID_SIZE];
	char devices[GANG_DEVICES_MAX][DEVICE_UUID_SIZE];
	size_t n_devices;
};
int instance_read_record(const char *path, struct instance_record *ret);
/* Ends the control daemon of an instance that is not served any more, if it is proven to be that,
 * and removes the file. */
void instance_end_orphan(const char *path, const char *runtime_directory);

/* Before its start: goes on from what an earlier supervisor left, as far as it can be proven. 0;
 * the errors are statefile_read's, and then nothing has changed. */
int instance_restore(struct instance *instance);
/* Before its start: a lease goes on whose holder knows of this generation. Of an instance that was
 * not restored it is lost; of one whose control daemon died meanwhile this lease was hit. */
void instance_outlive(struct instance *instance, const char *lease, uint64_t generation);
/* The next supervisor is to go on with it: instance_free ends and removes nothing then. */
void instance_leave(struct instance *instance);

void instance_start(struct instance *instance);
void instance_stop(struct instance *instance, const char *why);
/* Nobody new is let in, and it stops when nobody has a lease; instance_start takes that back. */
void instance_drain(struct instance *instance);
/* Ends its pair and starts another. */
void instance_recycle(struct instance *instance);
void instance_set_occupied(struct instance *instance, bool occupied);

/* Starts a server for uid ahead of its first client, unless one runs or servers fail to start.
 * Nobody waits for it: the daemon is deaf meanwhile. */
void instance_prestart(struct instance *instance, uint32_t uid);
/* Has it a server, or soon? Whose: UINT32_MAX when of several users. */
bool instance_has_server(const struct instance *instance, uint32_t *ret_uid);
/* Ends its idle servers in order, and lets nobody in meanwhile: then it opens again. For an
 * instance that nobody has a lease on, and that somebody else waits for: one that will not go,
 * because of clients without a lease, gets timeouts.straggler_grace, then its pair is replaced. */
void instance_end_servers(struct instance *instance, const char *reason);

/* Is one of its processes stopped, so that it cannot answer? Then it is told so. */
void instance_look(struct instance *instance);
/* Asks whether it answers, unless it just did: then handlers->answered is called at once. */
void instance_prove(struct instance *instance);

/* How many clients came through the lease's directory and are there still; their pids. */
size_t instance_attached(const struct instance *instance, const char *lease, int32_t *pids,
			 size_t max);
/* From now on their end is told at once (clients_left), whatever MPS says. */
void instance_watch_attached(struct instance *instance, const char *lease);
/* Signals them: they are proven, by MPS, a pidfd and the directory they came through. */
void instance_signal_attached(struct instance *instance, const char *lease, int signal_number);

/* Takes note now of what has happened already: what was written, which clients have ended, which
 * servers are on their way out. For a holder that ended because of it: MPS wrote of a fault, and a
 * server closed its sockets, before any client could end. */
void instance_catch_up(struct instance *instance);

/* Is its control daemon on its way out, though its end has not been told yet? */
bool instance_control_is_ending(const struct instance *instance);

/* The settings that the configuration gives; instances take a new one over as they run. */
void instance_configure(struct instance *instance, const struct config *config);

static inline pid_t instance_control_pid(const struct instance *instance)
{
	return process_is_watched(&instance->daemon) ? instance->daemon.pid : 0;
}

/* The device's UUID, or "gang-" and eight digits. */
static inline const char *instance_name(const struct instance *instance)
{
	return instance->name;
}

static inline bool instance_is_gang(const struct instance *instance)
{
	return instance->setup.n_devices > 1;
}

/* The i-th line of what was said, the oldest first; NULL past the last. */
const char *instance_lines_get(const struct instance_lines *lines, size_t i);

/* Of one that has had any. */
const struct instance_death *instance_last_death(const struct instance *instance);

/* How many of the last faults had somebody of this uid and name there: the i-th such pair. False
 * past the last. ret_faults: how many faults are remembered. */
bool instance_suspect(const struct instance *instance, size_t i, uint32_t *ret_uid,
		      const char **ret_name, int *ret_present, int *ret_faults);

const char *instance_loss_to_string(enum instance_loss loss);
