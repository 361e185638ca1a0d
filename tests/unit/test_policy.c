/* SPDX-License-Identifier: MIT */
#include "policy.h"
#include "unit.h"

#define OWN 900

static const uint32_t users[] = {100}, leasers[] = {100, 200}, admins[] = {100, 300};
static const uint32_t many[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 300};

static const struct {
	const char *what;
	struct principal who;
	bool admin, may_lease_open, may_lease_restricted;
} people[] = {
	{"root", {.uid = 0, .gid = 0}, true, true, true},
	{"the supervisor's own", {.uid = OWN, .gid = 5}, true, true, true},
	{"nobody special", {.uid = 1000, .gid = 100}, false, true, false},
	{"with a group",
	 {.uid = 1000, .gid = 5, .groups = users, .n_groups = 1},
	 false,
	 true,
	 false},
	{"may lease by main group", {.uid = 1000, .gid = 200}, false, true, true},
	{"may lease by group",
	 {.uid = 1000, .gid = 5, .groups = leasers, .n_groups = 2},
	 false,
	 true,
	 true},
	{"only the groups that count",
	 {.uid = 1000, .gid = 5, .groups = leasers, .n_groups = 1},
	 false,
	 true,
	 false},
	{"admin by main group", {.uid = 1000, .gid = 300}, true, true, true},
	{"admin by group",
	 {.uid = 1000, .gid = 5, .groups = admins, .n_groups = 2},
	 true,
	 true,
	 true},
	{"admin by the last of many",
	 {.uid = 1000, .gid = 5, .groups = many, .n_groups = 10},
	 true,
	 true,
	 true},
	{"a uid is no gid", {.uid = 300, .gid = 5}, false, true, false},
	{"root's group is no root", {.uid = 1000, .gid = 0}, false, true, false},
};

static const struct policy policy = {
	.own_uid = OWN,
	.lease_gids = {201, 200},
	.n_lease_gids = 2,
	.admin_gids = {301, 300},
	.n_admin_gids = 2,
	.restrict_leases = true,
};

START_TEST(decides_who_may_what)
{
	const struct principal *who = &people[_i].who;
	struct policy open = policy;

	open.restrict_leases = false;
	open.n_lease_gids = 0;
	ck_assert_int_eq(policy_is_admin(&policy, who), people[_i].admin);
	ck_assert_int_eq(policy_may_lease(&open, who), people[_i].may_lease_open);
	ck_assert_int_eq(policy_may_lease(&policy, who), people[_i].may_lease_restricted);
	ck_assert(policy_may_touch(&policy, who, who->uid));
	ck_assert_int_eq(policy_may_touch(&policy, who, 4711), people[_i].admin);
}
END_TEST

/* Groups that do not exist leave nobody but administrators. */
START_TEST(missing_groups_admit_nobody)
{
	const struct policy restricted = {.own_uid = OWN, .restrict_leases = true};
	const struct principal who = {.uid = 1000, .gid = 0};
	const struct principal root = {.uid = 0, .gid = 0};

	ck_assert(!policy_may_lease(&restricted, &who));
	ck_assert(policy_may_lease(&restricted, &root));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("policy");

	unit_add_table(tcase, decides_who_may_what, people);
	tcase_add_test(tcase, missing_groups_admit_nobody);
	return unit_run("policy", tcase);
}
