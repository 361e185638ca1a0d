/* SPDX-License-Identifier: MIT */
#include <sys/inotify.h>
#include <sys/stat.h>

#include "instance_parts.h"
#include "text.h"
#include "util.h"

#define WATCHED \
	(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

/* 0 when there is none. */
static uint64_t inode_of_socket(const struct instance *instance)
{
	char path[PIPE_DIRECTORY_MAX + 16];
	struct stat st;

	(void)text_format(path, sizeof(path), "%s/control", instance->directory);
	return lstat(path, &st) == 0 ? st.st_ino : 0;
}

void instance_files_remember(struct instance *instance)
{
	instance->socket_inode = inode_of_socket(instance);
}

/* What is not the socket can be done without: the daemon made it and does not look again. */
static void note_removal(const struct instance *instance, const char *name)
{
	struct journal_context context = instance_context(instance, NULL, 0);

	journal_log(LOG_WARNING, &context,
		    "somebody removed %s from %s; the daemon goes on without it", name,
		    instance->directory);
}

static bool is_serving(const struct instance *instance)
{
	return instance->fsm.state == INSTANCE_READY ||
	       instance->fsm.state == INSTANCE_UNRESPONSIVE ||
	       instance->fsm.state == INSTANCE_FAULTED;
}

bool instance_files_check(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);
	uint64_t inode = inode_of_socket(instance);
	const char *reason = inode ? "control socket replaced" : "control socket missing";

	if (!is_serving(instance) || (inode == instance->socket_inode && inode != 0))
		return false;
	context.message_id = JOURNAL_ID_SOCKET_LOST;
	journal_log(LOG_ERR, &context, "%s: %s/control", reason, instance->directory);
	instance_dispatch(instance, INSTANCE_EVENT_SOCKET_LOST, reason);
	return true;
}

static int on_inotify(sd_event_source *source, const struct inotify_event *event, void *userdata)
{
	struct instance *instance = userdata;
	const char *name = event->len > 0 ? event->name : "";

	(void)source;
	if (is_serving(instance) && !instance_files_check(instance) &&
	    event->mask & (IN_DELETE | IN_MOVED_FROM))
		note_removal(instance, name);
	return 0;
}

void instance_files_watch(struct instance *instance)
{
	struct journal_context context = instance_context(instance, NULL, 0);
	int r;

	r = sd_event_add_inotify(instance->setup.processes->event, &instance->files,
				 instance->directory, WATCHED, on_inotify, instance);
	if (r < 0) {
		journal_log(LOG_WARNING, &context, "cannot watch %s: %s", instance->directory,
			    strerror(-r));
		return;
	}
	(void)sd_event_source_set_priority(instance->files, PRIORITY_OUTPUT);
}

void instance_files_unwatch(struct instance *instance)
{
	instance->files = sd_event_source_disable_unref(instance->files);
	instance->socket_inode = 0;
}
