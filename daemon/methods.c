/* SPDX-License-Identifier: MIT */
#include "methods.h"

#include <fcntl.h>
#include <stdarg.h>

#include "methods_parts.h"
#include "process.h"
#include "procinfo.h"
#include "proto.h"
#include "render.h"
#include "text.h"
#include "util.h"

#define GROUPS_TEXT_SIZE 256 /* longer lists are cut */

_Static_assert(PROTO_COUNT_MAX == GANG_DEVICES_MAX, "devices in a lease");
_Static_assert(PROTO_NAME_MAX == LEASE_NAME_SIZE - 1, "a lease's name");

void methods_fail(struct request *request, const char *error, json_t *parameters)
{
	connection_error(request->connection, error, parameters);
}

void methods_fail_invalid(struct request *request, const char *field, const char *reason)
{
	methods_fail(request, PROTO_INVALID_REQUEST,
		     json_pack("{s:s?, s:s}", "field", field, "reason", reason));
}

void methods_deny(struct request *request, const char *reason)
{
	methods_fail(request, PROTO_PERMISSION_DENIED, json_pack("{s:s}", "reason", reason));
}

/* "a, b", cut to size. */
static void list_groups(const struct config_strings *groups, char *buffer, size_t size)
{
	size_t length = 0;

	buffer[0] = '\0';
	for (size_t i = 0; i < groups->n; i++) {
		(void)text_format(buffer + length, size - length, "%s%s", i ? ", " : "",
				  groups->items[i]);
		length = strlen(buffer);
	}
}

/* As policy_is_admin has it. */
static void list_admins(const struct manager *manager, char *buffer, size_t size)
{
	const struct config_strings *groups = &manager->config.access.admin_groups;
	char names[GROUPS_TEXT_SIZE], own[32] = "";

	list_groups(groups, names, sizeof(names));
	if (manager->policy.own_uid != 0)
		(void)text_format(own, sizeof(own), ", uid %u", manager->policy.own_uid);
	if (groups->n > 0)
		(void)text_format(buffer, size, "root%s, members of %s (access.admin_groups)", own,
				  names);
	else
		(void)text_format(buffer, size, "root%s (access.admin_groups is empty)", own);
}

void methods_deny_to_users(struct request *request, const char *format, ...)
{
	char why[256], who[GROUPS_TEXT_SIZE + 64], reason[sizeof(why) + sizeof(who)];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(why, sizeof(why), format, ap);
	va_end(ap);
	list_admins(request->manager, who, sizeof(who));
	(void)text_format(reason, sizeof(reason), "%s: %s", why, who);
	methods_deny(request, reason);
}

static void deny_lease(struct request *request)
{
	char names[GROUPS_TEXT_SIZE], reason[GROUPS_TEXT_SIZE + 96];

	list_groups(&request->manager->config.access.lease_groups, names, sizeof(names));
	(void)text_format(reason, sizeof(reason),
			  "you are in none of the groups that may take leases: %s "
			  "(access.lease_groups)",
			  names);
	methods_deny(request, reason);
}

/* Reads parameters or answers what is wrong with them. */
int methods_read_parameters(struct request *request, const struct parameter *table, size_t n,
			    void *values)
{
	const char *wrong;
	int r;

	r = parameters_read(request->call->parameters, table, n, values, &wrong);
	if (r < 0)
		methods_fail(request, VARLINK_INVALID_PARAMETER,
			     json_pack("{s:s}", "parameter", wrong));
	return r;
}

/* ---------------------------------------------------------------- AcquireLease */

struct acquire {
	json_t *devices;
	const char *name;
	int64_t count, threads_percent, memory_bytes, clients, wait_ms, pid, uid;
	int bind;
	bool exclusive;
	bool threads_set, memory_set, wait_set, bind_set, pid_set, uid_set;
};

#define AT(field) offsetof(struct acquire, field)
static const struct parameter acquire_parameters[] = {
	{"count", PARAMETER_INT, false, AT(count), 0},
	{"devices", PARAMETER_STRINGS, false, AT(devices), 0},
	{"threads_percent", PARAMETER_INT, false, AT(threads_percent), AT(threads_set)},
	{"memory_bytes", PARAMETER_INT, false, AT(memory_bytes), AT(memory_set)},
	{"clients", PARAMETER_INT, false, AT(clients), 0},
	{"exclusive", PARAMETER_BOOL, false, AT(exclusive), 0},
	{"name", PARAMETER_STRING, false, AT(name), 0},
	{"wait_ms", PARAMETER_INT, false, AT(wait_ms), AT(wait_set)},
	{"bind", PARAMETER_BIND, false, AT(bind), AT(bind_set)},
	{"pid", PARAMETER_INT, false, AT(pid), AT(pid_set)},
	{"uid", PARAMETER_INT, false, AT(uid), AT(uid_set)},
};
#undef AT

/* Values of the right type that make no sense: NULL when there are none. */
static const char *check_numbers(const struct acquire *acquire, const char **ret_field)
{
	*ret_field = "count";
	if (acquire->count < 1 || acquire->count > DEVICES_MAX)
		return "must be 1 to 256";
	*ret_field = "threads_percent";
	if (acquire->threads_set &&
	    (acquire->threads_percent < 1 || acquire->threads_percent > 100))
		return "must be 1 to 100";
	*ret_field = "memory_bytes";
	if (acquire->memory_set && acquire->memory_bytes < PROTO_MEMORY_MIN_BYTES)
		return "must be at least 1048576 (1M): MPS counts in mebibytes";
	if (acquire->memory_bytes > INT64_MAX / 2)
		return "is more than any device has";
	*ret_field = "clients";
	if (acquire->clients < 1 || acquire->clients > PROTO_CLIENTS_MAX)
		return "must be 1 to 1024";
	*ret_field = "wait_ms";
	if (acquire->wait_set && (acquire->wait_ms < 0 || acquire->wait_ms > INT64_MAX / 1000))
		return "must not be negative";
	*ret_field = "uid";
	if (acquire->uid_set && (acquire->uid < 0 || acquire->uid >= UINT32_MAX))
		return "is no user";
	return NULL;
}

static const char *check_words(const struct acquire *acquire, const char **ret_field)
{
	*ret_field = "name";
	if (acquire->name && strlen(acquire->name) >= LEASE_NAME_SIZE)
		return "is longer than 127 bytes";
	for (const char *p = acquire->name; p && *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return "holds control characters";
	*ret_field = "pid";
	if (acquire->pid_set && acquire->bind != LEASE_BIND_PROCESS)
		return "needs bind \"process\"";
	if (acquire->pid_set && (acquire->pid < 1 || acquire->pid > INT32_MAX))
		return "is no process";
	return NULL;
}

static int check_values(struct request *request, struct acquire *acquire)
{
	const char *field, *reason;

	if (acquire->pid_set && !acquire->bind_set)
		acquire->bind = LEASE_BIND_PROCESS;
	reason = check_numbers(acquire, &field);
	if (!reason)
		reason = check_words(acquire, &field);
	if (!reason)
		return 0;
	methods_fail_invalid(request, field, reason);
	return -EINVAL;
}

static int check_rights(struct request *request, const struct acquire *acquire)
{
	const struct policy *policy = &request->manager->policy;
	bool is_admin = policy_is_admin(policy, &request->who);

	if (!policy_may_lease(policy, &request->who))
		deny_lease(request);
	else if (acquire->uid_set && acquire->uid != request->who.uid && !is_admin)
		methods_deny_to_users(request,
				      "only administrators may take a lease for another user");
	else if (policy->own_uid != 0 && request->who.uid != policy->own_uid)
		methods_deny(request, "this supervisor does not run as root, so it serves only its "
				      "own user");
	else if (acquire->bind == LEASE_BIND_NONE && !is_admin)
		methods_deny_to_users(request,
				      "only administrators may take a lease that nothing holds");
	else
		return 0;
	return -EPERM;
}

static int select_devices(struct request *request, const json_t *selectors, struct device_set *set)
{
	const struct inventory *inventory = &request->manager->inventory;

	if (json_array_size(selectors) == 0)
		return inventory_select(inventory, "all", set);
	for (size_t i = 0; i < json_array_size(selectors); i++) {
		const char *selector = json_string_value(json_array_get(selectors, i));
		int r = inventory_select(inventory, selector, set);

		if (r == INVENTORY_AMBIGUOUS) {
			char reason[DEVICE_UUID_SIZE + 64];

			(void)text_format(reason, sizeof(reason),
					  "\"%.60s\" begins several UUIDs; give more of it",
					  selector);
			methods_fail_invalid(request, "devices", reason);
			return -EINVAL;
		}
		if (r != 0) {
			methods_fail(request, PROTO_NO_SUCH_DEVICE,
				     json_pack("{s:s}", "selector", selector));
			return -ENOENT;
		}
	}
	return 0;
}

/* The caller itself, as the kernel knows it: its own pid may be another in its namespace. */
static int open_caller(struct request *request, pid_t *ret_pid, int *ret_pidfd)
{
	const struct usock_peer *peer = &request->connection->peer;
	int pidfd = peer->pidfd >= 0 ? fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 0) : -EBADF;

	if (pidfd < 0) {
		methods_fail_invalid(request, "bind", "the calling process has ended already");
		return -ESRCH;
	}
	*ret_pid = peer->pid;
	*ret_pidfd = pidfd;
	return 0;
}

/* The process that the lease is to live with: its pidfd, when the caller may bind to it. */
static int open_holder(struct request *request, const struct acquire *acquire, uint32_t owner,
		       pid_t *ret_pid, int *ret_pidfd)
{
	_cleanup_close_ int pidfd = -EBADF;
	struct procinfo info;
	int r;

	if (!acquire->pid_set)
		return open_caller(request, ret_pid, ret_pidfd);
	r = process_open((pid_t)acquire->pid, &pidfd);
	if (r == 0)
		r = procinfo_read((pid_t)acquire->pid, &info);
	if (r < 0) {
		methods_fail_invalid(request, "pid", "there is no such process");
		return r;
	}
	if (info.uid != owner && !policy_is_admin(&request->manager->policy, &request->who)) {
		methods_deny_to_users(request,
				      "process %d belongs to another user, uid %u; only "
				      "administrators may bind a lease to it",
				      (int)acquire->pid, info.uid);
		return -EPERM;
	}
	*ret_pid = (pid_t)acquire->pid;
	*ret_pidfd = TAKE_FD(pidfd);
	return 0;
}

static uint64_t wait_of(const struct request *request, const struct acquire *acquire)
{
	uint64_t configured_usec = request->manager->config.timeouts.wait_usec;

	if (acquire->wait_set)
		return (uint64_t)acquire->wait_ms * USEC_PER_MSEC;
	return configured_usec > 0 ? configured_usec : USEC_INFINITY;
}

static int prepare_ask(struct request *request, const struct acquire *acquire,
		       struct leases_ask *ask)
{
	struct lease_request *lease = &ask->request;
	int r;

	*ask = (struct leases_ask){
		.request =
			{
				.uid = acquire->uid_set ? (uint32_t)acquire->uid : request->who.uid,
				.pid = acquire->bind == LEASE_BIND_CONNECTION
					       ? request->connection->peer.pid
					       : 0,
				.bind = (enum lease_bind)acquire->bind,
				.n_devices = (int)acquire->count,
				.clients = (int)acquire->clients,
				.threads_percent = (int)acquire->threads_percent,
				.memory_bytes = acquire->memory_bytes,
				.exclusive = acquire->exclusive,
			},
		.connection = request->connection,
		.more = request->call->more,
		.wait_usec = wait_of(request, acquire),
		.holder_pidfd = -EBADF,
	};
	(void)text_copy(lease->name, sizeof(lease->name), acquire->name ? acquire->name : "");
	r = select_devices(request, acquire->devices, &lease->candidates);
	if (r != 0)
		return r;
	if (acquire->bind == LEASE_BIND_PROCESS)
		return open_holder(request, acquire, lease->uid, &lease->pid, &ask->holder_pidfd);
	return 0;
}

static void acquire_lease(struct request *request)
{
	struct acquire acquire = {.count = 1, .clients = 1, .bind = LEASE_BIND_CONNECTION};
	struct leases_ask ask;

	if (methods_read_parameters(request, acquire_parameters, ELEMENTSOF(acquire_parameters),
				    &acquire) < 0 ||
	    check_values(request, &acquire) < 0 || check_rights(request, &acquire) < 0)
		return;
	if (request->manager->stopping) {
		methods_fail(request, PROTO_SHUTTING_DOWN, NULL);
		return;
	}
	if (prepare_ask(request, &acquire, &ask) == 0)
		leases_acquire(&request->manager->leases, &ask);
}

/* ---------------------------------------------------------------- the other methods */

static const struct parameter id_parameter[] = {{"id", PARAMETER_STRING, true, 0, 0}};

/* The lease that the call names, when the caller may touch it; else that is answered. */
static size_t find_lease(struct request *request)
{
	const struct lease_table *table = &request->manager->leases.table;
	const char *id = NULL;
	size_t index;

	if (methods_read_parameters(request, id_parameter, 1, &id) < 0)
		return LEASE_NONE;
	index = lease_find(table, id);
	if (index == LEASE_NONE) {
		methods_fail(request, PROTO_NO_SUCH_LEASE, json_pack("{s:s}", "id", id));
		return LEASE_NONE;
	}
	if (policy_may_touch(&request->manager->policy, &request->who,
			     table->leases[index].request.uid))
		return index;
	methods_deny_to_users(request,
			      "lease %s belongs to another user, uid %u; only administrators may "
			      "do that",
			      id, table->leases[index].request.uid);
	return LEASE_NONE;
}

static void reclaim_lease(struct request *request)
{
	struct leases *leases = &request->manager->leases;
	size_t index = find_lease(request);

	if (index == LEASE_NONE)
		return;
	if (leases->table.leases[index].state != LEASE_GRANTED)
		methods_fail_invalid(request, "id",
				     "only a lease that is granted can be reclaimed");
	else
		leases_reclaim(leases, index, request->connection, request->call->more);
}

static void release_lease(struct request *request)
{
	struct leases *leases = &request->manager->leases;
	size_t index = find_lease(request);

	if (index == LEASE_NONE)
		return;
	leases_end(leases, index, "it was released");
	connection_reply(request->connection, NULL, false);
}

static void list_leases(struct request *request)
{
	if (methods_read_parameters(request, NULL, 0, NULL) < 0)
		return;
	connection_reply(request->connection,
			 json_pack("{s:o}", "leases", render_leases(&request->manager->leases)),
			 false);
}

static void get_status(struct request *request)
{
	struct manager *manager = request->manager;
	json_t *instances = json_array();

	if (methods_read_parameters(request, NULL, 0, NULL) < 0) {
		json_decref(instances);
		return;
	}
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i])
			instance_look(manager->instances[i]);
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (manager->instances[i])
			json_array_append_new(instances, render_instance(&manager->leases,
									 manager->instances[i]));
	connection_reply(request->connection,
			 json_pack("{s:s, s:i, s:I, s:o, s:o}", "version", MPS_SUPERVISOR_VERSION,
				   "pid", (int)getpid(), "started_usec",
				   (json_int_t)manager->started_usec, "instances", instances,
				   "counters", render_counters(&manager->stats)),
			 false);
}

static void monitor(struct request *request)
{
	if (methods_read_parameters(request, NULL, 0, NULL) < 0)
		return;
	if (events_subscribe(&request->manager->events, request->connection) < 0)
		methods_fail(request, PROTO_BUSY,
			     json_pack("{s:s}", "reason", "too many monitors: 64 already"));
}

static void get_info(struct request *request)
{
	if (methods_read_parameters(request, NULL, 0, NULL) < 0)
		return;
	connection_reply(request->connection,
			 json_pack("{s:s, s:s, s:s, s:s, s:[s, s]}", "vendor", "mps-supervisor",
				   "product", "mps-supervisord", "version", MPS_SUPERVISOR_VERSION,
				   "url", "", "interfaces", VARLINK_SERVICE, PROTO_INTERFACE),
			 false);
}

static void get_interface_description(struct request *request)
{
	static const struct parameter table[] = {{"interface", PARAMETER_STRING, true, 0, 0}};
	const char *interface = NULL, *description;

	if (methods_read_parameters(request, table, 1, &interface) < 0)
		return;
	if (streq(interface, PROTO_INTERFACE)) {
		description = proto_interface_description;
	} else if (streq(interface, VARLINK_SERVICE)) {
		description = proto_service_description;
	} else {
		methods_fail(request, VARLINK_INTERFACE_NOT_FOUND,
			     json_pack("{s:s}", "interface", interface));
		return;
	}
	connection_reply(request->connection, json_pack("{s:s}", "description", description),
			 false);
}

/* ---------------------------------------------------------------- the table */

static const struct {
	const char *name;
	void (*call)(struct request *request);
	bool needs_more;
} methods[] = {
	{PROTO_ACQUIRE_LEASE, acquire_lease, false},
	{PROTO_RECLAIM_LEASE, reclaim_lease, false},
	{PROTO_RELEASE_LEASE, release_lease, false},
	{PROTO_LIST_LEASES, list_leases, false},
	{PROTO_GET_STATUS, get_status, false},
	{PROTO_DRAIN, methods_drain, false},
	{PROTO_RESUME, methods_resume, false},
	{PROTO_RESTART, methods_restart, false},
	{PROTO_MONITOR, monitor, true},
	{VARLINK_GET_INFO, get_info, false},
	{VARLINK_GET_INTERFACE_DESCRIPTION, get_interface_description, false},
};

static void call_unknown(struct request *request)
{
	const char *method = request->call->method;
	const char *dot = strrchr(method, '.');
	size_t length = dot ? (size_t)(dot - method) : strlen(method);

	if ((length == strlen(PROTO_INTERFACE) && text_starts_with(method, PROTO_INTERFACE)) ||
	    (length == strlen(VARLINK_SERVICE) && text_starts_with(method, VARLINK_SERVICE)) ||
	    !dot) {
		methods_fail(request, VARLINK_METHOD_NOT_FOUND,
			     json_pack("{s:s}", "method", method));
		return;
	}
	methods_fail(request, VARLINK_INTERFACE_NOT_FOUND,
		     json_pack("{s:s%}", "interface", method, length));
}

static void call_method(struct request *request, size_t i)
{
	if (methods[i].needs_more && !request->call->more)
		methods_fail(request, VARLINK_EXPECTED_MORE, NULL);
	else
		methods[i].call(request);
}

void methods_call(struct manager *manager, struct connection *connection,
		  const struct varlink_call *call)
{
	struct request request = {
		.manager = manager,
		.connection = connection,
		.call = call,
		.who =
			{
				.uid = connection->peer.uid,
				.gid = connection->peer.gid,
				.groups = connection->peer.groups,
				.n_groups = connection->peer.n_groups,
			},
	};

	for (size_t i = 0; i < ELEMENTSOF(methods); i++)
		if (streq(methods[i].name, call->method)) {
			call_method(&request, i);
			return;
		}
	call_unknown(&request);
}
