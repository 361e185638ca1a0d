/* SPDX-License-Identifier: MIT */
#include "instance_fsm.h"

#include <assert.h>

#include "instance_fsm_step.h"
#include "text.h"

/* A control daemon answers 10 to 85 ms after its start (measured: 535, 580). */
#define PROBE_MIN_USEC (10 * USEC_PER_MSEC)
#define PROBE_MAX_USEC (200 * USEC_PER_MSEC)
/* A refused query means that somebody else's command is being answered; those take 5 ms. */
#define REFUSED_RETRY_USEC (200 * USEC_PER_MSEC)
#define NOT_ASKED_RETRY_USEC USEC_PER_SEC
#define KILL_AGAIN_USEC USEC_PER_SEC
/* SIGTERM ends a control daemon within 100 ms (measured, 580), unless it hangs. */
#define TERM_MAX_USEC (2 * USEC_PER_SEC)

#define HELD "held by an administrator"
#define SILENT "does not answer commands"

void fsm_set_state(struct step *step, enum instance_state state, const char *reason)
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

void fsm_set_deadline(struct step *step, uint64_t after_usec)
{
	step->fsm->deadline_usec =
		after_usec == USEC_INFINITY ? USEC_INFINITY : step->now_usec + after_usec;
}

void fsm_query(struct step *step)
{
	if (step->fsm->querying)
		return;
	step->fsm->querying = true;
	step->effects |= INSTANCE_QUERY;
}

/* A fault that nobody was told of yet and a death after it are one loss. */
static void lose_generation(struct step *step)
{
	if (!step->fsm->untold)
		step->fsm->generation++;
	step->fsm->untold = false;
	step->effects |= INSTANCE_INTERRUPT;
}

void fsm_enter_starting(struct step *step)
{
	assert(!step->fsm->alive);
	fsm_set_state(step, INSTANCE_STARTING, NULL);
	step->fsm->limit_usec = step->now_usec + step->settings->start_usec;
	step->fsm->probe_delay_usec = PROBE_MIN_USEC;
	step->fsm->querying = false;
	step->fsm->wedged = false;
	step->fsm->recycled = false;
	step->fsm->give_up = false;
	step->fsm->server_ending = false;
	step->fsm->adopted = false;
	step->effects |= INSTANCE_SPAWN;
	fsm_set_deadline(step, step->settings->start_usec);
}

static uint64_t check_interval(const struct step *step)
{
	return step->fsm->occupied ? step->settings->interval_usec
				   : step->settings->idle_interval_usec;
}

/* It answers, and lets in whom it may. */
bool fsm_is_serving(const struct instance_fsm *fsm)
{
	return fsm->state == INSTANCE_READY || fsm->state == INSTANCE_DRAINING;
}

/* Held, and nobody has a lease: it is stopped. */
void fsm_stop_held(struct step *step)
{
	step->fsm->wanted = false;
	fsm_enter_stopping(step, HELD, STEP_QUIT);
}

void fsm_enter_ready(struct step *step)
{
	if (step->fsm->held && !step->fsm->occupied) {
		fsm_stop_held(step);
		return;
	}
	if (step->fsm->held) {
		fsm_set_state(step, INSTANCE_DRAINING, HELD);
		step->effects |= INSTANCE_RENEW;
	} else {
		fsm_set_state(step, INSTANCE_READY, NULL);
	}
	backoff_up(&step->fsm->backoff, step->now_usec);
	step->fsm->misses = 0;
	step->fsm->adopted = step->fsm->fault_told = false;
	fsm_set_deadline(step, check_interval(step));
}

void fsm_enter_stopping(struct step *step, const char *reason, enum stop_step first)
{
	static const unsigned int effects[] = {INSTANCE_QUIT, INSTANCE_TERM, INSTANCE_KILL};

	fsm_set_state(step, INSTANCE_STOPPING, reason);
	step->fsm->stop_step = first;
	step->effects |= effects[first];
	fsm_set_deadline(step, first == STEP_QUIT ? step->settings->stop_usec / 2
			       : first == STEP_TERM
				       ? MIN(step->settings->stop_usec / 4, TERM_MAX_USEC)
				       : KILL_AGAIN_USEC);
	step->fsm->limit_usec = step->fsm->deadline_usec;
}

void fsm_enter_stopped(struct step *step)
{
	fsm_set_state(step, INSTANCE_STOPPED, step->fsm->held ? HELD : NULL);
	backoff_reset(&step->fsm->backoff);
	fsm_set_deadline(step, USEC_INFINITY);
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
		fsm_enter_stopped(step);
		return;
	}
	fsm->restarts++;
	if (fsm->recycled) {
		fsm_enter_starting(step);
		return;
	}
	r = fsm->give_up ? BACKOFF_GIVE_UP
			 : backoff_death(&fsm->backoff, &step->settings->backoff, step->now_usec,
					 &delay_usec);
	if (r == BACKOFF_GIVE_UP) {
		fsm_set_state(step, INSTANCE_FAILED, reason);
		fsm_set_deadline(step, step->settings->failed_retry_usec > 0
					       ? step->settings->failed_retry_usec
					       : USEC_INFINITY);
	} else if (delay_usec > 0) {
		fsm_set_state(step, INSTANCE_BACKOFF, reason);
		fsm_set_deadline(step, delay_usec);
	} else {
		fsm_enter_starting(step);
	}
}

static void on_died(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;
	char why[REASON_SIZE];

	if (!fsm->alive)
		return;
	/* While starting nobody can have attached, unless it was there before us. */
	if ((fsm->state != INSTANCE_STARTING || fsm->adopted) && !instance_fsm_is_harmless(fsm))
		lose_generation(step);
	(void)text_copy(why, sizeof(why),
			fsm->state == INSTANCE_STOPPING && fsm->reason[0] ? fsm->reason
			: step->reason                                    ? step->reason
				       : "the control daemon died");
	on_gone(step, why);
}

static void enter_unresponsive(struct step *step, const char *reason)
{
	fsm_set_state(step, INSTANCE_UNRESPONSIVE, reason);
	step->fsm->adopted = false;
	step->fsm->limit_usec = step->now_usec + step->settings->wedge_grace_usec;
	fsm_set_deadline(step, MIN(REFUSED_RETRY_USEC, step->settings->wedge_grace_usec));
}

static void on_starting_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;
	char why[REASON_SIZE];

	if (step->now_usec < fsm->limit_usec) {
		if (fsm->alive)
			fsm_query(step);
		fsm_set_deadline(step, fsm->limit_usec - step->now_usec);
		return;
	}
	if (fsm->adopted && !fsm->server_ending) {
		enter_unresponsive(step, SILENT);
		return;
	}
	if (fsm->server_ending)
		(void)text_copy(why, sizeof(why), "its MPS server does not end");
	else
		(void)text_format(why, sizeof(why), "not ready after %g s",
				  (double)step->settings->start_usec / 1e6);
	if (fsm->alive)
		fsm_enter_stopping(step, why, STEP_KILL);
	else
		on_gone(step, why);
}

static void on_stopping_deadline(struct step *step)
{
	char why[REASON_SIZE];

	if (step->now_usec < step->fsm->limit_usec) {
		step->effects |= INSTANCE_QUIT;
		step->fsm->deadline_usec = step->fsm->limit_usec;
		return;
	}
	(void)text_copy(why, sizeof(why), step->fsm->reason);
	fsm_enter_stopping(step, why, MIN(step->fsm->stop_step + 1, (unsigned int)STEP_KILL));
}

static void recycle_wedged(struct step *step)
{
	step->fsm->wedged = true;
	fsm_enter_stopping(step, SILENT, STEP_TERM);
}

static void on_unresponsive_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (step->now_usec >= fsm->limit_usec) {
		recycle_wedged(step);
		return;
	}
	fsm_query(step);
	fsm_set_deadline(step,
			 MIN(fsm->limit_usec - step->now_usec, step->settings->interval_usec));
}

static void on_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	switch (fsm->state) {
	case INSTANCE_STARTING:
		on_starting_deadline(step);
		return;
	case INSTANCE_READY:
	case INSTANCE_DRAINING:
		fsm_query(step);
		fsm_set_deadline(step, check_interval(step));
		return;
	case INSTANCE_UNRESPONSIVE:
		on_unresponsive_deadline(step);
		return;
	case INSTANCE_STOPPING:
		on_stopping_deadline(step);
		return;
	case INSTANCE_FAILED:
		backoff_reset(&fsm->backoff);
		fsm_enter_starting(step);
		return;
	case INSTANCE_BACKOFF:
		fsm_enter_starting(step);
		return;
	case INSTANCE_FAULTED:
		fsm_on_faulted_deadline(step);
		return;
	case INSTANCE_STOPPED:
		return;
	}
}

static void on_answered(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->querying = false;
	if ((fsm->state == INSTANCE_STARTING && !fsm->server_ending) ||
	    fsm->state == INSTANCE_UNRESPONSIVE ||
	    (fsm->state == INSTANCE_FAULTED && fsm->fault_step != FAULT_SETTLING))
		fsm_enter_ready(step);
	fsm->misses = 0;
}

static void on_fault_stays(struct step *step)
{
	step->fsm->querying = false;
	step->fsm->misses = 0;
	if (step->fsm->state != INSTANCE_FAULTED)
		fsm_on_fault(step);
}

static void on_miss(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (++fsm->misses < step->settings->misses) {
		fsm_set_deadline(step, REFUSED_RETRY_USEC);
		return;
	}
	enter_unresponsive(step, SILENT);
}

static void on_no_answer(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->querying = false;
	if (fsm->state == INSTANCE_STARTING && !fsm->server_ending) {
		uint64_t left_usec = fsm->limit_usec - MIN(fsm->limit_usec, step->now_usec);

		fsm_set_deadline(step, MIN(fsm->probe_delay_usec, left_usec));
		fsm->probe_delay_usec = MIN(fsm->probe_delay_usec * 2, PROBE_MAX_USEC);
	} else if (fsm_is_serving(fsm)) {
		on_miss(step);
	} else if (fsm->state == INSTANCE_UNRESPONSIVE && !fsm->attached) {
		/* It had one more chance; nobody is there whom a new pair would harm. */
		recycle_wedged(step);
	} else if (fsm->state == INSTANCE_UNRESPONSIVE) {
		/* A query that waits is answered the moment the daemon hears again. */
		fsm_set_deadline(step, MIN(REFUSED_RETRY_USEC,
					   fsm->limit_usec - MIN(fsm->limit_usec, step->now_usec)));
	}
}

static void on_not_asked(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->querying = false;
	if (fsm_is_serving(fsm))
		fsm_set_deadline(step, NOT_ASKED_RETRY_USEC);
	else if (fsm->state == INSTANCE_STARTING && !fsm->server_ending)
		on_no_answer(step);
}

static void on_ask(struct step *step)
{
	if (fsm_is_serving(step->fsm))
		fsm_query(step);
}

static void on_halted(struct step *step)
{
	if (fsm_is_serving(step->fsm))
		enter_unresponsive(step, step->reason);
}

static void on_spawned(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	assert(fsm->state == INSTANCE_STARTING && !fsm->alive);
	fsm->alive = true;
	fsm_set_deadline(step, 2 * PROBE_MIN_USEC);
}

static void on_adopted(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	assert(fsm->state == INSTANCE_STARTING && !fsm->alive);
	fsm->alive = fsm->adopted = true;
	fsm_query(step);
}

/* Until the server is quite gone its control daemon sends newcomers to it: nobody is let in. */
void fsm_await_server_end(struct step *step, const char *reason)
{
	struct instance_fsm *fsm = step->fsm;

	fsm_set_state(step, INSTANCE_STARTING, reason);
	fsm->server_ending = true;
	fsm->limit_usec = step->now_usec + step->settings->start_usec;
	fsm->probe_delay_usec = PROBE_MIN_USEC;
	fsm_set_deadline(step, step->settings->start_usec);
}

static void on_server_lost(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (!fsm->alive || (fsm->state == INSTANCE_STARTING && !fsm->adopted) ||
	    fsm->state == INSTANCE_STOPPING)
		return;
	lose_generation(step);
	if (fsm_is_serving(fsm))
		fsm_await_server_end(step, "its MPS server is ending");
}

static void on_server_gone(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (!fsm->server_ending)
		return;
	fsm->server_ending = false;
	if (fsm->state == INSTANCE_STARTING && fsm->alive)
		fsm_query(step);
}

static void on_servers_fail(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (!fsm->alive || fsm->state == INSTANCE_STOPPING)
		return;
	fsm->give_up = true;
	fsm_enter_stopping(step, step->reason, STEP_TERM);
}

/* Somebody else's command can have been in its way; a refusal may look like an answer. */
static void on_quit_over(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (fsm->state == INSTANCE_STOPPING && fsm->stop_step == STEP_QUIT)
		fsm->deadline_usec = MIN(fsm->limit_usec, step->now_usec + REFUSED_RETRY_USEC);
}

static void on_socket_lost(struct step *step)
{
	if (fsm_is_serving(step->fsm) || step->fsm->state == INSTANCE_UNRESPONSIVE ||
	    step->fsm->state == INSTANCE_FAULTED)
		fsm_enter_stopping(step, step->reason, STEP_QUIT);
}

static void on_spawn_failed(struct step *step)
{
	on_gone(step, step->reason);
}

static void on_hint(struct step *step)
{
	if (step->fsm->state == INSTANCE_STARTING && step->fsm->alive)
		fsm_query(step);
}

static void on_settled(struct step *step)
{
	if (step->fsm->state == INSTANCE_FAULTED && step->fsm->fault_step == FAULT_SETTLING)
		fsm_on_faulted_deadline(step);
}

static void on_time(struct step *step)
{
	if (step->now_usec >= step->fsm->deadline_usec)
		on_deadline(step);
}

/* Every event has one. */
static void (*const handlers[])(struct step *step) = {
	[INSTANCE_EVENT_START] = fsm_on_start,
	[INSTANCE_EVENT_STOP] = fsm_on_stop,
	[INSTANCE_EVENT_RECYCLE] = fsm_on_recycle,
	[INSTANCE_EVENT_DRAIN] = fsm_on_drain,
	[INSTANCE_EVENT_SPAWNED] = on_spawned,
	[INSTANCE_EVENT_SPAWN_FAILED] = on_spawn_failed,
	[INSTANCE_EVENT_ADOPTED] = on_adopted,
	[INSTANCE_EVENT_HINT] = on_hint,
	[INSTANCE_EVENT_ANSWERED] = on_answered,
	[INSTANCE_EVENT_FAULT_STAYS] = on_fault_stays,
	[INSTANCE_EVENT_NO_ANSWER] = on_no_answer,
	[INSTANCE_EVENT_NOT_ASKED] = on_not_asked,
	[INSTANCE_EVENT_TIMED_OUT] = on_no_answer,
	[INSTANCE_EVENT_ASK] = on_ask,
	[INSTANCE_EVENT_HALTED] = on_halted,
	[INSTANCE_EVENT_DIED] = on_died,
	[INSTANCE_EVENT_SERVER_LOST] = on_server_lost,
	[INSTANCE_EVENT_END_SERVERS] = fsm_on_end_servers,
	[INSTANCE_EVENT_SERVER_GONE] = on_server_gone,
	[INSTANCE_EVENT_SERVERS_FAIL] = on_servers_fail,
	[INSTANCE_EVENT_QUIT_OVER] = on_quit_over,
	[INSTANCE_EVENT_SOCKET_LOST] = on_socket_lost,
	[INSTANCE_EVENT_FAULT] = fsm_on_fault,
	[INSTANCE_EVENT_SETTLED] = on_settled,
	[INSTANCE_EVENT_VICTIMS_GONE] = fsm_on_victims_gone,
	[INSTANCE_EVENT_DEADLINE] = on_time,
};

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

bool instance_fsm_is_harmless(const struct instance_fsm *fsm)
{
	return fsm->state == INSTANCE_STOPPING && !fsm->wanted && !fsm->attached && !fsm->untold;
}

bool instance_fsm_is_forced(const struct instance_fsm *fsm)
{
	return fsm->state == INSTANCE_STOPPING && fsm->wanted && fsm->stop_step > STEP_QUIT;
}

void instance_fsm_init(struct instance_fsm *fsm, unsigned int phase, uint64_t now_usec)
{
	*fsm = (struct instance_fsm){
		.state = INSTANCE_STOPPED,
		.since_usec = now_usec,
		.deadline_usec = USEC_INFINITY,
		.generation = 1,
		.phase = phase % 256,
	};
}

void instance_fsm_restore(struct instance_fsm *fsm, uint64_t generation, uint64_t restarts,
			  bool faulted)
{
	assert(fsm->state == INSTANCE_STOPPED);
	fsm->generation = generation;
	fsm->restarts = restarts;
	fsm->fault_told = faulted;
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

	assert((size_t)event < ELEMENTSOF(handlers) && handlers[event]);
	handlers[event](&step);
	check(fsm, settings, step.effects);
	return step.effects;
}

void instance_fsm_set_use(struct instance_fsm *fsm, const struct instance_settings *settings,
			  bool occupied, bool attached, uint64_t now_usec)
{
	uint64_t half_usec = settings->interval_usec / 2;
	uint64_t first_usec = half_usec + half_usec * fsm->phase / 256;

	if (fsm_is_serving(fsm) && occupied && !fsm->occupied)
		fsm->deadline_usec = MIN(fsm->deadline_usec, now_usec + first_usec);
	fsm->occupied = occupied;
	fsm->attached = attached;
}
