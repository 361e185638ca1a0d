/* SPDX-License-Identifier: MIT */
#include "mounts.h"

#include <stdbool.h>
#include <stdio.h>

#include "text.h"
#include "util.h"

#define MOUNTS_ON_WAY_MAX 64

struct mount {
	int id, parent;
	unsigned int major, minor;
	char root[MOUNTS_PATH_SIZE]; /* what of the file system is mounted */
	char point[MOUNTS_PATH_SIZE];
};

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* Spaces and the like are written as \040. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *p = text; *p; to++) {
		if (p[0] == '\\' && is_octal(p[1]) && is_octal(p[2]) && is_octal(p[3])) {
			*to = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
			p += 4;
		} else {
			*to = *p++;
		}
	}
	*to = '\0';
}

/* The field at *text, which goes on behind it. False when there is none, or it is too long. */
static bool next_field(const char **text, char *buffer, size_t size)
{
	size_t length = strcspn(*text, " \n");

	if (length == 0 || length >= size)
		return false;
	memcpy(buffer, *text, length);
	buffer[length] = '\0';
	*text += length + ((*text)[length] == ' ');
	return true;
}

/* "36 35 98:0 /root /point options...": what follows is not looked at. */
static bool parse(const char *line, struct mount *ret)
{
	char id[16], parent[16], device[32];

	if (!next_field(&line, id, sizeof(id)) || !next_field(&line, parent, sizeof(parent)) ||
	    !next_field(&line, device, sizeof(device)) ||
	    !next_field(&line, ret->root, sizeof(ret->root)) ||
	    !next_field(&line, ret->point, sizeof(ret->point)) || sscanf(id, "%d", &ret->id) != 1 ||
	    sscanf(parent, "%d", &ret->parent) != 1 ||
	    sscanf(device, "%u:%u", &ret->major, &ret->minor) != 2)
		return false;
	unescape(ret->root);
	unescape(ret->point);
	return true;
}

/* Is path the directory itself or below it? What is left of path then; else NULL. */
static const char *below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	if (streq(directory, "/"))
		return path;
	if (strncmp(path, directory, length) != 0 || (path[length] != '/' && path[length] != '\0'))
		return NULL;
	return path + length;
}

/* A mount on the way to the path. */
struct candidate {
	const char *line;
	int id, parent;
	size_t length; /* of its point */
};

struct candidates {
	struct candidate list[MOUNTS_ON_WAY_MAX];
	size_t n;
};

/* -ELOOP when there are too many: nobody mounts that deep, but to keep us busy. */
static int find_candidates(const char *mountinfo, const char *path, struct candidates *ret)
{
	struct mount mount;

	ret->n = 0;
	for (const char *line = mountinfo; line && *line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		if (!parse(line, &mount) || !below(path, mount.point))
			continue;
		if (ret->n == MOUNTS_ON_WAY_MAX)
			return -ELOOP;
		ret->list[ret->n++] = (struct candidate){
			.line = line,
			.id = mount.id,
			.parent = mount.parent,
			.length = strlen(mount.point),
		};
	}
	return 0;
}

/* The one on top of `on` that is met first; NULL when there is none. With on NULL: the root of all.
 * A path begins there, whatever is mounted over it. */
static const struct candidate *next_mount(const struct candidates *candidates,
					  const struct candidate *on)
{
	const struct candidate *next = NULL;

	for (size_t i = 0; i < candidates->n; i++) {
		const struct candidate *candidate = &candidates->list[i];

		if ((candidate->length == 1) != (on == NULL))
			continue;
		if (on && (candidate->parent != on->id || candidate->id == on->id))
			continue;
		if (!next || (on && candidate->length < next->length))
			next = candidate;
	}
	return next;
}

/* The last on the way: the file system that the path is on. */
static int find_mount(const char *mountinfo, const char *path, struct mount *ret)
{
	struct candidates candidates;
	const struct candidate *mount, *next;
	int r;

	r = find_candidates(mountinfo, path, &candidates);
	if (r < 0)
		return r;
	mount = next_mount(&candidates, NULL);
	if (!mount)
		return -ENOENT;
	/* Ids that are a circle are none that the kernel wrote. */
	for (size_t i = 0; i < candidates.n && (next = next_mount(&candidates, mount)); i++)
		mount = next;
	return parse(mount->line, ret) ? 0 : -ENOENT;
}

static bool is_plain(const char *path)
{
	if (path[0] != '/' || (path[1] != '\0' && path[strlen(path) - 1] == '/'))
		return false;
	for (const char *p = path; *p; p++)
		if (p[0] == '/' && (p[1] == '/' || (p[1] == '.' && (p[2] == '/' || p[2] == '\0')) ||
				    (p[1] == '.' && p[2] == '.' && (p[3] == '/' || p[3] == '\0'))))
			return false;
	return true;
}

int mounts_locate(const char *mountinfo, const char *path, struct mounts_location *ret)
{
	struct mounts_location found;
	struct mount mount;
	const char *rest;
	int r;

	if (!is_plain(path))
		return -EINVAL;
	r = find_mount(mountinfo, path, &mount);
	if (r < 0)
		return r;
	rest = below(path, mount.point);
	found.major = mount.major;
	found.minor = mount.minor;
	r = text_format(found.path, sizeof(found.path), "%s%s",
			streq(mount.root, "/") ? "" : mount.root,
			streq(rest, "/") && !streq(mount.root, "/") ? "" : rest);
	if (r == 0)
		*ret = found;
	return r;
}
