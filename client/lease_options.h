/* SPDX-License-Identifier: MIT */
/* What `mpsctl lease` was asked for. Reads the command line, does nothing yet. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

enum on_loss {
	ON_LOSS_NOTIFY,
	ON_LOSS_TERMINATE,
	ON_LOSS_RERUN
};
enum fallback {
	FALLBACK_NONE,
	FALLBACK_PRIVATE,
	FALLBACK_TIME_SLICING
};
enum lease_format {
	LEASE_FORMAT_SHELL,
	LEASE_FORMAT_ENV,
	LEASE_FORMAT_JSON,
	LEASE_FORMAT_PATH
};

#define RERUNS_MAX 1000000
#define RERUNS_DEFAULT 3

struct lease_options {
	json_t *request; /* owned; parameters of AcquireLease that options gave */
	char **command;  /* borrowed from argv; NULL: a lease for the calling shell */
	pid_t pid;       /* --pid; 0 without */
	bool detach, private, quiet, help;
	enum on_loss on_loss;
	enum fallback fallback;
	enum lease_format format;
	int reruns;
};

/* Reads the words after "lease" (argv[0] is "lease"). 0, or CLI_USAGE with a message. ret is to be
 * ended by lease_options_done in both cases. */
int lease_options_parse(int argc, char *argv[], struct lease_options *ret);
void lease_options_done(struct lease_options *options);

/* Does this command line run a command, as far as can be seen before it is understood? */
bool lease_options_has_command(int argc, char *const argv[]);

extern const char lease_options_help[];
