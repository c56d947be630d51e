/* SPDX-License-Identifier: GPL-2.0-only */
/* A receiver, a sender that is connected to it, and datagrams with numbers. */
#ifndef PAIR_H
#define PAIR_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "push.h"

struct pair {
	int receiver;
	int sender;
	struct push *push;
	struct sockaddr_storage sender_name;
	socklen_t sender_len;
};

/* For AF_INET6 and @mapped the sender has IPv4. @rcvbuf 0: the default. */
void pair_open(struct pair *pair, int family, bool mapped, int rcvbuf);
/* The same, with packet push. */
void pair_push(struct pair *pair, int family, int rcvbuf,
	       const struct push_options *options);
void pair_attach(struct pair *pair, const struct push_options *options);
void pair_close(struct pair *pair);

/*
 * A datagram of @size bytes, 4 or more, that says its number. From its first one on a thread stays on its processor: each processor has a
 * loopback queue of its own, and a thread that moves overtakes its own datagrams (2 of 150,000 with plain recv() on a busy machine).
 */
void pair_send(const struct pair *pair, uint32_t number, size_t size);
/* Dies if it is another or damaged. */
void check_datagram(const void *data, ssize_t got, uint32_t number, size_t size);
/* The number of a whole datagram. */
uint32_t datagram_number(const void *data, ssize_t got);

/*
 * Empties the buffer until @count datagrams went. On a busy machine the last ones that were sent may still be on their way through the
 * kernel's own thread. Returns how many went, fewer after 10 s.
 */
long pair_push_now(const struct pair *pair, long count);

/*
 * Waits until all that this thread has sent was delivered: on a busy machine the last ones come through the kernel's own thread, in their
 * order.
 */
void await_delivery(void);

/* A thread that may run on every processor, wherever this one stays. */
void start_thread(pthread_t *thread, void *(*body)(void *), void *argument);

void pair_stats(const struct pair *pair, struct pkt_push_stats *stats);
/* Bytes that the socket's buffer has (SO_MEMINFO). */
uint32_t pair_queued(const struct pair *pair);
/* Datagrams that the socket has dropped (SO_MEMINFO). */
uint32_t pair_drops(const struct pair *pair);

#endif
