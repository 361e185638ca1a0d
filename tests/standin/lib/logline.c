/* SPDX-License-Identifier: MIT */
/* Log lines in the format of the real programs; see logline.h. */
#include "logline.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 4096

void log_line(const char *role, pid_t pid, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	struct timeval now;
	struct tm local;
	va_list arguments;
	size_t length;
	int n;

	gettimeofday(&now, NULL);
	localtime_r(&now.tv_sec, &local);
	length = strftime(line, sizeof(line), "[%Y-%m-%d %H:%M:%S", &local);
	n = snprintf(line + length, sizeof(line) - length, ".%03d %s %5d] ",
		     (int)(now.tv_usec / 1000), role, pid);
	length += (size_t)n;
	va_start(arguments, format);
	n = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	va_end(arguments);
	length += (size_t)n;
	if (length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	if (write(STDOUT_FILENO, line, length) < 0)
		return;
}
