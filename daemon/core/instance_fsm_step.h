/* SPDX-License-Identifier: MIT */
/* One step of the machine, as its parts see it: instance_fsm*.c alone. */
#pragma once

#include "instance_fsm.h"
#include "util.h"

enum stop_step {
	STEP_QUIT,
	STEP_TERM,
	STEP_KILL,
};

enum fault_step {
	FAULT_SETTLING,
	FAULT_WAITING,
	FAULT_TERMINATING,
	FAULT_TERMING,
	FAULT_KILLING,
};

struct step {
	struct instance_fsm *fsm;
	const struct instance_settings *settings;
	const char *reason;
	uint64_t now_usec;
	unsigned int effects;
};

/* instance_fsm.c */
void fsm_set_state(struct step *step, enum instance_state state, const char *reason);
void fsm_set_deadline(struct step *step, uint64_t after_usec);
/* Unless a query is under way. */
void fsm_query(struct step *step);
void fsm_enter_stopping(struct step *step, const char *reason, enum stop_step first);

void fsm_enter_starting(struct step *step);
void fsm_enter_ready(struct step *step);
void fsm_enter_stopped(struct step *step);
/* Nobody is let in until the server is gone. */
void fsm_await_server_end(struct step *step, const char *reason);
/* Held, and nobody has a lease. */
void fsm_stop_held(struct step *step);
/* It answers, and lets in whom it may. */
bool fsm_is_serving(const struct instance_fsm *fsm);

/* instance_fsm_orders.c */
void fsm_on_start(struct step *step);
void fsm_on_stop(struct step *step);
void fsm_on_drain(struct step *step);
void fsm_on_recycle(struct step *step);
void fsm_on_end_servers(struct step *step);

/* instance_fsm_fault.c */
/* From the log, or because a status query says so. */
void fsm_on_fault(struct step *step);
void fsm_on_victims_gone(struct step *step);
void fsm_on_faulted_deadline(struct step *step);
