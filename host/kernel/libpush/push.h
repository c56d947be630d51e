/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A UDP socket whose receive buffer empties itself into memory of the program before
 * it overflows (../pkt_push). push_recv() is recv(), and makes no system call while
 * something is in that memory.
 *
 *	struct push *push = push_open(fd, NULL);
 *
 *	if (!push && errno == ENOENT)
 *		... the module is not there; recv() it is ...
 *	size = push_recv(push, buffer, sizeof(buffer), 0);
 *
 * The order is that of the socket, whoever takes: push_recv(), recv(), other threads
 * and processes with the same handle. After fork() both processes may use it. All
 * calls set errno as the system calls do.
 */
#ifndef LIBPUSH_PUSH_H
#define LIBPUSH_PUSH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <linux/pkt_push.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct push;

/**
 * struct push_options - zero is the default of each
 * @bytes: of the memory; rounded up to a power of two, 4 KiB to 1 GiB. 0: 1 MiB
 * @records: datagrams that it holds at most. 0: one for each 512 bytes
 * @oldest: when it is full, drop what has waited longest, not what comes
 * @at_once: move each datagram at once, not only before the buffer overflows:
 *	push_recv() then sleeps in poll() and makes no call for each datagram
 * @max_age_ms: what was moved longer ago than this is not given out; 0: no limit
 */
struct push_options {
	size_t bytes;
	unsigned int records;
	int oldest;
	int at_once;
	unsigned int max_age_ms;
};

/**
 * struct push_datagram - a datagram that is still in the memory
 * @data: its payload; with oldest it may be overwritten before push_release()
 * @record: what is known of it: sender, time, ECN
 * @head: for push_release()
 * @end: for push_release()
 */
struct push_datagram {
	const void *data;
	size_t len;
	struct pkt_push_record record;
	uint64_t head;
	uint64_t end;
};

/*
 * Attaches the memory to @socket, which stays the caller's to close, and stays
 * attached until then. NULL and errno: ENOENT without the module, EBUSY if it is
 * attached already, EOPNOTSUPP if it is no UDP socket, ENOBUFS or ENOMEM beyond
 * RLIMIT_MEMLOCK.
 */
struct push *push_open(int socket, const struct push_options *options);

/* Unmaps the memory. The socket goes on; recv() still finds what is in there. */
void push_close(struct push *push);

/* recv(). Other flags than MSG_PEEK, MSG_TRUNC, MSG_DONTWAIT go to the system. */
ssize_t push_recv(struct push *push, void *buffer, size_t size, int flags);

/* recvfrom() */
ssize_t push_recvfrom(struct push *push, void *buffer, size_t size, int flags,
		      struct sockaddr *address, socklen_t *address_len);

/*
 * The oldest datagram of the memory, without a copy. 1: there is one; 0: the memory
 * is empty (what the socket's buffer has is taken by recv()); -1: the memory was overwritten.
 */
int push_look(struct push *push, struct push_datagram *datagram);

/* Takes what push_look() has shown. 1: it is the caller's; 0: somebody else took or dropped it. */
int push_release(struct push *push, const struct push_datagram *datagram);

/* Bytes of the memory that wait. */
uint64_t push_waiting(const struct push *push);

/* Datagrams that were older than max_age_ms and not given out. */
uint64_t push_expired(const struct push *push);

int push_get_stats(const struct push *push, struct pkt_push_stats *stats);

/* Empties the socket's buffer now. Returns the number of datagrams, or -1. */
int push_now(struct push *push);

/* Sets the threshold in bytes of the buffer; PKT_PUSH_ADAPTIVE: the rule. */
int push_set_threshold(struct push *push, uint64_t bytes);

/* Sets statistics and filters to their beginnings. */
int push_reset(struct push *push);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
