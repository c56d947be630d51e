// SPDX-License-Identifier: MIT OR Apache-2.0
/* Each call of the library against the kernel, its errors included. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define PACKET	1000
#define PACKETS	16

static void fill(unsigned char *bytes, size_t size, unsigned int number)
{
	size_t at;

	for (at = 0; at < size; at++)
		bytes[at] = (unsigned char)(number * 31 + at * 7 + at / 256);
}

static struct ldc *ring_on(const struct pair *pair)
{
	struct ldc *ldc = ldc_init(pair->near, PACKETS, PACKET);

	CHECK(ldc);
	return ldc;
}

/*
 * Fills the path with records of number 0, one at a time, until the kernel takes no more;
 * returns how many it took. Behind the one that it has begun only the last was put, and dropped.
 */
static unsigned int block(struct ldc *ldc)
{
	unsigned char data[PACKET];
	struct timespec moment = { .tv_nsec = 1000000 };
	struct ldc_stats stats = { 0 };
	unsigned int sent = 0, turns;

	fill(data, sizeof(data), 0);
	for (;;) {
		CHECK(ldc_send(ldc, 0, data, sizeof(data), 1) == PACKET);
		sent++;
		for (turns = 0; stats.records_taken < sent; turns++) {
			CHECK(!ldc_get_stats(ldc, &stats));
			if (turns == 100 && ldc_drop(ldc, 0) == 1)
				return sent - 1;
			nanosleep(&moment, NULL);
		}
	}
}

static void expect_record(const struct pair *pair, size_t size, unsigned int number)
{
	static unsigned char got[1 << 16], expected[1 << 16];

	fill(expected, size, number);
	CHECK(read_all(pair->far, got, size));
	CHECK(!memcmp(got, expected, size));
}

static void refuses_what_cannot_be(void)
{
	struct pair pair = make_pair();
	int lone = socket(AF_INET, SOCK_STREAM, 0);
	struct ldc *ldc;

	errno = 0;
	CHECK(!ldc_init(lone, PACKETS, PACKET) && errno == ENOTCONN);
	CHECK(!ldc_init(pair.near, 0, PACKET) && errno == EINVAL);
	CHECK(!ldc_init(pair.near, PACKETS, -1) && errno == EINVAL);
	ldc = ring_on(&pair);
	CHECK(!ldc_init(pair.near, PACKETS, PACKET) && errno != 0);
	CHECK(send(pair.near, "x", 1, MSG_NOSIGNAL) < 0 && errno == EBUSY);
	ldc_close(ldc);
	ldc_close(NULL);
}

static void records_arrive_whole_and_in_order(void)
{
	static unsigned char data[PACKET * PACKETS];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int number;

	for (number = 0; number < 500; number++) {
		size_t size = 1 + number * 397 % (PACKET * PACKETS / 2);

		fill(data, size, number);
		CHECK(ldc_wait(ldc, size, 5000) == 1);
		CHECK(ldc_send(ldc, number, data, size, 1) == (ssize_t)size);
		expect_record(&pair, size, number);
	}
	CHECK(ldc_send(ldc, 1, data, PACKET * PACKETS + 1, 1) < 0 && errno == EMSGSIZE);
	CHECK(ldc_wait(ldc, PACKET * PACKETS + 1, 0) < 0 && errno == EMSGSIZE);
	ldc_close(ldc);
}

static void a_full_ring_says_so_and_wakes(void)
{
	static unsigned char data[PACKET], sink[1 << 20];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int taken = block(ldc), number;

	fill(data, sizeof(data), 1);
	for (number = 0; ldc_room(ldc); number++)
		CHECK(ldc_send(ldc, 1, data, sizeof(data), 1) == PACKET);
	CHECK(ldc_send(ldc, 1, data, sizeof(data), 1) < 0 && errno == EAGAIN);
	CHECK(ldc_wait(ldc, PACKET, 50) == 0);
	CHECK(read_all(pair.far, sink, (size_t)taken * PACKET));
	CHECK(ldc_wait(ldc, PACKET, 5000) == 1);
	for (; number; number--)
		expect_record(&pair, PACKET, 1);
	ldc_close(ldc);
}

static void what_is_dropped_never_arrives(void)
{
	static unsigned char data[2 * PACKET], sink[1 << 20];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int taken = block(ldc), number;

	for (number = 1; number <= 6; number++) {
		fill(data, sizeof(data), number);
		CHECK(ldc_send(ldc, number, data, sizeof(data), 1) == 2 * PACKET);
	}
	/* Two slots each; the second time there is nothing left. */
	CHECK(ldc_drop(ldc, 2) == 2 && ldc_drop(ldc, 2) == 0);
	CHECK(ldc_drop(ldc, 5) == 2);
	CHECK(ldc_drop(ldc, 99) == 0);
	CHECK(read_all(pair.far, sink, (size_t)taken * PACKET));
	for (number = 1; number <= 6; number++) {
		if (number != 2 && number != 5)
			expect_record(&pair, 2 * PACKET, number);
	}
	ldc_close(ldc);
}

static void a_record_is_modified_until_it_is_taken(void)
{
	static unsigned char data[3 * PACKET], sink[1 << 20];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int taken = block(ldc);

	fill(data, sizeof(data), 1);
	CHECK(ldc_send(ldc, 1, data, sizeof(data), 1) == 3 * PACKET);
	/* Across the border of two slots. */
	CHECK(!ldc_modify(ldc, 1, PACKET - 10, "0123456789abcdefghij", 20));
	memcpy(data + PACKET - 10, "0123456789abcdefghij", 20);
	CHECK(ldc_modify(ldc, 1, 3 * PACKET - 1, "xy", 2) < 0 && errno == ERANGE);
	CHECK(ldc_modify(ldc, 7, 0, "x", 1) < 0 && errno == ENOENT);
	CHECK(read_all(pair.far, sink, (size_t)taken * PACKET));
	CHECK(read_all(pair.far, sink, 3 * PACKET));
	CHECK(!memcmp(sink, data, 3 * PACKET));
	CHECK(ldc_modify(ldc, 1, 0, "x", 1) < 0 && errno == ENOENT);
	ldc_close(ldc);
}

static void a_newer_version_replaces_the_older(void)
{
	static unsigned char data[3 * PACKET], sink[1 << 20];
	struct ldc_record one = LDC_RECORD(1), two = LDC_RECORD(2), three = LDC_RECORD(3);
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int taken = block(ldc);

	one.key = two.key = three.key = 77;
	fill(data, PACKET, 1);
	CHECK(ldc_replace(ldc, &one, data, PACKET, 1) == PACKET);
	fill(data, PACKET, 10);
	CHECK(ldc_send(ldc, 10, data, PACKET, 1) == PACKET);
	/* In its place, ahead of the other. */
	fill(data, PACKET / 2, 2);
	CHECK(ldc_replace(ldc, &two, data, PACKET / 2, 1) == PACKET / 2);
	CHECK(ldc_room(ldc) >= PACKETS - 4);
	/* Too large for that: behind the other. */
	fill(data, 3 * PACKET, 3);
	CHECK(ldc_replace(ldc, &three, data, 3 * PACKET, 1) == 3 * PACKET);
	CHECK(read_all(pair.far, sink, (size_t)taken * PACKET));
	expect_record(&pair, PACKET, 10);
	expect_record(&pair, 3 * PACKET, 3);
	ldc_close(ldc);
}

static void the_kernel_keeps_the_deadline(void)
{
	static unsigned char data[PACKET], sink[1 << 20];
	struct ldc_record late = LDC_RECORD(1), later = LDC_RECORD(2), kept = LDC_RECORD(3);
	struct timespec wait = { .tv_nsec = 60000000 };
	struct ldc_fate fate = { 0 };
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int taken = block(ldc);

	late.deadline = ldc_now() + 50000000;
	later.deadline = ldc_now() + 3600000000000ULL;
	fill(data, PACKET, 1);
	CHECK(ldc_send_record(ldc, &late, data, PACKET, 1) == PACKET);
	fill(data, PACKET, 2);
	CHECK(ldc_send_record(ldc, &later, data, PACKET, 1) == PACKET);
	CHECK(!ldc_set_deadline(ldc, 2, ldc_now() + 50000000));
	fill(data, PACKET, 3);
	CHECK(ldc_send_record(ldc, &kept, data, PACKET, 1) == PACKET);
	nanosleep(&wait, NULL);
	CHECK(read_all(pair.far, sink, (size_t)taken * PACKET));
	expect_record(&pair, PACKET, 3);
	while (fate.user_seq != 2) {
		CHECK(ldc_next_fate(ldc, &fate));
		CHECK(fate.user_seq == 0 || (fate.outcome == LDC_WAS_DROPPED &&
					     fate.reason == LDC_REASON_EXPIRED));
	}
	ldc_close(ldc);
}

static void a_hold_keeps_the_kernel_back(void)
{
	static unsigned char data[PACKET], sink[1 << 20];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	unsigned int taken = block(ldc), number;

	for (number = 1; number <= 3; number++) {
		fill(data, PACKET, number);
		CHECK(ldc_send(ldc, number, data, PACKET, 1) == PACKET);
	}
	CHECK(!ldc_hold(ldc, 2));
	CHECK(ldc_hold(ldc, 9) < 0 && errno == ENOENT);
	CHECK(!ldc_hold(ldc, 2));
	CHECK(read_all(pair.far, sink, (size_t)taken * PACKET));
	expect_record(&pair, PACKET, 1);
	CHECK(recv(pair.far, sink, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(ldc_drop(ldc, 2) == 1);
	CHECK(ldc_release(ldc) >= 0);
	expect_record(&pair, PACKET, 3);
	ldc_close(ldc);
}

static void fates_come_in_order_with_their_times(void)
{
	static unsigned char data[PACKET];
	struct timespec moment = { .tv_nsec = 1000000 };
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	uint64_t begin = ldc_now(), number;
	struct ldc_fate fate;

	CHECK(!ldc_next_fate(ldc, &fate));
	for (number = 1; number <= 8; number++) {
		CHECK(ldc_send(ldc, number, data, PACKET, 0) == PACKET);
	}
	CHECK(ldc_drop(ldc, 4) == 1);
	/* Nobody has woken the kernel. */
	CHECK(ldc_notify(ldc) == 1 && ldc_notify(ldc) == 0);
	CHECK(read_all(pair.far, data, 1));
	for (number = 1; number <= 8; number++) {
		int turns;

		for (turns = 0; !ldc_next_fate(ldc, &fate); turns++) {
			unsigned char sink[PACKET];

			CHECK(turns < 5000);
			recv(pair.far, sink, sizeof(sink), MSG_DONTWAIT);
			nanosleep(&moment, NULL);
		}
		CHECK(fate.user_seq == number);
		if (number == 4) {
			CHECK(fate.outcome == LDC_WAS_DROPPED);
			CHECK(fate.reason == LDC_REASON_APPLICATION && !fate.committed_at);
			continue;
		}
		CHECK(fate.outcome == LDC_WAS_ACKED);
		CHECK(begin <= fate.committed_at && fate.committed_at <= fate.finished_at);
		CHECK(fate.finished_at <= fate.acked_at && fate.acked_at <= ldc_now());
	}
	CHECK(!ldc_next_fate(ldc, &fate) && ldc_fates_lost(ldc) == 0);
	ldc_close(ldc);
}

/* A connection on which an acknowledgement takes 0.8 s, less than after which a SYN is sent again. */
static struct pair make_slow_pair(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(address);
	struct pair pair;
	int listener;

	CHECK(!unshare(CLONE_NEWNET) && !system("ip link set lo up"));
	/* Short records are segments of their own, which the window counts. */
	CHECK(!system("ip route replace local 127.0.0.1 dev lo table local initcwnd 1000"));
	CHECK(!system("tc qdisc add dev lo root netem delay 400ms"));
	listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(listener, (struct sockaddr *)&address, len) && !listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	pair.near = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(pair.near, (struct sockaddr *)&address, len));
	pair.far = accept(listener, NULL, NULL);
	CHECK(pair.far >= 0);
	close(listener);
	return pair;
}

static void await_fate(struct ldc *ldc, struct ldc_fate *fate)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	int turns;

	for (turns = 0; !ldc_next_fate(ldc, fate); turns++) {
		CHECK(turns < 10000);
		nanosleep(&moment, NULL);
	}
}

/* Twelve times the ring is in flight before the first acknowledgement. */
static void fates_outlive_their_slots(void)
{
	static unsigned char data[PACKET];
	enum { RECORDS = 12 * PACKETS, DROPPED = 5 };
	struct pair pair = make_slow_pair();
	struct ldc *ldc = ring_on(&pair);
	uint64_t number, begin = ldc_now(), before = 0;
	struct ldc_stats stats;
	struct ldc_fate fate;

	for (number = 0; number < RECORDS; number++) {
		/* Not notified, so that there is something to drop. */
		CHECK(ldc_wait(ldc, 100, 10000) == 1);
		CHECK(ldc_send(ldc, number, data, 100, number > DROPPED) == 100);
		if (number == DROPPED)
			CHECK(ldc_drop(ldc, DROPPED) == 1);
	}
	CHECK(ldc_fates_lost(ldc) == 0);
	for (number = 0; number < RECORDS; number++) {
		await_fate(ldc, &fate);
		CHECK(fate.user_seq == number);
		if (number == DROPPED) {
			CHECK(fate.outcome == LDC_WAS_DROPPED);
			CHECK(fate.reason == LDC_REASON_APPLICATION);
			continue;
		}
		CHECK(fate.outcome == LDC_WAS_ACKED);
		CHECK(begin <= fate.committed_at && fate.committed_at <= fate.finished_at);
		CHECK(fate.acked_at >= fate.finished_at + 750000000 && fate.acked_at >= before);
		before = fate.acked_at;
	}
	CHECK(!ldc_next_fate(ldc, &fate) && ldc_fates_lost(ldc) == 0);
	CHECK(!ldc_get_stats(ldc, &stats) && stats.acks_missed == 0);
	CHECK(stats.acks_late > PACKETS);
	ldc_close(ldc);
}

/* Fates that nobody reads take no more memory than was asked for, and are counted. */
static void fates_are_kept_within_their_bound(void)
{
	static unsigned char data[PACKET];
	struct ldc_options options = { .packets = PACKETS, .packet_bytes = PACKET, .fates = 20 };
	enum { RECORDS = 200, KEPT = 32 };
	struct pair pair = make_slow_pair();
	struct ldc *ldc = ldc_open(pair.near, &options);
	uint64_t number, lost;
	struct ldc_fate fate;

	CHECK(ldc);
	for (number = 0; number < RECORDS; number++) {
		CHECK(ldc_wait(ldc, 100, 10000) == 1);
		CHECK(ldc_send(ldc, number, data, 100, 1) == 100);
	}
	lost = ldc_fates_lost(ldc);
	CHECK(lost == RECORDS - KEPT - PACKETS);
	/* None of these waits for ever, although acknowledgements were missed. */
	for (number = 0; number < KEPT + PACKETS; number++) {
		await_fate(ldc, &fate);
		CHECK(fate.user_seq == (number < KEPT ? number : number + lost));
		CHECK(fate.outcome == LDC_WAS_SENT || fate.outcome == LDC_WAS_ACKED);
	}
	/* Whoever reads again loses nothing more. */
	for (number = 0; number < 2 * PACKETS; number++) {
		CHECK(ldc_wait(ldc, 100, 10000) == 1);
		CHECK(ldc_send(ldc, 1000 + number, data, 100, 1) == 100);
	}
	for (number = 0; number < 2 * PACKETS; number++) {
		await_fate(ldc, &fate);
		CHECK(fate.user_seq == 1000 + number && fate.outcome == LDC_WAS_ACKED);
	}
	CHECK(ldc_fates_lost(ldc) == lost);
	ldc_close(ldc);
	options.fates = 65537;
	CHECK(!ldc_open(pair.near, &options) && errno == EINVAL);
}

/* Fills a new ring while the kernel sleeps, which then finds all of it at once. */
static void fill_at_once(struct ldc *ldc, size_t size)
{
	static unsigned char data[PACKET];
	uint64_t number;

	for (number = 0; number < PACKETS; number++)
		CHECK(ldc_send(ldc, number, data, size, 0) == (ssize_t)size);
	CHECK(ldc_notify(ldc) == 1);
}

/* Waits until all that the receiver's window permits is acknowledged, and something does not fit. */
static void await_full_window(const struct pair *pair)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	struct tcp_info info = { .tcpi_unacked = 1 };
	socklen_t len = sizeof(info);
	int turns;

	for (turns = 0; info.tcpi_unacked || !info.tcpi_notsent_bytes; turns++) {
		CHECK(turns < 10000);
		nanosleep(&moment, NULL);
		CHECK(!getsockopt(pair->near, IPPROTO_TCP, TCP_INFO, &info, &len));
	}
}

/*
 * The window ends within a record. The records before it, which were committed at the same
 * time, are acknowledged; it is not before somebody reads.
 */
static void expect_fates_of_a_part(size_t size)
{
	static unsigned char data[PACKET], sink[2 * PACKETS * PACKET];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	uint64_t number, end, together = 0;
	struct ldc_fate fate;

	fill_at_once(ldc, size);
	await_full_window(&pair);
	/* The slots are needed: fates are kept, some without an acknowledgement. */
	for (end = PACKETS; ldc_room(ldc); end++)
		CHECK(ldc_send(ldc, end, data, size, 1) == (ssize_t)size);
	for (number = 0; ldc_next_fate(ldc, &fate); number++) {
		CHECK(fate.user_seq == number && fate.outcome == LDC_WAS_ACKED);
		together = fate.committed_at;
	}
	CHECK(0 < number && number + PACKETS < end);
	CHECK(read_all(pair.far, sink, end * size));
	await_fate(ldc, &fate);
	CHECK(fate.committed_at == together);
	for (;;) {
		CHECK(fate.user_seq == number && fate.outcome == LDC_WAS_ACKED);
		if (++number == end)
			break;
		await_fate(ldc, &fate);
	}
	CHECK(ldc_fates_lost(ldc) == 0);
	ldc_close(ldc);
	close(pair.near);
	close(pair.far);
}

/* Sizes of which no multiple is a window of 4 KiB. */
static void a_part_of_a_hand_over_is_acknowledged(void)
{
	expect_fates_of_a_part(600);
	expect_fates_of_a_part(700);
	expect_fates_of_a_part(900);
}

/* The kernel forgets the oldest of a hand-over. The others are acknowledged, in their slots. */
static void a_missed_acknowledgement_holds_up_nothing(void)
{
	static unsigned char data[PACKET];
	struct ldc_options options = { .packets = PACKETS, .packet_bytes = PACKET, .fates = PACKETS };
	enum { MISSED = PACKETS / 4, RECORDS = PACKETS + MISSED };
	struct pair pair = make_slow_pair();
	struct ldc *ldc = ldc_open(pair.near, &options);
	uint64_t number, together = 0;
	struct ldc_stats stats;
	struct ldc_fate fate;

	CHECK(ldc);
	fill_at_once(ldc, 100);
	for (number = PACKETS; number < RECORDS; number++) {
		CHECK(ldc_wait(ldc, 100, 10000) == 1);
		CHECK(ldc_send(ldc, number, data, 100, 1) == 100);
	}
	for (number = 0; number < RECORDS; number++) {
		await_fate(ldc, &fate);
		CHECK(fate.user_seq == number);
		CHECK(fate.outcome == (number < MISSED ? LDC_WAS_SENT : LDC_WAS_ACKED));
		if (number == MISSED - 1)
			together = fate.committed_at;
		CHECK(number != MISSED || fate.committed_at == together);
	}
	CHECK(!ldc_get_stats(ldc, &stats) && stats.acks_missed == MISSED);
	CHECK(ldc_fates_lost(ldc) == 0);
	ldc_close(ldc);
}

static void fates_are_final_when_the_connection_ends(void)
{
	static unsigned char data[PACKET];
	struct pair pair = make_slow_pair();
	struct ldc *ldc = ring_on(&pair);
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	struct ldc_fate fate;
	uint64_t number, sent = 0;

	for (number = 0; number < 3 * PACKETS; number++) {
		CHECK(ldc_wait(ldc, 100, 10000) == 1);
		CHECK(ldc_send(ldc, number, data, 100, 1) == 100);
	}
	/* Nothing is acknowledged after it. */
	CHECK(!setsockopt(pair.near, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
	close(pair.near);
	for (number = 0; number < 3 * PACKETS; number++) {
		CHECK(ldc_next_fate(ldc, &fate));
		CHECK(fate.user_seq == number);
		sent += fate.outcome == LDC_WAS_SENT;
	}
	CHECK(sent > 0);
	CHECK(!ldc_next_fate(ldc, &fate) && ldc_fates_lost(ldc) == 0);
	ldc_close(ldc);
}

static void the_end_of_the_connection_is_told(void)
{
	static unsigned char data[PACKET];
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	struct timespec moment = { .tv_nsec = 1000000 };
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);
	int turns;

	CHECK(!setsockopt(pair.far, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
	close(pair.far);
	for (turns = 0; ldc_send(ldc, 1, data, PACKET, 1) >= 0 || errno == EAGAIN; turns++) {
		CHECK(turns < 5000);
		nanosleep(&moment, NULL);
	}
	CHECK(errno == EPIPE);
	CHECK(ldc_notify(ldc) < 0 && errno == EPIPE);
	ldc_close(ldc);
}

static void closing_sends_the_end(void)
{
	static unsigned char data[PACKET];
	struct pair pair = make_pair();
	struct ldc *ldc = ring_on(&pair);

	fill(data, PACKET, 1);
	CHECK(ldc_send(ldc, 1, data, PACKET, 1) == PACKET);
	expect_record(&pair, PACKET, 1);
	close(pair.near);
	/* Though the ring is still mapped. */
	CHECK(recv(pair.far, data, 1, 0) == 0);
	ldc_close(ldc);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "refuses what cannot be", refuses_what_cannot_be },
		{ "records arrive whole and in order", records_arrive_whole_and_in_order },
		{ "a full ring says so and wakes", a_full_ring_says_so_and_wakes },
		{ "what is dropped never arrives", what_is_dropped_never_arrives },
		{ "a record is modified until it is taken",
		  a_record_is_modified_until_it_is_taken },
		{ "a newer version replaces the older", a_newer_version_replaces_the_older },
		{ "the kernel keeps the deadline", the_kernel_keeps_the_deadline },
		{ "a hold keeps the kernel back", a_hold_keeps_the_kernel_back },
		{ "fates come in order with their times", fates_come_in_order_with_their_times },
		{ "fates outlive their slots", fates_outlive_their_slots },
		{ "fates are kept within their bound", fates_are_kept_within_their_bound },
		{ "a part of a hand-over is acknowledged",
		  a_part_of_a_hand_over_is_acknowledged },
		{ "a missed acknowledgement holds up nothing",
		  a_missed_acknowledgement_holds_up_nothing },
		{ "fates are final when the connection ends",
		  fates_are_final_when_the_connection_ends },
		{ "the end of the connection is told", the_end_of_the_connection_is_told },
		{ "closing sends the end", closing_sends_the_end },
	};

	return run_cases(cases, sizeof(cases) / sizeof(cases[0]));
}
