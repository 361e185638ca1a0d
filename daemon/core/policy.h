/* SPDX-License-Identifier: MIT */
/* Who may do what: rights are decided by who asks (the kernel says), never by what they say. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_GROUPS_MAX 64

struct policy {
	uint32_t own_uid; /* of the supervisor */
	uint32_t lease_gids[POLICY_GROUPS_MAX], admin_gids[POLICY_GROUPS_MAX];
	size_t n_lease_gids, n_admin_gids;
	bool restrict_leases; /* lease_groups were configured, even if none of them exists */
};

struct principal {
	uint32_t uid, gid;
	const uint32_t *groups; /* borrowed */
	size_t n_groups;
};

/* root, the supervisor's own user, and members of admin_groups. */
bool policy_is_admin(const struct policy *policy, const struct principal *who);
/* Administrators, and members of lease_groups; everybody when none are configured. */
bool policy_may_lease(const struct policy *policy, const struct principal *who);
/* The owner of what is concerned, and administrators. */
bool policy_may_touch(const struct policy *policy, const struct principal *who, uint32_t owner);
