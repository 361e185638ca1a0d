/* SPDX-License-Identifier: MIT */
/* Small things both programs use: cleanup attributes, ownership hand-over, units of time. */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define USEC_PER_MSEC UINT64_C(1000)
#define USEC_PER_SEC UINT64_C(1000000)
#define USEC_INFINITY UINT64_MAX

#define ELEMENTSOF(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - __builtin_offsetof(type, member)))

/* A local that owns something is declared with _cleanup_(destructor) and handed over by TAKE_*. */
#define _cleanup_(destructor) __attribute__((cleanup(destructor)))
#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)
#define _cleanup_fclose_ _cleanup_(fclosep)

#define TAKE_PTR(pointer)                               \
	({                                              \
		__typeof__(pointer) _taken = (pointer); \
		(pointer) = NULL;                       \
		_taken;                                 \
	})

#define TAKE_FD(fd)                   \
	({                            \
		int _taken_fd = (fd); \
		(fd) = -EBADF;        \
		_taken_fd;            \
	})

static inline void freep(void *pointer)
{
	free(*(void **)pointer);
}

/* Closes fd unless it is invalid, keeps errno; returns -EBADF to assign back. */
static inline int safe_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;

		(void)close(fd);
		errno = saved;
	}
	return -EBADF;
}

static inline void closep(int *fd)
{
	*fd = safe_close(*fd);
}

static inline void fclosep(FILE **file)
{
	if (*file)
		(void)fclose(*file);
}

static inline int streq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static inline uint64_t clock_usec(clockid_t clock)
{
	struct timespec ts = {};

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * USEC_PER_SEC + (uint64_t)ts.tv_nsec / 1000;
}
