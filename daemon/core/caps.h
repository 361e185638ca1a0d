/* SPDX-License-Identifier: MIT */
/* Caps that more than one module of the daemon relies on. */
#pragma once

/* Longest CUDA_MPS_PIPE_DIRECTORY: the sockets in it must fit in sun_path. Beyond it the control
 * daemon exits 1 without a word (535 takes 87 bytes and refuses 88; 580 takes 79 and refuses 89:
 * measured). */
#define PIPE_DIRECTORY_MAX 87

#define DEVICES_MAX 256
/* A gang has two devices or more. */
#define GANGS_MAX (DEVICES_MAX / 2)
#define GANG_DEVICES_MAX 64
/* A place of its own for each device and each gang. */
#define PLACES_MAX (DEVICES_MAX + GANGS_MAX)
#define DEVICE_UUID_SIZE 64
#define LEASE_ID_SIZE 9
#define LEASE_NAME_SIZE 128
#define REASON_SIZE 256
