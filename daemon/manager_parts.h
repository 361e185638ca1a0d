/* SPDX-License-Identifier: MIT */
/* What manager.c and manager_start.c give each other; nobody else includes this. */
#pragma once

#include "manager.h"

/* manager.c */
extern const struct instance_handlers manager_instance_handlers;
extern const struct server_handlers manager_server_handlers;
void manager_report_status(struct manager *manager);
/* Ends the event loop when everything is stopped that is to stop. */
void manager_exit_when_stopped(struct manager *manager);

/* manager_start.c: -errno after a message. */
int manager_serve(struct manager *manager, const struct inventory *all);
