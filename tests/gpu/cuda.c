/* SPDX-License-Identifier: MIT */
/*
 * Loads libcuda and wraps the few calls that the client makes. Nothing is unloaded or released: the
 * processes that use this are short, and some of them end by a fault.
 */
#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Numbers of cuda.h; they are part of the driver's binary interface. */
enum {
	CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CUDA_ATTRIBUTE_MPS_ENABLED = 133,
	CUDA_JIT_ERROR_LOG_BUFFER = 5,
	CUDA_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

/* Below the first page, which the driver never maps. */
#define ILLEGAL_ADDRESS UINT64_C(0x10)

#define JIT_LOG_BYTES 4096

/* The oldest target that has all of this, so that every GPU that MPS knows can run it. */
static const char kernels_ptx[] = ".version 6.0\n"
				  ".target sm_50\n"
				  ".address_size 64\n"
				  "\n"
				  ".visible .entry gpu_spin(.param .u64 gpu_spin_cycles)\n"
				  "{\n"
				  "	.reg .pred %p<2>;\n"
				  "	.reg .b64 %rd<5>;\n"
				  "\n"
				  "	ld.param.u64 %rd1, [gpu_spin_cycles];\n"
				  "	mov.u64 %rd2, %clock64;\n"
				  "SPIN_AGAIN:\n"
				  "	mov.u64 %rd3, %clock64;\n"
				  "	sub.s64 %rd4, %rd3, %rd2;\n"
				  "	setp.lt.u64 %p1, %rd4, %rd1;\n"
				  "	@%p1 bra SPIN_AGAIN;\n"
				  "	ret;\n"
				  "}\n"
				  "\n"
				  ".visible .entry gpu_fault(.param .u64 gpu_fault_address)\n"
				  "{\n"
				  "	.reg .b32 %r<2>;\n"
				  "	.reg .b64 %rd<2>;\n"
				  "\n"
				  "	ld.param.u64 %rd1, [gpu_fault_address];\n"
				  "	mov.u32 %r1, 1;\n"
				  "	st.global.u32 [%rd1], %r1;\n"
				  "	ret;\n"
				  "}\n"
				  "\n"
				  ".visible .entry gpu_trap()\n"
				  "{\n"
				  "	trap;\n"
				  "	ret;\n"
				  "}\n";

/* Where the driver has two versions of a function, the plain name is the one of older drivers. */
static const struct symbol {
	const char *name;
	const char *older_name;
	size_t offset;
} symbols[] = {
	{"cuGetErrorName", NULL, offsetof(struct cuda_api, get_error_name)},
	{"cuInit", NULL, offsetof(struct cuda_api, init)},
	{"cuDeviceGet", NULL, offsetof(struct cuda_api, device_get)},
	{"cuDeviceGetName", NULL, offsetof(struct cuda_api, device_get_name)},
	{"cuDeviceGetUuid_v2", "cuDeviceGetUuid", offsetof(struct cuda_api, device_get_uuid)},
	{"cuDeviceGetAttribute", NULL, offsetof(struct cuda_api, device_get_attribute)},
	{"cuDevicePrimaryCtxRetain", NULL, offsetof(struct cuda_api, primary_context_retain)},
	{"cuCtxSetCurrent", NULL, offsetof(struct cuda_api, context_set_current)},
	{"cuCtxSynchronize", NULL, offsetof(struct cuda_api, context_synchronize)},
	{"cuModuleLoadDataEx", NULL, offsetof(struct cuda_api, module_load_data)},
	{"cuModuleGetFunction", NULL, offsetof(struct cuda_api, module_get_function)},
	{"cuLaunchKernel", NULL, offsetof(struct cuda_api, launch_kernel)},
	{"cuMemAlloc_v2", NULL, offsetof(struct cuda_api, memory_allocate)},
	{"cuMemGetInfo_v2", NULL, offsetof(struct cuda_api, memory_get_info)},
};

uint64_t monotonic_usec(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int cuda_check(const struct cuda *cuda, int result, const char *call)
{
	const char *name = NULL;

	if (result == 0)
		return 0;
	if (cuda->api.get_error_name(result, &name) != 0 || !name)
		name = "UNKNOWN";
	printf("error %d %s (%s) at %" PRIu64 "\n", result, name, call, monotonic_usec());
	return result;
}

static int load_symbol(struct cuda *cuda, void *library, const struct symbol *symbol)
{
	void *address = dlsym(library, symbol->name);

	if (!address && symbol->older_name)
		address = dlsym(library, symbol->older_name);
	if (!address) {
		fprintf(stderr, "libcuda.so.1 has no %s\n", symbol->name);
		return -ENOENT;
	}
	memcpy((char *)&cuda->api + symbol->offset, &address, sizeof(address));
	return 0;
}

int cuda_load(struct cuda *cuda)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int r;

	if (!library) {
		fprintf(stderr, "cannot load libcuda.so.1: %s\n", dlerror());
		return -ENOENT;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		r = load_symbol(cuda, library, &symbols[i]);
		if (r != 0)
			return r;
	}
	return 0;
}

int cuda_open(struct cuda *cuda)
{
	int r;

	r = cuda_check(cuda, cuda->api.init(0), "cuInit");
	if (r != 0)
		return r;
	r = cuda_check(cuda, cuda->api.device_get(&cuda->device, 0), "cuDeviceGet");
	if (r != 0)
		return r;
	r = cuda->api.primary_context_retain(&cuda->context, cuda->device);
	r = cuda_check(cuda, r, "cuDevicePrimaryCtxRetain");
	if (r != 0)
		return r;
	return cuda_check(cuda, cuda->api.context_set_current(cuda->context), "cuCtxSetCurrent");
}

static void format_uuid(const struct cuda_uuid *uuid, char text[static CUDA_UUID_TEXT_MAX])
{
	const unsigned char *b = uuid->bytes;

	snprintf(text, CUDA_UUID_TEXT_MAX,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		 b[14], b[15]);
}

static int get_attribute(const struct cuda *cuda, int attribute, int *ret_value)
{
	int r = cuda->api.device_get_attribute(ret_value, attribute, cuda->device);

	return cuda_check(cuda, r, "cuDeviceGetAttribute");
}

int cuda_describe(struct cuda *cuda)
{
	struct cuda_uuid uuid = {0};
	int under_mps = 0;
	int r;

	r = cuda->api.device_get_name(cuda->name, sizeof(cuda->name), cuda->device);
	r = cuda_check(cuda, r, "cuDeviceGetName");
	if (r != 0)
		return r;
	r = cuda_check(cuda, cuda->api.device_get_uuid(&uuid, cuda->device), "cuDeviceGetUuid");
	if (r != 0)
		return r;
	format_uuid(&uuid, cuda->uuid);
	r = get_attribute(cuda, CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT, &cuda->n_multiprocessors);
	if (r != 0)
		return r;
	r = get_attribute(cuda, CUDA_ATTRIBUTE_MPS_ENABLED, &under_mps);
	if (r != 0)
		return r;
	cuda->under_mps = under_mps != 0;
	return 0;
}

static int load_module(const struct cuda *cuda, void **ret_module)
{
	char log[JIT_LOG_BYTES] = "";
	int options[] = {CUDA_JIT_ERROR_LOG_BUFFER, CUDA_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	/* An option that is a number travels in the pointer itself. */
	void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
	int r;

	r = cuda->api.module_load_data(ret_module, kernels_ptx, 2, options, values);
	if (r != 0 && log[0] != '\0')
		fprintf(stderr, "%.*s\n", JIT_LOG_BYTES, log);
	return cuda_check(cuda, r, "cuModuleLoadDataEx");
}

static int get_function(const struct cuda *cuda, void *module, const char *name,
			void **ret_function)
{
	int r = cuda->api.module_get_function(ret_function, module, name);

	return cuda_check(cuda, r, "cuModuleGetFunction");
}

int cuda_compile(struct cuda *cuda)
{
	void *module = NULL;
	int r;

	r = load_module(cuda, &module);
	if (r != 0)
		return r;
	r = get_function(cuda, module, "gpu_spin", &cuda->spin);
	if (r != 0)
		return r;
	r = get_function(cuda, module, "gpu_fault", &cuda->fault);
	if (r != 0)
		return r;
	return get_function(cuda, module, "gpu_trap", &cuda->trap);
}

static int run_kernel(const struct cuda *cuda, void *function, void **parameters)
{
	int r = cuda->api.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);

	r = cuda_check(cuda, r, "cuLaunchKernel");
	if (r != 0)
		return r;
	return cuda_check(cuda, cuda->api.context_synchronize(), "cuCtxSynchronize");
}

int cuda_spin(const struct cuda *cuda, uint64_t n_cycles)
{
	void *parameters[] = {&n_cycles};

	return run_kernel(cuda, cuda->spin, parameters);
}

int cuda_fault(const struct cuda *cuda)
{
	uint64_t address = ILLEGAL_ADDRESS;
	void *parameters[] = {&address};

	return run_kernel(cuda, cuda->fault, parameters);
}

int cuda_trap(const struct cuda *cuda)
{
	return run_kernel(cuda, cuda->trap, NULL);
}
