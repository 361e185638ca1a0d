/* SPDX-License-Identifier: MIT */
/* What leases.c and leases_instances.c give each other; nobody else includes this. */
#pragma once

#include "leases.h"

/* leases.c */
struct lease *leases_lease_of(const struct holding *holding);
void leases_log(const struct holding *holding, const char *message);
/* Answers the holding's call, where one waits; event may be NULL and is taken over. A connection
 * that cannot be sent to ends later, from the event loop: the holding stays as it is. */
void leases_tell(struct holding *holding, const char *what, json_t *event, bool continues);
void leases_refuse(struct holding *holding, const char *error, json_t *parameters);
/* Takes the lease out of the table and everything of it away. */
void leases_finish(struct holding *holding, const char *message);
void leases_dispatch(struct leases *leases);
void leases_ask_refresh(struct leases *leases);
int leases_update_access(struct leases *leases, size_t place);

/* leases_instances.c */
/* The holder has ended while its instance is being ended by force, probably of that: it is told
 * now, for when all others are told its lease is over. */
void leases_tell_ahead(struct holding *holding);
/* The parameters of the error NotReady. */
json_t *leases_not_ready(const struct leases *leases, size_t place);
