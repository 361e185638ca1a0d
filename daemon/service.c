/* SPDX-License-Identifier: MIT */
#include "service.h"

#include <stdarg.h>

#include <systemd/sd-daemon.h>

int service_init(sd_event *event)
{
	int r = sd_event_set_watchdog(event, 1);

	return r < 0 ? r : 0;
}

void service_ready(void)
{
	(void)sd_notify(0, "READY=1");
}

void service_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1\nSTATUS=stopping");
}

void service_status(const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	(void)sd_notifyf(0, "STATUS=%s", text);
}
