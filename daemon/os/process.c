/* SPDX-License-Identifier: MIT */
#include "process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "text.h"
#include "util.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

static void closedirp(DIR **directory)
{
	if (*directory)
		(void)closedir(*directory);
}

static bool is_watched(const struct processes *processes, pid_t pid)
{
	for (const struct process *p = processes->first; p; p = p->next)
		if (p->pid == pid)
			return true;
	return false;
}

static int reap_strangers(struct processes *processes)
{
	for (;;) {
		siginfo_t info = {};

		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
			return 0;
		/* Its own source reaps it, and stands in front of the others until then. */
		if (is_watched(processes, info.si_pid))
			return sd_event_source_set_enabled(processes->again, SD_EVENT_ONESHOT);
		(void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
	}
}

static int on_sigchld(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	(void)source;
	(void)info;
	(void)reap_strangers(userdata);
	return 0;
}

static int on_again(sd_event_source *source, void *userdata)
{
	(void)source;
	(void)reap_strangers(userdata);
	return 0;
}

int processes_init(struct processes *processes, sd_event *event)
{
	int r;

	*processes = (struct processes){.event = event};
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return -errno;
	r = sd_event_add_defer(event, &processes->again, on_again, processes);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(processes->again, SD_EVENT_OFF);
	(void)sd_event_source_set_priority(processes->again, PRIORITY_REAP);
	r = sd_event_add_signal(event, &processes->sigchld, SIGCHLD, on_sigchld, processes);
	if (r < 0)
		return r;
	return sd_event_source_set_priority(processes->sigchld, PRIORITY_REAP);
}

void processes_done(struct processes *processes)
{
	while (processes->first)
		process_unwatch(processes->first);
	processes->sigchld = sd_event_source_disable_unref(processes->sigchld);
	processes->again = sd_event_source_disable_unref(processes->again);
}

static int wait_status(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? (info->si_status & 0xff) << 8 : info->si_status & 0x7f;
}

static int on_pidfd(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct process *process = userdata;
	siginfo_t info = {};
	int status = -1;

	(void)source;
	(void)revents;
	if (waitid((idtype_t)P_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
		status = wait_status(&info);
	process_unwatch(process);
	process->on_exit(process, status, process->userdata);
	return 0;
}

int process_watch(struct process *process, struct processes *processes, pid_t pid, int pidfd,
		  process_exit_handler on_exit, void *userdata)
{
	_cleanup_close_ int owned = pidfd;
	sd_event_source *source;
	int r;

	r = sd_event_add_io(processes->event, &source, pidfd, EPOLLIN, on_pidfd, process);
	if (r < 0)
		return r;
	(void)sd_event_source_set_priority(source, PRIORITY_DEATH);
	*process = (struct process){
		.processes = processes,
		.next = processes->first,
		.pid = pid,
		.pidfd = TAKE_FD(owned),
		.source = source,
		.on_exit = on_exit,
		.userdata = userdata,
	};
	if (processes->first)
		processes->first->previous = process;
	processes->first = process;
	return 0;
}

void process_set_priority(struct process *process, int64_t priority)
{
	(void)sd_event_source_set_priority(process->source, priority);
}

int process_signal_pidfd(int pidfd, int signal_number)
{
	if (pidfd < 0)
		return -ESRCH;
	if (syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0) < 0)
		return -errno;
	return 0;
}

int process_signal(const struct process *process, int signal_number)
{
	return process_signal_pidfd(process->pidfd, signal_number);
}

void process_unwatch(struct process *process)
{
	if (!process || !process_is_watched(process))
		return;
	if (process->previous)
		process->previous->next = process->next;
	else
		process->processes->first = process->next;
	if (process->next)
		process->next->previous = process->previous;
	process->next = process->previous = NULL;
	process->source = sd_event_source_disable_unref(process->source);
	process->pidfd = safe_close(process->pidfd);
}

int process_open(pid_t pid, int *ret_pidfd)
{
	int fd;

	if (pid <= 0)
		return -ESRCH;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	*ret_pidfd = fd;
	return 0;
}

static int open_thread(pid_t tid, int *ret_pidfd)
{
	int fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);

	if (fd < 0)
		return -errno;
	*ret_pidfd = fd;
	return 0;
}

int process_open_thread(pid_t pid, int *ret_pidfd)
{
	_cleanup_(closedirp) DIR *directory = NULL;
	const struct dirent *entry;
	char path[64];
	int64_t tid;

	(void)text_format(path, sizeof(path), "/proc/%d/task", (int)pid);
	directory = opendir(path);
	if (!directory)
		return errno == ENOENT ? -ESRCH : -errno;
	while ((entry = readdir(directory)))
		if (text_parse_int(entry->d_name, 1, INT32_MAX, &tid) == 0 && tid != pid)
			return open_thread((pid_t)tid, ret_pidfd);
	return -ENOENT;
}

void process_describe_exit(int status, char *buffer, size_t size)
{
	if (status < 0)
		(void)text_copy(buffer, size, "is gone");
	else if (WIFEXITED(status))
		(void)text_format(buffer, size, "exited with status %d", WEXITSTATUS(status));
	else
		(void)text_format(buffer, size, "was ended by signal %d (%s)", WTERMSIG(status),
				  strsignal(WTERMSIG(status)));
}
