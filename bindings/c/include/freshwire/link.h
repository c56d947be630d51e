/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_LINK_H
#define FRESHWIRE_LINK_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

// Zero, as a rate: nothing passes until the rate is changed.
#define FW_OUTAGE 0

// One direction of a link.
typedef struct {
  // Bits per second, counting whole IP packets, such as fw_rate_parse reads; FW_DEFAULT is no limit.
  uint64_t rate;
  // Delay; FW_DEFAULT is none.
  uint64_t delay;
  // Bytes that may wait for the rate: what does not fit is dropped. FW_DEFAULT is 15000.
  uint64_t queue;
  // Share of the packets that are lost, from 0 to 1.
  double loss;
  // Mean length of a run of lost packets; 0 loses them singly.
  double burst;
  // Share of the packets that arrive later than the others, from 0 to 1. Packets behind them overtake them.
  double reorder;
  // How much later.
  uint64_t reorder_by;
} fw_link_direction;

// Settings of a link, from fw_link_config_default.
typedef struct {
  // From the near end to the far one.
  fw_link_direction up;
  // From the far end to the near one.
  fw_link_direction down;
  // Decides which packets are lost: the same seed loses the same packets.
  uint64_t seed;
  // Address of a server of this machine, such as "127.0.0.1:8000", to be reached through the link at fw_link_port; or NULL.
  const char *to;
} fw_link_config;

// FW_NEAR or FW_FAR.
typedef uint32_t fw_end;

// FW_UP or FW_DOWN.
typedef uint32_t fw_direction;

// What a link has done in one direction. Lengths are those of IP packets.
typedef struct {
  // Packets that came.
  uint64_t offered_packets;
  // Their bytes.
  uint64_t offered_bytes;
  // Packets that were delivered.
  uint64_t delivered_packets;
  // Their bytes.
  uint64_t delivered_bytes;
  // Packets lost on the wire.
  uint64_t lost_packets;
  // Packets that found the queue full.
  uint64_t dropped_packets;
  // Bytes that wait now.
  uint64_t queued_bytes;
  // Most bytes that ever waited.
  uint64_t queue_peak_bytes;
  // Longest that a packet waited; UINT64_MAX behind an outage without end.
  uint64_t queue_delay_max;
} fw_link_counters;

// What a link has done so far.
typedef struct {
  // From the near end to the far one.
  fw_link_counters up;
  // From the far end to the near one.
  fw_link_counters down;
  // 99th percentile of the time by which this machine delivered packets too late.
  uint64_t late;
} fw_link_account;

// The end with the address 10.77.0.1.
#define FW_NEAR 0

// The end with the address 10.77.0.2.
#define FW_FAR 1

// From the near end to the far one.
#define FW_UP 0

// From the far end to the near one.
#define FW_DOWN 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the settings of a link without limit, delay and loss.
fw_link_config fw_link_config_default(void);

// Reads a rate such as "300kbit", "6Mbit" or "512Kibit", as the command `freshwire link` does. Writes bits per second.
//
// # Safety
//
// `rate` is a string; `bits` points to a writable value.
fw_status fw_rate_parse(const char *rate, uint64_t *bits);

// Makes an emulated link, without root: Linux's own TCP and UDP at both ends, and a path between them. It runs in a process of its own,
// which ends with the link and with this process. `config` may be NULL for the default. FW_NOT_PERMITTED where the system gives no network
// namespaces.
//
// # Safety
//
// `config` is NULL or points to valid settings; `link` points to a writable handle.
fw_status fw_link_new(const fw_link_config *config,
                      fw_link *link);

// Makes a socket at an end of a link, with the arguments of socket(2). The descriptor is the caller's, to be closed; it is not inherited
// by programs that are executed.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_link_socket(fw_link link,
                         fw_end end,
                         int domain,
                         int kind,
                         int protocol,
                         int *fd);

// Writes the port of 127.0.0.1 where the server `to` is reached through the link, over TCP and UDP. FW_NOTHING without `to`.
//
// # Safety
//
// `port` points to a writable value.
fw_status fw_link_port(fw_link link,
                       uint16_t *port);

// Gives a direction another rate from now on, for what waits too: bits per second, FW_OUTAGE, or FW_DEFAULT for no limit.
fw_status fw_link_set_rate(fw_link link,
                           fw_direction which,
                           uint64_t bits);

// Writes what a link has done so far; of a closed one, at its end.
//
// # Safety
//
// `stats` points to a writable structure.
fw_status fw_link_stats(fw_link link, fw_link_account *stats);

// Ends a link; the handle stays valid for its counters until it is freed. FW_FAILED if this machine did not carry what the settings say,
// such as because it was too busy: a test that depends on times is to be repeated. Sockets stay open, without a path between the ends.
fw_status fw_link_close(fw_link link);

// Frees a link, and ends it if it was not closed.
fw_status fw_link_free(fw_link link);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_LINK_H */
