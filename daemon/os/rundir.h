/* SPDX-License-Identifier: MIT */
/*
 * The directories below the runtime directory:
 *
 *   instance/   0711  one below it for each instance, 0700: the pipe directory of its daemon. By
 *                     ACL it opens (x only) to the uids that have a lease there
 *   lease/      0711  one below it for each lease, 0700, the holder's: nothing but a hard link to
 *                     the daemon's `control` socket
 *   state/      0700  FIFOs of the daemons' output
 *
 * A server of a uid needs to traverse the pipe directory too, and keeps the group root, so mode
 * bits do not do it; an ACL entry for the uid does (measured, 580).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "caps.h"

struct rundir {
	char path[PIPE_DIRECTORY_MAX + 1]; /* the runtime directory */
	int lock_fd; /* owned; held while we run, so that no second supervisor uses it */
};

/* Makes what is missing and takes the lock. -EBUSY when another
 * process holds the lock. On failure ret_path says where. */
int rundir_open(struct rundir *rundir, const char *path, char *ret_path, size_t size);

/* Removes what rundir_open made, as far as it is empty, and gives up the lock. */
void rundir_close(struct rundir *rundir);

/* The short name of a device's directories: 8 hex digits out of its UUID, the same in every run. */
void rundir_short_name(const char *uuid, char ret_name[static 9]);

/* Makes the pipe directory and removes every file in it. Says whose it is: ret_daemon is the pid
 * that holds its lock (control_lock), 0 when none does; then nothing was removed. */
int rundir_prepare_instance(const char *directory, pid_t *ret_daemon);
/* Removes the directory and the files in it. */
void rundir_remove_instance(const char *directory);

/* Lets just these uids traverse the directory (its owner always may). */
int rundir_set_access(const char *directory, const uid_t *uids, size_t n_uids);

/* Makes a lease's directory for uid, with the link to pipe_directory/control. Leaves nothing when
 * it fails. */
int rundir_make_lease(const char *directory, const char *pipe_directory, uid_t uid);
/* After a restart: points the link at the new socket. */
int rundir_renew_lease(const char *directory, const char *pipe_directory);
/* Takes the way in away; the directory stays. */
void rundir_close_lease(const char *directory);
void rundir_remove_lease(const char *directory);
/* Removes all lease directories in this one but those that is_known knows by name. */
void rundir_clear_leases(const char *path, bool (*is_known)(const char *name, void *userdata),
			 void *userdata);
