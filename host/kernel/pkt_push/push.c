// SPDX-License-Identifier: GPL-2.0-only
/*
 * The check point. UDP calls sk_data_ready when a datagram was queued; there the
 * buffer is looked at, and emptied when it is above the threshold. The rule and
 * its filters are those of Choi, Kim and Yoo (2006): min(2L/3, L - lambda * m).
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <net/xfrm.h>

#include "pkt_push.h"

static u64 push_queued(const struct sock *sk)
{
	return max(atomic_read(&sk->sk_rmem_alloc), 0);
}

/* What is expected to come during a push: lambda * m, in bytes of the buffer. */
static u64 push_coming(const struct push_sock *ps)
{
	const struct pkt_push_stats *stats = &ps->stats;

	if (!stats->gap_ns)
		return 0;
	return div64_u64(stats->push_ns * ps->truesize, stats->gap_ns);
}

/* The buffer's size may change at any time, so it is asked for each time. */
void push_update_threshold(struct push_sock *ps, const struct sock *sk)
{
	u64 limit = READ_ONCE(sk->sk_rcvbuf);
	u64 coming = push_coming(ps);
	u64 threshold = ps->fixed;

	if (threshold == PKT_PUSH_ADAPTIVE)
		threshold = min(2 * limit / 3,
				limit > coming ? limit - coming : 0);
	WRITE_ONCE(ps->threshold, threshold);
	ps->stats.threshold = threshold;
}

/* The fast filter: the rate of arrivals is what may change at once. */
static void push_note_arrival(struct push_sock *ps, u64 now)
{
	/* A pause of a second says nothing of the rate that comes after it. */
	u64 gap = min_t(u64, now - ps->arrived_at, NSEC_PER_SEC);

	if (ps->arrived_at)
		ps->stats.gap_ns = (ps->stats.gap_ns + max_t(u64, gap, 1) + 1) / 2;
	ps->arrived_at = now;
}

/* The slow filter, alpha = 0.2: a push takes what it takes. */
static void push_note_push(struct push_sock *ps, u64 took, u64 truesize, u32 count)
{
	struct pkt_push_stats *stats = &ps->stats;

	stats->last_ns = took;
	stats->push_ns = stats->pushes ? (took + 4 * stats->push_ns) / 5 : took;
	ps->truesize = div_u64(truesize, count);
	stats->pushes++;
}

/* Whether all that recv() may want to know of a datagram can be kept. */
static bool push_can_keep(const struct push_sock *ps, const struct sk_buff *skb)
{
	const u8 *network = skb_network_header(skb);

	return skb->data >= network &&
	       skb->data - network <= PUSH_HEADER_BYTES &&
	       skb_transport_header(skb) >= network &&
	       skb_transport_header(skb) + sizeof(struct udphdr) <= skb->data &&
	       skb->len <= ps->data_bytes - sizeof(struct pkt_push_record) &&
	       !secpath_exists((struct sk_buff *)skb);
}

/* The oldest datagram that is not pinned. The reader queue's lock is held. */
struct sk_buff *push_first(struct push_sock *ps, struct sock *sk)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	struct sk_buff *skb = skb_peek(queue);

	if (skb && skb == ps->pinned)
		skb = skb_peek_next(skb, queue);
	if (skb || skb_queue_empty_lockless(&sk->sk_receive_queue))
		return skb;
	spin_lock(&sk->sk_receive_queue.lock);
	skb_queue_splice_tail_init(&sk->sk_receive_queue, queue);
	spin_unlock(&sk->sk_receive_queue.lock);
	skb = skb_peek(queue);
	if (skb && skb == ps->pinned)
		skb = skb_peek_next(skb, queue);
	return skb;
}

/* Takes a packet from the reader queue, whose lock is held, with UDP's books. */
void push_unlink(struct sock *sk, struct sk_buff *skb)
{
	struct udp_sock *up = udp_sk(sk);
	int size = skb->truesize;

	__skb_unlink(skb, &up->reader_queue);
	spin_lock(&sk->sk_receive_queue.lock);
	/* And what recv() has taken and not given back yet. */
	size += up->forward_deficit;
	up->forward_deficit = 0;
	sk_mem_uncharge(sk, size);
	atomic_sub(size, &sk->sk_rmem_alloc);
	spin_unlock(&sk->sk_receive_queue.lock);
}

void push_count_drop(struct push_sock *ps, struct sock *sk)
{
	ps->stats.bad_checksums++;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
	sk_drops_inc(sk);
#else
	atomic_inc(&sk->sk_drops);
#endif
}

/* Takes the oldest datagram, if there is room for it in the ring. */
static struct sk_buff *push_take(struct push_sock *ps, struct sock *sk, u64 *at)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	struct sk_buff *skb;

	spin_lock_bh(&queue->lock);
	skb = push_first(ps, sk);
	if (!skb)
		goto out;
	if (!push_can_keep(ps, skb)) {
		ps->stats.unpushable++;
		skb = NULL;
	} else if (!push_room(ps, skb->len, at)) {
		ps->stats.ring_full++;
		skb = NULL;
	} else {
		push_unlink(sk, skb);
	}
out:
	spin_unlock_bh(&queue->lock);
	return skb;
}

/* Moves one datagram. Returns its size in the buffer; 0: none was moved. */
static u32 push_one(struct push_sock *ps, struct sock *sk, u64 now)
{
	struct sk_buff *skb;
	u32 truesize;
	u64 at;

	skb = push_take(ps, sk, &at);
	if (!skb)
		return 0;
	truesize = skb->truesize;
	if (udp_lib_checksum_complete(skb)) {
		push_count_drop(ps, sk);
		kfree_skb(skb);
		return truesize;
	}
	push_append(ps, skb, at, now);
	ps->stats.datagrams++;
	ps->stats.bytes += skb->len;
	consume_skb(skb);
	return truesize;
}

/*
 * Empties the buffer, but for what a recv() has pinned. ps->lock held. Returns the
 * number of datagrams.
 */
u32 push_locked(struct push_sock *ps, struct sock *sk)
{
	u64 began = ktime_get_ns();
	u64 truesize = 0;
	u32 count = 0, one;

	if (ps->frozen) {
		ps->stats.skipped++;
		ps->due = true;
		return 0;
	}
	ps->due = false;
	/* SO_PEEK_OFF walks over the datagrams of the buffer. */
	if (READ_ONCE(sk->sk_peek_off) >= 0)
		return 0;
	ps->stats.queued_max = max(ps->stats.queued_max, push_queued(sk));
	push_sync_head(ps);
	while (count < PUSH_BATCH) {
		one = push_one(ps, sk, began);
		if (!one)
			break;
		truesize += one;
		count++;
	}
	if (count)
		push_note_push(ps, max_t(u64, ktime_get_ns() - began, 1), truesize,
			       count);
	return count;
}

/*
 * Whoever holds the lock may be pushing, or within a recv() for a moment. That is
 * waited for only where the buffer would overflow otherwise.
 */
static bool push_lock(struct push_sock *ps, struct sock *sk)
{
	if (spin_trylock_bh(&ps->lock))
		return true;
	if (push_queued(sk) <= READ_ONCE(ps->threshold))
		return false;
	spin_lock_bh(&ps->lock);
	return true;
}

/* The check point: a datagram was queued. */
void push_data_ready(struct sock *sk)
{
	struct push_sock *ps;

	rcu_read_lock();
	ps = rcu_dereference_sk_user_data(sk);
	if (ps) {
		if (push_lock(ps, sk)) {
			push_note_arrival(ps, ktime_get_ns());
			push_update_threshold(ps, sk);
			if (push_queued(sk) > ps->threshold && ps->sk)
				push_locked(ps, sk);
			spin_unlock_bh(&ps->lock);
		}
		ps->base_data_ready(sk);
	}
	rcu_read_unlock();
}

/* As after attaching. ps->lock held. */
void push_reset(struct push_sock *ps)
{
	memset(&ps->stats, 0, sizeof(ps->stats));
	ps->stats.mapped_bytes = ps->total_bytes;
	ps->arrived_at = 0;
	ps->truesize = 0;
}
