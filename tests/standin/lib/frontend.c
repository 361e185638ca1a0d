/* SPDX-License-Identifier: MIT */
/*
 * The front end. A thread prints what the daemon says while the main thread sends the commands, as
 * in the real program: that a refused front end exits 1 with a message, 1 without one or 0 depends
 * on which of the two sees the end first.
 */
#include "frontend.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"
#include "wire.h"

static void __attribute__((noreturn)) frontend_fail(const char *text)
{
	fprintf(stderr, "%s\n", text);
	fflush(stderr);
	_exit(1);
}

/* Ends the process with status; what was printed goes out first. */
static void __attribute__((noreturn)) frontend_end(int status)
{
	fflush(stdout);
	_exit(status);
}

static void *frontend_print_answers(void *argument)
{
	int fd = *(int *)argument;
	char message[sizeof(int32_t) + WIRE_TEXT_MAX + 1];
	int32_t kind;
	int32_t status;
	ssize_t n;

	for (;;) {
		n = wire_receive(fd, message, sizeof(message) - 1, NULL);
		if (n < (ssize_t)sizeof(kind))
			frontend_end(n == 0);
		message[n] = '\0';
		memcpy(&kind, message, sizeof(kind));
		if (kind != WIRE_ANSWER_END) {
			puts(message + sizeof(kind));
			continue;
		}
		memcpy(&status, message + sizeof(kind), sizeof(status));
		frontend_end(status);
	}
}

static void frontend_send(int fd, const char *command)
{
	int64_t size = (int64_t)strlen(command) + 1;

	if (!wire_send(fd, &size, sizeof(size)) || !wire_send(fd, command, (size_t)size))
		frontend_fail("Cannot send command to MPS control daemon process");
}

static int frontend_connect(void)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	const char *names[] = {"control_privileged", "control"};
	char path[PATH_MAX];
	int fd = -ENOENT;

	if (!directory)
		directory = FRONTEND_DEFAULT_DIRECTORY;
	for (size_t i = 0; fd < 0 && i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		fd = wire_connect(path);
	}
	if (fd < 0)
		frontend_fail("Cannot find MPS control daemon process");
	if (wire_receive_hello(fd) < 0 || wire_send_kind(fd, WIRE_KIND_UI) < 0)
		frontend_fail("Cannot authenticate or connect to MPS control daemon process");
	return fd;
}

int frontend_run(void)
{
	char command[WIRE_TEXT_MAX];
	int64_t end = 0;
	pthread_t printer;
	int fd = frontend_connect();

	if (pthread_create(&printer, NULL, frontend_print_answers, &fd) != 0)
		return 1;
	while (fgets(command, sizeof(command), stdin))
		frontend_send(fd, command);
	if (!wire_send(fd, &end, sizeof(end)))
		frontend_fail("Cannot send command to MPS control daemon process");
	pthread_join(printer, NULL);
	return 1;
}
