/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_RESERVATION_H
#define FRESHWIRE_RESERVATION_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reserves memory for a record of at most `len` bytes for a sink, which the program writes and then commits with fw_sink_commit:
// fw_reservation_piece tells where. `meta` may be NULL; the policy drops stale records for it if the ring is full. Otherwise
// as fw_sink_push. A reservation holds memory of the sender's arena and no place in the ring.
//
// # Safety
//
// `meta` is NULL or points to a valid value; `reservation` points to a writable handle.
fw_status fw_sink_reserve(fw_sink sink,
                          size_t len,
                          const fw_meta *meta,
                          fw_reservation *reservation);

// Reserves memory for a record of at most `len` bytes for several sinks of a sender, to be committed with fw_sender_commit_to_all.
// `meta` may be NULL; the policies drop stale records for it if the arena is full.
//
// # Safety
//
// `sinks` points to `count` handles; `meta` is NULL or points to a valid value; `reservation` points to a writable handle.
fw_status fw_sender_reserve(fw_sender sender,
                            const fw_sink *sinks,
                            size_t count,
                            size_t len,
                            const fw_meta *meta,
                            fw_reservation *reservation);

// Writes where byte `offset` of the record goes, and how many bytes lie there in a row. A record that needs several blocks of the
// arena may have several pieces: the next one begins at `offset` + `len`. FW_END behind the last byte. The memory is the
// program's until the reservation is committed or freed; nothing may be written to it afterwards.
//
// # Safety
//
// `data` and `len` point to writable values.
fw_status fw_reservation_piece(fw_reservation reservation,
                               size_t offset,
                               uint8_t **data,
                               size_t *len);

// Queues the first `len` bytes of a reservation, without a copy, and frees it; the rest of its memory is free at once. `meta` and
// `seq` as in fw_sink_push. After a failure, such as FW_FULL, the reservation is as it was.
//
// # Safety
//
// `meta` and `seq` are NULL or point to a valid value. Nothing writes to the reservation's memory any more.
fw_status fw_sink_commit(fw_sink sink,
                         fw_reservation reservation,
                         size_t len,
                         const fw_meta *meta,
                         uint64_t *seq);

// Queues the first `len` bytes of a reservation of fw_sender_reserve for several sinks, and frees it. Otherwise as
// fw_sender_push_to_all. A sink that misses the record does not get it later.
//
// # Safety
//
// As fw_sender_push_to_all. Nothing writes to the reservation's memory any more.
fw_status fw_sender_commit_to_all(fw_sender sender,
                                  const fw_sink *sinks,
                                  size_t count,
                                  fw_reservation reservation,
                                  size_t len,
                                  const fw_meta *meta,
                                  uint64_t *seq,
                                  fw_status *missed);

// Gives a reservation back. Nothing may be written to its memory any more.
fw_status fw_reservation_free(fw_reservation reservation);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_RESERVATION_H */
