/* SPDX-License-Identifier: MIT */
#include "policy.h"

static bool contains(const uint32_t *gids, size_t n, uint32_t gid)
{
	for (size_t i = 0; i < n; i++)
		if (gids[i] == gid)
			return true;
	return false;
}

static bool member_of_any(const struct principal *who, const uint32_t *gids, size_t n)
{
	if (contains(gids, n, who->gid))
		return true;
	for (size_t i = 0; i < who->n_groups; i++)
		if (contains(gids, n, who->groups[i]))
			return true;
	return false;
}

bool policy_is_admin(const struct policy *policy, const struct principal *who)
{
	return who->uid == 0 || who->uid == policy->own_uid ||
	       member_of_any(who, policy->admin_gids, policy->n_admin_gids);
}

bool policy_may_lease(const struct policy *policy, const struct principal *who)
{
	return !policy->restrict_leases || policy_is_admin(policy, who) ||
	       member_of_any(who, policy->lease_gids, policy->n_lease_gids);
}

bool policy_may_touch(const struct policy *policy, const struct principal *who, uint32_t owner)
{
	return who->uid == owner || policy_is_admin(policy, who);
}
