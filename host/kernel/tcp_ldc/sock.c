// SPDX-License-Identifier: GPL-2.0-only
/*
 * What system calls on the socket do. Where this says nothing the calls are
 * TCP's own.
 */
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/sockptr.h>

#include "tcp_ldc.h"

/* The memory, for those who do not hold the socket's lock. */
static struct ldc_memory *ldc_memory_of(const struct ldc_sock *ls)
{
	/* Pairs with the release in ldc_install(). */
	return smp_load_acquire(&ls->memory);
}

/* What a program does not give is zero; what we do not know has to be. */
static int ldc_copy_struct(void *to, size_t size, sockptr_t from, size_t len)
{
	int zero = 1;

	memset(to, 0, size);
	if (len > PAGE_SIZE)
		return -E2BIG;
	if (len > size)
		zero = check_zeroed_sockptr(from, size, len - size);
	if (zero <= 0)
		return zero ?: -E2BIG;
	return copy_from_sockptr(to, from, min(size, len)) ? -EFAULT : 0;
}

/*
 * Once there is a ring, bytes from elsewhere would come between two bytes of a
 * record, and could not be chosen late.
 */
static int ldc_refuse(struct sock *sk)
{
	return ldc_memory_of(ldc_sk(sk)) ? -EBUSY : 0;
}

int ldc_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)
{
	return ldc_refuse(sk) ?: ldc_sk(sk)->base_prot->sendmsg(sk, msg, size);
}

int ldc_sendmsg_locked(struct sock *sk, struct msghdr *msg, size_t size)
{
	return ldc_refuse(sk) ?:
	       ldc_sk(sk)->base_ops->sendmsg_locked(sk, msg, size);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
int ldc_sendpage(struct sock *sk, struct page *page, int offset, size_t size,
		 int flags)
{
	return ldc_refuse(sk) ?:
	       ldc_sk(sk)->base_prot->sendpage(sk, page, offset, size, flags);
}

int ldc_sendpage_locked(struct sock *sk, struct page *page, int offset,
			size_t size, int flags)
{
	return ldc_refuse(sk) ?:
	       ldc_sk(sk)->base_ops->sendpage_locked(sk, page, offset, size,
						     flags);
}
#endif

/* The horizon says how much may be unsent; TCP_NOTSENT_LOWAT does not. */
bool ldc_stream_memory_free(const struct sock *sk, int wake)
{
	const struct ldc_sock *ls = ldc_sk(sk);

	return ldc_memory_of(ls) ||
	       ls->base_prot->stream_memory_free(sk, wake);
}

/* connect() to nowhere would make the socket another connection's. */
int ldc_disconnect(struct sock *sk, int flags)
{
	return -EOPNOTSUPP;
}

/* Makes the memory the socket's. Socket's lock held. */
static int ldc_install(struct sock *sk, struct ldc_sock *ls,
		       struct ldc_memory *memory, struct file *file)
{
	int err;

	if (ls->memory)
		return -EEXIST;
	if (!((1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_CLOSE_WAIT)))
		return -ENOTCONN;
	if (sk->sk_shutdown & SEND_SHUTDOWN)
		return -EPIPE;
	if (tcp_sk(sk)->repair)
		return -EBUSY;
	err = ldc_fate_init(ls, &memory->layout);
	if (err)
		return err;

	ls->file = file;
	memory->sk = sk;
	ls->asleep = true;
	ls->fresh = true;
	ls->use_task_frag = ldc_swap_task_frag(sk, false);
	tcp_sk(sk)->nonagle |= TCP_NAGLE_OFF;
	write_lock_bh(&sk->sk_callback_lock);
	ls->base_write_space = sk->sk_write_space;
	ls->base_state_change = sk->sk_state_change;
	WRITE_ONCE(sk->sk_write_space, ldc_write_space);
	WRITE_ONCE(sk->sk_state_change, ldc_state_change);
	write_unlock_bh(&sk->sk_callback_lock);
	ldc_add(ls, mapped_bytes, memory->layout.total_bytes);
	/* Pairs with ldc_memory_of(). */
	smp_store_release(&ls->memory, memory);
	/* From here on TCP calls ldc_write_space() after each ACK. */
	set_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	return 0;
}

static int ldc_set_ring(struct sock *sk, sockptr_t val, unsigned int len)
{
	struct ldc_sock *ls = ldc_sk(sk);
	struct ldc_memory *memory;
	struct ldc_geometry geo;
	struct ldc_layout layout;
	struct file *file;
	int err;

	if (len < offsetofend(struct ldc_geometry, flags))
		return -EINVAL;
	err = ldc_copy_struct(&geo, sizeof(geo), val, len);
	if (!err)
		err = ldc_layout_init(&layout, &geo);
	if (err)
		return err;
	if (ldc_memory_of(ls))
		return -EEXIST;
	memory = ldc_memory_create(&layout);
	if (IS_ERR(memory))
		return PTR_ERR(memory);
	file = ldc_memory_file(memory);
	err = PTR_ERR_OR_ZERO(file);
	if (err)
		goto err_memory;

	lock_sock(sk);
	err = ldc_install(sk, ls, memory, file);
	release_sock(sk);
	if (!err)
		return 0;
	fput(file);
err_memory:
	ldc_memory_put(memory);
	return err;
}

static int ldc_set_word(struct sock *sk, int name, u32 word)
{
	struct ldc_sock *ls = ldc_sk(sk);
	int err = 0;

	lock_sock(sk);
	switch (name) {
	case LDC_HORIZON:
		if (word > 1)
			err = -EINVAL;
		else
			WRITE_ONCE(ls->horizon, word);
		break;
	case LDC_ZEROCOPY:
		if (word > 1)
			err = -EINVAL;
		else
			WRITE_ONCE(ls->zerocopy, word);
		break;
	case LDC_WATCH:
		if (word > LDC_MAX_WATCH)
			err = -EINVAL;
		else
			WRITE_ONCE(ls->watch, word);
		break;
	case LDC_KEEP_ACKS:
		if (ls->memory)
			err = -EEXIST;
		else if (word > LDC_MAX_KEEP_ACKS)
			err = -EINVAL;
		else
			WRITE_ONCE(ls->keep_acks, word);
		break;
	case LDC_LOWAT:
		if (!ls->memory)
			err = -ENXIO;
		else if (!word || word > ls->memory->layout.slots)
			err = -EINVAL;
		else
			WRITE_ONCE(ls->lowat, word);
		break;
	default:
		err = -ENOPROTOOPT;
	}
	release_sock(sk);
	return err;
}

static int ldc_set_option(struct sock *sk, int name, sockptr_t val,
			  unsigned int len)
{
	u32 word;

	switch (name) {
	case LDC_RING:
		return ldc_set_ring(sk, val, len);
	case LDC_HORIZON:
	case LDC_ZEROCOPY:
	case LDC_LOWAT:
	case LDC_WATCH:
	case LDC_KEEP_ACKS:
		if (len != sizeof(word))
			return -EINVAL;
		if (copy_from_sockptr(&word, val, sizeof(word)))
			return -EFAULT;
		return ldc_set_word(sk, name, word);
	default:
		return -ENOPROTOOPT;
	}
}

int ldc_setsockopt(struct sock *sk, int level, int name, sockptr_t val,
		   unsigned int len)
{
	if (level == SOL_LDC)
		return ldc_set_option(sk, name, val, len);
	/* Repair would take the ring's bytes for a restored queue's. */
	if (level == SOL_TCP && name == TCP_REPAIR && ldc_refuse(sk))
		return -EBUSY;
	return ldc_sk(sk)->base_prot->setsockopt(sk, level, name, val, len);
}

static int ldc_copy_out(char __user *val, int __user *lenp, const void *from,
			size_t size)
{
	int len;

	if (get_user(len, lenp))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	len = min_t(size_t, len, size);
	if (put_user(len, lenp) || copy_to_user(val, from, len))
		return -EFAULT;
	return 0;
}

static int ldc_get_ring(struct ldc_sock *ls, char __user *val, int __user *len)
{
	struct ldc_memory *memory = ldc_memory_of(ls);
	struct ldc_geometry geo = {};

	if (!memory)
		return -ENXIO;
	geo.slots = memory->layout.slots;
	geo.block_bytes = memory->layout.block_bytes;
	geo.blocks = memory->layout.blocks;
	geo.total_bytes = memory->layout.total_bytes;
	return ldc_copy_out(val, len, &geo, sizeof(geo));
}

static int ldc_get_stats(struct sock *sk, char __user *val, int __user *len)
{
	struct ldc_stats stats;

	lock_sock(sk);
	stats = ldc_sk(sk)->stats;
	release_sock(sk);
	return ldc_copy_out(val, len, &stats, sizeof(stats));
}

static int ldc_get_acks(struct sock *sk, char __user *val, int __user *lenp)
{
	struct ldc_sock *ls = ldc_sk(sk);
	int len, err = -ENXIO;

	if (get_user(len, lenp))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	lock_sock(sk);
	if (ls->memory)
		err = ldc_fate_read(ls, val, lenp, len);
	release_sock(sk);
	return err;
}

int ldc_getsockopt(struct sock *sk, int level, int name, char __user *val,
		   int __user *len)
{
	struct ldc_sock *ls = ldc_sk(sk);
	u32 word;

	if (level != SOL_LDC)
		return ls->base_prot->getsockopt(sk, level, name, val, len);
	switch (name) {
	case LDC_RING:
		return ldc_get_ring(ls, val, len);
	case LDC_STATS:
		return ldc_get_stats(sk, val, len);
	case LDC_ACKS:
		return ldc_get_acks(sk, val, len);
	case LDC_HORIZON:
		word = READ_ONCE(ls->horizon);
		break;
	case LDC_ZEROCOPY:
		word = READ_ONCE(ls->zerocopy);
		break;
	case LDC_LOWAT:
		word = READ_ONCE(ls->lowat);
		break;
	case LDC_WATCH:
		word = READ_ONCE(ls->watch);
		break;
	case LDC_KEEP_ACKS:
		word = READ_ONCE(ls->keep_acks);
		break;
	default:
		return -ENOPROTOOPT;
	}
	return ldc_copy_out(val, len, &word, sizeof(word));
}

static int ldc_ioctl_notify(struct sock *sk)
{
	struct ldc_sock *ls = ldc_sk(sk);
	int err = 0;

	lock_sock(sk);
	if (!ls->memory) {
		err = -ENXIO;
	} else if (ls->ended) {
		err = -EPIPE;
	} else {
		ldc_inc(ls, notifies);
		ldc_notify(sk, ls);
	}
	release_sock(sk);
	return err;
}

int ldc_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg)
{
	if (cmd == LDC_IOC_NOTIFY)
		return ldc_ioctl_notify(sock->sk);
	return ldc_sk(sock->sk)->base_ops->ioctl(sock, cmd, arg);
}

#ifdef CONFIG_COMPAT
int ldc_compat_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg)
{
	if (cmd == LDC_IOC_NOTIFY)
		return ldc_ioctl_notify(sock->sk);
	return ldc_sk(sock->sk)->base_ops->compat_ioctl(sock, cmd, arg);
}
#endif

/*
 * A mapping for writing is that of the ring, one for reading that of TCP's
 * zero-copy receive. The mm's lock is held, so the socket's must not be taken.
 */
int ldc_mmap(struct file *file, struct socket *sock, struct vm_area_struct *vma)
{
	struct ldc_sock *ls = ldc_sk(sock->sk);
	struct ldc_memory *memory = ldc_memory_of(ls);

	if (!memory || !(vma->vm_flags & VM_WRITE))
		return ls->base_ops->mmap(file, sock, vma);
	return ldc_memory_map(memory, ls->file, vma);
}

/* POLLOUT: so many slots are free that the program cares (LDC_LOWAT). */
__poll_t ldc_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct sock *sk = sock->sk;
	struct ldc_sock *ls = ldc_sk(sk);
	struct ldc_memory *memory = ldc_memory_of(ls);
	__poll_t mask = ls->base_ops->poll(file, sock, wait);
	u64 tail;

	if (!memory || READ_ONCE(ls->ended))
		return mask;
	/* A program may die between clearing the flag and notifying. R-ROLE-7 */
	if (READ_ONCE(ls->asleep) && ldc_ring_called(ls))
		mod_delayed_work(ldc_wq, &ls->work, 0);
	mask &= ~(EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	tail = READ_ONCE(ls->tail);
	if (ldc_ring_space(memory, &tail) < READ_ONCE(ls->lowat)) {
		WRITE_ONCE(ls->want_space, true);
		/* Pairs with the swap that ends a record: look again after it. */
		smp_mb();
		if (ldc_ring_space(memory, &tail) < READ_ONCE(ls->lowat))
			return mask;
	}
	return mask | EPOLLOUT | EPOLLWRNORM;
}

/* SHUT_WR finishes a begun record before the FIN; what is ready is dropped. */
int ldc_shutdown(struct socket *sock, int how)
{
	struct sock *sk = sock->sk;
	struct ldc_sock *ls = ldc_sk(sk);
	int err = 0;

	if (how == SHUT_WR || how == SHUT_RDWR) {
		lock_sock(sk);
		if (ls->memory && !ls->ended) {
			err = ldc_finish_begun(sk, ls);
			if (!err)
				ldc_stop(ls, LDC_REASON_CLOSED);
		}
		release_sock(sk);
	}
	return err ?: ls->base_ops->shutdown(sock, how);
}

/* Ends the ring for close(). Socket's lock held. */
static void ldc_close_ring(struct sock *sk, struct ldc_sock *ls)
{
	struct ldc_memory *memory = ls->memory;
	bool reset = sock_flag(sk, SOCK_LINGER) && !sk->sk_lingertime;

	if (!reset && ldc_finish_begun(sk, ls)) {
		/* Half a record must not look like a regular end. */
		sk->sk_lingertime = 0;
		sock_set_flag(sk, SOCK_LINGER);
		reset = true;
	}
	ldc_stop(ls, reset ? LDC_REASON_CONNECTION_LOST : LDC_REASON_CLOSED);
	ldc_fate_free(ls);
	spin_lock_irq(&memory->lock);
	memory->sk = NULL;
	spin_unlock_irq(&memory->lock);
}

void ldc_close(struct sock *sk, long timeout)
{
	struct ldc_sock *ls = ldc_sk(sk);
	void (*base_close)(struct sock *sk, long timeout) = ls->base_prot->close;

	lock_sock(sk);
	if (ls->memory)
		ldc_close_ring(sk, ls);
	ldc_restore(sk, ls);
	release_sock(sk);
	/* Nobody starts it any more, so this is its end. */
	cancel_delayed_work_sync(&ls->work);
	if (ls->memory) {
		fput(ls->file);
		ldc_memory_put(ls->memory);
	}
	kvfree(ls->late);
	kfree(ls);
	base_close(sk, timeout);
}
