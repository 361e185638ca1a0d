/* SPDX-License-Identifier: MIT */
#include "around.h"

#include <inttypes.h>

#include "cli.h"
#include "exchange.h"
#include "layout.h"
#include "proto.h"
#include "shell.h"

/* What is only for a note may not keep the job waiting. */
#define PATIENCE_USEC USEC_PER_SEC

const char *around_id(void)
{
	const char *id = getenv("MPS_SUPERVISOR_LEASE");

	return id ? id : "";
}

static void note(const json_t *lease)
{
	const char *id = layout_text(lease, "id", "");
	int64_t pid = layout_int(lease, "pid", 0);

	if (streq(layout_text(lease, "state", ""), "granted") && pid > 0 && shell_is_above(pid))
		cli_print("this runs under lease %s already, which process %" PRId64
			  " holds; if that is in the way, `mpsctl release %s` gives it back",
			  id, pid, id);
}

void around_note(const char *socket)
{
	_cleanup_json_ json_t *answer = NULL;
	const json_t *lease;
	size_t i;

	if (!*around_id() ||
	    exchange_quietly(socket, "lease", PROTO_LIST_LEASES, PATIENCE_USEC, &answer) != 0)
		return;
	json_array_foreach(json_object_get(answer, "leases"), i, lease)
		if (streq(layout_text(lease, "id", ""), around_id()))
			note(lease);
}
