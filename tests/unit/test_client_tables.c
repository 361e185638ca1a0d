/* SPDX-License-Identifier: MIT */
/* What status and leases show: gangs, leases that drain or are not used, answers with gaps. */
#include "instance_text.h"
#include "lease_table.h"
#include "unit.h"

#define SEC_USEC INT64_C(1000000)
#define NOW_USEC (1000 * SEC_USEC)

/* User ids that nobody has. */
static const char leases_text[] =
	"[{\"id\": \"aaaaaaaa\", \"state\": \"granted\", \"instance\": \"GPU-1\","
	"  \"devices\": [\"GPU-1\"], \"uid\": 3999999001, \"pid\": 12, \"clients\": 4,"
	"  \"attached\": [5, 6], \"threads_percent\": 25, \"memory_bytes\": 1073741824,"
	"  \"exclusive\": true, \"name\": \"h\\u00e9\", \"requested_usec\": 1,"
	"  \"granted_usec\": 940000000, \"position\": null, \"reason\": null},"
	" {\"id\": \"bbbbbbbb\", \"state\": \"granted\", \"instance\": \"gang-0a1b2c3d\","
	"  \"devices\": [\"GPU-2\", \"GPU-3\"], \"uid\": 3999999001, \"pid\": 13, \"clients\": 1,"
	"  \"attached\": [], \"threads_percent\": null, \"memory_bytes\": null,"
	"  \"exclusive\": false, \"name\": null, \"requested_usec\": 1, \"granted_usec\": "
	"990000000, \"position\": null,"
	"  \"reason\": \"no client attached\"},"
	" {\"id\": \"cccccccc\", \"state\": \"draining\", \"instance\": \"GPU-1\","
	"  \"devices\": [\"GPU-1\"], \"uid\": 3999999002, \"pid\": null, \"clients\": 1,"
	"  \"attached\": [34], \"name\": \"j\", \"granted_usec\": 700000000, \"position\": null,"
	"  \"reason\": \"its holder has ended; still attached: pids 34\"},"
	" {\"id\": \"dddddddd\", \"state\": \"queued\", \"instance\": null, \"devices\": [],"
	"  \"uid\": 3999999002, \"pid\": 14, \"clients\": 1, \"attached\": [], \"name\": null,"
	"  \"requested_usec\": 995000000, \"granted_usec\": null, \"position\": 1,"
	"  \"reason\": \"GPU-1 is starting: the MPS server of another user is ending\"},"
	" {\"id\": null, \"state\": null, \"instance\": null, \"devices\": null, \"uid\": null,"
	"  \"attached\": null, \"clients\": null, \"requested_usec\": null}, 7]";

/* Each row on a line of its own, as it is printed. */
/* clang-format off */
static const struct {
	const char *instance;
	size_t n;
	const char *text;
} tables[] = {
	{NULL, 6,
	 "LEASE     INSTANCE                STATE              USER        PID  AGE    THREADS  MEMORY  ATTACHED     NAME  WHY\n"
	 "aaaaaaaa  GPU-1                   granted,exclusive  3999999001  12   1m 0s  25%      1G      2/4          h\xc3\xa9    -\n"
	 "bbbbbbbb  gang-0a1b2c3d (2 GPUs)  granted            3999999001  13   10s    -        -       0/1 per GPU  -     no client attached\n"
	 "cccccccc  GPU-1                   draining           3999999002  -    5m 0s  -        -       1/1          j     its holder has ended; still attached: pids 34\n"
	 "dddddddd  -                       queued             3999999002  14   5s     -        -       0/1          -     position 1: GPU-1 is starting: the MPS server of another user is ending\n"
	 "-         -                       -                  -           -    0s     -        -       0/1          -     -\n"
	 "-         -                       -                  -           -    0s     -        -       0/1          -     -\n"},
	{"gang-0a1b2c3d", 1,
	 "LEASE     STATE    USER        PID  AGE  THREADS  MEMORY  ATTACHED     NAME  WHY\n"
	 "bbbbbbbb  granted  3999999001  13   10s  -        -       0/1 per GPU  -     no client attached\n"},
	{"GPU-2", 0, ""},
};
/* clang-format on */

START_TEST(test_lease_table)
{
	_cleanup_(json_decrefp) json_t *leases = json_loads(leases_text, 0, NULL);
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(leases);
	ck_assert_uint_eq(lease_table_print(file, leases, tables[_i].instance, NOW_USEC, 0),
			  tables[_i].n);
	(void)fclose(file);
	ck_assert_str_eq(text, tables[_i].text);
}
END_TEST

#define DEVICE(number, uuid)                                                                  \
	"{\"index\": " number ", \"uuid\": \"" uuid "\", \"name\": \"NVIDIA H200\","          \
	" \"pci_bus_id\": \"0000:06:00.0\", \"memory_bytes\": 1073741824, \"compute_mode\": " \
	"\"Default\"}"
#define GANG                                                                                       \
	"{\"name\": \"gang-0a1b2c3d\", \"kind\": \"gang\", \"state\": \"ready\","                  \
	" \"reason\": null, \"devices\": [" DEVICE("0", "GPU-2") "," DEVICE(                       \
		"1",                                                                               \
		"GPU-3") "],"                                                                      \
			 " \"clients_reserved\": 1, \"max_clients\": 48, \"clients\": [21, 22],"   \
			 " \"threads_reserved_percent\": 25, \"memory_reserved_bytes\": "          \
			 "1073741824,"                                                             \
			 " \"leases\": 1, \"waiting\": 2, \"generation\": 3, \"restarts\": 1,"     \
			 " \"control_pid\": 7, \"servers\": [{\"pid\": 8, \"uid\": 0, \"state\": " \
			 "\"active\"}]}"
#define SINGLE                                                                                  \
	"{\"name\": \"GPU-2\", \"kind\": \"gpu\", \"state\": \"ready\", \"devices\": [" DEVICE( \
		"0", "GPU-2") "], \"reason\": \"held empty for gang-0a1b2c3d\", "               \
			      "\"clients_reserved\": 0,"                                        \
			      " \"max_clients\": 48, \"memory_reserved_bytes\": 0}"
#define LOSSES                                                                               \
	"{\"name\": \"GPU-2\", \"deaths\": [{\"what\": \"server\", \"status\": \"is gone\"," \
	" \"reason\": \"MPS server 7 is gone\\nStartup\"}, {\"what\": \"control\","          \
	" \"status\": \"exited with status 7\", \"reason\": null}]}"
#define NOTHING                                                                           \
	"{\"name\": null, \"devices\": [{\"index\": null, \"memory_bytes\": null}, 3],"   \
	" \"servers\": null, \"deaths\": [{\"hit_pids\": null, \"reason\": null}, null]," \
	" \"suspects\": null, \"clients\": null}"

static const struct {
	const char *instance, *part;
} blocks[] = {
	{GANG, "gang-0a1b2c3d (gang)\n"
	       "  device      0 NVIDIA H200, 0000:06:00.0, 1G, compute mode Default, GPU-2\n"
	       "  device      1 NVIDIA H200, 0000:06:00.0, 1G, compute mode Default, GPU-3\n"
	       "  state       ready, since "},
	{GANG, "  clients     1 of 48 reserved on each device, 2 attached\n"
	       "  shares      threads 25%, memory 1G on each device\n"
	       "  leases      1, 2 waiting\n"},
	{GANG, "  processes   control 7, server 8 (uid 0, active)\n"
	       "  LEASE     STATE "},
	{GANG, "\n  bbbbbbbb  granted "},
	{SINGLE, "GPU-2 (gpu)\n"
		 "  device      0 NVIDIA H200, 0000:06:00.0, 1G, compute mode Default\n"
		 "  state       ready: held empty for gang-0a1b2c3d, since "},
	{SINGLE, "  clients     0 of 48 reserved, 0 attached\n"
		 "  shares      threads 0%\n  leases "},
	{LOSSES, "  death       - server: MPS server 7 is gone\n"
		 "    said      Startup\n"
		 "  death       - control: exited with status 7\n"},
	{NOTHING, "? (?)\n"
		  "  device      - ?, ?, -, ?\n"
		  "  device      - ?, ?, -, ?\n"
		  "  state       ?, since "},
	{NOTHING, "  processes   none\n"
		  "  death       - ?: ?\n"
		  "  death       - ?: ?\n"},
	{"null", "? (?)\n  state       ?, since "},
};

START_TEST(test_instance)
{
	_cleanup_(json_decrefp) json_t *leases = json_loads(leases_text, 0, NULL);
	_cleanup_(json_decrefp) json_t *instance =
		json_loads(blocks[_i].instance, JSON_DECODE_ANY, NULL);
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	ck_assert(leases && instance);
	instance_text_print(file, instance, leases, NOW_USEC);
	(void)fclose(file);
	unit_assert_contains(text, blocks[_i].part);
}
END_TEST

/* 64 pids and 64 leases, as many as an answer has: none is cut. */
START_TEST(test_hit)
{
	_cleanup_(json_decrefp) json_t *instance =
		json_pack("{s:[{s:[], s:[]}]}", "deaths", "hit_pids", "hit_leases");
	json_t *death = json_array_get(json_object_get(instance, "deaths"), 0);
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	for (int i = 0; i < 63; i++) {
		json_array_append_new(json_object_get(death, "hit_pids"), json_integer(4194304));
		json_array_append_new(json_object_get(death, "hit_leases"),
				      json_string("aaaaaaaa"));
	}
	json_array_append_new(json_object_get(death, "hit_pids"), json_integer(77));
	json_array_append_new(json_object_get(death, "hit_leases"), json_string("bbbbbbbb"));
	instance_text_print(file, instance, NULL, NOW_USEC);
	(void)fclose(file);
	unit_assert_contains(text, ", 4194304, 77\n");
	unit_assert_contains(text, ", aaaaaaaa, bbbbbbbb\n");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	unit_add_table(tcase, test_lease_table, tables);
	unit_add_table(tcase, test_instance, blocks);
	tcase_add_test(tcase, test_hit);
	return unit_run("client_tables", tcase);
}
