/* SPDX-License-Identifier: MIT */
#include "lost_answer.h"

#include <stdbool.h>

#include "layout.h"
#include "util.h"

static bool same_text(const json_t *lease, const json_t *request, const char *key)
{
	return streq(layout_text(lease, key, ""), layout_text(request, key, ""));
}

static bool same_int(const json_t *lease, const json_t *request, const char *key, int64_t otherwise)
{
	return layout_int(lease, key, otherwise) == layout_int(request, key, otherwise);
}

/* Do both live with one process; or with none, under a name of their own? */
static bool same_holder(const json_t *lease, const json_t *request)
{
	bool detached = streq(layout_text(request, "bind", ""), "none");

	if (!same_text(lease, request, "bind") || !same_text(lease, request, "name"))
		return false;
	return detached ? *layout_text(request, "name", "") != '\0'
			: layout_int(request, "pid", 0) > 0 && same_int(lease, request, "pid", 0);
}

static bool same_shares(const json_t *lease, const json_t *request)
{
	size_t n_devices = json_array_size(json_object_get(lease, "devices"));

	return (int64_t)n_devices == layout_int(request, "count", 1) &&
	       same_int(lease, request, "clients", 1) &&
	       same_int(lease, request, "threads_percent", 0) &&
	       same_int(lease, request, "memory_bytes", 0) &&
	       json_is_true(json_object_get(lease, "exclusive")) ==
		       json_is_true(json_object_get(request, "exclusive"));
}

static bool is_it(const struct lost_answer *lost, const json_t *lease)
{
	const char *id = layout_text(lease, "id", "");

	if (!streq(layout_text(lease, "state", ""), "granted"))
		return false;
	if (*lost->id)
		return streq(id, lost->id);
	return *id && !streq(id, lost->around_id) &&
	       layout_int(lease, "uid", -1) == layout_int(lost->request, "uid", lost->uid) &&
	       layout_int(lease, "requested_usec", -1) >= lost->asked_usec &&
	       same_holder(lease, lost->request) && same_shares(lease, lost->request);
}

const char *lost_answer_find(const struct lost_answer *lost, const json_t *leases)
{
	const json_t *lease;
	size_t i;

	json_array_foreach(leases, i, lease)
		if (is_it(lost, lease))
			return layout_text(lease, "id", NULL);
	return NULL;
}
