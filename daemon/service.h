/* SPDX-License-Identifier: MIT */
/* What systemd hears of us (readiness, status, watchdog), gives us, and says of our unit's job.
 * Silent when it did not start us. */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#include "util.h"

/* Turns on the watchdog when WatchdogSec= asks for it: a loop that hangs is restarted. */
int service_init(sd_event *event);
void service_ready(void);
void service_stopping(void);
void service_status(const char *format, ...) PRINTF_LIKE(1, 2);

/* The listening socket that it passed on (mps-supervisor.socket): false when it gave none. */
bool service_take_socket(int *ret_fd);

/* We have SIGTERM: is it for a restart? Asks for the job of our unit; handler is called from the
 * event loop, within a second. Nobody to be asked, no job, no answer: not a restart. */
typedef void (*service_job_handler)(bool restart, void *userdata);
void service_ask_job(sd_event *event, service_job_handler handler, void *userdata);
