/* SPDX-License-Identifier: MIT */
#include "instance_parts.h"
#include "text.h"
#include "util.h"

void instance_lines_add(struct instance_lines *lines, const char *text, size_t length)
{
	char *line = lines->texts[lines->n++ % INSTANCE_LINES_MAX];

	length = MIN(length, (size_t)INSTANCE_LINE_SIZE - 1);
	memcpy(line, text, length);
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] >= 0x80)
			line[i] = '?';
	line[length] = '\0';
}

const char *instance_lines_get(const struct instance_lines *lines, size_t i)
{
	uint64_t kept = MIN(lines->n, (uint64_t)INSTANCE_LINES_MAX);

	return i < kept ? lines->texts[(lines->n - kept + i) % INSTANCE_LINES_MAX] : NULL;
}

void instance_hits_add_lease(struct instance_hits *hits, const char *lease)
{
	bool known = *lease == '\0';

	for (size_t i = 0; i < hits->n_leases; i++)
		known |= streq(hits->leases[i], lease);
	if (!known && hits->n_leases < INSTANCE_HITS_MAX)
		(void)text_copy(hits->leases[hits->n_leases++], LEASE_ID_SIZE, lease);
}

void instance_hits_add(struct instance_hits *hits, int32_t pid, const char *lease)
{
	bool known = false;

	for (size_t i = 0; i < hits->n_pids; i++)
		known |= hits->pids[i] == pid;
	if (!known && hits->n_pids < INSTANCE_HITS_MAX)
		hits->pids[hits->n_pids++] = pid;
	instance_hits_add_lease(hits, lease);
}

struct instance_death *instance_death_add(struct instance *instance, enum instance_loss what)
{
	struct instance_death *death =
		&instance->deaths[instance->n_deaths++ % INSTANCE_DEATHS_MAX];

	*death = (struct instance_death){
		.at_usec = clock_usec(CLOCK_REALTIME),
		.what = what,
		.lines = instance->lines,
	};
	return death;
}

void instance_death_while_away(struct instance *instance, pid_t pid)
{
	struct instance_death *death = instance_death_add(instance, INSTANCE_LOSS_CONTROL);

	instance->setup.stats->control_deaths++;
	instance->fsm.generation++;
	instance->fsm.restarts++;
	instance->died_away = true;
	(void)text_copy(death->status, sizeof(death->status), "is gone");
	(void)text_format(death->reason, sizeof(death->reason),
			  "control daemon %d ended while no supervisor ran", pid);
}

struct instance_death *instance_death_last(struct instance *instance)
{
	return &instance->deaths[(instance->n_deaths - 1) % INSTANCE_DEATHS_MAX];
}

const struct instance_death *instance_last_death(const struct instance *instance)
{
	return &instance->deaths[(instance->n_deaths - 1) % INSTANCE_DEATHS_MAX];
}

const char *instance_loss_to_string(enum instance_loss loss)
{
	switch (loss) {
	case INSTANCE_LOSS_CONTROL:
		return "control";
	case INSTANCE_LOSS_SERVER:
		return "server";
	case INSTANCE_LOSS_FAULT:
		return "fault";
	case INSTANCE_LOSS_WEDGE:
		return "wedge";
	}
	return "?";
}
