/* SPDX-License-Identifier: MIT */
#include "spawn.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "process.h"
#include "text.h"
#include "util.h"

static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int connect_streams(const struct spawn *spawn)
{
	int fds[] = {spawn->stdin_fd, spawn->stdout_fd, spawn->stderr_fd};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	/* First out of the way of each other: one of them may be 0, 1 or 2 itself. */
	for (int i = 0; i < 3; i++) {
		fds[i] = fcntl(fds[i] >= 0 ? fds[i] : null, F_DUPFD_CLOEXEC, 3);
		if (fds[i] < 0)
			return -errno;
	}
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			return -errno;
	return 0;
}

/* In the child. Returns only when something failed. */
static int become(const struct spawn *spawn, pid_t parent)
{
	int r;

	reset_signals();
	if (spawn->own_session && setsid() < 0)
		return -errno;
	if (spawn->die_with_parent) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			return -errno;
		if (getppid() != parent)
			return -ESRCH;
	}
	r = connect_streams(spawn);
	if (r < 0)
		return r;
	if (chdir("/") < 0)
		return -errno;
	(void)umask(022);
	execve(spawn->path, spawn->argv, spawn->envp);
	return -errno;
}

/* 0 when the pipe was closed by execve, else the child's -errno. */
static int read_verdict(int fd)
{
	int verdict = 0;
	ssize_t n;

	do {
		n = read(fd, &verdict, sizeof(verdict));
	} while (n < 0 && errno == EINTR);
	return n == sizeof(verdict) ? verdict : 0;
}

int spawn_process(const struct spawn *spawn, pid_t *ret_pid, int *ret_pidfd)
{
	_cleanup_close_ int reader = -EBADF, writer = -EBADF, pidfd = -EBADF;
	pid_t parent = getpid();
	int pipe_fds[2], r;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	reader = pipe_fds[0];
	writer = pipe_fds[1];
	/* Where the standard streams are closed this end must not become one of them. */
	if (writer < 3)
		writer = fcntl(pipe_fds[1], F_DUPFD_CLOEXEC, 3);
	if (writer != pipe_fds[1])
		(void)close(pipe_fds[1]);
	if (writer < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		r = become(spawn, parent);
		(void)!write(writer, &r, sizeof(r));
		_exit(127);
	}
	closep(&writer);
	r = read_verdict(reader);
	if (r == 0)
		r = process_open(pid, &pidfd);
	if (r < 0) {
		(void)kill(pid, SIGKILL); /* ours, and not reaped yet */
		(void)waitpid(pid, NULL, 0);
		return r;
	}
	*ret_pid = pid;
	*ret_pidfd = TAKE_FD(pidfd);
	return 0;
}

static int check_program(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EACCES;
	return access(path, X_OK) < 0 ? -errno : 0;
}

int spawn_find_program(const char *name, char *ret_path, size_t size)
{
	const char *path = getenv("PATH");
	char candidate[PATH_MAX];
	int r;

	if (strchr(name, '/')) {
		_cleanup_free_ char *absolute = realpath(name, NULL);

		if (!absolute)
			return -errno;
		r = check_program(absolute);
		/* The name, not what it links to: programs look at their own name. */
		return r < 0 ? r : text_copy(ret_path, size, name[0] == '/' ? name : absolute);
	}
	if (!path || !*path)
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	while (*path) {
		size_t length = strcspn(path, ":");

		r = text_format(candidate, sizeof(candidate), "%.*s/%s", (int)length, path, name);
		if (r == 0 && *path == '/' && check_program(candidate) == 0)
			return text_copy(ret_path, size, candidate);
		path += length + (path[length] == ':');
	}
	return -ENOENT;
}
