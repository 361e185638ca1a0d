/* SPDX-License-Identifier: MIT */
/* Caps that more than one module of the daemon relies on. */
#pragma once

/* Longest CUDA_MPS_PIPE_DIRECTORY: "/control_privileged" must fit in sun_path with it. Longer and
 * the control daemon exits 1 without a word (measured, 535 and 580). */
#define PIPE_DIRECTORY_MAX 88

#define DEVICES_MAX 256
#define DEVICE_UUID_SIZE 64
#define LEASE_ID_SIZE 9
#define LEASE_NAME_SIZE 128
#define REASON_SIZE 256
