/* SPDX-License-Identifier: MIT */
#include "instance_fsm.h"

#include <assert.h>

#include "text.h"

/* A control daemon answers 10 to 85 ms after its start (measured: 535, 580). */
#define PROBE_MIN_USEC (10 * USEC_PER_MSEC)
#define PROBE_MAX_USEC (200 * USEC_PER_MSEC)
/* A refused query means that somebody else's command is being answered; those take 5 ms. */
#define REFUSED_RETRY_USEC (200 * USEC_PER_MSEC)
#define KILL_AGAIN_USEC USEC_PER_SEC

enum stop_step {
	STEP_QUIT,
	STEP_TERM,
	STEP_KILL,
};

struct step {
	struct instance_fsm *fsm;
	const struct instance_settings *settings;
	const char *reason;
	uint64_t now_usec;
	unsigned int effects;
};

static void set_state(struct step *step, enum instance_state state, const char *reason)
{
	struct instance_fsm *fsm = step->fsm;

	if (fsm->state != state) {
		fsm->since_usec = step->now_usec;
		step->effects |= INSTANCE_CHANGED;
	}
	fsm->state = state;
	(void)text_copy(fsm->reason, sizeof(fsm->reason), reason ? reason : "");
	if (fsm->open && state != INSTANCE_READY) {
		fsm->open = false;
		step->effects |= INSTANCE_CLOSE;
	} else if (!fsm->open && state == INSTANCE_READY) {
		fsm->open = true;
		step->effects |= INSTANCE_OPEN;
	}
}

static void set_deadline(struct step *step, uint64_t after_usec)
{
	step->fsm->deadline_usec =
		after_usec == USEC_INFINITY ? USEC_INFINITY : step->now_usec + after_usec;
}

static void query(struct step *step)
{
	if (step->fsm->querying)
		return;
	step->fsm->querying = true;
	step->effects |= INSTANCE_QUERY;
}

static void lose_generation(struct step *step)
{
	step->fsm->generation++;
	step->effects |= INSTANCE_INTERRUPT;
}

static void enter_starting(struct step *step)
{
	assert(!step->fsm->alive);
	set_state(step, INSTANCE_STARTING, "starting");
	step->fsm->limit_usec = step->now_usec + step->settings->start_usec;
	step->fsm->probe_delay_usec = PROBE_MIN_USEC;
	step->fsm->querying = false;
	step->effects |= INSTANCE_SPAWN;
	set_deadline(step, step->settings->start_usec);
}

static uint64_t check_interval(const struct step *step)
{
	return step->fsm->occupied ? step->settings->interval_usec
				   : step->settings->idle_interval_usec;
}

static void enter_ready(struct step *step)
{
	set_state(step, INSTANCE_READY, NULL);
	backoff_up(&step->fsm->backoff, step->now_usec);
	step->fsm->misses = 0;
	set_deadline(step, check_interval(step));
}

static void enter_stopping(struct step *step, const char *reason, enum stop_step first)
{
	static const unsigned int effects[] = {INSTANCE_QUIT, INSTANCE_TERM, INSTANCE_KILL};

	set_state(step, INSTANCE_STOPPING, reason);
	step->fsm->stop_step = first;
	step->effects |= effects[first];
	set_deadline(step, first == STEP_QUIT   ? step->settings->stop_usec / 2
			   : first == STEP_TERM ? step->settings->stop_usec / 4
						: KILL_AGAIN_USEC);
}

static void enter_stopped(struct step *step)
{
	set_state(step, INSTANCE_STOPPED, NULL);
	backoff_reset(&step->fsm->backoff);
	set_deadline(step, USEC_INFINITY);
}

/* The control daemon is gone, whoever wanted that. */
static void on_gone(struct step *step, const char *reason)
{
	struct instance_fsm *fsm = step->fsm;
	uint64_t delay_usec = 0;
	int r;

	fsm->alive = false;
	fsm->querying = false;
	step->effects |= INSTANCE_CLEAN;
	if (!fsm->wanted) {
		enter_stopped(step);
		return;
	}
	fsm->restarts++;
	r = backoff_death(&fsm->backoff, &step->settings->backoff, step->now_usec, &delay_usec);
	if (r == BACKOFF_GIVE_UP) {
		set_state(step, INSTANCE_FAILED, reason);
		set_deadline(step, step->settings->failed_retry_usec > 0
					   ? step->settings->failed_retry_usec
					   : USEC_INFINITY);
	} else if (delay_usec > 0) {
		set_state(step, INSTANCE_BACKOFF, reason);
		set_deadline(step, delay_usec);
	} else {
		enter_starting(step);
	}
}

static void on_died(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;
	char why[REASON_SIZE];

	if (!fsm->alive)
		return;
	/* While starting nobody can have attached. */
	if (fsm->state != INSTANCE_STARTING)
		lose_generation(step);
	(void)text_copy(why, sizeof(why),
			fsm->state == INSTANCE_STOPPING && fsm->reason[0] ? fsm->reason
			: step->reason                                    ? step->reason
				       : "the control daemon died");
	on_gone(step, why);
}

static void on_starting_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;
	char why[REASON_SIZE];

	if (step->now_usec < fsm->limit_usec) {
		if (fsm->alive)
			query(step);
		set_deadline(step, fsm->limit_usec - step->now_usec);
		return;
	}
	(void)text_format(why, sizeof(why), "not ready after %g s",
			  (double)step->settings->start_usec / 1e6);
	if (fsm->alive)
		enter_stopping(step, why, STEP_KILL);
	else
		on_gone(step, why);
}

static void on_stopping_deadline(struct step *step)
{
	char why[REASON_SIZE];

	(void)text_copy(why, sizeof(why), step->fsm->reason);
	enter_stopping(step, why, MIN(step->fsm->stop_step + 1, (unsigned int)STEP_KILL));
}

static void on_unresponsive_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (!fsm->occupied || step->now_usec >= fsm->limit_usec) {
		enter_stopping(step, "does not answer commands", STEP_TERM);
		return;
	}
	query(step);
	set_deadline(step, MIN(fsm->limit_usec - step->now_usec, step->settings->interval_usec));
}

static void on_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	switch (fsm->state) {
	case INSTANCE_STARTING:
		on_starting_deadline(step);
		return;
	case INSTANCE_READY:
		query(step);
		set_deadline(step, check_interval(step));
		return;
	case INSTANCE_UNRESPONSIVE:
		on_unresponsive_deadline(step);
		return;
	case INSTANCE_STOPPING:
		on_stopping_deadline(step);
		return;
	case INSTANCE_FAILED:
		backoff_reset(&fsm->backoff);
		enter_starting(step);
		return;
	case INSTANCE_BACKOFF:
		enter_starting(step);
		return;
	case INSTANCE_FAULTED:
	case INSTANCE_DRAINING:
	case INSTANCE_STOPPED:
		return;
	}
}

static void on_answered(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->querying = false;
	if (fsm->state == INSTANCE_STARTING || fsm->state == INSTANCE_UNRESPONSIVE)
		enter_ready(step);
	fsm->misses = 0;
}

static void on_miss(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (++fsm->misses < step->settings->misses) {
		set_deadline(step, REFUSED_RETRY_USEC);
		return;
	}
	set_state(step, INSTANCE_UNRESPONSIVE, "does not answer commands");
	fsm->limit_usec = step->now_usec + step->settings->wedge_grace_usec;
	set_deadline(step, fsm->occupied ? REFUSED_RETRY_USEC : 0);
}

static void on_no_answer(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->querying = false;
	if (fsm->state == INSTANCE_STARTING) {
		uint64_t left_usec = fsm->limit_usec - MIN(fsm->limit_usec, step->now_usec);

		set_deadline(step, MIN(fsm->probe_delay_usec, left_usec));
		fsm->probe_delay_usec = MIN(fsm->probe_delay_usec * 2, PROBE_MAX_USEC);
	} else if (fsm->state == INSTANCE_READY) {
		on_miss(step);
	}
}

static void on_spawned(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	assert(fsm->state == INSTANCE_STARTING && !fsm->alive);
	fsm->alive = true;
	set_deadline(step, 2 * PROBE_MIN_USEC);
}

static void on_start(struct step *step)
{
	step->fsm->wanted = true;
	if (step->fsm->state == INSTANCE_STOPPED)
		enter_starting(step);
}

static void on_stop(struct step *step, bool wanted)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->wanted = wanted;
	if (fsm->state == INSTANCE_STOPPED || (fsm->state == INSTANCE_STOPPING && fsm->alive))
		return;
	if (fsm->alive)
		enter_stopping(step, wanted ? "recycled" : "shutting down", STEP_QUIT);
	else if (!wanted)
		enter_stopped(step);
}

static void on_event(struct step *step, enum instance_event event)
{
	struct instance_fsm *fsm = step->fsm;

	switch (event) {
	case INSTANCE_EVENT_START:
		on_start(step);
		return;
	case INSTANCE_EVENT_STOP:
		on_stop(step, false);
		return;
	case INSTANCE_EVENT_RECYCLE:
		on_stop(step, fsm->wanted);
		return;
	case INSTANCE_EVENT_SPAWNED:
		on_spawned(step);
		return;
	case INSTANCE_EVENT_SPAWN_FAILED:
		on_gone(step, step->reason);
		return;
	case INSTANCE_EVENT_HINT:
		if (fsm->state == INSTANCE_STARTING && fsm->alive)
			query(step);
		return;
	case INSTANCE_EVENT_ANSWERED:
		on_answered(step);
		return;
	case INSTANCE_EVENT_NO_ANSWER:
	case INSTANCE_EVENT_TIMED_OUT:
		on_no_answer(step);
		return;
	case INSTANCE_EVENT_DIED:
		on_died(step);
		return;
	case INSTANCE_EVENT_SERVER_LOST:
		if (fsm->alive && fsm->state != INSTANCE_STARTING &&
		    fsm->state != INSTANCE_STOPPING)
			lose_generation(step);
		return;
	case INSTANCE_EVENT_DEADLINE:
		if (step->now_usec >= fsm->deadline_usec)
			on_deadline(step);
		return;
	}
}

static void check(const struct instance_fsm *fsm, const struct instance_settings *settings,
		  unsigned int effects)
{
	assert(fsm->open == (fsm->state == INSTANCE_READY));
	assert(fsm->deadline_usec != USEC_INFINITY || fsm->state == INSTANCE_STOPPED ||
	       (fsm->state == INSTANCE_FAILED && settings->failed_retry_usec == 0));
	assert(!(effects & INSTANCE_SPAWN) || !fsm->alive);
	assert(fsm->state != INSTANCE_READY || fsm->alive);
	assert(fsm->state != INSTANCE_STOPPED || !fsm->alive);
}

void instance_fsm_init(struct instance_fsm *fsm, uint64_t now_usec)
{
	*fsm = (struct instance_fsm){
		.state = INSTANCE_STOPPED,
		.since_usec = now_usec,
		.deadline_usec = USEC_INFINITY,
		.generation = 1,
	};
}

unsigned int instance_fsm_step(struct instance_fsm *fsm, const struct instance_settings *settings,
			       enum instance_event event, const char *reason, uint64_t now_usec)
{
	struct step step = {
		.fsm = fsm,
		.settings = settings,
		.reason = reason,
		.now_usec = now_usec,
	};

	on_event(&step, event);
	check(fsm, settings, step.effects);
	return step.effects;
}

void instance_fsm_set_occupied(struct instance_fsm *fsm, bool occupied)
{
	fsm->occupied = occupied;
}

const char *instance_state_to_string(enum instance_state state)
{
	switch (state) {
	case INSTANCE_STOPPED:
		return "stopped";
	case INSTANCE_STARTING:
		return "starting";
	case INSTANCE_READY:
		return "ready";
	case INSTANCE_FAULTED:
		return "faulted";
	case INSTANCE_UNRESPONSIVE:
		return "unresponsive";
	case INSTANCE_DRAINING:
		return "draining";
	case INSTANCE_STOPPING:
		return "stopping";
	case INSTANCE_BACKOFF:
		return "backoff";
	case INSTANCE_FAILED:
		return "failed";
	}
	return "?";
}

const char *instance_event_to_string(enum instance_event event)
{
	switch (event) {
	case INSTANCE_EVENT_START:
		return "start";
	case INSTANCE_EVENT_STOP:
		return "stop";
	case INSTANCE_EVENT_RECYCLE:
		return "recycle";
	case INSTANCE_EVENT_SPAWNED:
		return "spawned";
	case INSTANCE_EVENT_SPAWN_FAILED:
		return "spawn-failed";
	case INSTANCE_EVENT_HINT:
		return "hint";
	case INSTANCE_EVENT_ANSWERED:
		return "answered";
	case INSTANCE_EVENT_NO_ANSWER:
		return "no-answer";
	case INSTANCE_EVENT_TIMED_OUT:
		return "timed-out";
	case INSTANCE_EVENT_DIED:
		return "died";
	case INSTANCE_EVENT_SERVER_LOST:
		return "server-lost";
	case INSTANCE_EVENT_DEADLINE:
		return "deadline";
	}
	return "?";
}
