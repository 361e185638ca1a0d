/* SPDX-License-Identifier: MIT */
/* What is done because somebody wants it: start, stop, drain, recycle, end the servers. */
#include "instance_fsm_step.h"

void fsm_on_start(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->held = false;
	if (fsm->state == INSTANCE_STOPPING && !fsm->wanted)
		fsm->recycled = true;
	fsm->wanted = true;
	if (fsm->state == INSTANCE_STOPPED)
		fsm_enter_starting(step);
	else if (fsm->state == INSTANCE_DRAINING)
		fsm_enter_ready(step);
}

void fsm_on_drain(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->held = true;
	if (fsm->state == INSTANCE_STOPPING) {
		fsm->wanted = fsm->wanted && fsm->occupied;
	} else if (!fsm->alive && (!fsm->occupied || fsm->state == INSTANCE_FAILED)) {
		fsm->wanted = false;
		fsm_enter_stopped(step);
	} else if (fsm_is_serving(fsm)) {
		fsm_enter_ready(step);
	} else if (!fsm->occupied) {
		fsm_stop_held(step);
	}
}

void fsm_on_stop(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;
	enum stop_step first = STEP_QUIT;

	fsm->wanted = false;
	if (fsm->state == INSTANCE_STOPPED || (fsm->state == INSTANCE_STOPPING && fsm->alive))
		return;
	/* Nobody is there to be waited for, or nobody listens. */
	if ((fsm->state == INSTANCE_STARTING && !fsm->adopted) ||
	    fsm->state == INSTANCE_UNRESPONSIVE)
		first = STEP_TERM;
	if (fsm->alive)
		fsm_enter_stopping(step, step->reason, first);
	else
		fsm_enter_stopped(step);
}

/* By order, so it counts as no death; and what failed or waits to be tried again is tried now. */
void fsm_on_recycle(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (!fsm->wanted || fsm->state == INSTANCE_STOPPING ||
	    (fsm->state == INSTANCE_STARTING && !fsm->alive))
		return;
	backoff_reset(&fsm->backoff);
	if (fsm->alive) {
		fsm->recycled = true;
		fsm_enter_stopping(step, "restarted by an administrator",
				   fsm->state == INSTANCE_STARTING ? STEP_TERM : STEP_QUIT);
	} else {
		fsm_enter_starting(step);
	}
}

/* Asked again, for it has clients still, a server gets more time: theirs. */
static void extend_server_end(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	fsm->limit_usec = MIN(step->now_usec + step->settings->start_usec,
			      fsm->since_usec + step->settings->server_end_usec);
	fsm_set_deadline(step, fsm->limit_usec - MIN(fsm->limit_usec, step->now_usec));
}

void fsm_on_end_servers(struct step *step)
{
	if (step->fsm->state == INSTANCE_STARTING && step->fsm->server_ending) {
		extend_server_end(step);
	} else if (step->fsm->state == INSTANCE_READY) {
		fsm_await_server_end(step, step->reason);
		step->effects |= INSTANCE_END_SERVERS;
	}
}
