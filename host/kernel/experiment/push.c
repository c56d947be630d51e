// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * push calls SIZE
 * push saw SCHEME RATE SECONDS
 * push stalls SCHEME RATE COUNT
 *
 * What packet push does for a UDP receiver, as one JSON object on standard output: the time
 * of a call for a datagram that is there (the document's table 3 and figure 14), the length of
 * the socket's buffer (figure 15), and what a program gets that stalls (figure 16).
 *
 * SCHEME: recv, recvmmsg, recv-large (a buffer of 8 MiB), push, push-at-once, push-recv (the
 * module, and a program that calls recv() and knows nothing of it). The source stands for the
 * document's pseudo device: RATE datagrams a second by a Poisson timer, before all else.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/sock_diag.h>

#include "push.h"

#define SIZE		1400
#define RCVBUF		(256 << 10)
#define LARGE		(8 << 20)
#define RING		(8 << 20)
#define CALLS		1000
#define BATCH		64

static struct push *memory;
static int receiver, sender;
static unsigned char data[65536];

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void open_pair(int buffer)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	socklen_t len = sizeof(name);
	int half = buffer / 2;

	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	receiver = socket(AF_INET, SOCK_DGRAM, 0);
	sender = socket(AF_INET, SOCK_DGRAM, 0);
	/* The kernel doubles it. */
	if (setsockopt(receiver, SOL_SOCKET, SO_RCVBUFFORCE, &half, sizeof(half)) ||
	    bind(receiver, (struct sockaddr *)&name, len) ||
	    getsockname(receiver, (struct sockaddr *)&name, &len) ||
	    connect(sender, (struct sockaddr *)&name, len))
		die("a pair of sockets");
}

static void attach(bool at_once, size_t bytes)
{
	struct push_options options = { .bytes = bytes, .at_once = at_once };

	memory = push_open(receiver, &options);
	if (!memory)
		die("push_open");
}

static uint32_t meminfo(int index)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(info);

	if (getsockopt(receiver, SOL_SOCKET, SO_MEMINFO, info, &len))
		die("SO_MEMINFO");
	return info[index];
}

static uint64_t cpu_ns(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ULL +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ULL;
}

/* Nanoseconds of a datagram that is there, for one way to take it. */
static double time_of(bool from_memory, bool pushed, size_t size, int batch)
{
	uint64_t spent = 0, start;
	int done, i;

	for (done = 0; done < CALLS; done += batch) {
		for (i = 0; i < batch; i++)
			if (send(sender, data, size, 0) < 0)
				die("send");
		if (pushed && push_now(memory) != batch)
			die("push_now");
		start = now();
		for (i = 0; i < batch; i++)
			if ((from_memory ? push_recv(memory, data, size, MSG_DONTWAIT) :
			     recv(receiver, data, size, MSG_DONTWAIT)) < 0)
				die("recv");
		spent += now() - start;
	}
	return (double)spent / done;
}

/* The same without a copy, and with a look at its first byte. */
static double time_of_look(size_t size)
{
	uint64_t spent = 0, start;
	struct push_datagram datagram;
	unsigned int sum = 0;
	int done, i;

	for (done = 0; done < CALLS; done += 10) {
		for (i = 0; i < 10; i++)
			if (send(sender, data, size, 0) < 0)
				die("send");
		if (push_now(memory) != 10)
			die("push_now");
		start = now();
		for (i = 0; i < 10; i++) {
			if (push_look(memory, &datagram) != 1)
				die("push_look");
			sum += *(const unsigned char *)datagram.data;
			if (!push_release(memory, &datagram))
				die("push_release");
		}
		spent += now() - start;
	}
	return sum ? -1 : (double)spent / done;
}

/* What sending costs, with all that the receiving kernel does for it. */
static double time_of_send(size_t size)
{
	uint64_t spent = 0, start;
	int done, i;

	for (done = 0; done < CALLS; done += 10) {
		start = now();
		for (i = 0; i < 10; i++)
			if (send(sender, data, size, 0) < 0)
				die("send");
		spent += now() - start;
		while (recv(receiver, data, sizeof(data), MSG_DONTWAIT) >= 0)
			;
	}
	return (double)spent / done;
}

static void calls(size_t size)
{
	struct pkt_push_stats before, stats;
	double plain, plain_send, attached, attached_send, pushed, returned, looked;

	open_pair(LARGE);
	/* The first ones make the pages that all others use. */
	time_of(false, false, size, 10);
	plain = time_of(false, false, size, 10);
	plain_send = time_of_send(size);
	attach(false, RING);
	attached = time_of(false, false, size, 10);
	attached_send = time_of_send(size);
	looked = time_of_look(size);
	if (push_reset(memory) || push_get_stats(memory, &before))
		die("push_reset");
	pushed = time_of(true, true, size, 10);
	if (push_get_stats(memory, &stats))
		die("push_get_stats");
	returned = time_of(false, true, size, 10);
	printf("{\"what\": \"calls\", \"size\": %zu, \"recv_ns\": %.1f, \"recv_attached_ns\": %.1f, "
	       "\"push_recv_ns\": %.1f, \"push_look_ns\": %.1f, \"recv_from_ring_ns\": %.1f, "
	       "\"push_ns\": %.1f, \"send_ns\": %.1f, \"send_attached_ns\": %.1f}\n",
	       size, plain, attached, pushed, looked, returned,
	       (double)stats.push_ns * (double)stats.pushes / (double)stats.datagrams, plain_send, attached_send);
}

/* Shared with the source: what was sent, and whether it goes on. */
struct shared {
	volatile uint64_t sent;
	volatile bool finished;
};

static struct shared *shared;

static double uniform(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return ((double)(*state >> 11) + 1) / 9007199254740993.0;
}

/* The pseudo device: exponential gaps, and nobody keeps it waiting. */
static void source(double rate, uint64_t count)
{
	struct sched_param first = { .sched_priority = 10 };
	uint64_t state = 88172645463325252ULL;
	double next = (double)now();
	struct timespec at;

	if (sched_setscheduler(0, SCHED_FIFO, &first))
		die("SCHED_FIFO");
	while (shared->sent < count) {
		next -= log(uniform(&state)) * 1e9 / rate;
		at.tv_sec = (time_t)(next / 1e9);
		at.tv_nsec = (long)(next - (double)at.tv_sec * 1e9);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		if (send(sender, data, SIZE, 0) < 0)
			die("send");
		shared->sent++;
	}
	shared->finished = true;
	_exit(0);
}

static pid_t start_source(double rate, uint64_t count)
{
	pid_t child;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	child = fork();
	if (child < 0)
		die("fork");
	if (!child)
		source(rate, count);
	return child;
}

static bool uses_memory(const char *scheme)
{
	return !strcmp(scheme, "push") || !strcmp(scheme, "push-at-once");
}

static void open_scheme(const char *scheme)
{
	open_pair(strcmp(scheme, "recv-large") ? RCVBUF : LARGE);
	if (!strncmp(scheme, "push", 4))
		attach(!strcmp(scheme, "push-at-once"), RING);
}

/* Takes what is there; returns how many. */
static unsigned int drain(const char *scheme)
{
	static struct mmsghdr many[BATCH];
	static struct iovec pieces[BATCH];
	static unsigned char space[BATCH][SIZE];
	unsigned int count = 0;
	int i, got;

	if (!strcmp(scheme, "recvmmsg")) {
		for (i = 0; i < BATCH; i++) {
			pieces[i] = (struct iovec){ space[i], SIZE };
			many[i].msg_hdr = (struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
		}
		while ((got = recvmmsg(receiver, many, BATCH, MSG_DONTWAIT, NULL)) > 0)
			count += (unsigned int)got;
	} else if (uses_memory(scheme)) {
		while (push_recv(memory, data, sizeof(data), MSG_DONTWAIT) >= 0)
			count++;
	} else {
		while (recv(receiver, data, sizeof(data), MSG_DONTWAIT) >= 0)
			count++;
	}
	return count;
}

/* A program that reads for 50 ms and does something else for 5, 20, 50 or 200 ms. */
static void stalls(const char *scheme, double rate, uint64_t count)
{
	static const long pauses[] = { 5, 20, 50, 200 };
	uint64_t state = 1234567, until, taken = 0, cpu, start;
	struct timespec pause = { 0, 0 }, little = { 0, 500000 };
	struct pkt_push_stats stats = { 0 };
	pid_t child;
	bool last;

	open_scheme(scheme);
	child = start_source(rate, count);
	cpu = cpu_ns(RUSAGE_SELF);
	start = now();
	do {
		last = shared->finished;
		pause.tv_nsec = pauses[(int)(uniform(&state) * 4) & 3] * 1000000;
		nanosleep(&pause, NULL);
		until = now() + 50000000;
		do {
			taken += drain(scheme);
			nanosleep(&little, NULL);
		} while (now() < until);
	} while (!last);
	cpu = cpu_ns(RUSAGE_SELF) - cpu;
	waitpid(child, NULL, 0);
	if (memory)
		push_get_stats(memory, &stats);
	printf("{\"what\": \"stalls\", \"scheme\": \"%s\", \"rate\": %.0f, \"sent\": %llu, \"taken\": %llu, "
	       "\"dropped\": %u, \"seconds\": %.3f, \"cpu_ns\": %.1f, \"pushes\": %llu, \"pushed\": %llu, "
	       "\"push_ns\": %llu, \"gap_ns\": %llu, \"queued_max\": %llu, \"ring_full\": %llu}\n",
	       scheme, rate, (unsigned long long)shared->sent, (unsigned long long)taken, meminfo(SK_MEMINFO_DROPS),
	       (double)(now() - start) / 1e9, (double)cpu / (double)taken, (unsigned long long)stats.pushes,
	       (unsigned long long)stats.datagrams, (unsigned long long)stats.push_ns,
	       (unsigned long long)stats.gap_ns, (unsigned long long)stats.queued_max,
	       (unsigned long long)stats.ring_full);
}

/* The buffer's length every 5 ms while a program takes one datagram for three that come. */
static void saw(const char *scheme, double rate, double seconds)
{
	uint64_t start, end, next, taken = 0, i;
	struct timespec little = { 0, 0 };
	pid_t child;

	open_scheme(scheme);
	child = start_source(rate, (uint64_t)(rate * seconds));
	start = now();
	end = start + (uint64_t)(seconds * 1e9);
	next = start;
	printf("{\"what\": \"saw\", \"scheme\": \"%s\", \"rate\": %.0f, \"queued\": [", scheme, rate);
	little.tv_nsec = (long)(3e9 / rate);
	while (now() < end) {
		if (uses_memory(scheme) ? push_recv(memory, data, sizeof(data), MSG_DONTWAIT) >= 0 :
		    recv(receiver, data, sizeof(data), MSG_DONTWAIT) >= 0)
			taken++;
		nanosleep(&little, NULL);
		for (i = 0; next < now(); next += 5000000, i++)
			printf("%s%u", next == start ? "" : ", ", meminfo(SK_MEMINFO_RMEM_ALLOC));
	}
	waitpid(child, NULL, 0);
	printf("], \"sent\": %llu, \"taken\": %llu, \"dropped\": %u}\n", (unsigned long long)shared->sent,
	       (unsigned long long)taken, meminfo(SK_MEMINFO_DROPS));
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "calls"))
		calls((size_t)atoi(argv[2]));
	else if (argc == 5 && !strcmp(argv[1], "saw"))
		saw(argv[2], atof(argv[3]), atof(argv[4]));
	else if (argc == 5 && !strcmp(argv[1], "stalls"))
		stalls(argv[2], atof(argv[3]), (uint64_t)atoll(argv[4]));
	else
		return 2;
	return 0;
}
