/* SPDX-License-Identifier: MIT */
#include "rundir.h"

#include <acl/libacl.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <sys/acl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "text.h"
#include "util.h"

/* Deeper than anybody puts things into a lease directory. */
#define DEPTH_MAX 16
/* Removed in one go: nobody else waits for long while somebody filled a directory. What is left
 * goes with the runtime directory at the next boot. */
#define ENTRIES_MAX 4096
#define LOCK_TRIES 50
#define LOCK_PAUSE_NSEC (10L * 1000 * 1000)

static const struct {
	const char *name;
	mode_t mode;
} subdirectories[] = {
	{"instance", 0711},
	{"lease", 0711},
	{"state", 0700},
};

static void closedirp(DIR **directory)
{
	if (*directory)
		(void)closedir(*directory);
}

static int make_directory(const char *path, mode_t mode)
{
	struct stat st;

	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	/* Somebody else's directory could be changed under our feet. */
	if (st.st_uid != geteuid())
		return -EPERM;
	return chmod(path, mode) < 0 ? -errno : 0;
}

static int open_directory(int parent_fd, const char *name, DIR **ret)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *directory;

	if (fd < 0)
		return -errno;
	directory = fdopendir(fd);
	if (!directory) {
		(void)safe_close(fd);
		return -errno;
	}
	*ret = directory;
	return 0;
}

/*
 * Empties a directory, whoever fills it meanwhile: a lease's belongs to its holder, who can put
 * anything there. Never follows a link, goes on past what it cannot remove, and stops at a depth.
 */
static void empty_directory_at(int parent_fd, const char *name, int depth, int *budget)
{
	_cleanup_(closedirp) DIR *directory = NULL;
	const struct dirent *entry;

	if (depth <= DEPTH_MAX)
		(void)open_directory(parent_fd, name, &directory);
	if (!directory)
		return;
	while ((entry = readdir(directory)) && (*budget)-- > 0) {
		if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
			continue;
		if (unlinkat(dirfd(directory), entry->d_name, 0) == 0)
			continue;
		empty_directory_at(dirfd(directory), entry->d_name, depth + 1, budget);
		(void)unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
	}
}

static void empty_directory(const char *path)
{
	int budget = ENTRIES_MAX;
	char control[PATH_MAX];

	/* The way in goes first. */
	if (text_format(control, sizeof(control), "%s/control", path) == 0)
		(void)unlink(control);
	empty_directory_at(AT_FDCWD, path, 0, &budget);
}

enum {
	LOCK_IS_STALE = 1
};

/* LOCK_IS_STALE: a supervisor that was just ending has removed the file that was opened here. */
static int try_lock(const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat locked, there;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(fd, &locked) < 0)
		return -errno;
	if (stat(path, &there) < 0 || there.st_ino != locked.st_ino)
		return LOCK_IS_STALE;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* A supervisor that was just killed may have been about to start a program: that child has the lock
 * until then. So it is waited for, a moment only, before the event loop runs. */
static int take_lock(const char *path, int *ret_fd)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NSEC};
	int r;

	for (int i = 0; i < LOCK_TRIES; i++) {
		r = try_lock(path, ret_fd);
		if (r == -EBUSY)
			(void)nanosleep(&pause, NULL);
		else if (r != LOCK_IS_STALE)
			return r;
	}
	return -EBUSY;
}

int rundir_open(struct rundir *rundir, const char *path, char *ret_path, size_t size)
{
	int r;

	*rundir = (struct rundir){.lock_fd = -EBADF};
	r = text_copy(rundir->path, sizeof(rundir->path), path);
	(void)text_copy(ret_path, size, path);
	if (r < 0)
		return r;
	r = make_directory(path, 0755);
	if (r < 0)
		return r;
	(void)text_format(ret_path, size, "%s/lock", path);
	r = take_lock(ret_path, &rundir->lock_fd);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ELEMENTSOF(subdirectories); i++) {
		(void)text_format(ret_path, size, "%s/%s", path, subdirectories[i].name);
		r = make_directory(ret_path, subdirectories[i].mode);
		if (r < 0)
			return r;
	}
	return 0;
}

void rundir_close(struct rundir *rundir)
{
	char path[PATH_MAX];

	if (rundir->lock_fd < 0)
		return;
	for (size_t i = 0; i < ELEMENTSOF(subdirectories); i++) {
		(void)text_format(path, sizeof(path), "%s/%s", rundir->path,
				  subdirectories[i].name);
		(void)rmdir(path);
	}
	(void)text_format(path, sizeof(path), "%s/lock", rundir->path);
	(void)unlink(path);
	rundir->lock_fd = safe_close(rundir->lock_fd);
}

void rundir_short_name(const char *uuid, char ret_name[static 9])
{
	(void)text_format(ret_name, 9, "%08x", text_hash(uuid));
}

/* Who holds the lock of a pipe directory: the kernel knows, a pid file only claims. */
static int lock_holder(const char *directory, pid_t *ret_pid)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	_cleanup_close_ int fd = -EBADF;
	char path[PATH_MAX];

	(void)text_format(path, sizeof(path), "%s/control_lock", directory);
	*ret_pid = 0;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fcntl(fd, F_GETLK, &lock) < 0)
		return -errno;
	if (lock.l_type == F_UNLCK)
		return 0;
	/* A holder in another namespace of processes has no number here. */
	if (lock.l_pid <= 0)
		return -EBUSY;
	*ret_pid = lock.l_pid;
	return 0;
}

int rundir_prepare_instance(const char *directory, pid_t *ret_daemon)
{
	int r;

	r = make_directory(directory, 0700);
	if (r < 0)
		return r;
	r = lock_holder(directory, ret_daemon);
	if (r < 0 || *ret_daemon != 0)
		return r;
	empty_directory(directory);
	return 0;
}

void rundir_remove_instance(const char *directory)
{
	empty_directory(directory);
	(void)rmdir(directory);
}

static void acl_freep(acl_t *acl)
{
	if (*acl)
		(void)acl_free(*acl);
}

static int add_user(acl_t *acl, uid_t uid)
{
	acl_entry_t entry;
	acl_permset_t permissions;

	if (acl_create_entry(acl, &entry) < 0 || acl_set_tag_type(entry, ACL_USER) < 0 ||
	    acl_set_qualifier(entry, &uid) < 0 || acl_get_permset(entry, &permissions) < 0 ||
	    acl_add_perm(permissions, ACL_EXECUTE) < 0)
		return -errno;
	return 0;
}

int rundir_set_access(const char *directory, const uid_t *uids, size_t n_uids)
{
	_cleanup_(acl_freep) acl_t acl = acl_from_mode(0700);
	size_t n_added = 0;
	int r;

	if (!acl)
		return -errno;
	for (size_t i = 0; i < n_uids; i++) {
		if (uids[i] == geteuid())
			continue;
		r = add_user(&acl, uids[i]);
		if (r < 0)
			return r;
		n_added++;
	}
	if (n_added > 0 && acl_calc_mask(&acl) < 0)
		return -errno;
	return acl_set_file(directory, ACL_TYPE_ACCESS, acl) < 0 ? -errno : 0;
}

static int link_control(const char *pipe_directory, const char *to)
{
	char socket[PATH_MAX];

	(void)text_format(socket, sizeof(socket), "%s/control", pipe_directory);
	return link(socket, to) < 0 ? -errno : 0;
}

int rundir_make_lease(const char *directory, const char *pipe_directory, uid_t uid)
{
	char path[PATH_MAX];
	int r;

	(void)text_format(path, sizeof(path), "%s/control", directory);
	if (mkdir(directory, 0700) < 0)
		return -errno;
	r = link_control(pipe_directory, path);
	if (r == 0 && uid != geteuid() && chown(directory, uid, (gid_t)-1) < 0)
		r = -errno;
	if (r < 0)
		rundir_remove_lease(directory);
	return r;
}

/* Then there is nothing to do; and rename(2) leaves both names of one file as they are. */
static bool is_linked(const char *pipe_directory, const char *path)
{
	struct stat socket_stat, link_stat;
	char socket[PATH_MAX];

	(void)text_format(socket, sizeof(socket), "%s/control", pipe_directory);
	return lstat(socket, &socket_stat) == 0 && lstat(path, &link_stat) == 0 &&
	       socket_stat.st_ino == link_stat.st_ino && socket_stat.st_dev == link_stat.st_dev;
}

int rundir_renew_lease(const char *directory, const char *pipe_directory)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	int r;

	(void)text_format(path, sizeof(path), "%s/control", directory);
	(void)text_format(fresh, sizeof(fresh), "%s/.control", directory);
	(void)unlink(fresh);
	if (is_linked(pipe_directory, path))
		return 0;
	r = link_control(pipe_directory, fresh);
	if (r < 0)
		return r;
	return rename(fresh, path) < 0 ? -errno : 0;
}

void rundir_close_lease(const char *directory)
{
	empty_directory(directory);
}

void rundir_remove_lease(const char *directory)
{
	/* The holder puts nothing more into it. */
	if (geteuid() == 0 && lchown(directory, 0, 0) < 0)
		return;
	empty_directory(directory);
	(void)rmdir(directory);
}

void rundir_clear_leases(const char *path, bool (*is_known)(const char *name, void *userdata),
			 void *userdata)
{
	_cleanup_(closedirp) DIR *directory = opendir(path);
	const struct dirent *entry;
	char lease[PATH_MAX];

	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] != '.' && !is_known(entry->d_name, userdata) &&
		    text_format(lease, sizeof(lease), "%s/%s", path, entry->d_name) == 0)
			rundir_remove_lease(lease);
}
