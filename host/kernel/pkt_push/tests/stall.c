// SPDX-License-Identifier: GPL-2.0-only
/* Overflow: what a program loses that does something else for a while. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "pair.h"

#define RCVBUF	(128 << 10)	/* the kernel makes it 256 KiB */
#define SIZE	1400

static struct pair pair;
static uint8_t got[65536];

/* The newest datagram that drain() has read since pair_stall(). */
static long newest;

/* Sends @count datagrams while nobody reads. */
static void pair_stall(uint32_t count)
{
	uint32_t i;

	newest = -1;
	for (i = 0; i < count; i++)
		pair_send(&pair, i, SIZE);
	await_delivery();
}

/* Reads all that is there; returns how many, each newer than those before. */
static uint32_t drain(bool push)
{
	uint32_t count = 0, number;
	ssize_t size;

	for (;;) {
		size = push ? push_recv(pair.push, got, sizeof(got), MSG_DONTWAIT) :
			      recv(pair.receiver, got, sizeof(got), MSG_DONTWAIT);
		if (size < 0) {
			CHECK(errno == EAGAIN);
			return count;
		}
		number = datagram_number(got, size);
		CHECK((long)number > newest);
		newest = number;
		count++;
	}
}

/* One stall, with more than the buffer holds: plain recv() loses. */
static void one_stall(void)
{
	struct push_options options = { .bytes = 4 << 20 };
	struct pkt_push_stats stats;
	uint32_t i, count = 2000;

	pair_open(&pair, AF_INET, false, RCVBUF);
	pair_stall(count);
	i = drain(false);
	printf("# recv(): %u of %u, %u dropped\n", i, count, pair_drops(&pair));
	CHECK(i < count / 2);
	CHECK_EQ(i + pair_drops(&pair), count);
	pair_close(&pair);

	pair_push(&pair, AF_INET, RCVBUF, &options);
	pair_stall(count);
	CHECK_EQ(pair_drops(&pair), 0);
	pair_stats(&pair, &stats);
	printf("# push: %llu pushes of %llu datagrams, threshold %llu, most queued %llu\n",
	       (unsigned long long)stats.pushes,
	       (unsigned long long)stats.datagrams,
	       (unsigned long long)stats.threshold,
	       (unsigned long long)stats.queued_max);
	CHECK(stats.pushes >= 5 && stats.pushes < count / 10);
	/* The saw-tooth: never above the threshold and one datagram. */
	CHECK(stats.queued_max <= 2 * 2 * RCVBUF / 3 + 4096);
	CHECK_EQ(drain(true), count);
}

/* The same program without the library: its own recv() finds everything. */
static void an_unchanged_reader(void)
{
	struct push_options options = { .bytes = 4 << 20 };
	uint32_t count = 1000;

	pair_push(&pair, AF_INET6, RCVBUF, &options);
	push_close(pair.push);
	pair_stall(count);
	CHECK_EQ(pair_drops(&pair), 0);
	CHECK_EQ(drain(false), count);
}

/* A full ring leaves the rest to the socket, which drops what comes, as ever. */
static void a_full_ring(void)
{
	struct push_options options = { .bytes = 64 << 10 };
	struct pkt_push_stats stats;
	uint32_t count = 1000, whole;

	pair_push(&pair, AF_INET, RCVBUF, &options);
	pair_stall(count);
	pair_stats(&pair, &stats);
	CHECK(stats.ring_full > 0);
	CHECK(pair_drops(&pair) > 0);
	/* What is there is the oldest, without a hole. */
	whole = drain(true);
	CHECK_EQ(newest + 1, whole);
	CHECK_EQ(whole + pair_drops(&pair), count);
}

static volatile bool finished;
static uint32_t total;

/* A datagram every 50 microseconds in the mean: 20,000 a second. */
static void *source(void *arg)
{
	uint64_t next = now_ns(), state = 88172645463325252ULL;
	uint32_t i;

	(void)arg;
	for (i = 0; i < total; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		next += state % 100000;
		while (now_ns() < next)
			if (next - now_ns() > 2000000)
				sleep_ms(1);
		pair_send(&pair, i, SIZE);
	}
	await_delivery();
	finished = true;
	return NULL;
}

/* Reads; and after every tenth of a second does something else for 5 to 50 ms. */
static uint32_t read_with_stalls(bool push)
{
	static const unsigned int stalls[] = { 5, 50, 20, 10, 50, 5, 20 };
	uint64_t next = now_ns() + 20000000;
	unsigned int stall = 0;
	uint32_t count = 0;
	pthread_t thread;
	bool last;

	finished = false;
	newest = -1;
	start_thread(&thread, source, NULL);
	do {
		last = finished;
		if (now_ns() > next) {
			sleep_ms(stalls[stall++ % 7]);
			next = now_ns() + 50000000;
		}
		count += drain(push);
		sleep_ms(0);
	} while (!last);
	CHECK(!pthread_join(thread, NULL));
	return count;
}

static void many_stalls(void)
{
	struct push_options options = { .bytes = 8 << 20 };
	struct pkt_push_stats stats;
	uint32_t count;

	total = times(5000);
	pair_open(&pair, AF_INET, false, RCVBUF);
	count = read_with_stalls(false);
	printf("# recv(): %u of %u\n", count, total);
	CHECK_EQ(count + pair_drops(&pair), total);
	CHECK(count < total);
	pair_close(&pair);

	pair_push(&pair, AF_INET, RCVBUF, &options);
	count = read_with_stalls(true);
	pair_stats(&pair, &stats);
	printf("# push: %u of %u, %llu of them from the ring, %llu pushes of %llu ns\n",
	       count, total, (unsigned long long)stats.datagrams,
	       (unsigned long long)stats.pushes,
	       (unsigned long long)stats.push_ns);
	CHECK_EQ(pair_drops(&pair), 0);
	CHECK_EQ(count, total);
	CHECK(stats.pushes > 0);
}

static const struct test tests[] = {
	{ "one stall", one_stall, 0 },
	{ "an unchanged reader", an_unchanged_reader, 0 },
	{ "a full ring", a_full_ring, 0 },
	{ "many stalls", many_stalls, 100 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
