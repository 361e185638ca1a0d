/* SPDX-License-Identifier: MIT */
/*
 * Text for people: tables, times, sizes, and fields of answers that may lack them. Values that
 * came from the supervisor lose their control characters here.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "util.h"

#define LAYOUT_COLUMNS_MAX 16
#define LAYOUT_TEXT_MAX 64

struct layout_table {
	size_t n_columns;
	char **cells; /* owned, each and the array; row by row */
	size_t n_cells, size;
	int failed; /* -ENOMEM once something could not be kept */
};

/* titles is ended by NULL and becomes the first row. */
void layout_table_init(struct layout_table *table, const char *const titles[]);
void layout_table_done(struct layout_table *table);

/* The next cell. */
void layout_cell(struct layout_table *table, const char *format, ...) PRINTF_LIKE(2, 3);

/* Each row behind indent spaces; the last column is not padded. */
void layout_table_print(const struct layout_table *table, FILE *file, int indent);

/* printf without control characters, but for a newline at the end of format. */
void layout_line(FILE *file, const char *format, ...) PRINTF_LIKE(2, 3);

/* A string or integer field; otherwise when it is absent, null or of another type. */
const char *layout_text(const json_t *object, const char *key, const char *otherwise);
int64_t layout_int(const json_t *object, const char *key, int64_t otherwise);

/* Into buffer, which they return. Realtime microseconds as "2026-11-30 17:04:11"; a duration as
 * "3d 4h", "4h 5m", "5m 6s" or "6s"; bytes as "20G"; a number. "-" for negative ones, but "0s".
 */
const char *layout_time(int64_t usec, char buffer[static LAYOUT_TEXT_MAX]);
const char *layout_duration(int64_t usec, char buffer[static LAYOUT_TEXT_MAX]);
const char *layout_bytes(int64_t bytes, char buffer[static LAYOUT_TEXT_MAX]);
const char *layout_number(int64_t number, char buffer[static LAYOUT_TEXT_MAX]);
/* "1000 (alice)"; "1000" when nobody has it; "-" for a negative one. */
const char *layout_user(int64_t uid, char buffer[static LAYOUT_TEXT_MAX]);

/* A reason as the supervisor put it, with the names of users: "GPU in use by uid 1000 (alice), 1
 * lease". Cut to size. */
#define LAYOUT_REASON_MAX 1024
const char *layout_reason(const char *reason, char buffer[static LAYOUT_REASON_MAX]);

/* A JSON value, indented, and a newline. */
void layout_json(FILE *file, const json_t *value);
