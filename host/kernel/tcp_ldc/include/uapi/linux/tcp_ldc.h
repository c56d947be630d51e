/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Late data choice for TCP: the ring between an application and the kernel.
 *
 *	setsockopt(fd, SOL_TCP, TCP_ULP, "ldc", 3);
 *	setsockopt(fd, SOL_LDC, LDC_RING, &geometry, sizeof(geometry));
 *	getsockopt(fd, SOL_LDC, LDC_RING, &geometry, &len);
 *	base = mmap(NULL, geometry.total_bytes, PROT_READ | PROT_WRITE,
 *		    MAP_SHARED, fd, 0);
 *
 * The region has the layout of the ring ABI, version 1, with one ring: struct
 * ldc_region, struct ldc_ring, the slots at slots_offset, the payload blocks at
 * arena_offset, each block at a multiple of block_stride. Numbers are of the
 * host's byte order; 32-bit and 64-bit programs see the same layout.
 */
#ifndef _UAPI_LINUX_TCP_LDC_H
#define _UAPI_LINUX_TCP_LDC_H

#include <linux/sockios.h>
#include <linux/types.h>

/* The name for TCP_ULP. */
#define TCP_ULP_LDC		"ldc"

/* Level of the socket options below. */
#define SOL_LDC			0x4c44

/*
 * LDC_RING	set, once: makes the ring, struct ldc_geometry. From then on the
 *		socket sends from the ring only. get: the ring's geometry.
 * LDC_HORIZON	set, get: __u32, segments that may be committed to TCP before it
 *		can send them: 0 or 1 (default).
 * LDC_ZEROCOPY	set, get: __u32, 1: segments refer to ring pages instead of
 *		copying them. A record is then finished when TCP lets go of its
 *		last page. Default 0.
 * LDC_LOWAT	set, get: __u32, slots that have to be free for POLLOUT, 1 to
 *		slots. Default 1.
 * LDC_STATS	get: struct ldc_stats.
 * LDC_WATCH	set, get: __u32, milliseconds, at most LDC_MAX_WATCH. Instead of
 *		sleeping the sender looks at an empty ring again after so long,
 *		until nothing has come for a second: a steady stream then needs
 *		no notification. Default 0: it sleeps at once.
 * LDC_KEEP_ACKS set, before LDC_RING, get: __u32, at most LDC_MAX_KEEP_ACKS:
 *		records whose acknowledgement is kept for LDC_ACKS. Default 0.
 * LDC_ACKS	get: struct ldc_ack[], as many as fit, oldest first, each once: the
 *		acknowledgements of records whose slot had been used again before.
 */
#define LDC_RING		1
#define LDC_HORIZON		2
#define LDC_ZEROCOPY		3
#define LDC_LOWAT		4
#define LDC_STATS		5
#define LDC_WATCH		6
#define LDC_KEEP_ACKS		7
#define LDC_ACKS		8

/*
 * ioctl(fd, LDC_IOC_NOTIFY): there is something to send and the sender sleeps.
 * To be called by the one that has cleared LDC_KERN_SLEEPS. No argument.
 */
#define LDC_IOC_NOTIFY		(SIOCPROTOPRIVATE + 0)

/* Limits of struct ldc_geometry. */
#define LDC_MIN_SLOTS		2U
#define LDC_MAX_SLOTS		65536U
#define LDC_MIN_BLOCK_BYTES	16U
#define LDC_MAX_BLOCK_BYTES	(1U << 24)
#define LDC_MAX_BLOCKS		(1U << 24)
#define LDC_MAX_REGION_BYTES	(1ULL << 40)
/* Limit of LDC_WATCH. */
#define LDC_MAX_WATCH		1000U
/* Limit of LDC_KEEP_ACKS. */
#define LDC_MAX_KEEP_ACKS	65536U

/**
 * struct ldc_geometry - the size of a ring
 * @slots: slots, a power of two, LDC_MIN_SLOTS to LDC_MAX_SLOTS
 * @block_bytes: payload bytes of a slot; a larger record takes several slots
 * @blocks: payload blocks, @slots to LDC_MAX_BLOCKS
 * @flags: 0
 * @total_bytes: bytes to map; has to be 0 when set, filled in when read
 *
 * May grow at its end: what a program does not give counts as zero, and what
 * the kernel does not know has to be zero (-E2BIG).
 */
struct ldc_geometry {
	__u32	slots;
	__u32	block_bytes;
	__u32	blocks;
	__u32	flags;
	__aligned_u64	total_bytes;
};

/**
 * struct ldc_ack - the acknowledgement of a record whose slot was used again
 * @index: of the record
 * @acked_at: CLOCK_MONOTONIC ns; its last byte was acknowledged
 */
struct ldc_ack {
	__aligned_u64	index;
	__aligned_u64	acked_at;
};

/**
 * struct ldc_stats - what a ring's sender has done; the numbers only grow
 * @pulls: times it looked for something to send
 * @records_taken: records taken from the ring, those put back too
 * @records_sent: records handed over to TCP as a whole
 * @records_acked: records acknowledged as a whole
 * @records_put_back: records taken and put back, because of umod_i or memory
 * @dropped_expired: records dropped because of their deadline
 * @dropped_closed: records dropped because the socket was closed or shut down
 * @dropped_invalid: records dropped because of their descriptor
 * @dropped_connection: records dropped because the connection broke
 * @bytes: payload bytes handed over to TCP
 * @bytes_zerocopy: those of them that were not copied
 * @sleeps: times it went to sleep
 * @wakes: times it was woken
 * @notifies: calls of LDC_IOC_NOTIFY
 * @retries: times it had to wait for memory
 * @too_late: records that were dropped or held while it took them
 * @bad_indexes: values of user_i that cannot be
 * @bad_states: state words that no honest program writes
 * @bad_descriptors: descriptors and blocks that lead outside of the ring
 * @horizon_max: most bytes ever committed and not sent when a record was begun
 * @mapped_bytes: bytes of the region
 * @watches: times it found the ring empty and did not sleep (LDC_WATCH)
 * @acks_late: acknowledgements kept for LDC_ACKS
 * @acks_missed: acknowledgements that neither the slot nor LDC_ACKS tells of:
 *	more than LDC_KEEP_ACKS records waited for theirs, or for being read
 *
 * May grow at its end: getsockopt() gives as much as the program asks for.
 */
struct ldc_stats {
	__aligned_u64	pulls;
	__aligned_u64	records_taken;
	__aligned_u64	records_sent;
	__aligned_u64	records_acked;
	__aligned_u64	records_put_back;
	__aligned_u64	dropped_expired;
	__aligned_u64	dropped_closed;
	__aligned_u64	dropped_invalid;
	__aligned_u64	dropped_connection;
	__aligned_u64	bytes;
	__aligned_u64	bytes_zerocopy;
	__aligned_u64	sleeps;
	__aligned_u64	wakes;
	__aligned_u64	notifies;
	__aligned_u64	retries;
	__aligned_u64	too_late;
	__aligned_u64	bad_indexes;
	__aligned_u64	bad_states;
	__aligned_u64	bad_descriptors;
	__aligned_u64	horizon_max;
	__aligned_u64	mapped_bytes;
	__aligned_u64	watches;
	__aligned_u64	acks_late;
	__aligned_u64	acks_missed;
};

/* "FWRING01" as a little-endian number. */
#define LDC_MAGIC		0x3130474e49525746ULL
#define LDC_VERSION		1U

/**
 * struct ldc_region - the head of the shared memory, 192 bytes
 *
 * The kernel writes it once and never reads it. Only @producer_claim is the
 * application's.
 */
struct ldc_region {
	__aligned_u64	magic;
	__u32	version;
	__u32	header_bytes;
	__aligned_u64	total_bytes;
	__u32	rings;
	__u32	slots;
	__u32	block_bytes;
	__u32	blocks;
	__u32	ring_header_bytes;
	__u32	slot_bytes;
	__aligned_u64	rings_offset;
	__aligned_u64	slots_offset;
	__aligned_u64	arena_offset;
	__u32	block_stride;
	__u32	reserved[13];
	__aligned_u64	producer_claim;
	__aligned_u64	reserved2[7];
};

/**
 * struct ldc_ring - the head of the ring, 384 bytes, a line per writer
 * @user_i: producer: next free slot
 * @tail_i: producer: oldest slot that is not reclaimed
 * @umod_i: producer: nothing at or above it is taken; LDC_NO_HOLD normally
 * @kern_i: kernel: oldest slot that may still be taken
 * @kern_flag: LDC_KERN_*
 * @changes: anybody, by addition: counts what became visible otherwise
 * @consumer_claim: LDC_KERNEL_CLAIM
 */
struct ldc_ring {
	__aligned_u64	user_i;
	__aligned_u64	tail_i;
	__aligned_u64	line0[6];
	__aligned_u64	umod_i;
	__aligned_u64	line1[7];
	__aligned_u64	kern_i;
	__aligned_u64	line2[7];
	__u32	kern_flag;
	__u32	line3[15];
	__aligned_u64	changes;
	__aligned_u64	line4[7];
	__aligned_u64	consumer_claim;
	__aligned_u64	line5[7];
};

/* umod_i of a ring that is not held back. */
#define LDC_NO_HOLD		(~0ULL)
/* kern_flag: the sender sleeps; who clears the bit has to notify. */
#define LDC_KERN_SLEEPS		1U
/* kern_flag: nothing is taken any more. */
#define LDC_KERN_CLOSED		2U
/* kern_flag, with LDC_KERN_CLOSED: acknowledgements are still told of. */
#define LDC_KERN_TELLS		4U
/* consumer_claim: the sender is the kernel, process 0. */
#define LDC_KERNEL_CLAIM	(1ULL << 32)
/* Indexes stay below this. */
#define LDC_MAX_INDEX		(1ULL << 62)

/**
 * struct ldc_slot - one descriptor, 128 bytes
 *
 * The first line is the submitter's, and the holder's while the record is held;
 * the second is the kernel's.
 *
 * @state: the state word, see LDC_STATE_*
 * @user_seq: the application's number
 * @generated: CLOCK_MONOTONIC ns
 * @deadline: CLOCK_MONOTONIC ns; a record is not begun after it
 * @key: for replacing; 0 for none
 * @block: number of the payload block
 * @len: payload bytes of the record
 * @group: records decodable together
 * @refs: what this one needs, as distance back in user_seq
 * @span: first slot: slots of the record; others: number within, from 1
 * @layer: 0 = base
 * @flags: LDC_SLOT_*
 * @fate_of: index + 1 of the record that this line speaks of
 * @committed_at: ns, or 0: first byte handed over
 * @finished_at: ns, or 0: last byte handed over, or dropped by the kernel
 * @acked_at: ns, or 0: the last byte was acknowledged
 * @horizon: bytes committed and not sent when the record was begun
 */
struct ldc_slot {
	__aligned_u64	state;
	__aligned_u64	user_seq;
	__aligned_u64	generated;
	__aligned_u64	deadline;
	__aligned_u64	key;
	__u32	block;
	__u32	len;
	__u32	group;
	__u32	refs[2];
	__u16	span;
	__u8	layer;
	__u8	flags;
	__aligned_u64	fate_of;
	__aligned_u64	committed_at;
	__aligned_u64	finished_at;
	__aligned_u64	acked_at;
	__u32	horizon;
	__u32	reserved[7];
};

/* A deadline that never comes. */
#define LDC_NO_DEADLINE		(~0ULL)
/* flags: the payload is in other rings too. */
#define LDC_SLOT_SHARED		1U

/* The state word: state 0-3, edit count 4-9, argument 10-31, lap 32-63. */
#define LDC_STATE_MASK		0xfULL
#define LDC_EDIT_SHIFT		4
#define LDC_EDIT_MASK		(0x3fULL << LDC_EDIT_SHIFT)
#define LDC_ARG_SHIFT		10
#define LDC_ARG_MASK		(0x3fffffULL << LDC_ARG_SHIFT)
#define LDC_LAP_SHIFT		32

enum ldc_state {
	LDC_FREE	= 0,
	LDC_READY	= 1,	/* can be dropped, held, taken */
	LDC_HELD	= 2,	/* argument: process id of the holder */
	LDC_TAKEN	= 3,	/* committed */
	LDC_SENT	= 4,	/* argument 1: its slot tells of no acknowledgement */
	LDC_ACKED	= 5,
	LDC_DEAD	= 6,	/* argument: enum ldc_reason */
	LDC_CONT	= 7,	/* a further slot of the record before it */
};

/* Why a record is dead. 128 to 255 are the application's own. */
enum ldc_reason {
	LDC_REASON_NONE			= 0,
	LDC_REASON_EXPIRED		= 1,
	LDC_REASON_PREDICTED_LATE	= 2,
	LDC_REASON_WINDOW_END		= 3,
	LDC_REASON_LAYER_SHED		= 4,
	LDC_REASON_SUPERSEDED		= 5,
	LDC_REASON_REFERENCE_LOST	= 6,
	LDC_REASON_APPLICATION		= 7,
	LDC_REASON_ABANDONED		= 8,
	LDC_REASON_CLOSED		= 9,
	LDC_REASON_SENDER_LOST		= 10,
	LDC_REASON_HOLDER_LOST		= 11,
	LDC_REASON_INVALID		= 12,
	LDC_REASON_CONNECTION_LOST	= 13,
};

#endif /* _UAPI_LINUX_TCP_LDC_H */
