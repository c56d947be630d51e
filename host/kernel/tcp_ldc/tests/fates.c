// SPDX-License-Identifier: GPL-2.0-only
/*
 * Acknowledgements that come when their record's slot has another record: over
 * a slow loopback, from rings that are much smaller than what is in flight.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

/*
 * Long enough for all pushes of a case on a busy machine, and less than the
 * second after which a SYN is sent again; half of it each way. A timer may be
 * early.
 */
#define DELAY		"400ms"
#define ROUND_TRIP_NS	750000000ULL
#define SLOTS		4
#define RECORDS		100
#define LEN		100

static struct ring ring;
static struct ldc_stats stats;
static int fds[2];
static uint64_t pushed_at[RECORDS];

/* A connection whose acknowledgements are late, and its ring. */
static void open_slow(uint32_t block_bytes, uint32_t keep_acks)
{
	own_network(65536);
	/* Short records are segments of their own, which the window counts. */
	CHECK(!system("ip route replace local 127.0.0.1 dev lo table local initcwnd 1000"));
	if (system("tc qdisc add dev lo root netem delay " DELAY))
		skip("no netem");
	tcp_pair(AF_INET, fds);
	ring_open_keeping(&ring, fds[0], SLOTS, block_bytes, keep_acks);
}

static void push(uint32_t records, uint32_t len)
{
	static uint8_t data[8192];
	uint32_t i;

	for (i = 0; i < records; i++) {
		if (ring.user_i < RECORDS)
			pushed_at[ring.user_i] = now_ns();
		ring_push_wait(&ring, data, len, i, NEVER);
	}
}

static uint64_t acked(void)
{
	ring_stats(fds[0], &stats);
	return stats.records_acked;
}

static uint32_t take(struct ldc_ack *acks, socklen_t bytes)
{
	CHECK(!getsockopt(fds[0], SOL_LDC, LDC_ACKS, acks, &bytes));
	CHECK_EQ(bytes % sizeof(*acks), 0);
	return bytes / (uint32_t)sizeof(*acks);
}

static void late_ones_are_kept(void)
{
	struct ldc_ack acks[RECORDS];
	socklen_t bytes = sizeof(acks);
	uint64_t before = 0;
	uint32_t i, first;

	open_slow(LEN, RECORDS);
	push(RECORDS, LEN);
	/* The round trip is long: all of them are in flight. */
	CHECK_EQ(acked(), 0);
	CHECK_EQ(stats.records_sent, RECORDS);
	CHECK_EQ(take(acks, sizeof(acks)), 0);
	WAIT_FOR(acked() == RECORDS);
	CHECK_EQ(stats.acks_late, RECORDS - SLOTS);
	CHECK_EQ(stats.acks_missed, 0);

	/* Nothing is forgotten that was not given out. */
	CHECK_ERR(getsockopt(fds[0], SOL_LDC, LDC_ACKS, (void *)1, &bytes), EFAULT);
	CHECK_EQ(take(acks, sizeof(*acks) - 1), 0);
	first = take(acks, 10 * sizeof(*acks) + 5);
	CHECK_EQ(first, 10);
	CHECK_EQ(take(acks + first, sizeof(acks)), RECORDS - SLOTS - first);
	CHECK_EQ(take(acks, 0), 0);
	for (i = 0; i < RECORDS - SLOTS; i++) {
		CHECK_EQ(acks[i].index, i);
		CHECK(acks[i].acked_at >= pushed_at[i] + ROUND_TRIP_NS);
		CHECK(acks[i].acked_at >= before && acks[i].acked_at <= now_ns());
		before = acks[i].acked_at;
	}
	for (; i < RECORDS; i++) {
		CHECK_EQ(ring_state(&ring, i), LDC_ACKED);
		CHECK(ring_slot(&ring, i)->acked_at >= before);
	}
	CHECK_EQ(take(acks, sizeof(acks)), 0);
}

/* The producer says that it will use the slot of a sent record again. R-STATE-3 */
static void a_concluded_slot_is_not_written(void)
{
	uint64_t sent = LDC_SENT, last = LDC_SENT | 1 << LDC_ARG_SHIFT;
	struct ldc_ack ack;

	open_slow(LEN, 8);
	push(2, LEN);
	WAIT_FOR(ring_state(&ring, 1) == LDC_SENT);
	CHECK(__atomic_compare_exchange_n(&ring_slot(&ring, 0)->state, &sent, last,
					  false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	WAIT_FOR(acked() == 2);
	CHECK_EQ(ring_state(&ring, 0), LDC_SENT);
	CHECK_EQ(ring_slot(&ring, 0)->acked_at, 0);
	CHECK_EQ(ring_state(&ring, 1), LDC_ACKED);
	CHECK_EQ(take(&ack, sizeof(ack)), 1);
	CHECK_EQ(ack.index, 0);
}

static void no_more_than_asked_for_are_kept(void)
{
	struct ldc_ack acks[RECORDS];
	uint32_t i;

	open_slow(LEN, 8);
	push(RECORDS, LEN);
	/* Eight wait for their acknowledgement, four of them in their slots. */
	WAIT_FOR(acked() == 8);
	CHECK_EQ(stats.acks_late, 4);
	CHECK_EQ(stats.acks_missed, RECORDS - 8);
	push(8, LEN);
	WAIT_FOR(acked() == 16);
	CHECK_EQ(stats.acks_missed, RECORDS - 8);
	/* Nobody has read: the newest are missed. */
	push(8, LEN);
	WAIT_FOR(acked() == 24);
	CHECK_EQ(stats.acks_late, 8);
	CHECK_EQ(stats.acks_missed, RECORDS - 8 + 4);
	CHECK_EQ(take(acks, sizeof(acks)), 8);
	for (i = 0; i < 4; i++) {
		CHECK_EQ(acks[i].index, RECORDS - 8 + i);
		CHECK_EQ(acks[4 + i].index, RECORDS + i);
	}
	push(8, LEN);
	WAIT_FOR(acked() == 32);
	CHECK_EQ(take(acks, sizeof(acks)), 4);
	CHECK_EQ(acks[0].index, RECORDS + 16);
}

static void none_are_kept_unasked(void)
{
	struct ldc_ack acks[RECORDS];

	open_slow(LEN, 0);
	push(RECORDS, LEN);
	WAIT_FOR(acked() == SLOTS);
	CHECK_EQ(stats.acks_late, 0);
	CHECK_EQ(stats.acks_missed, RECORDS - SLOTS);
	CHECK_EQ(take(acks, sizeof(acks)), 0);
	CHECK_EQ(ring_state(&ring, RECORDS - 1), LDC_ACKED);
}

static void zero_copy(void)
{
	struct ldc_ack acks[RECORDS];
	uint32_t on = 1, i, kept, in_slots = 0;

	open_slow(8192, RECORDS);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &on, sizeof(on)));
	/* No more than the receiver takes without reading. */
	push(7, 8192);
	WAIT_FOR(acked() == 7);
	CHECK_EQ(stats.bytes_zerocopy, 7 * 8192);
	/* Its end may come after its acknowledgement. */
	WAIT_FOR(ring_state(&ring, 6) == LDC_ACKED);
	kept = take(acks, sizeof(acks));
	for (i = 3; i < 7; i++) {
		in_slots += ring_state(&ring, i) == LDC_ACKED;
		CHECK(ring_slot(&ring, i)->acked_at);
		CHECK(ring_slot(&ring, i)->finished_at);
	}
	CHECK_EQ(in_slots, SLOTS);
	CHECK_EQ(kept, stats.acks_late);
	CHECK_EQ(stats.acks_missed, 0);
}

static uint32_t flags(void)
{
	return __atomic_load_n(&ring.head->kern_flag, __ATOMIC_ACQUIRE);
}

/* R-ORDER-6: the ring is closed, and what is in flight has a fate to come. */
static void a_closed_ring_says_whether_more_is_told(void)
{
	uint32_t i;

	open_slow(LEN, 8);
	push(3, LEN);
	WAIT_FOR(ring_state(&ring, 2) == LDC_SENT);
	CHECK(!shutdown(fds[0], SHUT_WR));
	CHECK_EQ(flags(), LDC_KERN_CLOSED | LDC_KERN_TELLS);
	CHECK_EQ(ring_state(&ring, 2), LDC_SENT);
	CHECK_EQ(ring_arg(&ring, 2), 0);
	WAIT_FOR(flags() == LDC_KERN_CLOSED);
	for (i = 0; i < 3; i++)
		CHECK_EQ(ring_state(&ring, i), LDC_ACKED);
}

/* The last acknowledgement is that of our FIN, after which there is no socket state. */
static void the_last_acknowledgement_ends_the_connection(void)
{
	open_slow(LEN, 8);
	CHECK(!shutdown(fds[1], SHUT_WR));
	CHECK_EQ(read_end(fds[0]), 0);
	push(1, LEN);
	CHECK(!shutdown(fds[0], SHUT_WR));
	WAIT_FOR(flags() == LDC_KERN_CLOSED);
	CHECK_EQ(ring_state(&ring, 0), LDC_ACKED);
	CHECK_EQ(acked(), 1);
}

static void after_close_nothing_is_told(void)
{
	open_slow(LEN, 8);
	push(8, LEN);
	close(fds[0]);
	CHECK_EQ(flags(), LDC_KERN_CLOSED);
	CHECK_EQ(ring_state(&ring, 7), LDC_SENT);
	CHECK_EQ(ring_arg(&ring, 7), 1);
}

static const struct test tests[] = {
	{ "acknowledgements of slots used again are kept", late_ones_are_kept, 0 },
	{ "a slot that is to be used again is not written", a_concluded_slot_is_not_written, 0 },
	{ "no more are kept than asked for", no_more_than_asked_for_are_kept, 0 },
	{ "none are kept unasked", none_are_kept_unasked, 0 },
	{ "with zero copy", zero_copy, 0 },
	{ "a closed ring says whether more is told", a_closed_ring_says_whether_more_is_told, 0 },
	{ "the last acknowledgement ends the connection",
	  the_last_acknowledgement_ends_the_connection, 0 },
	{ "after close() nothing is told", after_close_nothing_is_told, 0 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
