/* SPDX-License-Identifier: MIT */
/*
 * What is remembered of losses, as the state file keeps it: the last deaths, and who was there at
 * the last faults. It is shown, and a holder that comes back is told of it; nobody is signalled for
 * what stands there. Each list has a cap, so the file has one.
 */
#include "instance_parts.h"
#include "text.h"
#include "util.h"
#include "varlink.h"

/* ---------------------------------------------------------------- writing */

static json_t *describe_lines(const struct instance_lines *lines)
{
	json_t *list = json_array();
	const char *line;

	for (size_t i = 0; (line = instance_lines_get(lines, i)); i++)
		json_array_append_new(list, varlink_text(line));
	return list;
}

static json_t *describe_pids(const struct instance_hits *hits)
{
	json_t *list = json_array();

	for (size_t i = 0; i < hits->n_pids; i++)
		json_array_append_new(list, json_integer(hits->pids[i]));
	return list;
}

static json_t *describe_leases(const struct instance_hits *hits)
{
	json_t *list = json_array();

	for (size_t i = 0; i < hits->n_leases; i++)
		json_array_append_new(list, json_string(hits->leases[i]));
	return list;
}

static json_t *describe_death(const struct instance_death *death)
{
	return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:o}", "at_usec",
			 (json_int_t)death->at_usec, "what", instance_loss_to_string(death->what),
			 "status", varlink_text(death->status), "reason",
			 varlink_text(death->reason), "hit_pids", describe_pids(&death->hits),
			 "hit_leases", describe_leases(&death->hits), "lines",
			 describe_lines(&death->lines));
}

static json_t *describe_presence(const struct instance_presence *presence)
{
	json_t *list = json_array();

	for (size_t i = 0; i < presence->n; i++)
		json_array_append_new(list, json_pack("{s:I, s:o}", "uid",
						      (json_int_t)presence->who[i].uid, "name",
						      varlink_text(presence->who[i].name)));
	return list;
}

/* The oldest first, as they will be remembered again. */
json_t *instance_losses_describe(const struct instance *instance)
{
	uint64_t n_deaths = MIN(instance->n_deaths, (uint64_t)INSTANCE_DEATHS_MAX);
	uint64_t n_faults = MIN(instance->n_faults, (uint64_t)INSTANCE_FAULTS_MAX);
	json_t *deaths = json_array(), *faults = json_array();

	for (uint64_t i = instance->n_deaths - n_deaths; i < instance->n_deaths; i++)
		json_array_append_new(deaths,
				      describe_death(&instance->deaths[i % INSTANCE_DEATHS_MAX]));
	for (uint64_t i = instance->n_faults - n_faults; i < instance->n_faults; i++)
		json_array_append_new(
			faults, describe_presence(&instance->faults[i % INSTANCE_FAULTS_MAX]));
	return json_pack("{s:o, s:o}", "deaths", deaths, "faults", faults);
}

/* ---------------------------------------------------------------- reading */

static const char *text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value ? value : "";
}

static bool read_loss(const char *name, enum instance_loss *ret)
{
	for (int loss = INSTANCE_LOSS_CONTROL; loss <= INSTANCE_LOSS_WEDGE; loss++)
		if (streq(name, instance_loss_to_string((enum instance_loss)loss))) {
			*ret = (enum instance_loss)loss;
			return true;
		}
	return false;
}

static void restore_hits(struct instance_hits *hits, const json_t *death)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(death, "hit_pids"), i, entry) {
		json_int_t pid = json_integer_value(entry);

		if (pid > 0 && pid <= INT32_MAX)
			instance_hits_add(hits, (int32_t)pid, "");
	}
	json_array_foreach(json_object_get(death, "hit_leases"), i, entry) {
		const char *id = json_string_value(entry);

		if (id && strlen(id) == LEASE_ID_SIZE - 1)
			instance_hits_add_lease(hits, id);
	}
}

static void restore_death(struct instance *instance, const json_t *entry)
{
	enum instance_loss what;
	struct instance_death *death;
	const json_t *line;
	size_t i;

	if (!read_loss(text(entry, "what"), &what))
		return;
	death = instance_death_add(instance, what);
	death->at_usec = (uint64_t)json_integer_value(json_object_get(entry, "at_usec"));
	(void)text_copy(death->status, sizeof(death->status), text(entry, "status"));
	(void)text_copy(death->reason, sizeof(death->reason), text(entry, "reason"));
	restore_hits(&death->hits, entry);
	json_array_foreach(json_object_get(entry, "lines"), i, line) {
		if (json_is_string(line))
			instance_lines_add(&death->lines, json_string_value(line),
					   json_string_length(line));
	}
}

static void restore_fault(struct instance *instance, const json_t *list)
{
	struct instance_presence *presence =
		&instance->faults[instance->n_faults++ % INSTANCE_FAULTS_MAX];
	const json_t *entry;
	size_t i;

	presence->n = 0;
	json_array_foreach(list, i, entry) {
		instance_presence_add(presence,
				      (uint32_t)json_integer_value(json_object_get(entry, "uid")),
				      text(entry, "name"));
	}
}

void instance_losses_restore(struct instance *instance, const json_t *content)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(content, "deaths"), i, entry) {
		restore_death(instance, entry);
	}
	json_array_foreach(json_object_get(content, "faults"), i, entry) {
		restore_fault(instance, entry);
	}
}
