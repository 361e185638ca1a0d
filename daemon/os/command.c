/* SPDX-License-Identifier: MIT */
#include "command.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>

#include "spawn.h"
#include "util.h"

#define READ_STEP ((size_t)4096)
#define TIMER_ACCURACY_USEC USEC_PER_MSEC

struct command {
	struct process process;
	int output_fd; /* owned */
	sd_event_source *output_source, *timer;
	char *output; /* owned; NUL-ended once there is any */
	size_t size, length;
	command_handler handler;
	void *userdata;
};

static struct command *command_free(struct command *command)
{
	if (!command)
		return NULL;
	process_unwatch(&command->process);
	sd_event_source_disable_unref(command->output_source);
	sd_event_source_disable_unref(command->timer);
	command->output_fd = safe_close(command->output_fd);
	free(command->output);
	free(command);
	return NULL;
}

static void command_freep(struct command **command)
{
	(void)command_free(*command);
}

/* The program and its children: it leads a session of its own. Its number is still its own, for
 * while it is watched it was not reaped. */
static void kill_all(const struct command *command)
{
	if (process_is_watched(&command->process))
		(void)kill(-command->process.pid, SIGKILL);
}

struct command *command_cancel(struct command *command)
{
	if (command)
		kill_all(command);
	return command_free(command);
}

static void finish(struct command *command, enum command_result result, int status)
{
	struct command_outcome outcome = {
		.result = result,
		.status = status,
		.output = command->output ? command->output : "",
		.output_length = command->length,
	};

	if (result != COMMAND_DONE)
		kill_all(command);
	command->handler(&outcome, command->userdata);
	(void)command_free(command);
}

enum {
	OUTPUT_END = 1
};

/* Reads once. OUTPUT_END, -EAGAIN, -E2BIG, -ENOMEM or another -errno. */
static int read_output(struct command *command)
{
	ssize_t n;

	if (command->length + 1 >= command->size) {
		size_t size = MIN(command->size + READ_STEP, COMMAND_OUTPUT_MAX + 2);
		char *output;

		if (command->length >= COMMAND_OUTPUT_MAX)
			return -E2BIG;
		output = realloc(command->output, size);
		if (!output)
			return -ENOMEM;
		command->output = output;
		command->size = size;
	}
	n = read(command->output_fd, command->output + command->length,
		 command->size - command->length - 1);
	if (n < 0)
		return -errno;
	command->length += (size_t)n;
	command->output[command->length] = '\0';
	return n == 0 ? OUTPUT_END : 0;
}

static int read_all_output(struct command *command)
{
	int r;

	do {
		r = read_output(command);
	} while (r == 0 || r == -EINTR);
	return r;
}

static int on_output(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct command *command = userdata;
	int r = read_all_output(command);

	(void)fd;
	(void)revents;
	if (r == OUTPUT_END)
		(void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
	else if (r != -EAGAIN)
		finish(command, r == -E2BIG ? COMMAND_TOO_LONG : COMMAND_FAILED, r);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	finish(userdata, COMMAND_TIMED_OUT, -1);
	return 0;
}

static void on_exit_of_command(struct process *process, int status, void *userdata)
{
	struct command *command = userdata;
	int r = read_all_output(command);

	(void)process;
	if (r == OUTPUT_END || r == -EAGAIN)
		finish(command, COMMAND_DONE, status);
	else
		finish(command, r == -E2BIG ? COMMAND_TOO_LONG : COMMAND_FAILED, r);
}

/* A pipe that holds input already and gives end of file after it. */
static int input_pipe(const char *input, int *ret_fd)
{
	_cleanup_close_ int reader = -EBADF, writer = -EBADF;
	size_t length = strlen(input);
	int fds[2];

	assert(length <= COMMAND_INPUT_MAX);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	reader = fds[0];
	writer = fds[1];
	if (write(writer, input, length) != (ssize_t)length)
		return -EIO;
	*ret_fd = TAKE_FD(reader);
	return 0;
}

static int start_process(struct command *command, struct processes *processes,
			 const struct command_plan *plan)
{
	_cleanup_close_ int input = -EBADF, writer = -EBADF;
	int fds[2], pidfd, r;
	pid_t pid;

	if (plan->input) {
		r = input_pipe(plan->input, &input);
		if (r < 0)
			return r;
	}
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	command->output_fd = fds[0];
	writer = fds[1];
	/* Our end only: the child's must block. */
	if (fcntl(command->output_fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	r = spawn_process(
		&(struct spawn){
			.path = plan->path,
			.argv = plan->argv,
			.envp = plan->envp,
			.stdin_fd = input,
			.stdout_fd = writer,
			.stderr_fd = writer,
			.own_session = true,
			.die_with_parent = true,
		},
		&pid, &pidfd);
	if (r < 0)
		return r;
	r = process_watch(&command->process, processes, pid, pidfd, on_exit_of_command, command);
	if (r < 0)
		(void)kill(pid, SIGKILL); /* our child, and not reaped yet */
	return r;
}

static int add_sources(struct command *command, sd_event *event, uint64_t timeout_usec)
{
	int r;

	r = sd_event_add_io(event, &command->output_source, command->output_fd, EPOLLIN, on_output,
			    command);
	if (r < 0)
		return r;
	(void)sd_event_source_set_priority(command->output_source, PRIORITY_OUTPUT);
	r = sd_event_add_time_relative(event, &command->timer, CLOCK_MONOTONIC, timeout_usec,
				       TIMER_ACCURACY_USEC, on_timer, command);
	if (r < 0)
		return r;
	return sd_event_source_set_priority(command->timer, PRIORITY_TIMER);
}

int command_start(struct processes *processes, const struct command_plan *plan,
		  command_handler handler, void *userdata, struct command **ret)
{
	_cleanup_(command_freep) struct command *command = malloc(sizeof(*command));
	int r;

	if (!command)
		return -ENOMEM;
	*command = (struct command){
		.process = PROCESS_INIT,
		.output_fd = -EBADF,
		.handler = handler,
		.userdata = userdata,
	};
	r = start_process(command, processes, plan);
	if (r < 0)
		return r;
	r = add_sources(command, processes->event, plan->timeout_usec);
	if (r < 0) {
		(void)process_signal(&command->process, SIGKILL);
		return r;
	}
	*ret = TAKE_PTR(command);
	return 0;
}
