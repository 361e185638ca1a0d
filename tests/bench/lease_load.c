/* SPDX-License-Identifier: MIT */
/*
 * Load on the supervisor's socket: many connections with a lease or a request each, and leases that
 * end and are taken again at a rate. Prints figures; judges nothing.
 *
 *   lease_load [-H HOLDERS] [-W WAITERS] [-n PENDING] [-s SECONDS] [-u USERS] [-p PID] SOCKET
 *              [MODE:RATE]...
 *
 * opens HOLDERS + WAITERS (1000, 5000) connections, asks on each, and expects that just so many are
 * granted and queued. Then, in each MODE for SECONDS (10), the oldest lease ends, over and over,
 * and who had it asks again at once, at the end of the queue:
 *
 *   release  by ReleaseLease on a connection beside it
 *   close    by closing its connection, as the end of a job does; it asks again on a new one
 *
 * RATE of them a second, whatever comes of it (an open loop: what is late counts from when it was
 * due), or with RATE 0 as fast as they go, with PENDING (32) under way. A pair is a lease that has
 * ended and one that was granted. Latency, when somebody waits: from the release to the next grant
 * that is read, whose ever it is. When nobody does (-W 0): from asking to the grant.
 *
 * -u connects as USERS users in turn (from uid 10000 on, needs root); 0: as whoever calls it. -p is
 * the supervisor, whose CPU time and memory are printed then.
 *
 * Exit status: 0, 1 when anything was not as expected, 2 for wrong usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define USEC_PER_SEC UINT64_C(1000000)
#define BUFFER_SIZE (1024u * 1024)
#define EVENTS_PER_TURN 256
#define ID_LENGTH 8
#define CALL_MAX 160
#define SAMPLES_MAX (4u * 1024 * 1024)
#define FIRST_UID 10000u
/* How long the supervisor may take for what is to come to an end by itself. */
#define SETTLE_USEC (120 * USEC_PER_SEC)
#define QUIET_USEC (USEC_PER_SEC / 4)

static const char acquire_call[] =
	"{\"method\":\"io.mps-supervisor.AcquireLease\",\"parameters\":{},\"more\":true}";
static const char release_call[] =
	"{\"method\":\"io.mps-supervisor.ReleaseLease\",\"parameters\":{\"id\":\"%.8s\"}}";

enum slot_state {
	SLOT_ASKED, /* no answer yet */
	SLOT_QUEUED,
	SLOT_GRANTED,
	SLOT_RELEASED, /* by another connection; not told yet */
};

/* One connection, which has or wants one lease. */
struct slot {
	int fd;
	enum slot_state state;
	char id[ID_LENGTH];
	uint64_t asked_usec;
	char *partial; /* owned; a message that is not all here */
	size_t partial_length;
};

/* First in, first out. Sized for all slots, and no slot is in it twice. */
struct ring {
	uint64_t *values;
	size_t size, first, n;
};

static struct {
	struct sockaddr_un address;
	size_t n_holders, n_waiters, n_slots, n_pending_max;
	uint64_t seconds;
	unsigned n_users;
	pid_t supervisor;

	int epoll_fd, timer_fd;
	struct slot *slots;   /* the last one is the connection that releases */
	struct ring granted;  /* indexes of slots, the longest granted first */
	struct ring releases; /* when each that no grant has followed yet was due */
	size_t n_pending, n_asked, n_queued;

	bool closing, measuring;
	uint64_t rate, n_due, begin_usec;
	uint64_t n_pairs, n_messages, n_bytes;
	uint64_t *samples_usec;
	size_t n_samples;
} load;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list ap;

	(void)fputs("lease_load: ", stderr);
	va_start(ap, format);
	(void)vfprintf(stderr, format, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

static uint64_t now_usec(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * USEC_PER_SEC + (uint64_t)now.tv_nsec / 1000;
}

static void *allocate(size_t n, size_t size)
{
	void *memory = calloc(n, size);

	if (!memory)
		die("out of memory");
	return memory;
}

static void ring_put(struct ring *ring, uint64_t value)
{
	if (ring->n == ring->size)
		die("more grants than leases were ended");
	ring->values[(ring->first + ring->n++) % ring->size] = value;
}

static uint64_t ring_take(struct ring *ring)
{
	uint64_t value = ring->values[ring->first];

	if (ring->n == 0)
		die("a grant that nothing was released for");
	ring->first = (ring->first + 1) % ring->size;
	ring->n--;
	return value;
}

/* ---------------------------------------------------------------- connections */

static size_t index_of(const struct slot *slot)
{
	return (size_t)(slot - load.slots);
}

/* SO_PEERCRED names who connects. Who releases anybody's lease is root. */
static void become_user_of(const struct slot *slot)
{
	size_t i = index_of(slot);
	uid_t uid = i == load.n_slots ? 0 : FIRST_UID + (uid_t)(i % load.n_users);

	if (seteuid(uid) < 0)
		die("cannot become uid %u: %s", uid, strerror(errno));
}

static void open_slot(struct slot *slot)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = index_of(slot)};

	slot->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (slot->fd < 0)
		die("cannot open a socket: %s", strerror(errno));
	if (load.n_users > 0)
		become_user_of(slot);
	if (connect(slot->fd, (const struct sockaddr *)&load.address, sizeof(load.address)) < 0)
		die("cannot connect to %s: %s", load.address.sun_path, strerror(errno));
	if (load.n_users > 0 && seteuid(0) < 0)
		die("cannot become root again: %s", strerror(errno));
	if (fcntl(slot->fd, F_SETFL, O_NONBLOCK) < 0 ||
	    epoll_ctl(load.epoll_fd, EPOLL_CTL_ADD, slot->fd, &event) < 0)
		die("cannot watch a connection: %s", strerror(errno));
}

/* False: not now, the supervisor has not read what was sent before. */
static bool send_call(struct slot *slot, const char *call)
{
	size_t length = strlen(call) + 1;
	ssize_t n = send(slot->fd, call, length, MSG_NOSIGNAL);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n != (ssize_t)length)
		die("cannot send: %s", n < 0 ? strerror(errno) : "only a part was taken");
	return true;
}

static void ask(struct slot *slot, uint64_t due_usec)
{
	slot->state = SLOT_ASKED;
	slot->asked_usec = due_usec;
	load.n_asked++;
	if (!send_call(slot, acquire_call))
		die("a fresh connection takes nothing");
}

/* ---------------------------------------------------------------- answers */

static void enter_state(struct slot *slot, enum slot_state state)
{
	load.n_asked -= slot->state == SLOT_ASKED;
	load.n_queued += state == SLOT_QUEUED;
	load.n_queued -= slot->state == SLOT_QUEUED;
	slot->state = state;
}

static void on_granted(struct slot *slot, const char *message, uint64_t at_usec)
{
	const char *id = strstr(message, "\"id\":\"");
	uint64_t since_usec = slot->asked_usec;

	if (!id || strlen(id) < 6 + ID_LENGTH)
		die("a lease without an id: %.200s", message);
	enter_state(slot, SLOT_GRANTED);
	memcpy(slot->id, id + 6, ID_LENGTH);
	ring_put(&load.granted, index_of(slot));
	if (!load.measuring)
		return;
	if (load.n_waiters > 0)
		since_usec = ring_take(&load.releases);
	load.n_pending--;
	load.n_pairs++;
	if (load.n_samples < SAMPLES_MAX)
		load.samples_usec[load.n_samples++] = at_usec - since_usec;
}

static void on_message(struct slot *slot, const char *message, uint64_t at_usec)
{
	const char *what = strstr(message, "\"what\":\"");

	load.n_messages++;
	if (strncmp(message, "{\"error\"", 8) == 0)
		die("refused: %.200s", message);
	if (index_of(slot) == load.n_slots)
		return;
	what = what ? what + 8 : "";
	if (strncmp(what, "queued\"", 7) == 0)
		enter_state(slot, SLOT_QUEUED);
	else if (strncmp(what, "granted\"", 8) == 0)
		on_granted(slot, message, at_usec);
	else if (strncmp(what, "revoked\"", 8) == 0 && slot->state == SLOT_RELEASED)
		ask(slot, at_usec);
	else
		die("not expected: %.200s", message);
}

static void keep_partial(struct slot *slot, const char *text, size_t length)
{
	free(slot->partial);
	slot->partial = length > 0 ? allocate(length, 1) : NULL;
	slot->partial_length = length;
	if (length > 0)
		memcpy(slot->partial, text, length);
}

static void read_slot(struct slot *slot)
{
	static char buffer[BUFFER_SIZE];
	size_t length = slot->partial_length;
	char *message = buffer, *end;
	uint64_t at_usec;
	ssize_t n;

	if (length > 0)
		memcpy(buffer, slot->partial, length);
	n = recv(slot->fd, buffer + length, sizeof(buffer) - length, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		die("the supervisor closed a connection: %s", n < 0 ? strerror(errno) : "end");
	at_usec = now_usec();
	length += (size_t)n;
	load.n_bytes += (size_t)n;
	while ((end = memchr(message, '\0', length))) {
		on_message(slot, message, at_usec);
		length -= (size_t)(end + 1 - message);
		message = end + 1;
	}
	keep_partial(slot, message, length);
}

/* ---------------------------------------------------------------- a turn */

static bool end_lease(struct slot *slot, uint64_t due_usec)
{
	char call[CALL_MAX];

	if (load.closing) {
		(void)close(slot->fd);
		free(slot->partial);
		*slot = (struct slot){.fd = -1};
		open_slot(slot);
		ask(slot, due_usec);
		return true;
	}
	(void)snprintf(call, sizeof(call), release_call, slot->id);
	if (!send_call(&load.slots[load.n_slots], call))
		return false;
	slot->state = SLOT_RELEASED;
	return true;
}

/* Ends what is due, as long as there are leases to end. */
static void end_leases(uint64_t now)
{
	while (load.granted.n > 0) {
		uint64_t due = now_usec();

		if (load.rate > 0)
			due = load.begin_usec + load.n_due * USEC_PER_SEC / load.rate;
		if (load.rate > 0 ? due > now : load.n_pending >= load.n_pending_max)
			return;
		if (!end_lease(&load.slots[load.granted.values[load.granted.first]], due))
			return;
		(void)ring_take(&load.granted);
		if (load.n_waiters > 0)
			ring_put(&load.releases, due);
		load.n_pending++;
		load.n_due++;
	}
}

static void handle_event(const struct epoll_event *event)
{
	uint64_t ticks;

	if (event->data.u64 > load.n_slots)
		(void)!read(load.timer_fd, &ticks, sizeof(ticks));
	else
		read_slot(&load.slots[event->data.u64]);
}

/* Waits for at most timeout_ms. False when nothing has come. */
static bool turn(int timeout_ms)
{
	struct epoll_event events[EVENTS_PER_TURN];
	int n = epoll_wait(load.epoll_fd, events, EVENTS_PER_TURN, timeout_ms);

	for (int i = 0; i < n; i++)
		handle_event(&events[i]);
	return n > 0;
}

/* Until all are answered, and no more is told to those who wait. */
static void settle(void)
{
	uint64_t limit = now_usec() + SETTLE_USEC, n = 0, last = now_usec();

	while (load.n_pending > 0 || load.n_asked > 0 || now_usec() < last + QUIET_USEC) {
		(void)turn(20);
		if (load.n_messages != n)
			last = now_usec();
		n = load.n_messages;
		if (now_usec() > limit)
			die("not settled: %zu not granted, %zu not answered", load.n_pending,
			    load.n_asked);
	}
	if (load.granted.n != load.n_holders || load.n_queued != load.n_waiters)
		die("%zu hold and %zu wait, not %zu and %zu", load.granted.n, load.n_queued,
		    load.n_holders, load.n_waiters);
}

/* ---------------------------------------------------------------- the supervisor */

/* What the supervisor, one thread, has had of a core so far, and how long it was ready to run and
 * had to wait for one: then others were on it, and the figures are not its own. */
struct cpu {
	uint64_t used_nsec, waited_nsec;
};

static struct cpu supervisor_cpu(void)
{
	struct cpu cpu = {};
	char path[40];
	FILE *file;
	int n = 0;

	if (load.supervisor <= 0)
		return cpu;
	(void)snprintf(path, sizeof(path), "/proc/%d/schedstat", load.supervisor);
	file = fopen(path, "re");
	if (file) {
		n = fscanf(file, "%" SCNu64 " %" SCNu64, &cpu.used_nsec, &cpu.waited_nsec);
		(void)fclose(file);
	}
	if (n != 2)
		die("cannot read %s", path);
	return cpu;
}

static long supervisor_kib(const char *name)
{
	char path[32], line[256];
	long kib = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", load.supervisor);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			kib = strtol(line + strlen(name), NULL, 10);
	if (file)
		(void)fclose(file);
	return kib;
}

static void print_supervisor(const struct cpu *before, uint64_t usec)
{
	struct cpu now = supervisor_cpu();
	double used_usec = (double)(now.used_nsec - before->used_nsec) / 1000;
	double waited_usec = (double)(now.waited_nsec - before->waited_nsec) / 1000;

	if (load.supervisor <= 0)
		return;
	(void)printf("    supervisor: %.1f %% of a core", used_usec * 100 / (double)usec);
	if (load.n_pairs > 0)
		(void)printf(", %.0f us for a pair", used_usec / (double)load.n_pairs);
	(void)printf("; others on it while it could run: %.1f %%; VmRSS %ld KiB, VmHWM %ld KiB\n",
		     waited_usec * 100 / (double)usec, supervisor_kib("VmRSS:"),
		     supervisor_kib("VmHWM:"));
}

/* ---------------------------------------------------------------- measuring */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double sample_ms(size_t percent)
{
	size_t i = load.n_samples * percent / 100;

	return (double)load.samples_usec[i < load.n_samples ? i : load.n_samples - 1] / 1000;
}

static void print_figures(const char *phase, uint64_t usec)
{
	double seconds = (double)usec / (double)USEC_PER_SEC;

	(void)printf("  %s: %.0f pairs/s (%" PRIu64 " in %.1f s)\n", phase,
		     (double)load.n_pairs / seconds, load.n_pairs, seconds);
	if (load.n_samples == 0)
		return;
	qsort(load.samples_usec, load.n_samples, sizeof(load.samples_usec[0]), compare);
	(void)printf("    %s: p50 %.2f ms, p99 %.2f ms, max %.2f ms; %.0f messages/s, %.1f MB/s\n",
		     load.n_waiters > 0 ? "release to the next grant" : "asked to granted",
		     sample_ms(50), sample_ms(99), sample_ms(100),
		     (double)load.n_messages / seconds, (double)load.n_bytes / seconds / 1e6);
}

/* A slower rate than two a second needs no timer: a turn takes 100 ms at most. */
static void set_timer(uint64_t rate)
{
	struct timespec interval = {.tv_nsec = rate > 1 ? (long)(1000000000u / rate) : 0};

	(void)timerfd_settime(load.timer_fd, 0, &(struct itimerspec){interval, interval}, NULL);
}

static void start_phase(const char *phase)
{
	const char *rate = strchr(phase, ':');

	load.closing = strncmp(phase, "close:", 6) == 0;
	if (!rate || (!load.closing && strncmp(phase, "release:", 8) != 0))
		die("no phase \"%s\": release:RATE, close:RATE", phase);
	load.rate = strtoull(rate + 1, NULL, 10);
	load.n_due = load.n_pairs = load.n_messages = load.n_bytes = 0;
	load.n_samples = 0;
	load.measuring = true;
	set_timer(load.rate);
}

static void run_phase(const char *phase)
{
	struct cpu before = supervisor_cpu();
	uint64_t now;

	start_phase(phase);
	load.begin_usec = now = now_usec();
	for (; now < load.begin_usec + load.seconds * USEC_PER_SEC; now = now_usec()) {
		end_leases(now);
		(void)turn(100);
	}
	print_figures(phase, now - load.begin_usec);
	print_supervisor(&before, now - load.begin_usec);
	(void)fflush(stdout);
	set_timer(0);
	/* Those still under way count for nothing. */
	settle();
	load.measuring = false;
}

/* Those who are to hold ask first: the others find every place taken. */
static void ask_all(void)
{
	struct cpu before = supervisor_cpu();
	uint64_t begin = now_usec();

	for (size_t i = 0; i < load.n_slots; i++) {
		open_slot(&load.slots[i]);
		ask(&load.slots[i], now_usec());
		while (turn(0))
			;
	}
	while (load.n_asked > 0 && turn(10000))
		;
	(void)printf("%zu hold, %zu wait, after %.2f s\n", load.granted.n, load.n_queued,
		     (double)(now_usec() - begin) / (double)USEC_PER_SEC);
	settle();
	print_supervisor(&before, now_usec() - begin);
}

/* ---------------------------------------------------------------- all */

static void prepare(void)
{
	struct rlimit limit;
	struct epoll_event event = {.events = EPOLLIN};

	load.n_slots = load.n_holders + load.n_waiters;
	event.data.u64 = load.n_slots + 1;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	load.slots = allocate(load.n_slots + 1, sizeof(load.slots[0]));
	load.samples_usec = allocate(SAMPLES_MAX, sizeof(load.samples_usec[0]));
	load.granted.size = load.releases.size = load.n_slots;
	load.granted.values = allocate(load.n_slots, sizeof(uint64_t));
	load.releases.values = allocate(load.n_slots, sizeof(uint64_t));
	load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	load.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (load.epoll_fd < 0 || load.timer_fd < 0 ||
	    epoll_ctl(load.epoll_fd, EPOLL_CTL_ADD, load.timer_fd, &event) < 0)
		die("cannot prepare: %s", strerror(errno));
}

static int usage(void)
{
	(void)fputs("Usage: lease_load [-H HOLDERS] [-W WAITERS] [-n PENDING] [-s SECONDS]\n"
		    "                  [-u USERS] [-p PID] SOCKET [release:RATE | close:RATE]...\n",
		    stderr);
	return 2;
}

static bool read_options(int argc, char *argv[])
{
	int option;

	load.n_holders = 1000;
	load.n_waiters = 5000;
	load.n_pending_max = 32;
	load.seconds = 10;
	while ((option = getopt(argc, argv, "H:W:n:s:u:p:")) != -1) {
		unsigned long n = optarg ? strtoul(optarg, NULL, 10) : 0;

		if (option == 'H')
			load.n_holders = n;
		else if (option == 'W')
			load.n_waiters = n;
		else if (option == 'n')
			load.n_pending_max = n;
		else if (option == 's')
			load.seconds = n;
		else if (option == 'u')
			load.n_users = (unsigned)n;
		else if (option == 'p')
			load.supervisor = (pid_t)n;
		else
			return false;
	}
	return optind < argc && load.n_holders > 0 &&
	       strlen(argv[optind]) < sizeof(load.address.sun_path);
}

int main(int argc, char *argv[])
{
	if (!read_options(argc, argv))
		return usage();
	load.address.sun_family = AF_UNIX;
	memcpy(load.address.sun_path, argv[optind], strlen(argv[optind]) + 1);
	prepare();
	open_slot(&load.slots[load.n_slots]);
	ask_all();
	for (int i = optind + 1; i < argc; i++)
		run_phase(argv[i]);
	return EXIT_SUCCESS;
}
