/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One end of another transport, for the lab, which runs it in a namespace of the emulated
 * link and talks to it through pipes. All numbers are big-endian, all instants nanoseconds of
 * CLOCK_MONOTONIC.
 *
 * A sender says "ready" and a newline when it is connected, then sends each message that
 * comes on standard input, and ends with it:
 *	u32 size, u32 layer, u64 source, u64 deadline, the bytes
 * A receiver says "ready" and a newline when it listens, then writes each message that
 * arrives to standard output:
 *	u32 size, u64 arrival, the bytes
 * What goes wrong is told on standard error, and ends the program with 1.
 */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stdint.h>

#define MS		1000000ULL

/* As the lab's other readers. */
#define MAX_MESSAGE	(1 << 20)

struct message {
	uint32_t size;
	uint32_t layer;		/* 0 is the most important */
	uint64_t source;	/* when it was of age 0 */
	uint64_t deadline;	/* when it loses its value */
	unsigned char bytes[MAX_MESSAGE];
};

uint64_t now_ns(void);
void say_ready(void);
/* False: standard input has ended. */
bool next_message(struct message *message);
/* Hands over what has just arrived. */
void arrived(const unsigned char *bytes, uint32_t size);

#endif /* PEER_H */
