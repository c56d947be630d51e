// SPDX-License-Identifier: GPL-2.0-only
/*
 * What system calls on an attached socket do. Where this says nothing the calls
 * are UDP's own; recv() is, too, with the oldest record of the ring put back
 * into the buffer as the packet that it was. So names, control messages,
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
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
#define PUSH_NAME_PARAM
#define PUSH_NAME_ARG
#else
#define PUSH_NAME_PARAM	, int *addr_len
#define PUSH_NAME_ARG	, addr_len
#endif

/* How often a packet is offered to UDP while errors of the socket come. */
#define PUSH_OFFERS	8

/*
 * From here on nothing is pushed. Returns whether something is in the ring, or
 * another program is taking from there: then it takes turns.
 */
static bool push_enter(struct push_sock *ps)
{
	bool alone;

	spin_lock_bh(&ps->lock);
	ps->readers++;
	alone = ps->alone || push_has_records(ps);
	ps->alone += alone;
	spin_unlock_bh(&ps->lock);
	return alone;
}

static void push_leave(struct push_sock *ps, struct sock *sk, bool alone)
{
	spin_lock_bh(&ps->lock);
	ps->readers--;
	ps->alone -= alone;
	if (ps->due && !ps->readers)
		push_locked(ps, sk);
	spin_unlock_bh(&ps->lock);
}

/* Puts a packet before all others, with UDP's own books. */
static void push_inject(struct sock *sk, struct sk_buff *skb)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;

	skb_get(skb);
	spin_lock_bh(&queue->lock);
	spin_lock(&sk->sk_receive_queue.lock);
	/* For the time of one call; the buffer may be full. */
	sk_mem_charge(sk, skb->truesize);
	atomic_add(skb->truesize, &sk->sk_rmem_alloc);
	spin_unlock(&sk->sk_receive_queue.lock);
	__skb_queue_head(queue, skb);
	spin_unlock_bh(&queue->lock);
}

/* Takes it back, if it is still there. */
static bool push_withdraw(struct sock *sk, struct sk_buff *skb)
{
	struct sk_buff_head *queue = &udp_sk(sk)->reader_queue;
	bool there;

	spin_lock_bh(&queue->lock);
	there = skb_peek(queue) == skb;
	if (there) {
		__skb_unlink(skb, queue);
		spin_lock(&sk->sk_receive_queue.lock);
		sk_mem_uncharge(sk, skb->truesize);
		atomic_sub(skb->truesize, &sk->sk_rmem_alloc);
		spin_unlock(&sk->sk_receive_queue.lock);
	}
	spin_unlock_bh(&queue->lock);
	if (there)
		consume_skb(skb);
	return there;
}

/* The oldest record's account, if there is one. */
static bool push_oldest(struct push_sock *ps, struct push_meta *meta)
{
	bool some;

	spin_lock_bh(&ps->lock);
	push_sync_head(ps);
	some = ps->first != ps->next;
	if (some)
		*meta = *push_meta(ps, ps->first);
	spin_unlock_bh(&ps->lock);
	return some;
}

/* The packet was offered in vain: the record is the oldest again. */
static void push_give_back(struct push_sock *ps, const struct push_meta *meta)
{
	bool back;

	spin_lock_bh(&ps->lock);
	/* Unless the account has forgotten it, or the program took what follows. */
	back = ps->seen == meta->start &&
	       push_swap_head(ps, meta->end, meta->start);
	if (!back)
		ps->stats.lost++;
	else if (ps->stats.returned)
		ps->stats.returned--;
	spin_unlock_bh(&ps->lock);
}

/* UDP's recv() on the packet @skb, which is claimed unless it is only looked at. */
static int push_offer(struct push_sock *ps, struct sock *sk, struct sk_buff *skb,
		      const struct push_meta *meta, struct msghdr *msg,
		      size_t len, int flags PUSH_NAME_PARAM)
{
	int offers, err, error = 0;

	for (offers = 0; offers < PUSH_OFFERS; offers++) {
		push_inject(sk, skb);
		err = ps->base_prot->recvmsg(sk, msg, len, flags PUSH_NAME_ARG);
		if (!push_withdraw(sk, skb)) {
			/* An error that came before it is told next time. */
			if (error)
				cmpxchg(&sk->sk_err, 0, -error);
			return err;
		}
		if (flags & MSG_PEEK)
			return err;
		error = err < 0 ? err : 0;
	}
	push_give_back(ps, meta);
	return error ?: -EAGAIN;
}

/* recv() while something may be in the ring. ps->turn held. */
static int push_recv_turn(struct push_sock *ps, struct sock *sk,
			  struct msghdr *msg, size_t len,
			  int flags PUSH_NAME_PARAM)
{
	struct push_meta meta;
	struct sk_buff *skb;
	int err;

	while (!READ_ONCE(sk->sk_err) && push_oldest(ps, &meta)) {
		skb = push_rebuild(ps, &meta);
		if (!skb)
			return -ENOMEM;
		/* The program itself may have taken it meanwhile. */
		if (!(flags & MSG_PEEK)) {
			if (!push_swap_head(ps, meta.start, meta.end)) {
				kfree_skb(skb);
				cond_resched();
				continue;
			}
			spin_lock_bh(&ps->lock);
			ps->stats.returned++;
			spin_unlock_bh(&ps->lock);
		}
		err = push_offer(ps, sk, skb, &meta, msg, len,
				 flags PUSH_NAME_ARG);
		consume_skb(skb);
		return err;
	}
	return ps->base_prot->recvmsg(sk, msg, len, flags PUSH_NAME_ARG);
}

static int push_recv_now(struct push_sock *ps, struct sock *sk,
			 struct msghdr *msg, size_t len,
			 int flags PUSH_NAME_PARAM)
{
	bool alone = push_enter(ps);
	int err;

	if (!alone) {
		err = ps->base_prot->recvmsg(sk, msg, len, flags PUSH_NAME_ARG);
	} else if (mutex_lock_interruptible(&ps->turn)) {
		err = -ERESTARTSYS;
	} else {
		err = push_recv_turn(ps, sk, msg, len, flags PUSH_NAME_ARG);
		mutex_unlock(&ps->turn);
	}
	push_leave(ps, sk, alone);
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
	if (push_is_readable(ps, sk))
		;
	else if (READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN)
		err = 0;
	else if (signal_pending(current))
		err = sock_intr_errno(*timeo);
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
	push_put(ps);
	base_close(sk, timeout);
	/* The exit waits until whoever was here has left. */
	module_put(THIS_MODULE);
}
