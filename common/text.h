/* SPDX-License-Identifier: MIT */
/*
 * Text into fixed buffers and numbers out of text. Nothing here allocates, truncates without
 * saying so, or depends on the locale.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

/* Copies at most size - 1 bytes and always ends with NUL. -ENAMETOOLONG when text was cut. */
int text_copy(char *buffer, size_t size, const char *text);

/* printf into a buffer, always NUL-ended. -ENAMETOOLONG when it was cut. */
int text_format(char *buffer, size_t size, const char *format, ...) PRINTF_LIKE(3, 4);

/* A whole string as a decimal number in [min, max]; no sign but '-', no spaces, no base prefix.
 * -EINVAL for anything else, -ERANGE outside the range. */
int text_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret);

/* "512M", "20G", "1073741824": a whole positive number with an optional binary suffix K, M, G or
 * T ("iB" and "B" may follow). Bytes. -EINVAL, or -ERANGE past INT64_MAX. */
int text_parse_bytes(const char *text, int64_t *ret_bytes);

/* The other way, for people: "20G", "140.4G", "512M", "0K", into buffer, which it returns. bytes is
 * not negative. */
#define TEXT_BYTES_SIZE 32
const char *text_bytes(int64_t bytes, char buffer[static TEXT_BYTES_SIZE]);

/* "30", "0.5": seconds, not negative, as microseconds. -EINVAL or -ERANGE (over 100 years). */
int text_parse_seconds(const char *text, uint64_t *ret_usec);

/* FNV-1a, 32 bits: to tell texts apart, not to keep secrets. */
uint32_t text_hash(const char *text);

bool text_starts_with(const char *text, const char *prefix);
