/* SPDX-License-Identifier: MIT */
/*
 * A supervisor that ends between granting a lease and answering leaves a lease that its successor
 * takes over, because its holder lives, and that nobody knows of. Pure.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

/* A request whose answer was lost. */
struct lost_answer {
	const json_t *request; /* parameters of AcquireLease, as sent */
	int64_t uid;           /* of who asked, where request does not say another */
	int64_t asked_usec;    /* realtime, before it was sent */
	const char *id;        /* as it was told while the request waited; "" when it was not */
	const char *around_id; /* of the lease that the caller runs under; "" without */
};

/* The id of the lease among an array of Lease that the request was granted, borrowed from there; or
 * NULL. Without an id one counts that lives with the process that was asked for (or with none, and
 * is named), was asked for since then, and is what was asked for. */
const char *lost_answer_find(const struct lost_answer *lost, const json_t *leases);
