/* SPDX-License-Identifier: MIT */
/*
 * What the next supervisor must know of an instance to go on with it: which processes it has,
 * named by pid and start time, and how many generations were lost. Written before anybody can rely
 * on it. What cannot be proven then is not touched, and what has died meanwhile is a death now.
 */
#include <limits.h>
#include <signal.h>

#include "instance_parts.h"
#include "procinfo.h"
#include "rundir.h"
#include "statefile.h"
#include "text.h"
#include "util.h"
#include "varlink.h"

#define KIND "instance"

/* ---------------------------------------------------------------- writing */

static json_t *describe_process(pid_t pid)
{
	struct procinfo info = {};

	if (pid <= 0 || procinfo_read(pid, &info) < 0)
		return json_null();
	return json_pack("{s:i, s:I}", "pid", pid, "start_ticks", (json_int_t)info.start_ticks);
}

static json_t *describe_servers(const struct instance *instance)
{
	json_t *list = json_array();

	for (size_t i = 0; i < INSTANCE_SERVERS_MAX; i++) {
		const struct instance_server *server = &instance->servers[i];

		if (server->instance && !server->lost)
			json_array_append_new(list,
					      json_pack("{s:o, s:I, s:b, s:b, s:b}", "process",
							describe_process(server->process.pid),
							"uid", (json_int_t)server->uid, "ready",
							server->ready, "asked", server->asked,
							"expected", server->expected));
	}
	return list;
}

static json_t *describe_clients(const struct instance *instance)
{
	json_t *list = json_array();

	for (size_t i = 0; i < INSTANCE_CLIENTS_MAX; i++) {
		const struct instance_client *client = &instance->clients[i];

		if (client->pid > 0)
			json_array_append_new(list, json_pack("{s:o, s:i, s:b, s:s}", "process",
							      describe_process(client->pid),
							      "server", client->server, "hit",
							      client->hit, "lease", client->lease));
	}
	return list;
}

static json_t *describe_devices(const struct instance *instance)
{
	json_t *list = json_array();

	for (size_t i = 0; i < instance->setup.n_devices; i++)
		json_array_append_new(list, json_string(instance->setup.devices[i]->uuid));
	return list;
}

void instance_save(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);
	json_t *losses = instance_losses_describe(instance), *content;
	int r;

	/* A loss that nobody has been told of has not happened yet. */
	content = json_pack("{s:s, s:o, s:b, s:I, s:I, s:b, s:b, s:b, s:I, s:o, s:o, s:o}", "name",
			    instance_name(instance), "devices", describe_devices(instance),
			    "multi_user", instance->setup.multi_user, "generation",
			    (json_int_t)instance->fsm.generation - instance->fsm.untold, "restarts",
			    (json_int_t)instance->fsm.restarts, "faulted",
			    instance->fsm.state == INSTANCE_FAULTED && !instance->fsm.untold,
			    "ending", instance_fsm_is_harmless(&instance->fsm), "nameless",
			    instance->nameless, "socket_inode", (json_int_t)instance->socket_inode,
			    "control", describe_process(instance_control_pid(instance)), "servers",
			    describe_servers(instance), "clients", describe_clients(instance));
	(void)json_object_update_missing(content, losses);
	json_decref(losses);
	r = statefile_write(instance->state_path, KIND, content, false);
	if (r < 0)
		journal_log(
			LOG_ERR, &context,
			"cannot write %s: %s; a restart of the supervisor would end this instance",
			instance->state_path, strerror(-r));
}

static int on_save(sd_event_source *source, void *userdata)
{
	(void)source;
	instance_save(userdata);
	return 0;
}

void instance_save_soon(struct instance *instance)
{
	(void)sd_event_source_set_enabled(instance->save, SD_EVENT_ONESHOT);
}

/* ---------------------------------------------------------------- reading */

/* The process that was described, when it is still that one. */
static int open_described(const json_t *process, pid_t *ret_pid, int *ret_pidfd)
{
	json_int_t pid = json_integer_value(json_object_get(process, "pid"));
	json_int_t start_ticks = json_integer_value(json_object_get(process, "start_ticks"));
	_cleanup_close_ int pidfd = -EBADF;
	struct procinfo info = {};
	int r;

	if (pid <= 0 || pid > INT32_MAX)
		return -ESRCH;
	*ret_pid = (pid_t)pid;
	r = process_open((pid_t)pid, &pidfd);
	if (r == 0)
		r = procinfo_read((pid_t)pid, &info);
	if (r < 0)
		return r;
	/* Once it is a zombie it is as good as gone. */
	if (info.start_ticks != (uint64_t)start_ticks || info.state == 'Z')
		return -ESRCH;
	*ret_pidfd = TAKE_FD(pidfd);
	return 0;
}

static void restore_server(struct instance *instance, const json_t *entry)
{
	bool ready = json_is_true(json_object_get(entry, "ready"));
	bool expected = json_is_true(json_object_get(entry, "expected"));
	int pidfd = -EBADF;
	pid_t pid = 0;

	if (open_described(json_object_get(entry, "process"), &pid, &pidfd) == 0)
		instance_servers_adopt(instance, pid, pidfd,
				       (uint32_t)json_integer_value(json_object_get(entry, "uid")),
				       ready, json_is_true(json_object_get(entry, "asked")),
				       expected);
	else if (pid > 0 && ready && !expected && instance->n_missing < INSTANCE_SERVERS_MAX)
		instance->missing[instance->n_missing++] = pid;
}

static void restore_client(struct instance *instance, const json_t *entry)
{
	const char *lease = json_string_value(json_object_get(entry, "lease"));
	int pidfd = -EBADF;
	pid_t pid = 0;

	if (open_described(json_object_get(entry, "process"), &pid, &pidfd) == 0)
		instance_clients_adopt(
			instance, pid, pidfd,
			(int32_t)json_integer_value(json_object_get(entry, "server")),
			json_is_true(json_object_get(entry, "hit")), lease ? lease : "");
}

/* Whoever was attached to what is gone and is there still was hit by that. Who has ended may have
 * ended before. */
static void restore_hit(struct instance *instance, const json_t *entry)
{
	const char *lease = json_string_value(json_object_get(entry, "lease"));
	_cleanup_close_ int pidfd = -EBADF;
	pid_t pid = 0;

	if (open_described(json_object_get(entry, "process"), &pid, &pidfd) == 0)
		instance_hits_add(&instance_death_last(instance)->hits, pid, lease ? lease : "");
}

static void restore_daemon(struct instance *instance, const json_t *content)
{
	const json_t *process = json_object_get(content, "control");
	struct journal_context context;
	int pidfd = -EBADF;
	pid_t pid = 0;

	if (json_is_null(process))
		return;
	if (open_described(process, &pid, &pidfd) == 0) {
		if (instance_is_our_daemon(instance, pid) &&
		    process_watch(&instance->daemon, instance->setup.processes, pid, TAKE_FD(pidfd),
				  instance_daemon_ended, instance) == 0)
			return;
		(void)safe_close(pidfd);
	}
	context = instance_context(instance, NULL, pid);
	/* As ordered, and harming nobody: no loss. */
	if (json_is_true(json_object_get(content, "ending")))
		return;
	output_drain(&instance->output);
	instance_death_while_away(instance, pid);
	context.message_id = JOURNAL_ID_CONTROL_LOST;
	journal_log(LOG_ERR, &context, "%s", instance_death_last(instance)->reason);
}

static void restore(struct instance *instance, const json_t *content)
{
	const json_t *entry;
	size_t i;

	instance_fsm_restore(&instance->fsm,
			     (uint64_t)json_integer_value(json_object_get(content, "generation")),
			     (uint64_t)json_integer_value(json_object_get(content, "restarts")),
			     json_is_true(json_object_get(content, "faulted")));
	instance_losses_restore(instance, content);
	instance->socket_inode =
		(uint64_t)json_integer_value(json_object_get(content, "socket_inode"));
	restore_daemon(instance, content);
	json_array_foreach(json_object_get(content, "servers"), i, entry) {
		restore_server(instance, entry);
	}
	/* One that runs goes on as it was started. */
	if (process_is_watched(&instance->daemon)) {
		instance->setup.multi_user = json_is_true(json_object_get(content, "multi_user"));
		instance->nameless = json_is_true(json_object_get(content, "nameless"));
	}
	if (!process_is_watched(&instance->daemon)) {
		instance->n_missing = 0;
		instance_servers_end(instance);
	}
	json_array_foreach(json_object_get(content, "clients"), i, entry) {
		if (process_is_watched(&instance->daemon))
			restore_client(instance, entry);
		else if (instance->died_away)
			restore_hit(instance, entry);
	}
}

int instance_restore(struct instance *instance)
{
	_cleanup_json_ json_t *content = NULL;
	const char *name;
	int r;

	r = statefile_read(instance->state_path, KIND, &content);
	if (r < 0)
		return r;
	name = json_string_value(json_object_get(content, "name"));
	if (!name || !streq(name, instance_name(instance)) ||
	    json_integer_value(json_object_get(content, "generation")) < 1)
		return -EBADMSG;
	restore(instance, content);
	instance->restored = true;
	return 0;
}

void instance_outlive(struct instance *instance, const char *lease, uint64_t generation)
{
	if (!instance->restored && instance->fsm.generation <= generation)
		instance_fsm_restore(&instance->fsm, generation + 1, instance->fsm.restarts, false);
	if (instance->died_away)
		instance_hits_add_lease(&instance_death_last(instance)->hits, lease);
}

static int read_devices(const json_t *list, struct instance_record *ret)
{
	const json_t *entry;
	size_t i;

	if (json_array_size(list) == 0 || json_array_size(list) > GANG_DEVICES_MAX)
		return -EBADMSG;
	json_array_foreach(list, i, entry) {
		if (!json_is_string(entry) ||
		    text_copy(ret->devices[ret->n_devices++], DEVICE_UUID_SIZE,
			      json_string_value(entry)) < 0)
			return -EBADMSG;
	}
	return 0;
}

int instance_read_record(const char *path, struct instance_record *ret)
{
	_cleanup_json_ json_t *content = NULL;
	const char *name;
	int r;

	r = statefile_read(path, KIND, &content);
	if (r < 0)
		return r;
	*ret = (struct instance_record){};
	name = json_string_value(json_object_get(content, "name"));
	if (!name || text_copy(ret->name, sizeof(ret->name), name) < 0)
		return -EBADMSG;
	return read_devices(json_object_get(content, "devices"), ret);
}

/* On the directory that belongs to the file's name. */
static bool is_on(pid_t pid, const char *directory)
{
	char value[PATH_MAX];

	return procinfo_environment(pid, "CUDA_MPS_PIPE_DIRECTORY", value, sizeof(value)) == 0 &&
	       streq(value, directory);
}

void instance_end_orphan(const char *path, const char *runtime_directory)
{
	_cleanup_json_ json_t *content = NULL;
	char directory[PATH_MAX], fifo[PATH_MAX];
	_cleanup_close_ int pidfd = -EBADF;
	const char *name = strrchr(path, '/') + 1;
	int length = (int)(strlen(name) - strlen(INSTANCE_STATE_SUFFIX));
	pid_t pid = 0;

	(void)text_format(directory, sizeof(directory), "%s/instance/%.*s", runtime_directory,
			  length, name);
	(void)text_format(fifo, sizeof(fifo), "%s/state/%.*s.output", runtime_directory, length,
			  name);
	if (statefile_read(path, KIND, &content) == 0 &&
	    open_described(json_object_get(content, "control"), &pid, &pidfd) == 0 &&
	    is_on(pid, directory)) {
		log_warning("ending control daemon %d: its device is not served any more", pid);
		(void)process_signal_pidfd(pidfd, SIGTERM);
	}
	(void)unlink(path);
	(void)unlink(fifo);
	rundir_remove_instance(directory);
}

void instance_adopt(struct instance *instance)
{
	struct journal_context context =
		instance_context(instance, NULL, instance_control_pid(instance));

	journal_log(LOG_INFO, &context, "adopted control daemon %d", context.pid);
	instance->unlisted = true;
	instance_files_watch(instance);
	if (instance->socket_inode == 0)
		instance_files_remember(instance);
	instance_dispatch(instance, INSTANCE_EVENT_ADOPTED, NULL);
	/* What was written meanwhile: who came and went, and who was asked to. */
	output_catch_up(&instance->output);
	for (size_t i = 0; i < instance->n_missing; i++)
		instance_servers_lost_while_away(instance, instance->missing[i]);
	instance->n_missing = 0;
	instance_warm_servers_changed(instance);
	instance_warm_use_changed(instance);
	instance_save_soon(instance);
}

int instance_state_init(struct instance *instance)
{
	int r;

	r = sd_event_add_defer(instance->setup.processes->event, &instance->save, on_save,
			       instance);
	if (r < 0)
		return r;
	(void)sd_event_source_set_priority(instance->save, PRIORITY_DEATH);
	return sd_event_source_set_enabled(instance->save, SD_EVENT_OFF);
}
