/* SPDX-License-Identifier: MIT */
/* Asking for a lease, and coming back to one. */
#include <sys/random.h>

#include "leases_parts.h"
#include "proto.h"
#include "text.h"
#include "util.h"

static int new_id(const struct leases *leases, char id[static LEASE_ID_SIZE])
{
	uint32_t random;

	do {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		(void)text_format(id, LEASE_ID_SIZE, "%08x", random);
	} while (lease_find(&leases->table, id) != LEASE_NONE);
	return 0;
}

static void refuse_request(struct leases *leases, const struct leases_ask *ask, int outcome,
			   size_t place, const char *reason)
{
	const char *error = PROTO_BUSY;

	leases->stats->leases_refused++;
	if (outcome == LEASE_ALL_FAILED) {
		connection_error(ask->connection, leases_no_hope(leases, place),
				 leases_not_ready(leases, place));
		return;
	}
	if (outcome == LEASE_UNSATISFIABLE || outcome < 0)
		error = PROTO_UNSATISFIABLE;
	connection_error(ask->connection, error, json_pack("{s:s}", "reason", reason));
}

static int enter(struct leases *leases, struct leases_ask *ask, size_t index)
{
	struct holding *holding = &leases->holdings[index];

	*holding = (struct holding){
		.leases = leases,
		.index = index,
		.holder = PROCESS_INIT,
		.answering = true,
		.streaming = ask->more,
		.asked_usec = leases_now_usec(leases),
	};
	leases_link(holding, ask->connection);
	if (ask->holder_pidfd < 0)
		return 0;
	return leases_watch_holder(holding, ask->request.pid, TAKE_FD(ask->holder_pidfd));
}

/* It will not queue. But it has its place, which is prepared, and nobody is before it. */
static int wait_for_place(struct holding *holding)
{
	holding->impatient = true;
	holding->leases->n_impatient++;
	return leases_start_waiting(holding, USEC_INFINITY);
}

void leases_acquire(struct leases *leases, struct leases_ask *ask)
{
	_cleanup_close_ int pidfd = TAKE_FD(ask->holder_pidfd);
	char id[LEASE_ID_SIZE], reason[REASON_SIZE] = "";
	struct holding *holding;
	size_t index = LEASE_NONE;
	int r;

	leases->stats->leases_requested++;
	r = new_id(leases, id);
	if (r == 0)
		r = lease_request(&leases->table, &ask->request, id, clock_usec(CLOCK_REALTIME),
				  &index, reason);
	if (r != 0) {
		refuse_request(leases, ask, r, index, r < 0 ? strerror(-r) : reason);
		return;
	}
	ask->holder_pidfd = TAKE_FD(pidfd);
	holding = &leases->holdings[index];
	r = enter(leases, ask, index);
	if (r == 0)
		leases_dispatch(leases);
	if (r == 0 && holding->leases && lease_is_waiting(leases_lease_of(holding))) {
		if (ask->wait_usec > 0)
			r = leases_start_waiting(holding, ask->wait_usec);
		else if (leases_lease_of(holding)->state == LEASE_QUEUED)
			leases_refuse_busy(holding);
		else
			r = wait_for_place(holding);
	}
	if (r < 0) {
		leases_refuse(holding, PROTO_UNSATISFIABLE,
			      json_pack("{s:s}", "reason", strerror(-r)));
		leases_finish(holding, strerror(-r));
	}
}

void leases_reclaim(struct leases *leases, size_t index, struct connection *connection, bool more)
{
	struct holding *holding = &leases->holdings[index];

	/* Whoever had it before, if anybody is left: it has come back on another connection. */
	leases_tell(holding, "revoked", NULL, false);
	leases_unlink(holding);
	if (holding->orphaned)
		holding->timer = sd_event_source_disable_unref(holding->timer);
	holding->orphaned = false;
	leases_link(holding, connection);
	holding->answering = true;
	holding->streaming = more;
	leases_tell(holding, "granted", NULL, more);
	if (more)
		leases_tell_late(holding);
}
