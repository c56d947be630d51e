/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_FATE_H
#define FRESHWIRE_FATE_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

// FW_ACKED, FW_SENT, FW_DROPPED or FW_REFUSED.
typedef uint32_t fw_outcome;

// What became of a record. Times are nanoseconds of fw_now; 0 is unknown.
typedef struct {
  // The record's number.
  uint64_t seq;
  // When its first byte was handed to the carrier.
  uint64_t committed_at;
  // When its last byte was, or when it was dropped.
  uint64_t finished_at;
  // When its last byte was acknowledged.
  uint64_t acked_at;
  // When its last byte entered the queueing discipline of the network interface, with `departures`.
  uint64_t scheduled_at;
  // When the interface's driver had its last byte for the device, with `departures`.
  uint64_t departed_at;
  // How it ended.
  fw_outcome outcome;
  // Bytes committed and not yet on the wire at its commit point.
  uint32_t horizon;
  // Reason of a drop, as the ring's ABI numbers it. From 1 on: expired, predicted late, window's end, layer shed, superseded,
  // reference lost, application. From 8 on: abandoned, closed, sender lost, holder lost, invalid, connection lost.
  uint8_t reason;
} fw_fate;

// Counters of a sink. Times are nanoseconds, rates bits per second, 0 while unknown.
typedef struct {
  // Records of which at least one byte was committed.
  uint64_t committed;
  // Records whose last byte was handed to the carrier.
  uint64_t finished;
  // Records dropped.
  uint64_t dropped;
  // Bytes handed to the carrier, framing included.
  uint64_t bytes;
  // Bytes that the peer has acknowledged.
  uint64_t acked;
  // Bytes committed and not on the wire after the last write.
  uint64_t horizon;
  // The largest horizon.
  uint64_t horizon_max;
  // Delivery rate.
  uint64_t rate;
  // Smoothed round trip.
  uint64_t rtt;
  // Smallest round trip.
  uint64_t min_rtt;
  // Write system calls.
  uint64_t writes;
  // Queued values that fw_sink_replace overwrote in place. The new value has the fate; these have none.
  uint64_t overwritten;
  // Time for which records were held back because the program had not read what its kernel has received, in nanoseconds.
  uint64_t held_unread;
} fw_stats;

// The receiver's host has all of it.
#define FW_ACKED 0

// All of it was handed over; no acknowledgement is known.
#define FW_SENT 1

// It was dropped, because of `reason`.
#define FW_DROPPED 2

// It was never on the ring.
#define FW_REFUSED 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Writes the next known fate of a record, each once. FW_NOTHING: there is none now.
//
// # Safety
//
// `fate` points to a writable structure.
fw_status fw_sink_poll_fate(fw_sink sink, fw_fate *fate);

// Writes the counters of a sink, also after its end.
//
// # Safety
//
// `stats` points to a writable structure.
fw_status fw_sink_stats(fw_sink sink, fw_stats *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_FATE_H */
