/* SPDX-License-Identifier: MIT */
#include "computemode_plan.h"

#include "util.h"

const char *computemode_option(const char *shown)
{
	static const struct {
		const char *shown, *option;
	} modes[] = {
		{"Default", "DEFAULT"},
		{COMPUTEMODE_EXCLUSIVE, "EXCLUSIVE_PROCESS"},
		{COMPUTEMODE_PROHIBITED, "PROHIBITED"},
	};

	for (size_t i = 0; i < ELEMENTSOF(modes); i++)
		if (streq(modes[i].shown, shown))
			return modes[i].option;
	return NULL;
}

struct computemode_plan computemode_plan_claim(const char *present, const char *previous)
{
	struct computemode_plan plan = {};

	if (!present || streq(present, COMPUTEMODE_EXCLUSIVE) || !computemode_option(present))
		return plan;
	plan.record = !previous || !streq(present, previous);
	plan.set = COMPUTEMODE_EXCLUSIVE;
	return plan;
}

struct computemode_plan computemode_plan_give_back(const char *present, const char *previous)
{
	struct computemode_plan plan = {};

	if (!previous)
		return plan;
	plan.forget = true;
	if (!present || (streq(present, COMPUTEMODE_EXCLUSIVE) && !streq(present, previous)))
		plan.set = previous;
	return plan;
}
