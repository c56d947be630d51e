// SPDX-License-Identifier: GPL-2.0-only
/*
 * What system calls on an attached socket do. Where this says nothing the calls
 * are UDP's own; recv() is, too: what is oldest is pinned as the first packet of
 * the buffer, where a push leaves it, and UDP takes it from there. A record of
 * the ring is made the packet again that it was. So names, control messages,
 * MSG_PEEK, MSG_TRUNC, recvmmsg(), io_uring and BPF are as without the module.
 */
#include <asm/ioctls.h>
#include <linux/in6.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sockios.h>

#include "pkt_push.h"

/* What recvmsg() of this kernel has besides. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#define PUSH_NAME_PARAM
#define PUSH_NAME_ARG
#else
#define PUSH_NAME_PARAM	, int *addr_len
#define PUSH_NAME_ARG	, addr_len
#endif

/* How often a packet is offered to UDP while errors of the socket come. */
#define PUSH_OFFERS	8

/* Puts a packet before all others, with UDP's own books. ps->lock held. */
static void push_inject(struct push_sock *ps, struct sock *sk, struct sk_buff *skb)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;

	ps->pinned = skb_get(skb);
	spin_lock(&queue->lock);
	spin_lock(&sk->sk_receive_queue.lock);
	/* For the time of one call; the buffer may be full. */
	sk_mem_charge(sk, skb->truesize);
	atomic_add(skb->truesize, &sk->sk_rmem_alloc);
	spin_unlock(&sk->sk_receive_queue.lock);
	__skb_queue_head(queue, skb);
	spin_unlock(&queue->lock);
}

/*
 * The oldest datagram of the buffer, while nothing is in the ring. It stays where
 * it is, and a push leaves it there. ps->lock held.
 */
static struct sk_buff *push_pin(struct push_sock *ps, struct sock *sk)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	struct sk_buff *skb;

	spin_lock(&queue->lock);
	skb = push_first(ps, sk);
	ps->pinned = skb ? skb_get(skb) : NULL;
	spin_unlock(&queue->lock);
	return skb;
}

static bool push_is_queued(struct sock *sk, const struct sk_buff *skb)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	bool is;

	spin_lock_bh(&queue->lock);
	is = skb_peek(queue) == skb;
	spin_unlock_bh(&queue->lock);
	return is;
}

/* A copy of the ring's oldest record was looked at; it goes again. */
static void push_withdraw(struct sock *sk, struct sk_buff *skb)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;

	spin_lock_bh(&queue->lock);
	if (skb_peek(queue) == skb) {
		push_unlink(sk, skb);
		/* Not the last one: it is pinned. */
		consume_skb(skb);
	}
	spin_unlock_bh(&queue->lock);
}

static void push_unpin(struct push_sock *ps)
{
	struct sk_buff *skb;

	spin_lock_bh(&ps->lock);
	skb = ps->pinned;
	ps->pinned = NULL;
	spin_unlock_bh(&ps->lock);
	consume_skb(skb);
}

/*
 * Makes a packet of the ring's oldest record, and takes the record, unless it is
 * only looked at. 1: it is pinned; 0: the ring is empty.
 */
static int push_pin_record(struct push_sock *ps, struct sock *sk, bool peek)
{
	struct push_meta meta;
	struct sk_buff *skb;
	bool some, mine;

	for (;;) {
		spin_lock_bh(&ps->lock);
		push_sync_head(ps);
		some = ps->first != ps->next;
		if (some)
			meta = *push_meta(ps, ps->first);
		spin_unlock_bh(&ps->lock);
		if (!some)
			return 0;
		skb = push_rebuild(ps, &meta);
		if (!skb)
			return -ENOMEM;
		spin_lock_bh(&ps->lock);
		if (peek) {
			push_sync_head(ps);
			mine = ps->seen == meta.start;
		} else {
			mine = push_swap_head(ps, meta.start, meta.end);
			ps->stats.returned += mine;
			push_sync_head(ps);
		}
		if (mine)
			push_inject(ps, sk, skb);
		spin_unlock_bh(&ps->lock);
		if (mine)
			return 1;
		/* The program took it, or a push dropped it, while it was copied. */
		kfree_skb(skb);
		if (signal_pending(current))
			return -ERESTARTSYS;
		cond_resched();
	}
}

/* recv() would go on to the next datagram, which may not be the oldest then. */
static bool push_checksum_fails(struct push_sock *ps, struct sock *sk)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	struct sk_buff *skb = ps->pinned;

	if (!udp_lib_checksum_complete(skb)) {
		udp_skb_scratch(skb)->csum_unnecessary = true;
		return false;
	}
	spin_lock_bh(&ps->lock);
	push_count_drop(ps, sk);
	spin_lock(&queue->lock);
	if (skb_peek(queue) == skb) {
		push_unlink(sk, skb);
		kfree_skb(skb);
	}
	spin_unlock(&queue->lock);
	spin_unlock_bh(&ps->lock);
	push_unpin(ps);
	return true;
}

/*
 * Pins what is oldest: it is the first packet of the buffer then, and stays it
 * whatever is pushed. 1: one is pinned; 0: there is none; or an error.
 * @copy: it is a record's copy, to be withdrawn after a look
 */
static int push_pin_oldest(struct push_sock *ps, struct sock *sk, bool peek,
			   bool *copy)
{
	struct sk_buff *skb;
	bool ring;
	int err;

	do {
		*copy = false;
		spin_lock_bh(&ps->lock);
		push_sync_head(ps);
		ring = ps->first != ps->next;
		skb = ring ? NULL : push_pin(ps, sk);
		/* What stays in the buffer after a look has to stay the oldest. */
		ps->frozen = skb && peek;
		spin_unlock_bh(&ps->lock);
		if (ring) {
			err = push_pin_record(ps, sk, peek);
			*copy = peek;
			if (err)
				return err;
			/* Taken by the program meanwhile: look again. */
			continue;
		}
		if (!skb)
			return 0;
	} while (ring || push_checksum_fails(ps, sk));
	return 1;
}

/* UDP's recv() on what is pinned. */
static int push_offer(struct push_sock *ps, struct sock *sk, struct msghdr *msg,
		      size_t len, int flags PUSH_NAME_PARAM)
{
	int offers, err = 0, error = 0;

	for (offers = 0; offers < PUSH_OFFERS; offers++) {
		err = ps->base_prot->recvmsg(sk, msg, len, flags PUSH_NAME_ARG);
		if (flags & MSG_PEEK)
			return err;
		if (!push_is_queued(sk, ps->pinned)) {
			push_unpin(ps);
			/* An error that came before it is told next time. */
			if (error)
				cmpxchg(&sk->sk_err, 0, -error);
			return err;
		}
		error = err;
	}
	/* It stays pinned, for the next recv(). */
	return err < 0 ? err : -EAGAIN;
}

/* recv() without waiting. ps->turn held. */
static int push_recv_turn(struct push_sock *ps, struct sock *sk,
			  struct msghdr *msg, size_t len,
			  int flags PUSH_NAME_PARAM)
{
	bool peek = flags & MSG_PEEK, copy = false, left = ps->pinned;
	int err;

	err = sock_error(sk);
	if (err)
		return err;
	err = left ? 1 : push_pin_oldest(ps, sk, peek, &copy);
	if (err <= 0)
		return err ?: -EAGAIN;
	err = push_offer(ps, sk, msg, len, flags PUSH_NAME_ARG);
	if (!peek || left)
		return err;
	if (copy)
		push_withdraw(sk, ps->pinned);
	push_unpin(ps);
	spin_lock_bh(&ps->lock);
	ps->frozen = false;
	if (ps->due)
		push_locked(ps, sk);
	spin_unlock_bh(&ps->lock);
	return err;
}

static int push_recv_now(struct push_sock *ps, struct sock *sk,
			 struct msghdr *msg, size_t len,
			 int flags PUSH_NAME_PARAM)
{
	int err;

	if (mutex_lock_interruptible(&ps->turn))
		return -ERESTARTSYS;
	err = push_recv_turn(ps, sk, msg, len, flags PUSH_NAME_ARG);
	mutex_unlock(&ps->turn);
	return err;
}

/* Only what makes the socket readable wakes a reader. */
static int push_wake(wait_queue_entry_t *wait, unsigned int mode, int sync,
		     void *key)
{
	if (key && !(key_to_poll(key) & (EPOLLIN | EPOLLERR | EPOLLHUP)))
		return 0;
	return autoremove_wake_function(wait, mode, sync, key);
}

static bool push_is_readable(const struct push_sock *ps, const struct sock *sk)
{
	return push_has_records(ps) ||
	       !skb_queue_empty_lockless(&sk->sk_receive_queue) ||
	       !skb_queue_empty_lockless(&udp_sk(sk)->reader_queue) ||
	       READ_ONCE(sk->sk_err);
}

/* Waits until recv() may find something. 1: it may; 0: shut down; or an error. */
static int push_wait(struct push_sock *ps, struct sock *sk, long *timeo)
{
	DEFINE_WAIT_FUNC(wait, push_wake);
	int err = 1;

	prepare_to_wait_exclusive(sk_sleep(sk), &wait, TASK_INTERRUPTIBLE);
	/* Before all else: a head that lies makes the socket readable for ever. */
	if (signal_pending(current))
		err = sock_intr_errno(*timeo);
	else if (push_is_readable(ps, sk))
		;
	else if (READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN)
		err = 0;
	else
		*timeo = schedule_timeout(*timeo);
	finish_wait(sk_sleep(sk), &wait);
	return err;
}

/*
 * UDP's recv() never sleeps itself: what comes meanwhile may be pushed before
 * it is awake, and it would sleep on, or take what is newer.
 */
int push_recvmsg(struct sock *sk, struct msghdr *msg, size_t len,
		 int flags PUSH_NAME_PARAM)
{
	long timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	struct push_sock *ps = push_sk(sk);
	int err;

	if (flags & MSG_ERRQUEUE)
		return ps->base_prot->recvmsg(sk, msg, len, flags PUSH_NAME_ARG);
	for (;;) {
		err = push_recv_now(ps, sk, msg, len,
				    flags | MSG_DONTWAIT PUSH_NAME_ARG);
		if (err != -EAGAIN || !timeo)
			return err;
		err = push_wait(ps, sk, &timeo);
		if (err <= 0)
			return err;
		cond_resched();
	}
}

/* SIOCINQ, FIONREAD: the length of what recv() would give next. */
static bool push_next_len(struct push_sock *ps, int *len)
{
	bool some;

	spin_lock_bh(&ps->lock);
	push_sync_head(ps);
	some = ps->first != ps->next;
	if (some)
		*len = push_meta(ps, ps->first)->len;
	spin_unlock_bh(&ps->lock);
	return some;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
int push_ioctl(struct sock *sk, int cmd, int *arg)
{
	struct push_sock *ps = push_sk(sk);

	if (cmd == SIOCINQ && push_next_len(ps, arg))
		return 0;
	return ps->base_prot->ioctl(sk, cmd, arg);
}
#else
int push_ioctl(struct sock *sk, int cmd, unsigned long arg)
{
	struct push_sock *ps = push_sk(sk);
	int len;

	if (cmd == SIOCINQ && push_next_len(ps, &len))
		return put_user(len, (int __user *)arg);
	return ps->base_prot->ioctl(sk, cmd, arg);
}
#endif

/* IPV6_ADDRFORM would make the socket another family's, without us. */
int push_setsockopt(struct sock *sk, int level, int name, sockptr_t val,
		    unsigned int len)
{
	if (level == SOL_IPV6 && name == IPV6_ADDRFORM)
		return -EBUSY;
	return push_sk(sk)->base_prot->setsockopt(sk, level, name, val, len);
}

__poll_t push_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct push_sock *ps = push_sk(sock->sk);
	__poll_t mask = ps->base_ops->poll(file, sock, wait);

	/* After the wait queue: a push wakes who is in it. */
	if (push_has_records(ps))
		mask |= EPOLLIN | EPOLLRDNORM;
	return mask;
}

void push_close(struct sock *sk, long timeout)
{
	struct push_sock *ps = push_sk(sk);
	void (*base_close)(struct sock *sk, long timeout) = ps->base_prot->close;

	push_detach(sk, ps);
	spin_lock_bh(&ps->lock);
	ps->sk = NULL;
	WRITE_ONCE(ps->region->flags, PKT_PUSH_CLOSED);
	spin_unlock_bh(&ps->lock);
	if (ps->pinned)
		push_unpin(ps);
	push_put(ps);
	base_close(sk, timeout);
	/* The exit waits until whoever was here has left. */
	module_put(THIS_MODULE);
}
