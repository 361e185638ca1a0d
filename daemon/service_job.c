/* SPDX-License-Identifier: MIT */
/*
 * Is SIGTERM for a restart or for good? systemd knows: our unit has a job of that type then
 * (measured, 252). It is asked over its own socket, which root may use and which is there without a
 * D-Bus daemon; else over the system bus.
 */
#include <stdlib.h>
#include <unistd.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-login.h>

#include "journal.h"
#include "service.h"
#include "util.h"

#define PRIVATE_ADDRESS "unix:path=/run/systemd/private"
#define DESTINATION "org.freedesktop.systemd1"
#define PATH "/org/freedesktop/systemd1"
#define DEADLINE_USEC USEC_PER_SEC

struct job_question {
	sd_bus *bus; /* owned, like the next */
	sd_event_source *deadline;
	service_job_handler handler;
	void *userdata;
};

static void answer(struct job_question *question, bool restart)
{
	service_job_handler handler = question->handler;
	void *userdata = question->userdata;

	sd_event_source_disable_unref(question->deadline);
	sd_bus_close(question->bus);
	sd_bus_unref(question->bus);
	free(question);
	handler(restart, userdata);
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	log_warning("systemd does not say whether this is a restart, so it is a stop");
	answer(userdata, false);
	return 0;
}

static int on_type(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	const char *type = "";

	(void)error;
	if (!sd_bus_message_is_method_error(reply, NULL) &&
	    sd_bus_message_enter_container(reply, 'v', "s") >= 0)
		(void)sd_bus_message_read(reply, "s", &type);
	/* `systemctl restart`; try-restart becomes one. */
	answer(userdata, streq(type, "restart"));
	return 0;
}

static int ask_property(struct job_question *question, const char *path, const char *interface,
			const char *property, sd_bus_message_handler_t handler)
{
	return sd_bus_call_method_async(question->bus, NULL, DESTINATION, path,
					"org.freedesktop.DBus.Properties", "Get", handler, question,
					"ss", interface, property);
}

static int on_job(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct job_question *question = userdata;
	const char *path = "/";
	uint32_t id = 0;

	(void)error;
	if (sd_bus_message_is_method_error(reply, NULL) ||
	    sd_bus_message_enter_container(reply, 'v', "(uo)") < 0 ||
	    sd_bus_message_read(reply, "(uo)", &id, &path) < 0 || id == 0 ||
	    ask_property(question, path, DESTINATION ".Job", "JobType", on_type) < 0)
		answer(question, false);
	return 0;
}

static int on_unit(sd_bus_message *reply, void *userdata, sd_bus_error *error)
{
	struct job_question *question = userdata;
	const char *path;

	(void)error;
	if (sd_bus_message_is_method_error(reply, NULL) ||
	    sd_bus_message_read(reply, "o", &path) < 0 ||
	    ask_property(question, path, DESTINATION ".Unit", "Job", on_job) < 0)
		answer(question, false);
	return 0;
}

static int open_private(sd_bus **ret)
{
	sd_bus *bus = NULL;
	int r;

	r = sd_bus_new(&bus);
	if (r >= 0)
		r = sd_bus_set_address(bus, PRIVATE_ADDRESS);
	if (r >= 0)
		r = sd_bus_start(bus);
	if (r < 0) {
		sd_bus_unref(bus);
		return r;
	}
	*ret = bus;
	return 0;
}

static int start(struct job_question *question, sd_event *event)
{
	int r;

	r = open_private(&question->bus);
	if (r < 0)
		r = sd_bus_open_system(&question->bus);
	if (r < 0)
		return r;
	r = sd_bus_attach_event(question->bus, event, SD_EVENT_PRIORITY_NORMAL);
	if (r >= 0)
		r = sd_event_add_time_relative(event, &question->deadline, CLOCK_MONOTONIC,
					       DEADLINE_USEC, 0, on_deadline, question);
	if (r >= 0)
		r = sd_bus_call_method_async(question->bus, NULL, DESTINATION, PATH,
					     DESTINATION ".Manager", "GetUnitByPID", on_unit,
					     question, "u", (uint32_t)getpid());
	return r;
}

void service_ask_job(sd_event *event, service_job_handler handler, void *userdata)
{
	struct job_question *question;

	/* Not started by systemd, so it has no job for us. */
	if (!getenv("INVOCATION_ID")) {
		handler(false, userdata);
		return;
	}
	question = calloc(1, sizeof(*question));
	if (!question) {
		handler(false, userdata);
		return;
	}
	question->handler = handler;
	question->userdata = userdata;
	if (start(question, event) < 0)
		answer(question, false);
}
