/* SPDX-License-Identifier: MIT */
#include "operations.h"

#include "process.h"
#include "render.h"
#include "util.h"

static void answer(const struct operations *operations, const struct operation *operation,
		   bool continues)
{
	connection_reply(operation->connection,
			 json_pack("{s:o}", "instance",
				   render_instance(operations->leases, operation->instance)),
			 continues);
}

bool operations_is_drained(const struct operations *operations, const struct instance *instance)
{
	return instance->fsm.state == INSTANCE_STOPPED &&
	       operations->leases->table.places[instance->setup.index].gang == LEASE_NONE;
}

static bool is_done(const struct operations *operations, const struct operation *operation)
{
	const struct instance *instance = operation->instance;
	enum instance_state state = instance->fsm.state;

	if (operation->kind == OPERATION_DRAIN)
		return operations_is_drained(operations, instance) || !instance->fsm.held;
	return state == INSTANCE_READY || state == INSTANCE_FAILED || state == INSTANCE_STOPPED ||
	       state == INSTANCE_BACKOFF;
}

static void finish(struct operations *operations, struct operation *operation)
{
	answer(operations, operation, false);
	*operation = (struct operation){};
}

int operations_start(struct operations *operations, enum operation_kind kind,
		     struct instance *instance, struct connection *connection, bool more)
{
	struct operation *operation = NULL;

	for (size_t i = 0; i < OPERATIONS_MAX && !operation; i++)
		if (!operations->list[i].connection)
			operation = &operations->list[i];
	if (!operation)
		return -EUSERS;
	*operation =
		(struct operation){.connection = connection, .instance = instance, .kind = kind};
	if (is_done(operations, operation))
		finish(operations, operation);
	else if (more)
		answer(operations, operation, true);
	return 0;
}

void operations_forget(struct operations *operations, const struct instance *instance)
{
	struct patience *patience = &operations->patiences[instance->setup.index];

	patience->timer = sd_event_source_disable_unref(patience->timer);
}

static int on_patience_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct patience *patience = userdata;
	struct instance *instance = patience->instance;
	struct operations *operations = patience->operations;
	static const char why[] = "its device is drained by an administrator";
	size_t place = instance->setup.index, gang = operations->leases->table.places[place].gang;

	(void)source;
	(void)usec;
	operations_forget(operations, instance);
	/* First that, so that nobody gets what others lose. */
	instance_stop(instance, why);
	if (gang != LEASE_NONE && operations->leases->instances[gang])
		instance_stop(operations->leases->instances[gang], why);
	leases_end_all(operations->leases, place, why);
	return 0;
}

int operations_be_patient(struct operations *operations, struct instance *instance,
			  uint64_t patience_usec)
{
	struct patience *patience = &operations->patiences[instance->setup.index];

	operations_forget(operations, instance);
	patience->operations = operations;
	patience->instance = instance;
	return sd_event_add_time_relative(operations->event, &patience->timer, CLOCK_MONOTONIC,
					  patience_usec, USEC_PER_MSEC, on_patience_over, patience);
}

void operations_check(struct operations *operations)
{
	for (size_t i = 0; i < OPERATIONS_MAX; i++) {
		struct operation *operation = &operations->list[i];

		if (operation->connection && is_done(operations, operation))
			finish(operations, operation);
	}
}

void operations_instance_changed(struct operations *operations, struct instance *instance)
{
	if (!instance_is_gang(instance) && operations_is_drained(operations, instance))
		operations_forget(operations, instance);
	operations_check(operations);
}

void operations_connection_ended(struct operations *operations, struct connection *connection)
{
	for (size_t i = 0; i < OPERATIONS_MAX; i++)
		if (operations->list[i].connection == connection)
			operations->list[i] = (struct operation){};
}

void operations_init(struct operations *operations, sd_event *event, struct leases *leases)
{
	*operations = (struct operations){.event = event, .leases = leases};
}

void operations_done(struct operations *operations)
{
	for (size_t i = 0; i < DEVICES_MAX; i++)
		sd_event_source_disable_unref(operations->patiences[i].timer);
}
