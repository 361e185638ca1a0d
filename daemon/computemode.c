/* SPDX-License-Identifier: MIT */
#include "computemode.h"

#include <sys/wait.h>

#include "computemode_plan.h"
#include "journal.h"
#include "statefile.h"
#include "text.h"
#include "varlink.h"

#define KIND "compute-modes"
#define SAID_SIZE 240

static const char *known(const char *mode)
{
	return mode[0] ? mode : NULL;
}

#define say(level, entry, ...) \
	journal_log(level, &(struct journal_context){.instance = (entry)->uuid}, __VA_ARGS__)

/* ---------------------------------------------------------------- the record */

static int store(const struct computemode *modes)
{
	json_t *recorded = json_object();

	for (size_t i = 0; i < modes->n_entries; i++)
		if (modes->entries[i].previous[0])
			json_object_set_new(recorded, modes->entries[i].uuid,
					    json_string(modes->entries[i].previous));
	return statefile_write(modes->path, KIND, json_pack("{s:o}", "modes", recorded), true);
}

/* On disk when this returns 0; else nothing has changed. */
static int record(const struct computemode *modes, struct computemode_entry *entry,
		  const char *previous)
{
	char before[COMPUTEMODE_NAME_SIZE];
	int r;

	(void)text_copy(before, sizeof(before), entry->previous);
	(void)text_copy(entry->previous, sizeof(entry->previous), previous);
	r = store(modes);
	if (r < 0)
		(void)text_copy(entry->previous, sizeof(entry->previous), before);
	return r;
}

static void forget(const struct computemode *modes, struct computemode_entry *entry)
{
	int r = record(modes, entry, "");

	/* Not again and again. */
	entry->failed = r < 0;
	if (r < 0)
		say(LOG_WARNING, entry,
		    "its compute mode was given back, but %s cannot be written: %s", modes->path,
		    strerror(-r));
}

static struct computemode_entry *find(struct computemode *modes, const char *uuid)
{
	for (size_t i = 0; i < modes->n_entries; i++)
		if (streq(modes->entries[i].uuid, uuid))
			return &modes->entries[i];
	return NULL;
}

static struct computemode_entry *add(struct computemode *modes, const char *uuid)
{
	struct computemode_entry *entry = &modes->entries[modes->n_entries];

	if (modes->n_entries == COMPUTEMODE_ENTRIES_MAX ||
	    text_copy(entry->uuid, sizeof(entry->uuid), uuid) < 0)
		return NULL;
	modes->n_entries++;
	return entry;
}

static void take_record(struct computemode *modes, const char *uuid, const char *previous)
{
	struct computemode_entry *entry = find(modes, uuid);

	if (!entry)
		entry = add(modes, uuid);
	if (!entry || !previous || !computemode_option(previous))
		log_warning("%s: what it says of \"%.63s\" is not understood, and is left out",
			    modes->path, uuid);
	else
		(void)text_copy(entry->previous, sizeof(entry->previous), previous);
}

static void load(struct computemode *modes)
{
	_cleanup_json_ json_t *content = NULL;
	json_t *recorded;
	int r;

	r = statefile_read(modes->path, KIND, &content);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		log_warning(
			"cannot read %s: %s; compute modes that it says are not given back, see "
			"nvidia-smi -q -d COMPUTE",
			modes->path, strerror(-r));
	recorded = json_object_get(content, "modes");
	for (void *i = json_object_iter(recorded); i; i = json_object_iter_next(recorded, i))
		take_record(modes, json_object_iter_key(i),
			    json_string_value(json_object_iter_value(i)));
}

/* ---------------------------------------------------------------- nvidia-smi */

/* 0 when it ended well; else -errno with a sentence that has no subject. */
static int check(const struct computemode *modes, const struct command_outcome *outcome,
		 char reason[static SAID_SIZE])
{
	const char *said = outcome->output + strspn(outcome->output, "\r\n");
	char how[64];

	switch (outcome->result) {
	case COMMAND_DONE:
		if (WIFEXITED(outcome->status) && WEXITSTATUS(outcome->status) == 0)
			return 0;
		process_describe_exit(outcome->status, how, sizeof(how));
		(void)text_format(reason, SAID_SIZE, "%.80s %s: %.*s", modes->setup.program, how,
				  (int)MIN(strcspn(said, "\r\n"), (size_t)120), said);
		return -EIO;
	case COMMAND_TIMED_OUT:
		(void)text_format(reason, SAID_SIZE, "%.80s did not answer in time",
				  modes->setup.program);
		return -ETIMEDOUT;
	case COMMAND_TOO_LONG:
		(void)text_format(reason, SAID_SIZE, "%.80s printed too much",
				  modes->setup.program);
		return -EIO;
	case COMMAND_FAILED:
		break;
	}
	(void)text_format(reason, SAID_SIZE, "%.80s could not be run: %s", modes->setup.program,
			  strerror(-outcome->status));
	return -EIO;
}

static void take_turns(struct computemode *modes)
{
	(void)sd_event_source_set_enabled(modes->turn, SD_EVENT_ONESHOT);
}

static void settle(struct computemode *modes, struct computemode_entry *entry)
{
	entry->task = COMPUTEMODE_NOTHING;
	modes->setup.settled(entry->device ? (size_t)(entry - modes->entries) : COMPUTEMODE_OTHER,
			     modes->setup.userdata);
}

/* Of a task that is not done, and is not tried again by itself. */
static void give_up(struct computemode *modes, struct computemode_entry *entry, const char *reason)
{
	const char *previous = entry->previous;

	if (entry->task == COMPUTEMODE_CLAIM)
		say(LOG_ERR, entry,
		    "cannot make its compute mode " COMPUTEMODE_EXCLUSIVE
		    ": %s; MPS starts all the same, and nothing keeps programs without MPS off "
		    "this "
		    "GPU. Set it by nvidia-smi -i %s -c EXCLUSIVE_PROCESS, or configure "
		    "compute_mode "
		    "= \"keep\"",
		    reason, entry->uuid);
	else
		say(LOG_ERR, entry,
		    "cannot give back its compute mode %s: %s; it stays in %s for the next start "
		    "of "
		    "mps-supervisord. By hand: nvidia-smi -i %s -c %s",
		    previous, reason, modes->path, entry->uuid, computemode_option(previous));
	entry->failed = entry->task == COMPUTEMODE_GIVE_BACK;
	settle(modes, entry);
}

static void show(struct computemode_entry *entry, const char *mode)
{
	(void)text_copy(entry->present, sizeof(entry->present), mode);
	if (entry->device && mode[0])
		(void)text_copy(entry->device->compute_mode, sizeof(entry->device->compute_mode),
				mode);
}

static int run(struct computemode *modes, struct computemode_entry *entry, const char *option,
	       const char *more, command_handler handler)
{
	char *argv[] = {(char *)modes->setup.program,
			(char *)"-i",
			entry->uuid,
			(char *)option,
			(char *)more,
			NULL};
	char *envp[] = {modes->path_variable, (char *)"LC_ALL=C", NULL};

	modes->entry = entry;
	modes->task = entry->task;
	return command_start(modes->setup.processes,
			     &(struct command_plan){
				     .path = modes->setup.program,
				     .argv = argv,
				     .envp = envp,
				     .timeout_usec = modes->setup.timeout_usec,
			     },
			     handler, modes, &modes->running);
}

/* ---------------------------------------------------------------- a task */

static void done(struct computemode *modes, struct computemode_entry *entry)
{
	if (entry->task == COMPUTEMODE_CLAIM) {
		say(LOG_INFO, entry,
		    "compute mode " COMPUTEMODE_EXCLUSIVE "; %s is given back at the end",
		    entry->previous);
	} else {
		say(LOG_INFO, entry, "compute mode %s again", entry->present);
		forget(modes, entry);
	}
	settle(modes, entry);
}

static const char *target(const struct computemode_entry *entry, enum computemode_task task)
{
	return task == COMPUTEMODE_CLAIM ? COMPUTEMODE_EXCLUSIVE : entry->previous;
}

static void on_set(const struct command_outcome *outcome, void *userdata)
{
	struct computemode *modes = userdata;
	struct computemode_entry *entry = modes->entry;
	char reason[SAID_SIZE];
	int r;

	modes->running = NULL;
	take_turns(modes);
	r = check(modes, outcome, reason);
	if (r == 0)
		show(entry, target(entry, modes->task));
	/* Something else was asked for meanwhile: that follows. */
	if (entry->task != modes->task)
		return;
	if (r < 0)
		give_up(modes, entry, reason);
	else
		done(modes, entry);
}

static void leave_alone(struct computemode *modes, struct computemode_entry *entry,
			const struct computemode_plan *plan)
{
	if (entry->task == COMPUTEMODE_CLAIM && !streq(entry->present, COMPUTEMODE_EXCLUSIVE))
		say(LOG_WARNING, entry,
		    "its compute mode is \"%s\", which could not be given back: it "
		    "is not changed",
		    entry->present);
	if (plan->forget && !streq(entry->present, entry->previous))
		say(LOG_INFO, entry,
		    "its compute mode is %s, which somebody has set since: %s is not "
		    "given back",
		    entry->present, entry->previous);
	if (plan->forget)
		forget(modes, entry);
}

static void carry_out(struct computemode *modes, struct computemode_entry *entry)
{
	const char *present = known(entry->present), *previous = known(entry->previous);
	struct computemode_plan plan = entry->task == COMPUTEMODE_CLAIM
					       ? computemode_plan_claim(present, previous)
					       : computemode_plan_give_back(present, previous);
	char reason[sizeof(modes->path) + 80];
	int r = 0;

	if (!plan.set) {
		leave_alone(modes, entry, &plan);
		settle(modes, entry);
		return;
	}
	if (plan.record)
		r = record(modes, entry, present);
	if (r < 0) {
		(void)text_format(reason, sizeof(reason),
				  "what it was before cannot be kept in %s: %s", modes->path,
				  strerror(-r));
		give_up(modes, entry, reason);
		return;
	}
	r = run(modes, entry, "-c", computemode_option(plan.set), on_set);
	if (r < 0)
		give_up(modes, entry, strerror(-r));
}

static void on_looked(const struct command_outcome *outcome, void *userdata)
{
	struct computemode *modes = userdata;
	struct computemode_entry *entry = modes->entry;
	char reason[SAID_SIZE], mode[COMPUTEMODE_NAME_SIZE] = "";
	int r;

	modes->running = NULL;
	take_turns(modes);
	r = check(modes, outcome, reason);
	if (r == 0)
		(void)text_format(mode, sizeof(mode), "%.*s",
				  (int)MIN(strcspn(outcome->output, "\r\n"), sizeof(mode) - 1),
				  outcome->output);
	show(entry, mode);
	entry->look = false;
	/* What is recorded can be given back all the same. */
	if (!mode[0] && entry->task == COMPUTEMODE_CLAIM)
		give_up(modes, entry, r < 0 ? reason : "nvidia-smi does not say what it is now");
}

static void go_on(struct computemode *modes, struct computemode_entry *entry)
{
	int r;

	if (modes->closed) {
		give_up(modes, entry, "there was no time left");
		return;
	}
	if (!entry->look) {
		carry_out(modes, entry);
		return;
	}
	r = run(modes, entry, "--query-gpu=compute_mode", "--format=csv,noheader", on_looked);
	if (r < 0)
		give_up(modes, entry, strerror(-r));
}

/* One after the other, and not in the middle of what asked for it. */
static int on_turn(sd_event_source *source, void *userdata)
{
	struct computemode *modes = userdata;

	(void)source;
	for (size_t i = 0; i < modes->n_entries && !modes->running; i++)
		if (modes->entries[i].task != COMPUTEMODE_NOTHING)
			go_on(modes, &modes->entries[i]);
	return 0;
}

/* ---------------------------------------------------------------- what is asked of it */

static void ask(struct computemode *modes, struct computemode_entry *entry,
		enum computemode_task task, bool look)
{
	entry->task = task;
	entry->look = look;
	take_turns(modes);
}

bool computemode_claim(struct computemode *modes, size_t device, bool look)
{
	struct computemode_entry *entry = &modes->entries[device];

	entry->failed = false;
	if (!look && streq(entry->present, COMPUTEMODE_EXCLUSIVE))
		return false;
	if (entry->task != COMPUTEMODE_CLAIM)
		ask(modes, entry, COMPUTEMODE_CLAIM, look);
	return true;
}

bool computemode_give_back(struct computemode *modes, size_t device, bool look)
{
	struct computemode_entry *entry = &modes->entries[device];

	if (entry->failed || (!entry->previous[0] && entry->task == COMPUTEMODE_NOTHING))
		return false;
	if (entry->task != COMPUTEMODE_GIVE_BACK)
		ask(modes, entry, COMPUTEMODE_GIVE_BACK, look);
	return true;
}

bool computemode_is_pending(const struct computemode *modes, size_t device)
{
	return modes->entries[device].task != COMPUTEMODE_NOTHING;
}

bool computemode_is_busy(const struct computemode *modes)
{
	for (size_t i = 0; i < modes->n_entries; i++)
		if (modes->entries[i].task != COMPUTEMODE_NOTHING)
			return true;
	return false;
}

/* ---------------------------------------------------------------- beginning and end */

static int on_limit(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct computemode *modes = userdata;

	(void)source;
	(void)usec;
	modes->closed = true;
	modes->running = command_cancel(modes->running);
	take_turns(modes);
	return 0;
}

void computemode_close(struct computemode *modes, uint64_t after_usec)
{
	if (modes->setup.processes && !modes->limit)
		(void)sd_event_add_time_relative(modes->setup.processes->event, &modes->limit,
						 CLOCK_MONOTONIC, after_usec, USEC_PER_MSEC,
						 on_limit, modes);
}

/* Of devices that are not served any more, or are gone. */
static void look_after_others(struct computemode *modes)
{
	const struct inventory *present = modes->setup.present;

	for (size_t i = modes->setup.served->n_devices; i < modes->n_entries; i++) {
		struct computemode_entry *entry = &modes->entries[i];
		size_t k = 0;

		while (k < present->n_devices && !streq(present->devices[k].uuid, entry->uuid))
			k++;
		if (k < present->n_devices) {
			show(entry, present->devices[k].compute_mode);
			ask(modes, entry, COMPUTEMODE_GIVE_BACK, false);
		} else if (entry->previous[0]) {
			say(LOG_WARNING, entry,
			    "its compute mode %s cannot be given back: nvidia-smi does not list "
			    "it, or "
			    "it is in MIG mode; that stays in %s",
			    entry->previous, modes->path);
		}
	}
}

int computemode_init(struct computemode *modes, const struct computemode_setup *setup)
{
	const char *path = getenv("PATH");
	int r;

	memset(modes, 0, sizeof(*modes));
	modes->setup = *setup;
	(void)text_format(modes->path, sizeof(modes->path), "%s/compute-modes",
			  setup->state_directory);
	(void)text_format(modes->path_variable, sizeof(modes->path_variable), "PATH=%s",
			  path ? path : "/usr/local/bin:/usr/bin:/bin");
	r = sd_event_add_defer(setup->processes->event, &modes->turn, on_turn, modes);
	if (r < 0)
		return r;
	(void)sd_event_source_set_enabled(modes->turn, SD_EVENT_OFF);
	for (size_t i = 0; i < setup->served->n_devices; i++) {
		struct device *device = &setup->served->devices[i];
		struct computemode_entry *entry = add(modes, device->uuid);

		if (!entry)
			return -ENOSPC;
		show(entry, device->compute_mode);
		entry->device = device;
	}
	load(modes);
	look_after_others(modes);
	modes->setup.present = NULL;
	modes->setup.state_directory = NULL;
	return 0;
}

void computemode_done(struct computemode *modes)
{
	modes->running = command_cancel(modes->running);
	modes->turn = sd_event_source_disable_unref(modes->turn);
	modes->limit = sd_event_source_disable_unref(modes->limit);
}
