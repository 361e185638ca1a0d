/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "process.h"
#include "util.h"

#define CHUNK 8192
/* Read in one go before others get their turn. */
#define TURN_CHUNKS 8
#define DRAIN_CHUNKS 256
#define FIFO_SIZE (1024 * 1024)

static void end_line(struct output *output)
{
	(*output->n_lines)++;
	output->handler(output->line, output->length, output->userdata);
	output->length = 0;
	output->cutting = 0;
}

static void take_bytes(struct output *output, const char *bytes, size_t n)
{
	while (n > 0) {
		const char *newline = memchr(bytes, '\n', n);
		size_t part = newline ? (size_t)(newline - bytes) : n;
		size_t room = MIN(part, sizeof(output->line) - output->length);

		memcpy(output->line + output->length, bytes, room);
		output->length += room;
		if (room < part && !output->cutting) {
			output->cutting = 1;
			(*output->n_cut)++;
		}
		if (!newline)
			return;
		end_line(output);
		bytes += part + 1;
		n -= part + 1;
	}
}

/* Reads up to n chunks; the FIFO is never at its end, because we hold it open for writing. */
static void read_chunks(struct output *output, int n)
{
	char chunk[CHUNK];

	while (n-- > 0 && output->fd >= 0) {
		ssize_t got = read(output->fd, chunk, sizeof(chunk));

		if (got <= 0)
			return;
		take_bytes(output, chunk, (size_t)got);
	}
}

static int on_readable(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	(void)source;
	(void)fd;
	(void)revents;
	read_chunks(userdata, TURN_CHUNKS);
	return 0;
}

int output_open(struct output *output, sd_event *event, const char *path, output_handler handler,
		void *userdata, uint64_t *n_lines, uint64_t *n_cut)
{
	_cleanup_close_ int fd = -EBADF;
	struct stat st;
	int r;

	if (mkfifo(path, 0600) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISFIFO(st.st_mode))
		return -EEXIST;
	/* More room for a burst. May be refused past the user's pipe limits; then 64 KiB it is. */
	(void)fcntl(fd, F_SETPIPE_SZ, FIFO_SIZE);
	*output = (struct output){
		.fd = -EBADF,
		.handler = handler,
		.userdata = userdata,
		.n_lines = n_lines,
		.n_cut = n_cut,
	};
	r = sd_event_add_io(event, &output->source, fd, EPOLLIN, on_readable, output);
	if (r < 0)
		return r;
	(void)sd_event_source_set_priority(output->source, PRIORITY_OUTPUT);
	output->fd = TAKE_FD(fd);
	return 0;
}

void output_catch_up(struct output *output)
{
	read_chunks(output, TURN_CHUNKS);
}

void output_drain(struct output *output)
{
	read_chunks(output, DRAIN_CHUNKS);
	if (output->length > 0)
		end_line(output);
}

void output_close(struct output *output)
{
	output->source = sd_event_source_disable_unref(output->source);
	output->fd = safe_close(output->fd);
}
