/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The producer's and the editor's side of the ring, written from spec/ring.md
 * alone: it shares no code with the module and none with libldc.
 */
#ifndef RING_H
#define RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/tcp_ldc.h>

#define NEVER	LDC_NO_DEADLINE

struct ring {
	int fd;
	uint8_t *base;
	struct ldc_geometry geo;
	struct ldc_ring *head;
	struct ldc_slot *slots;
	uint8_t *arena;
	uint32_t stride;
	uint64_t user_i;	/* private copies */
	uint64_t tail;
	uint16_t *spans;
	uint64_t notifies;
};

/* TCP_ULP, LDC_RING with as many blocks as slots, mmap(). Fails the test. */
void ring_open(struct ring *ring, int fd, uint32_t slots, uint32_t block_bytes);
/* The same with LDC_KEEP_ACKS. */
void ring_open_keeping(struct ring *ring, int fd, uint32_t slots,
		       uint32_t block_bytes, uint32_t keep_acks);
/* mmap() of a ring that is there. */
void ring_map(struct ring *ring, int fd);
void ring_unmap(struct ring *ring);

/* Pushes one record; false: the ring is full. Notifies if the sender sleeps. */
bool ring_push(struct ring *ring, const void *data, uint32_t len, uint64_t seq,
	       uint64_t deadline);
/* The same without looking whether the sender sleeps. */
bool ring_push_quiet(struct ring *ring, const void *data, uint32_t len,
		     uint64_t seq, uint64_t deadline);
/* After quiet pushes: notifies if the sender sleeps. */
void ring_wake(struct ring *ring);
/* Pushes, waiting for space with poll(). */
void ring_push_wait(struct ring *ring, const void *data, uint32_t len,
		    uint64_t seq, uint64_t deadline);

/* Drops a ready record; whether it was in time. */
bool ring_drop(struct ring *ring, uint64_t index);
/* Holds a ready record; 0: too late. Returns the held word. */
uint64_t ring_hold(struct ring *ring, uint64_t index);
/* Makes a held record ready again. */
void ring_release(struct ring *ring, uint64_t index, uint64_t word);

struct ldc_slot *ring_slot(const struct ring *ring, uint64_t index);
uint64_t ring_state(const struct ring *ring, uint64_t index);
uint32_t ring_arg(const struct ring *ring, uint64_t index);
uint8_t *ring_payload(const struct ring *ring, uint64_t index);
/* Slots that can be used again from the tail on. */
uint32_t ring_free(struct ring *ring);

void ring_stats(int fd, struct ldc_stats *stats);

#endif
