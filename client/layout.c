/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>

#include "cli.h"
#include "text.h"

#define COLUMN_GAP 2

void layout_table_init(struct layout_table *table, const char *const titles[])
{
	*table = (struct layout_table){};
	while (titles[table->n_columns])
		table->n_columns++;
	for (size_t i = 0; i < table->n_columns; i++)
		layout_cell(table, "%s", titles[i]);
}

void layout_table_done(struct layout_table *table)
{
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cells[i]);
	free(TAKE_PTR(table->cells));
	table->n_cells = table->size = 0;
}

static int reserve_cell(struct layout_table *table)
{
	size_t size = MAX(table->size * 2, (size_t)64);
	char **cells;

	if (table->n_cells < table->size)
		return 0;
	cells = reallocarray(table->cells, size, sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	table->cells = cells;
	table->size = size;
	return 0;
}

void layout_cell(struct layout_table *table, const char *format, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (reserve_cell(table) < 0 || vasprintf(&text, format, ap) < 0)
		table->failed = -ENOMEM;
	else
		cli_sanitize(text);
	va_end(ap);
	if (table->failed == 0)
		table->cells[table->n_cells++] = text;
}

/* Characters, not bytes, as far as UTF-8 goes. */
static size_t text_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static size_t column_width(const struct layout_table *table, size_t column)
{
	size_t width = 0;

	for (size_t i = column; i < table->n_cells; i += table->n_columns)
		width = MAX(width, text_width(table->cells[i]));
	return width;
}

void layout_table_print(const struct layout_table *table, FILE *file, int indent)
{
	size_t widths[LAYOUT_COLUMNS_MAX] = {};

	for (size_t i = 0; i < MIN(table->n_columns, (size_t)LAYOUT_COLUMNS_MAX); i++)
		widths[i] = column_width(table, i) + COLUMN_GAP;
	for (size_t i = 0; table->n_columns > 0 && i < table->n_cells; i++) {
		size_t column = i % table->n_columns;
		size_t pad = widths[column] - MIN(widths[column], text_width(table->cells[i]));

		if (column == 0)
			(void)fprintf(file, "%*s", indent, "");
		if (column + 1 == table->n_columns)
			(void)fprintf(file, "%s\n", table->cells[i]);
		else
			(void)fprintf(file, "%s%*s", table->cells[i], (int)pad, "");
	}
}

void layout_line(FILE *file, const char *format, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;
	int length;

	va_start(ap, format);
	length = vasprintf(&text, format, ap);
	va_end(ap);
	if (length < 0) {
		text = NULL;
		return;
	}
	if (length > 0 && text[length - 1] == '\n')
		text[length - 1] = '\0';
	cli_sanitize(text);
	(void)fprintf(file, "%s\n", text);
}

const char *layout_text(const json_t *object, const char *key, const char *otherwise)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : otherwise;
}

int64_t layout_int(const json_t *object, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

const char *layout_time(int64_t usec, char buffer[static LAYOUT_TEXT_MAX])
{
	time_t seconds = (time_t)(usec / (int64_t)USEC_PER_SEC);
	struct tm tm;

	if (usec < 0 || !localtime_r(&seconds, &tm) ||
	    strftime(buffer, LAYOUT_TEXT_MAX, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		(void)text_copy(buffer, LAYOUT_TEXT_MAX, "-");
	return buffer;
}

const char *layout_duration(int64_t usec, char buffer[static LAYOUT_TEXT_MAX])
{
	int64_t s = MAX(usec, 0) / (int64_t)USEC_PER_SEC;

	if (s >= 86400)
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64 "d %" PRId64 "h", s / 86400,
				  s / 3600 % 24);
	else if (s >= 3600)
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64 "h %" PRId64 "m", s / 3600,
				  s / 60 % 60);
	else if (s >= 60)
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64 "m %" PRId64 "s", s / 60,
				  s % 60);
	else
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64 "s", s);
	return buffer;
}

const char *layout_number(int64_t number, char buffer[static LAYOUT_TEXT_MAX])
{
	if (number < 0)
		(void)text_copy(buffer, LAYOUT_TEXT_MAX, "-");
	else
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64, number);
	return buffer;
}

const char *layout_bytes(int64_t bytes, char buffer[static LAYOUT_TEXT_MAX])
{
	return bytes < 0 ? layout_number(bytes, buffer) : text_bytes(bytes, buffer);
}

const char *layout_user(int64_t uid, char buffer[static LAYOUT_TEXT_MAX])
{
	const struct passwd *user = uid >= 0 && uid < UINT32_MAX ? getpwuid((uid_t)uid) : NULL;

	if (uid < 0)
		(void)text_copy(buffer, LAYOUT_TEXT_MAX, "-");
	else if (user)
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64 " (%s)", uid, user->pw_name);
	else
		(void)text_format(buffer, LAYOUT_TEXT_MAX, "%" PRId64, uid);
	return buffer;
}

const char *layout_reason(const char *reason, char buffer[static LAYOUT_REASON_MAX])
{
	static const char mark[] = "uid ";
	size_t length = 0, digits;
	const char *uid;

	while ((uid = strstr(reason, mark))) {
		char user[LAYOUT_TEXT_MAX] = "";

		uid += strlen(mark);
		digits = strspn(uid, "0123456789");
		if (digits > 0)
			(void)layout_user(strtoll(uid, NULL, 10), user);
		(void)text_format(buffer + length, LAYOUT_REASON_MAX - length, "%.*s%s",
				  (int)(uid - reason), reason, user);
		length += strlen(buffer + length);
		reason = uid + digits;
	}
	(void)text_copy(buffer + length, LAYOUT_REASON_MAX - length, reason);
	return buffer;
}

void layout_json(FILE *file, const json_t *value)
{
	(void)json_dumpf(value, file, JSON_INDENT(2));
	(void)fputc('\n', file);
}
