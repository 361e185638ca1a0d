/* SPDX-License-Identifier: MIT */
#include "varlink.h"

#include <sys/socket.h>

#include "text.h"

/* Most calls fit. */
#define INPUT_STEP 1024u
/* Most replies fit. */
#define OUTPUT_STEP 4096u

void varlink_stream_init(struct varlink_stream *stream, int fd, size_t message_max)
{
	*stream = (struct varlink_stream){.fd = fd, .message_max = message_max};
}

void varlink_stream_done(struct varlink_stream *stream)
{
	stream->fd = safe_close(stream->fd);
	free(TAKE_PTR(stream->in));
	free(TAKE_PTR(stream->out));
}

/* Makes room for one more byte at least; doubles, up to the longest message and its NUL. */
static int grow_input(struct varlink_stream *stream)
{
	size_t limit = stream->message_max + 1;
	size_t size = MIN(MAX(stream->in_size * 2, INPUT_STEP), limit);
	char *in;

	if (stream->in_length < stream->in_size)
		return 0;
	if (stream->in_size >= limit)
		return -EMSGSIZE;
	in = realloc(stream->in, size);
	if (!in)
		return -ENOMEM;
	stream->in = in;
	stream->in_size = size;
	return 0;
}

int varlink_stream_read(struct varlink_stream *stream)
{
	ssize_t n;
	int r;

	r = grow_input(stream);
	if (r < 0)
		return r;
	n = recv(stream->fd, stream->in + stream->in_length, stream->in_size - stream->in_length,
		 0);
	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (n == 0)
		return VARLINK_EOF;
	stream->in_length += (size_t)n;
	return 0;
}

static void drop_input(struct varlink_stream *stream, size_t n)
{
	stream->in_length -= n;
	memmove(stream->in, stream->in + n, stream->in_length);
	stream->in_scanned = 0;
	if (stream->in_length > 0)
		return;
	free(TAKE_PTR(stream->in));
	stream->in_size = 0;
}

int varlink_stream_next(struct varlink_stream *stream, json_t **ret,
			char error_text[static VARLINK_ERROR_TEXT_MAX])
{
	json_t *message;
	json_error_t error;
	char *end;

	if (stream->in_length == stream->in_scanned)
		return VARLINK_NO_MESSAGE;
	end = memchr(stream->in + stream->in_scanned, '\0', stream->in_length - stream->in_scanned);
	stream->in_scanned = stream->in_length;
	if (!end)
		return VARLINK_NO_MESSAGE;
	message =
		json_loadb(stream->in, (size_t)(end - stream->in), JSON_REJECT_DUPLICATES, &error);
	drop_input(stream, (size_t)(end - stream->in) + 1);
	if (json_is_object(message)) {
		*ret = message;
		return 0;
	}
	(void)text_copy(error_text, VARLINK_ERROR_TEXT_MAX,
			message ? "the message is not an object" : error.text);
	json_decref(message);
	return -EBADMSG;
}

static int append_output(struct varlink_stream *stream, const char *text, size_t length)
{
	size_t size = MAX(stream->out_size, OUTPUT_STEP);
	char *out;

	while (size < stream->out_length + length)
		size *= 2;
	if (size != stream->out_size) {
		out = realloc(stream->out, size);
		if (!out)
			return -ENOMEM;
		stream->out = out;
		stream->out_size = size;
	}
	memcpy(stream->out + stream->out_length, text, length);
	stream->out_length += length;
	return 0;
}

/* Sends what the peer takes now. */
static int send_some(const struct varlink_stream *stream, const char *text, size_t length,
		     size_t *ret_sent)
{
	size_t sent = 0;

	while (sent < length) {
		ssize_t n = send(stream->fd, text + sent, length - sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return -errno;
		if (n < 0)
			break;
		sent += (size_t)n;
	}
	*ret_sent = sent;
	return 0;
}

/* What the peer takes at once is not copied. */
static int send_text(struct varlink_stream *stream, const char *text, size_t length)
{
	size_t sent = 0;
	int r;

	if (length > VARLINK_OUTPUT_MAX - MIN(stream->out_length, VARLINK_OUTPUT_MAX))
		return -ENOBUFS;
	if (stream->out_length == 0) {
		r = send_some(stream, text, length, &sent);
		if (r < 0 || sent == length)
			return r;
	}
	return append_output(stream, text + sent, length - sent);
}

int varlink_stream_send(struct varlink_stream *stream, const json_t *message)
{
	char near[OUTPUT_STEP];
	_cleanup_free_ char *far = NULL;
	size_t length = json_dumpb(message, near, sizeof(near) - 1, JSON_COMPACT);

	if (length == 0)
		return -ENOMEM;
	if (length < sizeof(near)) {
		near[length] = '\0';
		return send_text(stream, near, length + 1);
	}
	far = json_dumps(message, JSON_COMPACT);
	return far ? send_text(stream, far, length + 1) : -ENOMEM;
}

int varlink_stream_flush(struct varlink_stream *stream)
{
	size_t sent = 0;
	int r = send_some(stream, stream->out, stream->out_length, &sent);

	if (r < 0)
		return r;
	stream->out_length -= sent;
	if (stream->out_length > 0) {
		memmove(stream->out, stream->out + sent, stream->out_length);
		return VARLINK_PENDING;
	}
	free(TAKE_PTR(stream->out));
	stream->out_size = 0;
	return 0;
}

static int read_flag(json_t *message, const char *name, bool *ret)
{
	json_t *value = json_object_get(message, name);

	if (value && !json_is_boolean(value))
		return -EBADMSG;
	*ret = json_is_true(value);
	return 0;
}

int varlink_call_parse(json_t *message, struct varlink_call *ret, const char **ret_reason)
{
	struct varlink_call call = {
		.method = json_string_value(json_object_get(message, "method")),
		.parameters = json_object_get(message, "parameters"),
	};

	if (!call.method) {
		*ret_reason = "the message has no string \"method\"";
		return -EBADMSG;
	}
	if (call.parameters && !json_is_object(call.parameters)) {
		*ret_reason = "\"parameters\" is not an object";
		return -EBADMSG;
	}
	if (read_flag(message, "more", &call.more) < 0 ||
	    read_flag(message, "oneway", &call.oneway) < 0) {
		*ret_reason = "\"more\" or \"oneway\" is not a boolean";
		return -EBADMSG;
	}
	*ret = call;
	return 0;
}

/* Adds an owned value; a message that could not be completed is dropped whole. */
static json_t *with(json_t *message, const char *key, json_t *value)
{
	if (json_object_set_new(message, key, value) == 0)
		return message;
	json_decref(message);
	return NULL;
}

json_t *varlink_call_new(const char *method, json_t *parameters, bool more)
{
	json_t *message = with(json_object(), "method", json_string(method));

	if (parameters)
		message = with(message, "parameters", parameters);
	if (more)
		message = with(message, "more", json_true());
	return message;
}

json_t *varlink_reply_new(json_t *parameters, bool continues)
{
	json_t *message =
		with(json_object(), "parameters", parameters ? parameters : json_object());

	if (continues)
		message = with(message, "continues", json_true());
	return message;
}

json_t *varlink_error_new(const char *error, json_t *parameters)
{
	json_t *message = with(json_object(), "error", json_string(error));

	return with(message, "parameters", parameters ? parameters : json_object());
}

json_t *varlink_text(const char *text)
{
	json_t *json = json_string(text);
	_cleanup_free_ char *copy = NULL;

	if (json)
		return json;
	copy = strdup(text);
	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return copy ? json_string(copy) : NULL;
}
