/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the module and what they share.
 *
 *	main.c	 module, the socket's operations per address family
 *	device.c /dev/pkt_push: attaching, mapping, options
 *	sock.c	 what system calls on the socket do
 *	push.c	 the check point: threshold, filters, emptying the buffer
 *	ring.c	 shared memory, and the kernel's own account of it
 */
#ifndef _PKT_PUSH_H
#define _PKT_PUSH_H

#include <linux/atomic.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/refcount.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/udp.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <net/sock.h>
#include <net/udp.h>

#include <linux/pkt_push.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0) && \
	 LINUX_VERSION_CODE < KERNEL_VERSION(7, 2, 0)) || \
	LINUX_VERSION_CODE >= KERNEL_VERSION(7, 4, 0)
#error "pkt_push builds for Linux 6.1 to 6.12 and 7.2 to 7.3, not for this one: boot one of them, or do without it (freshwire-host push needs no module)"
#endif
#ifndef CONFIG_64BIT
#error "pkt_push needs a 64-bit kernel: positions have 64 bits"
#endif
#ifndef CONFIG_MMU
#error "pkt_push needs memory that can be mapped"
#endif

/* Network and transport headers that are kept of a datagram. */
#define PUSH_HEADER_BYTES	128
/* Datagrams of one push; the next arrival goes on. Bounds the softirq's time. */
#define PUSH_BATCH		1024
/* Payload bytes that a rebuilt datagram has in one piece. */
#define PUSH_LINEAR_BYTES	2048

/**
 * struct push_meta - what the kernel keeps of a record; the program cannot
 *		      change it
 * @start: position before the record and the padding before it
 * @at: position of the record
 * @end: position behind it
 * @cb: what IP and the socket noted in the packet
 * @header: network and transport header
 */
struct push_meta {
	u64		start;
	u64		at;
	u64		end;
	ktime_t		tstamp;
	ktime_t		hwtstamp;
	u32		len;
	u32		mark;
	u32		priority;
	int		iif;
	u16		gso_size;
	u16		gso_type;
	__be16		protocol;
	u8		network_bytes;
	u8		header_bytes;
	u8		pkt_type;
	u8		cb[sizeof_field(struct sk_buff, cb)];
	u8		header[PUSH_HEADER_BYTES];
};

/**
 * struct push_sock - one attached socket
 *
 * Held by the socket and by the device's file; freed an RCU grace period after
 * the last of them, because softirqs look at it without a reference.
 *
 * @lock: of everything below it, BH disabled
 * @turn: of those who call recv()
 * @sk: NULL once the socket is closed
 * @region: shared with the program; only @head and payload are read back
 * @tail: position behind the newest record
 * @seen: position of the oldest, as far as @head was believed
 * @first: number of the oldest record
 * @next: number of the record after the newest
 * @pinned: packet of a recv(), first of the buffer, which no push moves; changed
 *	by who has @turn, too
 * @frozen: a recv() looks at the buffer's first packet; nothing is pushed
 * @due: a push was skipped because of it
 * @threshold: read without lock by the check point
 */
struct push_sock {
	refcount_t		refs;
	const struct proto	*base_prot;
	const struct proto_ops	*base_ops;
	void			(*base_data_ready)(struct sock *sk);
	struct mutex		turn;
	struct mmpin		pin;
	void			*base;
	struct pkt_push_region	*region;
	u8			*data;
	u64			data_bytes;
	u64			total_bytes;
	struct push_meta	*meta;
	u32			records;
	struct rcu_work		free;

	spinlock_t		lock;
	struct sock		*sk;
	u64			tail;
	u64			seen;
	u64			first;
	u64			next;
	struct sk_buff		*pinned;
	bool			frozen;
	bool			due;
	u32			policy;
	u64			fixed;
	u64			threshold;
	u64			arrived_at;
	u32			truesize;
	struct pkt_push_stats	stats;
};

static inline struct push_meta *push_meta(const struct push_sock *ps, u64 number)
{
	return &ps->meta[number & (ps->records - 1)];
}

static inline void *push_at(const struct push_sock *ps, u64 position)
{
	return ps->data + (position & (ps->data_bytes - 1));
}

/* For those who need no certainty: what a recv() would find. */
static inline bool push_has_records(const struct push_sock *ps)
{
	return READ_ONCE(ps->region->head) != READ_ONCE(ps->tail);
}

/* Stays from attaching until close(), when nobody can call any more. */
static inline struct push_sock *push_sk(const struct sock *sk)
{
	return rcu_dereference_protected(sk->sk_user_data, 1);
}

/* main.c */
extern struct workqueue_struct *push_wq;
struct push_family;
int push_attach(struct sock *sk, struct push_sock *ps);
void push_detach(struct sock *sk, struct push_sock *ps);

/* device.c */
int push_device_register(void);
void push_device_unregister(void);

/* sock.c */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
int push_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, int flags);
#else
int push_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, int flags,
		 int *addr_len);
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
int push_ioctl(struct sock *sk, int cmd, int *arg);
#else
int push_ioctl(struct sock *sk, int cmd, unsigned long arg);
#endif
int push_setsockopt(struct sock *sk, int level, int name, sockptr_t val,
		    unsigned int len);
void push_close(struct sock *sk, long timeout);
__poll_t push_poll(struct file *file, struct socket *sock, poll_table *wait);

/* push.c */
void push_data_ready(struct sock *sk);
struct sk_buff *push_first(struct push_sock *ps, struct sock *sk);
void push_unlink(struct sock *sk, struct sk_buff *skb);
void push_count_drop(struct push_sock *ps, struct sock *sk);
u32 push_locked(struct push_sock *ps, struct sock *sk);
void push_update_threshold(struct push_sock *ps, const struct sock *sk);
void push_reset(struct push_sock *ps);

/* ring.c */
struct push_sock *push_create(const struct pkt_push_attach *attach);
void push_put(struct push_sock *ps);
int push_map(struct push_sock *ps, struct vm_area_struct *vma);
void push_sync_head(struct push_sock *ps);
bool push_room(struct push_sock *ps, u32 len, u64 *at);
void push_append(struct push_sock *ps, struct sk_buff *skb, u64 at, u64 now);
bool push_swap_head(struct push_sock *ps, u64 from, u64 to);
struct sk_buff *push_rebuild(struct push_sock *ps, const struct push_meta *meta);

#endif /* _PKT_PUSH_H */
