/* SPDX-License-Identifier: MIT */
/* The methods of the protocol: a call comes in, the manager's parts do it. */
#pragma once

#include "connection.h"

struct manager;

/* Answers the call, now or later. */
void methods_call(struct manager *manager, struct connection *connection,
		  const struct varlink_call *call);
