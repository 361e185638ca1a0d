/* SPDX-License-Identifier: MIT */
#include "sockpeer.h"

#include <dirent.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "text.h"
#include "util.h"

/* The macros of netlink(3) compare int with __u32 and cast through char pointers. */
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wcast-align"

#define INODES_MAX 256
#define DUMP_SIZE ((size_t)32 * 1024)

struct search {
	const char *const *paths;
	size_t n_paths;
	uint32_t inodes[INODES_MAX]; /* of the clients' ends */
	size_t n_inodes;
};

static bool is_searched(const struct search *search, const char *path, size_t length)
{
	for (size_t i = 0; i < search->n_paths; i++)
		if (strnlen(path, length) == strlen(search->paths[i]) &&
		    memcmp(path, search->paths[i], strlen(search->paths[i])) == 0)
			return true;
	return false;
}

/* One socket of the dump: an end that carries the listener's name has its peer's inode. */
static void take_socket(struct search *search, struct nlmsghdr *header)
{
	struct unix_diag_msg *message = NLMSG_DATA(header);
	struct rtattr *attribute = (struct rtattr *)(message + 1);
	int left = (int)(header->nlmsg_len - NLMSG_LENGTH(sizeof(*message)));
	uint32_t peer = 0;
	bool named = false;

	for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
		if (attribute->rta_type == UNIX_DIAG_NAME)
			named = is_searched(search, RTA_DATA(attribute), RTA_PAYLOAD(attribute));
		else if (attribute->rta_type == UNIX_DIAG_PEER &&
			 RTA_PAYLOAD(attribute) >= sizeof(peer))
			memcpy(&peer, RTA_DATA(attribute), sizeof(peer));
	}
	if (named && peer != 0 && search->n_inodes < INODES_MAX)
		search->inodes[search->n_inodes++] = peer;
}

enum {
	DUMP_OVER = 1
};

static int take_dump(struct search *search, void *dump, size_t length)
{
	int left = (int)length;

	for (struct nlmsghdr *header = dump; NLMSG_OK(header, left);
	     header = NLMSG_NEXT(header, left)) {
		if (header->nlmsg_type == NLMSG_DONE)
			return DUMP_OVER;
		if (header->nlmsg_type == NLMSG_ERROR)
			return -EIO;
		if (header->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
		    header->nlmsg_len >= NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
			take_socket(search, header);
	}
	return 0;
}

static int find_inodes(struct search *search)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	_cleanup_free_ void *dump = malloc(DUMP_SIZE);
	struct {
		struct nlmsghdr header;
		struct unix_diag_req request;
	} ask = {
		.header =
			{
				.nlmsg_len = sizeof(ask),
				.nlmsg_type = SOCK_DIAG_BY_FAMILY,
				.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
			},
		.request =
			{
				.sdiag_family = AF_UNIX,
				.udiag_states = 1u << TCP_ESTABLISHED,
				.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER,
			},
	};
	int r = 0;

	if (fd < 0)
		return -errno;
	if (!dump)
		return -ENOMEM;
	if (send(fd, &ask, sizeof(ask), 0) < 0)
		return -errno;
	while (r == 0) {
		ssize_t n = recv(fd, dump, DUMP_SIZE, 0);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		r = take_dump(search, dump, (size_t)n);
	}
	return r < 0 ? r : 0;
}

static void closedirp(DIR **directory)
{
	if (*directory)
		(void)closedir(*directory);
}

/* Does this descriptor, a link below /proc/PID/fd, show one of the inodes? */
static bool shows_inode(const struct search *search, int directory_fd, const char *name)
{
	char target[64];
	ssize_t n = readlinkat(directory_fd, name, target, sizeof(target) - 1);
	unsigned int inode;

	if (n < 0)
		return false;
	target[n] = '\0';
	if (sscanf(target, "socket:[%u]", &inode) != 1)
		return false;
	for (size_t i = 0; i < search->n_inodes; i++)
		if (search->inodes[i] == inode)
			return true;
	return false;
}

static bool holds_one(const struct search *search, const char *pid)
{
	_cleanup_(closedirp) DIR *directory = NULL;
	const struct dirent *entry;
	char path[64];

	(void)text_format(path, sizeof(path), "/proc/%s/fd", pid);
	directory = opendir(path);
	while (directory && (entry = readdir(directory)))
		if (shows_inode(search, dirfd(directory), entry->d_name))
			return true;
	return false;
}

int sockpeer_find(const char *const *paths, size_t n_paths, pid_t *ret_pids, size_t max)
{
	struct search search = {.paths = paths, .n_paths = n_paths};
	_cleanup_(closedirp) DIR *proc = NULL;
	const struct dirent *entry;
	int64_t pid;
	size_t n = 0;
	int r;

	r = find_inodes(&search);
	if (r < 0 || search.n_inodes == 0)
		return r;
	proc = opendir("/proc");
	if (!proc)
		return -errno;
	while (n < max && (entry = readdir(proc)))
		if (text_parse_int(entry->d_name, 1, INT32_MAX, &pid) == 0 &&
		    holds_one(&search, entry->d_name))
			ret_pids[n++] = (pid_t)pid;
	return (int)n;
}
