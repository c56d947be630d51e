/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the module and what they share. Rules cited as R-... are those of
 * spec/ring.md.
 *
 *	main.c	 module, upper-layer protocol, operations per address family
 *	sock.c	 what system calls on the socket do
 *	region.c shared memory: allocation, accounting, mapping
 *	ring.c	 words in shared memory: look, take, end, sleep, close
 *	pull.c	 how much TCP can take now, and handing it over
 *	fate.c	 what became of records that were handed over; zero copy
 */
#ifndef _TCP_LDC_H
#define _TCP_LDC_H

#include <linux/atomic.h>
#include <linux/mm_types.h>
#include <linux/refcount.h>
#include <linux/skbuff.h>
#include <linux/uio.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <net/inet_connection_sock.h>
#include <net/sock.h>
#include <net/tcp.h>

#include <linux/tcp_ldc.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0) && \
	 LINUX_VERSION_CODE < KERNEL_VERSION(7, 2, 0)) || \
	LINUX_VERSION_CODE >= KERNEL_VERSION(7, 4, 0)
#error "tcp_ldc builds for Linux 6.1 to 6.12 and 7.2 to 7.3, not for this one: boot one of them, or do without it (plain TCP needs no module: --carrier tcp)"
#endif
#ifndef CONFIG_64BIT
#error "tcp_ldc needs a 64-bit kernel: the ring's words have 64 bits"
#endif
#ifndef CONFIG_MMU
#error "tcp_ldc needs memory that can be mapped"
#endif

/* Records that one hand-over may gather, and pieces of memory they lie in. */
#define LDC_BATCH		64
#define LDC_PIECES		128
/* Records shorter than this are copied even with zero copy. */
#define LDC_ZEROCOPY_MIN	4096

struct ldc_net;
struct ldc_sock;

/**
 * struct ldc_layout - private, checked copy of the sizes (R-ATTACH-4)
 */
struct ldc_layout {
	u32	slots;
	u32	shift;
	u32	block_bytes;
	u32	block_stride;
	u32	blocks;
	u64	slots_offset;
	u64	arena_offset;
	u64	total_bytes;
};

/**
 * struct ldc_memory - the shared memory
 *
 * Held by the socket, by the mapping's file, and by each record that TCP still
 * refers to. It outlives the socket if it has to.
 *
 * @lock: of @sk, which is NULL once the socket is closed
 */
struct ldc_memory {
	refcount_t		refs;
	struct ldc_layout	layout;
	struct mmpin		pin;
	void			*base;
	struct ldc_ring		*head;
	struct ldc_slot		*slots;
	struct work_struct	free;
	spinlock_t		lock;	/* of sk */
	struct sock		*sk;
};

/**
 * struct ldc_zc - one record whose pages TCP refers to
 *
 * The record ends when the last reference of @ubuf is gone, whoever drops it.
 * @lock orders that end, which may come from any context, with the
 * acknowledgement, which comes under the socket's lock.
 */
struct ldc_zc {
	struct ubuf_info	ubuf;
	refcount_t		refs;
	spinlock_t		lock;	/* of what follows */
	struct ldc_memory	*memory;
	u64			index;
	u64			word;
	u64			acked_at;
	u8			state;
	u8			reason;
	bool			done;
	bool			final;
};

/**
 * struct ldc_record - private copy of a taken record's descriptor (R-TRUST-1)
 * @word: its state word, taken
 * @ready: the state word under which it was ready
 * @off: payload bytes handed over so far
 * @plan: payload bytes that the present hand-over is to take
 * @end_seq: TCP's sequence number after its last byte
 * @horizon: bytes before it that are not on the wire after its hand-over
 * @committed_at: when its first byte was handed over; 0: none was
 * @zc: not NULL: TCP refers to its pages
 */
struct ldc_record {
	u64		index;
	u64		word;
	u64		ready;
	u64		user_seq;
	u64		deadline;
	u32		len;
	u32		span;
	u32		off;
	u32		plan;
	u32		end_seq;
	u32		horizon;
	u64		committed_at;
	struct ldc_zc	*zc;
};

/**
 * struct ldc_unacked - a record that waits for its acknowledgement
 */
struct ldc_unacked {
	u64		index;
	u32		end_seq;
	struct ldc_zc	*zc;
};

/**
 * struct ldc_sock - one socket's sender; all of it under the socket's lock,
 *		     except where said otherwise
 * @memory: NULL before LDC_RING; set once, read without lock by poll and mmap
 * @next: below it nothing is left to take: private kern_i
 * @scan: below it everything was looked at since @seen_changes
 * @tail: below it every record is over; read without lock by poll
 * @budget: slots that this pull may still look at
 * @watch: milliseconds after which an empty ring is looked at again; 0: sleep
 * @taken_at: when something was last handed over, in jiffies
 * @keep_acks: entries of @late, a copy of LDC_KEEP_ACKS
 * @current_rec: the record that was begun, if @begun
 * @ended: nothing is taken any more
 * @pulling: guards against coming back by TCP's own calls of sk_write_space
 * @asleep: LDC_KERN_SLEEPS was set and the ring was found empty after it
 * @fresh: nothing has been handed over since it slept or watched
 * @want_space: poll found no space; read and written without lock
 * @freed: slots whose records ended since writers were last woken
 * @tells: LDC_KERN_TELLS is set
 * @unacked: records that wait for their acknowledgement, in the stream's order
 * @late: acknowledgements of records whose slots were used again, to be read
 */
struct ldc_sock {
	const struct proto	*base_prot;
	const struct proto_ops	*base_ops;
	void			(*base_write_space)(struct sock *sk);
	void			(*base_state_change)(struct sock *sk);
	struct sock		*sk;
	struct ldc_net		*net;
	struct ldc_stats __percpu *net_stats;
	struct ldc_memory	*memory;
	struct file		*file;

	u64			next;
	u64			scan;
	u64			tail;
	u64			seen_user;
	u64			seen_changes;
	u32			budget;
	u32			freed;

	u32			horizon;
	u32			lowat;
	u32			watch;
	u32			keep_acks;
	unsigned long		taken_at;
	bool			zerocopy;
	bool			begun;
	bool			ended;
	bool			tells;
	bool			pulling;
	bool			asleep;
	bool			fresh;
	bool			want_space;
	bool			use_task_frag;

	struct ldc_record	current_rec;
	struct ldc_unacked	*unacked;
	u32			unacked_mask;
	u32			unacked_head;
	u32			unacked_count;
	struct ldc_ack		*late;
	u32			late_head;
	u32			late_count;

	struct ldc_stats	stats;
	struct delayed_work	work;

	struct ldc_record	batch[LDC_BATCH];
	union {
		struct kvec	kvec[LDC_PIECES];
		struct bio_vec	bvec[LDC_PIECES];
	};
	u32			records;
	u32			pieces;
};

/*
 * A softirq must not write into the fragment of the task that it interrupts.
 * Linux 6.1 looks at sk_allocation; later kernels at this flag.
 */
static inline bool ldc_swap_task_frag(struct sock *sk, bool use)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	swap(sk->sk_use_task_frag, use);
#endif
	return use;
}

/* The part of a socket's statistics that its network namespace sums up. */
#define ldc_add(ls, field, n)						\
	do {								\
		u64 __n = (n);						\
		(ls)->stats.field += __n;				\
		this_cpu_add((ls)->net_stats->field, __n);		\
	} while (0)
#define ldc_inc(ls, field)	ldc_add(ls, field, 1)

static inline struct ldc_sock *ldc_sk(const struct sock *sk)
{
	/* Stays from attaching until close, when nobody can call any more. */
	return (__force struct ldc_sock *)inet_csk(sk)->icsk_ulp_data;
}

static inline u64 ldc_word_state(u64 word)
{
	return word & LDC_STATE_MASK;
}

static inline u32 ldc_word_arg(u64 word)
{
	return (word & LDC_ARG_MASK) >> LDC_ARG_SHIFT;
}

/* The same lap and edit count in another state. */
static inline u64 ldc_word_to(u64 word, u64 state, u64 arg)
{
	return (word & ~(LDC_STATE_MASK | LDC_ARG_MASK)) |
	       (arg << LDC_ARG_SHIFT) | state;
}

static inline struct ldc_slot *ldc_slot(const struct ldc_memory *memory,
					u64 index)
{
	return &memory->slots[index & (memory->layout.slots - 1)];
}

/* How far a state word is ahead of the lap in which index uses its slot. */
static inline s32 ldc_lap_ahead(const struct ldc_memory *memory, u64 index,
				u64 word)
{
	return (s32)((u32)(word >> LDC_LAP_SHIFT) -
		     (u32)(index >> memory->layout.shift));
}

/* A time as the ring has it: 0 means never. */
static inline u64 ldc_now(void)
{
	return max_t(u64, ktime_get_ns(), 1);
}

/* main.c */
extern struct workqueue_struct *ldc_wq;
void ldc_restore(struct sock *sk, struct ldc_sock *ls);

/* sock.c */
int ldc_sendmsg(struct sock *sk, struct msghdr *msg, size_t size);
int ldc_setsockopt(struct sock *sk, int level, int name, sockptr_t val,
		   unsigned int len);
int ldc_getsockopt(struct sock *sk, int level, int name, char __user *val,
		   int __user *len);
bool ldc_stream_memory_free(const struct sock *sk, int wake);
int ldc_disconnect(struct sock *sk, int flags);
void ldc_close(struct sock *sk, long timeout);
int ldc_shutdown(struct socket *sock, int how);
int ldc_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg);
#ifdef CONFIG_COMPAT
int ldc_compat_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg);
#endif
int ldc_mmap(struct file *file, struct socket *sock,
	     struct vm_area_struct *vma);
__poll_t ldc_poll(struct file *file, struct socket *sock, poll_table *wait);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
int ldc_sendpage(struct sock *sk, struct page *page, int offset, size_t size,
		 int flags);
int ldc_sendpage_locked(struct sock *sk, struct page *page, int offset,
			size_t size, int flags);
#endif
int ldc_sendmsg_locked(struct sock *sk, struct msghdr *msg, size_t size);

/* region.c */
int ldc_layout_init(struct ldc_layout *layout, const struct ldc_geometry *geo);
struct ldc_memory *ldc_memory_create(const struct ldc_layout *layout);
void ldc_memory_hold(struct ldc_memory *memory);
void ldc_memory_put(struct ldc_memory *memory);
struct file *ldc_memory_file(struct ldc_memory *memory);
int ldc_memory_map(struct ldc_memory *memory, struct file *file,
		   struct vm_area_struct *vma);
void ldc_memory_wake(struct ldc_memory *memory);
void ldc_memory_wait(void);
u64 ldc_memory_bytes(void);

/* ring.c */
int ldc_ring_take(struct ldc_sock *ls, u64 now, struct ldc_record *rec);
void ldc_ring_put_back(struct ldc_sock *ls, const struct ldc_record *rec);
u32 ldc_ring_block(struct ldc_sock *ls, const struct ldc_record *rec, u32 part);
bool ldc_ring_end(const struct ldc_memory *memory, u64 index, u64 word,
		  u64 state, u64 arg, u64 now);
void ldc_ring_advance(struct ldc_sock *ls);
bool ldc_ring_sleep(struct ldc_sock *ls);
void ldc_ring_awake(struct ldc_sock *ls);
bool ldc_ring_called(const struct ldc_sock *ls);
void ldc_ring_close(struct ldc_sock *ls, u8 reason);
u32 ldc_ring_space(const struct ldc_memory *memory, u64 *tail);

/* pull.c */
void ldc_write_space(struct sock *sk);
void ldc_state_change(struct sock *sk);
void ldc_pull_work(struct work_struct *work);
int ldc_finish_begun(struct sock *sk, struct ldc_sock *ls);
void ldc_stop(struct ldc_sock *ls, u8 reason);
void ldc_notify(struct sock *sk, struct ldc_sock *ls);

/* fate.c */
int ldc_fate_init(struct ldc_sock *ls, const struct ldc_layout *layout);
void ldc_fate_begun(struct ldc_sock *ls, const struct ldc_record *rec);
void ldc_fate_sent(struct ldc_sock *ls, struct ldc_record *rec, u64 now);
void ldc_fate_dropped(struct ldc_sock *ls, struct ldc_record *rec, u8 reason,
		      u64 now);
void ldc_fate_acked(struct ldc_sock *ls);
void ldc_fate_tells(struct ldc_sock *ls);
int ldc_fate_read(struct ldc_sock *ls, char __user *val, int __user *lenp,
		  int len);
void ldc_fate_free(struct ldc_sock *ls);
struct ldc_zc *ldc_zc_alloc(struct ldc_sock *ls, const struct ldc_record *rec);
void ldc_zc_cancel(struct ldc_zc *zc);

#endif /* _TCP_LDC_H */
