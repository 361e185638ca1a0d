/* SPDX-License-Identifier: MIT */
/* What lease.c and lease_queue.c give each other; nobody else includes this. */
#pragma once

#include "lease.h"

/* lease_queue.c: lists of waiters, in the order of their requests, and their kinds. */
void lease_queue_init(struct lease_table *table);
/* A new waiter, at the end. */
void lease_queue_enter(struct lease_table *table, size_t index);
/* It waits no more. */
void lease_queue_leave(struct lease_table *table, size_t index);
/* From the queue to the assigned. */
void lease_queue_assign(struct lease_table *table, size_t index);
/* And back, to where it was. */
void lease_queue_return(struct lease_table *table, size_t index);
