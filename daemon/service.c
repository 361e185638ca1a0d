/* SPDX-License-Identifier: MIT */
#include "service.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <systemd/sd-daemon.h>

#include "journal.h"

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

bool service_take_socket(int *ret_fd)
{
	int fd = SD_LISTEN_FDS_START;

	if (sd_listen_fds(1) < 1)
		return false;
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0) {
		log_error("the socket that was passed on is no listening stream socket; it is not "
			  "used");
		return false;
	}
	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	*ret_fd = fd;
	return true;
}
