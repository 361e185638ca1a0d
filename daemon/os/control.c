/* SPDX-License-Identifier: MIT */
#include "control.h"

#include <sys/wait.h>

#include "text.h"
#include "util.h"

static void start_next(struct control *control);

void control_init(struct control *control, struct processes *processes, const char *program,
		  const char *path_variable, const char *pipe_directory_variable,
		  uint64_t *n_commands, uint64_t *n_failed)
{
	*control = (struct control){
		.processes = processes,
		.program = program,
		.path_variable = path_variable,
		.pipe_directory_variable = pipe_directory_variable,
		.n_commands = n_commands,
		.n_failed = n_failed,
	};
}

static struct control_request pop(struct control *control)
{
	struct control_request request = control->queue[control->head];

	control->head = (control->head + 1) % CONTROL_QUEUE_MAX;
	control->n--;
	return request;
}

static void on_outcome(const struct command_outcome *outcome, void *userdata)
{
	struct control *control = userdata;
	struct control_request request = pop(control);

	control->running = NULL;
	*control->n_failed += outcome->result != COMMAND_DONE || outcome->status != 0;
	/* The handler may queue another, which must find nothing running, or drop all. */
	if (request.handler)
		request.handler(outcome, request.userdata);
	if (!control->running)
		start_next(control);
}

static int run(struct control *control, const struct control_request *request)
{
	char *argv[] = {(char *)control->program, NULL};
	char *envp[] = {(char *)control->path_variable, (char *)control->pipe_directory_variable,
			NULL};

	(*control->n_commands)++;
	return command_start(control->processes,
			     &(struct command_plan){
				     .path = control->program,
				     .argv = argv,
				     .envp = envp,
				     .input = request->text,
				     .timeout_usec = request->timeout_usec,
			     },
			     on_outcome, control, &control->running);
}

/* From the event loop: a request that cannot even be started has failed. */
static void start_next(struct control *control)
{
	while (control->n > 0 && !control->running) {
		struct command_outcome failed = {.result = COMMAND_FAILED, .output = ""};
		struct control_request gone;

		failed.status = run(control, &control->queue[control->head]);
		if (failed.status == 0)
			return;
		(*control->n_failed)++;
		gone = pop(control);
		if (gone.handler)
			gone.handler(&failed, gone.userdata);
	}
}

int control_send(struct control *control, const char *command, uint64_t timeout_usec,
		 control_handler handler, void *userdata)
{
	struct control_request *request;
	int r;

	if (control->n == CONTROL_QUEUE_MAX)
		return -ENOBUFS;
	request = &control->queue[(control->head + control->n) % CONTROL_QUEUE_MAX];
	r = text_format(request->text, sizeof(request->text), "%s\n", command);
	if (r < 0)
		return r;
	request->timeout_usec = timeout_usec;
	request->handler = handler;
	request->userdata = userdata;
	if (control->n == 0) {
		r = run(control, request);
		if (r < 0)
			return r;
	}
	control->n++;
	return 0;
}

void control_withdraw(struct control *control)
{
	control->n = control->running ? 1 : 0;
}

void control_drop(struct control *control)
{
	control->running = command_cancel(control->running);
	control->n = 0;
}

bool control_is_done(const struct command_outcome *outcome)
{
	return outcome->result == COMMAND_DONE && WIFEXITED(outcome->status) &&
	       WEXITSTATUS(outcome->status) == 0;
}

bool control_is_answer(const struct command_outcome *outcome)
{
	return control_is_done(outcome) && outcome->output_length > 0;
}
