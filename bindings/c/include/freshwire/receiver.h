/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_RECEIVER_H
#define FRESHWIRE_RECEIVER_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

// A record that a receiver has read.
typedef struct {
  // When its last byte was read.
  uint64_t arrived;
  // Its bytes.
  size_t len;
  // The low 32 bits of its number.
  uint32_t id;
  // 1: the sender began it and gave it up; there are no bytes.
  uint8_t abandoned;
} fw_received;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a receiver of a stream with FW_CHUNKED framing. The descriptor is duplicated. `max_record_bytes` of 0 is 16 MiB.
//
// # Safety
//
// `receiver` points to a writable handle.
fw_status fw_receiver_new(int fd,
                          size_t max_record_bytes,
                          fw_receiver *receiver);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the next record, and copies it to `buffer`. FW_NOTHING: none
// came. FW_END: the stream has ended between two records. FW_SMALL_BUFFER: it has `record->len` bytes, and waits for a call with
// a larger buffer.
//
// # Safety
//
// `buffer` points to `size` writable bytes, `record` to a writable structure.
fw_status fw_receiver_next(fw_receiver receiver,
                           uint64_t timeout,
                           uint8_t *buffer,
                           size_t size,
                           fw_received *record);

// Frees a receiver.
fw_status fw_receiver_free(fw_receiver receiver);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_RECEIVER_H */
