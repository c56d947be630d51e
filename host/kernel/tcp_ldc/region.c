// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shared memory: made by LDC_RING, mapped through the socket, charged to
 * the process like pinned memory, freed when the last user is gone.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "tcp_ldc.h"

static_assert(sizeof(struct ldc_region) == 192);
static_assert(sizeof(struct ldc_ring) == 384);
static_assert(sizeof(struct ldc_slot) == 128);
static_assert(offsetof(struct ldc_region, producer_claim) == 128);
static_assert(offsetof(struct ldc_ring, umod_i) == 64);
static_assert(offsetof(struct ldc_ring, kern_i) == 128);
static_assert(offsetof(struct ldc_ring, kern_flag) == 192);
static_assert(offsetof(struct ldc_ring, changes) == 256);
static_assert(offsetof(struct ldc_ring, consumer_claim) == 320);
static_assert(offsetof(struct ldc_slot, span) == 60);
static_assert(offsetof(struct ldc_slot, fate_of) == 64);
static_assert(offsetof(struct ldc_slot, horizon) == 96);

/* The ABI aligns the arena to this, whatever a page of this machine is. */
#define LDC_ALIGN	4096

/* Memory that exists. The module's exit waits until there is none. */
static atomic_t ldc_memories = ATOMIC_INIT(0);
static atomic64_t ldc_total_bytes = ATOMIC64_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(ldc_memories_gone);

/* Computes the layout of a ring from its sizes. R-ATTACH-3. */
int ldc_layout_init(struct ldc_layout *layout, const struct ldc_geometry *geo)
{
	u64 end;

	if (geo->flags || geo->total_bytes)
		return -EINVAL;
	if (geo->slots < LDC_MIN_SLOTS || geo->slots > LDC_MAX_SLOTS ||
	    !is_power_of_2(geo->slots))
		return -EINVAL;
	if (geo->block_bytes < LDC_MIN_BLOCK_BYTES ||
	    geo->block_bytes > LDC_MAX_BLOCK_BYTES)
		return -EINVAL;
	if (geo->blocks < geo->slots || geo->blocks > LDC_MAX_BLOCKS)
		return -EINVAL;

	layout->slots = geo->slots;
	layout->shift = ilog2(geo->slots);
	layout->block_bytes = geo->block_bytes;
	layout->block_stride = ALIGN(geo->block_bytes, 64);
	layout->blocks = geo->blocks;
	layout->slots_offset = sizeof(struct ldc_region) +
			       sizeof(struct ldc_ring);
	end = layout->slots_offset + (u64)geo->slots * sizeof(struct ldc_slot);
	layout->arena_offset = ALIGN(end, LDC_ALIGN);
	end = layout->arena_offset + (u64)geo->blocks * layout->block_stride;
	layout->total_bytes = ALIGN(end, LDC_ALIGN);
	if (layout->total_bytes > LDC_MAX_REGION_BYTES)
		return -EINVAL;
	return 0;
}

static void ldc_memory_format(struct ldc_memory *memory)
{
	const struct ldc_layout *layout = &memory->layout;
	struct ldc_region *region = memory->base;

	region->version = LDC_VERSION;
	region->header_bytes = sizeof(struct ldc_region);
	region->total_bytes = layout->total_bytes;
	region->rings = 1;
	region->slots = layout->slots;
	region->block_bytes = layout->block_bytes;
	region->blocks = layout->blocks;
	region->ring_header_bytes = sizeof(struct ldc_ring);
	region->slot_bytes = sizeof(struct ldc_slot);
	region->rings_offset = sizeof(struct ldc_region);
	region->slots_offset = layout->slots_offset;
	region->arena_offset = layout->arena_offset;
	region->block_stride = layout->block_stride;
	memory->head->umod_i = LDC_NO_HOLD;
	memory->head->kern_flag = LDC_KERN_SLEEPS;
	memory->head->consumer_claim = LDC_KERNEL_CLAIM;
	region->magic = LDC_MAGIC;
}

static void ldc_memory_free(struct work_struct *work)
{
	struct ldc_memory *memory = container_of(work, struct ldc_memory, free);

	atomic64_sub(memory->layout.total_bytes, &ldc_total_bytes);
	vfree(memory->base);
	mm_unaccount_pinned_pages(&memory->pin);
	kfree(memory);
	if (atomic_dec_and_test(&ldc_memories))
		wake_up_all(&ldc_memories_gone);
}

/* Returns memory with one reference. */
struct ldc_memory *ldc_memory_create(const struct ldc_layout *layout)
{
	struct ldc_memory *memory;
	int err;

	memory = kzalloc(sizeof(*memory), GFP_KERNEL_ACCOUNT);
	if (!memory)
		return ERR_PTR(-ENOMEM);
	/* The same books as MSG_ZEROCOPY, AF_XDP and io_uring have. */
	err = mm_account_pinned_pages(&memory->pin,
				      PAGE_ALIGN(layout->total_bytes));
	if (err)
		goto err_free;
	err = -ENOMEM;
	memory->base = __vmalloc(layout->total_bytes,
				 GFP_KERNEL_ACCOUNT | __GFP_ZERO |
				 __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!memory->base)
		goto err_account;

	refcount_set(&memory->refs, 1);
	INIT_WORK(&memory->free, ldc_memory_free);
	spin_lock_init(&memory->lock);
	memory->layout = *layout;
	memory->head = memory->base + sizeof(struct ldc_region);
	memory->slots = memory->base + layout->slots_offset;
	ldc_memory_format(memory);
	atomic_inc(&ldc_memories);
	atomic64_add(layout->total_bytes, &ldc_total_bytes);
	return memory;

err_account:
	mm_unaccount_pinned_pages(&memory->pin);
err_free:
	kfree(memory);
	return ERR_PTR(err);
}

void ldc_memory_hold(struct ldc_memory *memory)
{
	refcount_inc(&memory->refs);
}

/* Callable from any context: the last reference may be that of a packet. */
void ldc_memory_put(struct ldc_memory *memory)
{
	if (refcount_dec_and_test(&memory->refs))
		queue_work(ldc_wq, &memory->free);
}

/*
 * Wakes those who wait for space, from whatever context a packet ends in. The
 * caller is in an RCU section.
 */
void ldc_memory_wake(struct ldc_memory *memory)
{
	struct socket_wq *wq;
	unsigned long flags;

	spin_lock_irqsave(&memory->lock, flags);
	wq = memory->sk ? rcu_dereference(memory->sk->sk_wq) : NULL;
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, EPOLLOUT | EPOLLWRNORM |
					   EPOLLWRBAND);
	spin_unlock_irqrestore(&memory->lock, flags);
}

static int ldc_file_release(struct inode *inode, struct file *file)
{
	ldc_memory_put(file->private_data);
	return 0;
}

static const struct file_operations ldc_file_ops = {
	.owner		= THIS_MODULE,
	.release	= ldc_file_release,
	.llseek		= noop_llseek,
};

/*
 * The file that mappings refer to in place of the socket's: a mapping that
 * held the socket would keep close() from sending its FIN.
 */
struct file *ldc_memory_file(struct ldc_memory *memory)
{
	struct file *file;

	ldc_memory_hold(memory);
	file = anon_inode_getfile("[tcp_ldc]", &ldc_file_ops, memory, O_RDWR);
	if (IS_ERR(file))
		ldc_memory_put(memory);
	return file;
}

static void ldc_vma_set_flags(struct vm_area_struct *vma)
{
	const unsigned long set = VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, VM_MAYEXEC);
#else
	vma->vm_flags |= set;
	vma->vm_flags &= ~VM_MAYEXEC;
#endif
}

/* Maps all of the memory. Called by mmap() with the mm's lock for writing. */
int ldc_memory_map(struct ldc_memory *memory, struct file *file,
		   struct vm_area_struct *vma)
{
	unsigned long addr = vma->vm_start;
	void *from = memory->base;
	int err;

	if (vma->vm_pgoff ||
	    vma->vm_end - vma->vm_start != PAGE_ALIGN(memory->layout.total_bytes))
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;

	ldc_vma_set_flags(vma);
	vma_set_file(vma, file);
	for (; addr < vma->vm_end; addr += PAGE_SIZE, from += PAGE_SIZE) {
		err = vm_insert_page(vma, addr, vmalloc_to_page(from));
		if (err)
			return err;
	}
	return 0;
}

u64 ldc_memory_bytes(void)
{
	return atomic64_read(&ldc_total_bytes);
}

/* For the module's exit, when no socket and no mapping is left. */
void ldc_memory_wait(void)
{
	wait_event(ldc_memories_gone, !atomic_read(&ldc_memories));
	/* Whoever dropped the last reference does so in an RCU section. */
	synchronize_rcu();
}
