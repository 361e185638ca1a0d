/* SPDX-License-Identifier: MIT */
/*
 * Commands of mpsctl against a supervisor that goes and comes back: the test plays the supervisor,
 * a child is mpsctl.
 */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cli.h"
#include "commands.h"
#include "unit.h"
#include "unit_directory.h"
#include "usock.h"

#define PATIENCE_SEC 30
#define WORDS_MAX 16
#define MESSAGE_MAX 4096

#define LEASE(what, state)                                                                    \
	"{\"parameters\": {\"what\": \"" what "\", \"event\": {\"message\": \"MARK\"}, "      \
	"\"lease\": {\"id\": \"L1\", \"state\": \"" state "\", \"instance\": \"GPU-1\", "     \
	"\"devices\": [\"GPU-1\"], \"pipe_directory\": \"/d\", \"reason\": \"full\", "        \
	"\"environment\": {\"MPS_SUPERVISOR_LEASE\": \"L1\"}}}, \"continues\": true}"
#define QUEUED LEASE("queued", "queued")
#define GRANTED LEASE("granted", "granted")
#define INTERRUPTED LEASE("interrupted", "granted")
#define INSTANCE(state, held)                                                          \
	"{\"name\": \"GPU-1\", \"kind\": \"gpu\", \"devices\": [{\"uuid\": \"GPU-1\", " \
	"\"index\": 0}], \"state\": \"" state "\", \"held\": " held "}"
#define STATUS "{\"parameters\": {\"instances\": [" INSTANCE("ready", "false") "]}}"
#define LEASES                                                                              \
	"{\"parameters\": {\"leases\": [{\"id\": \"L1\", \"state\": \"granted\", \"uid\": " \
	"3999999001, \"pid\": 7, \"name\": \"train\", \"devices\": [\"GPU-1\"]}]}}"
#define ERROR(name) "{\"error\": \"io.mps-supervisor." name "\", \"parameters\": {}}"

static int listening = -EBADF; /* of the supervisor */
static const char *path;

/* mpsctl */
static pid_t client;
static int job_input, errors; /* the writing end of its stdin, the reading end of its stderr */

static void come(void)
{
	ck_assert_int_eq(usock_listen(path, 0666, &listening), 0);
}

static void go(void)
{
	listening = safe_close(listening);
	ck_assert_int_eq(unlink(path), 0);
}

static void setup(void)
{
	unit_directory_setup();
	path = unit_path("socket");
	come();
}

static void teardown(void)
{
	listening = safe_close(listening);
	unit_directory_teardown();
}

static void wait_readable(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};

	ck_assert_int_eq(poll(&pollfd, 1, PATIENCE_SEC * 1000), 1);
}

/* The next call: a connection on which a message with each of the parts has come. */
static int hear(const char *part, const char *other)
{
	char message[MESSAGE_MAX] = "";
	size_t length = 0;
	ssize_t n;
	int fd;

	wait_readable(listening);
	fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	do {
		wait_readable(fd);
		n = recv(fd, message + length, sizeof(message) - length, 0);
		ck_assert_int_gt(n, 0);
		length += (size_t)n;
	} while (message[length - 1] != '\0');
	unit_assert_contains(message, part);
	unit_assert_contains(message, other);
	return fd;
}

static void answer(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text) + 1, MSG_NOSIGNAL),
			 (ssize_t)strlen(text) + 1);
}

/* One call with one answer. */
static void serve(const char *part, const char *text)
{
	_cleanup_close_ int fd = hear(part, "");

	answer(fd, text);
}

static void cut(int fd)
{
	(void)close(fd);
}

static void assert_ended(int fd)
{
	char byte;

	wait_readable(fd);
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	cut(fd);
}

static void start(int (*command)(const char *socket, int argc, char *argv[]), const char *line)
{
	_cleanup_free_ char *words = strdup(line);
	char *argv[WORDS_MAX] = {}, *rest = NULL;
	int in[2], err[2], argc = 0;

	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
	client = fork();
	if (client == 0) {
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(err[1], STDOUT_FILENO);
		(void)dup2(err[1], STDERR_FILENO);
		(void)close(listening);
		(void)close(in[1]);
		exit(command(path, argc, argv));
	}
	(void)close(in[0]);
	(void)close(err[1]);
	job_input = in[1];
	errors = err[0];
}

/* The end of mpsctl, or of its job. Its status and, in text, all that it and its keeper said. */
static int finish(char text[static MESSAGE_MAX])
{
	size_t length = 0;
	int status;
	ssize_t n;

	job_input = safe_close(job_input);
	do {
		wait_readable(errors);
		n = read(errors, text + length, MESSAGE_MAX - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	text[length] = '\0';
	errors = safe_close(errors);
	ck_assert_int_eq(waitpid(client, &status, 0), client);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

START_TEST(test_exchange)
{
	char text[MESSAGE_MAX];

	start(cmd_leases, "leases");
	cut(hear("ListLeases", ""));
	serve("ListLeases", "{\"parameters\": {\"leases\": []}}");
	ck_assert_int_eq(finish(text), 0);
	ck_assert_str_eq(text, "no leases\n");

	start(cmd_leases, "leases");
	cut(hear("ListLeases", ""));
	cut(hear("ListLeases", ""));
	ck_assert_int_eq(finish(text), CLI_FAILED);
	unit_assert_contains(text, "closed the connection");

	start(cmd_release, "release L1");
	cut(hear("ReleaseLease", "L1"));
	serve("ReleaseLease", ERROR("NoSuchLease"));
	ck_assert_int_eq(finish(text), 0);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(test_exchange_away)
{
	char text[MESSAGE_MAX];
	int fd;

	start(cmd_leases, "leases");
	fd = hear("ListLeases", "");
	go();
	cut(fd);
	ck_assert_int_eq(finish(text), CLI_NO_SUPERVISOR);
	ck_assert_uint_eq(count_lines(text), 1);
}
END_TEST

START_TEST(test_queue)
{
	char text[MESSAGE_MAX];
	int fd;

	start(cmd_lease, "lease --wait 600 --format path --pid 1");
	fd = hear("AcquireLease", "\"wait_ms\":600000");
	answer(fd, QUEUED);
	go();
	cut(fd);
	come();
	fd = hear("AcquireLease", "\"wait_ms\":59");
	cut(fd);
	fd = hear("AcquireLease", "\"wait_ms\":59");
	answer(fd, GRANTED);
	ck_assert_int_eq(finish(text), 0);
	cut(fd);
	ck_assert_str_eq(text, "mpsctl: waiting for a lease: full\n"
			       "mpsctl: the supervisor has gone; asking again when it is back\n"
			       "/d\n");
}
END_TEST

static const struct {
	const char *words, *part;
	int exit_status;
	bool was_there;
} failures[] = {
	{"lease --pid 1", "no supervisor at", CLI_NO_SUPERVISOR, false},
	{"lease -- true", "no supervisor at", CLI_NO_LEASE, false},
	{"lease --pid 1 --wait 0.2 -q", "timed out: the supervisor at", CLI_TIMED_OUT, true},
};

START_TEST(test_queue_away)
{
	char text[MESSAGE_MAX];
	int fd = -EBADF;

	if (failures[_i].was_there) {
		start(cmd_lease, failures[_i].words);
		fd = hear("AcquireLease", "");
		go();
		cut(fd);
	} else {
		go();
		start(cmd_lease, failures[_i].words);
	}
	ck_assert_int_eq(finish(text), failures[_i].exit_status);
	unit_assert_contains(text, failures[_i].part);
	ck_assert_uint_eq(count_lines(text), 1);
}
END_TEST

START_TEST(test_shutting_down)
{
	char text[MESSAGE_MAX];

	start(cmd_lease, "lease --pid 1");
	serve("AcquireLease", ERROR("ShuttingDown"));
	ck_assert_int_eq(finish(text), CLI_FAILED);
	ck_assert_uint_eq(count_lines(text), 1);
}
END_TEST

/* A job that lives as long as its input. */
static int start_job(const char *options)
{
	char words[256];
	int fd;

	(void)text_format(words, sizeof(words), "lease %s-- cat", options);
	start(cmd_lease, words);
	fd = hear("AcquireLease", "");
	answer(fd, GRANTED);
	return fd;
}

START_TEST(test_keeper)
{
	char text[MESSAGE_MAX];
	int fd = start_job("");

	go();
	cut(fd);
	come();
	cut(hear("ReclaimLease", "\"more\":true"));
	fd = hear("ReclaimLease", "\"id\":\"L1\"");
	answer(fd, GRANTED);
	cut(fd);
	fd = hear("ReclaimLease", "L1");
	answer(fd, GRANTED);
	answer(fd, INTERRUPTED);
	job_input = safe_close(job_input);
	ck_assert_int_eq(finish(text), 0);
	assert_ended(fd);
	unit_assert_contains(text, "lease L1 was interrupted: MARK");
	ck_assert_uint_eq(count_lines(text), 1);
}
END_TEST

/* The end of its standard error is the end of the keeper. */
START_TEST(test_keeper_ends_away)
{
	char text[MESSAGE_MAX];
	int fd = start_job("");

	go();
	cut(fd);
	ck_assert_int_eq(finish(text), 0);
	ck_assert_str_eq(text, "");
}
END_TEST

static const struct {
	const char *options, *error, *part;
	int exit_status;
} refusals[] = {
	{"", "NoSuchLease", "lease L1 was revoked: it ended while", 0},
	{"", "ShuttingDown", "lease L1 was revoked: the supervisor stops", 0},
	{"", "PermissionDenied", "lease L1 is not watched any more: permission denied", 0},
	{"--on-loss terminate ", "NoSuchLease", "ending the job", 128 + SIGTERM},
	{"--on-loss rerun ", "NoSuchLease", "lease L1 was revoked", 128 + SIGTERM},
};

START_TEST(test_reclaim_refused)
{
	char text[MESSAGE_MAX];
	int fd = start_job(refusals[_i].options), input;

	cut(fd);
	fd = hear("ReclaimLease", "L1");
	answer(fd, ERROR("Busy"));
	cut(fd);
	fd = hear("ReclaimLease", "L1");
	answer(fd, refusals[_i].error[0] ? "" : "");
	(void)input;
	ck_assert_int_eq(finish(text), refusals[_i].exit_status);
}
END_TEST
