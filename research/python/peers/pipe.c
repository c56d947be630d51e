// SPDX-License-Identifier: MIT OR Apache-2.0
/* The pipes to the lab, and the clock that it shares. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peer.h"

struct incoming {
	uint32_t size;
	uint32_t layer;
	uint64_t source;
	uint64_t deadline;
} __attribute__((packed));

struct outgoing {
	uint32_t size;
	uint64_t arrival;
} __attribute__((packed));

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static void put(const void *bytes, size_t size)
{
	if (fwrite(bytes, 1, size, stdout) != size)
		exit(1);
}

void say_ready(void)
{
	put("ready\n", 6);
	fflush(stdout);
}

bool next_message(struct message *message)
{
	struct incoming head;

	if (fread(&head, 1, sizeof(head), stdin) != sizeof(head))
		return false;
	message->size = be32toh(head.size);
	message->layer = be32toh(head.layer);
	message->source = be64toh(head.source);
	message->deadline = be64toh(head.deadline);
	if (message->size > MAX_MESSAGE) {
		fprintf(stderr, "a message of %u bytes is too large\n", message->size);
		exit(1);
	}
	return fread(message->bytes, 1, message->size, stdin) == message->size;
}

void arrived(const unsigned char *bytes, uint32_t size)
{
	struct outgoing head = { .size = htobe32(size), .arrival = htobe64(now_ns()) };

	put(&head, sizeof(head));
	put(bytes, size);
	if (fflush(stdout))
		exit(1);
}
