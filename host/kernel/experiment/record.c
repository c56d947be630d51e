// SPDX-License-Identifier: MIT OR Apache-2.0
/* The clock and the bytes of a record. */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "layers.h"

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void sleep_until(uint64_t instant)
{
	struct timespec at = {
		.tv_sec = (time_t)(instant / SECOND),
		.tv_nsec = (long)(instant % SECOND),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

/* Splitmix64 over the record's number and the word's place. */
static uint64_t payload_word(uint64_t seq, uint64_t index)
{
	uint64_t word = (seq * 0xa0761d6478bd642fULL + index) * 0x9e3779b97f4a7c15ULL;

	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
	return htobe64(word ^ (word >> 31));
}

bool payload_is_right(uint64_t seq, const unsigned char *payload, size_t size)
{
	size_t at;

	for (at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t word = payload_word(seq, at / sizeof(uint64_t));
		size_t left = size - at < sizeof(word) ? size - at : sizeof(word);

		if (memcmp(payload + at, &word, left))
			return false;
	}
	return true;
}

static void put32(unsigned char *to, uint32_t value)
{
	value = htobe32(value);
	memcpy(to, &value, sizeof(value));
}

static void put64(unsigned char *to, uint64_t value)
{
	value = htobe64(value);
	memcpy(to, &value, sizeof(value));
}

static uint32_t get32(const unsigned char *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof(value));
	return be32toh(value);
}

static uint64_t get64(const unsigned char *from)
{
	uint64_t value;

	memcpy(&value, from, sizeof(value));
	return be64toh(value);
}

void make_record(uint64_t seq, uint64_t submitted, unsigned char *record)
{
	size_t at;

	memcpy(record, "FWLR\1", 5);
	record[5] = (unsigned char)(seq % LAYERS);
	record[6] = 0;
	record[7] = HEADER_BYTES;
	put32(record + 8, (uint32_t)(seq / LAYERS));
	put32(record + 12, LAYER_BYTES);
	put64(record + 16, seq);
	put64(record + 24, submitted);
	for (at = HEADER_BYTES; at < LAYER_BYTES; at += sizeof(uint64_t)) {
		uint64_t word = payload_word(seq, (at - HEADER_BYTES) / sizeof(uint64_t));

		memcpy(record + at, &word, sizeof(word));
	}
}

bool read_header(const unsigned char *bytes, struct header *header)
{
	if (memcmp(bytes, "FWLR\1", 5) || bytes[6] != 0 || bytes[7] != HEADER_BYTES)
		return false;
	header->layer = bytes[5];
	header->window = get32(bytes + 8);
	header->record_bytes = get32(bytes + 12);
	header->seq = get64(bytes + 16);
	header->submitted = get64(bytes + 24);
	return header->record_bytes == LAYER_BYTES && header->seq % LAYERS == header->layer &&
	       header->seq / LAYERS == header->window;
}
