/* SPDX-License-Identifier: MIT */
/* Commands of mpsctl against a supervisor that the test plays itself; a child is mpsctl. */
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "unit.h"
#include "unit_directory.h"
#include "usock.h"

#define UNIT_PATIENCE_SEC 30
#define UNIT_WORDS_MAX 16
#define UNIT_MESSAGE_MAX 4096

#define UNIT_INSTANCE(state, held)                                                      \
	"{\"name\": \"GPU-1\", \"kind\": \"gpu\", \"devices\": [{\"uuid\": \"GPU-1\", " \
	"\"index\": 0}], \"state\": \"" state "\", \"held\": " held "}"
#define UNIT_STATUS "{\"parameters\": {\"instances\": [" UNIT_INSTANCE("ready", "false") "]}}"
#define UNIT_ERROR(name) "{\"error\": \"io.mps-supervisor." name "\", \"parameters\": {}}"

static int unit_listening = -EBADF; /* of the supervisor */
static const char *unit_socket;

/* mpsctl: its process, the writing end of its stdin, the reading end of its stdout and stderr */
static pid_t unit_client;
static int unit_input, unit_errors;

static inline void unit_come(void)
{
	ck_assert_int_eq(usock_listen(unit_socket, 0666, &unit_listening), 0);
}

static inline void unit_go(void)
{
	unit_listening = safe_close(unit_listening);
	ck_assert_int_eq(unlink(unit_socket), 0);
}

static inline void unit_client_setup(void)
{
	unit_directory_setup();
	unit_socket = unit_path("socket");
	unit_come();
}

static inline void unit_client_teardown(void)
{
	unit_listening = safe_close(unit_listening);
	unit_directory_teardown();
}

static inline void unit_wait_readable(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};

	ck_assert_int_eq(poll(&pollfd, 1, UNIT_PATIENCE_SEC * 1000), 1);
}

/* The next call on a connection: a message with each of the parts. */
static inline void unit_hear_on(int fd, const char *part, const char *other)
{
	char message[UNIT_MESSAGE_MAX] = "";
	size_t length = 0;
	ssize_t n;

	do {
		unit_wait_readable(fd);
		n = recv(fd, message + length, sizeof(message) - length, 0);
		ck_assert_int_gt(n, 0);
		length += (size_t)n;
	} while (message[length - 1] != '\0');
	unit_assert_contains(message, part);
	unit_assert_contains(message, other);
}

/* The next connection, on which such a message has come. */
static inline int unit_hear(const char *part, const char *other)
{
	int fd;

	unit_wait_readable(unit_listening);
	fd = accept4(unit_listening, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	unit_hear_on(fd, part, other);
	return fd;
}

static inline void unit_answer(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text) + 1, MSG_NOSIGNAL), (ssize_t)strlen(text) + 1);
}

/* One call with one answer. */
static inline void unit_serve(const char *part, const char *text)
{
	_cleanup_close_ int fd = unit_hear(part, "");

	unit_answer(fd, text);
}

static inline void unit_cut(int fd)
{
	(void)close(fd);
}

static inline void unit_assert_ended(int fd)
{
	char byte;

	unit_wait_readable(fd);
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	unit_cut(fd);
}

/* mpsctl with a line of words, the first of which is the command. */
static inline void unit_start(int (*command)(const char *socket, int argc, char *argv[]),
			      const char *line)
{
	_cleanup_free_ char *words = strdup(line);
	char *argv[UNIT_WORDS_MAX] = {}, *rest = words;
	int in[2], err[2], argc = 0;

	while (rest)
		argv[argc++] = strsep(&rest, " ");
	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
	unit_client = fork();
	if (unit_client == 0) {
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(err[1], STDOUT_FILENO);
		(void)dup2(err[1], STDERR_FILENO);
		(void)close(unit_listening);
		(void)close(in[1]);
		exit(command(unit_socket, argc, argv));
	}
	(void)close(in[0]);
	(void)close(err[1]);
	unit_input = in[1];
	unit_errors = err[0];
}

/* The end of mpsctl, or of its job. Its status and, in text, all that it and its keeper said. */
static inline int unit_finish(char text[static UNIT_MESSAGE_MAX])
{
	size_t length = 0;
	int status;
	ssize_t n;

	unit_input = safe_close(unit_input);
	do {
		unit_wait_readable(unit_errors);
		n = read(unit_errors, text + length, UNIT_MESSAGE_MAX - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	text[length] = '\0';
	unit_errors = safe_close(unit_errors);
	ck_assert_int_eq(waitpid(unit_client, &status, 0), unit_client);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline size_t unit_count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}
