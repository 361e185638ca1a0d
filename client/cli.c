/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>

#include "text.h"

void cli_sanitize(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p; p++) {
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			p[0] = p[1] = '?';
	}
}

/* One write: lines of several processes on one stderr do not mix. */
static void write_line(char *line, size_t length)
{
	cli_sanitize(line);
	line[length] = '\n';
	if (write(STDERR_FILENO, line, length + 1) < 0)
		return; /* nowhere left to say so */
}

static void PRINTF_LIKE(2, 0) print_va(const char *tail, const char *format, va_list ap)
{
	char message[CLI_MESSAGE_MAX], line[CLI_MESSAGE_MAX + 128];

	(void)vsnprintf(message, sizeof(message), format, ap);
	(void)text_format(line, sizeof(line) - 1, "mpsctl: %s%s", message, tail);
	write_line(line, strlen(line));
}

void cli_print(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	print_va("", format, ap);
	va_end(ap);
}

int cli_usage(const char *command, const char *format, ...)
{
	char tail[64];
	va_list ap;

	(void)text_format(tail, sizeof(tail), "; see mpsctl %s%s--help", command,
			  *command ? " " : "");
	va_start(ap, format);
	print_va(tail, format, ap);
	va_end(ap);
	return CLI_USAGE;
}

int cli_bad_option(const char *command, int answer, char *const argv[])
{
	const char *word = argv[optind - 1];
	bool is_long = text_starts_with(word, "--");

	if (answer == ':')
		return cli_usage(command, "option %s needs a value", word);
	if (optopt && is_long && strchr(word, '='))
		return cli_usage(command, "option %s takes no value", word);
	if (optopt)
		return cli_usage(command, "unknown option -%c", optopt);
	return cli_usage(command, "unknown or ambiguous option %s", word);
}

void cli_restart_options(void)
{
	optind = 0; /* glibc: start anew, and look at '+' and ':' again */
	opterr = 0;
}

int cli_help(const char *text)
{
	(void)fputs(text, stdout);
	return cli_flush();
}

int cli_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_OK;
	cli_print("cannot write to standard output: %s", strerror(errno));
	return CLI_FAILED;
}

int cli_parse_int(const char *command, const char *option, const char *text, int64_t min,
		  int64_t max, int64_t *ret)
{
	if (text_parse_int(text, min, max, ret) == 0)
		return 0;
	return cli_usage(command, "%s \"%s\" is not a whole number from %" PRId64 " to %" PRId64,
			 option, text, min, max);
}

int cli_parse_seconds(const char *command, const char *option, const char *text, int64_t *ret_ms)
{
	uint64_t usec;

	if (text_parse_seconds(text, &usec) < 0)
		return cli_usage(command, "%s \"%s\" is not a number of seconds", option, text);
	*ret_ms = (int64_t)((usec + USEC_PER_MSEC - 1) / USEC_PER_MSEC);
	return 0;
}
