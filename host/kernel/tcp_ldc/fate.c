// SPDX-License-Identifier: GPL-2.0-only
/*
 * What became of records that were handed over: sent, acknowledged, given up.
 * And records whose pages TCP refers to, which end when it lets go of them.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "tcp_ldc.h"
#include "trace.h"

/* Applies the end that was decided for a zero-copy record. */
static void ldc_zc_end(struct ldc_zc *zc)
{
	struct ldc_slot *slot = ldc_slot(zc->memory, zc->index);

	if (zc->state == LDC_DEAD) {
		ldc_ring_end(zc->memory, zc->index, zc->word, LDC_DEAD,
			     zc->reason, ldc_now());
		return;
	}
	if (!zc->acked_at) {
		ldc_ring_end(zc->memory, zc->index, zc->word, LDC_SENT,
			     zc->final, ldc_now());
		return;
	}
	/* In one step, R-STATE-3: a sent record's slot may be used again. */
	if (READ_ONCE(slot->state) == zc->word)
		WRITE_ONCE(slot->acked_at, zc->acked_at);
	ldc_ring_end(zc->memory, zc->index, zc->word, LDC_ACKED, 0, ldc_now());
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
	u32 records = layout->slots;

	if (ls->keep_acks > records)
		records = roundup_pow_of_two(ls->keep_acks);
	if (ls->keep_acks) {
		ls->late = kvcalloc(ls->keep_acks, sizeof(*ls->late),
				    GFP_KERNEL_ACCOUNT);
		if (!ls->late)
			return -ENOMEM;
	}
	ls->unacked = kvcalloc(records, sizeof(*ls->unacked),
			       GFP_KERNEL_ACCOUNT);
	if (!ls->unacked) {
		kvfree(ls->late);
		ls->late = NULL;
		return -ENOMEM;
	}
	ls->unacked_mask = records - 1;
	return 0;
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

	ls->unacked_head = (ls->unacked_head + 1) & ls->unacked_mask;
	ls->unacked_count--;
	return un;
}

static void ldc_unacked_push(struct ldc_sock *ls, const struct ldc_record *rec)
{
	struct ldc_unacked *un;

	/* At least as many as there are slots wait: some slot was used again. */
	if (ls->unacked_count > ls->unacked_mask) {
		ldc_inc(ls, acks_missed);
		ldc_unacked_final(ls, ldc_unacked_pop(ls));
	}
	un = &ls->unacked[(ls->unacked_head + ls->unacked_count) &
			  ls->unacked_mask];
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

/*
 * Keeps an acknowledgement that the slot cannot tell of. If nobody reads, the
 * newest are missed: the oldest are those whose fates were kept.
 */
static void ldc_late_ack(struct ldc_sock *ls, u64 index, u64 now)
{
	struct ldc_ack *ack;

	if (ls->late_count == ls->keep_acks) {
		ldc_inc(ls, acks_missed);
		return;
	}
	ack = &ls->late[(ls->late_head + ls->late_count) % ls->keep_acks];
	ack->index = index;
	ack->acked_at = now;
	ls->late_count++;
	ldc_inc(ls, acks_late);
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
		if (zc->done &&
		    !ldc_ring_end(zc->memory, zc->index,
				  ldc_word_to(zc->word, LDC_SENT, 0),
				  LDC_ACKED, 0, now))
			ldc_late_ack(ls, un->index, now);
		spin_unlock_irqrestore(&zc->lock, flags);
		ldc_zc_put(zc);
		return;
	}
	word = READ_ONCE(ldc_slot(ls->memory, un->index)->state);
	if (ldc_lap_ahead(ls->memory, un->index, word) ||
	    ldc_word_state(word) != LDC_SENT || ldc_word_arg(word) ||
	    !ldc_ring_end(ls->memory, un->index, word, LDC_ACKED, 0, now))
		ldc_late_ack(ls, un->index, now);
}

/* The ring was closed: more is told only if something was sent. R-ORDER-6 */
void ldc_fate_tells(struct ldc_sock *ls)
{
	if (!ls->unacked_count)
		return;
	ls->tells = true;
	atomic_or(LDC_KERN_TELLS, (atomic_t *)&ls->memory->head->kern_flag);
}

static void ldc_fate_told(struct ldc_sock *ls)
{
	if (!ls->tells)
		return;
	ls->tells = false;
	/* Release: whoever sees it cleared finds the last acknowledgement. */
	atomic_fetch_andnot_release(LDC_KERN_TELLS,
				    (atomic_t *)&ls->memory->head->kern_flag);
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
	if (!ls->unacked_count)
		ldc_fate_told(ls);
}

/* Gives out, and forgets, as many of the late acknowledgements as fit. */
int ldc_fate_read(struct ldc_sock *ls, char __user *val, int __user *lenp,
		  int len)
{
	const size_t size = sizeof(*ls->late);
	u32 n = min_t(size_t, len / size, ls->late_count);
	u32 first = min(n, ls->keep_acks - ls->late_head);

	if (put_user((int)(n * size), lenp))
		return -EFAULT;
	if (!n)
		return 0;
	if (copy_to_user(val, ls->late + ls->late_head, first * size) ||
	    copy_to_user(val + first * size, ls->late, (n - first) * size))
		return -EFAULT;
	ls->late_head = (ls->late_head + n) % ls->keep_acks;
	ls->late_count -= n;
	return 0;
}

/* The connection is over: what is sent is final. */
void ldc_fate_free(struct ldc_sock *ls)
{
	if (!ls->unacked)
		return;
	while (ls->unacked_count)
		ldc_unacked_final(ls, ldc_unacked_pop(ls));
	ldc_fate_told(ls);
	kvfree(ls->unacked);
	ls->unacked = NULL;
}
