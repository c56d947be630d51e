// SPDX-License-Identifier: GPL-2.0-only
/*
 * The program lies: wrong words one by one, then all of them at once. It may
 * garble what it sends; the kernel counts, and goes on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

static struct ring ring;
static int fds[2];
static struct ldc_stats stats;

static void open_pair(void)
{
	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
}

static void notify(void)
{
	CHECK(!ioctl(fds[0], LDC_IOC_NOTIFY));
	ring_stats(fds[0], &stats);
}

/* The connection is as good as before. */
static void check_works(void)
{
	char got[6];

	CHECK(ring_push(&ring, "works!", 6, 1, NEVER));
	read_all(fds[1], got, 6);
	CHECK(!memcmp(got, "works!", 6));
	WAIT_FOR(ring_state(&ring, ring.user_i - 1) == LDC_ACKED);
}

static void nothing_arrives(void)
{
	char byte;

	sleep_ms(20);
	CHECK_ERR(recv(fds[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
}

static void user_i_too_large(void)
{
	static const uint64_t wrong[] = { 1ULL << 62, 1ULL << 63, ~0ULL };
	size_t i;

	open_pair();
	for (i = 0; i < 3; i++) {
		ring.head->user_i = wrong[i];
		notify();
		CHECK_EQ(stats.bad_indexes, i + 1);
	}
	ring.head->user_i = 0;
	nothing_arrives();
	check_works();
}

static void user_i_back(void)
{
	open_pair();
	check_works();
	check_works();
	ring.head->user_i = 1;
	notify();
	CHECK(stats.bad_indexes >= 1);
	ring.head->user_i = 2;
	check_works();
}

/* Far ahead, within the limits: no slot has that lap. */
static void user_i_jumps(void)
{
	open_pair();
	ring.head->user_i = 1ULL << 20;
	notify();
	CHECK_EQ(stats.bad_states, 16);
	CHECK_EQ(stats.records_taken, 0);
	ring.head->user_i = 0;
	check_works();
}

static void state_words(void)
{
	static const uint64_t wrong[] = {
		LDC_FREE, 8, 15, 1ULL << 32 | LDC_READY, ~0ULL,
		0xffffffffULL << 32 | LDC_READY,
	};
	static const uint32_t bad[] = { 1, 1, 1, 0, 1, 1 };
	uint64_t before = 0;
	size_t i;

	open_pair();
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(ring_push_quiet(&ring, "x", 1, 1, NEVER));
		ring_slot(&ring, i)->state = wrong[i];
		notify();
		CHECK_EQ(stats.bad_states - before, bad[i]);
		before = stats.bad_states;
	}
	nothing_arrives();
	CHECK_EQ(stats.records_taken, 0);
	ring.tail = ring.user_i;
	check_works();
}

struct descriptor {
	uint32_t block, len;
	uint16_t span;
};

static void descriptors(void)
{
	static const struct descriptor wrong[] = {
		{ 16, 1, 1 },		/* no such block */
		{ ~0U, 1, 1 },
		{ 0, 65, 1 },		/* longer than its slots */
		{ 0, ~0U, 1 },
		{ 0, 1, 0 },		/* no slots */
		{ 0, 1, 17 },		/* more than there are */
		{ 0, 1, 65535 },
		{ 0, 100, 2 },		/* beyond user_i */
	};
	uint64_t i;

	open_pair();
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(ring_push_quiet(&ring, "x", 1, 1, NEVER));
		ring_slot(&ring, i)->block = wrong[i].block;
		ring_slot(&ring, i)->len = wrong[i].len;
		ring_slot(&ring, i)->span = wrong[i].span;
		notify();
		CHECK_EQ(ring_state(&ring, i), LDC_DEAD);
		CHECK_EQ(ring_arg(&ring, i), LDC_REASON_INVALID);
		CHECK_EQ(stats.bad_descriptors, i + 1);
		CHECK_EQ(stats.dropped_invalid, i + 1);
	}
	nothing_arrives();
	check_works();
}

static void further_slots(void)
{
	char data[192] = "parts";
	uint64_t at, turn;

	open_pair();
	for (turn = 0; turn < 3; turn++) {
		at = ring.user_i;
		CHECK(ring_push_quiet(&ring, data, 192, 1, NEVER));
		switch (turn) {
		case 0:
			ring_slot(&ring, at + 2)->state = LDC_READY;
			break;
		case 1:
			ring_slot(&ring, at + 1)->span = 2;
			break;
		case 2:
			ring_slot(&ring, at + 2)->block = 16;
			break;
		}
		notify();
		CHECK_EQ(ring_state(&ring, at), LDC_DEAD);
		CHECK_EQ(ring_arg(&ring, at), LDC_REASON_INVALID);
		if (!turn) /* is a record by itself, with the wrong number */
			continue;
		nothing_arrives();
	}
}

/* Changed after it was taken: what is sent is garbled, but not from elsewhere. */
static void block_changes_under_way(void)
{
	static uint8_t data[200000], got[200000];
	uint64_t i;

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 256, 1000);
	memset(data, 0x5a, sizeof(data));
	/* Blocks that the record does not have hold this. */
	memset(ring.arena, 0xa5, 256 * (size_t)ring.stride);
	CHECK(ring_push(&ring, data, sizeof(data), 1, NEVER));
	sleep_ms(200);
	CHECK_EQ(ring_state(&ring, 0), LDC_TAKEN);
	for (i = 0; i < 256; i++) {
		ring_slot(&ring, i)->block = ~0U - (uint32_t)i;
		ring_slot(&ring, i)->len = ~0U;
		ring_slot(&ring, i)->span = 65535;
	}
	read_all(fds[1], got, sizeof(got));
	for (i = 0; i < sizeof(got); i++)
		CHECK(got[i] == 0x5a || got[i] == 0xa5);
	ring_stats(fds[0], &stats);
	CHECK(stats.bad_descriptors > 0);
	WAIT_FOR(ring_state(&ring, 0) == LDC_ACKED);
	nothing_arrives();
}

static void state_changes_under_way(void)
{
	static uint8_t data[200000], got[200000];

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 256, 1000);
	CHECK(ring_push(&ring, data, sizeof(data), 1, NEVER));
	sleep_ms(200);
	CHECK_EQ(ring_state(&ring, 0), LDC_TAKEN);
	ring_slot(&ring, 0)->state = LDC_READY;
	read_all(fds[1], got, sizeof(got));
	/* The kernel has its own account, and sends nothing twice. */
	sleep_ms(100);
	ring_stats(fds[0], &stats);
	CHECK_EQ(stats.records_sent, stats.records_taken);
	CHECK(stats.bytes <= 2 * sizeof(data));
}

static void header_and_flags(void)
{
	size_t i;

	open_pair();
	memset(ring.base, 0xff, sizeof(struct ldc_region));
	ring.head->kern_i = ~0ULL;
	ring.head->consumer_claim = 0;
	ring.head->tail_i = ~0ULL;
	check_works();
	for (i = 0; i < 32; i++) {
		ring.head->kern_flag = (1U << i) & ~LDC_KERN_CLOSED;
		notify();
	}
	ring.head->kern_flag = 0;
	notify();
	check_works();
	ring.head->umod_i = 0;
	notify();
	ring.head->umod_i = LDC_NO_HOLD;
	check_works();
}

static volatile bool stop;

static uint64_t random_word(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Writes anything, often almost right, everywhere but into the payload. */
static void *scribble(void *arg)
{
	uint64_t state = 0x9e3779b97f4a7c15ULL * (1 + (uintptr_t)arg);
	struct ldc_slot *slot;
	uint64_t word, index;

	while (!stop) {
		word = random_word(&state);
		index = ring.head->user_i - (word >> 32 & 63);
		slot = ring_slot(&ring, index);
		switch (word % 16) {
		case 0:
			ring.head->user_i += (word >> 40 & 7) - 3;
			break;
		case 1:
			ring.head->umod_i = word & 64 ? ~0ULL : index;
			break;
		case 2:
			__atomic_fetch_add(&ring.head->changes, 1,
					   __ATOMIC_RELAXED);
			break;
		case 3:
			ring.head->kern_flag = (uint32_t)(word >> 33) & 1;
			break;
		case 4:
			slot->span = (uint16_t)(word >> 40 & 7);
			break;
		case 5:
			slot->block = (uint32_t)(word >> 40 & 127);
			break;
		case 6:
			slot->len = (uint32_t)(word >> 20 & 0x7fff);
			break;
		case 7:
			slot->deadline = word & 64 ? ~0ULL : word >> 20;
			break;
		case 8:
			slot->state = word >> 20;
			break;
		case 9:
			ring.head->kern_i = word >> (word & 63);
			break;
		default:
			slot->state = (index / 64) << 32 | (word >> 20 & 7);
		}
	}
	return NULL;
}

/* Pushes without asking whether there is room. */
static void reckless_push(uint64_t word)
{
	uint64_t index = ring.head->user_i & 0xffffff;
	uint64_t span = 1 + (word >> 8 & 3), part;

	for (part = 0; part < span; part++) {
		struct ldc_slot *slot = ring_slot(&ring, index + part);

		slot->len = (uint32_t)(span * 4096 - (word >> 16 & 0xfff));
		slot->span = (uint16_t)(part ? part : span);
		slot->block = (uint32_t)((index + part) & 63);
		slot->deadline = NEVER;
		__atomic_store_n(&slot->state, ((index + part) / 64) << 32 |
				 (part ? LDC_CONT : LDC_READY), __ATOMIC_RELEASE);
	}
	__atomic_store_n(&ring.head->user_i, index + span, __ATOMIC_RELEASE);
}

static void *discard(void *arg)
{
	static char got[65536];

	(void)arg;
	while (read(fds[1], got, sizeof(got)) > 0)
		;
	return NULL;
}

static void scribbler_with(uint32_t zerocopy, uint32_t horizon)
{
	struct ldc_ack acks[8];
	pthread_t writers[2], reader;
	socklen_t bytes;
	uint64_t end = now_ns() + times(4) * 1000000000ULL;
	uint64_t state = 1;

	tcp_pair(AF_INET6, fds);
	ring_open_keeping(&ring, fds[0], 64, 4096, 16);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &zerocopy, 4));
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_HORIZON, &horizon, 4));
	CHECK(!pthread_create(&reader, NULL, discard, NULL));
	CHECK(!pthread_create(&writers[0], NULL, scribble, (void *)1));
	CHECK(!pthread_create(&writers[1], NULL, scribble, (void *)2));
	/* On a slow machine until something came through. */
	while (now_ns() < end ||
	       (stats.records_sent < 100 && now_ns() < end + 30000000000ULL)) {
		reckless_push(random_word(&state));
		notify();
		/* Seldom enough that more come than are kept. */
		if (state % 32)
			continue;
		bytes = sizeof(acks);
		CHECK(!getsockopt(fds[0], SOL_LDC, LDC_ACKS, acks, &bytes));
		CHECK(bytes <= sizeof(acks));
	}
	printf("# %llu taken, %llu sent, %llu bytes; "
	       "bad: %llu indexes, %llu states, %llu descriptors\n",
	       (unsigned long long)stats.records_taken,
	       (unsigned long long)stats.records_sent,
	       (unsigned long long)stats.bytes,
	       (unsigned long long)stats.bad_indexes,
	       (unsigned long long)stats.bad_states,
	       (unsigned long long)stats.bad_descriptors);
	CHECK(stats.bad_states && stats.bad_descriptors);
	CHECK(stats.records_sent);
	/* Closed in the midst of it. */
	close(fds[0]);
	CHECK(!pthread_join(reader, NULL));
	stop = true;
	CHECK(!pthread_join(writers[0], NULL));
	CHECK(!pthread_join(writers[1], NULL));
}

static void scribbler(void) { scribbler_with(0, 1); }
static void scribbler_zerocopy(void) { scribbler_with(1, 0); }

static const struct test tests[] = {
	{ "user_i too large", user_i_too_large, 0 },
	{ "user_i goes back", user_i_back, 0 },
	{ "user_i jumps ahead", user_i_jumps, 0 },
	{ "wrong state words", state_words, 0 },
	{ "wrong descriptors", descriptors, 0 },
	{ "wrong further slots", further_slots, 0 },
	{ "blocks that change under way", block_changes_under_way, 0 },
	{ "states that change under way", state_changes_under_way, 0 },
	{ "header and flags", header_and_flags, 0 },
	{ "a scribbler", scribbler, 100 },
	{ "a scribbler with zero copy", scribbler_zerocopy, 100 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
