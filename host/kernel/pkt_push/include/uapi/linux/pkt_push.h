/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Packet push: a UDP socket's receive buffer that empties itself into memory of
 * the program before it overflows.
 *
 *	dev = open("/dev/pkt_push", O_RDWR);
 *	ioctl(dev, PKT_PUSH_ATTACH, &attach);
 *	base = mmap(NULL, attach.total_bytes, PROT_READ | PROT_WRITE,
 *		    MAP_SHARED, dev, 0);
 *
 * The region is struct pkt_push_region, then at data_offset a ring of data_bytes.
 * Positions count bytes of the ring and only grow; a position's place in the
 * ring is its value modulo data_bytes. A record is struct pkt_push_record and the
 * payload behind it, at a multiple of PKT_PUSH_ALIGN, and never wraps: where it
 * would, there is a record with PKT_PUSH_PAD instead, and the record is at the
 * ring's start.
 *
 * What is in the ring is older than all that is in the socket's buffer. To take
 * the oldest record: load @head, load @tail (both acquire); if they are equal,
 * the ring is empty. Copy what is at @head, then swap @head (compare and swap,
 * acquire and release) for the position behind the record. If the swap fails,
 * somebody else has taken or dropped the record, and the copy is worthless.
 * recv() takes from the ring as well, by the same rule.
 *
 * Numbers are of the host's byte order; 32-bit and 64-bit programs see the same
 * layout.
 */
#ifndef _UAPI_LINUX_PKT_PUSH_H
#define _UAPI_LINUX_PKT_PUSH_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PKT_PUSH_DEVICE		"/dev/pkt_push"

/* Limits of struct pkt_push_attach. */
#define PKT_PUSH_MIN_BYTES	4096U
#define PKT_PUSH_MAX_BYTES	(1ULL << 30)
#define PKT_PUSH_MIN_RECORDS	2U
#define PKT_PUSH_MAX_RECORDS	(1U << 20)

/**
 * struct pkt_push_attach - which socket, and how large a ring
 * @fd: a UDP socket, IPv4 or IPv6
 * @flags: 0
 * @data_bytes: bytes of the ring, a power of two
 * @records: datagrams that it holds at most; 0: as many as there are with 512
 *	bytes each. The kernel keeps 256 bytes of its own for each.
 * @reserved: 0
 * @total_bytes: bytes to map; 0 when set, filled in
 */
struct pkt_push_attach {
	__s32		fd;
	__u32		flags;
	__aligned_u64	data_bytes;
	__u32		records;
	__u32		reserved;
	__aligned_u64	total_bytes;
};

/**
 * struct pkt_push_stats - what was done for a socket
 * @pushes: times the buffer was emptied
 * @datagrams: datagrams that were moved to the ring
 * @bytes: their payload
 * @skipped: times a push was due and a program looked at the buffer (MSG_PEEK)
 * @ring_full: times a push ended because the ring was full
 * @unpushable: times a push ended at a datagram that has to stay: longer than
 *	the ring, longer headers than 128 bytes, or from an IPsec tunnel
 * @evicted: datagrams that were dropped for newer ones (PKT_PUSH_OLDEST)
 * @bad_checksums: datagrams that were dropped as recv() would have
 * @returned: datagrams that recv() took from the ring
 * @bad_heads: values of @head that cannot be
 * @threshold: present threshold, in bytes of the buffer as SO_MEMINFO counts
 * @push_ns: mean time of a push (the document's m, filtered with 0.2)
 * @gap_ns: mean gap between arrivals (1/lambda, filtered with 0.5)
 * @last_ns: time of the last push
 * @queued_max: most bytes in the buffer when a push began
 * @mapped_bytes: bytes of the region
 *
 * May grow at its end.
 */
struct pkt_push_stats {
	__aligned_u64	pushes;
	__aligned_u64	datagrams;
	__aligned_u64	bytes;
	__aligned_u64	skipped;
	__aligned_u64	ring_full;
	__aligned_u64	unpushable;
	__aligned_u64	evicted;
	__aligned_u64	bad_checksums;
	__aligned_u64	returned;
	__aligned_u64	bad_heads;
	__aligned_u64	threshold;
	__aligned_u64	push_ns;
	__aligned_u64	gap_ns;
	__aligned_u64	last_ns;
	__aligned_u64	queued_max;
	__aligned_u64	mapped_bytes;
};

/* For PKT_PUSH_THRESHOLD: the rule min(2L/3, L - lambda * m). The default. */
#define PKT_PUSH_ADAPTIVE	(~0ULL)

/* For PKT_PUSH_POLICY: what goes when the ring is full. */
#define PKT_PUSH_NEWEST		0U	/* as in any socket: what comes. Default */
#define PKT_PUSH_OLDEST		1U	/* what has waited longest */

/*
 * PKT_PUSH_ATTACH	 once for each open device. The socket stays attached
 *			 until it is closed, the ring until both are.
 * PKT_PUSH_THRESHOLD	 __u64, bytes above which the buffer is emptied; 0: each
 *			 datagram is pushed at once.
 * PKT_PUSH_POLICY	 __u32
 * PKT_PUSH_STATS	 struct pkt_push_stats
 * PKT_PUSH_RESET	 sets statistics and filters to their beginnings
 * PKT_PUSH_NOW		 empties the buffer; returns the number of datagrams
 */
#define PKT_PUSH_MAGIC		0xb8
#define PKT_PUSH_ATTACH		_IOWR(PKT_PUSH_MAGIC, 1, struct pkt_push_attach)
#define PKT_PUSH_THRESHOLD	_IOW(PKT_PUSH_MAGIC, 2, __u64)
#define PKT_PUSH_POLICY		_IOW(PKT_PUSH_MAGIC, 3, __u32)
#define PKT_PUSH_STATS		_IOR(PKT_PUSH_MAGIC, 4, struct pkt_push_stats)
#define PKT_PUSH_RESET		_IO(PKT_PUSH_MAGIC, 5)
#define PKT_PUSH_NOW		_IO(PKT_PUSH_MAGIC, 6)

/* "FWPUSH01" as a little-endian number. */
#define PKT_PUSH_REGION_MAGIC	0x3130485355505746ULL
#define PKT_PUSH_VERSION	1U
#define PKT_PUSH_DATA_OFFSET	4096U
/* Records begin at multiples of this. */
#define PKT_PUSH_ALIGN		64U

/* flags of the region: the socket is closed; what is in the ring is all. */
#define PKT_PUSH_CLOSED		1U

/**
 * struct pkt_push_region - the head of the shared memory
 * @tail: kernel: position behind the newest record
 * @flags: kernel: PKT_PUSH_CLOSED
 * @head: whoever takes a record: position of the oldest
 *
 * The kernel writes the first lines and never reads them again.
 */
struct pkt_push_region {
	__aligned_u64	magic;
	__u32		version;
	__u32		data_offset;
	__aligned_u64	data_bytes;
	__aligned_u64	total_bytes;
	__aligned_u64	line0[4];
	__aligned_u64	tail;
	__u32		flags;
	__u32		reserved;
	__aligned_u64	line1[6];
	__aligned_u64	head;
	__aligned_u64	line2[7];
};

/* flags of a record. */
#define PKT_PUSH_PAD		1U	/* nothing here; the record is at the start */

/**
 * struct pkt_push_record - what is known of a datagram, 64 bytes
 * @len: payload bytes, right behind this
 * @flags: PKT_PUSH_PAD
 * @tos: type of service or traffic class; the lower two bits are ECN
 * @segment: bytes of each but the last of several datagrams (UDP_GRO); 0: one
 * @drops: what the socket had dropped when it came (SO_RXQ_OVFL), if asked for
 * @pushed_at: CLOCK_MONOTONIC, ns
 * @stamp: arrival, CLOCK_REALTIME, ns; 0 if nobody asks for time stamps
 * @family: AF_INET, AF_INET6
 * @port: of the sender, network byte order
 * @scope: interface, of link-local addresses
 * @addr: of the sender; IPv4 in the first four bytes
 */
struct pkt_push_record {
	__u32		len;
	__u16		flags;
	__u8		tos;
	__u8		reserved;
	__u32		segment;
	__u32		drops;
	__aligned_u64	pushed_at;
	__aligned_u64	stamp;
	__u16		family;
	__be16		port;
	__u32		scope;
	__u8		addr[16];
	__u32		reserved2[2];
};

#endif /* _UAPI_LINUX_PKT_PUSH_H */
