// SPDX-License-Identifier: MIT OR Apache-2.0
/* The producer: room and records. No system call but for ldc_wake(). */
#include <errno.h>
#include <string.h>

#include "ring.h"

/* Whether the record that begins at @index needs its slots no longer. */
static inline bool finished(const struct ldc *ldc, uint64_t index)
{
	/* Acquire: the sender has read the payload before it said so. */
	switch (word_state(load_acquire(&slot_at(ldc, index)->state))) {
	case LDC_READY:
	case LDC_HELD:
	case LDC_TAKEN:
		return false;
	default:
		return true;
	}
}

/* Reuses the slots of finished records until @span fit behind user_i. */
static inline bool make_room(struct ldc *ldc, uint32_t span)
{
	while (ldc->user_i + span > ldc->tail + ldc->slots) {
		if (!finished(ldc, ldc->tail))
			return false;
		ldc_keep_fate(ldc, ldc->tail);
		ldc_forget_oldest(ldc);
	}
	return true;
}

static inline void fill(struct ldc *ldc, uint64_t index, uint32_t part, uint32_t span,
			const struct ldc_record *record, const void *data, size_t now,
			size_t size)
{
	struct ldc_slot *slot = slot_at(ldc, index);
	enum ldc_state state = part ? LDC_CONT : LDC_READY;

	/* R-ORDER-2: a reader that meets a new field meets the end of the old use. */
	fence(__ATOMIC_RELEASE);
	write_record(slot, record);
	store_relaxed(&slot->block, (uint32_t)(index & (ldc->slots - 1)));
	store_relaxed(&slot->len, (uint32_t)size);
	store_relaxed(&slot->span, (uint16_t)(part ? part : span));
	store_relaxed(&slot->flags, 0);
	memcpy(block_at(ldc, index), data, now);
	/* R-ORDER-1 */
	store_release(&slot->state, lap_bits(ldc, index) | state);
}

static inline ssize_t push(struct ldc *ldc, const struct ldc_record *record,
			   const void *data, size_t size, int notify)
{
	const unsigned char *rest = data;
	uint64_t index = ldc->user_i;
	uint32_t span = 1, part;
	size_t left = size;

	if (size > ldc->block_bytes) {
		if ((size - 1) / ldc->block_bytes >= ldc->slots) {
			errno = EMSGSIZE;
			return -1;
		}
		span = (uint32_t)((size - 1) / ldc->block_bytes) + 1;
	}
	if (unlikely(load_relaxed(&ldc->ring->kern_flag) & LDC_KERN_CLOSED)) {
		errno = EPIPE;
		return -1;
	}
	if (unlikely(!make_room(ldc, span))) {
		errno = EAGAIN;
		return -1;
	}
	for (part = 0; part < span; part++) {
		size_t now = left < ldc->block_bytes ? left : ldc->block_bytes;

		fill(ldc, index + part, part, span, record, rest, now, size);
		rest += now;
		left -= now;
	}
	ldc->span[index & (ldc->slots - 1)] = span;
	ldc->user_i = index + span;
	store_release(&ldc->ring->user_i, ldc->user_i);
	if (notify && unlikely(wake_if_asleep(ldc) < 0))
		return -1;
	return (ssize_t)size;
}

ssize_t ldc_send(struct ldc *ldc, uint64_t user_seq, const void *data, size_t size, int notify)
{
	struct ldc_record record = LDC_RECORD(user_seq);

	return push(ldc, &record, data, size, notify);
}

ssize_t ldc_send_record(struct ldc *ldc, const struct ldc_record *record, const void *data,
			size_t size, int notify)
{
	return push(ldc, record, data, size, notify);
}

/* The newest unsent record with @key. */
static bool newest_with_key(const struct ldc *ldc, uint64_t key, struct ldc_seen *seen)
{
	uint64_t user_i, first = ldc_window(ldc, &user_i), index;

	for (index = user_i; index > first; index--) {
		if (ldc_see(ldc, index - 1, user_i, seen) && seen->record.key == key)
			return true;
	}
	return false;
}

/* Overwrites a record in its place. False: it is too small, or gone. */
static bool overwrite(struct ldc *ldc, const struct ldc_seen *seen,
		      const struct ldc_record *record, const void *data, size_t size)
{
	struct ldc_slot *slot = slot_at(ldc, seen->index);
	uint64_t held;

	if (size > (size_t)seen->span * ldc->block_bytes)
		return false;
	held = ldc_hold_seen(ldc, seen);
	if (!held)
		return false;
	ldc_copy_in(ldc, seen->index, 0, data, size);
	store_relaxed(&slot->len, (uint32_t)size);
	write_record(slot, record);
	return ldc_release_seen(ldc, seen, held) == 0;
}

ssize_t ldc_replace(struct ldc *ldc, const struct ldc_record *record, const void *data,
		    size_t size, int notify)
{
	struct ldc_seen seen;
	ssize_t sent;
	bool found = record->key != 0 && newest_with_key(ldc, record->key, &seen);

	if (found && overwrite(ldc, &seen, record, data, size)) {
		/* The kernel may have passed the record over while it was held. */
		return changed(ldc) < 0 ? -1 : (ssize_t)size;
	}
	/* First the new one: if it does not fit the older one stays. */
	sent = push(ldc, record, data, size, 0);
	if (sent < 0)
		return -1;
	if (found && seen.record.key == record->key) {
		uint64_t user_i, word = seen.word;
		int tries;

		user_i = load_acquire(&ldc->ring->user_i);
		for (tries = 0; tries < LDC_TRIES; tries++) {
			if (swap(slot_at(ldc, seen.index), word,
				 word_to(word, LDC_DEAD, LDC_REASON_SUPERSEDED)))
				break;
			if (!ldc_see(ldc, seen.index, user_i, &seen) ||
			    seen.record.key != record->key)
				break;
			word = seen.word;
		}
	}
	if (notify && wake_if_asleep(ldc) < 0)
		return -1;
	return sent;
}

unsigned int ldc_room(struct ldc *ldc)
{
	uint64_t tail = ldc->tail;

	/* Fates that are still to be read stay readable. */
	while (tail < ldc->user_i && finished(ldc, tail))
		tail += ldc->span[tail & (ldc->slots - 1)];
	return ldc->slots - (unsigned int)(ldc->user_i - tail);
}
