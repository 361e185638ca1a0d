/* SPDX-License-Identifier: MIT */
#include "events.h"

#include "render.h"
#include "util.h"

int events_subscribe(struct events *events, struct connection *connection)
{
	if (events->n_subscribers == EVENTS_SUBSCRIBERS_MAX)
		return -EUSERS;
	events->subscribers[events->n_subscribers++] = connection;
	return 0;
}

void events_unsubscribe(struct events *events, const struct connection *connection)
{
	for (size_t i = 0; i < events->n_subscribers; i++)
		if (events->subscribers[i] == connection) {
			events->subscribers[i] = events->subscribers[--events->n_subscribers];
			return;
		}
}

void events_emit(struct events *events, const struct event *event)
{
	_cleanup_json_ json_t *json = NULL;

	if (events->n_subscribers == 0)
		return;
	json = render_event(event);
	/* One that cannot take it ends and leaves the list: from the back, none is missed. */
	for (size_t i = events->n_subscribers; i-- > 0;)
		connection_reply(events->subscribers[i], json_pack("{s:O}", "event", json), true);
}
