// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "push.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_BYTES	(1U << 20)

/* What push_recv() itself understands. */
#define OWN_FLAGS	(MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT)

struct push {
	int socket;
	int device;
	bool at_once;
	uint64_t max_age;
	uint64_t expired;
	/* Private copies; never loaded from the memory again. */
	uint64_t data_bytes;
	size_t total_bytes;
	struct pkt_push_region *region;
	unsigned char *data;
};

#define load_acquire(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static uint64_t power_of_two(size_t at_least)
{
	uint64_t bytes = PKT_PUSH_MIN_BYTES;

	while (bytes < at_least && bytes < PKT_PUSH_MAX_BYTES)
		bytes *= 2;
	return bytes;
}

static int set_up(struct push *push, const struct push_options *options)
{
	struct pkt_push_attach attach = {
		.fd = push->socket,
		.data_bytes = power_of_two(options->bytes ? options->bytes : DEFAULT_BYTES),
		.records = options->records,
	};
	uint32_t policy = PKT_PUSH_OLDEST;
	uint64_t threshold = 0;
	void *base;

	if (ioctl(push->device, PKT_PUSH_ATTACH, &attach))
		return -1;
	push->data_bytes = attach.data_bytes;
	push->total_bytes = attach.total_bytes;
	if (options->oldest && ioctl(push->device, PKT_PUSH_POLICY, &policy))
		return -1;
	if (options->at_once && ioctl(push->device, PKT_PUSH_THRESHOLD, &threshold))
		return -1;
	base = mmap(NULL, push->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, push->device, 0);
	if (base == MAP_FAILED)
		return -1;
	push->region = base;
	push->data = (unsigned char *)base + PKT_PUSH_DATA_OFFSET;
	return 0;
}

struct push *push_open(int socket, const struct push_options *options)
{
	static const struct push_options defaults;
	struct push *push = calloc(1, sizeof(*push));
	int error;

	if (!push)
		return NULL;
	if (!options)
		options = &defaults;
	push->socket = socket;
	push->at_once = options->at_once;
	push->max_age = options->max_age_ms * 1000000ULL;
	push->device = open(PKT_PUSH_DEVICE, O_RDWR | O_CLOEXEC);
	if (push->device >= 0 && !set_up(push, options))
		return push;
	error = errno;
	if (push->device >= 0)
		close(push->device);
	free(push);
	errno = error;
	return NULL;
}

void push_close(struct push *push)
{
	if (!push)
		return;
	munmap(push->region, push->total_bytes);
	close(push->device);
	free(push);
}

/*
 * The record at @head, and the position behind it. NULL: what is there is no record,
 * because somebody else has taken it and the kernel has put something over it.
 */
static const struct pkt_push_record *record_at(const struct push *push, uint64_t head, uint64_t *end,
						size_t *len)
{
	uint64_t place = head & (push->data_bytes - 1), rest = push->data_bytes - place;
	const struct pkt_push_record *record = (const void *)(push->data + place);
	uint64_t span;

	if (place % PKT_PUSH_ALIGN)
		return NULL;
	if (__atomic_load_n(&record->flags, __ATOMIC_RELAXED) & PKT_PUSH_PAD) {
		head += rest;
		rest = push->data_bytes;
		record = (const void *)push->data;
	}
	*len = __atomic_load_n(&record->len, __ATOMIC_RELAXED);
	span = sizeof(*record) + (uint64_t)*len;
	span = (span + PKT_PUSH_ALIGN - 1) & ~(uint64_t)(PKT_PUSH_ALIGN - 1);
	if (span > rest)
		return NULL;
	*end = head + span;
	return record;
}

static bool swap_head(struct push *push, uint64_t head, uint64_t end)
{
	return __atomic_compare_exchange_n(&push->region->head, &head, end, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Whether what was loaded until now was that record's. */
static bool still_oldest(const struct push *push, uint64_t head)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&push->region->head, __ATOMIC_RELAXED) == head;
}

static bool is_expired(const struct push *push, const struct pkt_push_record *record)
{
	return push->max_age && now_ns() - record->pushed_at > push->max_age;
}

int push_look(struct push *push, struct push_datagram *datagram)
{
	const struct pkt_push_record *record;
	uint64_t head, end;

	for (;;) {
		head = load_acquire(&push->region->head);
		if (head == load_acquire(&push->region->tail))
			return 0;
		record = record_at(push, head, &end, &datagram->len);
		if (record) {
			datagram->record = *record;
			datagram->data = record + 1;
			datagram->head = head;
			datagram->end = end;
		}
		/* Still the oldest, so all of it was what the kernel wrote. */
		if (!still_oldest(push, head))
			continue;
		if (!record) {
			/* Our own memory was scribbled over; the kernel mends head. */
			errno = EBADMSG;
			return -1;
		}
		if (!is_expired(push, &datagram->record))
			return 1;
		if (swap_head(push, head, end))
			__atomic_fetch_add(&push->expired, 1, __ATOMIC_RELAXED);
	}
}

int push_release(struct push *push, const struct push_datagram *datagram)
{
	return swap_head(push, datagram->head, datagram->end);
}

static void copy_address(const struct pkt_push_record *record, struct sockaddr *address, socklen_t *len)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = record->port };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = record->port };
	const void *from = &in;
	socklen_t size = sizeof(in);

	if (!address)
		return;
	if (record->family == AF_INET6) {
		in6.sin6_scope_id = record->scope;
		memcpy(&in6.sin6_addr, record->addr, 16);
		from = &in6;
		size = sizeof(in6);
	} else {
		memcpy(&in.sin_addr, record->addr, 4);
	}
	memcpy(address, from, *len < size ? *len : size);
	*len = size;
}

/* Returns -1 with EAGAIN if the memory is empty. */
static ssize_t take(struct push *push, void *buffer, size_t size, int flags, struct sockaddr *address,
		    socklen_t *address_len)
{
	struct push_datagram datagram;
	size_t copied;
	int found;

	while ((found = push_look(push, &datagram)) > 0) {
		copied = datagram.len < size ? datagram.len : size;
		memcpy(buffer, datagram.data, copied);
		if (flags & MSG_PEEK) {
			/* Not overwritten while it was copied. */
			if (!still_oldest(push, datagram.head))
				continue;
		} else if (!push_release(push, &datagram)) {
			continue;
		}
		copy_address(&datagram.record, address, address_len);
		return (ssize_t)(flags & MSG_TRUNC ? datagram.len : copied);
	}
	if (!found)
		errno = EAGAIN;
	return -1;
}

ssize_t push_recvfrom(struct push *push, void *buffer, size_t size, int flags, struct sockaddr *address,
		      socklen_t *address_len)
{
	struct pollfd fd = { .fd = push->socket, .events = POLLIN };
	ssize_t got;

	if (flags & ~OWN_FLAGS)
		return recvfrom(push->socket, buffer, size, flags, address, address_len);
	got = take(push, buffer, size, flags, address, address_len);
	if (got >= 0 || errno != EAGAIN)
		return got;
	/* All goes through the memory, so sleep without taking, and take many. */
	if (push->at_once && !(flags & MSG_DONTWAIT) && poll(&fd, 1, 0) == 0) {
		struct timeval timeout = { 0 };
		socklen_t len = sizeof(timeout);
		int ms = -1;

		/* SO_RCVTIMEO holds for recv(); it is asked for only before a sleep. */
		getsockopt(push->socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, &len);
		if (timeout.tv_sec || timeout.tv_usec)
			ms = (int)(timeout.tv_sec * 1000 + (timeout.tv_usec + 999) / 1000);
		if (poll(&fd, 1, ms) < 0)
			return -1;
		got = take(push, buffer, size, flags, address, address_len);
		if (got >= 0 || errno != EAGAIN)
			return got;
	}
	/* recv() itself takes what was pushed meanwhile, in order. */
	return recvfrom(push->socket, buffer, size, flags, address, address_len);
}

ssize_t push_recv(struct push *push, void *buffer, size_t size, int flags)
{
	return push_recvfrom(push, buffer, size, flags, NULL, NULL);
}

uint64_t push_waiting(const struct push *push)
{
	uint64_t head = load_acquire(&push->region->head);

	return load_acquire(&push->region->tail) - head;
}

uint64_t push_expired(const struct push *push)
{
	return __atomic_load_n(&push->expired, __ATOMIC_RELAXED);
}

int push_get_stats(const struct push *push, struct pkt_push_stats *stats)
{
	return ioctl(push->device, PKT_PUSH_STATS, stats);
}

int push_now(struct push *push)
{
	return ioctl(push->device, PKT_PUSH_NOW);
}

int push_set_threshold(struct push *push, uint64_t bytes)
{
	return ioctl(push->device, PKT_PUSH_THRESHOLD, &bytes);
}

int push_reset(struct push *push)
{
	return ioctl(push->device, PKT_PUSH_RESET);
}
