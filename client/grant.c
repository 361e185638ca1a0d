/* SPDX-License-Identifier: MIT */
#include "grant.h"

#include "text.h"
#include "util.h"

const char *const grant_governed[] = {
	"CUDA_MPS_LOG_DIRECTORY",
	"CUDA_MPS_PROTOCOL_VERSION",
	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
	"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
	NULL,
};

static bool is_name(const char *name)
{
	if (*name >= '0' && *name <= '9')
		return false;
	for (const char *p = name; *p; p++)
		if (!(*p == '_' || (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') ||
		      (*p >= 'a' && *p <= 'z')))
			return false;
	return *name != '\0';
}

static bool is_line(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

static bool is_environment(json_t *environment)
{
	const char *name;
	json_t *value;

	if (json_object_size(environment) == 0)
		return false;
	json_object_foreach(environment, name, value)
		if (!is_name(name) || !json_is_string(value) || !is_line(json_string_value(value)))
			return false;
	return true;
}

int grant_init(struct grant *grant, json_t *lease, const char **ret_reason)
{
	const char *instance = json_string_value(json_object_get(lease, "instance"));

	*grant = (struct grant){
		.environment = json_object_get(lease, "environment"),
		.id = json_string_value(json_object_get(lease, "id")),
		.instance = instance ? instance : "?",
		.pipe_directory = json_string_value(json_object_get(lease, "pipe_directory")),
	};
	if (!grant->id)
		*ret_reason = "the lease has no \"id\"";
	else if (!grant->pipe_directory || !is_line(grant->pipe_directory))
		*ret_reason = "the lease has no \"pipe_directory\"";
	else if (!is_environment(grant->environment))
		*ret_reason = "the \"environment\" of the lease is not one";
	else
		grant->lease = json_incref(lease);
	return grant->lease ? 0 : -EBADMSG;
}

void grant_done(struct grant *grant)
{
	json_decref(TAKE_PTR(grant->lease));
}

int grant_apply(const struct grant *grant)
{
	const char *name;
	json_t *value;

	for (size_t i = 0; grant_governed[i]; i++)
		(void)unsetenv(grant_governed[i]);
	json_object_foreach(grant->environment, name, value)
		if (setenv(name, json_string_value(value), 1) < 0)
			return -errno;
	return 0;
}

static bool is_ours(const char *entry)
{
	return text_starts_with(entry, "CUDA_MPS_") ||
	       text_starts_with(entry, "MPS_SUPERVISOR_LEASE=");
}

void grant_clear_environment(void)
{
	size_t kept = 0;

	for (size_t i = 0; environ && environ[i]; i++)
		if (!is_ours(environ[i]))
			environ[kept++] = environ[i];
	if (environ)
		environ[kept] = NULL;
}
