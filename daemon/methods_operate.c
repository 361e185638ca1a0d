/* SPDX-License-Identifier: MIT */
/* Methods of administrators: Drain, Resume, Restart. */
#include "journal.h"
#include "methods_parts.h"
#include "proto.h"
#include "render.h"
#include "text.h"
#include "util.h"

/* By its name, or a selector of one device; else that is answered. */
static struct instance *find_instance(struct request *request, const char *name)
{
	struct manager *manager = request->manager;
	struct device_set set = {};

	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i] && streq(instance_name(manager->instances[i]), name))
			return manager->instances[i];
	if (inventory_select(&manager->inventory, name, &set) == 0 && device_set_count(&set) == 1)
		for (size_t i = 0; i < manager->n_instances; i++)
			if (device_set_has(&set, i))
				return manager->instances[i];
	methods_fail(request, PROTO_NO_SUCH_INSTANCE, json_pack("{s:s}", "instance", name));
	return NULL;
}

struct operate {
	const char *instance;
	int64_t wait_ms;
	bool wait_set, force;
};

static const struct parameter operate_parameters[] = {
	{"instance", PARAMETER_STRING, true, offsetof(struct operate, instance), 0},
	{"wait_ms", PARAMETER_INT, false, offsetof(struct operate, wait_ms),
	 offsetof(struct operate, wait_set)},
};

static const struct parameter restart_parameters[] = {
	{"instance", PARAMETER_STRING, true, offsetof(struct operate, instance), 0},
	{"force", PARAMETER_BOOL, false, offsetof(struct operate, force), 0},
};

/* The instance that an administrator's call is about; NULL when that was answered. */
static struct instance *read_operation(struct request *request, const struct parameter *table,
				       size_t n, struct operate *operate)
{
	if (methods_read_parameters(request, table, n, operate) < 0)
		return NULL;
	if (!policy_is_admin(&request->manager->policy, &request->who)) {
		methods_deny_to_users(request, "only administrators may do that");
		return NULL;
	}
	if (operate->wait_set && (operate->wait_ms < 0 || operate->wait_ms > INT64_MAX / 1000)) {
		methods_fail_invalid(request, "wait_ms", "must not be negative");
		return NULL;
	}
	if (request->manager->stopping) {
		methods_fail(request, PROTO_SHUTTING_DOWN, NULL);
		return NULL;
	}
	return find_instance(request, operate->instance);
}

static bool is_holdable(struct request *request, const struct instance *instance)
{
	if (!instance_is_gang(instance))
		return true;
	methods_fail_invalid(
		request, "instance",
		"it has several devices and ends with its leases; name one of the devices");
	return false;
}

static int hold(struct request *request, struct instance *instance, bool held)
{
	struct manager *manager = request->manager;
	char reason[CONFIG_TEXT_SIZE + 128];
	int r;

	r = held_set(&manager->held, instance_name(instance), held);
	if (r < 0) {
		(void)text_format(reason, sizeof(reason), "cannot write %s: %s", manager->held.path,
				  strerror(-r));
		methods_fail(request, PROTO_NOT_READY,
			     json_pack("{s:s, s:s, s:s}", "instance", instance_name(instance),
				       "state", instance_state_to_string(instance->fsm.state),
				       "reason", reason));
		return r;
	}
	leases_hold(&manager->leases, instance->setup.index, held);
	return 0;
}

static void wait_for(struct request *request, enum operation_kind kind, struct instance *instance)
{
	if (operations_start(&request->manager->operations, kind, instance, request->connection,
			     request->call->more) < 0)
		methods_fail(request, PROTO_BUSY,
			     json_pack("{s:s}", "reason", "too many such calls: 64 already"));
}

void methods_drain(struct request *request)
{
	struct operate operate = {};
	struct instance *instance = read_operation(request, operate_parameters,
						   ELEMENTSOF(operate_parameters), &operate);

	if (!instance || !is_holdable(request, instance) || hold(request, instance, true) < 0)
		return;
	instance_drain(instance);
	if (operate.wait_set && !operations_is_drained(&request->manager->operations, instance) &&
	    operations_be_patient(&request->manager->operations, instance,
				  (uint64_t)operate.wait_ms * USEC_PER_MSEC) < 0)
		log_error("cannot set a time for the drain of %s", instance_name(instance));
	wait_for(request, OPERATION_DRAIN, instance);
}

void methods_resume(struct request *request)
{
	struct operate operate = {};
	struct instance *instance = read_operation(request, operate_parameters, 1, &operate);

	if (!instance || !is_holdable(request, instance) || hold(request, instance, false) < 0)
		return;
	operations_forget(&request->manager->operations, instance);
	modes_resume(&request->manager->modes, instance);
	connection_reply(request->connection,
			 json_pack("{s:o}", "instance",
				   render_instance(&request->manager->leases, instance)),
			 false);
}

void methods_restart(struct request *request)
{
	struct operate operate = {};
	struct instance *instance = read_operation(request, restart_parameters,
						   ELEMENTSOF(restart_parameters), &operate);
	const struct lease_place *place;

	if (!instance)
		return;
	place = &request->manager->leases.table.places[instance->setup.index];
	if (instance->fsm.held) {
		methods_fail(request, PROTO_HELD,
			     json_pack("{s:s}", "instance", instance_name(instance)));
		return;
	}
	if (place->n_leases > place->n_assigned && !operate.force) {
		methods_fail(request, PROTO_BUSY,
			     json_pack("{s:s, s:I, s:i, s:n}", "reason", "it has leases", "uid",
				       (json_int_t)place->uid, "leases", place->n_leases,
				       "position"));
		return;
	}
	instance_recycle(instance);
	wait_for(request, OPERATION_RESTART, instance);
}
