/* SPDX-License-Identifier: MIT */
/*
 * As much of the CUDA driver API as the checks on a GPU need, without headers or a toolkit: libcuda
 * is loaded at run time and the kernels are PTX which the driver compiles.
 *
 * A failure is printed where it happens, as `error CODE NAME (CALL) at MONOTONIC_USEC` on stdout.
 * The functions that return int return 0, the CUDA error code (positive), or -ENOENT where libcuda
 * or one of its functions is missing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_NAME_MAX 96
#define CUDA_UUID_TEXT_MAX 48

struct cuda_uuid {
	unsigned char bytes[16];
};

/* Handles are opaque pointers, CUresult and CUdevice are ints, a CUdeviceptr has 64 bits. */
struct cuda_api {
	int (*get_error_name)(int result, const char **ret_name);
	int (*init)(unsigned int flags);
	int (*device_get)(int *ret_device, int ordinal);
	int (*device_get_name)(char *name, int size, int device);
	int (*device_get_uuid)(struct cuda_uuid *ret_uuid, int device);
	int (*device_get_attribute)(int *ret_value, int attribute, int device);
	int (*primary_context_retain)(void **ret_context, int device);
	int (*context_set_current)(void *context);
	int (*context_synchronize)(void);
	int (*module_load_data)(void **ret_module, const void *image, unsigned int n_options,
				int *options, void **values);
	int (*module_get_function)(void **ret_function, void *module, const char *name);
	int (*launch_kernel)(void *function, unsigned int grid_x, unsigned int grid_y,
			     unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			     unsigned int block_z, unsigned int shared_bytes, void *stream,
			     void **parameters, void **extra);
	int (*memory_allocate)(uint64_t *ret_address, size_t n_bytes);
	int (*memory_get_info)(size_t *ret_free_bytes, size_t *ret_total_bytes);
};

/* One process's use of its device 0. The process's end releases all of it. */
struct cuda {
	struct cuda_api api;
	int device;
	void *context;
	void *spin;
	void *fault;
	void *trap;
	char name[CUDA_NAME_MAX];
	char uuid[CUDA_UUID_TEXT_MAX];
	int n_multiprocessors;
	bool under_mps;
};

uint64_t monotonic_usec(void);

/* Finds libcuda.so.1 and its functions. Says on stderr what is missing. */
int cuda_load(struct cuda *cuda);

/* Initialises CUDA and makes device 0's primary context current, after cuda_load(). */
int cuda_open(struct cuda *cuda);

/* Reads the device's name, UUID, multiprocessors and whether MPS serves it, after cuda_open(). */
int cuda_describe(struct cuda *cuda);

/* Compiles the kernels, after cuda_open(). */
int cuda_compile(struct cuda *cuda);

/* Each launches one block of one thread and waits for its end, after cuda_compile(). */
int cuda_spin(const struct cuda *cuda, uint64_t n_cycles);
int cuda_fault(const struct cuda *cuda);
int cuda_trap(const struct cuda *cuda);

/* Prints an error of `call`; returns `result` as it is. */
int cuda_check(const struct cuda *cuda, int result, const char *call);
