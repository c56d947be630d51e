// SPDX-License-Identifier: GPL-2.0-only
/*
 * What became of records that were handed over: sent, acknowledged, given up.
 * And records whose pages TCP refers to, which end when it lets go of them.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "tcp_ldc.h"
#include "trace.h"

/* Applies the end that was decided for a zero-copy record. */
static void ldc_zc_end(struct ldc_zc *zc)
{
	u64 sent = ldc_word_to(zc->word, LDC_SENT, zc->final);

	if (zc->state == LDC_DEAD) {
		ldc_ring_end(zc->memory, zc->index, zc->word, LDC_DEAD,
			     zc->reason, ldc_now());
		return;
	}
	if (ldc_ring_end(zc->memory, zc->index, zc->word, LDC_SENT, zc->final,
			 ldc_now()) && zc->acked_at)
		ldc_ring_end(zc->memory, zc->index, sent, LDC_ACKED, 0,
			     zc->acked_at);
}

static void ldc_zc_put(struct ldc_zc *zc)
{
	if (!refcount_dec_and_test(&zc->refs))
		return;
	ldc_memory_put(zc->memory);
	kfree(zc);
}

/*
 * Drops a reference that a packet, or the hand-over, has to the record's
 * pages. Any context; the RCU section is what the module's exit waits for.
 */
static void ldc_zc_callback(struct sk_buff *skb, struct ubuf_info *ubuf,
			    bool success)
{
	struct ldc_zc *zc = container_of(ubuf, struct ldc_zc, ubuf);
	unsigned long flags;

	rcu_read_lock();
	if (refcount_dec_and_test(&ubuf->refcnt)) {
		spin_lock_irqsave(&zc->lock, flags);
		zc->done = true;
		ldc_zc_end(zc);
		spin_unlock_irqrestore(&zc->lock, flags);
		ldc_memory_wake(zc->memory);
		ldc_zc_put(zc);
	}
	rcu_read_unlock();
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static const struct ubuf_info_ops ldc_zc_ops = {
	.complete = ldc_zc_callback,
};
#endif

/* NULL: no memory, the record is to be copied. */
struct ldc_zc *ldc_zc_alloc(struct ldc_sock *ls, const struct ldc_record *rec)
{
	struct ldc_zc *zc = kzalloc(sizeof(*zc), GFP_ATOMIC | __GFP_NOWARN);

	if (!zc)
		return NULL;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	zc->ubuf.ops = &ldc_zc_ops;
#else
	zc->ubuf.callback = ldc_zc_callback;
#endif
	zc->ubuf.flags = SKBFL_ZEROCOPY_FRAG | SKBFL_DONT_ORPHAN;
	refcount_set(&zc->ubuf.refcnt, 1);
	/* One for the packets together, one for whom waits for the ACK. */
	refcount_set(&zc->refs, 2);
	spin_lock_init(&zc->lock);
	zc->memory = ls->memory;
	ldc_memory_hold(zc->memory);
	zc->index = rec->index;
	zc->word = rec->word;
	zc->state = LDC_SENT;
	return zc;
}

/* The record is put back; no packet refers to it. */
void ldc_zc_cancel(struct ldc_zc *zc)
{
	ldc_memory_put(zc->memory);
	kfree(zc);
}

/* The sender needs the record no longer; its packets may. */
static void ldc_zc_release(struct ldc_zc *zc, u8 state, u8 reason)
{
	unsigned long flags;

	spin_lock_irqsave(&zc->lock, flags);
	zc->state = state;
	zc->reason = reason;
	spin_unlock_irqrestore(&zc->lock, flags);
	ldc_zc_callback(NULL, &zc->ubuf, true);
}

int ldc_fate_init(struct ldc_sock *ls, const struct ldc_layout *layout)
{
	ls->unacked = kvcalloc(layout->slots, sizeof(*ls->unacked),
			       GFP_KERNEL_ACCOUNT);
	return ls->unacked ? 0 : -ENOMEM;
}

/* No acknowledgement of this record will be noticed. */
static void ldc_unacked_final(struct ldc_sock *ls, struct ldc_unacked *un)
{
	struct ldc_zc *zc = un->zc;
	unsigned long flags;
	u64 word;

	if (zc) {
		spin_lock_irqsave(&zc->lock, flags);
		zc->final = true;
		if (zc->done)
			ldc_ring_end(zc->memory, zc->index,
				     ldc_word_to(zc->word, LDC_SENT, 0),
				     LDC_SENT, 1, 0);
		spin_unlock_irqrestore(&zc->lock, flags);
		ldc_zc_put(zc);
		return;
	}
	word = READ_ONCE(ldc_slot(ls->memory, un->index)->state);
	if (!ldc_lap_ahead(ls->memory, un->index, word) &&
	    ldc_word_state(word) == LDC_SENT)
		ldc_ring_end(ls->memory, un->index, word, LDC_SENT, 1, 0);
}

static struct ldc_unacked *ldc_unacked_pop(struct ldc_sock *ls)
{
	struct ldc_unacked *un = &ls->unacked[ls->unacked_head];

	ls->unacked_head = (ls->unacked_head + 1) &
			   (ls->memory->layout.slots - 1);
	ls->unacked_count--;
	return un;
}

static void ldc_unacked_push(struct ldc_sock *ls, const struct ldc_record *rec)
{
	u32 mask = ls->memory->layout.slots - 1;
	struct ldc_unacked *un;

	/* As many as there are slots wait: some slot was used again. */
	if (ls->unacked_count > mask)
		ldc_unacked_final(ls, ldc_unacked_pop(ls));
	un = &ls->unacked[(ls->unacked_head + ls->unacked_count) & mask];
	un->index = rec->index;
	un->end_seq = rec->end_seq;
	un->zc = rec->zc;
	ls->unacked_count++;
}

/* The record's first byte was handed over. */
void ldc_fate_begun(struct ldc_sock *ls, const struct ldc_record *rec)
{
	struct ldc_slot *slot = ldc_slot(ls->memory, rec->index);

	WRITE_ONCE(slot->committed_at, rec->committed_at);
	WRITE_ONCE(slot->horizon, rec->horizon);
	ls->stats.horizon_max = max_t(u64, ls->stats.horizon_max, rec->horizon);
	trace_ldc_take(ls->sk, rec->index, rec->user_seq, rec->len,
		       rec->horizon);
}

/* The record's last byte was handed over. */
void ldc_fate_sent(struct ldc_sock *ls, struct ldc_record *rec, u64 now)
{
	ldc_inc(ls, records_sent);
	ldc_unacked_push(ls, rec);
	if (rec->zc) {
		ldc_zc_release(rec->zc, LDC_SENT, 0);
		return;
	}
	ldc_ring_end(ls->memory, rec->index, rec->word, LDC_SENT, 0, now);
	ls->freed += rec->span;
}

/* The record was begun and is given up. */
void ldc_fate_dropped(struct ldc_sock *ls, struct ldc_record *rec, u8 reason,
		      u64 now)
{
	trace_ldc_drop(ls->sk, rec->index, rec->user_seq, reason);
	if (rec->zc) {
		ldc_zc_release(rec->zc, LDC_DEAD, reason);
		ldc_zc_put(rec->zc);
		return;
	}
	ldc_ring_end(ls->memory, rec->index, rec->word, LDC_DEAD, reason, now);
	ls->freed += rec->span;
}

static void ldc_unacked_done(struct ldc_sock *ls, struct ldc_unacked *un,
			     u64 now)
{
	struct ldc_zc *zc = un->zc;
	unsigned long flags;
	u64 word;

	ldc_inc(ls, records_acked);
	if (zc) {
		spin_lock_irqsave(&zc->lock, flags);
		zc->acked_at = now;
		if (zc->done)
			ldc_ring_end(zc->memory, zc->index,
				     ldc_word_to(zc->word, LDC_SENT, 0),
				     LDC_ACKED, 0, now);
		spin_unlock_irqrestore(&zc->lock, flags);
		ldc_zc_put(zc);
		return;
	}
	word = READ_ONCE(ldc_slot(ls->memory, un->index)->state);
	if (!ldc_lap_ahead(ls->memory, un->index, word) &&
	    ldc_word_state(word) == LDC_SENT && !ldc_word_arg(word))
		ldc_ring_end(ls->memory, un->index, word, LDC_ACKED, 0, now);
}

/* Called with the socket's lock after an acknowledgement. */
void ldc_fate_acked(struct ldc_sock *ls)
{
	u32 una = tcp_sk(ls->sk)->snd_una;
	u64 now = 0;

	while (ls->unacked_count &&
	       !after(ls->unacked[ls->unacked_head].end_seq, una)) {
		if (!now)
			now = ldc_now();
		ldc_unacked_done(ls, ldc_unacked_pop(ls), now);
	}
}

/* The connection is over: what is sent is final. */
void ldc_fate_free(struct ldc_sock *ls)
{
	if (!ls->unacked)
		return;
	while (ls->unacked_count)
		ldc_unacked_final(ls, ldc_unacked_pop(ls));
	kvfree(ls->unacked);
	ls->unacked = NULL;
}
