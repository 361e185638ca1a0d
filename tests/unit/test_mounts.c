/* SPDX-License-Identifier: MIT */
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "mounts.h"
#include "procinfo.h"
#include "unit_directory.h"
#include "unit_mounts.h"

/* A line as the kernel writes it; the device is 0:MINOR. */
#define M(id, parent, minor, root, point) \
#id " " #parent " 0:" #minor " " root " " point " rw,relatime shared:1 - tmpfs x rw\n"
#define ROOT M(1, 0, 1, "/", "/")
#define RUN M(2, 1, 2, "/", "/run")

static const struct {
	const char *what, *mountinfo, *path;
	unsigned int minor;
	const char *located;
} places[] = {
	{"on the root", ROOT, "/a/b", 1, "/a/b"},
	{"the root", ROOT, "/", 1, "/"},
	{"on a mount", ROOT RUN, "/run/a/b", 2, "/a/b"},
	{"beside it", ROOT RUN, "/var/a", 1, "/var/a"},
	{"its name and more", ROOT RUN, "/running/a", 1, "/running/a"},
	{"the beginning of its name", ROOT RUN, "/ru", 1, "/ru"},
	{"in any order", RUN ROOT, "/run/a", 2, "/a"},
	{"without a newline at the end", ROOT "2 1 0:2 / /run rw - tmpfs x rw", "/run/a", 2, "/a"},
	{"with optional fields, or none", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n" RUN, "/run/a", 2,
	 "/a"},
	{"one directory", ROOT M(3, 1, 2, "/lease/0badcafe", "/mps"), "/mps", 2, "/lease/0badcafe"},
	{"one directory, below", ROOT M(3, 1, 2, "/lease/0badcafe", "/mps"), "/mps/control", 2,
	 "/lease/0badcafe/control"},
	{"its parent", ROOT M(3, 1, 2, "/lease", "/mps"), "/mps/0badcafe", 2, "/lease/0badcafe"},
	{"at the same path", ROOT M(3, 1, 2, "/x/lease/1", "/run/x/lease/1"), "/run/x/lease/1", 2,
	 "/x/lease/1"},
	{"a directory as the root", M(1, 0, 2, "/a", "/"), "/b", 2, "/a/b"},
	{"a directory as the root, itself", M(1, 0, 2, "/a", "/"), "/", 2, "/a"},
	{"nested", ROOT RUN M(3, 2, 3, "/", "/run/a"), "/run/a/b", 3, "/b"},
	{"nested, above", ROOT RUN M(3, 2, 3, "/", "/run/a"), "/run/b", 2, "/b"},
	{"nested, the inner first", M(3, 2, 3, "/", "/run/a") RUN ROOT, "/run/a/b", 3, "/b"},
	{"nested in a directory", ROOT M(2, 1, 2, "/r", "/run") M(3, 2, 3, "/q", "/run/a"),
	 "/run/a/b", 3, "/q/b"},
	{"stacked on one point", ROOT RUN M(3, 2, 3, "/", "/run"), "/run/a", 3, "/a"},
	{"stacked thrice", ROOT M(9, 7, 4, "/", "/run") RUN M(7, 2, 3, "/", "/run"), "/run/a", 4,
	 "/a"},
	{"ids in another order", ROOT M(9, 1, 2, "/", "/run") M(5, 9, 3, "/", "/run/a"), "/run/a/b",
	 3, "/b"},
	{"a later mount covers a deeper one",
	 ROOT M(2, 1, 2, "/", "/run/a") M(3, 1, 3, "/", "/run"), "/run/a/b", 3, "/a/b"},
	{"a deeper one on the one that covers",
	 ROOT M(2, 1, 2, "/", "/run/a") M(3, 1, 3, "/", "/run") M(4, 3, 4, "/", "/run/a"),
	 "/run/a/b", 4, "/b"},
	{"a deeper one is on what is covered",
	 ROOT RUN M(3, 2, 3, "/", "/run/a") M(4, 2, 4, "/", "/run"), "/run/a/b", 4, "/a/b"},
	{"not what another mount has", ROOT M(2, 1, 2, "/", "/a") M(3, 2, 3, "/", "/a/b"), "/a/c",
	 2, "/c"},
	{"spaces", ROOT M(2, 1, 2, "/x\\040y", "/a\\040b"), "/a b/c", 2, "/x y/c"},
	{"tabs, newlines and backslashes", ROOT M(2, 1, 2, "/", "/a\\011\\012\\134b"),
	 "/a\t\n\\b/c", 2, "/c"},
	{"a backslash before digits", ROOT M(2, 1, 2, "/", "/a\\134040"), "/a\\040/c", 2, "/c"},
	{"what is no escape", ROOT M(2, 1, 2, "/", "/a\\09\\x"), "/a\\09\\x/c", 2, "/c"},
	{"a backslash at the end", ROOT M(2, 1, 2, "/", "/a\\"), "/a\\/c", 2, "/c"},
	{"dots in names", ROOT M(2, 1, 2, "/", "/..a"), "/..a/.b/c./...", 2, "/.b/c./..."},
	{"garbage between",
	 "\n\ngarbage\n1 2 3\n1 0 0:9 /\nx y z:w / / rw\n" ROOT "2 1 2 / /run\n" RUN
	 "\n4 2 0:9 /\n" M(3, 1, 5, "", ""),
	 "/run/a", 2, "/a"},
	{"a mount on itself", ROOT M(2, 2, 2, "/", "/run"), "/run/a", 1, "/run/a"},
	{"a mount on what is not there", ROOT M(2, 8, 2, "/", "/run"), "/run/a", 1, "/run/a"},
	{"what its parent's id says of the root", M(1, 1, 1, "/", "/"), "/a", 1, "/a"},
};

START_TEST(locates)
{
	struct mounts_location location = {.minor = 4711};

	ck_assert_int_eq(mounts_locate(places[_i].mountinfo, places[_i].path, &location), 0);
	ck_assert_uint_eq(location.minor, places[_i].minor);
	ck_assert_str_eq(location.path, places[_i].located);
}
END_TEST

START_TEST(knows_the_device)
{
	struct mounts_location location;

	ck_assert_int_eq(mounts_locate("1 0 259:4095 / / rw - ext4 x rw\n", "/a", &location), 0);
	ck_assert_uint_eq(location.major, 259);
	ck_assert_uint_eq(location.minor, 4095);
}
END_TEST

static const struct {
	const char *mountinfo, *path;
	int error;
} refused[] = {
	{ROOT, "", -EINVAL},        {ROOT, "a", -EINVAL},
	{ROOT, "./a", -EINVAL},     {ROOT, "../a", -EINVAL},
	{ROOT, "/./a", -EINVAL},    {ROOT, "/a/.", -EINVAL},
	{ROOT, "/..", -EINVAL},     {ROOT, "/../a", -EINVAL},
	{ROOT, "/a/../b", -EINVAL}, {ROOT, "/a/b/..", -EINVAL},
	{ROOT, "//", -EINVAL},      {ROOT, "//a", -EINVAL},
	{ROOT, "/a//b", -EINVAL},   {ROOT, "/a/b//", -EINVAL},
	{"", "/a", -ENOENT},        {"\n", "/a", -ENOENT},
	{"garbage", "/a", -ENOENT}, {"1 0 0:1 /", "/a", -ENOENT},
	{"-", "/a", -ENOENT},       {RUN, "/a", -ENOENT},
	{RUN, "/run/a", -ENOENT}, /* on what nothing is known of */
	{"", "a", -EINVAL},
};

START_TEST(refuses)
{
	struct mounts_location location;

	ck_assert_int_eq(mounts_locate(refused[_i].mountinfo, refused[_i].path, &location),
			 refused[_i].error);
}
END_TEST

/* A path of n bytes, in names of 99. */
static void long_path(char *path, size_t n)
{
	for (size_t i = 0; i < n; i++)
		path[i] = i % 100 == 0 ? '/' : 'x';
	if (path[n - 1] == '/')
		path[n - 1] = 'x';
	path[n] = '\0';
}

START_TEST(bounds_paths)
{
	static char path[2 * MOUNTS_PATH_SIZE];
	struct mounts_location location;

	long_path(path, MOUNTS_PATH_SIZE - 1);
	ck_assert_int_eq(mounts_locate(ROOT, path, &location), 0);
	ck_assert_str_eq(location.path, path);
	ck_assert_int_eq(mounts_locate(M(1, 0, 1, "/a", "/"), path, &location), -ENAMETOOLONG);
	long_path(path, MOUNTS_PATH_SIZE);
	ck_assert_int_eq(mounts_locate(ROOT, path, &location), -ENAMETOOLONG);
	long_path(path, sizeof(path) - 1);
	ck_assert_int_eq(mounts_locate(ROOT, path, &location), -ENAMETOOLONG);
}
END_TEST

/* Lengths around the sizes of what is read into. */
static const size_t lengths[] = {1,     4095,  4096,  5000,  8191,  8192,
				 12000, 12287, 12288, 12289, 20000, 100000};

/* Root, mount point or options are very long: not found, or found; never another. */
START_TEST(is_not_misled_by_long_lines)
{
	static char mountinfo[400000], text[100001];
	struct mounts_location location;

	memset(text, 'x', lengths[_i]);
	text[lengths[_i]] = '\0';
	ck_assert_int_eq(text_format(mountinfo, sizeof(mountinfo),
				     "7 1 0:7 /%s /mnt rw - tmpfs x rw\n"
				     "8 1 0:8 / /%s rw - tmpfs x rw\n"
				     "9 1 0:9 / /opt rw - tmpfs x %s\n" ROOT RUN,
				     text, text, text),
			 0);
	ck_assert_int_eq(mounts_locate(mountinfo, "/run/a", &location), 0);
	ck_assert_uint_eq(location.minor, 2);
	ck_assert_str_eq(location.path, "/a");
	ck_assert_int_eq(mounts_locate(mountinfo, "/a", &location), 0);
	ck_assert_uint_eq(location.minor, 1);
}
END_TEST

/* ---------------------------------------------------------------- this machine */

static void locate_here(const char *path, struct mounts_location *ret)
{
	_cleanup_free_ char *mountinfo = NULL;

	ck_assert_int_eq(procinfo_mounts(getpid(), &mountinfo), 0);
	ck_assert_int_eq(mounts_locate(mountinfo, path, ret), 0);
}

static void assert_as_stat_says(const char *path)
{
	struct mounts_location location;
	struct stat st;

	locate_here(path, &location);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(location.major, major(st.st_dev));
	ck_assert_uint_eq(location.minor, minor(st.st_dev));
}

/* Some file systems give each subvolume or layer a number of its own. */
static bool has_one_number(const char *path)
{
	static const unsigned int kinds[] = {0x9fa0 /* proc */, 0x01021994 /* tmpfs */,
					     0xef53 /* ext4 */, 0x58465342 /* xfs */,
					     0x62656572 /* sysfs */};
	struct statfs fs;

	ck_assert_int_eq(statfs(path, &fs), 0);
	for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
		if ((unsigned int)fs.f_type == kinds[i])
			return true;
	return false;
}

static const char *const paths[] = {"/proc", "/proc/self/fd", "/dev/shm", "/sys", "/", NULL};

START_TEST(agrees_with_this_machine)
{
	_cleanup_free_ char *path = realpath(paths[_i] ? paths[_i] : unit_directory, NULL);

	if (path && has_one_number(path))
		assert_as_stat_says(path);
}
END_TEST

/* In a namespace of its own, what is mounted there. */
static void mount_at(const char *source, const char *name, const char *type, unsigned long flags)
{
	ck_assert(mkdir(unit_path(name), 0755) == 0 || errno == EEXIST);
	ck_assert_int_eq(mount(source, unit_path(name), type, flags, NULL), 0);
}

static void assert_located(const char *name, const char *located)
{
	struct mounts_location location;

	assert_as_stat_says(unit_path(name));
	locate_here(unit_path(name), &location);
	ck_assert_str_eq(location.path, located);
}

static void mount_and_locate(void)
{
	mount_at("one", "a", "tmpfs", 0);
	ck_assert_int_eq(mkdir(unit_path("a/b"), 0755), 0);
	ck_assert_int_eq(mkdir(unit_path("a/b/c d"), 0755), 0);
	assert_located("a/b/c d", "/b/c d");
	mount_at(unit_path("a/b"), "bound here", "", MS_BIND);
	assert_located("bound here", "/b");
	assert_located("bound here/c d", "/b/c d");
	mount_at("two", "a/b/c d", "tmpfs", 0);
	ck_assert_int_eq(mkdir(unit_path("a/b/c d/e"), 0755), 0);
	assert_located("a/b/c d/e", "/e");
	assert_located("bound here/c d", "/b/c d");
	/* Covers what is mounted below. */
	mount_at("three", "a", "tmpfs", 0);
	ck_assert_int_eq(mkdir(unit_path("a/b"), 0755), 0);
	ck_assert_int_eq(mkdir(unit_path("a/b/c d"), 0755), 0);
	assert_located("a/b/c d", "/b/c d");
	mount_at("four", "a/b", "tmpfs", 0);
	ck_assert_int_eq(mkdir(unit_path("a/b/x"), 0755), 0);
	assert_located("a/b/x", "/x");
}

START_TEST(agrees_with_what_it_mounts)
{
	unit_with_own_mounts(mount_and_locate);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("mounts");

	tcase_add_checked_fixture(tcase, unit_directory_setup, unit_directory_teardown);
	unit_add_table(tcase, locates, places);
	tcase_add_test(tcase, knows_the_device);
	unit_add_table(tcase, refuses, refused);
	tcase_add_test(tcase, bounds_paths);
	unit_add_table(tcase, is_not_misled_by_long_lines, lengths);
	unit_add_table(tcase, agrees_with_this_machine, paths);
	tcase_add_test(tcase, agrees_with_what_it_mounts);
	return unit_run("mounts", tcase);
}
