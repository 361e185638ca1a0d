/* SPDX-License-Identifier: MIT */
/* Unix stream sockets by path, and who is at the other end. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define USOCK_GROUPS_MAX 256

struct usock_peer {
	pid_t pid; /* as it was when it connected; a claim unless pidfd is valid */
	uid_t uid;
	gid_t gid;
	gid_t groups[USOCK_GROUPS_MAX]; /* supplementary; none when there are more than fit */
	size_t n_groups;
	int pidfd; /* owned; -EBADF when the kernel could not say or the process is gone */
};

/* A listening socket at path with this mode; an old socket file is replaced. The caller makes
 * sure (by a lock) that no other server uses the path. -ENAMETOOLONG past sun_path. */
int usock_listen(const char *path, mode_t mode, int *ret_fd);

/* Connects, blocking. -errno of connect(2); -ENAMETOOLONG past sun_path. */
int usock_connect(const char *path, int *ret_fd);

/* Credentials the kernel recorded at connect(2) (SO_PEERCRED, SO_PEERGROUPS), and a pidfd for the
 * peer (SO_PEERPIDFD from Linux 6.5, before that pidfd_open on the pid). */
int usock_peer_init(struct usock_peer *peer, int fd);
void usock_peer_done(struct usock_peer *peer);
