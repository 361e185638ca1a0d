/* SPDX-License-Identifier: MIT */
#include "gpuscan.h"
#include "unit_loop.h"

#define GPU_0                                                                                 \
	"echo '0, GPU-b7d16b43-343f-212a-e551-c0680b0e9dae, 00000000:00:06.0, NVIDIA H200, '" \
	"'Default, Disabled, Enabled, 143771'\n"

static struct gpuscan scan;
static int n_done, last_r;
static size_t n_devices;
static char last_reason[GPUSCAN_REASON_SIZE], first_uuid[DEVICE_UUID_SIZE];

static void on_scan(int r, const struct inventory *inventory, const char *reason, void *userdata)
{
	ck_assert_ptr_eq(userdata, &n_done);
	n_done++;
	last_r = r;
	n_devices = inventory->n_devices;
	(void)text_copy(last_reason, sizeof(last_reason), reason ? reason : "");
	(void)text_copy(first_uuid, sizeof(first_uuid), inventory->devices[0].uuid);
	ck_assert_ptr_null(scan.running);
}

static void setup(void)
{
	unit_loop_setup();
	n_done = 0;
}

static void scan_with(const char *body, uint64_t timeout_usec)
{
	const char *program = unit_write_script("nvidia-smi", body);

	ck_assert_int_eq(
		gpuscan_start(&scan, &unit_processes, program, timeout_usec, on_scan, &n_done), 0);
	ck_assert_int_eq(n_done, 0);
	unit_run_until(&n_done, 1);
	unit_run_ready();
	ck_assert_int_eq(n_done, 1);
}

static const struct {
	const char *body;
	int r; /* -1: any failure */
	size_t n_devices;
	const char *reason;
} programs[] = {
	{GPU_0, 0, 1, ""},
	{GPU_0 "echo '1, GPU-2, 00000000:00:07.0, X, [N/A], [N/A], [N/A], [N/A]'", 0, 2, ""},
	{"echo 'No devices were found'; exit 6", 0, 0, ""},
	{"echo 'No devices were found'; exit 0", 0, 0, ""},
	{"exit 0", 0, 0, ""},
	{"echo 'NVIDIA-SMI has failed because it could not communicate'; echo more; exit 9", -1, 0,
	 "nvidia-smi exited with status 9: NVIDIA-SMI has failed because it could not communicate"},
	{GPU_0 "echo 'Unable to determine the device handle for GPU1'; exit 255", -1, 0,
	 "exited with status 255"},
	{"exit 1", -1, 0, "exited with status 1: it said nothing"},
	{"kill -SEGV $$", -1, 0, "was ended by signal 11"},
	{"echo hello", -1, 0, "not a device: \"hello\""},
	{GPU_0 "echo garbage", -1, 0, "not a device: \"garbage\""},
	{"exec yes GPU", -1, 0, "it printed too much"},
	{"head -c 5000 /dev/zero | tr '\\0' x; exit 3", -1, 0, "exited with status 3: xxx"},
};

START_TEST(scans)
{
	scan_with(programs[_i].body, UNIT_WAIT_USEC);
	if (programs[_i].r < 0) {
		ck_assert_int_lt(last_r, 0);
		unit_assert_contains(last_reason, programs[_i].reason);
		return;
	}
	ck_assert_msg(last_r == 0, "%s", last_reason);
	ck_assert_str_eq(last_reason, "");
	ck_assert_uint_eq(n_devices, programs[_i].n_devices);
}
END_TEST

START_TEST(asks_as_documented)
{
	char arguments[1024], body[PATH_MAX + 128];

	(void)text_format(body, sizeof(body), "echo \"$* $LC_ALL\" > %s\n" GPU_0,
			  unit_path("asked"));
	scan_with(body, UNIT_WAIT_USEC);
	ck_assert_int_eq(last_r, 0);
	ck_assert_str_eq(first_uuid, "GPU-b7d16b43-343f-212a-e551-c0680b0e9dae");
	(void)unit_read(unit_path("asked"), arguments, sizeof(arguments));
	ck_assert_str_eq(arguments, INVENTORY_QUERY " " INVENTORY_FORMAT " C\n");
}
END_TEST

START_TEST(does_not_wait_for_ever)
{
	scan_with("exec sleep 1000", 300 * USEC_PER_MSEC);
	ck_assert_int_lt(last_r, 0);
	unit_assert_contains(last_reason, "did not answer in 0.3 s");
}
END_TEST

#define MIG_GPU "0, GPU-1, 00000000:00:06.0, NVIDIA A100, Default, Enabled, Enabled, 40960"
#define WITH_MIG(listing) "if [ \"$1\" = -L ]; then\n" listing "\nelse echo '" MIG_GPU "'; fi"

static const struct {
	const char *listing;
	int r;
	size_t n_devices;
	const char *first, *reason;
} mig[] = {
	{WITH_MIG("echo 'GPU 0: NVIDIA A100 (UUID: GPU-1)'\n"
		  "echo '  MIG 1g.10gb     Device  0: (UUID: MIG-1)'\n"
		  "echo '  MIG 1g.10gb     Device  1: (UUID: MIG-2)'"),
	 0, 2, "MIG-1", ""},
	{WITH_MIG("echo 'GPU 0: NVIDIA A100 (UUID: GPU-1)'"), 0, 0, "", ""},
	{WITH_MIG("echo broken; exit 5"), -1, 0, "", "exited with status 5: broken"},
	{WITH_MIG("exec sleep 1000"), -1, 0, "", "did not answer"},
};

START_TEST(lists_mig_instances)
{
	scan_with(mig[_i].listing, mig[_i].r < 0 ? USEC_PER_SEC : UNIT_WAIT_USEC);
	ck_assert_int_eq(last_r < 0, mig[_i].r < 0);
	unit_assert_contains(last_reason, mig[_i].reason);
	if (mig[_i].r < 0)
		return;
	ck_assert_uint_eq(n_devices, mig[_i].n_devices);
	ck_assert_str_eq(first_uuid, mig[_i].first);
}
END_TEST

START_TEST(needs_a_program)
{
	ck_assert_int_eq(gpuscan_start(&scan, &unit_processes, "/nonexistent/nvidia-smi",
				       USEC_PER_SEC, on_scan, &n_done),
			 -ENOENT);
	gpuscan_cancel(&scan);
	unit_run_ready();
	ck_assert_int_eq(n_done, 0);
}
END_TEST

START_TEST(can_be_cancelled)
{
	const char *program = unit_write_script("nvidia-smi", "exec sleep 1000");

	ck_assert_int_eq(
		gpuscan_start(&scan, &unit_processes, program, UNIT_WAIT_USEC, on_scan, &n_done),
		0);
	gpuscan_cancel(&scan);
	gpuscan_cancel(&scan);
	unit_run_ready();
	ck_assert_int_eq(n_done, 0);
	scan_with(GPU_0, UNIT_WAIT_USEC);
	ck_assert_uint_eq(n_devices, 1);
}
END_TEST

int main(void)
{
	TCase *tcase;

	if (!unit_has_pidfds())
		return EXIT_SUCCESS;
	tcase = tcase_create("gpuscan");
	tcase_add_checked_fixture(tcase, setup, unit_loop_teardown);
	unit_add_table(tcase, scans, programs);
	tcase_add_test(tcase, asks_as_documented);
	tcase_add_test(tcase, does_not_wait_for_ever);
	unit_add_table(tcase, lists_mig_instances, mig);
	tcase_add_test(tcase, needs_a_program);
	tcase_add_test(tcase, can_be_cancelled);
	return unit_run("gpuscan", tcase);
}
