/* SPDX-License-Identifier: MIT */
/* CUDA_VISIBLE_DEVICES of the caller beside the devices of a lease. */
#include "unit.h"
#include "visible.h"

static const char status_text[] =
	"{\"instances\": ["
	" {\"name\": \"gang-1\", \"devices\": ["
	"  {\"uuid\": \"GPU-aaaa\", \"index\": 0}, {\"uuid\": \"GPU-bbbb\", \"index\": 1}]},"
	" {\"name\": \"GPU-aaaa\", \"devices\": [{\"uuid\": \"GPU-aaaa\", \"index\": 0}]},"
	" {\"name\": \"GPU-bbbb\", \"devices\": [{\"uuid\": \"GPU-bbbb\", \"index\": 1}]},"
	" {\"name\": \"MIG-cccc\", \"devices\": [{\"uuid\": \"MIG-cccc\", \"index\": 2}]},"
	" {\"name\": \"GPU-dddd\", \"devices\": [{\"uuid\": \"GPU-dddd\", \"index\": null}]},"
	" {\"name\": null, \"devices\": null}, 3]}";

#define WAS(value) "CUDA_VISIBLE_DEVICES=" value " was set, the lease is on "
#define NAME_IT "; name a device with --gpu when it matters"

#define A "[\"GPU-aaaa\"]"
#define B "[\"GPU-bbbb\"]"
#define AB "[\"GPU-aaaa\", \"GPU-bbbb\"]"
#define MIG "[\"MIG-cccc\"]"

static const struct {
	const char *value, *request, *devices;
	const char *note; /* NULL: none */
} notes[] = {
	/* by number */
	{"0", "{}", A, NULL},
	{"2", "{}", A, WAS("2") "GPU 0 (GPU-aaaa)" NAME_IT},
	{"1", "{}", A, WAS("1") "GPU 0 (GPU-aaaa)" NAME_IT},
	{"1", "{\"count\": 1}", A, WAS("1") "GPU 0 (GPU-aaaa)" NAME_IT},
	{"1", "{\"devices\": [\"0\"]}", A, WAS("1") "GPU 0 (GPU-aaaa)"},
	{"0,1", "{}", AB, NULL},
	{"1,0", "{}", AB, NULL},
	{" 0 ,\t1 ", "{}", AB, NULL},
	{"1,2", "{}", AB, WAS("1,2") "GPU 0 (GPU-aaaa), GPU 1 (GPU-bbbb)" NAME_IT},
	/* more than the lease has, and fewer */
	{"0,1", "{}", B, WAS("0,1") "GPU 1 (GPU-bbbb); --gpus 2 asks for as many"},
	{"0,1", "{\"count\": 1}", B, NULL},
	{"0,1", "{\"devices\": [\"1\"]}", B, NULL},
	{"0", "{\"count\": 2}", AB, WAS("0") "GPU 0 (GPU-aaaa), GPU 1 (GPU-bbbb)" NAME_IT},
	/* by UUID */
	{"GPU-aaaa", "{}", A, NULL},
	{"gpu-AA", "{}", A, NULL},
	{"GPU-bbbb", "{}", A, WAS("GPU-bbbb") "GPU 0 (GPU-aaaa)" NAME_IT},
	{"GPU-aaaab", "{}", A, WAS("GPU-aaaab") "GPU 0 (GPU-aaaa)" NAME_IT},
	{"GPU-bbbb,GPU-aaaa", "{}", AB, NULL},
	{"0,GPU-bbbb", "{}", AB, NULL},
	/* MIG */
	{"MIG-cccc", "{}", MIG, NULL},
	{"MIG-dddd", "{}", MIG, WAS("MIG-dddd") "GPU 2 (MIG-cccc)" NAME_IT},
	{"MIG-cccc,MIG-dddd", "{}", MIG, NULL},
	{"2", "{}", MIG, NULL},
	{"0", "{}", MIG, WAS("0") "GPU 2 (MIG-cccc)" NAME_IT},
	/* what names nothing */
	{"", "{}", A, NULL},
	{" ", "{}", A, NULL},
	{",1", "{}", A, NULL},
	{"-1", "{}", A, NULL},
	{"NoDevFiles", "{}", A, NULL},
	{"all", "{}", A, NULL},
	{"0,-1,1", "{}", A, NULL},
	{"0x1", "{}", A, NULL},
	{"99999999999", "{}", A, NULL},
	/* what cannot be told */
	{"1", "{}", "[\"GPU-dddd\"]", NULL},
	{"1", "{}", "[\"GPU-eeee\"]", NULL},
	{"GPU-a", "{}", "[\"GPU-eeee\"]", WAS("GPU-a") "GPU-eeee" NAME_IT},
	{"1", "{}", "[]", NULL},
	{"1", "{}", "[3]", NULL},
	{"1", "{}", "null", NULL},
};

START_TEST(test_note)
{
	_cleanup_(json_decrefp) json_t *status = json_loads(status_text, 0, NULL);
	_cleanup_(json_decrefp) json_t *request = json_loads(notes[_i].request, 0, NULL);
	_cleanup_(json_decrefp) json_t *lease = json_object();
	char note[VISIBLE_NOTE_MAX] = "";

	ck_assert(status && request && lease);
	json_object_set_new(lease, "devices", json_loads(notes[_i].devices, JSON_DECODE_ANY, NULL));
	ck_assert_int_eq(visible_differs(notes[_i].value, request, lease, status, note),
			 notes[_i].note != NULL);
	ck_assert_str_eq(note, notes[_i].note ? notes[_i].note : "");
}
END_TEST

/* Without an answer of GetStatus numbers say nothing, and UUIDs are compared all the same. */
static const struct {
	const char *value;
	bool numbers, differs;
} alone[] = {
	{"", false, false},
	{"1", true, false},
	{"GPU-a", false, false},
	{"GPU-bb", false, true},
	{"GPU-bb,1", true, false},
	{"-1,1", false, false},
	{"MIG-GPU-1/2/0", false, true},
};

START_TEST(test_without_status)
{
	_cleanup_(json_decrefp) json_t *lease = json_pack("{s:[s]}", "devices", "GPU-aaaa");
	char note[VISIBLE_NOTE_MAX] = "";

	ck_assert_int_eq(visible_has_numbers(alone[_i].value), alone[_i].numbers);
	ck_assert_int_eq(visible_differs(alone[_i].value, NULL, lease, NULL, note),
			 alone[_i].differs);
	if (alone[_i].differs)
		unit_assert_contains(note, "the lease is on GPU-aaaa; name");
}
END_TEST

/* The variable may be as long as it likes, and a lease has up to 64 devices. */
START_TEST(test_long)
{
	_cleanup_(json_decrefp) json_t *lease = json_pack("{s:[]}", "devices");
	char value[4096], note[VISIBLE_NOTE_MAX] = "", uuid[64];

	for (int i = 0; i < 64; i++) {
		(void)snprintf(uuid, sizeof(uuid), "GPU-%08d-1234-1234-1234-123456789012", i);
		json_array_append_new(json_object_get(lease, "devices"), json_string(uuid));
	}
	memset(value, 'x', sizeof(value) - 1);
	memcpy(value, "GPU-1,", 6);
	value[sizeof(value) - 1] = '\0';
	ck_assert(visible_differs(value, NULL, lease, NULL, note));
	unit_assert_contains(note, "=GPU-1,xxx");
	unit_assert_contains(note, "-123456789012 and 56 more; name a device");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	unit_add_table(tcase, test_note, notes);
	unit_add_table(tcase, test_without_status, alone);
	tcase_add_test(tcase, test_long);
	return unit_run("client_visible", tcase);
}
