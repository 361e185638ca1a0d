/* SPDX-License-Identifier: MIT */
#include "fds.h"

#include <fcntl.h>

#include "util.h"

int fds_fill_standard(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
	} while (fd <= STDERR_FILENO);
	(void)close(fd);
	return 0;
}
