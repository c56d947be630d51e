// SPDX-License-Identifier: GPL-2.0-only
/* Records go from the ring to the other end: whole, in order, once, late. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

#define SEED	42

struct reader {
	int fd;
	uint64_t bytes;
	pthread_t thread;
};

static void *read_stream(void *arg)
{
	struct reader *reader = arg;
	uint8_t got[65536], want[65536];
	uint64_t at = 0;
	ssize_t n;

	while (at < reader->bytes) {
		n = read(reader->fd, got, sizeof(got));
		if (n <= 0)
			FAIL("read() gives %zd at %llu: %m", n,
			     (unsigned long long)at);
		stream_fill(SEED, at, want, (size_t)n);
		if (memcmp(got, want, (size_t)n))
			FAIL("other bytes at %llu", (unsigned long long)at);
		at += (uint64_t)n;
	}
	return NULL;
}

static void reader_start(struct reader *reader, int fd, uint64_t bytes)
{
	reader->fd = fd;
	reader->bytes = bytes;
	CHECK(!pthread_create(&reader->thread, NULL, read_stream, reader));
}

/* Pushes bytes of the test stream as records of many lengths. */
static void push_stream(struct ring *ring, uint64_t bytes, uint32_t longest)
{
	uint8_t *data = malloc(longest);
	uint64_t at = 0, seq;
	uint32_t len;

	CHECK(data);
	for (seq = 0; at < bytes; seq++) {
		len = (uint32_t)(1 + (seq * 7919 + seq * seq) % longest);
		if (len > bytes - at)
			len = (uint32_t)(bytes - at);
		stream_fill(SEED, at, data, len);
		ring_push_wait(ring, data, len, seq, NEVER);
		at += len;
	}
	free(data);
}

static void stream_over(int family, const char *congestion, bool zerocopy,
			uint32_t horizon)
{
	const uint64_t bytes = times(4) << 20;
	uint32_t on = zerocopy;
	struct ldc_stats stats;
	struct reader reader;
	struct ring ring;
	int fds[2];

	own_network(1500);
	tcp_pair(family, fds);
	use_congestion(fds[0], congestion);
	ring_open(&ring, fds[0], 256, zerocopy ? 4096 : 1448);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &on, sizeof(on)));
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_HORIZON, &horizon, 4));
	reader_start(&reader, fds[1], bytes);
	push_stream(&ring, bytes, zerocopy ? 100000 : 20000);
	CHECK(!pthread_join(reader.thread, NULL));
	WAIT_FOR(ring_free(&ring) == ring.geo.slots);
	WAIT_FOR((ring_stats(fds[0], &stats),
		  stats.records_acked == stats.records_taken));
	CHECK_EQ(stats.bytes, bytes);
	CHECK_EQ(stats.records_sent, stats.records_taken);
	CHECK_EQ(stats.bad_states + stats.bad_descriptors + stats.bad_indexes, 0);
	CHECK_EQ(!stats.bytes_zerocopy, !zerocopy);
	printf("# %llu notifies for %llu records\n",
	       (unsigned long long)stats.notifies,
	       (unsigned long long)stats.records_sent);
}

static void stream_v4_cubic(void) { stream_over(AF_INET, "cubic", false, 1); }
static void stream_v4_reno(void) { stream_over(AF_INET, "reno", false, 1); }
static void stream_v4_bbr(void) { stream_over(AF_INET, "bbr", false, 1); }
static void stream_v6_cubic(void) { stream_over(AF_INET6, "cubic", false, 1); }
static void stream_v6_bbr(void) { stream_over(AF_INET6, "bbr", false, 1); }
static void zerocopy_v4(void) { stream_over(AF_INET, "cubic", true, 1); }
static void zerocopy_v6_bbr(void) { stream_over(AF_INET6, "bbr", true, 1); }

static void no_horizon_cubic(void) { stream_over(AF_INET, "cubic", false, 0); }
static void no_horizon_bbr(void) { stream_over(AF_INET6, "bbr", false, 0); }

static void one_record(void)
{
	uint64_t before = now_ns();
	struct ldc_slot *slot;
	struct ring ring;
	char got[16];
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 1448);
	CHECK(ring_push(&ring, "late data choice", 16, 7, NEVER));
	read_all(fds[1], got, 16);
	CHECK(!memcmp(got, "late data choice", 16));
	WAIT_FOR(ring_state(&ring, 0) == LDC_ACKED);
	slot = ring_slot(&ring, 0);
	CHECK_EQ(slot->fate_of, 1);
	CHECK(slot->committed_at >= before);
	CHECK(slot->finished_at >= slot->committed_at);
	CHECK(slot->acked_at >= slot->finished_at);
	CHECK(slot->acked_at <= now_ns());
	CHECK_EQ(slot->horizon, 0);
	CHECK_EQ(ring.notifies, 1);
}

static void empty_and_tiny_records(void)
{
	struct ring ring;
	char got[300];
	int fds[2], i;

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 1024, 16);
	for (i = 0; i < 300; i++) {
		char byte = (char)i;

		CHECK(ring_push_quiet(&ring, &byte, 1, (uint64_t)i, NEVER));
		CHECK(ring_push_quiet(&ring, "", 0, (uint64_t)i, NEVER));
	}
	CHECK_EQ(unsent(fds[0]), 0);
	ring_wake(&ring);
	read_all(fds[1], got, sizeof(got));
	for (i = 0; i < 300; i++)
		CHECK_EQ(got[i], (char)i);
	WAIT_FOR(ring_free(&ring) == 1024);
	for (i = 0; i < 600; i++)
		WAIT_FOR(ring_state(&ring, (uint64_t)i) == LDC_ACKED);
	CHECK_EQ(ring.notifies, 1);
}

/* A connection whose receiver takes nothing, and a ring on it that is full. */
static void stalled(struct ring *ring, int fds[2], uint32_t len, uint64_t deadline)
{
	uint8_t data[4096];
	uint64_t seq, before;

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(ring, fds[0], 64, 1400);
	do {
		before = ring->user_i;
		for (seq = ring->user_i; ; seq++) {
			memset(data, (int)seq, sizeof(data));
			if (!ring_push(ring, data, len, seq, deadline))
				break;
		}
		sleep_ms(300);
	} while (ring->user_i != before);
	CHECK_EQ(ring_free(ring), 0);
}

/* Reads one record of len bytes and counts it by its number; false: the end. */
static bool read_record(int fd, uint32_t len, uint32_t counts[256])
{
	uint8_t got[4096];
	size_t n = read_to_end(fd, got, len), i;

	if (!n)
		return false;
	CHECK_EQ(n, len);
	for (i = 1; i < len; i++)
		CHECK_EQ(got[i], got[0]);
	counts[got[0]]++;
	return true;
}

static void horizon_of(uint32_t horizon)
{
	uint32_t mss, most = 0;
	socklen_t size = sizeof(mss);
	struct ldc_stats stats;
	struct ring ring;
	int fds[2], i;

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 64, 1400);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_HORIZON, &horizon,
			  sizeof(horizon)));
	CHECK(!getsockopt(fds[0], IPPROTO_TCP, TCP_MAXSEG, &mss, &size));
	for (i = 0; i < 60; i++) {
		uint8_t data[1400];

		memset(data, i, sizeof(data));
		CHECK(ring_push(&ring, data, sizeof(data), (uint64_t)i, NEVER));
		if (unsent(fds[0]) > most)
			most = unsent(fds[0]);
	}
	sleep_ms(300);
	if (unsent(fds[0]) > most)
		most = unsent(fds[0]);
	printf("# unsent at most %u, segment %u\n", most, mss);
	/* With a closed window and nothing in flight, one segment probes. */
	CHECK(most <= mss);
	CHECK(ring_state(&ring, 59) == LDC_READY);
	ring_stats(fds[0], &stats);
	CHECK(stats.horizon_max <= mss);
}

static void horizon_0(void) { horizon_of(0); }
static void horizon_1(void) { horizon_of(1); }

/*
 * A device that takes one segment at a time and holds it for long: of a hand-over of
 * several TCP would send the first ones and keep the others.
 */
static void device_of_one_segment(void)
{
	static uint8_t data[16384];
	uint32_t mss, most = 0, left;
	socklen_t size = sizeof(mss);
	struct ring ring;
	int fds[2], i;

	own_network(1500);
	if (system("ip link set dev lo gso_max_segs 1") ||
	    system("tc qdisc add dev lo root tbf rate 1mbit burst 3000 limit 100000"))
		skip("no tbf");
	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, sizeof(data));
	CHECK(!getsockopt(fds[0], IPPROTO_TCP, TCP_MAXSEG, &mss, &size));
	for (i = 0; i < 10; i++) {
		CHECK(ring_push(&ring, data, sizeof(data), (uint64_t)i, NEVER));
		left = unsent(fds[0]);
		if (left > most)
			most = left;
		CHECK_EQ(read_to_end(fds[1], data, sizeof(data)),
			 sizeof(data));
	}
	printf("# unsent at most %u, segment %u\n", most, mss);
	CHECK(most <= mss);
}

static void deadlines(void)
{
	uint32_t counts[256], expired = 0;
	struct ring ring;
	uint64_t index;
	int fds[2];

	stalled(&ring, fds, 1400, now_ns() + 3000000000ULL);
	WAIT_FOR(ring_slot(&ring, ring.user_i - 1)->deadline < now_ns());
	for (index = 0; index < ring.user_i; index++)
		CHECK(ring_state(&ring, index) != LDC_DEAD);
	CHECK(ring.user_i < 256);
	/* The window opens; the sender looks at what is left. */
	memset(counts, 0, sizeof(counts));
	while (ring_state(&ring, ring.user_i - 1) == LDC_READY)
		read_record(fds[1], 1400, counts);
	close(fds[0]);
	while (read_record(fds[1], 1400, counts))
		;
	for (index = ring.user_i - 64; index < ring.user_i; index++) {
		if (ring_state(&ring, index) != LDC_DEAD) {
			CHECK_EQ(counts[index], 1);
			continue;
		}
		CHECK_EQ(counts[index], 0);
		CHECK_EQ(ring_arg(&ring, index), LDC_REASON_EXPIRED);
		CHECK(ring_slot(&ring, index)->finished_at >=
		      ring_slot(&ring, index)->deadline);
		CHECK_EQ(ring_slot(&ring, index)->committed_at, 0);
		expired++;
	}
	CHECK(expired > 50);
}

static void drops(void)
{
	uint32_t counts[256] = {}, dropped = 0;
	uint64_t index, state;
	struct ring ring;
	int fds[2];

	stalled(&ring, fds, 1400, NEVER);
	CHECK(ring.user_i < 256);
	for (index = ring.tail; index < ring.user_i; index += 2)
		dropped += ring_drop(&ring, index);
	CHECK(dropped > 25);
	/* The last one that is ready goes only when all before it went. */
	while (ring_state(&ring, ring.user_i - 1) == LDC_READY ||
	       ring_state(&ring, ring.user_i - 2) == LDC_READY)
		CHECK(read_record(fds[1], 1400, counts));
	close(fds[0]);
	while (read_record(fds[1], 1400, counts))
		;
	for (index = ring.user_i - 64; index < ring.user_i; index++) {
		state = ring_state(&ring, index);
		CHECK(state == LDC_DEAD || state == LDC_SENT ||
		      state == LDC_ACKED);
		CHECK_EQ(counts[index], state != LDC_DEAD);
		if (state == LDC_DEAD)
			CHECK_EQ(ring_arg(&ring, index), LDC_REASON_APPLICATION);
	}
}

static void held_is_passed_over(void)
{
	struct ring ring;
	uint64_t word;
	char got[4];
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 8, 64);
	CHECK(ring_push_quiet(&ring, "1111", 4, 1, NEVER));
	CHECK(ring_push_quiet(&ring, "2222", 4, 2, NEVER));
	word = ring_hold(&ring, 0);
	CHECK(word);
	ring_wake(&ring);
	read_all(fds[1], got, 4);
	CHECK(!memcmp(got, "2222", 4));
	CHECK_EQ(ring_state(&ring, 0), LDC_HELD);
	memcpy(ring_payload(&ring, 0), "new!", 4);
	ring_release(&ring, 0, word);
	read_all(fds[1], got, 4);
	CHECK(!memcmp(got, "new!", 4));
	WAIT_FOR(ring_state(&ring, 0) == LDC_ACKED);
}

static void held_back_by_umod(void)
{
	struct ring ring;
	char got[8];
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 8, 64);
	__atomic_store_n(&ring.head->umod_i, 1, __ATOMIC_SEQ_CST);
	CHECK(ring_push(&ring, "1111", 4, 1, NEVER));
	CHECK(ring_push(&ring, "2222", 4, 2, NEVER));
	read_all(fds[1], got, 4);
	sleep_ms(50);
	CHECK_EQ(ring_state(&ring, 1), LDC_READY);
	__atomic_store_n(&ring.head->umod_i, LDC_NO_HOLD, __ATOMIC_RELEASE);
	__atomic_fetch_add(&ring.head->changes, 1, __ATOMIC_RELEASE);
	ring_wake(&ring);
	read_all(fds[1], got, 4);
	CHECK(!memcmp(got, "2222", 4));
}

static void zero_window(void)
{
	uint8_t got[1400];
	struct ring ring;
	uint64_t seq;
	int fds[2];

	stalled(&ring, fds, 1400, NEVER);
	for (seq = 0; seq < ring.user_i; seq++) {
		read_all(fds[1], got, sizeof(got));
		CHECK_EQ(got[0], (uint8_t)seq);
		CHECK_EQ(got[1399], (uint8_t)seq);
	}
	WAIT_FOR(ring_free(&ring) == 64);
	CHECK(ring_push(&ring, "again", 5, 0, NEVER));
	read_all(fds[1], got, 5);
}

/*
 * The window opens and the sender is not told: the packet that says so is lost.
 * TCP has to probe, and it does so only if it has something to send.
 */
static void lost_window_update(uint32_t horizon)
{
	static uint8_t data[64 * 1400], got[64 * 1400];
	struct ring ring;
	size_t at = 0;
	ssize_t n;
	int fds[2];

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 64, 1400);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_HORIZON, &horizon, 4));
	stream_fill(SEED, 0, data, sizeof(data));
	for (at = 0; at < sizeof(data); at += 1400)
		CHECK(ring_push(&ring, data + at, 1400, at, NEVER));
	sleep_ms(500);
	CHECK_EQ(ring_state(&ring, 63), LDC_READY);
	if (system("tc qdisc add dev lo root netem loss 100%"))
		skip("no netem");
	at = 0;
	while ((n = recv(fds[1], got + at, sizeof(got) - at, MSG_DONTWAIT)) > 0)
		at += (size_t)n;
	CHECK(!system("tc qdisc del dev lo root"));
	read_all(fds[1], got + at, sizeof(got) - at);
	CHECK(!memcmp(got, data, sizeof(data)));
}

static void lost_window_update_0(void) { lost_window_update(0); }
static void lost_window_update_1(void) { lost_window_update(1); }

/* The window closes in the middle of a record of many segments. */
static void zero_window_in_a_record(void)
{
	static uint8_t data[400000], got[400000];
	struct ring ring;
	int fds[2], turn;

	own_network(1500);
	tcp_pair_buffer(AF_INET6, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 512, 1000);
	stream_fill(SEED, 0, data, sizeof(data));
	for (turn = 0; turn < 2; turn++) {
		CHECK(ring_push(&ring, data, sizeof(data), 1, NEVER));
		sleep_ms(700);
		CHECK_EQ(ring_state(&ring, ring.user_i - 400), LDC_TAKEN);
		read_all(fds[1], got, sizeof(got));
		CHECK(!memcmp(got, data, sizeof(got)));
		WAIT_FOR(ring_free(&ring) == 512);
	}
}

/* TCP takes only part of what it is given: the rest waits, is asked again. */
static void little_memory(void)
{
	const uint64_t bytes = 1 << 20;
	struct ldc_stats stats;
	struct reader reader;
	struct ring ring;
	int fds[2];

	tcp_pair(AF_INET, fds);
	CHECK(!setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, 4));
	ring_open(&ring, fds[0], 512, 1000);
	reader_start(&reader, fds[1], bytes);
	push_stream(&ring, bytes, 3000);
	CHECK(!pthread_join(reader.thread, NULL));
	WAIT_FOR(ring_free(&ring) == 512);
	ring_stats(fds[0], &stats);
	printf("# %llu retries, %llu put back\n",
	       (unsigned long long)stats.retries,
	       (unsigned long long)stats.records_put_back);
	CHECK_EQ(stats.bytes, bytes);
	CHECK(stats.retries > 0);
	CHECK(stats.records_put_back > 0);
}

/* Records so far apart that each finds the ring empty; the notifications. */
static uint64_t one_by_one(struct ring *ring, int far, unsigned int records)
{
	uint64_t before = ring->notifies;
	uint8_t sent, got;
	unsigned int i;

	for (i = 0; i < records; i++) {
		sent = (uint8_t)i;
		CHECK(ring_push(ring, &sent, 1, i, NEVER));
		sleep_ms(10);
		read_all(far, &got, 1);
		CHECK_EQ(got, sent);
	}
	return ring->notifies - before;
}

static void watched_ring(void)
{
	const uint32_t watch = 20;
	struct ldc_stats stats;
	uint64_t last, notified;
	struct ring ring;
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 1448);
	CHECK_EQ(one_by_one(&ring, fds[1], 50), 50);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_WATCH, &watch, sizeof(watch)));
	notified = one_by_one(&ring, fds[1], 50);
	last = now_ns();
	/* One to begin with; a host that is busy for a second makes another. */
	printf("# %llu notifications\n", (unsigned long long)notified);
	CHECK(notified >= 1 && notified <= 3);
	WAIT_FOR(ring.head->kern_flag & LDC_KERN_SLEEPS);
	CHECK(now_ns() - last > 900000000);
	ring_stats(fds[0], &stats);
	CHECK(stats.watches >= 50);
	CHECK_EQ(one_by_one(&ring, fds[1], 1), 1);
}

static const struct test tests[] = {
	{ "one record", one_record, 0 },
	{ "a ring that is watched", watched_ring, 0 },
	{ "empty and tiny records, one notification", empty_and_tiny_records, 0 },
	{ "a stream of records, IPv4, cubic", stream_v4_cubic, 90 },
	{ "a stream of records, IPv4, reno", stream_v4_reno, 90 },
	{ "a stream of records, IPv4, bbr", stream_v4_bbr, 90 },
	{ "a stream of records, IPv6, cubic", stream_v6_cubic, 90 },
	{ "a stream of records, IPv6, bbr", stream_v6_bbr, 90 },
	{ "a stream without a horizon, IPv4, cubic", no_horizon_cubic, 90 },
	{ "a stream without a horizon, IPv6, bbr", no_horizon_bbr, 90 },
	{ "zero copy, IPv4, cubic", zerocopy_v4, 90 },
	{ "zero copy, IPv6, bbr", zerocopy_v6_bbr, 90 },
	{ "horizon of no segment", horizon_0, 0 },
	{ "horizon of one segment", horizon_1, 0 },
	{ "a device that takes one segment", device_of_one_segment, 60 },
	{ "past its deadline a record is not begun", deadlines, 0 },
	{ "what is dropped is not sent", drops, 0 },
	{ "a held record is passed over", held_is_passed_over, 0 },
	{ "umod_i holds the sender back", held_back_by_umod, 0 },
	{ "a closed window opens again", zero_window, 0 },
	{ "a window update that is lost, no horizon", lost_window_update_0, 60 },
	{ "a window update that is lost", lost_window_update_1, 60 },
	{ "TCP takes a part only", little_memory, 90 },
	{ "a window that closes within a record", zero_window_in_a_record, 0 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
