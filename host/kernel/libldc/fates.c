// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What became of records. A fate is read from the record's slot; if the slot is needed
 * before, it is kept here, and the kernel tells of its acknowledgement by LDC_ACKS.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "ring.h"

/* Acknowledgements that one call asks for: they lie on the stack. */
#define ACKS_AT_ONCE	256

/* A fate whose slot has another record by now. */
struct ldc_kept {
	struct ldc_fate fate;
	uint64_t index;
	/* It was sent, and its acknowledgement may still be told. */
	bool awaits;
};

int ldc_fates_init(struct ldc *ldc, uint32_t fates)
{
	ldc->kept = calloc(fates, sizeof(*ldc->kept));
	ldc->kept_most = fates;
	return ldc->kept ? 0 : -1;
}

void ldc_fates_free(struct ldc *ldc)
{
	free(ldc->kept);
}

static struct ldc_kept *kept_at(const struct ldc *ldc, uint32_t place)
{
	return &ldc->kept[(ldc->kept_head + place) & (ldc->kept_most - 1)];
}

/* The fate of the finished record at @index, whose state word is @word. */
static void read_fate(const struct ldc *ldc, uint64_t index, uint64_t word,
		      struct ldc_fate *fate)
{
	struct ldc_slot *slot = slot_at(ldc, index);

	memset(fate, 0, sizeof(*fate));
	fate->outcome = LDC_WAS_DROPPED;
	if (word_state(word) == LDC_ACKED)
		fate->outcome = LDC_WAS_ACKED;
	else if (word_state(word) == LDC_SENT)
		fate->outcome = LDC_WAS_SENT;
	else
		fate->reason = word_arg(word);
	fate->user_seq = load_relaxed(&slot->user_seq);
	/* R-ROLE-6 */
	if (load_relaxed(&slot->fate_of) == index + 1) {
		fate->committed_at = load_relaxed(&slot->committed_at);
		fate->finished_at = load_relaxed(&slot->finished_at);
		fate->horizon = load_relaxed(&slot->horizon);
		if (fate->outcome == LDC_WAS_ACKED)
			fate->acked_at = load_relaxed(&slot->acked_at);
	}
}

/*
 * Acknowledgements come in the order of commits: whatever was committed before has its own.
 * Records that were handed over together have one time of commit, but not one acknowledgement.
 */
static void note_acked_commit(struct ldc *ldc, const struct ldc_fate *fate)
{
	if (fate->committed_at > ldc->acked_commit)
		ldc->acked_commit = fate->committed_at;
}

/* The slots of the finished record at @index are needed. R-ROLE-8 */
void ldc_keep_fate(struct ldc *ldc, uint64_t index)
{
	struct ldc_slot *slot = slot_at(ldc, index);
	uint64_t word = load_acquire(&slot->state);
	struct ldc_kept *kept;

	if (ldc->kept_count == ldc->kept_most) {
		ldc->fates_lost++;
		ldc->overrun = true;
		return;
	}
	kept = kept_at(ldc, ldc->kept_count++);
	kept->index = index;
	kept->awaits = false;
	if (word_state(word) == LDC_SENT && !word_arg(word)) {
		/* R-STATE-3: the kernel does not write into this slot any more. */
		kept->awaits = swap(slot, word, word_to(word, LDC_SENT, 1));
		if (!kept->awaits)
			word = load_acquire(&slot->state);
	}
	read_fate(ldc, index, word, &kept->fate);
	if (kept->fate.outcome == LDC_WAS_ACKED)
		note_acked_commit(ldc, &kept->fate);
}

/* Completes the kept fate of the record at @index, if there is one. */
static void note_ack(struct ldc *ldc, const struct ldc_ack *ack)
{
	uint32_t first = 0, end = ldc->kept_count;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;
		struct ldc_kept *kept = kept_at(ldc, middle);

		if (kept->index == ack->index) {
			if (!kept->awaits)
				return;
			kept->awaits = false;
			kept->fate.outcome = LDC_WAS_ACKED;
			kept->fate.acked_at = ack->acked_at;
			note_acked_commit(ldc, &kept->fate);
			return;
		}
		if (kept->index < ack->index)
			first = middle + 1;
		else
			end = middle;
	}
}

static void take_acks(struct ldc *ldc)
{
	struct ldc_ack acks[ACKS_AT_ONCE];
	uint32_t turns = ldc->kept_most / ACKS_AT_ONCE + 1;
	socklen_t len = sizeof(acks);
	size_t number;

	ldc->overrun = false;
	while (turns-- && len == sizeof(acks)) {
		if (getsockopt(ldc->socket, SOL_LDC, LDC_ACKS, acks, &len))
			return;
		for (number = 0; number < len / sizeof(acks[0]); number++)
			note_ack(ldc, &acks[number]);
	}
}

/*
 * Notes the acknowledgements that the slots tell of, until one is of a later commit than
 * @commit. Those of the same commit say nothing of a record that was handed over with them.
 */
static void note_acked_slots(struct ldc *ldc, uint64_t commit)
{
	uint64_t index = ldc->tail;
	struct ldc_fate fate;

	while (index < ldc->user_i && ldc->acked_commit <= commit) {
		uint64_t word = load_acquire(&slot_at(ldc, index)->state);

		if (word_state(word) == LDC_ACKED) {
			read_fate(ldc, index, word, &fate);
			note_acked_commit(ldc, &fate);
		} else if (word_state(word) != LDC_DEAD) {
			return;
		}
		index += ldc->span[index & (ldc->slots - 1)];
	}
}

/* Whether the oldest kept fate is known. @final: the kernel tells no more. */
static bool oldest_is_known(struct ldc *ldc, bool final)
{
	struct ldc_kept *oldest = kept_at(ldc, 0);

	if (oldest->awaits)
		note_acked_slots(ldc, oldest->fate.committed_at);
	/* After that look: the acknowledgement of an older record was kept before. */
	if (oldest->awaits || ldc->overrun)
		take_acks(ldc);
	/* One whose acknowledgement was missed does not hold up the others for ever. */
	return !oldest->awaits || final || oldest->fate.committed_at < ldc->acked_commit ||
	       ldc->kept_count == ldc->kept_most;
}

int ldc_next_fate(struct ldc *ldc, struct ldc_fate *fate)
{
	/* R-ORDER-6. Acquire, and first: what the kernel told before is found below. */
	uint32_t flag = load_acquire(&ldc->ring->kern_flag);
	bool final = (flag & (LDC_KERN_CLOSED | LDC_KERN_TELLS)) == LDC_KERN_CLOSED;
	uint64_t index = ldc->tail, word;

	if (ldc->kept_count) {
		if (!oldest_is_known(ldc, final))
			return 0;
		*fate = kept_at(ldc, 0)->fate;
		ldc->kept_head = (ldc->kept_head + 1) & (ldc->kept_most - 1);
		ldc->kept_count--;
		return 1;
	}
	if (index >= ldc->user_i)
		return 0;
	word = load_acquire(&slot_at(ldc, index)->state);
	switch (word_state(word)) {
	case LDC_ACKED:
	case LDC_DEAD:
		break;
	case LDC_SENT:
		if (!word_arg(word) && !final)
			return 0;
		break;
	default:
		return 0;
	}
	read_fate(ldc, index, word, fate);
	ldc_forget_oldest(ldc);
	return 1;
}

uint64_t ldc_fates_lost(const struct ldc *ldc)
{
	return ldc->fates_lost;
}
