// SPDX-License-Identifier: GPL-2.0-only
/*
 * Handing over: when TCP can send, the oldest record that can be taken is, and
 * not before.
 *
 * TCP calls sk_write_space after each acknowledgement and after each packet
 * sent (tcp_check_space() in net/ipv4/tcp_input.c), as long as SOCK_NOSPACE is
 * set. So it stays set, and all of this happens in those calls, under the
 * socket's lock, in softirq or in process context.
 */
#include <linux/bvec.h>
#include <linux/minmax.h>

#include "tcp_ldc.h"
#include "trace.h"

/*
 * Slots that one pull in softirq may look at; the rest of a longer look is made
 * in process context, at most once in a tick: a program that makes us look
 * again and again shall not have a processor to itself.
 */
#define LDC_LOOKS	2048
#define LDC_LOOK_PAUSE	1
/* Hand-overs in one pull. More is in flight then than one ACK returns. */
#define LDC_BURSTS	16
/* Bytes of one hand-over; on loopback a single segment has as many. */
#define LDC_MAX_BURST	65536U
/* Bytes of the reserve where a segment has more. */
#define LDC_MAX_RESERVE	16384U
/*
 * Segments of one hand-over without segmentation offload. From 16 on
 * tcp_sendmsg_locked() processes the backlog, from within which we may come.
 */
#define LDC_MAX_SEGS	15U
/* A sender that watches the ring sleeps when nothing has come for so long. */
#define LDC_WATCH_END	HZ
/* When memory is to be asked for again if no acknowledgement will come. */
#define LDC_RETRY	msecs_to_jiffies(20)

/*
 * Bytes that TCP puts into one packet of segments: what tcp_tso_autosize()
 * computes in net/ipv4/tcp_output.c.
 */
static u32 ldc_burst(const struct sock *sk, u32 mss)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	unsigned long bytes;
	u32 r;

	if (!sk_can_gso(sk))
		return min(LDC_MAX_SEGS * mss, LDC_MAX_BURST);
	bytes = READ_ONCE(sk->sk_pacing_rate) >> READ_ONCE(sk->sk_pacing_shift);
	r = tcp_min_rtt(tp) >>
	    READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_tso_rtt_log);
	if (r < BITS_PER_TYPE(u32))
		bytes += LDC_MAX_BURST >> r;
	bytes = clamp_t(unsigned long, bytes, 2 * mss, LDC_MAX_BURST);
	/* More than the device takes as one would wait for the first to leave. */
	bytes = min(bytes, (unsigned long)READ_ONCE(sk->sk_gso_max_segs) * mss);
	return max(rounddown((u32)bytes, mss), mss);
}

/*
 * Whether a packet handed over now would wait in TCP's queue although the
 * window is open: for its pacing time, or for the device's queue to drain.
 */
static bool ldc_held_up(const struct sock *sk, u32 mss)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	unsigned long limit;

	if (tcp_needs_internal_pacing(sk) && tp->tcp_wstamp_ns > tcp_clock_ns())
		return true;
	limit = max_t(unsigned long, 2 * SKB_TRUESIZE(mss),
		      READ_ONCE(sk->sk_pacing_rate) >>
		      READ_ONCE(sk->sk_pacing_shift));
	if (READ_ONCE(sk->sk_pacing_status) == SK_PACING_NONE)
		limit = min_t(unsigned long, limit,
			      READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_limit_output_bytes));
	return refcount_read(&sk->sk_wmem_alloc) > limit;
}

/* Bytes to hand over now; *leaves: they are sent before the call returns. */
static u32 ldc_room(const struct sock *sk, const struct ldc_sock *ls,
		    bool *leaves)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 mss = max_t(u32, tp->mss_cache, 1);
	u32 in_flight = tcp_packets_in_flight(tp);
	u32 cwnd = tcp_snd_cwnd(tp);
	s32 window = tcp_wnd_end(tp) - tp->write_seq;
	u32 room;

	*leaves = false;
	if (tp->write_seq != tp->snd_nxt)
		return 0;
	if (in_flight < cwnd && window >= (s32)mss && !ldc_held_up(sk, mss)) {
		*leaves = true;
		room = min_t(u64, (u64)(cwnd - in_flight) * mss,
			     rounddown((u32)window, mss));
		return min(room, ldc_burst(sk, mss));
	}
	/*
	 * The reserve. With nothing in flight there always is one: nothing else
	 * would make TCP probe a closed window or set its pacing timer.
	 */
	if (ls->horizon || !tp->packets_out)
		return min(mss, LDC_MAX_RESERVE);
	return 0;
}

static void *ldc_payload(struct ldc_sock *ls, const struct ldc_record *rec,
			 u32 part)
{
	const struct ldc_memory *memory = ls->memory;
	u64 block = ldc_ring_block(ls, rec, part);

	return memory->base + memory->layout.arena_offset +
	       block * memory->layout.block_stride;
}

/* Adds one stretch of memory to the pieces; returns bytes of it that fit. */
static u32 ldc_add_piece(struct ldc_sock *ls, void *from, u32 len, bool pages)
{
	struct kvec *last = ls->pieces ? &ls->kvec[ls->pieces - 1] : NULL;

	if (pages) {
		struct bio_vec *bv = &ls->bvec[ls->pieces];

		if (ls->pieces == LDC_PIECES)
			return 0;
		bv->bv_page = vmalloc_to_page(from);
		bv->bv_offset = offset_in_page(from);
		bv->bv_len = min_t(u32, len, PAGE_SIZE - bv->bv_offset);
		ls->pieces++;
		return bv->bv_len;
	}
	if (last && last->iov_base + last->iov_len == from) {
		last->iov_len += len;
		return len;
	}
	if (ls->pieces == LDC_PIECES)
		return 0;
	ls->kvec[ls->pieces].iov_base = from;
	ls->kvec[ls->pieces].iov_len = len;
	ls->pieces++;
	return len;
}

/* Plans up to max bytes of a record; sets rec->plan. */
static void ldc_plan(struct ldc_sock *ls, struct ldc_record *rec, u32 max,
		     bool pages)
{
	u32 block_bytes = ls->memory->layout.block_bytes;
	u32 end = rec->off + min(rec->len - rec->off, max);
	u32 at = rec->off, within, len;

	while (at < end) {
		within = at % block_bytes;
		len = min(end - at, block_bytes - within);
		len = ldc_add_piece(ls, ldc_payload(ls, rec, at / block_bytes) +
				    within, len, pages);
		if (!len)
			break;
		at += len;
	}
	rec->plan = at - rec->off;
}

static bool ldc_wants_zerocopy(const struct ldc_sock *ls,
			       const struct ldc_record *rec)
{
	return ls->zerocopy && rec->len >= LDC_ZEROCOPY_MIN &&
	       (ls->sk->sk_route_caps & NETIF_F_SG);
}

/*
 * Gathers records for up to room bytes. A segment is filled from several
 * records; but a packet refers to pages of one record only, so with zero copy
 * there is one record to a hand-over. Returns the bytes.
 */
static u32 ldc_gather(struct ldc_sock *ls, u32 room, u64 now, bool only_begun,
		      int *err)
{
	/* A record begun with zero copy stays so when the option changes. */
	bool alone = ls->begun && ls->current_rec.zc;
	u32 bytes = 0;

	ls->records = 0;
	ls->pieces = 0;
	*err = 0;
	while (ls->records < LDC_BATCH && bytes < room) {
		struct ldc_record *rec = &ls->batch[ls->records];

		if (ls->begun && !ls->records) {
			*rec = ls->current_rec;
		} else {
			if (only_begun || alone)
				break;
			*err = ldc_ring_take(ls, now, rec);
			if (*err <= 0)
				break;
			rec->committed_at = 0;
			if (ldc_wants_zerocopy(ls, rec))
				rec->zc = ldc_zc_alloc(ls, rec);
		}
		ls->records++;
		alone = alone || ls->zerocopy;
		ldc_plan(ls, rec, room - bytes, rec->zc && !only_begun);
		bytes += rec->plan;
		if (rec->plan < rec->len - rec->off)
			break;
	}
	return bytes;
}

static int ldc_send(struct sock *sk, struct ldc_sock *ls, u32 bytes, int flags)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | flags };
	struct tcp_sock *tp = tcp_sk(sk);
	u32 app_limited = tp->app_limited;
	int sent;

	if (flags & MSG_ZEROCOPY) {
		msg.msg_ubuf = &ls->batch[0].zc->ubuf;
		iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, ls->bvec, ls->pieces,
			      bytes);
	} else {
		iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, ls->kvec, ls->pieces,
			      bytes);
	}
	sent = tcp_sendmsg_locked(sk, &msg, bytes);
	/*
	 * TCP takes its empty queue for an application that has nothing to
	 * send, and stops measuring the path. That is so only when the ring
	 * was empty.
	 */
	if (!ls->fresh)
		tp->app_limited = app_limited;
	ls->fresh = false;
	if (sent > 0) {
		ls->taken_at = jiffies;
		ldc_add(ls, bytes, sent);
		if (flags & MSG_ZEROCOPY)
			ldc_add(ls, bytes_zerocopy, sent);
	}
	return sent;
}

/* Says of each gathered record what became of it when sent bytes were taken. */
static void ldc_settle(struct ldc_sock *ls, u32 seq, u32 sent, u64 now)
{
	u32 on_wire = tcp_sk(ls->sk)->snd_nxt;
	bool stopped = false;
	u32 before = 0, i;

	ls->begun = false;
	for (i = 0; i < ls->records; i++) {
		struct ldc_record *rec = &ls->batch[i];
		u32 took = min(sent - before, rec->plan);

		stopped = stopped || (!took && rec->plan);
		if (!rec->committed_at && stopped) {
			if (rec->zc)
				ldc_zc_cancel(rec->zc);
			ldc_ring_put_back(ls, rec);
			continue;
		}
		if (!rec->committed_at) {
			rec->committed_at = now;
			rec->horizon = max_t(s32, seq + before - on_wire, 0);
			ldc_fate_begun(ls, rec);
		}
		rec->off += took;
		before += took;
		if (rec->off == rec->len) {
			rec->end_seq = seq + before;
			ldc_fate_sent(ls, rec, now);
			continue;
		}
		ls->current_rec = *rec;
		ls->begun = true;
		stopped = true;
	}
}

/*
 * Hands over up to room bytes. 1: something was. 0: there is nothing.
 * -EAGAIN: the look was long, look again. Else: TCP did not take it.
 */
static int ldc_hand_over(struct sock *sk, struct ldc_sock *ls, u32 room,
			 bool leaves, bool only_begun)
{
	u32 seq = tcp_sk(sk)->write_seq;
	u64 now = ldc_now();
	int flags = 0, err, sent = 0;
	u32 bytes;

	bytes = ldc_gather(ls, room, now, only_begun, &err);
	if (!ls->records)
		return err;
	/*
	 * What leaves now is not to wait for more: neither for segments that
	 * would fill the packet (tcp_tso_should_defer()), nor for the device
	 * (tcp_should_autocork()).
	 */
	if (leaves)
		flags |= MSG_EOR;
	if (ls->batch[0].zc && !only_begun)
		flags |= MSG_ZEROCOPY;
	if (bytes)
		sent = ldc_send(sk, ls, bytes, flags);
	ldc_settle(ls, seq, max(sent, 0), now);
	if (sent < 0)
		return sent == -EAGAIN ? -ENOBUFS : sent;
	return sent < (int)bytes ? -ENOBUFS : 1;
}

static bool ldc_can_send(const struct sock *sk, const struct ldc_sock *ls)
{
	return !ls->ended && !sk->sk_err && !tcp_sk(sk)->repair &&
	       !(sk->sk_shutdown & SEND_SHUTDOWN) &&
	       (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT);
}

/* Ends sending: what was begun and not finished, and what is ready, is dead. */
void ldc_stop(struct ldc_sock *ls, u8 reason)
{
	if (ls->ended)
		return;
	WRITE_ONCE(ls->ended, true);
	WRITE_ONCE(ls->asleep, false);
	if (ls->begun) {
		ls->begun = false;
		ldc_inc(ls, dropped_connection);
		ldc_fate_dropped(ls, &ls->current_rec,
				 LDC_REASON_CONNECTION_LOST, ldc_now());
	}
	ldc_ring_close(ls, reason);
}

static void ldc_lost(struct ldc_sock *ls)
{
	/* One segment may have had the last acknowledgement and the FIN. */
	ldc_fate_acked(ls);
	ldc_stop(ls, LDC_REASON_CONNECTION_LOST);
	ldc_fate_free(ls);
}

/* sk_state_change: the connection may be over. Socket's lock held. */
void ldc_state_change(struct sock *sk)
{
	struct ldc_sock *ls = ldc_sk(sk);

	/* Within a hand-over it is noticed after it, by ldc_pulled(). */
	if (sk->sk_state == TCP_CLOSE && !ls->pulling)
		ldc_lost(ls);
	ls->base_state_change(sk);
}

/* TCP may have processed its backlog within a hand-over, and a reset in it. */
static void ldc_pulled(struct sock *sk, struct ldc_sock *ls)
{
	ls->pulling = false;
	if (sk->sk_state == TCP_CLOSE)
		ldc_lost(ls);
}

static void ldc_again(struct ldc_sock *ls, unsigned long delay)
{
	mod_delayed_work(ldc_wq, &ls->work, delay);
}

/*
 * The ring is empty: sleeps, or sees to it that it is looked at again. False:
 * something became visible since the last look.
 */
static bool ldc_rest(struct ldc_sock *ls)
{
	if (!ls->watch || time_after(jiffies, ls->taken_at + LDC_WATCH_END))
		return ldc_ring_sleep(ls);
	ls->fresh = true;
	ldc_inc(ls, watches);
	ldc_again(ls, msecs_to_jiffies(ls->watch));
	return true;
}

/* Hands over what TCP can send. Called with the socket's lock held. */
static void ldc_pull(struct sock *sk, struct ldc_sock *ls, u32 looks)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	gfp_t allocation = sk->sk_allocation;
	int ret = 1, i;
	bool leaves;
	u32 room;

	if (!ldc_can_send(sk, ls))
		return;
	ls->pulling = true;
	ls->budget = looks;
	ldc_inc(ls, pulls);
	sk->sk_allocation = GFP_ATOMIC | __GFP_NOWARN;
	for (i = 0; i < LDC_BURSTS; i++) {
		room = ldc_room(sk, ls, &leaves);
		if (!room)
			break;
		ret = ldc_hand_over(sk, ls, room, leaves, false);
		if (ret < 0 || (!ret && ldc_rest(ls)))
			break;
	}
	sk->sk_allocation = allocation;
	ldc_pulled(sk, ls);
	ldc_ring_advance(ls);
	if (ls->asleep || ls->ended)
		return;
	if (ret == -EAGAIN) {
		ldc_again(ls, LDC_LOOK_PAUSE);
	} else if (ret < 0) {
		ldc_inc(ls, retries);
		ldc_again(ls, LDC_RETRY);
	} else if (i == LDC_BURSTS && !tp->packets_out) {
		ldc_again(ls, LDC_LOOK_PAUSE);
	}
}

/* Wakes those who wait for space in the ring, when enough has become free. */
static void ldc_wake_writers(struct sock *sk, struct ldc_sock *ls)
{
	bool wanted = READ_ONCE(ls->want_space);
	u64 tail = ls->tail;
	struct socket_wq *wq;
	u32 space, freed;

	if (!ls->freed && !wanted)
		return;
	freed = ls->freed;
	ls->freed = 0;
	space = ldc_ring_space(ls->memory, &tail);
	WRITE_ONCE(ls->tail, tail);
	/* Wakes at the edge, too: a full ring is found without a call of poll. */
	if (space < ls->lowat || (!wanted && space - min(space, freed) >= ls->lowat))
		return;
	WRITE_ONCE(ls->want_space, false);
	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, EPOLLOUT | EPOLLWRNORM |
					   EPOLLWRBAND);
	if (wq && wq->fasync_list && !(sk->sk_shutdown & SEND_SHUTDOWN))
		sock_wake_async(wq, SOCK_WAKE_SPACE, POLL_OUT);
	rcu_read_unlock();
}

static void ldc_progress(struct sock *sk, struct ldc_sock *ls, u32 looks)
{
	ldc_fate_acked(ls);
	if (ls->ended)
		return;
	if (ls->asleep && ldc_ring_called(ls))
		ldc_ring_awake(ls);
	if (!ls->asleep)
		ldc_pull(sk, ls, looks);
	ldc_wake_writers(sk, ls);
}

/* sk_write_space: something was acknowledged, or a packet was sent. */
void ldc_write_space(struct sock *sk)
{
	struct ldc_sock *ls = ldc_sk(sk);

	if (!ls->pulling)
		ldc_progress(sk, ls, LDC_LOOKS);
}

/* Somebody says that there is something to send. Socket's lock held. */
void ldc_notify(struct sock *sk, struct ldc_sock *ls)
{
	if (ls->asleep)
		ldc_ring_awake(ls);
	ldc_progress(sk, ls, ls->memory->layout.slots);
}

void ldc_pull_work(struct work_struct *work)
{
	struct ldc_sock *ls = container_of(to_delayed_work(work),
					   struct ldc_sock, work);
	struct sock *sk = ls->sk;

	lock_sock(sk);
	ldc_progress(sk, ls, ls->memory->layout.slots);
	release_sock(sk);
}

/*
 * Hands over all of a record that was begun, whatever the window is: the bytes
 * only move from the ring to TCP's queue, and the ring goes. Process context,
 * socket's lock held.
 */
int ldc_finish_begun(struct sock *sk, struct ldc_sock *ls)
{
	int sndbuf = sk->sk_sndbuf;
	int ret = 1;

	if (!ldc_can_send(sk, ls))
		return 0;
	ls->pulling = true;
	WRITE_ONCE(sk->sk_sndbuf, INT_MAX / 2);
	while (ls->begun && ret == 1)
		ret = ldc_hand_over(sk, ls, LDC_MAX_BURST, false, true);
	WRITE_ONCE(sk->sk_sndbuf, sndbuf);
	ldc_pulled(sk, ls);
	return ls->begun ? -ENOBUFS : 0;
}
