/* SPDX-License-Identifier: MIT */
/* The protocol's types as JSON; see io.mps-supervisor.varlink. New references; NULL on ENOMEM. */
#pragma once

#include "events.h"
#include "leases.h"

json_t *render_device(const struct device *device);
json_t *render_instance(const struct leases *leases, const struct instance *instance);
json_t *render_lease(const struct leases *leases, size_t index);
/* One that waits, when its position is known already. */
json_t *render_waiter(const struct leases *leases, size_t index, int position);
/* All: those who have one, then those who wait, in order. */
json_t *render_leases(const struct leases *leases);
json_t *render_event(const struct event *event);
json_t *render_counters(const struct stats *stats);
