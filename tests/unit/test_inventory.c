/* SPDX-License-Identifier: MIT */
#include "inventory.h"
#include "text.h"
#include "unit.h"

#define MIB (INT64_C(1) << 20)

/* Two GPUs, as driver 580 prints them. */
static const char two_gpus[] =
	"0, GPU-b7d16b43-343f-212a-e551-c0680b0e9dae, 00000000:00:06.0, NVIDIA H200, Default, "
	"Disabled, Enabled, 143771\n"
	"1, GPU-b5ac4600-c672-7b7d-ffee-32e53491ee58, 00000000:00:07.0, NVIDIA H200, Default, "
	"Disabled, Enabled, 143771\n";

static char error[INVENTORY_ERROR_SIZE];
static struct inventory inventory;

START_TEST(reads_what_nvidia_smi_prints)
{
	ck_assert_int_eq(inventory_parse(&inventory, two_gpus, error), 0);
	ck_assert_uint_eq(inventory.n_devices, 2);
	for (int i = 0; i < 2; i++) {
		const struct device *device = &inventory.devices[i];

		ck_assert_int_eq(device->index, i);
		ck_assert_str_eq(device->name, "NVIDIA H200");
		ck_assert_str_eq(device->compute_mode, "Default");
		ck_assert_int_eq(device->memory_bytes, 143771 * MIB);
		ck_assert(!device->mig && !device->mig_enabled);
	}
	ck_assert_str_eq(inventory.devices[0].uuid, "GPU-b7d16b43-343f-212a-e551-c0680b0e9dae");
	ck_assert_str_eq(inventory.devices[1].pci_bus_id, "00000000:00:07.0");
	ck_assert(!inventory_has_mig(&inventory));
}
END_TEST

static const struct {
	const char *line;
	int64_t memory_bytes;
	bool mig_enabled;
	const char *compute_mode;
} devices[] = {
	{"3, GPU-1, 00000000:00:06.0, NVIDIA GeForce, Default, [N/A], Disabled, 8192", 8192 * MIB,
	 false, "Default"},
	{"3, GPU-1, 00000000:00:06.0, X, Default, [N/A], [N/A], [N/A]", 0, false, "Default"},
	{"3, GPU-1, 00000000:00:06.0, X, [N/A], [N/A], [N/A], [N/A]", 0, false, "[N/A]"},
	{"3, GPU-1, 00000000:00:06.0, X, Exclusive_Process, Enabled, Enabled, 0", 0, true,
	 "Exclusive_Process"},
	{"3,GPU-1,00000000:00:06.0,X,Default,Disabled,Enabled,1", MIB, false, "Default"},
	{"  3 , GPU-1 , 00000000:00:06.0 , X , Default , Disabled , Enabled , 1  ", MIB, false,
	 "Default"},
	{"3, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1\r\n", MIB, false, "Default"},
	{"\n\n3, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1\n\r\n\n", MIB, false,
	 "Default"},
	{"3, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 99999999999999999", 0, false,
	 "Default"},
};

START_TEST(takes_missing_fields)
{
	ck_assert_msg(inventory_parse(&inventory, devices[_i].line, error) == 0, "%s", error);
	ck_assert_uint_eq(inventory.n_devices, 1);
	ck_assert_int_eq(inventory.devices[0].index, 3);
	ck_assert_str_eq(inventory.devices[0].uuid, "GPU-1");
	ck_assert_int_eq(inventory.devices[0].memory_bytes, devices[_i].memory_bytes);
	ck_assert_int_eq(inventory.devices[0].mig_enabled, devices[_i].mig_enabled);
	ck_assert_str_eq(inventory.devices[0].compute_mode, devices[_i].compute_mode);
}
END_TEST

#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static const char *const not_devices[] = {
	"hello",
	",",
	",,,,,,,",
	"0, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled",
	"0, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1, 2",
	"-1, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1",
	"x, GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1",
	"[N/A], GPU-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1",
	"0, MIG-1, 00000000:00:06.0, X, Default, Disabled, Enabled, 1",
	"0, [N/A], 00000000:00:06.0, X, Default, Disabled, Enabled, 1",
	"0, GPU-" LONG ", 00000000:00:06.0, X, Default, Disabled, Enabled, 1",
	"0, GPU-1, " LONG ", X, Default, Disabled, Enabled, 1",
	"0, GPU-1, 00000000:00:06.0, " LONG LONG ", Default, Disabled, Enabled, 1",
	"0, GPU-1, 00000000:00:06.0, X, " LONG ", Disabled, Enabled, 1",
	"Unable to determine the device handle for GPU0000:00:06.0: Unknown Error",
};

START_TEST(refuses_other_lines)
{
	char text[2048];

	(void)text_format(text, sizeof(text), "%s%s\n", two_gpus, not_devices[_i]);
	error[0] = '\0';
	ck_assert_int_eq(inventory_parse(&inventory, text, error), -EINVAL);
	unit_assert_contains(error, "not a device: \"");
}
END_TEST

static size_t print_gpus(char *text, size_t size, int n)
{
	size_t length = 0;

	for (int i = 0; i < n; i++)
		length += (size_t)snprintf(text + length, size - length,
					   "%d, GPU-%d, 00000000:%02x:00.0, X, Default, Disabled, "
					   "Enabled, 1\n",
					   i, i, (unsigned int)i);
	return length;
}

START_TEST(limits_the_number)
{
	static char text[(DEVICES_MAX + 1) * 128];

	print_gpus(text, sizeof(text), DEVICES_MAX);
	ck_assert_int_eq(inventory_parse(&inventory, text, error), 0);
	ck_assert_uint_eq(inventory.n_devices, DEVICES_MAX);
	print_gpus(text, sizeof(text), DEVICES_MAX + 1);
	ck_assert_int_eq(inventory_parse(&inventory, text, error), -E2BIG);
	unit_assert_contains(error, "256");
}
END_TEST

START_TEST(nothing_is_no_device)
{
	ck_assert_int_eq(inventory_parse(&inventory, two_gpus, error), 0);
	ck_assert_int_eq(inventory_parse(&inventory, "", error), 0);
	ck_assert_uint_eq(inventory.n_devices, 0);
}
END_TEST

static const char mixed_gpus[] =
	"0, GPU-aaaa1111, 00000000:00:06.0, NVIDIA A100, Default, Enabled, Enabled, 40960\n"
	"1, GPU-aaaa2222, 00000000:00:07.0, NVIDIA A100, Default, Disabled, Enabled, 40960\n"
	"2, GPU-bbbb3333, 00000001:00:06.0, NVIDIA A100, Default, Enabled, Enabled, 40960\n";

static const char mixed_listing[] = "GPU 0: NVIDIA A100 (UUID: GPU-aaaa1111)\n"
				    "  MIG 1g.10gb     Device  0: (UUID: MIG-c0000001)\n"
				    "  MIG 2g.20gb     Device  1: (UUID: MIG-c0000002)\n"
				    "GPU 1: NVIDIA A100 (UUID: GPU-aaaa2222)\n"
				    "GPU 2: NVIDIA A100 (UUID: GPU-bbbb3333)\n"
				    "GPU 9: unknown (UUID: GPU-zzzz)\n"
				    "  MIG 1g.10gb     Device  0: (UUID: MIG-stranger)\n"
				    "  MIG broken      Device  0: (UUID: )\n"
				    "  MIG broken      Device  0: (UUID: MIG-no-end\n"
				    "what is this\n";

static void load_mixed(void)
{
	ck_assert_int_eq(inventory_parse(&inventory, mixed_gpus, error), 0);
	ck_assert(inventory_has_mig(&inventory));
	ck_assert_int_eq(inventory_add_mig(&inventory, mixed_listing, error), 0);
}

START_TEST(puts_mig_instances_in_their_place)
{
	static const char *const uuids[] = {"MIG-c0000001", "MIG-c0000002", "GPU-aaaa2222"};

	load_mixed();
	ck_assert_uint_eq(inventory.n_devices, ELEMENTSOF(uuids));
	for (size_t i = 0; i < ELEMENTSOF(uuids); i++) {
		const struct device *device = &inventory.devices[i];

		ck_assert_str_eq(device->uuid, uuids[i]);
		ck_assert_int_eq(device->mig, i < 2);
		ck_assert(!device->mig_enabled);
		ck_assert_int_eq(device->index, i < 2 ? 0 : 1);
		ck_assert_int_eq(device->memory_bytes, i < 2 ? 0 : 40960 * MIB);
	}
	ck_assert_str_eq(inventory.devices[0].name, "NVIDIA A100 MIG 1g.10gb");
	ck_assert_str_eq(inventory.devices[1].pci_bus_id, "00000000:00:06.0");
	ck_assert(!inventory_has_mig(&inventory));
}
END_TEST

START_TEST(limits_mig_instances)
{
	static char text[(DEVICES_MAX + 1) * 64];
	size_t length;

	ck_assert_int_eq(inventory_parse(&inventory, mixed_gpus, error), 0);
	length = (size_t)snprintf(text, sizeof(text), "GPU 0: X (UUID: GPU-aaaa1111)\n");
	for (int i = 0; i <= DEVICES_MAX; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length,
					   "  MIG 1g  Device 0: (UUID: MIG-%d)\n", i);
	ck_assert_int_eq(inventory_add_mig(&inventory, text, error), -E2BIG);
	unit_assert_contains(error, "256");
}
END_TEST

/* In the inventory of load_mixed: bit i stands for device i. */
static const struct {
	const char *selector;
	int r;
	uint64_t bits;
} selectors[] = {
	{"all", 0, 7},
	{"0", 0, 3},
	{"1", 0, 4},
	{"2", INVENTORY_NO_MATCH, 0},
	{"3", INVENTORY_NO_MATCH, 0},
	{"99999999999999999999", INVENTORY_NO_MATCH, 0},
	{"-1", INVENTORY_NO_MATCH, 0},
	{"MIG-c0000001", 0, 1},
	{"MIG-c0000002", 0, 2},
	{"MIG-c000000", INVENTORY_AMBIGUOUS, 0},
	{"MIG-", INVENTORY_AMBIGUOUS, 0},
	{"GPU-aaaa2222", 0, 4},
	{"GPU-aa", 0, 4},
	{"GPU-aaaa1111", INVENTORY_NO_MATCH, 0},
	{"GPU-aaaa22223", INVENTORY_NO_MATCH, 0},
	{"gpu-AAAA2222", 0, 4},
	{"00000000:00:06.0", 0, 3},
	{"0000:00:06.0", 0, 3},
	{"00:06.0", 0, 3},
	{"0000:00:07.0", 0, 4},
	{"0001:00:06.0", INVENTORY_NO_MATCH, 0},
	{"00:06.1", INVENTORY_NO_MATCH, 0},
	{"00:06", INVENTORY_NO_MATCH, 0},
	{"00:06.0x", INVENTORY_NO_MATCH, 0},
	{"", INVENTORY_NO_MATCH, 0},
	{" all", INVENTORY_NO_MATCH, 0},
	{"ALL", INVENTORY_NO_MATCH, 0},
	{"all,0", INVENTORY_NO_MATCH, 0},
	{"%s%n", INVENTORY_NO_MATCH, 0},
	{LONG LONG LONG, INVENTORY_NO_MATCH, 0},
};

START_TEST(selects)
{
	struct device_set set = {};

	load_mixed();
	ck_assert_int_eq(inventory_select(&inventory, selectors[_i].selector, &set),
			 selectors[_i].r);
	ck_assert_uint_eq(set.words[0], selectors[_i].bits);
	ck_assert_uint_eq(device_set_count(&set),
			  (uint64_t)__builtin_popcountll(selectors[_i].bits));
}
END_TEST

START_TEST(a_whole_uuid_beats_a_prefix)
{
	struct device_set set = {};

	ck_assert_int_eq(inventory_parse(&inventory,
					 "0, GPU-12, 00000000:00:06.0, X, D, D, E, 1\n"
					 "1, GPU-1, 0000ABCD:0A:07.0, X, D, D, E, 1\n",
					 error),
			 0);
	ck_assert_int_eq(inventory_select(&inventory, "GPU-1", &set), 0);
	ck_assert_uint_eq(set.words[0], 2);
	ck_assert_int_eq(inventory_select(&inventory, "abcd:0a:07.0", &set), 0);
	ck_assert_uint_eq(set.words[0], 2);
	/* Selectors add up. */
	ck_assert_int_eq(inventory_select(&inventory, "0", &set), 0);
	ck_assert_uint_eq(set.words[0], 3);
}
END_TEST

START_TEST(nothing_to_select)
{
	struct device_set set = {};

	inventory.n_devices = 0;
	ck_assert_int_eq(inventory_select(&inventory, "all", &set), INVENTORY_NO_MATCH);
	ck_assert_int_eq(inventory_select(&inventory, "0", &set), INVENTORY_NO_MATCH);
	ck_assert_int_eq(inventory_select(&inventory, "GPU-", &set), INVENTORY_NO_MATCH);
}
END_TEST

START_TEST(sets_hold_the_last_device)
{
	struct device_set set = {};

	for (size_t i = 0; i < DEVICES_MAX; i += 51) {
		ck_assert(!device_set_has(&set, i));
		device_set_add(&set, i);
		device_set_add(&set, i);
		ck_assert(device_set_has(&set, i));
	}
	ck_assert_uint_eq(device_set_count(&set), 6);
	ck_assert(!device_set_has(&set, 254));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("inventory");

	tcase_add_test(tcase, reads_what_nvidia_smi_prints);
	unit_add_table(tcase, takes_missing_fields, devices);
	unit_add_table(tcase, refuses_other_lines, not_devices);
	tcase_add_test(tcase, limits_the_number);
	tcase_add_test(tcase, nothing_is_no_device);
	tcase_add_test(tcase, puts_mig_instances_in_their_place);
	tcase_add_test(tcase, limits_mig_instances);
	unit_add_table(tcase, selects, selectors);
	tcase_add_test(tcase, a_whole_uuid_beats_a_prefix);
	tcase_add_test(tcase, nothing_to_select);
	tcase_add_test(tcase, sets_hold_the_last_device);
	return unit_run("inventory", tcase);
}
