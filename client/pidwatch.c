/* SPDX-License-Identifier: MIT */
#include "pidwatch.h"

#include <poll.h>
#include <sys/syscall.h>

#include "util.h"

int pidwatch_open(pid_t pid, int *ret_fd)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int pidwatch_signal(int fd, int signal_number)
{
	return syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, 0) < 0 ? -errno : 0;
}

bool pidwatch_has_ended(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) > 0;
}

int pidwatch_timeout_ms(uint64_t until_usec)
{
	uint64_t now = clock_usec(CLOCK_MONOTONIC);

	if (until_usec == USEC_INFINITY)
		return -1;
	if (until_usec <= now)
		return 0;
	return (int)MIN((until_usec - now) / USEC_PER_MSEC + 1, (uint64_t)INT32_MAX);
}
