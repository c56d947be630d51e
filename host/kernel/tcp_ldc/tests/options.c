// SPDX-License-Identifier: GPL-2.0-only
/* Each option, each call and each of their errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

static int attach(int fd)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_ULP, TCP_ULP_LDC, 3);
}

static int make_ring(int fd, uint32_t slots, uint32_t block_bytes,
		     uint32_t blocks, uint32_t flags)
{
	struct ldc_geometry geo = { slots, block_bytes, blocks, flags, 0 };

	return setsockopt(fd, SOL_LDC, LDC_RING, &geo, sizeof(geo));
}

static int set_word(int fd, int name, uint32_t word)
{
	return setsockopt(fd, SOL_LDC, name, &word, sizeof(word));
}

static uint32_t get_word(int fd, int name)
{
	uint32_t word = ~0U;
	socklen_t len = sizeof(word);

	CHECK(!getsockopt(fd, SOL_LDC, name, &word, &len));
	CHECK_EQ(len, sizeof(word));
	return word;
}

static void attach_needs_a_connection(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int fds[2];

	CHECK(fd >= 0);
	CHECK_ERR(attach(fd), ENOTCONN);
	CHECK(!bind(fd, (struct sockaddr *)&any, sizeof(any)));
	CHECK(!listen(fd, 1));
	CHECK_ERR(attach(fd), ENOTCONN);
	close(fd);
	tcp_pair(AF_INET, fds);
	/* Closed by the other side: one can still send. */
	CHECK(!shutdown(fds[1], SHUT_WR));
	CHECK_EQ(read_end(fds[0]), 0);
	CHECK(!attach(fds[0]));
	CHECK_ERR(attach(fds[0]), EEXIST);
}

static void before_the_ring(void)
{
	struct ldc_geometry geo;
	socklen_t len = sizeof(geo);
	char got[3];
	int fds[2];

	tcp_pair(AF_INET6, fds);
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_RING, &geo, &len), ENOPROTOOPT);
	CHECK(!attach(fds[0]));
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_RING, &geo, &len), ENXIO);
	CHECK_ERR(ioctl(fds[0], LDC_IOC_NOTIFY), ENXIO);
	CHECK_ERR(set_word(fds[0], LDC_LOWAT, 1), ENXIO);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) ==
	      MAP_FAILED);
	/* A program whose ring cannot be made goes on without one. */
	CHECK_EQ(send(fds[0], "abc", 3, 0), 3);
	read_all(fds[1], got, 3);
	CHECK(!memcmp(got, "abc", 3));
}

static void geometries(void)
{
	static const struct {
		uint32_t slots, block_bytes, blocks, flags;
	} wrong[] = {
		{ 0, 1448, 16, 0 }, { 1, 1448, 16, 0 }, { 3, 1448, 16, 0 },
		{ 131072, 1448, 131072, 0 }, { 0x80000000, 16, 0x80000000, 0 },
		{ 16, 15, 16, 0 }, { 16, 0, 16, 0 }, { 16, (1 << 24) + 1, 16, 0 },
		{ 16, ~0U, 16, 0 }, { 16, 1448, 15, 0 }, { 16, 1448, 0, 0 },
		{ 16, 1448, (1 << 24) + 1, 0 }, { 16, 1448, ~0U, 0 },
		{ 16, 1448, 16, 1 }, { 2, 1 << 24, 1 << 24, 0 },
	};
	struct { struct ldc_geometry geo; uint64_t more; } larger = {
		{ 16, 1448, 16, 0, 0 }, 1
	};
	struct ldc_geometry geo = { 16, 1448, 16, 0, 4096 };
	socklen_t len = sizeof(geo);
	size_t i;
	int fds[2];

	tcp_pair(AF_INET, fds);
	CHECK(!attach(fds[0]));
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_ERR(make_ring(fds[0], wrong[i].slots, wrong[i].block_bytes,
				    wrong[i].blocks, wrong[i].flags), EINVAL);
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_RING, &geo, sizeof(geo)), EINVAL);
	geo.total_bytes = 0;
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_RING, &geo, 12), EINVAL);
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_RING, (void *)8, 24), EFAULT);
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_RING, &larger, sizeof(larger)),
		  E2BIG);
	larger.more = 0;
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_RING, &larger, sizeof(larger)));
	CHECK_ERR(make_ring(fds[0], 16, 1448, 16, 0), EEXIST);
	memset(&geo, 0xff, sizeof(geo));
	CHECK(!getsockopt(fds[0], SOL_LDC, LDC_RING, &geo, &len));
	CHECK_EQ(len, 24);
	CHECK_EQ(geo.slots, 16);
	CHECK_EQ(geo.block_bytes, 1448);
	CHECK_EQ(geo.blocks, 16);
	CHECK_EQ(geo.flags, 0);
	/* 192 + 384 + 16 * 128 up to 4096, and 16 * 1472 up to 4096. */
	CHECK_EQ(geo.total_bytes, 4096 + 24576);
	/* A program that knows less gets less; one that knows more as much. */
	len = 4;
	geo.block_bytes = 7;
	CHECK(!getsockopt(fds[0], SOL_LDC, LDC_RING, &geo, &len));
	CHECK_EQ(geo.block_bytes, 7);
	len = (socklen_t)-1;
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_RING, &geo, &len), EINVAL);
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_RING, &geo, NULL), EFAULT);
}

static void ring_needs_a_connection(void)
{
	struct linger linger = { 1, 0 };
	int fds[2];

	tcp_pair(AF_INET, fds);
	CHECK(!attach(fds[0]));
	CHECK(!setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(fds[1]);
	CHECK_EQ(read_end(fds[0]), -ECONNRESET);
	CHECK_ERR(make_ring(fds[0], 16, 1448, 16, 0), ENOTCONN);
	tcp_pair(AF_INET, fds);
	CHECK(!attach(fds[0]));
	CHECK(!shutdown(fds[0], SHUT_WR));
	CHECK(make_ring(fds[0], 16, 1448, 16, 0) == -1);
	CHECK(errno == EPIPE || errno == ENOTCONN);
}

static void locked_memory(void)
{
	/* Two rings of 7 pages, each counted with the two of a ragged edge. */
	struct rlimit limit = { 80 << 10, 80 << 10 };
	struct ldc_stats stats;
	int fds[2], more[2];

	/* Root may lock what it likes; nobody may not. */
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK(!setgid(65534));
	CHECK(!setuid(65534));
	tcp_pair(AF_INET, fds);
	CHECK(!attach(fds[0]));
	CHECK_ERR(make_ring(fds[0], 64, 1448, 64, 0), ENOBUFS);
	CHECK(!make_ring(fds[0], 16, 1448, 16, 0));
	ring_stats(fds[0], &stats);
	CHECK_EQ(stats.mapped_bytes, 28672);
	/* Charged to the user, whatever the number of sockets. */
	tcp_pair(AF_INET, more);
	CHECK(!attach(more[0]));
	CHECK(!make_ring(more[0], 16, 1448, 16, 0));
	tcp_pair(AF_INET, more);
	CHECK(!attach(more[0]));
	CHECK_ERR(make_ring(more[0], 16, 1448, 16, 0), ENOBUFS);
	/* Given back with the socket, if perhaps not at once. */
	close(fds[0]);
	WAIT_FOR(!make_ring(more[0], 16, 1448, 16, 0));
}

static void words(void)
{
	socklen_t len = sizeof(struct ldc_ack);
	struct ldc_ack ack;
	char byte = 0;
	int fds[2];

	tcp_pair(AF_INET, fds);
	CHECK(!attach(fds[0]));
	CHECK_EQ(get_word(fds[0], LDC_HORIZON), 1);
	CHECK_EQ(get_word(fds[0], LDC_ZEROCOPY), 0);
	CHECK_EQ(get_word(fds[0], LDC_LOWAT), 1);
	CHECK(!set_word(fds[0], LDC_HORIZON, 0));
	CHECK_EQ(get_word(fds[0], LDC_HORIZON), 0);
	CHECK_ERR(set_word(fds[0], LDC_HORIZON, 2), EINVAL);
	CHECK(!set_word(fds[0], LDC_ZEROCOPY, 1));
	CHECK_EQ(get_word(fds[0], LDC_ZEROCOPY), 1);
	CHECK_ERR(set_word(fds[0], LDC_ZEROCOPY, 2), EINVAL);
	CHECK_EQ(get_word(fds[0], LDC_WATCH), 0);
	CHECK(!set_word(fds[0], LDC_WATCH, LDC_MAX_WATCH));
	CHECK_EQ(get_word(fds[0], LDC_WATCH), LDC_MAX_WATCH);
	CHECK_ERR(set_word(fds[0], LDC_WATCH, LDC_MAX_WATCH + 1), EINVAL);
	CHECK_EQ(get_word(fds[0], LDC_KEEP_ACKS), 0);
	CHECK(!set_word(fds[0], LDC_KEEP_ACKS, LDC_MAX_KEEP_ACKS));
	CHECK_ERR(set_word(fds[0], LDC_KEEP_ACKS, LDC_MAX_KEEP_ACKS + 1), EINVAL);
	CHECK_EQ(get_word(fds[0], LDC_KEEP_ACKS), LDC_MAX_KEEP_ACKS);
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_ACKS, &ack, &len), ENXIO);
	CHECK(!make_ring(fds[0], 16, 1448, 16, 0));
	CHECK_ERR(set_word(fds[0], LDC_KEEP_ACKS, 1), EEXIST);
	CHECK(!getsockopt(fds[0], SOL_LDC, LDC_ACKS, &ack, &len));
	CHECK_EQ(len, 0);
	len = (socklen_t)-1;
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_ACKS, &ack, &len), EINVAL);
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_ACKS, &ack, sizeof(ack)),
		  ENOPROTOOPT);
	CHECK(!set_word(fds[0], LDC_LOWAT, 16));
	CHECK_EQ(get_word(fds[0], LDC_LOWAT), 16);
	CHECK_ERR(set_word(fds[0], LDC_LOWAT, 0), EINVAL);
	CHECK_ERR(set_word(fds[0], LDC_LOWAT, 17), EINVAL);
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_HORIZON, &byte, 1), EINVAL);
	CHECK_ERR(setsockopt(fds[0], SOL_LDC, LDC_STATS, &byte, 1), ENOPROTOOPT);
	CHECK_ERR(set_word(fds[0], 99, 1), ENOPROTOOPT);
	CHECK(ioctl(fds[0], LDC_IOC_NOTIFY + 1, &(struct ifreq){}) == -1);
	/* TCP's own options are as ever. */
	CHECK(!setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &(int){ 0 }, 4));
	CHECK(!setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &(int){ 9999 }, 4));
	CHECK_ERR(setsockopt(fds[0], IPPROTO_TCP, TCP_REPAIR, &(int){ 1 }, 4), EBUSY);
}

static void *map(int fd, size_t len, int prot, int flags, off_t offset)
{
	return mmap(NULL, len, prot, flags, fd, offset);
}

static void mappings(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	struct ldc_region *region, *again;
	int fds[2];

	tcp_pair(AF_INET, fds);
	CHECK(!attach(fds[0]));
	CHECK(!make_ring(fds[0], 16, 1448, 16, 0));
	CHECK_ERR(map(fds[0], 4096, rw, MAP_SHARED, 0), EINVAL);
	CHECK_ERR(map(fds[0], 28672 + 4096, rw, MAP_SHARED, 0), EINVAL);
	CHECK_ERR(map(fds[0], 28672, rw, MAP_SHARED, 4096), EINVAL);
	CHECK_ERR(map(fds[0], 28672, rw, MAP_PRIVATE, 0), EINVAL);
	CHECK_ERR(map(fds[0], 28672, rw | PROT_EXEC, MAP_SHARED, 0), EPERM);
	region = map(fds[0], 28672, rw, MAP_SHARED, 0);
	again = map(fds[0], 28672, rw, MAP_SHARED, 0);
	CHECK(region != MAP_FAILED && again != MAP_FAILED);
	CHECK_ERR(mprotect(region, 28672, rw | PROT_EXEC), EACCES);
	CHECK(mremap(region, 28672, 65536, MREMAP_MAYMOVE) == MAP_FAILED);
	/* The same memory, and the layout of the ABI. */
	CHECK_EQ(region->magic, LDC_MAGIC);
	CHECK_EQ(region->header_bytes, 192);
	CHECK_EQ(region->rings, 1);
	CHECK_EQ(region->ring_header_bytes, 384);
	CHECK_EQ(region->slot_bytes, 128);
	CHECK_EQ(region->rings_offset, 192);
	CHECK_EQ(region->slots_offset, 576);
	CHECK_EQ(region->arena_offset, 4096);
	CHECK_EQ(region->block_stride, 1472);
	region->producer_claim = 77;
	CHECK_EQ(again->producer_claim, 77);
	CHECK(!munmap(region, 28672));
	CHECK_EQ(again->producer_claim, 77);
	/* For reading it is TCP's zero-copy receive, as without the ring. */
	CHECK(map(fds[0], 28672, PROT_READ, MAP_SHARED, 0) != MAP_FAILED);
}

static short events(int fd, int timeout)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN | POLLOUT };

	CHECK(poll(&pfd, 1, timeout) >= 0);
	return pfd.revents;
}

/* Fills a ring whose other end does not read. */
static void fill(struct ring *ring, int fds[2])
{
	static char data[1448];
	uint64_t before;

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(ring, fds[0], 16, 1448);
	do {
		before = ring->user_i;
		while (ring_push(ring, data, sizeof(data), 0, NEVER))
			;
		sleep_ms(300);
	} while (before != ring->user_i);
}

static void poll_means_a_slot(void)
{
	static char got[100000];
	struct ring ring;
	uint32_t before;
	int fds[2];

	fill(&ring, fds);
	CHECK_EQ(events(fds[0], 0), 0);
	CHECK(ring_drop(&ring, ring.user_i - 1));
	/* The last one dropped frees nothing: slots are used in order. */
	CHECK_EQ(events(fds[0], 0), 0);
	CHECK(!set_word(fds[0], LDC_LOWAT, 16));
	do {
		CHECK(read(fds[1], got, 1448) > 0);
		before = ring_free(&ring);
		CHECK(before == 16 || !events(fds[0], 0) ||
		      ring_free(&ring) == 16);
	} while (before < 16);
	CHECK_EQ(events(fds[0], 0), POLLOUT);
	CHECK_EQ(send(fds[1], "x", 1, 0), 1);
	CHECK_EQ(events(fds[0], 1000), POLLIN | POLLOUT);
}

static void poll_with_low_water(void)
{
	struct ring ring;
	uint64_t held;
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(ring_push_quiet(&ring, "held", 4, 1, NEVER));
	held = ring_hold(&ring, 0);
	CHECK(held);
	CHECK(!set_word(fds[0], LDC_LOWAT, 16));
	CHECK_EQ(events(fds[0], 50), 0);
	CHECK(!set_word(fds[0], LDC_LOWAT, 15));
	CHECK_EQ(events(fds[0], 0), POLLOUT);
	CHECK(!set_word(fds[0], LDC_LOWAT, 16));
	CHECK_EQ(events(fds[0], 0), 0);
	ring_release(&ring, 0, held);
	CHECK_EQ(events(fds[0], 1000), POLLOUT);
}

static void poll_edge(void)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET };
	int fds[2], epoll = epoll_create1(0);
	static char got[100000];
	struct ring ring;

	CHECK(epoll >= 0);
	fill(&ring, fds);
	/* Added while there is space: the edge to "full" makes no call. */
	CHECK(read(fds[1], got, sizeof(got)) > 0);
	WAIT_FOR(ring_free(&ring));
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event));
	CHECK_EQ(epoll_wait(epoll, &event, 1, 1000), 1);
	for (int turn = 0; turn < 5; turn++) {
		uint64_t before;

		do {
			before = ring.user_i;
			while (ring_push(&ring, got, 1448, 0, NEVER))
				;
			sleep_ms(50);
		} while (before != ring.user_i);
		/* Takes away what was reported while it filled. */
		while (epoll_wait(epoll, &event, 1, 300) == 1)
			while (ring_push(&ring, got, 1448, 0, NEVER))
				;
		CHECK_EQ(ring_free(&ring), 0);
		while (!ring_free(&ring))
			CHECK(read(fds[1], got, sizeof(got)) > 0);
		CHECK_EQ(epoll_wait(epoll, &event, 1, 10000), 1);
		CHECK(event.events & EPOLLOUT);
	}
}

/* Who clears the flag may die before it notifies. */
static void lost_notification(void)
{
	struct ring ring;
	char got[4];
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(ring_push_quiet(&ring, "lost", 4, 1, NEVER));
	__atomic_fetch_and(&ring.head->kern_flag, ~LDC_KERN_SLEEPS,
			   __ATOMIC_ACQ_REL);
	CHECK_EQ(events(fds[0], 0), POLLOUT);
	read_all(fds[1], got, 4);
	CHECK(!memcmp(got, "lost", 4));
}

static void statistics(void)
{
	struct ldc_stats stats, part;
	socklen_t len = 16;
	struct ring ring;
	char got[4];
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(ring_push(&ring, "late", 4, 1, NEVER));
	CHECK(ring_push(&ring, "soon", 4, 1, 1));
	read_all(fds[1], got, 4);
	WAIT_FOR(ring_state(&ring, 0) == LDC_ACKED);
	WAIT_FOR(ring_state(&ring, 1) == LDC_DEAD);
	ring_stats(fds[0], &stats);
	CHECK_EQ(stats.records_taken, 1);
	CHECK_EQ(stats.records_sent, 1);
	CHECK_EQ(stats.records_acked, 1);
	CHECK_EQ(stats.dropped_expired, 1);
	CHECK_EQ(stats.bytes, 4);
	CHECK_EQ(stats.notifies, ring.notifies);
	CHECK_EQ(stats.wakes, stats.notifies);
	CHECK(stats.pulls >= 1 && stats.sleeps >= stats.wakes);
	CHECK_EQ(stats.mapped_bytes, ring.geo.total_bytes);
	memset(&part, 0xff, sizeof(part));
	CHECK(!getsockopt(fds[0], SOL_LDC, LDC_STATS, &part, &len));
	CHECK_EQ(len, 16);
	CHECK_EQ(part.pulls, stats.pulls);
	CHECK_EQ(part.records_sent, ~0ULL);
}

static uint64_t module_counter(const char *name)
{
	unsigned long long value;
	char line[128], found[64];
	FILE *file = fopen("/proc/net/tcp_ldc", "re");

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %llu", found, &value) == 2 &&
		    !strcmp(found, name)) {
			fclose(file);
			return value;
		}
	}
	FAIL("/proc/net/tcp_ldc has no %s", name);
}

static void module_statistics(void)
{
	struct ring ring;
	char got[4];
	int fds[2];

	own_network(65536);
	CHECK_EQ(module_counter("Sockets"), 0);
	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(ring_push(&ring, "late", 4, 1, NEVER));
	read_all(fds[1], got, 4);
	CHECK_EQ(module_counter("Sockets"), 1);
	CHECK_EQ(module_counter("RecordsSent"), 1);
	CHECK_EQ(module_counter("Bytes"), 4);
	CHECK(module_counter("RegionBytes") >= ring.geo.total_bytes);
	close(fds[0]);
	CHECK_EQ(module_counter("Sockets"), 0);
	CHECK_EQ(module_counter("RecordsSent"), 1);
}

static void tracepoints(void)
{
	static const char *const names[] = {
		"ldc_take", "ldc_drop", "ldc_sleep", "ldc_wake",
	};
	static char trace[65536];
	struct ring ring;
	char got[4];
	int fds[2];
	FILE *file;
	size_t i, n;

	file = fopen("/sys/kernel/tracing/events/tcp_ldc/enable", "we");
	if (!file)
		skip("no tracefs");
	fputs("1", file);
	fclose(file);
	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(ring_push(&ring, "late", 4, 77, NEVER));
	CHECK(ring_push(&ring, "soon", 4, 78, 1));
	read_all(fds[1], got, 4);
	WAIT_FOR(ring_state(&ring, 1) == LDC_DEAD);
	file = fopen("/sys/kernel/tracing/trace", "re");
	CHECK(file);
	n = fread(trace, 1, sizeof(trace) - 1, file);
	trace[n] = 0;
	fclose(file);
	for (i = 0; i < 4; i++)
		if (!strstr(trace, names[i]))
			FAIL("no %s in the trace", names[i]);
	CHECK(strstr(trace, "user_seq=77"));
	CHECK(strstr(trace, "user_seq=78 reason=1"));
}

static const struct test tests[] = {
	{ "attaching needs a connection", attach_needs_a_connection, 0 },
	{ "attached and without a ring", before_the_ring, 0 },
	{ "geometries", geometries, 0 },
	{ "a ring needs a connection", ring_needs_a_connection, 0 },
	{ "locked memory is limited", locked_memory, 0 },
	{ "options that are a number", words, 0 },
	{ "mappings", mappings, 0 },
	{ "poll means that slots are free", poll_means_a_slot, 0 },
	{ "poll with a low-water mark", poll_with_low_water, 0 },
	{ "poll at the edge", poll_edge, 60 },
	{ "a notification that is lost", lost_notification, 0 },
	{ "statistics of a socket", statistics, 0 },
	{ "statistics of the module", module_statistics, 0 },
	{ "tracepoints", tracepoints, 0 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
