/* SPDX-License-Identifier: MIT */
#include "journal.h"

#include <stdarg.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "text.h"

#define FIELD_MAX 320
#define FIELDS_MAX 7
#define TEXT_MAX 4608

static struct {
	const char *program;
	bool to_journal;
	int level;
} log_state = {.program = "mps-supervisord", .level = LOG_INFO};

/* JOURNAL_STREAM=DEV:INODE names the stream that systemd connected (systemd.exec(5)). */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void journal_init(const char *program, bool verbose)
{
	log_state.program = program;
	log_state.level = verbose ? LOG_DEBUG : LOG_INFO;
	log_state.to_journal = stderr_is_journal();
}

bool journal_wants(int level)
{
	return level <= log_state.level;
}

struct fields {
	struct iovec vector[FIELDS_MAX];
	char text[FIELDS_MAX][FIELD_MAX];
	int n;
};

static void add_field(struct fields *fields, const char *name, const char *value)
{
	char *text = fields->text[fields->n];

	if (!value || !*value)
		return;
	(void)text_format(text, FIELD_MAX, "%s=%s", name, value);
	fields->vector[fields->n++] = (struct iovec){text, strlen(text)};
}

static void send_to_journal(int level, const struct journal_context *context, const char *text)
{
	struct fields fields = {};
	char message[TEXT_MAX + 16], number[16] = "";

	if (context->pid > 0)
		(void)text_format(number, sizeof(number), "%d", context->pid);
	(void)text_format(message, sizeof(message), "MESSAGE=%s", text);
	fields.vector[fields.n++] = (struct iovec){message, strlen(message)};
	(void)text_format(fields.text[1], FIELD_MAX, "PRIORITY=%d", level);
	fields.vector[fields.n++] = (struct iovec){fields.text[1], strlen(fields.text[1])};
	add_field(&fields, "MPS_INSTANCE", context->instance);
	add_field(&fields, "MPS_ROLE", context->role);
	add_field(&fields, "MPS_LEASE", context->lease);
	add_field(&fields, "MPS_PID", number);
	add_field(&fields, "MESSAGE_ID", context->message_id);
	(void)sd_journal_sendv(fields.vector, fields.n);
}

static void emit(int level, const struct journal_context *context, char *text)
{
	static const struct journal_context nothing = {};
	const char *instance;

	if (!context)
		context = &nothing;
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	if (log_state.to_journal) {
		send_to_journal(level, context, text);
		return;
	}
	instance = context->instance ? context->instance : "";
	fprintf(stderr, "%s: %s%s%s\n", log_state.program, instance, *instance ? ": " : "", text);
}

void journal_log(int level, const struct journal_context *context, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	if (!journal_wants(level))
		return;
	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	emit(level, context, text);
}

void journal_log_foreign(int level, const struct journal_context *context, const char *text,
			 size_t length)
{
	char copy[TEXT_MAX];

	if (!journal_wants(level))
		return;
	(void)text_format(copy, sizeof(copy), "%.*s", (int)MIN(length, sizeof(copy) - 1), text);
	emit(level, context, copy);
}
