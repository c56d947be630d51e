// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "ring.h"

#ifndef TCP_ULP
#define TCP_ULP 31
#endif

static uint64_t word_of(const struct ring *ring, uint64_t index, uint64_t state)
{
	return (index / ring->geo.slots) << LDC_LAP_SHIFT | state;
}

static uint64_t word_to(uint64_t word, uint64_t state, uint64_t arg)
{
	return (word & ~(LDC_STATE_MASK | LDC_ARG_MASK)) |
	       arg << LDC_ARG_SHIFT | state;
}

void ring_map(struct ring *ring, int fd)
{
	socklen_t len = sizeof(ring->geo);
	struct ldc_region *region;

	memset(ring, 0, sizeof(*ring));
	ring->fd = fd;
	CHECK(!getsockopt(fd, SOL_LDC, LDC_RING, &ring->geo, &len));
	ring->base = mmap(NULL, ring->geo.total_bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED, fd, 0);
	CHECK(ring->base != MAP_FAILED);
	region = (struct ldc_region *)ring->base;
	CHECK_EQ(region->magic, LDC_MAGIC);
	CHECK_EQ(region->version, LDC_VERSION);
	CHECK_EQ(region->total_bytes, ring->geo.total_bytes);
	ring->head = (struct ldc_ring *)(ring->base + region->rings_offset);
	ring->slots = (struct ldc_slot *)(ring->base + region->slots_offset);
	ring->arena = ring->base + region->arena_offset;
	ring->stride = region->block_stride;
	ring->spans = calloc(ring->geo.slots, sizeof(*ring->spans));
	CHECK(ring->spans);
}

void ring_open_keeping(struct ring *ring, int fd, uint32_t slots,
		       uint32_t block_bytes, uint32_t keep_acks)
{
	struct ldc_geometry geo = {
		.slots = slots, .block_bytes = block_bytes, .blocks = slots,
	};

	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_ULP, TCP_ULP_LDC, 3));
	CHECK(!setsockopt(fd, SOL_LDC, LDC_KEEP_ACKS, &keep_acks,
			  sizeof(keep_acks)));
	CHECK(!setsockopt(fd, SOL_LDC, LDC_RING, &geo, sizeof(geo)));
	ring_map(ring, fd);
}

void ring_open(struct ring *ring, int fd, uint32_t slots, uint32_t block_bytes)
{
	ring_open_keeping(ring, fd, slots, block_bytes, 0);
}

void ring_unmap(struct ring *ring)
{
	CHECK(!munmap(ring->base, ring->geo.total_bytes));
	free(ring->spans);
}

struct ldc_slot *ring_slot(const struct ring *ring, uint64_t index)
{
	return &ring->slots[index % ring->geo.slots];
}

static uint64_t load_word(const struct ring *ring, uint64_t index)
{
	return __atomic_load_n(&ring_slot(ring, index)->state, __ATOMIC_ACQUIRE);
}

uint64_t ring_state(const struct ring *ring, uint64_t index)
{
	return load_word(ring, index) & LDC_STATE_MASK;
}

uint32_t ring_arg(const struct ring *ring, uint64_t index)
{
	return (load_word(ring, index) & LDC_ARG_MASK) >> LDC_ARG_SHIFT;
}

/* A slot always uses the block of its own number. */
uint8_t *ring_payload(const struct ring *ring, uint64_t index)
{
	return ring->arena + (index % ring->geo.slots) * (uint64_t)ring->stride;
}

uint32_t ring_free(struct ring *ring)
{
	while (ring->tail < ring->user_i) {
		uint64_t state = ring_state(ring, ring->tail);

		if (state == LDC_READY || state == LDC_HELD ||
		    state == LDC_TAKEN)
			break;
		ring->tail += ring->spans[ring->tail % ring->geo.slots];
	}
	return ring->geo.slots - (uint32_t)(ring->user_i - ring->tail);
}

static void fill_slot(struct ring *ring, uint64_t index, uint32_t part,
		      uint32_t span, uint32_t len, uint64_t seq,
		      uint64_t deadline)
{
	struct ldc_slot *slot = ring_slot(ring, index);

	__atomic_thread_fence(__ATOMIC_RELEASE);
	slot->user_seq = seq;
	slot->generated = now_ns();
	slot->deadline = deadline;
	slot->key = 0;
	slot->block = (uint32_t)(index % ring->geo.slots);
	slot->len = len;
	slot->span = (uint16_t)(part ? part : span);
	slot->layer = 0;
	slot->flags = 0;
	ring->spans[index % ring->geo.slots] = (uint16_t)(part ? 1 : span);
	__atomic_store_n(&slot->state,
			 word_of(ring, index, part ? LDC_CONT : LDC_READY),
			 __ATOMIC_RELEASE);
}

bool ring_push_quiet(struct ring *ring, const void *data, uint32_t len,
		     uint64_t seq, uint64_t deadline)
{
	uint32_t block_bytes = ring->geo.block_bytes;
	uint32_t span = len ? (len + block_bytes - 1) / block_bytes : 1;
	uint32_t part, n, done = 0;
	uint64_t index = ring->user_i;

	if (__atomic_load_n(&ring->head->kern_flag, __ATOMIC_RELAXED) &
	    LDC_KERN_CLOSED)
		return false;
	if (ring_free(ring) < span)
		return false;
	for (part = 0; part < span; part++) {
		n = len - done < block_bytes ? len - done : block_bytes;
		memcpy(ring_payload(ring, index + part),
		       (const uint8_t *)data + done, n);
		done += n;
		fill_slot(ring, index + part, part, span, len, seq, deadline);
	}
	ring->user_i += span;
	__atomic_store_n(&ring->head->user_i, ring->user_i, __ATOMIC_RELEASE);
	return true;
}

void ring_wake(struct ring *ring)
{
	uint32_t flag;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	flag = __atomic_load_n(&ring->head->kern_flag, __ATOMIC_RELAXED);
	if (!(flag & LDC_KERN_SLEEPS))
		return;
	flag = __atomic_fetch_and(&ring->head->kern_flag, ~LDC_KERN_SLEEPS,
				  __ATOMIC_ACQ_REL);
	if (!(flag & LDC_KERN_SLEEPS))
		return;
	ring->notifies++;
	if (ioctl(ring->fd, LDC_IOC_NOTIFY) && errno != EPIPE)
		FAIL("LDC_IOC_NOTIFY: %m");
}

bool ring_push(struct ring *ring, const void *data, uint32_t len, uint64_t seq,
	       uint64_t deadline)
{
	bool pushed = ring_push_quiet(ring, data, len, seq, deadline);

	ring_wake(ring);
	return pushed;
}

void ring_push_wait(struct ring *ring, const void *data, uint32_t len,
		    uint64_t seq, uint64_t deadline)
{
	struct pollfd pfd = { .fd = ring->fd, .events = POLLOUT };

	while (!ring_push(ring, data, len, seq, deadline)) {
		CHECK(!(ring->head->kern_flag & LDC_KERN_CLOSED));
		/* Several slots may be needed; POLLOUT means one. */
		if (poll(&pfd, 1, 10000) == 0)
			FAIL("the ring has been full for 10 s");
		if (pfd.revents & (POLLERR | POLLHUP))
			FAIL("the connection is gone (%x)", pfd.revents);
	}
}

bool ring_drop(struct ring *ring, uint64_t index)
{
	uint64_t word = load_word(ring, index);

	return (word & LDC_STATE_MASK) == LDC_READY &&
	       __atomic_compare_exchange_n(&ring_slot(ring, index)->state, &word,
					   word_to(word, LDC_DEAD,
						   LDC_REASON_APPLICATION),
					   false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

uint64_t ring_hold(struct ring *ring, uint64_t index)
{
	uint64_t word = load_word(ring, index);
	uint64_t held = word_to(word, LDC_HELD, (uint64_t)getpid());

	if ((word & LDC_STATE_MASK) != LDC_READY ||
	    word >> LDC_LAP_SHIFT != (uint32_t)(index / ring->geo.slots))
		return 0;
	if (!__atomic_compare_exchange_n(&ring_slot(ring, index)->state, &word,
					 held, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return 0;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return held;
}

void ring_release(struct ring *ring, uint64_t index, uint64_t word)
{
	uint64_t edits = (word + (1 << LDC_EDIT_SHIFT)) & LDC_EDIT_MASK;
	uint64_t ready = (word_to(word, LDC_READY, 0) & ~LDC_EDIT_MASK) | edits;

	CHECK(__atomic_compare_exchange_n(&ring_slot(ring, index)->state, &word,
					  ready, false, __ATOMIC_ACQ_REL,
					  __ATOMIC_ACQUIRE));
	__atomic_fetch_add(&ring->head->changes, 1, __ATOMIC_RELEASE);
	ring_wake(ring);
}

void ring_stats(int fd, struct ldc_stats *stats)
{
	socklen_t len = sizeof(*stats);

	CHECK(!getsockopt(fd, SOL_LDC, LDC_STATS, stats, &len));
	CHECK_EQ(len, sizeof(*stats));
}
