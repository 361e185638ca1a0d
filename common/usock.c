/* SPDX-License-Identifier: MIT */
#include "usock.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int address_init(struct sockaddr_un *address, const char *path)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	return text_copy(address->sun_path, sizeof(address->sun_path), path);
}

int usock_listen(const char *path, mode_t mode, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	struct sockaddr_un address;
	struct stat st;
	int r;

	r = address_init(&address, path);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (lstat(path, &st) == 0 && (!S_ISSOCK(st.st_mode) || unlink(path) < 0))
		return S_ISSOCK(st.st_mode) ? -errno : -EEXIST;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (chmod(path, mode) < 0)
		return -errno;
	if (listen(fd, SOMAXCONN) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int usock_connect(const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	struct sockaddr_un address;
	int r;

	r = address_init(&address, path);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int peer_pidfd(int fd, pid_t pid)
{
	int pidfd = -EBADF;
	socklen_t length = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
		return pidfd;
	if (errno != ENOPROTOOPT)
		return -EBADF;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 ? -EBADF : pidfd;
}

int usock_peer_init(struct usock_peer *peer, int fd)
{
	struct ucred cred;
	socklen_t length = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
		return -errno;
	*peer = (struct usock_peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
	length = sizeof(peer->groups);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &length) == 0)
		peer->n_groups = length / sizeof(peer->groups[0]);
	peer->pidfd = peer_pidfd(fd, cred.pid);
	if (peer->pidfd >= 0)
		(void)fcntl(peer->pidfd, F_SETFD, FD_CLOEXEC);
	return 0;
}

void usock_peer_done(struct usock_peer *peer)
{
	peer->pidfd = safe_close(peer->pidfd);
}
