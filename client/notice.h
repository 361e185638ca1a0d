/* SPDX-License-Identifier: MIT */
/* What the supervisor says about a lease after it was granted, as kind and sentence. Pure. */
#pragma once

#include <jansson.h>
#include <stddef.h>

enum notice {
	NOTICE_NONE,        /* nothing that the job would have to know */
	NOTICE_INTERRUPTED, /* GPU contexts were lost; the lease goes on */
	NOTICE_REVOKED,     /* the lease is over */
};

/* Reads the parameters of an answer. text gets a sentence unless NOTICE_NONE; cut to size. */
enum notice notice_read(const json_t *parameters, char *text, size_t size);
