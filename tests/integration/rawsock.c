/* SPDX-License-Identifier: MIT */
/*
 * Bytes to a Unix socket and back, for tests of the protocol.
 *
 *   rawsock [-n] [-w] [-r] [-c COUNT] SOCKET [SECONDS]
 *
 * sends standard input as it is and prints what comes back, each NUL as a newline, until the peer
 * closes (then it says "closed" on standard error) or nothing has moved for SECONDS (1; 0: until
 * all is sent). -n sends each newline as a NUL, -w ends its own direction after the input, -r the
 * other one when something has come back (the peer cannot send any more; it stays until it is
 * killed), -c ends after COUNT messages.
 *
 *   rawsock --notify PATH
 *
 * binds a datagram socket, as a service manager does for sd_notify(3), and prints each datagram,
 * until it is killed.
 *
 * Exit status: 0, 1 when it could not connect or bind, 2 for wrong usage.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BUFFER_SIZE (64u * 1024)
#define DATAGRAM_MAX 4096u

struct talk {
	int fd;
	int silence_ms;
	bool newline_is_nul, half_close, stop_reading;
	long count; /* messages still wanted; negative: all */
	bool input_ended, peer_closed;
	size_t length, sent; /* of out */
	char out[BUFFER_SIZE];
};

static int open_socket(int type, const char *path, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(ret_address->sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(ret_address->sun_path, path, strlen(path) + 1);
	return socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
}

static int fail(const char *what, const char *path)
{
	(void)fprintf(stderr, "rawsock: cannot %s %s: %s\n", what, path, strerror(errno));
	return 1;
}

static void take_input(struct talk *talk)
{
	ssize_t n = read(STDIN_FILENO, talk->out, sizeof(talk->out));

	if (n <= 0) {
		talk->input_ended = true;
		if (talk->half_close)
			(void)shutdown(talk->fd, SHUT_WR);
		return;
	}
	talk->length = (size_t)n;
	talk->sent = 0;
	for (size_t i = 0; talk->newline_is_nul && i < talk->length; i++)
		if (talk->out[i] == '\n')
			talk->out[i] = '\0';
}

/* When the peer takes no more, the rest is dropped: it may still have said something. */
static void send_some(struct talk *talk)
{
	ssize_t n = send(talk->fd, talk->out + talk->sent, talk->length - talk->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n >= 0) {
		talk->sent += (size_t)n;
	} else if (errno != EAGAIN && errno != EINTR) {
		talk->sent = talk->length;
		talk->input_ended = true;
	}
}

static void receive_some(struct talk *talk)
{
	char in[BUFFER_SIZE];
	ssize_t n = recv(talk->fd, in, sizeof(in), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	talk->peer_closed = n <= 0;
	for (ssize_t i = 0; i < n && talk->count != 0; i++) {
		(void)putchar(in[i] == '\0' ? '\n' : in[i]);
		talk->count -= in[i] == '\0' && talk->count > 0;
	}
	(void)fflush(stdout);
	if (talk->stop_reading && n > 0) {
		(void)shutdown(talk->fd, SHUT_RD);
		(void)pause();
	}
}

/* Once. False when nothing has moved for too long. */
static bool exchange(struct talk *talk)
{
	bool pending = talk->sent < talk->length;
	struct pollfd fds[] = {
		{.fd = talk->input_ended || pending ? -1 : STDIN_FILENO, .events = POLLIN},
		{.fd = talk->fd, .events = (short)(POLLIN | (pending ? POLLOUT : 0))},
	};

	if (poll(fds, 2, talk->input_ended && !pending ? talk->silence_ms : -1) == 0)
		return false;
	if (fds[0].revents)
		take_input(talk);
	if (fds[1].revents & POLLOUT)
		send_some(talk);
	if (fds[1].revents & (POLLIN | POLLHUP | POLLERR))
		receive_some(talk);
	return true;
}

static int converse(struct talk *talk, const char *path)
{
	struct sockaddr_un address;

	talk->fd = open_socket(SOCK_STREAM, path, &address);
	if (talk->fd < 0 ||
	    connect(talk->fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return fail("connect to", path);
	while (talk->count != 0 && !talk->peer_closed)
		if (!exchange(talk))
			break;
	if (talk->peer_closed)
		(void)fputs("closed\n", stderr);
	return 0;
}

static int listen_for_notes(const char *path)
{
	struct sockaddr_un address;
	char datagram[DATAGRAM_MAX];
	ssize_t n;
	int fd;

	fd = open_socket(SOCK_DGRAM, path, &address);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return fail("bind", path);
	while ((n = recv(fd, datagram, sizeof(datagram), 0)) >= 0 || errno == EINTR) {
		(void)printf("%.*s\n", (int)(n < 0 ? 0 : n), datagram);
		(void)fflush(stdout);
	}
	return fail("read from", path);
}

static int usage(void)
{
	(void)fputs("Usage: rawsock [-n] [-w] [-r] [-c COUNT] SOCKET [SECONDS]\n"
		    "       rawsock --notify PATH\n",
		    stderr);
	return 2;
}

static int run(int argc, char *argv[])
{
	static struct talk talk = {.silence_ms = 1000, .count = -1};
	int option;

	if (argc == 3 && strcmp(argv[1], "--notify") == 0)
		return listen_for_notes(argv[2]);
	while ((option = getopt(argc, argv, "nwrc:")) != -1) {
		talk.newline_is_nul |= option == 'n';
		talk.half_close |= option == 'w';
		talk.stop_reading |= option == 'r';
		if (option == 'c')
			talk.count = strtol(optarg, NULL, 10);
		if (option == '?')
			return usage();
	}
	if (optind + 1 != argc && optind + 2 != argc)
		return usage();
	if (optind + 2 == argc)
		talk.silence_ms = (int)(strtod(argv[optind + 1], NULL) * 1000);
	return converse(&talk, argv[optind]);
}

int main(int argc, char *argv[])
{
	(void)signal(SIGPIPE, SIG_IGN);
	return run(argc, argv);
}
