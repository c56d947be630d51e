// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sender's side of the ring (spec/ring.md). The other side may write
 * anything anywhere at any time: each shared word is read once, checked, and
 * used from a private copy. All functions are called with the socket's lock
 * held, except ldc_ring_space() and ldc_ring_end().
 *
 *	tail <= next <= scan <= user_i
 *	 |       |       |       next free slot, the producer's
 *	 |       |       everything below was looked at; rewound when something
 *	 |       |       becomes visible otherwise (changes)
 *	 |       everything below is over or taken: kern_i
 *	 everything below is over: for poll
 */
#include "tcp_ldc.h"
#include "trace.h"

/* How often a swap is tried again while only the edit count differs. */
#define LDC_TRIES	8

/* The producer's index: slots below it are written. R-ORDER-1 */
static u64 ldc_load_user_i(const struct ldc_ring *head)
{
	/* Pairs with the release store of who publishes. */
	return smp_load_acquire(&head->user_i);
}

/* The state word of a slot: what it speaks of is written. R-ORDER-3 */
static u64 ldc_load_word(const struct ldc_memory *memory, u64 index)
{
	/* Pairs with the release of publishing and with every swap. */
	return smp_load_acquire(&ldc_slot(memory, index)->state);
}

static u64 ldc_oldest(const struct ldc_memory *memory, u64 user_i)
{
	u32 slots = memory->layout.slots;

	return user_i > slots ? user_i - slots : 0;
}

/*
 * Moves a ready record to taken or dead. Returns whether that was done; *word
 * is then the word it had. R-STATE-1, R-ORDER-3: the swap is a full barrier.
 */
static bool ldc_move_ready(struct ldc_slot *slot, u64 *word, u64 state, u64 arg)
{
	u64 old = *word;
	int i;

	for (i = 0; i < LDC_TRIES; i++) {
		if (try_cmpxchg(&slot->state, word, ldc_word_to(*word, state, arg)))
			return true;
		if (*word >> LDC_LAP_SHIFT != old >> LDC_LAP_SHIFT ||
		    ldc_word_state(*word) != LDC_READY)
			return false;
	}
	return false;
}

/* Begins the sender's line of a slot. R-ROLE-6: before the state says so. */
static void ldc_line_begin(struct ldc_slot *slot, u64 index)
{
	WRITE_ONCE(slot->committed_at, 0);
	WRITE_ONCE(slot->finished_at, 0);
	WRITE_ONCE(slot->acked_at, 0);
	WRITE_ONCE(slot->horizon, 0);
	WRITE_ONCE(slot->fate_of, index + 1);
}

/*
 * Moves a taken or sent record on. Nobody else may, so a word that differs is
 * a lie; the record is then no longer ours to end. Callable without lock.
 */
bool ldc_ring_end(const struct ldc_memory *memory, u64 index, u64 word,
		  u64 state, u64 arg, u64 now)
{
	struct ldc_slot *slot = ldc_slot(memory, index);

	if (READ_ONCE(slot->state) != word)
		return false;
	if (ldc_word_state(word) == LDC_TAKEN)
		WRITE_ONCE(slot->finished_at, now);
	else if (state == LDC_ACKED)
		WRITE_ONCE(slot->acked_at, now);
	return try_cmpxchg(&slot->state, &word, ldc_word_to(word, state, arg));
}

/* Whether a taken record's further slots belong to it. R-STATE-2, R-TRUST-4. */
static bool ldc_parts_sound(struct ldc_sock *ls, const struct ldc_record *rec)
{
	const struct ldc_memory *memory = ls->memory;
	u32 part;

	for (part = 0; part < rec->span; part++) {
		struct ldc_slot *slot = ldc_slot(memory, rec->index + part);
		u64 word = ldc_load_word(memory, rec->index + part);

		if (READ_ONCE(slot->block) >= memory->layout.blocks)
			return false;
		if (!part)
			continue;
		if (ldc_lap_ahead(memory, rec->index + part, word) ||
		    ldc_word_state(word) != LDC_CONT ||
		    READ_ONCE(slot->span) != part)
			return false;
	}
	return true;
}

/* Copies the descriptor of a record that is taken. False: it is not sound. */
static bool ldc_describe(struct ldc_sock *ls, struct ldc_record *rec)
{
	const struct ldc_layout *layout = &ls->memory->layout;
	struct ldc_slot *slot = ldc_slot(ls->memory, rec->index);
	u32 span = READ_ONCE(slot->span);

	rec->user_seq = READ_ONCE(slot->user_seq);
	rec->deadline = READ_ONCE(slot->deadline);
	rec->len = READ_ONCE(slot->len);
	rec->span = 1;
	rec->off = 0;
	rec->zc = NULL;
	if (!span || span > layout->slots ||
	    rec->index + span > ls->seen_user ||
	    rec->len > (u64)span * layout->block_bytes)
		return false;
	rec->span = span;
	ls->budget -= min(ls->budget, span);
	return ldc_parts_sound(ls, rec);
}

static void ldc_drop_taken(struct ldc_sock *ls, struct ldc_record *rec,
			   u8 reason, u64 now)
{
	trace_ldc_drop(ls->sk, rec->index, rec->user_seq, reason);
	ldc_ring_end(ls->memory, rec->index, rec->word, LDC_DEAD, reason, now);
	ls->freed += rec->span;
}

/*
 * Tries to take the ready record at ls->scan. 1: taken. 0: passed over.
 * -EBUSY: the producer holds the sender back from here.
 */
static int ldc_try_take(struct ldc_sock *ls, u64 word, u64 now,
			struct ldc_record *rec)
{
	struct ldc_ring *head = ls->memory->head;
	u64 index = ls->scan;
	struct ldc_slot *slot = ldc_slot(ls->memory, index);

	if (!ldc_move_ready(slot, &word, LDC_TAKEN, 0)) {
		ldc_inc(ls, too_late);
		ls->scan++;
		return 0;
	}
	rec->index = index;
	rec->ready = word;
	rec->word = ldc_word_to(word, LDC_TAKEN, 0);
	/*
	 * R-ORDER-5. The swap is the fence: either the producer that holds us
	 * back sees "taken", or we see its umod_i here.
	 */
	if (index >= READ_ONCE(head->umod_i)) {
		ldc_ring_put_back(ls, rec);
		return -EBUSY;
	}
	ldc_line_begin(slot, index);
	if (!ldc_describe(ls, rec)) {
		ldc_inc(ls, bad_descriptors);
		ldc_inc(ls, dropped_invalid);
		ldc_drop_taken(ls, rec, LDC_REASON_INVALID, now);
		ls->scan++;
		return 0;
	}
	ls->scan += rec->span;
	if (rec->deadline < now) {
		ldc_inc(ls, dropped_expired);
		ldc_drop_taken(ls, rec, LDC_REASON_EXPIRED, now);
		return 0;
	}
	ldc_inc(ls, records_taken);
	return 1;
}

/* Reads the producer's indexes; false if the ring counts as empty. R-TRUST-3 */
static bool ldc_look(struct ldc_sock *ls, u64 *end)
{
	struct ldc_memory *memory = ls->memory;
	struct ldc_ring *head = memory->head;
	u64 changes, user_i, oldest;

	/* Pairs with the release addition of who changes. R-ORDER-7 */
	changes = smp_load_acquire(&head->changes);
	user_i = ldc_load_user_i(head);

	if (changes != ls->seen_changes || ls->scan > user_i)
		ls->scan = ls->next;
	ls->seen_changes = changes;
	ls->seen_user = user_i;
	if (user_i >= LDC_MAX_INDEX || user_i < ls->next) {
		ldc_inc(ls, bad_indexes);
		return false;
	}
	oldest = ldc_oldest(memory, user_i);
	ls->scan = max(ls->scan, oldest);
	/* Pairs with the release store of who lets the sender go on. */
	*end = min(user_i, smp_load_acquire(&head->umod_i));
	return true;
}

/*
 * Takes the oldest record that can be taken and whose deadline has not passed.
 * 1: taken. 0: there is none. -EAGAIN: ls->budget ended the search.
 */
int ldc_ring_take(struct ldc_sock *ls, u64 now, struct ldc_record *rec)
{
	struct ldc_memory *memory = ls->memory;
	u64 end;
	int ret;

	if (!ldc_look(ls, &end))
		return 0;
	while (ls->scan < end) {
		u64 word = ldc_load_word(memory, ls->scan);
		s32 ahead = ldc_lap_ahead(memory, ls->scan, word);

		if (!ls->budget)
			return -EAGAIN;
		ls->budget--;
		if (!ahead && ldc_word_state(word) == LDC_READY) {
			ret = ldc_try_take(ls, word, now, rec);
			if (ret)
				return ret == 1;
			continue;
		}
		if (ahead < 0 || (!ahead && (ldc_word_state(word) == LDC_FREE ||
					     ldc_word_state(word) > LDC_CONT)))
			ldc_inc(ls, bad_states);
		ls->scan++;
	}
	return 0;
}

/* Makes a taken record ready again of which no byte was handed over. */
void ldc_ring_put_back(struct ldc_sock *ls, const struct ldc_record *rec)
{
	u64 word = rec->word;

	ldc_inc(ls, records_put_back);
	if (try_cmpxchg(&ldc_slot(ls->memory, rec->index)->state, &word,
			rec->ready))
		ls->scan = min(ls->scan, rec->index);
}

/*
 * The block of one part of a taken record. It was sound when the record was
 * taken; if the program has changed it since, it garbles what it sends, but it
 * does not lead outside of the arena.
 */
u32 ldc_ring_block(struct ldc_sock *ls, const struct ldc_record *rec, u32 part)
{
	u32 block = READ_ONCE(ldc_slot(ls->memory, rec->index + part)->block);

	if (unlikely(block >= ls->memory->layout.blocks)) {
		ldc_inc(ls, bad_descriptors);
		return 0;
	}
	return block;
}

/* Moves kern_i over what is neither ready nor held. */
void ldc_ring_advance(struct ldc_sock *ls)
{
	struct ldc_memory *memory = ls->memory;
	u64 oldest = ldc_oldest(memory, ls->seen_user);
	u64 next = ls->next;

	if (ls->seen_user >= LDC_MAX_INDEX || ls->seen_user < next)
		return;
	next = max(next, oldest);
	while (next < ls->scan) {
		u64 word = ldc_load_word(memory, next);
		s32 ahead = ldc_lap_ahead(memory, next, word);

		if (ahead < 0 || (!ahead && (ldc_word_state(word) < LDC_TAKEN ||
					     ldc_word_state(word) > LDC_CONT)))
			break;
		next++;
	}
	/* An index that is a lie moves nothing: all below it is found bad. */
	if (next == ls->next || next == oldest)
		return;
	ls->next = next;
	/* A hint: pairs with nothing, but must not run ahead of the states. */
	smp_store_release(&memory->head->kern_i, next);
}

/*
 * Announces sleep. False: something became visible since the last look, so
 * there has to be another. R-ORDER-4.
 */
bool ldc_ring_sleep(struct ldc_sock *ls)
{
	struct ldc_ring *head = ls->memory->head;

	atomic_or(LDC_KERN_SLEEPS, (atomic_t *)&head->kern_flag);
	/* Pairs with the fence of who makes something visible. R-ORDER-4 */
	smp_mb__after_atomic();
	if (READ_ONCE(head->user_i) != ls->seen_user ||
	    READ_ONCE(head->changes) != ls->seen_changes) {
		atomic_andnot(LDC_KERN_SLEEPS, (atomic_t *)&head->kern_flag);
		return false;
	}
	WRITE_ONCE(ls->asleep, true);
	ldc_inc(ls, sleeps);
	trace_ldc_sleep(ls->sk, ls->next);
	return true;
}

/* Takes the announcement back. */
void ldc_ring_awake(struct ldc_sock *ls)
{
	atomic_andnot(LDC_KERN_SLEEPS, (atomic_t *)&ls->memory->head->kern_flag);
	WRITE_ONCE(ls->asleep, false);
	ls->fresh = true;
	ldc_inc(ls, wakes);
	trace_ldc_wake(ls->sk, ls->next);
}

/* Whether somebody has cleared the flag of a sleeping sender. */
bool ldc_ring_called(const struct ldc_sock *ls)
{
	return !(READ_ONCE(ls->memory->head->kern_flag) & LDC_KERN_SLEEPS);
}

/* Drops what is ready and lets nothing be pushed any more. R-ORDER-6. */
void ldc_ring_close(struct ldc_sock *ls, u8 reason)
{
	struct ldc_memory *memory = ls->memory;
	struct ldc_ring *head = memory->head;
	u64 user_i, index, now = ldc_now();

	/* First: whoever finds the ring closed knows whether more is told. */
	ldc_fate_tells(ls);
	atomic_or(LDC_KERN_CLOSED, (atomic_t *)&head->kern_flag);
	atomic_andnot(LDC_KERN_SLEEPS, (atomic_t *)&head->kern_flag);
	/* Pairs with the same fence: who is not seen here finds the flag. */
	smp_mb__after_atomic();
	user_i = ldc_load_user_i(head);
	if (user_i >= LDC_MAX_INDEX || user_i < ls->next)
		return;
	for (index = max(ls->next, ldc_oldest(memory, user_i)); index < user_i;
	     index++) {
		struct ldc_slot *slot = ldc_slot(memory, index);
		u64 word = ldc_load_word(memory, index);

		if (ldc_lap_ahead(memory, index, word) ||
		    ldc_word_state(word) != LDC_READY)
			continue;
		ldc_line_begin(slot, index);
		WRITE_ONCE(slot->finished_at, now);
		if (!ldc_move_ready(slot, &word, LDC_DEAD, reason))
			continue;
		trace_ldc_drop(ls->sk, index, READ_ONCE(slot->user_seq), reason);
		if (reason == LDC_REASON_CLOSED)
			ldc_inc(ls, dropped_closed);
		else
			ldc_inc(ls, dropped_connection);
	}
}

/* Whether the slot at index is that of a record that is not over. */
static bool ldc_unfinished(const struct ldc_memory *memory, u64 index)
{
	u64 word = READ_ONCE(ldc_slot(memory, index)->state);

	if (ldc_lap_ahead(memory, index, word))
		return false;
	switch (ldc_word_state(word)) {
	case LDC_READY:
	case LDC_HELD:
	case LDC_TAKEN:
		return true;
	default:
		return false;
	}
}

/*
 * Moves *tail over what is over and returns the slots, each with a block, that
 * the producer can use. Callable without lock; the answer is a snapshot, and
 * only the program's own concern.
 */
u32 ldc_ring_space(const struct ldc_memory *memory, u64 *tail)
{
	u64 user_i = READ_ONCE(memory->head->user_i);
	u32 slots = memory->layout.slots;

	if (user_i >= LDC_MAX_INDEX || user_i < *tail)
		return slots;
	*tail = max(*tail, ldc_oldest(memory, user_i));
	while (*tail < user_i && !ldc_unfinished(memory, *tail))
		++*tail;
	return slots - (u32)(user_i - *tail);
}
