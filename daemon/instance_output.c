/* SPDX-License-Identifier: MIT */
#include "instance_parts.h"
#include "util.h"

/* Lines an instance may write to the journal in a second. What is more is counted only: a flood
 * costs bounded time here and bounded space there. */
#define LOGGED_PER_SECOND 200

static void report_kept_back(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);

	if (instance->lines_kept_back > 0)
		journal_log(LOG_WARNING, &context, "%u lines of MPS were not logged: too many",
			    instance->lines_kept_back);
	instance->lines_kept_back = 0;
}

static bool may_log(struct instance *instance)
{
	uint64_t now_usec = instance_now_usec(instance);

	if (now_usec - instance->lines_from_usec >= USEC_PER_SEC) {
		report_kept_back(instance);
		instance->lines_from_usec = now_usec;
		instance->lines_logged = 0;
	}
	if (instance->lines_logged++ < LOGGED_PER_SECOND)
		return true;
	instance->lines_kept_back++;
	return false;
}

/* What we do to a daemon makes it and its servers write, again and again while clients keep them:
 * that says nothing of why it came to this. */
static bool has_orders(const struct instance *instance)
{
	return instance->fsm.state == INSTANCE_STOPPING ||
	       instance->fsm.state == INSTANCE_FAULTED || instance->ending_servers;
}

static void log_line(struct instance *instance, const struct mpslog_line *line, int level)
{
	const char *role = line->writer == instance_control_pid(instance) ? "control" : "server";
	struct journal_context context = instance_context(instance, role, line->writer);
	struct instance_client *client;

	if (!journal_wants(level) || !may_log(instance))
		return;
	client = line->pid > 0 ? instance_clients_find(instance, line->pid) : NULL;
	context.lease = client ? client->lease : NULL;
	journal_log_foreign(level, &context, line->text, line->text_length);
}

void instance_output_line(const char *text, size_t length, void *userdata)
{
	struct instance *instance = userdata;
	struct mpslog_line line;
	enum mpslog_worth worth;

	mpslog_parse(text, length, &line);
	worth = mpslog_judge(&line, instance_control_pid(instance), has_orders(instance),
			     &instance->answering);
	log_line(instance, &line, worth == MPSLOG_CHATTER ? LOG_DEBUG : LOG_INFO);
	if (worth == MPSLOG_NEWS && line.text_length > 0)
		instance_lines_add(&instance->lines, line.text, line.text_length);
	if (line.kind == MPSLOG_STARTING) {
		instance_dispatch(instance, INSTANCE_EVENT_HINT, NULL);
		return;
	}
	instance_servers_line(instance, &line);
	instance_clients_line(instance, &line);
	instance_fault_line(instance, &line);
}
