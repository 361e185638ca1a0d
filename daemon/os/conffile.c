/* SPDX-License-Identifier: MIT */
#include "conffile.h"

#include <dirent.h>
#include <fcntl.h>
#include <libconfig.h>
#include <sys/stat.h>

#include "text.h"
#include "util.h"

#define FILE_MAX ((size_t)1024 * 1024)

static int fail(struct conffile_error *error, const char *file, int line, int r, const char *text)
{
	(void)text_copy(error->file, sizeof(error->file), file);
	error->line = line;
	(void)text_copy(error->text, sizeof(error->text), text);
	return r;
}

static int read_file(const char *path, char **ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	_cleanup_free_ char *text = NULL;
	size_t length = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	text = malloc(FILE_MAX + 2);
	if (!text)
		return -ENOMEM;
	while ((n = read(fd, text + length, FILE_MAX + 1 - length)) > 0)
		length += (size_t)n;
	if (n < 0)
		return -errno;
	if (length > FILE_MAX)
		return -EFBIG;
	text[length] = '\0';
	if (strlen(text) != length)
		return -EILSEQ;
	/* libconfig 1.5 wants an end of line behind a comment. */
	text[length] = '\n';
	text[length + 1] = '\0';
	*ret = TAKE_PTR(text);
	return 0;
}

/* Skips a string or comment that begins at p. Returns p when there is none. */
static const char *skip_opaque(const char *p)
{
	const char *end;

	if (*p == '"') {
		for (p++; *p && *p != '"'; p++)
			if (*p == '\\' && p[1])
				p++;
		return *p ? p + 1 : p;
	}
	if (*p == '#' || (*p == '/' && p[1] == '/'))
		return p + strcspn(p, "\n");
	if (*p == '/' && p[1] == '*') {
		end = strstr(p + 2, "*/");
		return end ? end + 2 : p + strlen(p);
	}
	return p;
}

static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '_' || c == '.' || c == '-' || c == '*' || c == '@';
}

/* Why a word cannot stand there; NULL when it can. */
static const char *word_problem(const char *word)
{
	int64_t value;

	if (text_parse_int(word, INT32_MIN, INT32_MAX, &value) == -ERANGE)
		return "is out of range for a whole number";
	/* "0x" and more than eight digits; with an L behind them libconfig reads 64 bits. */
	if (word[0] == '0' && (word[1] == 'x' || word[1] == 'X') && strlen(word) > 10 &&
	    !strchr(word, 'L'))
		return "is out of range for a whole number";
	if (streq(word, "@include"))
		return "is not supported; put files into conf.d/";
	return NULL;
}

static int line_of(const char *text, const char *at)
{
	int line = 1;

	for (; text < at; text++)
		line += *text == '\n';
	return line;
}

/*
 * libconfig 1.5 lets a whole number past 32 bits wrap without a word (5000000000 reads
 * 705032704), so such numbers are found in the text before it sees them.
 */
static int check_words(const char *path, const char *text, struct conffile_error *error)
{
	for (const char *p = text; *p;) {
		const char *after = skip_opaque(p), *problem;
		char word[32], why[CONFIG_ERROR_SIZE];
		size_t length = 0;

		if (after != p) {
			p = after;
			continue;
		}
		while (is_word(p[length]))
			length++;
		(void)text_format(word, sizeof(word), "%.*s", (int)MIN(length, sizeof(word) - 1),
				  p);
		problem = word_problem(word);
		if (problem) {
			(void)text_format(why, sizeof(why), "%s %s", word, problem);
			return fail(error, path, line_of(text, p), -EINVAL, why);
		}
		p += MAX(length, (size_t)1);
	}
	return 0;
}

static struct config_value value_of(const config_setting_t *setting)
{
	struct config_value value = {.type = CONFIG_VALUE_OTHER};

	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_INT:
		value.type = CONFIG_VALUE_INT;
		value.integer = config_setting_get_int(setting);
		break;
	case CONFIG_TYPE_INT64:
		value.type = CONFIG_VALUE_INT;
		value.integer = config_setting_get_int64(setting);
		break;
	case CONFIG_TYPE_FLOAT:
		value.type = CONFIG_VALUE_FLOAT;
		value.number = config_setting_get_float(setting);
		break;
	case CONFIG_TYPE_BOOL:
		value.type = CONFIG_VALUE_BOOL;
		value.boolean = config_setting_get_bool(setting);
		break;
	case CONFIG_TYPE_STRING:
		value.type = CONFIG_VALUE_STRING;
		value.string = config_setting_get_string(setting);
		break;
	default:
		break;
	}
	return value;
}

/* The line that the text ended on before read_file put an end of line there. */
static int last_line_of(const char *text)
{
	return line_of(text, text + strlen(text) - 1);
}

struct reader {
	struct config *config;
	const char *file;
	struct conffile_error *error;
};

static int fail_at(struct reader *reader, const config_setting_t *setting, const char *text)
{
	return fail(reader->error, reader->file, (int)config_setting_source_line(setting), -EINVAL,
		    text);
}

static int read_strings(struct reader *reader, const char *path, config_setting_t *setting)
{
	char why[CONFIG_ERROR_SIZE];

	if (!config_setting_is_array(setting) && !config_setting_is_list(setting)) {
		(void)text_format(why, sizeof(why), "%s must be an array of strings", path);
		return fail_at(reader, setting, why);
	}
	config_clear_strings(reader->config, path);
	for (int i = 0; i < config_setting_length(setting); i++) {
		const config_setting_t *item = config_setting_get_elem(setting, (unsigned int)i);
		struct config_value value = value_of(item);

		if (config_append_string(reader->config, path, &value, why) < 0)
			return fail_at(reader, setting, why);
	}
	return 0;
}

static int read_gpu(struct reader *reader, config_setting_t *setting)
{
	struct config_gpu gpu = {};
	char why[CONFIG_ERROR_SIZE];

	if (!config_setting_is_group(setting))
		return fail_at(reader, setting,
			       "an entry of gpus must be a group { match = ...; }");
	for (int i = 0; i < config_setting_length(setting); i++) {
		const config_setting_t *item = config_setting_get_elem(setting, (unsigned int)i);
		struct config_value value = value_of(item);

		if (config_gpu_set(&gpu, config_setting_name(item), &value, why) < 0)
			return fail_at(reader, item, why);
	}
	if (config_append_gpu(reader->config, &gpu, why) < 0)
		return fail_at(reader, setting, why);
	return 0;
}

static int read_gpus(struct reader *reader, config_setting_t *setting)
{
	int r;

	if (!config_setting_is_list(setting))
		return fail_at(reader, setting, "gpus must be a list of groups: ( { ... }, ... )");
	reader->config->n_gpus = 0;
	for (int i = 0; i < config_setting_length(setting); i++) {
		r = read_gpu(reader, config_setting_get_elem(setting, (unsigned int)i));
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_group(struct reader *reader, const char *prefix, config_setting_t *group);

static int read_setting(struct reader *reader, const char *path, config_setting_t *setting)
{
	struct config_value value = value_of(setting);
	char why[CONFIG_ERROR_SIZE];

	switch (config_kind_of(path)) {
	case CONFIG_KIND_GROUP:
		if (config_setting_is_group(setting))
			return read_group(reader, path, setting);
		(void)text_format(why, sizeof(why), "%s must be a group { ... }", path);
		return fail_at(reader, setting, why);
	case CONFIG_KIND_STRINGS:
		return read_strings(reader, path, setting);
	case CONFIG_KIND_GPUS:
		return read_gpus(reader, setting);
	case CONFIG_KIND_VALUE:
	case CONFIG_KIND_UNKNOWN:
		break;
	}
	if (config_set(reader->config, path, &value, why) < 0)
		return fail_at(reader, setting, why);
	return 0;
}

static int read_group(struct reader *reader, const char *prefix, config_setting_t *group)
{
	char path[256];
	int r;

	for (int i = 0; i < config_setting_length(group); i++) {
		config_setting_t *item = config_setting_get_elem(group, (unsigned int)i);

		(void)text_format(path, sizeof(path), "%s%s%s", prefix, *prefix ? "." : "",
				  config_setting_name(item));
		r = read_setting(reader, path, item);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_text(struct reader *reader, const char *text)
{
	config_t tree;
	int r;

	r = check_words(reader->file, text, reader->error);
	if (r < 0)
		return r;
	config_init(&tree);
	if (config_read_string(&tree, text) == CONFIG_TRUE)
		r = read_group(reader, "", config_root_setting(&tree));
	else
		r = fail(reader->error, reader->file,
			 MIN(config_error_line(&tree), last_line_of(text)), -EINVAL,
			 config_error_text(&tree));
	config_destroy(&tree);
	return r;
}

static int load_file(struct config *config, const char *path, struct conffile_list *list,
		     struct conffile_error *error)
{
	struct reader reader = {config, path, error};
	_cleanup_free_ char *text = NULL;
	int r;

	r = read_file(path, &text);
	if (!text) {
		char why[CONFIG_ERROR_SIZE];

		(void)text_format(why, sizeof(why), "cannot be read: %s",
				  r == -EILSEQ ? "it holds a NUL byte" : strerror(-r));
		return fail(error, path, 0, r, why);
	}
	if (list && list->n < CONFFILE_FILES_MAX)
		(void)text_copy(list->files[list->n++], PATH_MAX, path);
	return read_text(&reader, text);
}

static int is_fragment(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > 5 && streq(entry->d_name + length - 5, ".conf");
}

/* In the order of their bytes, whatever the locale. */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_fragments(struct config *config, const char *path, struct conffile_list *list,
			  struct conffile_error *error)
{
	const char *slash = strrchr(path, '/');
	char directory[PATH_MAX], file[PATH_MAX];
	struct dirent **entries = NULL;
	int n, r = 0;

	if (text_format(directory, sizeof(directory), "%.*sconf.d",
			slash ? (int)(slash - path + 1) : 0, path) < 0)
		return fail(error, path, 0, -ENAMETOOLONG, "the path is too long");
	n = scandir(directory, &entries, is_fragment, compare_names);
	if (n < 0 && errno != ENOENT && errno != ENOTDIR)
		return fail(error, directory, 0, -errno, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (r == 0 &&
		    text_format(file, sizeof(file), "%s/%s", directory, entries[i]->d_name) < 0)
			r = fail(error, directory, 0, -ENAMETOOLONG, "a path in it is too long");
		if (r == 0)
			r = load_file(config, file, list, error);
		free(entries[i]);
	}
	free(entries);
	return r;
}

int conffile_load(struct config *config, const char *path, struct conffile_list *list,
		  struct conffile_error *error)
{
	int r;

	config_defaults(config);
	if (list)
		list->n = 0;
	r = load_file(config, path ? path : CONFFILE_MAIN, list, error);
	if (r < 0 && !(r == -ENOENT && !path))
		return r;
	return load_fragments(config, path ? path : CONFFILE_MAIN, list, error);
}
