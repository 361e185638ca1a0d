/* SPDX-License-Identifier: MIT */
#include "instance_parts.h"
#include "procinfo.h"
#include "text.h"
#include "util.h"

/* An answer is good for so long. */
#define PROOF_USEC USEC_PER_SEC

/* What an answer to get_server_status means. */
static enum instance_event judge_answer(struct instance *instance, const char *answer)
{
	if (text_starts_with(answer, "FAULT"))
		return INSTANCE_EVENT_FAULT_STAYS;
	/* 535 does not know the command; that it answers at all is what can be learned. */
	if (text_starts_with(answer, "Unknown command"))
		instance->no_status = true;
	if (instance->no_status && instance->fsm.state == INSTANCE_FAULTED &&
	    instance_fault_has_holdouts(instance))
		return INSTANCE_EVENT_FAULT_STAYS;
	return INSTANCE_EVENT_ANSWERED;
}

static void on_answer(const struct command_outcome *outcome, void *userdata)
{
	struct instance *instance = userdata;
	enum instance_event event = INSTANCE_EVENT_NO_ANSWER;

	/* What was written before the answer comes first: whom a fault hit, before FAULT. */
	output_catch_up(&instance->output);
	instance_clients_prune(instance);
	instance_files_check(instance);
	if (control_is_answer(outcome))
		event = judge_answer(instance, outcome->output);
	else if (outcome->result == COMMAND_TIMED_OUT)
		event = INSTANCE_EVENT_TIMED_OUT;
	else if (outcome->result != COMMAND_DONE)
		event = INSTANCE_EVENT_NOT_ASKED;
	if (event == INSTANCE_EVENT_ANSWERED)
		instance->answered_usec = instance_now_usec(instance);
	instance_dispatch(instance, event, NULL);
	if (event == INSTANCE_EVENT_ANSWERED)
		instance->setup.handlers->answered(instance, instance->setup.userdata);
	if (control_is_answer(outcome))
		instance_call_roll(instance);
}

/*
 * A stopped server still lets get_server_list answer, but not get_server_status (measured, 580);
 * and an empty list proves nothing. So a server is asked for its status, and without one the
 * daemon for something that always has an answer.
 */
void instance_query(struct instance *instance)
{
	const struct instance_server *server = instance_servers_ready(instance);
	char command[CONTROL_COMMAND_SIZE] = "get_default_active_thread_percentage";

	if (server && !instance->no_status)
		(void)text_format(command, sizeof(command), "get_server_status %d",
				  server->process.pid);
	if (control_send(&instance->control, command, instance->setup.config->timeouts.query_usec,
			 on_answer, instance) < 0)
		instance_dispatch(instance, INSTANCE_EVENT_NOT_ASKED, NULL);
}

/* ---------------------------------------------------------------- now */

static bool is_stopped(pid_t pid)
{
	struct procinfo info;

	return pid > 0 && procinfo_read(pid, &info) == 0 && info.state == 'T';
}

static pid_t find_stopped(const struct instance *instance)
{
	if (is_stopped(instance_control_pid(instance)))
		return instance_control_pid(instance);
	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++)
		if (instance->servers[i].instance && is_stopped(instance->servers[i].process.pid))
			return instance->servers[i].process.pid;
	return 0;
}

void instance_look(struct instance *instance)
{
	pid_t pid = find_stopped(instance);
	char reason[REASON_SIZE];

	if (pid == 0)
		return;
	(void)text_format(reason, sizeof(reason),
			  "does not answer commands: its process %d is stopped (kill -CONT %d lets "
			  "it go on)",
			  pid, pid);
	instance_dispatch(instance, INSTANCE_EVENT_HALTED, reason);
}

void instance_prove(struct instance *instance)
{
	instance_look(instance);
	if (instance->answered_usec > 0 &&
	    instance_now_usec(instance) - instance->answered_usec < PROOF_USEC)
		instance->setup.handlers->answered(instance, instance->setup.userdata);
	else
		instance_dispatch(instance, INSTANCE_EVENT_ASK, NULL);
}
