/* SPDX-License-Identifier: MIT */
/* Sockets, greeting and descriptor passing; see wire.h. */
#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WIRE_HELLO "OUTBHELL"
#define WIRE_CREDENTIALS "OUTBCRED"
#define WIRE_BACKLOG 128

union wire_control {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
};

static int wire_address(const char *path, struct sockaddr_un *address)
{
	size_t length = strlen(path);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (length >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	memcpy(address->sun_path, path, length);
	return 0;
}

static socklen_t wire_address_size(const struct sockaddr_un *address)
{
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address->sun_path) + 1);
}

static int wire_close_with(int fd, int error)
{
	close(fd);
	return -error;
}

int wire_listen(const char *path)
{
	struct sockaddr_un address;
	int r = wire_address(path, &address);
	int fd;

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	(void)unlink(path);
	if (bind(fd, (struct sockaddr *)&address, wire_address_size(&address)) < 0 ||
	    listen(fd, WIRE_BACKLOG) < 0)
		return wire_close_with(fd, errno);
	return fd;
}

static int wire_pass_credentials(int fd)
{
	int on = 1;

	return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ? -errno : 0;
}

int wire_connect(const char *path)
{
	struct sockaddr_un address;
	int r = wire_address(path, &address);
	int fd;

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (wire_pass_credentials(fd) < 0 ||
	    connect(fd, (struct sockaddr *)&address, wire_address_size(&address)) < 0)
		return wire_close_with(fd, errno);
	return fd;
}

int wire_receive_hello(int fd)
{
	char hello[sizeof(WIRE_HELLO)];
	ssize_t n = wire_receive(fd, hello, sizeof(hello), NULL);

	if (n < 0)
		return (int)n;
	return n == sizeof(hello) && memcmp(hello, WIRE_HELLO, sizeof(hello)) == 0 ? 0 : -EPROTO;
}

/* A message with something of the socket's own beside it. */
static bool wire_send_with(int fd, const void *data, size_t size, int type, const void *beside,
			   size_t beside_size)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
	union wire_control control = {0};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(beside_size),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(beside_size);
	memcpy(CMSG_DATA(header), beside, beside_size);
	return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

static bool wire_send_credentials(int fd)
{
	struct ucred own = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};

	return wire_send_with(fd, WIRE_CREDENTIALS, sizeof(WIRE_CREDENTIALS), SCM_CREDENTIALS, &own,
			      sizeof(own));
}

int wire_send_kind(int fd, int kind)
{
	int32_t value = kind;

	if (!wire_send_credentials(fd) || !wire_send(fd, &value, sizeof(value)))
		return -EPIPE;
	return 0;
}

int wire_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (wire_pass_credentials(fd) < 0)
		return wire_close_with(fd, errno);
	(void)wire_send(fd, WIRE_HELLO, sizeof(WIRE_HELLO));
	return fd;
}

static ssize_t wire_receive_message(int fd, void *data, size_t size, union wire_control *control,
				    struct msghdr *ret_message)
{
	struct iovec part = {.iov_base = data, .iov_len = size};
	ssize_t n;

	*ret_message = (struct msghdr){
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(*control),
	};
	do
		n = recvmsg(fd, ret_message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	ret_message->msg_iov = NULL;
	return n < 0 ? -errno : n;
}

int wire_receive_peer(int fd, struct wire_peer *ret_peer)
{
	char text[sizeof(WIRE_CREDENTIALS)] = "";
	union wire_control control = {0};
	struct msghdr message;
	struct cmsghdr *header;
	struct ucred peer;
	int32_t kind;
	ssize_t n = wire_receive_message(fd, text, sizeof(text), &control, &message);

	if (n != sizeof(text) || memcmp(text, WIRE_CREDENTIALS, sizeof(text)) != 0)
		return -EACCES;
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_CREDENTIALS)
		return -EACCES;
	memcpy(&peer, CMSG_DATA(header), sizeof(peer));
	if (wire_receive(fd, &kind, sizeof(kind), NULL) != sizeof(kind))
		return -EPROTO;
	*ret_peer = (struct wire_peer){.pid = peer.pid, .uid = peer.uid, .kind = kind};
	return 0;
}

bool wire_send(int fd, const void *message, size_t size)
{
	return send(fd, message, size, MSG_NOSIGNAL) == (ssize_t)size;
}

bool wire_send_descriptor(int fd, const void *data, size_t size, int passed)
{
	return wire_send_with(fd, data, size, SCM_RIGHTS, &passed, sizeof(passed));
}

ssize_t wire_receive(int fd, void *data, size_t size, int *ret_passed)
{
	union wire_control control = {0};
	struct msghdr message;
	struct cmsghdr *header;
	int passed = -EBADF;
	ssize_t n = wire_receive_message(fd, data, size, &control, &message);

	if (n < 0)
		return n;
	for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
		if (header->cmsg_type == SCM_RIGHTS)
			memcpy(&passed, CMSG_DATA(header), sizeof(passed));
	if (ret_passed)
		*ret_passed = passed;
	else if (passed >= 0)
		close(passed);
	return n;
}
