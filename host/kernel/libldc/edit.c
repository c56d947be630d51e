// SPDX-License-Identifier: MIT OR Apache-2.0
/* Dropping, modifying and holding what the kernel has not taken. */
#include <errno.h>
#include <string.h>

#include "ring.h"

/* The indexes that may still be had: the oldest, and user_i. */
uint64_t ldc_window(const struct ldc *ldc, uint64_t *user_i)
{
	uint64_t end = load_acquire(&ldc->ring->user_i);
	uint64_t oldest = end > ldc->slots ? end - ldc->slots : 0;
	uint64_t hint = load_relaxed(&ldc->ring->kern_i);

	*user_i = end;
	return hint > oldest && hint <= end ? hint : oldest;
}

/* Reads the unsent record at @index (R-ORDER-2). False: there is none. */
bool ldc_see(const struct ldc *ldc, uint64_t index, uint64_t user_i, struct ldc_seen *seen)
{
	struct ldc_slot *slot = slot_at(ldc, index);
	int tries;

	for (tries = 0; tries < LDC_TRIES; tries++) {
		uint64_t word = load_acquire(&slot->state);

		if (word_state(word) != LDC_READY ||
		    word >> LDC_LAP_SHIFT != lap_bits(ldc, index) >> LDC_LAP_SHIFT)
			return false;
		seen->index = index;
		seen->word = word;
		seen->len = load_relaxed(&slot->len);
		seen->span = load_relaxed(&slot->span);
		seen->record.user_seq = load_relaxed(&slot->user_seq);
		seen->record.generated = load_relaxed(&slot->generated);
		seen->record.deadline = load_relaxed(&slot->deadline);
		seen->record.key = load_relaxed(&slot->key);
		seen->record.group = load_relaxed(&slot->group);
		seen->record.refs[0] = load_relaxed(&slot->refs[0]);
		seen->record.refs[1] = load_relaxed(&slot->refs[1]);
		seen->record.layer = load_relaxed(&slot->layer);
		fence(__ATOMIC_ACQUIRE);
		if (load_relaxed(&slot->state) != word)
			continue;
		/* R-TRUST-4 */
		return seen->span >= 1 && index + seen->span <= user_i &&
		       seen->len <= (uint64_t)seen->span * ldc->block_bytes;
	}
	return false;
}

static int by_number(const struct ldc_record *record, size_t size, void *context)
{
	(void)size;
	return record->user_seq == *(const uint64_t *)context;
}

int ldc_drop(struct ldc *ldc, uint64_t user_seq)
{
	return ldc_drop_if(ldc, LDC_REASON_APPLICATION, by_number, &user_seq);
}

int ldc_drop_if(struct ldc *ldc, unsigned int reason,
		int (*pick)(const struct ldc_record *record, size_t size, void *context),
		void *context)
{
	uint64_t user_i, index = ldc_window(ldc, &user_i);
	struct ldc_seen seen;
	int dropped = 0;

	for (; index < user_i; index++) {
		int tries;

		for (tries = 0; tries < LDC_TRIES; tries++) {
			if (!ldc_see(ldc, index, user_i, &seen) ||
			    !pick(&seen.record, seen.len, context))
				break;
			/* The word of the reading: what was edited since is looked at again. */
			if (swap(slot_at(ldc, index), seen.word,
				 word_to(seen.word, LDC_DEAD, reason & 0xff))) {
				dropped += (int)seen.span;
				break;
			}
		}
	}
	return dropped;
}

/* Holds a record that was seen. Return: the state word that holds it, or 0. */
uint64_t ldc_hold_seen(struct ldc *ldc, const struct ldc_seen *seen)
{
	uint64_t held = word_to(seen->word, LDC_HELD, ldc->pid);

	if (!swap(slot_at(ldc, seen->index), seen->word, held))
		return 0;
	/* R-ORDER-2: orders the hold before the stores of the edit. */
	fence(__ATOMIC_RELEASE);
	return held;
}

/* Makes a held record ready again, with the edit counted (R-STATE-4). */
int ldc_release_seen(struct ldc *ldc, const struct ldc_seen *seen, uint64_t held)
{
	uint64_t edits = (held + (1ULL << LDC_EDIT_SHIFT)) & LDC_EDIT_MASK;
	uint64_t ready = word_to(held & ~LDC_EDIT_MASK, LDC_READY, 0) | edits;

	/* It fails if the kernel closed the ring, or took this process for dead. */
	return swap(slot_at(ldc, seen->index), held, ready) ? 0 : -1;
}

/* Copies into the blocks of the record at @index, which is held. */
void ldc_copy_in(struct ldc *ldc, uint64_t index, size_t offset, const void *data, size_t size)
{
	const unsigned char *rest = data;

	index += offset / ldc->block_bytes;
	offset %= ldc->block_bytes;
	while (size) {
		size_t now = ldc->block_bytes - offset;

		if (now > size)
			now = size;
		memcpy(block_at(ldc, index) + offset, rest, now);
		rest += now;
		size -= now;
		offset = 0;
		index++;
	}
}

/* Holds the oldest unsent record with this number. Return: the held word, or 0. */
static uint64_t hold_number(struct ldc *ldc, uint64_t user_seq, struct ldc_seen *seen)
{
	uint64_t user_i, index = ldc_window(ldc, &user_i);

	for (; index < user_i; index++) {
		int tries;

		for (tries = 0; tries < LDC_TRIES; tries++) {
			uint64_t held;

			if (!ldc_see(ldc, index, user_i, seen) ||
			    seen->record.user_seq != user_seq)
				break;
			held = ldc_hold_seen(ldc, seen);
			if (held)
				return held;
		}
	}
	errno = ENOENT;
	return 0;
}

static int release(struct ldc *ldc, const struct ldc_seen *seen, uint64_t held)
{
	if (ldc_release_seen(ldc, seen, held)) {
		errno = ENOENT;
		return -1;
	}
	return changed(ldc) < 0 ? -1 : 0;
}

int ldc_modify(struct ldc *ldc, uint64_t user_seq, size_t offset, const void *data, size_t size)
{
	struct ldc_seen seen;
	uint64_t held = hold_number(ldc, user_seq, &seen);

	if (!held)
		return -1;
	if (offset > seen.len || size > seen.len - offset) {
		release(ldc, &seen, held);
		errno = ERANGE;
		return -1;
	}
	ldc_copy_in(ldc, seen.index, offset, data, size);
	return release(ldc, &seen, held);
}

int ldc_set_deadline(struct ldc *ldc, uint64_t user_seq, uint64_t deadline)
{
	struct ldc_seen seen;
	uint64_t held = hold_number(ldc, user_seq, &seen);

	if (!held)
		return -1;
	store_relaxed(&slot_at(ldc, seen.index)->deadline, deadline);
	return release(ldc, &seen, held);
}

int ldc_hold(struct ldc *ldc, uint64_t user_seq)
{
	uint64_t user_i, index = ldc_window(ldc, &user_i);
	struct ldc_seen seen;

	for (; index < user_i; index++) {
		if (ldc_see(ldc, index, user_i, &seen) && seen.record.user_seq == user_seq)
			break;
	}
	if (index < user_i) {
		store_relaxed(&ldc->ring->umod_i, index);
		/* R-ORDER-5: either we see that it was taken, or the kernel puts it back. */
		fence(__ATOMIC_SEQ_CST);
		if (ldc_see(ldc, index, user_i, &seen))
			return 0;
		ldc_release(ldc);
	}
	errno = ENOENT;
	return -1;
}

int ldc_release(struct ldc *ldc)
{
	/* Release: what was edited meanwhile is seen by a sender that sees the hold gone. */
	store_release(&ldc->ring->umod_i, LDC_NO_HOLD);
	return changed(ldc);
}
