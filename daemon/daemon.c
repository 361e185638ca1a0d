/* SPDX-License-Identifier: MIT */
#include "daemon.h"

#include <linux/close_range.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "conffile.h"
#include "journal.h"
#include "manager.h"
#include "service.h"
#include "util.h"

static void manager_freep(struct manager **manager)
{
	(void)manager_free(*manager);
}

static void event_freep(sd_event **event)
{
	(void)sd_event_unref(*event);
}

static void say_error(const struct conffile_error *error)
{
	if (error->line > 0)
		fprintf(stderr, "%s:%d: %s\n", error->file, error->line, error->text);
	else
		fprintf(stderr, "%s: %s\n", error->file, error->text);
}

/* -n and --print-config: answers on standard output, no daemon. */
static int answer(const struct options *options, const struct config *config,
		  const struct conffile_list *files)
{
	if (options->print)
		config_print(config, stdout);
	if (options->check && files->n == 0)
		puts(CONFFILE_MAIN ": OK");
	for (size_t i = 0; options->check && i < files->n; i++)
		printf("%s: OK\n", files->files[i]);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void on_job_known(bool restart, void *userdata)
{
	if (restart)
		manager_leave(userdata);
	else
		manager_stop(userdata);
}

static int on_stop_signal(sd_event_source *source, const struct signalfd_siginfo *info,
			  void *userdata)
{
	log_info("got %s from process %u", strsignal((int)info->ssi_signo), info->ssi_pid);
	service_stopping();
	if (info->ssi_signo == SIGTERM)
		service_ask_job(sd_event_source_get_event(source), on_job_known, userdata);
	else
		manager_stop(userdata);
	return 0;
}

static int on_reload_signal(sd_event_source *source, const struct signalfd_siginfo *info,
			    void *userdata)
{
	(void)source;
	(void)info;
	manager_reload(userdata);
	return 0;
}

static int add_signals(sd_event *event, struct manager *manager)
{
	static const int stop_signals[] = {SIGTERM, SIGINT};
	int r;

	for (size_t i = 0; i < ELEMENTSOF(stop_signals); i++) {
		r = sd_event_add_signal(event, NULL, stop_signals[i], on_stop_signal, manager);
		if (r < 0)
			return r;
	}
	return sd_event_add_signal(event, NULL, SIGHUP, on_reload_signal, manager);
}

/* Signals come through the event loop only; SIGPIPE not at all. */
static int block_signals(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < 4; i++)
		(void)sigaddset(&set, (int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP}[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return -errno;
	return 0;
}

/* A connection and a pidfd for each lease: take what we may have. Programs that we start get it
 * too; those of MPS do not use select(2) on high numbers. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int run_loop(const struct options *options, const struct config *config)
{
	_cleanup_(event_freep) sd_event *event = NULL;
	_cleanup_(manager_freep) struct manager *manager = NULL;
	int r;

	r = block_signals();
	if (r == 0)
		r = sd_event_new(&event);
	if (r >= 0)
		r = service_init(event);
	if (r < 0) {
		log_error("cannot start: %s", strerror(-r));
		return r;
	}
	r = manager_new(event, config, options->config_path, &manager);
	if (r < 0)
		return r;
	r = add_signals(event, manager);
	if (r < 0)
		return r;
	return sd_event_loop(event);
}

int daemon_run(const struct options *options)
{
	_cleanup_free_ struct config *config = malloc(sizeof(*config));
	_cleanup_free_ struct conffile_list *files = malloc(sizeof(*files));
	struct conffile_error error;
	int r;

	journal_init("mps-supervisord", options->verbose);
	if (!config || !files) {
		log_error("cannot start: out of memory");
		return EXIT_FAILURE;
	}
	if (conffile_load(config, options->config_path, files, &error) < 0) {
		say_error(&error);
		return EXIT_FAILURE;
	}
	if (options->check || options->print)
		return answer(options, config, files);
	(void)umask(022);
	/* Whatever we were started with is not for the programs that we start. */
	(void)close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	raise_descriptor_limit();
	r = run_loop(options, config);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
