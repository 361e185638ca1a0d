/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <stdarg.h>

#define SECONDS_MAX UINT64_C(3155760000) /* a hundred years */

int text_copy(char *buffer, size_t size, const char *text)
{
	size_t length = strnlen(text, size);

	if (length < size) {
		memcpy(buffer, text, length + 1);
		return 0;
	}
	memcpy(buffer, text, size - 1);
	buffer[size - 1] = '\0';
	return -ENAMETOOLONG;
}

int text_format(char *buffer, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(buffer, size, format, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	return (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* Reads digits; -EINVAL without any, -ERANGE past UINT64_MAX. Leaves *text behind them. */
static int read_digits(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t value = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return -ERANGE;
	*text = p;
	*ret = value;
	return 0;
}

int text_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret)
{
	bool negative = *text == '-';
	uint64_t magnitude;
	int64_t value;
	int r;

	text += negative;
	r = read_digits(&text, &magnitude);
	if (r < 0)
		return r;
	if (*text != '\0')
		return -EINVAL;
	if (magnitude > (uint64_t)INT64_MAX)
		return -ERANGE;
	value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
	if (value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

static int suffix_shift(char suffix, unsigned int *ret_shift)
{
	switch (suffix) {
	case 'K':
	case 'k':
		*ret_shift = 10;
		return 0;
	case 'M':
	case 'm':
		*ret_shift = 20;
		return 0;
	case 'G':
	case 'g':
		*ret_shift = 30;
		return 0;
	case 'T':
	case 't':
		*ret_shift = 40;
		return 0;
	default:
		return -EINVAL;
	}
}

int text_parse_bytes(const char *text, int64_t *ret_bytes)
{
	unsigned int shift = 0;
	uint64_t value;
	int r;

	r = read_digits(&text, &value);
	if (r < 0)
		return r;
	if (suffix_shift(*text, &shift) == 0) {
		text++;
		if (*text == 'i')
			text++;
	}
	if (*text == 'B')
		text++;
	if (*text != '\0' || value == 0)
		return -EINVAL;
	if (value > (uint64_t)INT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = (int64_t)(value << shift);
	return 0;
}

const char *text_bytes(int64_t bytes, char buffer[static TEXT_BYTES_SIZE])
{
	static const char suffixes[] = "KMGT";
	double value = (double)bytes / 1024;
	size_t i = 0;

	for (; value >= 1024 && suffixes[i + 1]; i++)
		value /= 1024;
	(void)text_format(buffer, TEXT_BYTES_SIZE, "%.*f%c", value != (double)(int64_t)value, value,
			  suffixes[i]);
	return buffer;
}

int text_parse_seconds(const char *text, uint64_t *ret_usec)
{
	uint64_t seconds = 0, fraction = 0, unit = USEC_PER_SEC / 10;
	int r;

	r = read_digits(&text, &seconds);
	if (r < 0)
		return r;
	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9'; text++, unit /= 10)
			fraction += (uint64_t)(*text - '0') * unit;
	if (*text != '\0')
		return -EINVAL;
	if (seconds > SECONDS_MAX)
		return -ERANGE;
	*ret_usec = seconds * USEC_PER_SEC + fraction;
	return 0;
}

uint32_t text_hash(const char *text)
{
	uint32_t hash = 2166136261u;

	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		hash = (hash ^ *p) * 16777619u;
	return hash;
}

bool text_starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}
