/* SPDX-License-Identifier: MIT */
/* Answers to those who ask for leases and hold them, and events for all. */
#include "journal.h"
#include "leases_parts.h"
#include "render.h"

const char *leases_place_name(const struct holding *holding)
{
	size_t place = leases_lease_of(holding)->place;
	const struct instance *instance =
		place == LEASE_NONE ? NULL : holding->leases->instances[place];

	return instance ? instance_name(instance) : NULL;
}

void leases_log(const struct holding *holding, const char *message)
{
	const struct lease *lease = leases_lease_of(holding);
	struct journal_context context = {
		.instance = leases_place_name(holding),
		.lease = lease->id,
		.pid = lease->request.pid,
	};

	journal_log(LOG_INFO, &context, "lease %s of uid %u: %s", lease->id, lease->request.uid,
		    message);
}

struct event leases_event(const struct holding *holding, const char *kind, const char *message)
{
	const struct lease *lease = leases_lease_of(holding);

	return (struct event){
		.kind = kind,
		.instance = leases_place_name(holding),
		.lease = lease->id,
		.pid = lease->request.pid,
		.has_uid = true,
		.uid = lease->request.uid,
		.message = message,
	};
}

void leases_emit(const struct holding *holding, const char *kind, const char *message)
{
	struct event event = leases_event(holding, kind, message);

	leases_log(holding, message);
	events_emit(holding->leases->events, &event);
}

void leases_tell(struct holding *holding, const char *what, const struct event *event,
		 bool continues)
{
	json_t *reply;

	if (!holding->answering || !holding->connection)
		return;
	reply = json_pack("{s:s, s:o, s:o*}", "what", what, "lease",
			  render_lease(holding->leases, holding->index), "event",
			  event ? render_event(event) : NULL);
	if (!continues)
		holding->answering = false;
	connection_reply(holding->connection, reply, continues);
}

void leases_tell_queued(struct holding *holding, int position)
{
	if (holding->answering && holding->connection)
		connection_reply(
			holding->connection,
			json_pack("{s:s, s:o}", "what", "queued", "lease",
				  render_waiter(holding->leases, holding->index, position)),
			true);
}

void leases_refuse(struct holding *holding, const char *error, json_t *parameters)
{
	if (!holding->answering || !holding->connection) {
		json_decref(parameters);
		return;
	}
	holding->answering = false;
	connection_error(holding->connection, error, parameters);
}
