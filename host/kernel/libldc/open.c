// SPDX-License-Identifier: MIT OR Apache-2.0
/* Making a ring, and everything that asks the kernel. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

#ifndef SOL_TCP
#define SOL_TCP IPPROTO_TCP
#endif

/* As many as the library in Rust keeps (MAX_KEPT_FATES). */
#define DEFAULT_FATES	16384

static unsigned int power_of_two(unsigned int at_least)
{
	unsigned int power = 2;

	while (power < at_least && power < 65536)
		power *= 2;
	return power;
}

_Static_assert(LDC_MIN_SLOTS == 2 && LDC_MAX_SLOTS == 65536 && LDC_MAX_KEEP_ACKS == 65536,
	       "the limits of power_of_two()");

/* The ring at @base, which the kernel has laid out. */
struct ldc *ldc_of_region(int socket, void *base, const struct ldc_geometry *geometry,
			  uint32_t fates)
{
	struct ldc *ldc = calloc(1, sizeof(*ldc));
	struct ldc_region *region = base;

	if (!ldc)
		return NULL;
	ldc->span = calloc(geometry->slots, sizeof(*ldc->span));
	if (!ldc->span || ldc_fates_init(ldc, fates)) {
		free(ldc->span);
		free(ldc);
		return NULL;
	}
	ldc->socket = socket;
	ldc->pid = (uint32_t)getpid();
	ldc->region = base;
	ldc->region_bytes = geometry->total_bytes;
	ldc->slots = geometry->slots;
	ldc->slot_shift = (uint32_t)__builtin_ctz(geometry->slots);
	ldc->block_bytes = geometry->block_bytes;
	ldc->block_stride = region->block_stride;
	ldc->lowat = 1;
	ldc->ring = (void *)((unsigned char *)base + region->rings_offset);
	ldc->slot = (void *)((unsigned char *)base + region->slots_offset);
	ldc->arena = (unsigned char *)base + region->arena_offset;
	return ldc;
}

static int set_up(int socket, const struct ldc_options *options, uint32_t fates,
		  struct ldc_geometry *geometry)
{
	uint32_t horizon = options->no_horizon ? 0 : 1;
	uint32_t zerocopy = options->zerocopy ? 1 : 0;
	uint32_t watch = options->watch_ms;
	socklen_t len = sizeof(*geometry);

	if (setsockopt(socket, SOL_TCP, TCP_ULP, TCP_ULP_LDC, sizeof(TCP_ULP_LDC) - 1))
		return -1;
	/* Before the ring is made, and with it the first chance to send. */
	if (setsockopt(socket, SOL_LDC, LDC_HORIZON, &horizon, sizeof(horizon)) ||
	    setsockopt(socket, SOL_LDC, LDC_ZEROCOPY, &zerocopy, sizeof(zerocopy)))
		return -1;
	/* An older kernel module does not know it. */
	if (watch && setsockopt(socket, SOL_LDC, LDC_WATCH, &watch, sizeof(watch)))
		return -1;
	if (setsockopt(socket, SOL_LDC, LDC_KEEP_ACKS, &fates, sizeof(fates)))
		return -1;
	if (setsockopt(socket, SOL_LDC, LDC_RING, geometry, sizeof(*geometry)))
		return -1;
	return getsockopt(socket, SOL_LDC, LDC_RING, geometry, &len);
}

struct ldc *ldc_open(int socket, const struct ldc_options *options)
{
	struct ldc_options defaults = { 0 };
	struct ldc_geometry geometry = { 0 };
	struct ldc *ldc;
	uint32_t fates;
	void *base;

	if (!options)
		options = &defaults;
	if (options->packets > LDC_MAX_SLOTS || options->fates > LDC_MAX_KEEP_ACKS) {
		errno = EINVAL;
		return NULL;
	}
	geometry.slots = power_of_two(options->packets ? options->packets : 64);
	geometry.block_bytes = options->packet_bytes ? options->packet_bytes : 16384;
	geometry.blocks = geometry.slots;
	fates = power_of_two(options->fates ? options->fates : DEFAULT_FATES);
	if (set_up(socket, options, fates, &geometry))
		return NULL;
	base = mmap(NULL, geometry.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, socket, 0);
	if (base == MAP_FAILED)
		return NULL;
	ldc = ldc_of_region(socket, base, &geometry, fates);
	if (!ldc)
		munmap(base, geometry.total_bytes);
	return ldc;
}

struct ldc *ldc_init(int socket, int ring_size, int packet_size)
{
	struct ldc_options options = { 0 };

	if (ring_size <= 0 || packet_size <= 0) {
		errno = EINVAL;
		return NULL;
	}
	options.packets = (unsigned int)ring_size;
	options.packet_bytes = (unsigned int)packet_size;
	return ldc_open(socket, &options);
}

void ldc_close(struct ldc *ldc)
{
	if (!ldc)
		return;
	munmap(ldc->region, ldc->region_bytes);
	ldc_fates_free(ldc);
	free(ldc->span);
	free(ldc);
}

static int drop_all(const struct ldc_record *record, size_t size, void *context)
{
	(void)record;
	(void)size;
	(void)context;
	return 1;
}

/* The sender sleeps or has closed the ring, as @flag says. */
int ldc_wake(struct ldc *ldc, uint32_t flag)
{
	if (flag & LDC_KERN_CLOSED) {
		/* R-ORDER-6: the kernel may have looked before our record was there. */
		ldc_drop_if(ldc, LDC_REASON_CLOSED, drop_all, NULL);
		errno = EPIPE;
		return -1;
	}
	/* Only the one who clears the bit notifies. */
	flag = __atomic_fetch_and(&ldc->ring->kern_flag, ~LDC_KERN_SLEEPS, __ATOMIC_ACQ_REL);
	if (!(flag & LDC_KERN_SLEEPS))
		return 0;
	return ioctl(ldc->socket, LDC_IOC_NOTIFY) < 0 ? -1 : 1;
}

int ldc_notify(struct ldc *ldc)
{
	return wake_if_asleep(ldc);
}

int ldc_wait(struct ldc *ldc, size_t size, int timeout_ms)
{
	size_t span = size ? (size - 1) / ldc->block_bytes + 1 : 1;
	struct pollfd fd = { .fd = ldc->socket, .events = POLLOUT };
	uint32_t lowat = (uint32_t)span;
	int ready;

	if (span > ldc->slots) {
		errno = EMSGSIZE;
		return -1;
	}
	if (ldc_room(ldc) >= span)
		return 1;
	if (lowat != ldc->lowat) {
		if (setsockopt(ldc->socket, SOL_LDC, LDC_LOWAT, &lowat, sizeof(lowat)))
			return -1;
		ldc->lowat = lowat;
	}
	ready = poll(&fd, 1, timeout_ms);
	if (ready <= 0)
		return ready;
	if (load_relaxed(&ldc->ring->kern_flag) & LDC_KERN_CLOSED) {
		errno = EPIPE;
		return -1;
	}
	return ldc_room(ldc) >= span;
}

int ldc_get_stats(const struct ldc *ldc, struct ldc_stats *stats)
{
	socklen_t len = sizeof(*stats);

	memset(stats, 0, sizeof(*stats));
	return getsockopt(ldc->socket, SOL_LDC, LDC_STATS, stats, &len);
}

uint64_t ldc_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}
