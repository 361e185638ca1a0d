/* SPDX-License-Identifier: MIT */
#include <fcntl.h>

#include "output.h"
#include "unit_loop.h"

static struct output output;
static uint64_t n_lines, n_cut;
static int n_seen;
static char seen[16 * 1024];
static size_t longest;

static void on_line(const char *line, size_t length, void *userdata)
{
	ck_assert_ptr_eq(userdata, &n_seen);
	ck_assert_uint_le(length, OUTPUT_LINE_MAX);
	n_seen++;
	longest = MAX(longest, length);
	if (strlen(seen) + length + 2 < sizeof(seen)) {
		(void)strncat(seen, line, length);
		(void)strcat(seen, "|");
	}
}

static void setup(void)
{
	unit_loop_setup();
	n_lines = n_cut = 0;
	n_seen = 0;
	longest = 0;
	seen[0] = '\0';
	ck_assert_int_eq(output_open(&output, unit_event, unit_path("fifo"), on_line, &n_seen,
				     &n_lines, &n_cut),
			 0);
}

static void teardown(void)
{
	output_close(&output);
	unit_loop_teardown();
}

static ssize_t say(const char *bytes, size_t length)
{
	return write(output.fd, bytes, length);
}

static void say_text(const char *text)
{
	ck_assert_int_eq(say(text, strlen(text)), (ssize_t)strlen(text));
}

static const struct {
	const char *parts[4];
	const char *lines; /* after the parts */
	const char *drained;
} streams[] = {
	{{"one\n"}, "one|", "one|"},
	{{"one\ntwo\nthree\n"}, "one|two|three|", "one|two|three|"},
	{{"o", "n", "e\nt", "wo\n"}, "one|two|", "one|two|"},
	{{"\n\n", "\n"}, "|||", "|||"},
	{{"one\r\n"}, "one\r|", "one\r|"},
	{{"last words"}, "", "last words|"},
	{{"one\nlast", " words"}, "one|", "one|last words|"},
	{{"one\n", ""}, "one|", "one|"},
};

START_TEST(splits_lines)
{
	for (size_t i = 0; i < 4 && streams[_i].parts[i]; i++) {
		say_text(streams[_i].parts[i]);
		unit_run_ready();
	}
	ck_assert_str_eq(seen, streams[_i].lines);
	output_drain(&output);
	ck_assert_str_eq(seen, streams[_i].drained);
	ck_assert_uint_eq(n_lines, (uint64_t)n_seen);
	ck_assert_uint_eq(n_cut, 0);
	/* Nothing is told twice, and a new daemon's first line is its own. */
	output_drain(&output);
	say_text("new\n");
	unit_run_ready();
	ck_assert_int_eq(n_seen, (int)n_lines);
	unit_assert_contains(seen, &"|new|"[seen[0] == 'n']);
}
END_TEST

static const size_t lengths[] = {1, 4095, 4096, 4097, 8191, 8192, 8193, 60000};

START_TEST(cuts_long_lines)
{
	size_t length = lengths[_i];
	_cleanup_free_ char *text = malloc(length + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', length);
	text[length] = '\n';
	for (int round = 1; round <= 2; round++) {
		ck_assert_int_eq(say(text, length + 1), (ssize_t)length + 1);
		unit_run_until(&n_seen, round);
		ck_assert_uint_eq(longest, MIN(length, (size_t)OUTPUT_LINE_MAX));
		ck_assert_uint_eq(n_cut, length > OUTPUT_LINE_MAX ? (uint64_t)round : 0);
	}
	say_text("after\n");
	unit_run_ready();
	ck_assert_int_eq(n_seen, 3);
	ck_assert_uint_eq(n_lines, 3);
}
END_TEST

START_TEST(keeps_binary_lines)
{
	static const char bytes[] = "a\0b\xff\n";

	ck_assert_int_eq(say(bytes, sizeof(bytes) - 1), (ssize_t)sizeof(bytes) - 1);
	unit_run_ready();
	ck_assert_int_eq(n_seen, 1);
	ck_assert_uint_eq(longest, 4);
}
END_TEST

/* More than one turn: nothing may be lost while the FIFO has room. */
START_TEST(takes_a_burst)
{
	int n = 0;

	while (say("[2026-11-30 15:14:37.793 Control   602] Accepting connection...\n", 64) == 64)
		n++;
	ck_assert_int_ge(n, 1000);
	unit_run_until(&n_seen, n);
	ck_assert_uint_eq(n_lines, (uint64_t)n);
	ck_assert_uint_eq(n_cut, 0);
}
END_TEST

START_TEST(drains_a_burst)
{
	int n = 0;

	while (say("[2026-11-30 15:14:37.793 Control   602] Accepting connection...\n", 64) == 64)
		n++;
	output_drain(&output);
	ck_assert_int_eq(n_seen, n);
}
END_TEST

/* A writer that nobody reads gets EAGAIN, and never SIGPIPE. */
START_TEST(never_blocks_the_writer)
{
	const char *path = unit_path("fifo");
	_cleanup_close_ int writer = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	char chunk[4096];
	ssize_t n;

	ck_assert_int_ge(writer, 0);
	ck_assert_int_ne(fcntl(output.fd, F_GETFL) & O_NONBLOCK, 0);
	memset(chunk, 'x', sizeof(chunk));
	do {
		n = say(chunk, sizeof(chunk));
	} while (n > 0);
	ck_assert_int_eq(errno, EAGAIN);
	/* The reader goes, the daemon's own end stays. */
	ck_assert_int_eq(dup3(output.fd, writer, O_CLOEXEC), writer);
	output_close(&output);
	ck_assert_int_eq(output.fd, -EBADF);
	ck_assert_int_eq(write(writer, "x", 1), -1);
	ck_assert_int_eq(errno, EAGAIN);
	/* Somebody else opens it again and reads on. */
	ck_assert_int_eq(output_open(&output, unit_event, path, on_line, &n_seen, &n_lines, &n_cut),
			 0);
	output_drain(&output);
	ck_assert_int_eq(n_seen, 1);
}
END_TEST

START_TEST(makes_a_private_fifo)
{
	struct stat st;

	ck_assert_int_eq(lstat(unit_path("fifo"), &st), 0);
	ck_assert(S_ISFIFO(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_ne(fcntl(output.fd, F_GETFD) & FD_CLOEXEC, 0);
}
END_TEST

START_TEST(takes_only_a_fifo)
{
	struct output other = {.fd = -EBADF};
	const char *file = unit_write("file", "x");

	ck_assert_int_eq(output_open(&other, unit_event, file, on_line, NULL, &n_lines, &n_cut),
			 -EEXIST);
	ck_assert_int_eq(symlink(unit_path("fifo"), unit_path("link")), 0);
	ck_assert_int_eq(
		output_open(&other, unit_event, unit_path("link"), on_line, NULL, &n_lines, &n_cut),
		-ELOOP);
	ck_assert_int_lt(
		output_open(&other, unit_event, unit_directory, on_line, NULL, &n_lines, &n_cut),
		0);
	ck_assert_int_eq(output_open(&other, unit_event, unit_path("no/fifo"), on_line, NULL,
				     &n_lines, &n_cut),
			 -ENOENT);
	output_close(&other);
}
END_TEST

static void close_on_line(const char *line, size_t length, void *userdata)
{
	(void)line;
	(void)length;
	(void)userdata;
	n_seen++;
	output_close(&output);
}

START_TEST(may_be_closed_by_its_handler)
{
	output.handler = close_on_line;
	say_text("one\n");
	unit_run_until(&n_seen, 1);
	output_drain(&output);
	ck_assert_int_eq(n_seen, 1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("output");

	tcase_add_checked_fixture(tcase, setup, teardown);
	unit_add_table(tcase, splits_lines, streams);
	unit_add_table(tcase, cuts_long_lines, lengths);
	tcase_add_test(tcase, keeps_binary_lines);
	tcase_add_test(tcase, takes_a_burst);
	tcase_add_test(tcase, drains_a_burst);
	tcase_add_test(tcase, never_blocks_the_writer);
	tcase_add_test(tcase, makes_a_private_fifo);
	tcase_add_test(tcase, takes_only_a_fifo);
	tcase_add_test(tcase, may_be_closed_by_its_handler);
	return unit_run("output", tcase);
}
