/* SPDX-License-Identifier: MIT */
/*
 * A GPU fault. MPS says completely whom it hit and nothing of who did it (measured, 580), so
 * neither do we: who was present at how many of the last faults is all that can be said.
 */
#include <signal.h>

#include "instance_parts.h"
#include "text.h"
#include "util.h"

/* ---------------------------------------------------------------- who was present */

void instance_presence_add(struct instance_presence *presence, uint32_t uid, const char *name)
{
	for (size_t i = 0; i < presence->n; i++)
		if (presence->who[i].uid == uid && streq(presence->who[i].name, name))
			return;
	if (presence->n == INSTANCE_PRESENT_MAX)
		return;
	presence->who[presence->n].uid = uid;
	(void)text_copy(presence->who[presence->n].name, sizeof(presence->who[0].name), name);
	presence->n++;
}

/* At the last fault. */
static void remember_presence(struct instance *instance, const struct instance_hits *hits)
{
	struct instance_presence *presence =
		&instance->faults[(instance->n_faults - 1) % INSTANCE_FAULTS_MAX];
	const char *name;
	uint32_t uid;

	for (size_t i = 0; i < hits->n_leases; i++)
		if (instance->setup.handlers->describe(instance, hits->leases[i], &uid, &name,
						       instance->setup.userdata))
			instance_presence_add(presence, uid, name);
}

static int count_presence(const struct instance *instance, uint32_t uid, const char *name)
{
	uint64_t n_faults = MIN(instance->n_faults, (uint64_t)INSTANCE_FAULTS_MAX);
	int n = 0;

	for (uint64_t f = 0; f < n_faults; f++)
		for (size_t i = 0; i < instance->faults[f].n; i++)
			n += instance->faults[f].who[i].uid == uid &&
			     streq(instance->faults[f].who[i].name, name);
	return n;
}

/* Was this pair in an earlier fault of the ring? Then it has been shown. */
static bool seen_before(const struct instance *instance, uint64_t fault, uint32_t uid,
			const char *name)
{
	for (uint64_t f = 0; f < fault; f++)
		for (size_t i = 0; i < instance->faults[f].n; i++)
			if (instance->faults[f].who[i].uid == uid &&
			    streq(instance->faults[f].who[i].name, name))
				return true;
	return false;
}

bool instance_suspect(const struct instance *instance, size_t i, uint32_t *ret_uid,
		      const char **ret_name, int *ret_present, int *ret_faults)
{
	uint64_t n_faults = MIN(instance->n_faults, (uint64_t)INSTANCE_FAULTS_MAX);

	for (uint64_t f = 0; f < n_faults; f++)
		for (size_t k = 0; k < instance->faults[f].n; k++) {
			uint32_t uid = instance->faults[f].who[k].uid;
			const char *name = instance->faults[f].who[k].name;

			if (seen_before(instance, f, uid, name) || i-- > 0)
				continue;
			*ret_uid = uid;
			*ret_name = name;
			*ret_present = count_presence(instance, uid, name);
			*ret_faults = (int)n_faults;
			return true;
		}
	return false;
}

/* ---------------------------------------------------------------- whom it hit */

/* A victim whose line came after the others were told, because one had ended before it was written:
 * the same loss, told to one more. */
static void tell_late(struct instance *instance, int32_t pid, const char *lease)
{
	struct instance_death late = *instance_death_last(instance);

	instance_hits_add(&instance_death_last(instance)->hits, pid, lease);
	late.hits = (struct instance_hits){};
	instance_hits_add(&late.hits, pid, lease);
	remember_presence(instance, &late.hits);
	instance_save(instance);
	instance->setup.handlers->interrupted(instance, &late, instance->setup.userdata);
}

/* Releases that do not name clients as they come name those that a fault hits. */
static void add_hit(struct instance *instance, const struct mpslog_line *line)
{
	struct instance_client *client;

	if (line->pid <= 0)
		return;
	/* Who is known stays as known: that process may have ended of it already. */
	if (!instance_clients_find(instance, line->pid))
		instance_clients_add(instance, line->pid, line->writer);
	client = instance_clients_find(instance, line->pid);
	if (client && client->hit)
		return;
	if (client)
		client->hit = true;
	if (instance->fsm.state == INSTANCE_FAULTED && !instance->fsm.untold)
		tell_late(instance, line->pid, client ? client->lease : "");
	else
		instance_hits_add(&instance->fault_hits, line->pid, client ? client->lease : "");
}

/*
 * Lines about one fault: that there is one, a line for each client it hit, and their pids once
 * more, each on a line of its own. Only from a server of ours. Who copies one's pid into a command
 * (which is logged as it is) can make us look, no more than a real fault of theirs could.
 */
void instance_fault_line(struct instance *instance, const struct mpslog_line *line)
{
	if (!instance_servers_has(instance, line->writer))
		return;
	if (line->kind == MPSLOG_NUMBER && line->writer == instance->fault_lister) {
		add_hit(instance, line);
		return;
	}
	if (line->writer == instance->fault_lister)
		instance->fault_lister = 0;
	if (line->kind == MPSLOG_FAULT) {
		if (!instance->fsm.untold)
			instance->fault_hits = (struct instance_hits){};
		instance_dispatch(instance, INSTANCE_EVENT_FAULT, NULL);
	} else if (line->kind == MPSLOG_FAULT_HIT) {
		add_hit(instance, line);
	} else if (line->kind == MPSLOG_FAULT_LIST) {
		instance->fault_lister = line->writer;
	}
}

bool instance_fault_has_holdouts(const struct instance *instance)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		if (instance->clients[i].pid > 0 && instance->clients[i].hit)
			return true;
	return false;
}

/* "pids 12, 34" of those that still hold the server, for the state's reason. */
static void name_holdouts(const struct instance *instance, char *buffer, size_t size)
{
	size_t length;
	int n = 0;

	(void)text_copy(buffer, size, "");
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		if (instance->clients[i].pid == 0 || !instance->clients[i].hit)
			continue;
		length = strlen(buffer);
		(void)text_format(buffer + length, size - length, "%s%d", n++ ? ", " : "",
				  instance->clients[i].pid);
	}
}

void instance_fault_describe(struct instance *instance)
{
	char pids[REASON_SIZE / 2];

	name_holdouts(instance, pids, sizeof(pids));
	(void)text_format(instance->fsm.reason, sizeof(instance->fsm.reason),
			  *pids ? "a GPU fault; waiting for pids %s to leave"
				: "a GPU fault; waiting for MPS to recover%s",
			  pids);
}

static void update_reason(struct instance *instance)
{
	instance_fault_describe(instance);
	instance->setup.handlers->changed(instance, instance->setup.userdata);
}

void instance_fault_client_gone(struct instance *instance)
{
	if (instance->fsm.state != INSTANCE_FAULTED)
		return;
	if (instance_fault_has_holdouts(instance))
		update_reason(instance);
	else
		instance_dispatch(instance, INSTANCE_EVENT_VICTIMS_GONE, NULL);
}

/* ---------------------------------------------------------------- what is done */

/* Who was hit was written and is lost: with the supervisor that read it, or in a flood. A fault
 * hits all clients of its GPU (measured, 580); of several GPUs it is not known whose. */
static void hit_all(struct instance *instance)
{
	if (instance_is_gang(instance))
		return;
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++)
		instance->clients[i].hit = instance->clients[i].pid > 0;
	instance_clients_all(instance, &instance->fault_hits);
}

void instance_fault_tell(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);
	struct instance_death *death = instance_death_add(instance, INSTANCE_LOSS_FAULT);

	if (instance->fault_hits.n_pids == 0)
		hit_all(instance);
	context.message_id = JOURNAL_ID_FAULT;
	death->hits = instance->fault_hits;
	instance->fault_hits = (struct instance_hits){};
	(void)text_copy(death->status, sizeof(death->status), "FAULT");
	(void)text_format(death->reason, sizeof(death->reason),
			  "a GPU fault hit %zu client%s of %zu lease%s (MPS does not say whose "
			  "fault it was)",
			  death->hits.n_pids, death->hits.n_pids == 1 ? "" : "s",
			  death->hits.n_leases, death->hits.n_leases == 1 ? "" : "s");
	instance->faults[instance->n_faults++ % INSTANCE_FAULTS_MAX].n = 0;
	remember_presence(instance, &death->hits);
	journal_log(LOG_ERR, &context, "%s", death->reason);
	instance_save(instance);
	update_reason(instance);
	instance->setup.handlers->interrupted(instance, death, instance->setup.userdata);
}

void instance_fault_terminate(struct instance *instance)
{
	char command[CONTROL_COMMAND_SIZE];

	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		const struct instance_client *client = &instance->clients[i];
		struct journal_context context = instance_context(instance, NULL, client->pid);

		if (client->pid == 0 || !client->hit)
			continue;
		context.lease = client->lease;
		journal_log(
			LOG_WARNING, &context,
			"client %d holds the faulted server after fault_grace: terminate_client",
			client->pid);
		(void)text_format(command, sizeof(command), "terminate_client %d %d",
				  client->server, client->pid);
		(void)control_send(&instance->control, command,
				   instance->setup.config->timeouts.query_usec, NULL, NULL);
	}
}

/* Only what is proven to be a job under a lease of ours: MPS named it, its pidfd is from then, and
 * it came through a lease's directory. */
void instance_fault_signal(struct instance *instance, int signal_number)
{
	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		const struct instance_client *client = &instance->clients[i];
		struct journal_context context = instance_context(instance, NULL, client->pid);

		if (client->pid == 0 || !client->hit || client->lease[0] == '\0')
			continue;
		context.lease = client->lease;
		journal_log(LOG_WARNING, &context, "client %d still holds the faulted server: %s",
			    client->pid, signal_number == SIGKILL ? "SIGKILL" : "SIGTERM");
		(void)process_signal_pidfd(client->pidfd, signal_number);
	}
}

void instance_fault_forget(struct instance *instance)
{
	instance->fault_lister = 0;
	instance->fault_hits = (struct instance_hits){};
}
