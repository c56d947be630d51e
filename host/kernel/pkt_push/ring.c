// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shared memory, and the kernel's own account of what is in it. The program
 * may write anything anywhere; believed is only a @head that is the end of a
 * record which the account has.
 */
#include <linux/if_ether.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <net/dsfield.h>
#include <net/ipv6.h>

#include "pkt_push.h"

static_assert(sizeof(struct pkt_push_region) == 192);
static_assert(offsetof(struct pkt_push_region, tail) == 64);
static_assert(offsetof(struct pkt_push_region, head) == 128);
static_assert(sizeof(struct pkt_push_record) == PKT_PUSH_ALIGN);
static_assert(sizeof(struct pkt_push_attach) == 32);
/* What the UAPI header says of the memory beside the ring. */
static_assert(sizeof(struct push_meta) <= 256);

static int push_geometry(struct push_sock *ps, const struct pkt_push_attach *attach)
{
	u64 records = attach->records;

	if (attach->flags || attach->reserved || attach->total_bytes)
		return -EINVAL;
	if (attach->data_bytes < PKT_PUSH_MIN_BYTES ||
	    attach->data_bytes > PKT_PUSH_MAX_BYTES ||
	    !is_power_of_2(attach->data_bytes))
		return -EINVAL;
	if (!records)
		records = min_t(u64, attach->data_bytes / 512,
				PKT_PUSH_MAX_RECORDS);
	if (records < PKT_PUSH_MIN_RECORDS || records > PKT_PUSH_MAX_RECORDS)
		return -EINVAL;
	ps->records = roundup_pow_of_two(records);
	ps->data_bytes = attach->data_bytes;
	ps->total_bytes = PAGE_ALIGN(PKT_PUSH_DATA_OFFSET + attach->data_bytes);
	return 0;
}

static void push_format(struct push_sock *ps)
{
	ps->region = ps->base;
	ps->data = ps->base + PKT_PUSH_DATA_OFFSET;
	ps->region->version = PKT_PUSH_VERSION;
	ps->region->data_offset = PKT_PUSH_DATA_OFFSET;
	ps->region->data_bytes = ps->data_bytes;
	ps->region->total_bytes = ps->total_bytes;
	ps->region->magic = PKT_PUSH_REGION_MAGIC;
	ps->stats.mapped_bytes = ps->total_bytes;
}

static void push_free(struct work_struct *work)
{
	struct push_sock *ps = container_of(to_rcu_work(work), struct push_sock,
					    free);

	vfree(ps->base);
	kvfree(ps->meta);
	mm_unaccount_pinned_pages(&ps->pin);
	kfree(ps);
}

void push_put(struct push_sock *ps)
{
	if (refcount_dec_and_test(&ps->refs))
		queue_rcu_work(push_wq, &ps->free);
}

/* Returns one with one reference, attached to nothing. */
struct push_sock *push_create(const struct pkt_push_attach *attach)
{
	struct push_sock *ps = kzalloc(sizeof(*ps), GFP_KERNEL_ACCOUNT);
	int err;

	if (!ps)
		return ERR_PTR(-ENOMEM);
	err = push_geometry(ps, attach);
	if (err)
		goto err_free;
	/* The same books as MSG_ZEROCOPY, AF_XDP and io_uring have. */
	err = mm_account_pinned_pages(&ps->pin, ps->total_bytes +
				      PAGE_ALIGN((u64)ps->records *
						 sizeof(struct push_meta)));
	if (err)
		goto err_free;
	err = -ENOMEM;
	ps->meta = kvcalloc(ps->records, sizeof(struct push_meta),
			    GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	ps->base = __vmalloc(ps->total_bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO |
			     __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!ps->meta || !ps->base)
		goto err_account;

	refcount_set(&ps->refs, 1);
	INIT_RCU_WORK(&ps->free, push_free);
	spin_lock_init(&ps->lock);
	mutex_init(&ps->turn);
	ps->fixed = PKT_PUSH_ADAPTIVE;
	push_format(ps);
	return ps;

err_account:
	vfree(ps->base);
	kvfree(ps->meta);
	mm_unaccount_pinned_pages(&ps->pin);
err_free:
	kfree(ps);
	return ERR_PTR(err);
}

static void push_vma_set_flags(struct vm_area_struct *vma)
{
	const unsigned long set = VM_DONTEXPAND | VM_DONTDUMP;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, VM_MAYEXEC);
#else
	vma->vm_flags |= set;
	vma->vm_flags &= ~VM_MAYEXEC;
#endif
}

/* Maps all of the memory. Called by mmap() with the mm's lock for writing. */
int push_map(struct push_sock *ps, struct vm_area_struct *vma)
{
	unsigned long addr = vma->vm_start;
	void *from = ps->base;
	int err;

	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != ps->total_bytes)
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;

	push_vma_set_flags(vma);
	for (; addr < vma->vm_end; addr += PAGE_SIZE, from += PAGE_SIZE) {
		err = vm_insert_page(vma, addr, vmalloc_to_page(from));
		if (err)
			return err;
	}
	return 0;
}

bool push_swap_head(struct push_sock *ps, u64 from, u64 to)
{
	return cmpxchg(&ps->region->head, from, to) == from;
}

/* Forgets what was taken since. ps->lock held. */
void push_sync_head(struct push_sock *ps)
{
	/* Pairs with the taker's swap: its copy is done. */
	u64 head = smp_load_acquire(&ps->region->head);

	while (ps->first != ps->next &&
	       (s64)(head - push_meta(ps, ps->first)->end) >= 0)
		ps->seen = push_meta(ps, ps->first++)->end;
	if (likely(head == ps->seen))
		return;
	ps->stats.bad_heads++;
	push_swap_head(ps, head, ps->seen);
}

static void push_evict(struct push_sock *ps)
{
	u64 end = push_meta(ps, ps->first)->end;

	if (push_swap_head(ps, ps->seen, end))
		ps->stats.evicted++;
	push_sync_head(ps);
}

static u64 push_span(u32 len)
{
	return ALIGN(sizeof(struct pkt_push_record) + (u64)len, PKT_PUSH_ALIGN);
}

/* Where a record of so many bytes would begin, and whether it is free there. */
static bool push_place(const struct push_sock *ps, u64 span, u64 *at)
{
	u64 rest = ps->data_bytes - (ps->tail & (ps->data_bytes - 1));

	*at = rest < span ? ps->tail + rest : ps->tail;
	return *at + span - ps->seen <= ps->data_bytes &&
	       ps->next - ps->first < ps->records;
}

/*
 * Finds room for a record of @len payload bytes. ps->lock held. A program that
 * writes nonsense into @head while this runs is asked no more often than there
 * are records.
 */
bool push_room(struct push_sock *ps, u32 len, u64 *at)
{
	u64 span = push_span(len);
	u32 turns = ps->records;

	if (push_place(ps, span, at))
		return true;
	push_sync_head(ps);
	while (!push_place(ps, span, at)) {
		if (ps->policy != PKT_PUSH_OLDEST || ps->first == ps->next ||
		    !turns--)
			return false;
		push_evict(ps);
	}
	return true;
}

static void push_keep(struct push_meta *meta, struct sk_buff *skb)
{
	meta->len = skb->len;
	meta->tstamp = skb->tstamp;
	meta->hwtstamp = skb_hwtstamps(skb)->hwtstamp;
	meta->mark = skb->mark;
	meta->priority = skb->priority;
	meta->iif = skb->skb_iif;
	meta->gso_size = skb_shinfo(skb)->gso_size;
	meta->gso_type = skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4 ? 1 : 0;
	meta->protocol = skb->protocol;
	meta->pkt_type = skb->pkt_type;
	meta->network_bytes = skb_transport_header(skb) - skb_network_header(skb);
	meta->header_bytes = skb->data - skb_network_header(skb);
	memcpy(meta->cb, skb->cb, sizeof(meta->cb));
	memcpy(meta->header, skb_network_header(skb), meta->header_bytes);
}

/* The sender, as recvfrom() of this socket would give it. */
static void push_address(struct pkt_push_record *record, const struct sock *sk,
			 struct sk_buff *skb)
{
	record->family = sk->sk_family;
	record->port = udp_hdr(skb)->source;
	if (skb->protocol == htons(ETH_P_IP)) {
		record->tos = ip_hdr(skb)->tos;
		if (sk->sk_family == AF_INET)
			memcpy(record->addr, &ip_hdr(skb)->saddr, 4);
		else
			ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr,
					       (struct in6_addr *)record->addr);
		return;
	}
	record->tos = ipv6_get_dsfield(ipv6_hdr(skb));
	record->scope = ipv6_iface_scope_id(&ipv6_hdr(skb)->saddr,
					    inet6_iif(skb));
	memcpy(record->addr, &ipv6_hdr(skb)->saddr, 16);
}

/* Copies a datagram to where push_room() has found room. ps->lock held. */
void push_append(struct push_sock *ps, struct sk_buff *skb, u64 at, u64 now)
{
	struct pkt_push_record *record = push_at(ps, at);
	struct push_meta *meta = push_meta(ps, ps->next);

	push_keep(meta, skb);
	meta->start = ps->tail;
	meta->at = at;
	meta->end = at + push_span(skb->len);
	if (at != ps->tail)
		((struct pkt_push_record *)push_at(ps, ps->tail))->flags =
			PKT_PUSH_PAD;

	memset(record, 0, sizeof(*record));
	record->len = skb->len;
	record->segment = meta->gso_type ? meta->gso_size : 0;
	record->drops = SOCK_SKB_CB(skb)->dropcount;
	record->pushed_at = now;
	record->stamp = ktime_to_ns(skb->tstamp);
	push_address(record, ps->sk, skb);
	/* Cannot fail: so many bytes are in the packet. */
	WARN_ON_ONCE(skb_copy_bits(skb, 0, record + 1, skb->len));

	ps->next++;
	WRITE_ONCE(ps->tail, meta->end);
	/* Pairs with the taker's load: the record is there before it. */
	smp_store_release(&ps->region->tail, meta->end);
}

static void push_restore_header(struct sk_buff *skb, const struct push_meta *meta)
{
	skb_put_data(skb, meta->header, meta->header_bytes);
	skb_reset_mac_header(skb);
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, meta->network_bytes);
	__skb_pull(skb, meta->header_bytes);
	memcpy(skb->cb, meta->cb, sizeof(meta->cb));
	skb->tstamp = meta->tstamp;
	skb_hwtstamps(skb)->hwtstamp = meta->hwtstamp;
	skb->mark = meta->mark;
	skb->priority = meta->priority;
	skb->skb_iif = meta->iif;
	skb->protocol = meta->protocol;
	skb->pkt_type = meta->pkt_type;
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	/* Or a look at an empty one would replace it by a copy. */
	skb->peeked = 1;
	if (meta->gso_size) {
		skb_shinfo(skb)->gso_size = meta->gso_size;
		skb_shinfo(skb)->gso_type = meta->gso_type ? SKB_GSO_UDP_L4 : 0;
	}
}

/* What UDP notes in a packet when it queues it. */
static void push_restore_scratch(struct sk_buff *skb)
{
	struct udp_dev_scratch *scratch = udp_skb_scratch(skb);

	memset(scratch, 0, sizeof(*scratch));
	scratch->_tsize_state = skb->truesize;
	scratch->len = skb->len;
	scratch->is_linear = !skb_is_nonlinear(skb);
	scratch->csum_unnecessary = true;
}

/*
 * Makes a packet of a record again. Nothing is pushed meanwhile, so the payload
 * stays where it is; the program may have changed it, which is its own affair.
 */
struct sk_buff *push_rebuild(struct push_sock *ps, const struct push_meta *meta)
{
	u32 linear = min_t(u32, meta->len, PUSH_LINEAR_BYTES);
	u32 rest = meta->len - linear;
	struct sk_buff *skb;
	int err;

	skb = alloc_skb_with_frags(meta->header_bytes + linear, rest,
				   PAGE_ALLOC_COSTLY_ORDER, &err, GFP_KERNEL);
	if (!skb)
		return NULL;
	push_restore_header(skb, meta);
	__skb_put(skb, linear);
	skb->data_len = rest;
	skb->len += rest;
	push_restore_scratch(skb);
	if (skb_store_bits(skb, 0, push_at(ps, meta->at) +
			   sizeof(struct pkt_push_record), meta->len)) {
		kfree_skb(skb);
		return NULL;
	}
	return skb;
}
