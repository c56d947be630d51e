/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the files of the library share: the handle, and the words of shared memory
 * with the orders of spec/ring.md, whose rules the comments cite.
 *
 * Block i belongs to slot i, so a free slot is a free block and nothing is ever
 * allocated.
 */
#ifndef LDC_RING_H
#define LDC_RING_H

#include <stdbool.h>

#include "ldc.h"

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)
#define cold		__attribute__((cold, noinline))

/* How often a lost compare-and-swap is tried again (R-TRUST-5). */
#define LDC_TRIES	8

struct ldc {
	int socket;
	uint32_t pid;
	/* Private copies (R-ATTACH-4); never loaded from the region again. */
	uint32_t slots;
	uint32_t slot_shift;
	uint32_t block_bytes;
	uint32_t block_stride;
	size_t region_bytes;
	void *region;
	struct ldc_ring *ring;
	struct ldc_slot *slot;
	unsigned char *arena;
	/* The producer's own (R-TRUST-6). */
	uint64_t user_i;
	uint64_t tail;
	uint64_t fates_lost;
	uint32_t lowat;
	/* Slots of the record that begins at a slot. */
	uint32_t *span;
	/* A queue of fates whose slots have other records by now, in the order of sending. */
	struct ldc_kept *kept;
	uint32_t kept_most;
	uint32_t kept_head;
	uint32_t kept_count;
	/* When the newest record was committed of those known to be acknowledged. */
	uint64_t acked_commit;
	/* Some were not kept, and the kernel keeps acknowledgements that nobody awaits. */
	bool overrun;
};

/* An unsent record as it was found, and the word under which that was so. */
struct ldc_seen {
	struct ldc_record record;
	uint64_t index;
	uint64_t word;
	uint32_t len;
	uint32_t span;
};

/* The UAPI header declares the words plain, C11's orders come from these. */
#define load_relaxed(p)		__atomic_load_n(p, __ATOMIC_RELAXED)
#define load_acquire(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store_relaxed(p, v)	__atomic_store_n(p, v, __ATOMIC_RELAXED)
#define store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)
#define fence(order)		__atomic_thread_fence(order)

static inline struct ldc_slot *slot_at(const struct ldc *ldc, uint64_t index)
{
	return &ldc->slot[index & (ldc->slots - 1)];
}

static inline unsigned char *block_at(const struct ldc *ldc, uint64_t index)
{
	return ldc->arena + (size_t)(index & (ldc->slots - 1)) * ldc->block_stride;
}

static inline uint64_t lap_bits(const struct ldc *ldc, uint64_t index)
{
	return (index >> ldc->slot_shift) << LDC_LAP_SHIFT;
}

static inline enum ldc_state word_state(uint64_t word)
{
	return (enum ldc_state)(word & LDC_STATE_MASK);
}

static inline uint32_t word_arg(uint64_t word)
{
	return (word & LDC_ARG_MASK) >> LDC_ARG_SHIFT;
}

/* The same lap and edit count in another state. */
static inline uint64_t word_to(uint64_t word, enum ldc_state state, uint32_t arg)
{
	return (word & ~(LDC_STATE_MASK | LDC_ARG_MASK)) |
	       ((uint64_t)arg << LDC_ARG_SHIFT) | state;
}

/* R-STATE-1, R-ORDER-3 */
static inline bool swap(struct ldc_slot *slot, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(&slot->state, &from, to, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline void write_record(struct ldc_slot *slot, const struct ldc_record *record)
{
	store_relaxed(&slot->user_seq, record->user_seq);
	store_relaxed(&slot->generated, record->generated);
	store_relaxed(&slot->deadline, record->deadline);
	store_relaxed(&slot->key, record->key);
	store_relaxed(&slot->group, record->group);
	store_relaxed(&slot->refs[0], record->refs[0]);
	store_relaxed(&slot->refs[1], record->refs[1]);
	store_relaxed(&slot->layer, record->layer);
}

struct ldc *ldc_of_region(int socket, void *base, const struct ldc_geometry *geometry,
			  uint32_t fates);
bool ldc_see(const struct ldc *ldc, uint64_t index, uint64_t user_i, struct ldc_seen *seen);
uint64_t ldc_window(const struct ldc *ldc, uint64_t *user_i);
uint64_t ldc_hold_seen(struct ldc *ldc, const struct ldc_seen *seen);
int ldc_release_seen(struct ldc *ldc, const struct ldc_seen *seen, uint64_t held);
void ldc_copy_in(struct ldc *ldc, uint64_t index, size_t offset, const void *data, size_t size);
int ldc_fates_init(struct ldc *ldc, uint32_t fates);
void ldc_fates_free(struct ldc *ldc);
void ldc_keep_fate(struct ldc *ldc, uint64_t index);
cold int ldc_wake(struct ldc *ldc, uint32_t flag);

/* The slots of the oldest record can be used again. */
static inline void ldc_forget_oldest(struct ldc *ldc)
{
	ldc->tail += ldc->span[ldc->tail & (ldc->slots - 1)];
	store_relaxed(&ldc->ring->tail_i, ldc->tail);
}

/* R-ORDER-4. Return: as ldc_notify(). */
static inline int wake_if_asleep(struct ldc *ldc)
{
	uint32_t flag;

	fence(__ATOMIC_SEQ_CST);
	flag = load_relaxed(&ldc->ring->kern_flag);
	if (likely(flag == 0))
		return 0;
	return ldc_wake(ldc, flag);
}

/* Something became visible other than by user_i (R-ORDER-7). */
static inline int changed(struct ldc *ldc)
{
	__atomic_fetch_add(&ldc->ring->changes, 1, __ATOMIC_RELEASE);
	return wake_if_asleep(ldc);
}

#endif /* LDC_RING_H */
