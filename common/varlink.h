/* SPDX-License-Identifier: MIT */
/*
 * Varlink framing: JSON objects ended by a NUL byte over a stream socket, both directions, and
 * the shape of calls and replies (https://varlink.org/Method-Call). Knows no method.
 *
 * This header is the seam to swap in sd-varlink (public from systemd 257) one day.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "util.h"

/* What one side accepts of the other, the NUL not counted. */
#define VARLINK_REQUEST_MAX ((size_t)64 * 1024)
#define VARLINK_REPLY_MAX ((size_t)64 * 1024 * 1024)
/* What may wait in a stream for a peer that does not read. */
#define VARLINK_OUTPUT_MAX ((size_t)16 * 1024 * 1024)
#define VARLINK_ERROR_TEXT_MAX 160

struct varlink_stream {
	int fd; /* owned */
	size_t message_max;
	char *in; /* owned; grows up to message_max + 1 */
	size_t in_size, in_length, in_scanned;
	char *out; /* owned; bytes not yet taken by the kernel */
	size_t out_size, out_length;
};

struct varlink_call {
	const char *method; /* borrowed from the message */
	json_t *parameters; /* borrowed; NULL when absent */
	bool more, oneway;
};

/* Takes over fd. Nothing is allocated before the first byte. */
void varlink_stream_init(struct varlink_stream *stream, int fd, size_t message_max);
void varlink_stream_done(struct varlink_stream *stream);

enum {
	VARLINK_EOF = 1
};
/* Reads once what is there. 0, VARLINK_EOF, or -errno; -EAGAIN when nothing is there, -EMSGSIZE
 * when a message passes message_max. */
int varlink_stream_read(struct varlink_stream *stream);

enum {
	VARLINK_NO_MESSAGE = 1
};
/* Takes the next whole message: an object, owned by the caller. VARLINK_NO_MESSAGE when none is
 * complete; -EBADMSG when it is not a JSON object, with the reason in error_text. */
int varlink_stream_next(struct varlink_stream *stream, json_t **ret,
			char error_text[static VARLINK_ERROR_TEXT_MAX]);

/* Sends a message and queues what the peer does not take at once; all of it when something waits
 * already. -ENOBUFS past VARLINK_OUTPUT_MAX (nothing is sent or queued then), -ENOMEM, or -errno of
 * send(2): a part may have been sent. Never raises SIGPIPE. */
int varlink_stream_send(struct varlink_stream *stream, const json_t *message);

enum {
	VARLINK_PENDING = 1
};
/* Sends what is queued. 0 when all is gone, VARLINK_PENDING when the peer is slow, -errno. */
int varlink_stream_flush(struct varlink_stream *stream);

/* Reads the parts of a call out of message. -EBADMSG when it is not one; the reason is a
 * constant. */
int varlink_call_parse(json_t *message, struct varlink_call *ret, const char **ret_reason);

/* New messages. Each takes over parameters (NULL: none); NULL is out of memory. */
json_t *varlink_call_new(const char *method, json_t *parameters, bool more);
json_t *varlink_reply_new(json_t *parameters, bool continues);
json_t *varlink_error_new(const char *error, json_t *parameters);

/* Text that may come from elsewhere, as JSON: bytes that are no UTF-8 would make none, and are '?'.
 * NULL is out of memory. */
json_t *varlink_text(const char *text);

/* json_decrefp is jansson's own. */
#define _cleanup_json_ _cleanup_(json_decrefp)
