/* SPDX-License-Identifier: MIT */
/*
 * The leases that outlive a supervisor: a file for each, so that a grant costs the same with one
 * lease or a thousand, written before the holder hears of it. A lease bound to a process goes on
 * as long as that process does; one bound to a connection waits for its holder to reclaim it.
 */
#include <fcntl.h>

#include "journal.h"
#include "leases_parts.h"
#include "procinfo.h"
#include "rundir.h"
#include "statefile.h"
#include "text.h"
#include "util.h"
#include "varlink.h"

#define KIND "lease"
#define SUFFIX ".lease"
#define RECLAIM_ACCURACY_USEC (50 * USEC_PER_MSEC)

static void path_of(const struct leases *leases, const char *id, char *path, size_t size)
{
	(void)text_format(path, size, "%s/state/%s" SUFFIX, leases->runtime_directory, id);
}

/* ---------------------------------------------------------------- writing */

int leases_save(struct holding *holding)
{
	const struct leases *leases = holding->leases;
	const struct lease *lease = leases_lease_of(holding);
	const struct lease_request *request = &lease->request;
	char path[PIPE_DIRECTORY_MAX + 32];
	int r;

	path_of(leases, lease->id, path, sizeof(path));
	r = statefile_write(
		path, KIND,
		json_pack("{s:s, s:s, s:I, s:i, s:I, s:s, s:i, s:i, s:i, s:I, s:b, s:s, s:I, s:I, "
			  "s:b, s:s, s:I}",
			  "id", lease->id, "instance",
			  instance_name(leases->instances[lease->place]), "uid",
			  (json_int_t)request->uid, "pid", request->pid, "start_ticks",
			  (json_int_t)holding->start_ticks, "bind",
			  lease_bind_to_string(request->bind), "n_devices", request->n_devices,
			  "clients", request->clients, "threads_percent", request->threads_percent,
			  "memory_bytes", (json_int_t)request->memory_bytes, "exclusive",
			  request->exclusive, "name", request->name, "requested_usec",
			  (json_int_t)lease->requested_usec, "granted_usec",
			  (json_int_t)lease->granted_usec, "draining",
			  lease->state == LEASE_DRAINING, "why", holding->why, "told_generation",
			  (json_int_t)holding->told_generation),
		false);
	if (r < 0)
		leases_log(holding, "cannot write its state; it would end with the supervisor");
	return r;
}

void leases_forget(const struct leases *leases, const struct lease *lease)
{
	char path[PIPE_DIRECTORY_MAX + 32];

	path_of(leases, lease->id, path, sizeof(path));
	(void)unlink(path);
}

void leases_leave(struct leases *leases)
{
	leases->left = leases->closed = true;
}

/* ---------------------------------------------------------------- reading */

static int64_t number(const json_t *content, const char *name)
{
	return json_integer_value(json_object_get(content, name));
}

static const char *text(const json_t *content, const char *name)
{
	const char *value = json_string_value(json_object_get(content, name));

	return value ? value : "";
}

static size_t find_place(const struct leases *leases, const char *name)
{
	for (size_t i = 0; i < PLACES_MAX; i++)
		if (leases->instances[i] && streq(instance_name(leases->instances[i]), name))
			return i;
	return LEASE_NONE;
}

static struct lease_request read_request(const json_t *content)
{
	const char *bind = text(content, "bind");
	struct lease_request request = {
		.n_devices = (int)number(content, "n_devices"),
		.uid = (uint32_t)number(content, "uid"),
		.pid = (int32_t)number(content, "pid"),
		.bind = streq(bind, "process") ? LEASE_BIND_PROCESS
			: streq(bind, "none")  ? LEASE_BIND_NONE
					       : LEASE_BIND_CONNECTION,
		.clients = (int)number(content, "clients"),
		.threads_percent = (int)number(content, "threads_percent"),
		.memory_bytes = number(content, "memory_bytes"),
		.exclusive = json_is_true(json_object_get(content, "exclusive")),
	};

	(void)text_copy(request.name, sizeof(request.name), text(content, "name"));
	return request;
}

static bool is_id(const char *id)
{
	return strlen(id) == LEASE_ID_SIZE - 1 &&
	       strspn(id, "0123456789abcdef") == LEASE_ID_SIZE - 1;
}

/* Is it what this program would write? Whatever else it is, it is not taken up. */
static bool makes_sense(const struct lease_request *request, const char *id,
			const struct instance *instance)
{
	return is_id(id) && (size_t)request->n_devices == instance->setup.n_devices &&
	       request->clients >= 1 && request->threads_percent >= 0 &&
	       request->threads_percent <= 100 && request->memory_bytes >= 0;
}

static int on_reclaim_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct holding *holding = userdata;

	(void)source;
	(void)usec;
	leases_let_end(holding, "its holder did not come back");
	return 0;
}

static int wait_for_holder(struct holding *holding)
{
	struct leases *leases = holding->leases;

	holding->orphaned = true;
	return sd_event_add_time_relative(leases->processes->event, &holding->timer,
					  CLOCK_MONOTONIC, leases->config->timeouts.reclaim_usec,
					  RECLAIM_ACCURACY_USEC, on_reclaim_over, holding);
}

static bool is_holder(const struct holding *holding, pid_t pid)
{
	struct procinfo info;

	return procinfo_read(pid, &info) == 0 && info.start_ticks == holding->start_ticks &&
	       info.state != 'Z';
}

/* The process it lives with. */
static void find_holder(struct holding *holding)
{
	pid_t pid = leases_lease_of(holding)->request.pid;
	int pidfd = -EBADF;

	if (process_open(pid, &pidfd) == 0 && is_holder(holding, pid) &&
	    leases_watch_holder(holding, pid, TAKE_FD(pidfd)) == 0)
		return;
	(void)safe_close(pidfd);
	holding->abandoned = true;
	(void)text_copy(holding->why, sizeof(holding->why),
			"its process ended while no supervisor ran");
}

static void go_on(struct holding *holding, bool draining)
{
	holding->abandoned = draining;
	if (draining)
		return;
	if (leases_lease_of(holding)->request.bind == LEASE_BIND_PROCESS)
		find_holder(holding);
	else if (leases_lease_of(holding)->request.bind == LEASE_BIND_CONNECTION)
		(void)wait_for_holder(holding);
}

static void take_up(struct leases *leases, const json_t *content, size_t index)
{
	struct holding *holding = &leases->holdings[index];
	const struct lease *lease = &leases->table.leases[index];

	*holding = (struct holding){
		.leases = leases,
		.index = index,
		.holder = PROCESS_INIT,
		.attached_usec = leases_now_usec(leases),
		.start_ticks = (uint64_t)number(content, "start_ticks"),
		.told_generation = (uint64_t)number(content, "told_generation"),
	};
	(void)text_copy(holding->why, sizeof(holding->why), text(content, "why"));
	instance_outlive(leases->instances[lease->place], lease->id, holding->told_generation);
	instance_set_occupied(leases->instances[lease->place], true);
	leases_log(holding, "goes on");
	go_on(holding, json_is_true(json_object_get(content, "draining")));
}

static bool restore(const char *path, void *userdata)
{
	struct leases *leases = userdata;
	_cleanup_json_ json_t *content = NULL;
	struct lease_request request;
	size_t place, index;

	if (statefile_read(path, KIND, &content) == 0) {
		place = find_place(leases, text(content, "instance"));
		request = read_request(content);
		if (place != LEASE_NONE &&
		    makes_sense(&request, text(content, "id"), leases->instances[place]) &&
		    lease_restore(&leases->table, &request, text(content, "id"), place,
				  (uint64_t)number(content, "requested_usec"),
				  (uint64_t)number(content, "granted_usec"), &index)) {
			take_up(leases, content, index);
			return true;
		}
	}
	log_warning("%s is of no use and is removed: it is torn, of another version, or its "
		    "device is not served",
		    path);
	(void)unlink(path);
	return true;
}

static bool is_known(const char *name, void *userdata)
{
	const struct leases *leases = userdata;

	return lease_find(&leases->table, name) != LEASE_NONE;
}

void leases_restore(struct leases *leases)
{
	char path[PIPE_DIRECTORY_MAX + 16];

	/* Nothing is given to others until the instances are there again. */
	leases->dispatching = true;
	(void)text_format(path, sizeof(path), "%s/state", leases->runtime_directory);
	statefile_each(path, SUFFIX, restore, leases);
	leases->dispatching = false;
	leases_end_gangs(leases);
	(void)text_format(path, sizeof(path), "%s/lease", leases->runtime_directory);
	rundir_clear_leases(path, is_known, leases);
}

static size_t find_abandoned(const struct leases *leases)
{
	size_t i = lease_first(&leases->table);

	while (i != LEASE_NONE && !leases->holdings[i].abandoned)
		i = lease_next(&leases->table, i);
	return i;
}

void leases_settle(struct leases *leases)
{
	size_t i;

	while ((i = find_abandoned(leases)) != LEASE_NONE) {
		leases->holdings[i].abandoned = false;
		leases_let_end(&leases->holdings[i], leases->holdings[i].why);
	}
}
