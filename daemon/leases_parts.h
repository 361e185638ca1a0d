/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the leases give each other; nobody else includes this.
 *
 *   leases.c            the life of a lease
 *   leases_ask.c        asking for one, and coming back to one
 *   leases_tell.c       answers and events
 *   leases_wait.c       those who wait: what they are told, and when they have waited enough
 *   leases_drain.c      leases whose holder is gone and whose clients are not
 *   leases_state.c      what the next supervisor must know, and taking it up
 *   leases_instances.c  what happens to instances, as it matters to leases
 */
#pragma once

#include "leases.h"

/* leases.c */
struct lease *leases_lease_of(const struct holding *holding);
/* Of one that has a place. */
struct instance *leases_instance_of(const struct holding *holding);
uint64_t leases_now_usec(const struct leases *leases);
void leases_link(struct holding *holding, struct connection *connection);
void leases_unlink(struct holding *holding);
/* Watches the process that it lives with; takes over pidfd. */
int leases_watch_holder(struct holding *holding, pid_t pid, int pidfd);
/* A lease's holder is gone, or has given it back. */
void leases_let_end(struct holding *holding, const char *why);
/* It has no holder any more: no connection, no process, no timer. */
void leases_let_go(struct holding *holding);
/* Takes the lease out of the table and everything of it away. */
void leases_finish(struct holding *holding, const char *message);
void leases_dispatch(struct leases *leases);
/* Those that nobody needs any more. */
void leases_end_gangs(struct leases *leases);
/* Whether anybody has the place, or is to have it. */
void leases_update_use(struct leases *leases, size_t place);
/* Sets who may traverse the directory of the place; anew: whatever was set before. */
int leases_update_access(struct leases *leases, size_t place, bool anew);

/* leases_tell.c */
/* The instance's; NULL for a request without a place, or whose gang is not made yet. */
const char *leases_place_name(const struct holding *holding);
void leases_log(const struct holding *holding, const char *message);
/* Of a lease that is waited for or held; borrows all texts. */
struct event leases_event(const struct holding *holding, const char *kind, const char *message);
void leases_emit(const struct holding *holding, const char *kind, const char *message);
/* Answers the holding's call, where one waits; event may be NULL. A connection that cannot be sent
 * to ends later, from the event loop: the holding stays as it is. */
void leases_tell(struct holding *holding, const char *what, const struct event *event,
		 bool continues);
void leases_tell_queued(struct holding *holding, int position);
void leases_refuse(struct holding *holding, const char *error, json_t *parameters);

/* leases_wait.c */
int leases_wait_init(struct leases *leases);
void leases_ask_refresh(struct leases *leases);
/* It was not granted at once: until when it waits, and why. */
int leases_start_waiting(struct holding *holding, uint64_t wait_usec);
/* It will not wait. */
void leases_refuse_busy(struct holding *holding);
/* Those whose place was not to be had after all, and who will not queue for another. */
void leases_refuse_impatient(struct leases *leases);

/* leases_drain.c */
int leases_drain_init(struct leases *leases);
/* A granted lease whose holder is gone: does it drain? Else it has no clients, and can end. */
bool leases_drain(struct holding *holding, const char *why);

/* leases_instances.c */
/* The holder has ended while its instance is being ended by force, probably of that: it is told
 * now, for when all others are told its lease is over. */
void leases_tell_ahead(struct holding *holding);
/* The error for who could have had the place, and its parameters: NotReady or Held. */
const char *leases_no_hope(const struct leases *leases, size_t place);
json_t *leases_not_ready(const struct leases *leases, size_t place);
/* Tells the holder what it does not know of: the generation was lost while nobody could. */
void leases_tell_late(struct holding *holding);

/* leases_state.c */
/* Of a lease that has been granted. -errno. */
int leases_save(struct holding *holding);
void leases_forget(const struct leases *leases, const struct lease *lease);
