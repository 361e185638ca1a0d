/* SPDX-License-Identifier: MIT */
#include "text.h"
#include "unit.h"

static const struct {
	const char *text;
	int64_t min, max;
	int r;
	int64_t value;
} integers[] = {
	{"0", 0, 0, 0, 0},
	{"-0", 0, 0, 0, 0},
	{"007", 0, 10, 0, 7},
	{"48", 1, 48, 0, 48},
	{"1", 1, 48, 0, 1},
	{"-12", -12, 0, 0, -12},
	{"9223372036854775807", 0, INT64_MAX, 0, INT64_MAX},
	{"-9223372036854775807", INT64_MIN, 0, 0, -INT64_MAX},
	{"0", 1, 48, -ERANGE, 0},
	{"49", 1, 48, -ERANGE, 0},
	{"-13", -12, 0, -ERANGE, 0},
	{"9223372036854775808", INT64_MIN, INT64_MAX, -ERANGE, 0},
	{"-9223372036854775809", INT64_MIN, INT64_MAX, -ERANGE, 0},
	{"18446744073709551616", INT64_MIN, INT64_MAX, -ERANGE, 0},
	{"99999999999999999999999999", INT64_MIN, INT64_MAX, -ERANGE, 0},
	{"", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"-", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"--1", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"+1", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{" 1", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"1 ", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"0x10", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"1.0", INT64_MIN, INT64_MAX, -EINVAL, 0},
	{"1\n", INT64_MIN, INT64_MAX, -EINVAL, 0},
};

START_TEST(parses_integers)
{
	int64_t value = 4711;

	ck_assert_int_eq(
		text_parse_int(integers[_i].text, integers[_i].min, integers[_i].max, &value),
		integers[_i].r);
	ck_assert_int_eq(value, integers[_i].r < 0 ? 4711 : integers[_i].value);
}
END_TEST

static const struct {
	const char *text;
	int r;
	int64_t value;
} sizes[] = {
	{"1", 0, 1},
	{"1073741824", 0, INT64_C(1) << 30},
	{"1B", 0, 1},
	{"1K", 0, 1024},
	{"1k", 0, 1024},
	{"512M", 0, INT64_C(512) << 20},
	{"512m", 0, INT64_C(512) << 20},
	{"20G", 0, INT64_C(20) << 30},
	{"20GB", 0, INT64_C(20) << 30},
	{"20GiB", 0, INT64_C(20) << 30},
	{"20Gi", 0, INT64_C(20) << 30},
	{"2T", 0, INT64_C(2) << 40},
	{"2t", 0, INT64_C(2) << 40},
	{"9223372036854775807", 0, INT64_MAX},
	{"8388607T", 0, INT64_C(8388607) << 40},
	{"8388608T", -ERANGE, 0},
	{"9223372036854775808", -ERANGE, 0},
	{"9007199254740992K", -ERANGE, 0},
	{"18446744073709551616", -ERANGE, 0},
	{"0", -EINVAL, 0},
	{"0G", -EINVAL, 0},
	{"", -EINVAL, 0},
	{"G", -EINVAL, 0},
	{"-1G", -EINVAL, 0},
	{"1.5G", -EINVAL, 0},
	{"1 G", -EINVAL, 0},
	{"1GG", -EINVAL, 0},
	{"1iB", -EINVAL, 0},
	{"1GiBB", -EINVAL, 0},
	{"1P", -EINVAL, 0},
	{"1b", -EINVAL, 0},
};

START_TEST(parses_sizes)
{
	int64_t value = 4711;

	ck_assert_int_eq(text_parse_bytes(sizes[_i].text, &value), sizes[_i].r);
	ck_assert_int_eq(value, sizes[_i].r < 0 ? 4711 : sizes[_i].value);
}
END_TEST

static const struct {
	int64_t bytes;
	const char *text;
} written[] = {
	{0, "0K"},
	{512, "0.5K"},
	{1536, "1.5K"},
	{INT64_C(512) << 20, "512M"},
	{INT64_C(20) << 30, "20G"},
	{INT64_C(143771) << 20, "140.4G"},
	{INT64_C(900) << 40, "900T"},
	{INT64_MAX, "8388608T"},
};

START_TEST(writes_sizes)
{
	char text[TEXT_BYTES_SIZE];

	ck_assert_str_eq(text_bytes(written[_i].bytes, text), written[_i].text);
}
END_TEST

static const struct {
	const char *text;
	int r;
	uint64_t usec;
} seconds[] = {
	{"0", 0, 0},
	{"30", 0, 30000000},
	{"0.5", 0, 500000},
	{"1.25", 0, 1250000},
	{"0.000001", 0, 1},
	{"0.0000019", 0, 1},
	{"12.3456789", 0, 12345678},
	{"3155760000", 0, UINT64_C(3155760000000000)},
	{"3155760001", -ERANGE, 0},
	{"18446744073709", -ERANGE, 0},
	{"99999999999999999999", -ERANGE, 0},
	{"", -EINVAL, 0},
	{".5", -EINVAL, 0},
	{"-1", -EINVAL, 0},
	{"1e3", -EINVAL, 0},
	{"1,5", -EINVAL, 0},
	{"1.5s", -EINVAL, 0},
	{"1.2.3", -EINVAL, 0},
	{" 1", -EINVAL, 0},
	{"inf", -EINVAL, 0},
};

START_TEST(parses_seconds)
{
	uint64_t usec = 4711;

	ck_assert_int_eq(text_parse_seconds(seconds[_i].text, &usec), seconds[_i].r);
	ck_assert_uint_eq(usec, seconds[_i].r < 0 ? 4711 : seconds[_i].usec);
}
END_TEST

static const struct {
	const char *text;
	size_t size;
	int r;
	const char *result;
} copies[] = {
	{"", 1, 0, ""},
	{"", 8, 0, ""},
	{"abc", 4, 0, "abc"},
	{"abc", 3, -ENAMETOOLONG, "ab"},
	{"abc", 1, -ENAMETOOLONG, ""},
	{"abcdefgh", 8, -ENAMETOOLONG, "abcdefg"},
};

START_TEST(copies_and_cuts)
{
	char buffer[16];

	memset(buffer, '#', sizeof(buffer));
	ck_assert_int_eq(text_copy(buffer, copies[_i].size, copies[_i].text), copies[_i].r);
	ck_assert_str_eq(buffer, copies[_i].result);
	ck_assert_int_eq(buffer[copies[_i].size], '#');
}
END_TEST

START_TEST(formats_and_cuts)
{
	char buffer[16];

	memset(buffer, '#', sizeof(buffer));
	ck_assert_int_eq(text_format(buffer, copies[_i].size, "%s", copies[_i].text), copies[_i].r);
	ck_assert_str_eq(buffer, copies[_i].result);
	ck_assert_int_eq(buffer[copies[_i].size], '#');
}
END_TEST

START_TEST(knows_prefixes)
{
	ck_assert(text_starts_with("GPU-1", "GPU-"));
	ck_assert(text_starts_with("GPU-", "GPU-"));
	ck_assert(text_starts_with("x", ""));
	ck_assert(!text_starts_with("GPU", "GPU-"));
	ck_assert(!text_starts_with("", "GPU-"));
	ck_assert(!text_starts_with("gpu-1", "GPU-"));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("text");

	unit_add_table(tcase, parses_integers, integers);
	unit_add_table(tcase, parses_sizes, sizes);
	unit_add_table(tcase, writes_sizes, written);
	unit_add_table(tcase, parses_seconds, seconds);
	unit_add_table(tcase, copies_and_cuts, copies);
	unit_add_table(tcase, formats_and_cuts, copies);
	tcase_add_test(tcase, knows_prefixes);
	return unit_run("text", tcase);
}
