/* SPDX-License-Identifier: MIT */
#include "lease_line.h"

#include "cli.h"
#include "proto.h"

void lease_line_init(struct lease_line *line, struct call *call, const char *id, bool continues)
{
	*line = (struct lease_line){
		.call = call,
		.id = id,
		.state = continues ? LEASE_LINE_UP : LEASE_LINE_OVER,
	};
}

int lease_line_fd(const struct lease_line *line)
{
	return line->state == LEASE_LINE_UP ? line->call->stream.fd : -1;
}

uint64_t lease_line_retry_usec(const struct lease_line *line)
{
	return line->state == LEASE_LINE_AWAY ? line->retry_usec : USEC_INFINITY;
}

bool lease_line_is_heard(const struct lease_line *line)
{
	return line->state == LEASE_LINE_UP && !line->reclaiming;
}

static void go_away(struct lease_line *line)
{
	line->state = LEASE_LINE_AWAY;
	call_reset(line->call);
	(void)absence_goes_on(&line->absence, clock_usec(CLOCK_MONOTONIC), USEC_INFINITY,
			      &line->retry_usec);
}

static void reclaim(struct lease_line *line)
{
	int r;

	line->call->command = "reclaiming leases";
	r = call_open_now(line->call);
	if (r == 0)
		r = call_send(line->call, PROTO_RECLAIM_LEASE, json_pack("{s:s}", "id", line->id),
			      true);
	line->reclaiming = true;
	if (r == 0)
		line->state = LEASE_LINE_UP;
	else
		go_away(line);
}

void lease_line_attend(struct lease_line *line, bool readable)
{
	if (line->state == LEASE_LINE_UP && readable && call_read(line->call) != 0)
		go_away(line);
	else if (line->state == LEASE_LINE_AWAY && clock_usec(CLOCK_MONOTONIC) >= line->retry_usec)
		reclaim(line);
}

/* As the supervisor would have put it. */
static bool say_revoked(struct lease_line *line, const char *why, json_t **ret)
{
	line->state = LEASE_LINE_OVER;
	*ret = json_pack("{s:s, s:{s:s}, s:{s:s}}", "what", "revoked", "lease", "id", line->id,
			 "event", "message", why);
	return *ret != NULL;
}

static void give_up(struct lease_line *line)
{
	line->state = LEASE_LINE_OVER;
	cli_print("lease %s is not watched any more: %s", line->id, line->call->problem);
}

/* An answer that is an error, or none at all. */
static bool take_failure(struct lease_line *line, json_t **ret)
{
	const struct call *call = line->call;

	if (!line->reclaiming) {
		line->state = LEASE_LINE_OVER;
		return false;
	}
	if (call->failure != CALL_REFUSED) {
		give_up(line);
		return false;
	}
	/* One that is being emptied can be reclaimed no more. */
	if (streq(call->error, PROTO_NO_SUCH_LEASE) || streq(call->error, PROTO_INVALID_REQUEST))
		return say_revoked(line, "it ended while the supervisor was away", ret);
	if (streq(call->error, PROTO_SHUTTING_DOWN))
		return say_revoked(line, "the supervisor stops", ret);
	if (streq(call->error, PROTO_BUSY))
		go_away(line);
	else
		give_up(line);
	return false;
}

/* What was said just before the supervisor went may be said again when it is back. */
static bool is_old(struct lease_line *line, const json_t *parameters)
{
	const char *what = json_string_value(json_object_get(parameters, "what"));
	const json_t *event = json_object_get(parameters, "event");
	json_int_t generation = json_integer_value(json_object_get(event, "generation"));

	if (!what || !streq(what, "interrupted") || generation <= 0)
		return false;
	if (generation == line->told_generation)
		return true;
	line->told_generation = generation;
	return false;
}

/* As lease_line_take, with what is old. */
static bool take(struct lease_line *line, json_t **ret)
{
	bool continues;
	int r;

	if (line->state != LEASE_LINE_UP)
		return false;
	r = call_take(line->call, ret, &continues);
	if (r == CALL_NOTHING)
		return false;
	if (r != 0)
		return take_failure(line, ret);
	line->reclaiming = false;
	absence_end(&line->absence);
	if (!continues)
		line->state = LEASE_LINE_OVER;
	return true;
}

bool lease_line_take(struct lease_line *line, json_t **ret)
{
	json_t *parameters;

	while (take(line, &parameters)) {
		if (!is_old(line, parameters)) {
			*ret = parameters;
			return true;
		}
		json_decref(parameters);
	}
	return false;
}
