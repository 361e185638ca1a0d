/* SPDX-License-Identifier: MIT */
/*
 * Stand-in for a CUDA program, as far as MPS sees it: attaches to the control daemon of
 * CUDA_MPS_PIPE_DIRECTORY the way libcuda does, and that includes running without MPS, silently,
 * when there is no way in. README.md describes its command line.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend.h"
#include "util.h"
#include "wire.h"

#define EXIT_ERROR 10
#define ERROR_CONNECTION_FAILED 805
#define ERROR_RPC_FAILURE 806
#define ERROR_ILLEGAL_ADDRESS 700
#define ERROR_LAUNCH_FAILURE 719
#define FAULT_AFTER_MS_DEFAULT 0

struct options {
	bool holds;
	bool silent;
	bool stubborn;
	long hold_ms; /* -1: until the end of standard input or a signal */
	bool faults;
	int fault_error;
	long fault_after_ms;
};

static void print_error(int error)
{
	printf("error %d\n", error);
	fflush(stdout);
}

static void usage(void)
{
	fputs("usage: cuda-client [ignore-term] [stubborn] [init | hold [SECONDS] | "
	      "fault [AFTER_MS] | trap [AFTER_MS] | silent]\n",
	      stderr);
	exit(2);
}

/* Takes the number behind argv[*i], if there is one. */
static double optional_number(char *argv[], int *i, double otherwise)
{
	char *end;
	double value;

	if (!argv[*i + 1])
		return otherwise;
	value = strtod(argv[*i + 1], &end);
	if (end == argv[*i + 1] || *end != '\0')
		return otherwise;
	(*i)++;
	return value;
}

static void parse_fault(char *argv[], int *i, struct options *options)
{
	options->fault_error =
		strcmp(argv[*i], "fault") == 0 ? ERROR_ILLEGAL_ADDRESS : ERROR_LAUNCH_FAILURE;
	options->faults = true;
	options->holds = true;
	options->fault_after_ms = (long)optional_number(argv, i, FAULT_AFTER_MS_DEFAULT);
}

static void parse(char *argv[], struct options *options)
{
	double seconds;

	for (int i = 1; argv[i]; i++) {
		if (strcmp(argv[i], "init") == 0) {
			continue;
		} else if (strcmp(argv[i], "hold") == 0) {
			options->holds = true;
			seconds = optional_number(argv, &i, -1);
			options->hold_ms = seconds < 0 ? -1 : (long)(seconds * 1000);
		} else if (strcmp(argv[i], "fault") == 0 || strcmp(argv[i], "trap") == 0) {
			parse_fault(argv, &i, options);
		} else if (strcmp(argv[i], "stubborn") == 0) {
			options->holds = true;
			options->stubborn = true;
			signal(SIGTERM, SIG_IGN);
		} else if (strcmp(argv[i], "silent") == 0) {
			options->silent = true;
		} else if (strcmp(argv[i], "ignore-term") == 0) {
			signal(SIGTERM, SIG_IGN);
		} else {
			usage();
		}
	}
}

static void send_devices(int fd)
{
	const char *devices = getenv("CUDA_VISIBLE_DEVICES");
	struct wire_client_hello hello = {.has_devices = devices != NULL};

	if (devices)
		text_copy(hello.devices, sizeof(hello.devices), devices);
	(void)wire_send(fd, &hello, sizeof(hello));
}

/* Connects and says nothing, which makes the control daemon deaf until this process ends. */
static int be_silent(void)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/control",
		 directory ? directory : FRONTEND_DEFAULT_DIRECTORY);
	if (wire_connect(path) < 0) {
		puts("no-mps");
		return EXIT_ERROR;
	}
	puts("connected");
	fflush(stdout);
	for (;;)
		pause();
}

/* Looks whether anybody listens, as libcuda does: the daemon logs a visitor without credentials. */
static bool probe(const char *path)
{
	int fd = wire_connect(path);

	if (fd < 0)
		return false;
	(void)wire_receive_hello(fd);
	close(fd);
	return true;
}

/* The connection to the server; -EBADF without MPS. Ends the program when initialisation fails. */
static int attach(void)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct wire_client_event event = {.error = ERROR_CONNECTION_FAILED};
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/control",
		 directory ? directory : FRONTEND_DEFAULT_DIRECTORY);
	fd = probe(path) ? wire_connect(path) : -EBADF;
	if (fd < 0) {
		puts("no-mps");
		fflush(stdout);
		return -EBADF;
	}
	if (wire_receive_hello(fd) == 0 && wire_send_kind(fd, WIRE_KIND_CLIENT) == 0) {
		send_devices(fd);
		(void)wire_receive(fd, &event, sizeof(event), NULL);
	}
	if (event.error != 0) {
		print_error(event.error);
		exit(EXIT_ERROR);
	}
	event.device[sizeof(event.device) - 1] = '\0';
	printf("mps server=%d device=%s\n", event.server_pid, event.device);
	fflush(stdout);
	return fd;
}

/* Standard input counts only when somebody can hold it open: a pipe, a socket, a terminal. */
static int input_to_watch(const struct options *options)
{
	struct stat status;

	if (options->hold_ms >= 0 || fstat(STDIN_FILENO, &status) < 0)
		return -EBADF;
	if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || isatty(STDIN_FILENO))
		return STDIN_FILENO;
	return -EBADF;
}

static bool input_has_ended(int fd)
{
	char bytes[256];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

/* Breaks the device; without MPS the error is one's own. */
static int cause_fault(const struct options *options, int fd)
{
	struct wire_client_fault fault = {.error = options->fault_error};

	if (fd >= 0)
		return wire_send(fd, &fault, sizeof(fault)) ? 0 : ERROR_RPC_FAILURE;
	return options->fault_error;
}

/* What the server says: an error, or 0 for nothing of interest. */
static int server_said(int fd)
{
	struct wire_client_event event = {0};
	ssize_t n = wire_receive(fd, &event, sizeof(event), NULL);

	return n <= 0 ? ERROR_RPC_FAILURE : event.error;
}

static int earlier(long long deadline_ms, int timeout)
{
	long long left = deadline_ms - now_ms();

	if (!deadline_ms)
		return timeout;
	if (left < 0)
		left = 0;
	return timeout < 0 || left < timeout ? (int)left : timeout;
}

/* Stays until the time is up, the input ends or an error comes; returns the error. */
static int hold(struct options *options, int *fd)
{
	long long end_ms = options->hold_ms >= 0 ? now_ms() + options->hold_ms : 0;
	long long fault_ms = options->faults ? now_ms() + options->fault_after_ms : 0;
	struct pollfd fds[2] = {{.events = POLLIN},
				{.fd = input_to_watch(options), .events = POLLIN}};
	int error = 0;

	while (error == 0) {
		fds[0].fd = *fd;
		if (poll(fds, 2, earlier(end_ms, earlier(fault_ms, -1))) > 0) {
			if (fds[0].revents)
				error = server_said(*fd);
			else if (fds[1].revents && input_has_ended(STDIN_FILENO))
				return 0;
		}
		if (end_ms && now_ms() >= end_ms)
			return error;
		if (fault_ms && now_ms() >= fault_ms) {
			error = cause_fault(options, *fd);
			fault_ms = 0;
		}
	}
	options->faults = fault_ms != 0;
	return error;
}

int main(int argc, char *argv[])
{
	struct options options = {.hold_ms = -1};
	int error;
	int fd;

	(void)argc;
	signal(SIGPIPE, SIG_IGN);
	program_init();
	parse(argv, &options);
	if (options.silent)
		return be_silent();
	fd = attach();
	if (!options.holds)
		return 0;
	for (;;) {
		error = hold(&options, &fd);
		if (error != 0)
			print_error(error);
		if (error == 0 || !options.stubborn)
			return error == 0 ? 0 : EXIT_ERROR;
		/* A server or a control daemon that has gone says so once. */
		if (error == ERROR_RPC_FAILURE) {
			close(fd);
			fd = -EBADF;
		}
	}
}
