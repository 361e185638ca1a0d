/* SPDX-License-Identifier: MIT */
/*
 * Gang instances: one control daemon over several devices, for as long as leases need it. The lease
 * table says over which; here they are started, when their devices' own servers are gone, and
 * stopped, and forgotten.
 */
#pragma once

#include <systemd/sd-event.h>

#include "instance.h"
#include "inventory.h"
#include "leases.h"

/* Why one is stopped. */
#define GANGS_UNNEEDED "nobody needs it any more"

struct gangs {
	/* All borrowed. */
	struct leases *leases;
	struct instance **instances; /* by place */
	const struct inventory *inventory;
	struct instance_setup setup;  /* what all have in common */
	sd_event_source *sweep;       /* owned; forgets those that have stopped */
	void (*gone)(void *userdata); /* one has been forgotten; with setup's userdata */
};

/* setup: of any instance; its place, name and devices do not matter. */
int gangs_init(struct gangs *gangs, struct leases *leases, struct instance **instances,
	       const struct inventory *inventory, const struct instance_setup *setup,
	       void (*gone)(void *userdata));
void gangs_done(struct gangs *gangs);

/* Takes up those that an earlier supervisor left. */
void gangs_restore(struct gangs *gangs, const char *state_directory);

/* The table has formed a gang at the place: starts it, as soon as may be. One that is there already
 * is for another user now: its servers end. */
void gangs_form(struct gangs *gangs, size_t place);
/* Nobody needs it any more. */
void gangs_end(struct gangs *gangs, size_t place);

/* Servers of an instance have come or gone: a gang may wait for that. */
void gangs_servers_changed(struct gangs *gangs, const struct instance *instance);
/* The state of an instance is another one. */
void gangs_state_changed(struct gangs *gangs, struct instance *instance);
