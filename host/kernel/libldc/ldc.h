/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libldc - late data choice for TCP.
 *
 * A record that is sent with ldc_send() lies in a ring that the application and
 * the kernel share until TCP can put it on the wire. Until then it can be
 * dropped, modified or replaced, and no system call is needed for any of it: the
 * kernel is notified only when its sender sleeps.
 *
 *	int fd = ...;				a connected TCP socket
 *	struct ldc *ldc = ldc_init(fd, 64, 16384);
 *
 *	ldc_send(ldc, 1, frame, size, 1);
 *	ldc_drop(ldc, 1);			0: it was taken already
 *	ldc_close(ldc);
 *	close(fd);				the rest is sent, then FIN
 *
 * The receiver gets the records' bytes, back to back, each whole: where one ends
 * and what was left out the payload itself has to say.
 *
 * Calls that fail return -1 (or NULL) and set errno. One thread at a time may
 * use ldc_send(), ldc_send_record(), ldc_replace(), ldc_wait(), ldc_room() and
 * ldc_next_fate() of a ring, the producer; every other call is open to all
 * threads at any time. A child process does not inherit the ring.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef LDC_H
#define LDC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/tcp_ldc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LDC_API __attribute__((visibility("default")))

/* A ring and its socket. */
struct ldc;

/**
 * struct ldc_options - how a ring is made; zero is the default throughout
 * @packets: slots of the ring, rounded up to a power of two, at most 65536 (64)
 * @packet_bytes: payload bytes of a slot, 16 to 2^24 (16384). A larger record
 *	takes several slots, at most all of them.
 * @no_horizon: hands a segment over only when TCP can send it at once, instead of
 *	keeping one ready. Not for congestion controls that pace, such as bbr: their timer
 *	finds nothing to send, and most of the link stays idle.
 * @zerocopy: segments refer to the ring instead of copying from it; a record's
 *	slots are then free only when its last segment is acknowledged
 * @watch_ms: instead of sleeping the kernel looks at an empty ring again after so
 *	many milliseconds, at most 1000, until nothing has come for a second. A steady
 *	stream then makes one system call, at its beginning; a record waits for the
 *	next look.
 * @fates: fates that are kept for ldc_next_fate() when slots are used again, and records
 *	that may wait for their acknowledgement then, rounded up to a power of two, at most
 *	65536 (16384). Each takes 64 bytes here and 40 in the kernel.
 */
struct ldc_options {
	unsigned int packets;
	unsigned int packet_bytes;
	int no_horizon;
	int zerocopy;
	unsigned int watch_ms;
	unsigned int fates;
};

/**
 * struct ldc_record - what a record is, beside its bytes
 * @user_seq: the application's number, for ldc_drop() and ldc_modify(). Several
 *	records may have the same.
 * @generated: when its data came into being; for whoever looks, not for the kernel
 * @deadline: the kernel does not begin the record at or after it; LDC_NO_DEADLINE
 * @key: what ldc_replace() goes by; 0 for none
 * @group: records that are decodable together
 * @refs: what this record needs, as distance back in user_seq; 0 for none
 * @layer: its rank, 0 is the base
 */
struct ldc_record {
	uint64_t user_seq;
	uint64_t generated;
	uint64_t deadline;
	uint64_t key;
	uint32_t group;
	uint32_t refs[2];
	uint8_t layer;
};

/* A record that has no deadline and nothing else to say. */
#define LDC_RECORD(number) { .user_seq = (number), .deadline = LDC_NO_DEADLINE }

/* What became of a record. */
enum ldc_outcome {
	LDC_WAS_ACKED,		/* the receiver's host has all of it */
	LDC_WAS_SENT,		/* handed to TCP; no acknowledgement will be seen */
	LDC_WAS_DROPPED,	/* see enum ldc_reason in linux/tcp_ldc.h */
};

/**
 * struct ldc_fate - the end of a record
 * @user_seq: the application's number
 * @outcome: what became of it
 * @reason: why it was dropped: enum ldc_reason, or the application's own from 128
 * @committed_at: when its first byte went to TCP; 0 if it never did
 * @finished_at: when its last byte went to TCP, or when the kernel dropped it; 0 if
 *	the application did
 * @acked_at: when its last byte was acknowledged, or 0
 * @horizon: bytes that were committed and not sent when it was begun
 */
struct ldc_fate {
	uint64_t user_seq;
	enum ldc_outcome outcome;
	unsigned int reason;
	uint64_t committed_at;
	uint64_t finished_at;
	uint64_t acked_at;
	uint32_t horizon;
};

/**
 * ldc_init() - makes a connected TCP socket send from a ring
 * @socket: an established connection; stays the caller's, who closes it after
 *	ldc_close(). send() on it fails from now on with EBUSY.
 * @ring_size: slots of the ring, in packets
 * @packet_size: payload bytes of a packet
 *
 * The region is locked memory and counts towards RLIMIT_MEMLOCK.
 *
 * Return: the ring, or NULL with errno: ENOENT if the kernel has no tcp_ldc,
 * ENOPROTOOPT if its tcp_ldc is older than this library: unload it and load the new one;
 * ENOTCONN, EBUSY if the socket has another upper-layer protocol, EINVAL, ENOBUFS or
 * ENOMEM.
 */
LDC_API struct ldc *ldc_init(int socket, int ring_size, int packet_size);

/**
 * ldc_open() - ldc_init() with everything to choose
 * @socket: an established connection
 * @options: NULL for the defaults
 */
LDC_API struct ldc *ldc_open(int socket, const struct ldc_options *options);

/**
 * ldc_close() - gives the ring back
 *
 * Unmaps it and frees @ldc, which may be NULL. What is in the ring is still sent as
 * long as the socket is open; close() on it finishes the record that was begun and
 * drops the others.
 */
LDC_API void ldc_close(struct ldc *ldc);

/**
 * ldc_send() - puts a record behind the others
 * @ldc: the ring
 * @user_seq: the application's number
 * @data: its bytes, which are copied
 * @size: how many, at most what the whole ring holds
 * @notify: whether to wake the kernel's sender if it sleeps. Zero lets the ring fill
 *	first; ldc_notify() has to follow.
 *
 * Return: @size, or -1 with errno: EAGAIN if there is no room (nothing was put
 * anywhere; see ldc_wait()), EMSGSIZE if there never is, EPIPE if the connection has
 * ended.
 */
LDC_API ssize_t ldc_send(struct ldc *ldc, uint64_t user_seq, const void *data, size_t size,
			 int notify);

/**
 * ldc_send_record() - ldc_send() with a deadline, a layer, a key
 */
LDC_API ssize_t ldc_send_record(struct ldc *ldc, const struct ldc_record *record,
				const void *data, size_t size, int notify);

/**
 * ldc_replace() - a newer version of what has the same key
 *
 * Overwrites the newest unsent record with @record->key in its place in the queue if
 * the bytes fit into its slots; otherwise drops it (LDC_REASON_SUPERSEDED) and sends the
 * new one behind the others. If there is none it is ldc_send_record(). The receiver
 * gets one version or the other, never a mix.
 *
 * Return: as ldc_send().
 */
LDC_API ssize_t ldc_replace(struct ldc *ldc, const struct ldc_record *record, const void *data,
			    size_t size, int notify);

/**
 * ldc_drop() - takes back all records with a number that were not begun
 *
 * Return: the packets dropped. Exact: what is counted is never sent, and what is not
 * was begun, or dropped, before.
 */
LDC_API int ldc_drop(struct ldc *ldc, uint64_t user_seq);

/**
 * ldc_drop_if() - takes back the records that a function picks
 * @ldc: the ring
 * @reason: what their fate will say: LDC_REASON_* or 128 to 255
 * @pick: is asked about each unsent record, oldest first; nonzero drops it
 * @context: handed to @pick
 *
 * Return: the packets dropped.
 */
LDC_API int ldc_drop_if(struct ldc *ldc, unsigned int reason,
			int (*pick)(const struct ldc_record *record, size_t size, void *context),
			void *context);

/**
 * ldc_modify() - overwrites bytes of an unsent record in place
 * @ldc: the ring
 * @user_seq: its number; of several the oldest unsent one
 * @offset: where in the record
 * @data: the new bytes
 * @size: how many; the record keeps its length
 *
 * Return: 0, or -1 with errno: ENOENT if no unsent record has this number (too late),
 * ERANGE if the bytes lie outside of it.
 */
LDC_API int ldc_modify(struct ldc *ldc, uint64_t user_seq, size_t offset, const void *data,
		       size_t size);

/**
 * ldc_set_deadline() - changes when an unsent record loses its value
 *
 * Return: 0, or -1 with ENOENT.
 */
LDC_API int ldc_set_deadline(struct ldc *ldc, uint64_t user_seq, uint64_t deadline);

/**
 * ldc_hold() - lets nothing be begun from a record on until ldc_release()
 *
 * Return: 0 if the oldest unsent record with this number stays unsent and so does all
 * that is unsent behind it; -1 with ENOENT if it was too late for that, and nothing is
 * held then.
 */
LDC_API int ldc_hold(struct ldc *ldc, uint64_t user_seq);

/**
 * ldc_release() - ends ldc_hold()
 *
 * Return: as ldc_notify().
 */
LDC_API int ldc_release(struct ldc *ldc);

/**
 * ldc_notify() - wakes the kernel's sender if it sleeps
 *
 * Return: 1 if it slept, 0 if it did not and no system call was made, -1 with EPIPE if
 * the connection has ended.
 */
LDC_API int ldc_notify(struct ldc *ldc);

/**
 * ldc_room() - packets that fit now
 */
LDC_API unsigned int ldc_room(struct ldc *ldc);

/**
 * ldc_wait() - waits until a record fits
 * @ldc: the ring
 * @size: its bytes
 * @timeout_ms: at most that long; -1 for ever
 *
 * Return: 1 if it fits, 0 after the time, -1 with errno: EMSGSIZE, EINTR, EPIPE.
 */
LDC_API int ldc_wait(struct ldc *ldc, size_t size, int timeout_ms);

/**
 * ldc_next_fate() - what became of the oldest record
 *
 * Fates come in the order of sending. A record's fate is known when it was dropped or
 * acknowledged. It does not need the record's slots: if these are used again before,
 * @fates of struct ldc_options fates are kept. A call makes a system call only while the
 * oldest of them awaits its acknowledgement.
 *
 * Return: 1, or 0 if the oldest record is not finished.
 */
LDC_API int ldc_next_fate(struct ldc *ldc, struct ldc_fate *fate);

/**
 * ldc_fates_lost() - fates that were not read and not kept
 */
LDC_API uint64_t ldc_fates_lost(const struct ldc *ldc);

/**
 * ldc_get_stats() - what the kernel's sender has done
 *
 * Return: 0, or -1 with errno.
 */
LDC_API int ldc_get_stats(const struct ldc *ldc, struct ldc_stats *stats);

/**
 * ldc_now() - CLOCK_MONOTONIC in nanoseconds, for deadlines
 */
LDC_API uint64_t ldc_now(void);

#ifdef __cplusplus
}
#endif

#endif /* LDC_H */
