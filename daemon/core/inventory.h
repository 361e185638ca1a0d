/* SPDX-License-Identifier: MIT */
/*
 * The devices of the machine as nvidia-smi lists them, and selectors that name them. Works on
 * text that somebody else fetched.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "caps.h"

#define INVENTORY_ERROR_SIZE 256

/* Fields in the order of this query; measured with driver 580 (index, uuid, ...). A field that a
 * GPU lacks reads "[N/A]". */
#define INVENTORY_QUERY                                                                          \
	"--query-gpu=index,uuid,pci.bus_id,name,compute_mode,mig.mode.current,persistence_mode," \
	"memory.total"
#define INVENTORY_FORMAT "--format=csv,noheader,nounits"

struct device {
	char uuid[DEVICE_UUID_SIZE]; /* "GPU-..." or "MIG-..." */
	char pci_bus_id[32];
	char name[96];
	char compute_mode[32]; /* as nvidia-smi says it: "Default", "Exclusive_Process", ... */
	int index;             /* as nvidia-smi counts GPUs; a MIG instance has its GPU's */
	int64_t memory_bytes;  /* 0: not known */
	bool mig;              /* is a MIG instance */
	bool mig_enabled;      /* is a GPU in MIG mode: not a device CUDA can be given itself */
};

struct inventory {
	struct device devices[DEVICES_MAX];
	size_t n_devices;
};

/* Bits over the devices of one inventory, by position. */
struct device_set {
	uint64_t words[DEVICES_MAX / 64];
};

static inline void device_set_add(struct device_set *set, size_t i)
{
	set->words[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline bool device_set_has(const struct device_set *set, size_t i)
{
	return set->words[i / 64] >> (i % 64) & 1;
}

size_t device_set_count(const struct device_set *set);

/* Reads the answer to INVENTORY_QUERY. -EINVAL with a sentence in error for a line that is no
 * device, -E2BIG past DEVICES_MAX. */
int inventory_parse(struct inventory *inventory, const char *csv,
		    char error[static INVENTORY_ERROR_SIZE]);

/* Reads the answer to -L and puts each GPU's MIG instances in its place; GPUs in MIG mode leave
 * the inventory. Errors as inventory_parse. */
int inventory_add_mig(struct inventory *inventory, const char *listing,
		      char error[static INVENTORY_ERROR_SIZE]);

/* Is any GPU in MIG mode, so that inventory_add_mig has something to do? */
bool inventory_has_mig(const struct inventory *inventory);

enum {
	INVENTORY_NO_MATCH = 1,
	INVENTORY_AMBIGUOUS
};
/* Adds the devices that selector names to set: "all", a UUID or unique prefix of one, a PCI
 * address, an index. An index or address of a GPU in MIG mode names all its instances.
 * INVENTORY_NO_MATCH; INVENTORY_AMBIGUOUS for a prefix of several UUIDs. */
int inventory_select(const struct inventory *inventory, const char *selector,
		     struct device_set *set);
