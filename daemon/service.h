/* SPDX-License-Identifier: MIT */
/* What systemd hears of us: readiness, status, watchdog. Silent when it did not start us. */
#pragma once

#include <systemd/sd-event.h>

#include "util.h"

/* Turns on the watchdog when WatchdogSec= asks for it: a loop that hangs is restarted. */
int service_init(sd_event *event);
void service_ready(void);
void service_stopping(void);
void service_status(const char *format, ...) PRINTF_LIKE(1, 2);
