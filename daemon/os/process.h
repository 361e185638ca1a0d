/* SPDX-License-Identifier: MIT */
/*
 * Processes we watch: by pidfd, so that a number that was given to somebody else is never taken
 * for them. Children are reaped; what is reparented to us (we are a subreaper) and nobody
 * watches is reaped with low priority.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <systemd/sd-event.h>

/* Deaths come before output and timers, those before requests, reaping comes last. */
#define PRIORITY_DEATH (-30)
#define PRIORITY_HOLDER (-25) /* their deaths after those of what they used */
#define PRIORITY_OUTPUT (-20)
#define PRIORITY_TIMER (-10)
#define PRIORITY_REQUEST 0
#define PRIORITY_REAP 20

struct process;

/* All watched processes of one event loop. */
struct processes {
	sd_event *event; /* borrowed */
	struct process *first;
	sd_event_source *sigchld, *again;
};

/* SIGCHLD must be blocked. Makes this process a child subreaper. */
int processes_init(struct processes *processes, sd_event *event);
void processes_done(struct processes *processes);

/* The process is gone. It is unwatched already; process may be freed or watched anew. status: as
 * for waitpid(2), or -1 when it was not our child and the kernel does not say. */
typedef void (*process_exit_handler)(struct process *process, int status, void *userdata);

struct process {
	struct processes *processes;
	struct process *next, *previous;
	pid_t pid;
	int pidfd; /* owned */
	sd_event_source *source;
	process_exit_handler on_exit;
	void *userdata;
};

/* A process that is not watched. */
#define PROCESS_INIT ((struct process){.pidfd = -EBADF})

static inline bool process_is_watched(const struct process *process)
{
	return process->pidfd >= 0;
}

/* Takes over pidfd. */
int process_watch(struct process *process, struct processes *processes, pid_t pid, int pidfd,
		  process_exit_handler on_exit, void *userdata);

/* Deaths are told with PRIORITY_DEATH unless this says otherwise. */
void process_set_priority(struct process *process, int64_t priority);

/* -ESRCH when it is gone or not watched. */
int process_signal(const struct process *process, int signal_number);

/* By a pidfd that is not watched. -ESRCH also when it is invalid. */
int process_signal_pidfd(int pidfd, int signal_number);

/* Stops watching; a child that ends later is reaped like a stranger. NULL and unwatched are fine.
 */
void process_unwatch(struct process *process);

/* A new pidfd, CLOEXEC. -ESRCH when there is no such process. */
int process_open(pid_t pid, int *ret_pidfd);

/* A pidfd of a thread of the process other than the first (Linux 6.9). When a process is killed
 * those are gone at once, while the last to go tears down what they shared: with GPU contexts that
 * takes 30 ms (measured, 580), and only then the process's own pidfd is readable. -EINVAL on an
 * older kernel, -ENOENT when there is no other thread, -ESRCH. */
int process_open_thread(pid_t pid, int *ret_pidfd);

/* "exited with status 1", "was ended by signal 9 (Killed)", "is gone". */
void process_describe_exit(int status, char *buffer, size_t size);
