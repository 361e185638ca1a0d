/* SPDX-License-Identifier: MIT */
/*
 * What a control daemon and its servers print, line by line. They write into a FIFO that we hold
 * open for reading and writing, non-blocking: nobody ever gets SIGPIPE, and a daemon whose lines
 * are not read loses lines instead of wedging after 64 KiB (measured, 580).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

/* The longest line passed on whole; what comes after is cut off. */
#define OUTPUT_LINE_MAX 4096u

typedef void (*output_handler)(const char *line, size_t length, void *userdata);

struct output {
	int fd; /* owned; for the daemon's standard output and error too */
	sd_event_source *source;
	output_handler handler;
	void *userdata;
	uint64_t *n_lines, *n_cut; /* counters; borrowed */
	size_t length;
	int cutting;
	char line[OUTPUT_LINE_MAX];
};

/* Makes the FIFO at path (0600) or takes the one that is there. */
int output_open(struct output *output, sd_event *event, const char *path, output_handler handler,
		void *userdata, uint64_t *n_lines, uint64_t *n_cut);

/* Passes on the lines that are there now. */
void output_catch_up(struct output *output);
/* Likewise, and a last line without an end: the daemon has just died. */
void output_drain(struct output *output);

void output_close(struct output *output);
