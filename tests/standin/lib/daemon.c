/* SPDX-License-Identifier: MIT */
/* Files, sockets and the loop of the control daemon; see daemon.h. */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend.h"
#include "knobs.h"
#include "logline.h"
#include "util.h"

#define DEFAULT_LOG_DIRECTORY "/var/log/nvidia-mps"
#define POLL_IDLE_MS 1000
#define FLOOD_INTERVAL_MS 20
#define FLOOD_LINE "Flood of lines that nobody asked for, a hundred bytes long with its time"

/* Hands a descriptor over to its next owner. */
static int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -EBADF;
	return taken;
}

static int child_event_fd = -EBADF;

static void on_child_exit(int signal_number)
{
	uint64_t one = 1;

	(void)signal_number;
	if (write(child_event_fd, &one, sizeof(one)) < 0)
		return;
}

static void path_of(const struct daemon *daemon, const char *name, char path[static PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 64, daemon->pipe_directory, name);
}

static void __attribute__((noreturn)) fail(const char *text, const char *object)
{
	printf("%s%s\n", text, object);
	fflush(stdout);
	exit(1);
}

static void read_directories(struct daemon *daemon)
{
	const char *pipe_directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	const char *log_directory = getenv("CUDA_MPS_LOG_DIRECTORY");

	text_copy(daemon->pipe_directory, sizeof(daemon->pipe_directory),
		  pipe_directory ? pipe_directory : FRONTEND_DEFAULT_DIRECTORY);
	text_copy(daemon->log_directory, sizeof(daemon->log_directory),
		  log_directory ? log_directory : DEFAULT_LOG_DIRECTORY);
}

static int open_log(const struct daemon *daemon, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - 64, daemon->log_directory, name);
	return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

static void check_log_directory(struct daemon *daemon)
{
	(void)mkdir(daemon->log_directory, 0700);
	if (access(daemon->log_directory, R_OK | W_OK) == 0)
		return;
	printf("Warning: Failed writing log files to directory [%s]. No logs will be available.\n",
	       daemon->log_directory);
	fflush(stdout);
}

/* One daemon a directory: the lock tells, not the files. */
static void take_lock(struct daemon *daemon)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[PATH_MAX];
	mode_t mask = umask(0);

	(void)mkdir(daemon->pipe_directory, 0777);
	path_of(daemon, "control_lock", path);
	daemon->lock_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	umask(mask);
	if (daemon->lock_fd < 0)
		fail("Cannot access CUDA_MPS_PIPE_DIRECTORY=", daemon->pipe_directory);
	if (fcntl(daemon->lock_fd, F_SETLK, &lock) < 0)
		fail("An instance of this daemon is already running", "");
}

static void make_log_fifo(struct daemon *daemon)
{
	char path[PATH_MAX];

	path_of(daemon, "log", path);
	(void)mkfifo(path, 0777);
	(void)chmod(path, 0777);
	daemon->log_fifo_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* As the real one: neither truncated nor protected against links, and without a newline. */
static void write_pid_file(const struct daemon *daemon)
{
	char path[PATH_MAX];
	char text[16];
	mode_t mask;
	int length;
	int fd;

	if (knob_is_535())
		return;
	mask = umask(0);
	path_of(daemon, "nvidia-cuda-mps-control.pid", path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	umask(mask);
	length = snprintf(text, sizeof(text), "%d", getpid());
	if (fd < 0)
		return;
	if (write(fd, text, (size_t)length) != length)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
	close(fd);
}

static void refuse_while_server_lives(void)
{
	const char *path = knob_text("refuse_start_while_server_lives");
	FILE *file = path ? fopen(path, "re") : NULL;
	int pid = 0;

	if (!file)
		return;
	if (fscanf(file, "%d", &pid) == 1 && process_lives(pid)) {
		printf("Server %d of an earlier daemon is still there\n", pid);
		fflush(stdout);
		exit(1);
	}
	fclose(file);
}

static void listen_on_sockets(struct daemon *daemon)
{
	char path[PATH_MAX];

	path_of(daemon, "control_privileged", path);
	daemon->privileged_fd = wire_listen(path);
	if (daemon->privileged_fd < 0)
		exit(1);
	path_of(daemon, "control", path);
	daemon->control_fd = wire_listen(path);
	if (daemon->control_fd < 0 || chmod(path, 0666) < 0)
		exit(1);
}

/* The starting process waits here until the daemon is up, or ends with its status. */
static void fork_into_background(struct daemon *daemon)
{
	int ends[2];
	char byte;

	if (pipe2(ends, O_CLOEXEC) < 0)
		exit(1);
	switch (fork()) {
	case -1:
		exit(1);
	case 0:
		close(ends[0]);
		daemon->ready_fd = ends[1];
		(void)setsid();
		return;
	default:
		close(ends[1]);
		exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
	}
}

static void report_started(struct daemon *daemon)
{
	if (daemon->ready_fd < 0)
		return;
	if (write(daemon->ready_fd, "", 1) < 0)
		exit(1);
	close(daemon->ready_fd);
	daemon->ready_fd = -EBADF;
}

static void write_to_log_files(struct daemon *daemon)
{
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int log_fd = open_log(daemon, "control.log");

	daemon->server_log_fd = open_log(daemon, "server.log");
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		(void)dup2(fd == STDOUT_FILENO && log_fd >= 0 ? log_fd : null_fd, fd);
	if (null_fd > STDERR_FILENO)
		close(null_fd);
	if (chdir("/") < 0)
		exit(1);
}

static void catch_signals(struct daemon *daemon)
{
	struct sigaction action = {.sa_handler = on_child_exit,
				   .sa_flags = SA_RESTART | SA_NOCLDSTOP};
	sigset_t mask;

	daemon->child_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	child_event_fd = daemon->child_fd;
	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	if (knob_on("ignore_term"))
		signal(SIGTERM, SIG_IGN);
}

static size_t pipe_directory_max(void)
{
	return knob_is_535() ? DAEMON_PIPE_DIRECTORY_MAX_535 : DAEMON_PIPE_DIRECTORY_MAX;
}

static void start(struct daemon *daemon)
{
	if (knob_text("exit_at_start"))
		exit((int)knob_number("exit_at_start", 1));
	check_log_directory(daemon);
	take_lock(daemon);
	refuse_while_server_lives();
	catch_signals(daemon);
	make_log_fifo(daemon);
	if (strlen(daemon->pipe_directory) > pipe_directory_max())
		exit(1);
	write_pid_file(daemon);
	if (daemon->in_background)
		write_to_log_files(daemon);
	log_control("Starting control daemon using socket %s/control", daemon->pipe_directory);
	log_control(
		"To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s",
		daemon->pipe_directory);
	if (!knob_is_535())
		log_control("CUDA MPS Control binary version: 13000");
	if (knob_text("start_delay_ms"))
		report_started(daemon);
	sleep_ms(knob_number("start_delay_ms", 0));
	listen_on_sockets(daemon);
	report_started(daemon);
	sleep_ms(knob_number("answer_delay_ms", 0));
}

void daemon_finish(struct daemon *daemon)
{
	char path[PATH_MAX];

	log_control("Exit with status %d", daemon->last_status);
	close(daemon->control_fd);
	close(daemon->privileged_fd);
	ui_end(daemon, daemon->last_status);
	path_of(daemon, "nvidia-cuda-mps-control.pid", path);
	if (!knob_is_535())
		(void)unlink(path);
	path_of(daemon, "log", path);
	(void)unlink(path);
	exit(daemon->last_status);
}

static void accept_ui(struct daemon *daemon, int fd, const struct wire_peer *peer, bool privileged)
{
	if (daemon->ui_fd >= 0 || daemon->wedged) {
		close(fd);
		return;
	}
	log_control("NEW UI");
	daemon->ui_fd = fd;
	daemon->ui_peer = *peer;
	daemon->ui_privileged = privileged;
	daemon->ui_held = false;
}

/* Greets and listens to what the other side is; nothing else happens meanwhile. */
static void accept_connection(struct daemon *daemon, int listener)
{
	struct wire_peer peer;
	int fd;
	int r;

	log_control("Accepting connection...");
	fd = wire_accept(listener);
	if (fd < 0) {
		log_control("Unable to accept connection");
		return;
	}
	r = wire_receive_peer(fd, &peer);
	if (r == -EACCES)
		log_control("User did not send valid credentials");
	else if (r < 0)
		log_control("Unable to read new connection type information");
	else if (peer.kind == WIRE_KIND_UI)
		accept_ui(daemon, take_fd(&fd), &peer, listener == daemon->privileged_fd);
	else if (peer.kind == WIRE_KIND_CLIENT)
		server_add_client(daemon, take_fd(&fd), &peer);
	else if (peer.kind == WIRE_KIND_SERVER)
		server_connected(daemon, take_fd(&fd), &peer);
	else if (peer.kind == WIRE_KIND_DEBUGGEE)
		log_control("NEW DEBUGGEE %d from user %d", peer.pid, (int)peer.uid);
	else
		log_control("Unknown type of connection");
	if (fd >= 0)
		close(fd);
}

static void handle_child_exit(struct daemon *daemon)
{
	uint64_t count;

	if (read(daemon->child_fd, &count, sizeof(count)) == sizeof(count))
		server_reap(daemon);
}

/* Handles one event: a new connection before an old one, as the real daemon does. */
static void handle_one(struct daemon *daemon, const struct pollfd fds[4])
{
	if (fds[0].revents)
		accept_connection(daemon, daemon->control_fd);
	else if (fds[1].revents)
		accept_connection(daemon, daemon->privileged_fd);
	else if (fds[2].revents)
		handle_child_exit(daemon);
	else if (fds[3].revents)
		ui_handle(daemon);
}

static void flood(long bytes_per_second)
{
	static long long last_ms;
	static long long owed_bytes;
	long long now = now_ms();

	if (bytes_per_second == 0 || last_ms == 0) {
		last_ms = now;
		return;
	}
	owed_bytes += bytes_per_second * (now - last_ms) / 1000;
	last_ms = now;
	for (; owed_bytes > 0; owed_bytes -= 100)
		log_control("%s", FLOOD_LINE);
}

static int poll_timeout(const struct daemon *daemon, long long exit_at_ms)
{
	const struct server *server = &daemon->server;
	long long deadlines[] = {exit_at_ms, server->pid && server->ready ? server->retry_at_ms : 0,
				 daemon->quit_deadline_ms};
	long long timeout = knob_on("flood_bytes_per_s") ? FLOOD_INTERVAL_MS : POLL_IDLE_MS;

	for (size_t i = 0; i < sizeof(deadlines) / sizeof(deadlines[0]); i++)
		if (deadlines[i] && deadlines[i] - now_ms() < timeout)
			timeout = deadlines[i] - now_ms();
	return timeout > 0 ? (int)timeout : 0;
}

/* With quit -t the last attempt comes when the time is up, whatever pause was left. */
static void hurry_at_quit_deadline(struct daemon *daemon)
{
	if (!daemon->quit_deadline_ms || now_ms() < daemon->quit_deadline_ms)
		return;
	daemon->server.retry_at_ms = 0;
}

static void loop(struct daemon *daemon)
{
	long exit_after_ms = knob_number("exit_after_ms", 0);
	long long exit_at_ms = exit_after_ms > 0 ? now_ms() + exit_after_ms : 0;

	for (;;) {
		struct pollfd fds[] = {
			{.fd = daemon->control_fd, .events = POLLIN},
			{.fd = daemon->privileged_fd, .events = POLLIN},
			{.fd = daemon->child_fd, .events = POLLIN},
			{.fd = daemon->ui_fd, .events = POLLIN},
		};

		if (poll(fds, 4, poll_timeout(daemon, exit_at_ms)) > 0)
			handle_one(daemon, fds);
		if (exit_at_ms && now_ms() >= exit_at_ms)
			exit((int)knob_number("exit_status", 1));
		flood(knob_number("flood_bytes_per_s", 0));
		if (daemon->wedged)
			daemon->quit_deadline_ms = 0;
		hurry_at_quit_deadline(daemon);
		if (!daemon->wedged)
			server_serve(daemon);
	}
}

int daemon_run(bool in_background, bool multi_user)
{
	static struct daemon daemon = {
		.server_log_fd = -EBADF,
		.ready_fd = -EBADF,
		.ui_fd = -EBADF,
		.server = {.fd = -EBADF},
		.default_percentage = 100.0,
	};

	daemon.in_background = in_background;
	daemon.multi_user = multi_user;
	read_directories(&daemon);
	if (in_background)
		fork_into_background(&daemon);
	gpus_of_daemon(&daemon.gpus);
	start(&daemon);
	loop(&daemon);
	return 0;
}
