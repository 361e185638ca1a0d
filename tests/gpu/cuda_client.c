/* SPDX-License-Identifier: MIT */
/*
 * A small CUDA program for the checks on a real GPU: says whether it runs under MPS, launches
 * kernels, holds a context, faults, or allocates. usage() lists what it can do.
 *
 * Exit status: 0 done, 2 wrong usage, 10 a CUDA error (printed on stdout), 77 no libcuda here.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

enum {
	EXIT_USAGE = 2,
	EXIT_CUDA = 10,
	EXIT_NO_CUDA = 77,
};

#define DEFAULT_SPIN_CYCLES UINT64_C(100000)
#define LIGHT_SPIN_CYCLES UINT64_C(10000)
#define HOLD_INTERVAL_MSEC 20
#define GO_POLL_USEC 1000
#define SPIN_SECONDS_MAX 3600.0

struct options {
	const char *go_path;
	uint64_t after_msec;
	bool stubborn;
	int n_arguments;
	char **arguments;
};

static int usage(FILE *stream, int status)
{
	fputs("usage: cuda_client VERB\n"
	      "  init                               time initialisation, describe the device\n"
	      "  spin SECONDS [CYCLES] [--go FILE]  launch kernels, once FILE exists\n"
	      "  hold [--stubborn]                  hold a context until end of input\n"
	      "  fault [--after MS] [--stubborn]    hold, then store to an illegal address\n"
	      "  trap [--after MS] [--stubborn]     hold, then trap in a kernel\n"
	      "  alloc BYTES                        allocate device memory\n"
	      "  now                                the clock that errors are stamped with\n"
	      "--stubborn: after an error stay until killed, and ignore SIGTERM\n",
	      stream);
	return status;
}

static int exit_status(int r)
{
	if (r == 0)
		return EXIT_SUCCESS;
	return r < 0 ? EXIT_NO_CUDA : EXIT_CUDA;
}

static bool parse_u64(const char *text, uint64_t *ret_value)
{
	unsigned long long value;
	char *end = NULL;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0')
		return false;
	*ret_value = value;
	return true;
}

static bool parse_seconds(const char *text, uint64_t *ret_usec)
{
	char *end = NULL;
	double seconds = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(seconds))
		return false;
	if (seconds < 0 || seconds > SPIN_SECONDS_MAX)
		return false;
	*ret_usec = (uint64_t)(seconds * 1e6);
	return true;
}

/* Everything a verb needs before its first kernel. */
static int prepare(struct cuda *cuda)
{
	int r;

	r = cuda_load(cuda);
	if (r != 0)
		return r;
	r = cuda_open(cuda);
	if (r != 0)
		return r;
	r = cuda_describe(cuda);
	if (r != 0)
		return r;
	r = cuda_compile(cuda);
	if (r != 0)
		return r;
	/* The first launch also loads the kernel onto the device. */
	return cuda_spin(cuda, 0);
}

static int verb_init(const struct options *options)
{
	struct cuda cuda = {0};
	uint64_t start_usec;
	int r;

	if (options->n_arguments != 0)
		return usage(stderr, EXIT_USAGE);
	r = cuda_load(&cuda);
	if (r != 0)
		return exit_status(r);
	start_usec = monotonic_usec();
	r = cuda_open(&cuda);
	if (r != 0)
		return exit_status(r);
	printf("init_ms %.1f\n", (double)(monotonic_usec() - start_usec) / 1000.0);
	r = cuda_describe(&cuda);
	if (r != 0)
		return exit_status(r);
	printf("dev %s %s sm %d mps %d\n", cuda.uuid, cuda.name, cuda.n_multiprocessors,
	       cuda.under_mps);
	return EXIT_SUCCESS;
}

static void wait_for_go(const char *path)
{
	puts("ready");
	while (access(path, F_OK) < 0)
		usleep(GO_POLL_USEC);
}

static int verb_spin(const struct options *options)
{
	struct cuda cuda = {0};
	uint64_t n_cycles = DEFAULT_SPIN_CYCLES;
	uint64_t n_launches = 0;
	uint64_t duration_usec;
	uint64_t end_usec;
	int r;

	if (options->n_arguments < 1 || options->n_arguments > 2 ||
	    !parse_seconds(options->arguments[0], &duration_usec))
		return usage(stderr, EXIT_USAGE);
	if (options->n_arguments == 2 && !parse_u64(options->arguments[1], &n_cycles))
		return usage(stderr, EXIT_USAGE);
	r = prepare(&cuda);
	if (r != 0)
		return exit_status(r);
	if (options->go_path)
		wait_for_go(options->go_path);
	end_usec = monotonic_usec() + duration_usec;
	for (; monotonic_usec() < end_usec; n_launches++) {
		r = cuda_spin(&cuda, n_cycles);
		if (r != 0)
			return exit_status(r);
	}
	printf("launches %" PRIu64 " mps %d pid %d\n", n_launches, cuda.under_mps, getpid());
	return EXIT_SUCCESS;
}

/* Waits one interval for the end of input, or just waits for a negative `input_fd`. */
static bool input_ended(int input_fd)
{
	struct pollfd input = {.fd = input_fd, .events = POLLIN};
	char scratch[256];

	if (poll(&input, 1, HOLD_INTERVAL_MSEC) <= 0)
		return false;
	return read(input_fd, scratch, sizeof(scratch)) <= 0;
}

/* Keeps the context in use until the time has come (0), the input has ended (0) or an error. */
static int hold_until(const struct cuda *cuda, uint64_t end_usec, int input_fd)
{
	int r;

	while (monotonic_usec() < end_usec) {
		r = cuda_spin(cuda, LIGHT_SPIN_CYCLES);
		if (r != 0)
			return r;
		if (input_ended(input_fd))
			return 0;
	}
	return 0;
}

static int finish(const struct options *options, int r)
{
	while (options->stubborn && r > 0)
		pause();
	return exit_status(r);
}

static int hold_then(const struct options *options, int (*act)(const struct cuda *cuda))
{
	struct cuda cuda = {0};
	uint64_t end_usec = UINT64_MAX;
	int r;

	if (options->n_arguments != 0)
		return usage(stderr, EXIT_USAGE);
	if (options->stubborn)
		(void)signal(SIGTERM, SIG_IGN);
	r = prepare(&cuda);
	if (r != 0)
		return finish(options, r);
	printf("ready pid %d mps %d\n", getpid(), cuda.under_mps);
	if (act)
		end_usec = monotonic_usec() + options->after_msec * 1000;
	r = hold_until(&cuda, end_usec, act ? -EBADF : STDIN_FILENO);
	if (r == 0 && act)
		r = act(&cuda);
	return finish(options, r);
}

static int verb_hold(const struct options *options)
{
	return hold_then(options, NULL);
}

static int verb_fault(const struct options *options)
{
	return hold_then(options, cuda_fault);
}

static int verb_trap(const struct options *options)
{
	return hold_then(options, cuda_trap);
}

static int verb_alloc(const struct options *options)
{
	struct cuda cuda = {0};
	size_t free_bytes = 0;
	size_t total_bytes = 0;
	uint64_t address = 0;
	uint64_t n_bytes;
	int r;

	if (options->n_arguments != 1 || !parse_u64(options->arguments[0], &n_bytes))
		return usage(stderr, EXIT_USAGE);
	r = cuda_load(&cuda);
	if (r != 0)
		return exit_status(r);
	r = cuda_open(&cuda);
	if (r != 0)
		return exit_status(r);
	r = cuda_check(&cuda, cuda.api.memory_get_info(&free_bytes, &total_bytes), "cuMemGetInfo");
	if (r != 0)
		return exit_status(r);
	printf("memory free %zu total %zu\n", free_bytes, total_bytes);
	r = cuda_check(&cuda, cuda.api.memory_allocate(&address, n_bytes), "cuMemAlloc");
	if (r != 0)
		return exit_status(r);
	printf("alloc %" PRIu64 " ok\n", n_bytes);
	return EXIT_SUCCESS;
}

static int verb_now(const struct options *options)
{
	if (options->n_arguments != 0)
		return usage(stderr, EXIT_USAGE);
	printf("%" PRIu64 "\n", monotonic_usec());
	return EXIT_SUCCESS;
}

static const struct verb {
	const char *name;
	int (*run)(const struct options *options);
} verbs[] = {
	{"init", verb_init}, {"spin", verb_spin},   {"hold", verb_hold}, {"fault", verb_fault},
	{"trap", verb_trap}, {"alloc", verb_alloc}, {"now", verb_now},
};

static int parse_options(int argc, char **argv, struct options *options)
{
	static const struct option long_options[] = {
		{"go", required_argument, NULL, 'g'},
		{"after", required_argument, NULL, 'a'},
		{"stubborn", no_argument, NULL, 's'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (c == 'g')
			options->go_path = optarg;
		else if (c == 's')
			options->stubborn = true;
		else if (c != 'a' || !parse_u64(optarg, &options->after_msec))
			return -EINVAL;
	}
	options->n_arguments = argc - optind;
	options->arguments = argv + optind;
	return 0;
}

static int run(int argc, char **argv)
{
	struct options options = {0};

	if (argc < 2)
		return usage(stderr, EXIT_USAGE);
	if (strcmp(argv[1], "--help") == 0)
		return usage(stdout, EXIT_SUCCESS);
	if (parse_options(argc - 1, argv + 1, &options) < 0)
		return usage(stderr, EXIT_USAGE);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(&options);
	}
	return usage(stderr, EXIT_USAGE);
}

int main(int argc, char **argv)
{
	/* The checks read this from a file or a pipe while the program runs. */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	return run(argc, argv);
}
