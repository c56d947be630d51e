/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The layered stream of Birkedal 2006, section 5.1, in C: what the sender and the
 * receiver of the experiment share. Every record begins with the header "FWLR" of
 * spec/framing.md, the rest follows from its number, so that each byte is checked.
 */
#ifndef LAYERS_H
#define LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LAYERS		8
#define LAYER_BYTES	16384
#define HEADER_BYTES	32
#define MS		1000000ULL
#define SECOND		1000000000ULL
/* All layers of a window are played together: of use until a window after it began. */
#define DEADLINE	SECOND

/* From the connection to the first record. */
#define LEAD		(100 * MS)

struct header {
	uint8_t layer;
	uint32_t window;
	uint32_t record_bytes;
	uint64_t seq;
	uint64_t submitted;
};

/* When a record is due, and when it loses its value, from the start of the run. */
static inline uint64_t due(uint64_t seq)
{
	return seq / LAYERS * SECOND + seq % LAYERS * (SECOND / LAYERS);
}

static inline uint64_t deadline(uint64_t seq)
{
	return seq / LAYERS * SECOND + DEADLINE;
}

uint64_t now_ns(void);
void sleep_until(uint64_t instant);
void make_record(uint64_t seq, uint64_t submitted, unsigned char *record);
/* False: these bytes do not begin a record. */
bool read_header(const unsigned char *bytes, struct header *header);
bool payload_is_right(uint64_t seq, const unsigned char *payload, size_t size);

int receive(const char *port, bool sctp, unsigned int seconds, FILE *out);

/* What a scheme's sender leaves behind. */
struct sent {
	uint64_t committed;	/* when its first byte could not be taken back; 0 */
	const char *fate;	/* of the result file; NULL: unsent */
};

struct run {
	int fd;
	unsigned int seconds;
	uint64_t start;
	uint64_t stop;
	uint64_t sent_bytes;
	uint64_t syscalls;	/* for data: writes, notifications */
	uint64_t late;		/* how late the source was at worst */
	struct sent *sent;
};

static inline uint64_t records_of(const struct run *run)
{
	return (uint64_t)run->seconds * LAYERS;
}

int send_tcp(struct run *run);
int send_sctp(struct run *run, bool by_priority);
/* How a sender uses the ring. */
struct ring_scheme {
	const char *name;
	/* Each record has a deadline, or ldc_drop() is called at each window's end. */
	bool kernel_drops;
	/* The base layer, without which the others are worth nothing, waits a window longer. */
	bool keeps_base;
	bool no_horizon;
	bool zerocopy;
};

int send_ring(struct run *run, const struct ring_scheme *scheme, FILE *out);

/* Looks at the socket's unsent bytes every few milliseconds until it is stopped. */
struct sampler;
struct sampler *sampler_start(int fd, uint32_t segment);
void sampler_stop(struct sampler *sampler, FILE *out);

#endif /* LAYERS_H */
