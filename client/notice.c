/* SPDX-License-Identifier: MIT */
#include "notice.h"

#include "text.h"
#include "util.h"

static const char *string_or(const json_t *object, const char *key, const char *otherwise)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value && *value ? value : otherwise;
}

/* " (also hit: L2, L3)", or nothing. */
static void list_others(const json_t *event, const char *id, char *buffer, size_t size)
{
	json_t *leases = json_object_get(event, "hit_leases");
	const json_t *lease;
	size_t i, length = 0;

	buffer[0] = '\0';
	json_array_foreach(leases, i, lease) {
		const char *other = json_string_value(lease);

		if (!other || streq(other, id))
			continue;
		if (text_format(buffer + length, size - length, "%s%s",
				length ? ", " : " (also hit: ", other) < 0)
			break;
		length = strlen(buffer);
	}
	length = strlen(buffer);
	if (length)
		(void)text_copy(buffer + MIN(length, size - 2), 2, ")");
}

enum notice notice_read(const json_t *parameters, char *text, size_t size)
{
	const json_t *event = json_object_get(parameters, "event");
	const char *what = string_or(parameters, "what", "");
	const char *id = string_or(json_object_get(parameters, "lease"), "id", "?");
	const char *why = string_or(event, "message", string_or(event, "cause", "no reason given"));
	char others[256];

	if (streq(what, "interrupted")) {
		const char *cause = string_or(event, "cause", "");

		list_others(event, id, others, sizeof(others));
		(void)text_format(text, size,
				  "lease %s was interrupted: %s%s; what used the GPU has lost it, "
				  "what starts %s can use it again",
				  id, why, others,
				  streq(cause, "fault") ? "when all that were hit have ended"
							: "from now on");
		return NOTICE_INTERRUPTED;
	}
	if (streq(what, "revoked")) {
		(void)text_format(text, size,
				  "lease %s was revoked: %s; nothing that starts from now on can "
				  "use the GPU through it",
				  id, why);
		return NOTICE_REVOKED;
	}
	return NOTICE_NONE;
}
