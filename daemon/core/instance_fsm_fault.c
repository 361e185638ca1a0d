/* SPDX-License-Identifier: MIT */
/* The state `faulted`: telling, waiting, and the ladder that makes holdouts leave. */
#include "instance_fsm_step.h"

/* All lines about one fault are written at once; then everybody it hit is known. */
#define FAULT_SETTLE_USEC (20 * USEC_PER_MSEC)
#define FAULT_POLL_USEC (2 * USEC_PER_SEC)
/* When the last client has left, the server recovers within 0.2 s (measured, 580). */
#define FAULT_RECOVERY_POLL_USEC (50 * USEC_PER_MSEC)
#define FAULT_RECOVERY_USEC (10 * USEC_PER_SEC)
/* Between the steps that make holdouts leave. */
#define HOLDOUT_STEP_USEC (2 * USEC_PER_SEC)

static uint64_t fault_poll_usec(const struct step *step)
{
	return step->fsm->victims_gone ? FAULT_RECOVERY_POLL_USEC : FAULT_POLL_USEC;
}

/* The ladder that makes holdouts leave: MPS, SIGTERM, SIGKILL, and at last the pair is recycled. */
static void climb_fault_ladder(struct step *step)
{
	static const unsigned int effects[] = {
		[FAULT_TERMINATING] = INSTANCE_TERMINATE_HOLDOUTS,
		[FAULT_TERMING] = INSTANCE_TERM_HOLDOUTS,
		[FAULT_KILLING] = INSTANCE_KILL_HOLDOUTS,
	};
	struct instance_fsm *fsm = step->fsm;

	if (fsm->fault_step == FAULT_KILLING) {
		fsm_enter_stopping(step, "clients that a GPU fault hit do not leave", STEP_TERM);
		return;
	}
	fsm->fault_step++;
	step->effects |= effects[fsm->fault_step];
	fsm_query(step);
	fsm_set_deadline(step, HOLDOUT_STEP_USEC);
}

void fsm_on_faulted_deadline(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (fsm->fault_step == FAULT_SETTLING) {
		if (fsm->untold)
			step->effects |= INSTANCE_TELL_HIT;
		fsm->untold = false;
		fsm->fault_step = fsm->victims_gone ? FAULT_KILLING : FAULT_WAITING;
	} else if (step->now_usec >= fsm->limit_usec) {
		climb_fault_ladder(step);
		return;
	}
	fsm_query(step);
	fsm_set_deadline(step, MIN(fault_poll_usec(step),
				   fsm->limit_usec - MIN(fsm->limit_usec, step->now_usec)));
}

/* From the log, or because a status query says so. */
void fsm_on_fault(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (fsm->state != INSTANCE_READY && fsm->state != INSTANCE_DRAINING &&
	    fsm->state != INSTANCE_UNRESPONSIVE && fsm->state != INSTANCE_FAULTED &&
	    !(fsm->state == INSTANCE_STARTING && fsm->adopted))
		return;
	if (fsm->state == INSTANCE_FAULTED && fsm->fault_step == FAULT_SETTLING)
		return;
	fsm->untold = !fsm->fault_told;
	fsm->generation += fsm->untold;
	fsm->fault_told = false;
	fsm->fault_step = FAULT_SETTLING;
	fsm->victims_gone = false;
	fsm->limit_usec = step->now_usec + step->settings->fault_grace_usec;
	fsm_set_state(step, INSTANCE_FAULTED, "a GPU fault; waits for the clients it hit to leave");
	fsm_set_deadline(step, FAULT_SETTLE_USEC);
}

void fsm_on_victims_gone(struct step *step)
{
	struct instance_fsm *fsm = step->fsm;

	if (fsm->state != INSTANCE_FAULTED)
		return;
	/* There is nobody to wait for or to end any more, so only recycling is left. */
	fsm->victims_gone = true;
	fsm->limit_usec = step->now_usec + FAULT_RECOVERY_USEC;
	if (fsm->fault_step != FAULT_SETTLING) {
		fsm->fault_step = FAULT_KILLING;
		fsm_query(step);
		fsm_set_deadline(step, FAULT_RECOVERY_POLL_USEC);
	}
}
