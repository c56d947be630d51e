/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_POLICY_H
#define FRESHWIRE_POLICY_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

// No rendition, where a number names one.
#define FW_NO_RENDITION UINT32_MAX

// FW_WHY_START to FW_WHY_GONE.
typedef uint32_t fw_why;

// Which rendition a receiver has, and which it wants.
typedef struct {
  // The rendition whose pictures it gets; FW_NO_RENDITION before the first.
  uint32_t current;
  // The one whose next key frame it waits for; `current` if it is content. FW_NO_RENDITION: any to begin with.
  uint32_t wanted;
  // Why it has the present one, or wants the other one.
  fw_why why;
  // How often it has changed.
  uint32_t changes;
} fw_selected;

// What a rendition asks of a path, as measured from key frame to key frame.
typedef struct {
  // Bytes a second.
  uint64_t bytes_per_sec;
  // Bytes of a key frame.
  uint64_t key_bytes;
  // Time from one key frame to the next.
  uint64_t key_interval;
} fw_cost;

// The first one.
#define FW_WHY_START 0

// Key frames have left so quickly that the path carries it.
#define FW_WHY_CARRIES 1

// The path carried less than the one before.
#define FW_WHY_SLOW 2

// Pictures of the one before came late or were dropped.
#define FW_WHY_LATE 3

// The one before has no source any more.
#define FW_WHY_GONE 4

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a gate, for the member `gate` of the fw_policy of one sink. At most `records` records are on their way to the receiving
// program, or unread by it. A record counts from its commit point until fw_gate_acknowledge reports that the program has read it; how
// the program says so is the application's affair. TCP's own acknowledgements precede the reading. A program that never acknowledges receives `records`
// records and no more; 0 counts as 1.
//
// # Safety
//
// `gate` points to a writable handle.
fw_status fw_gate_new(uint32_t records,
                      fw_gate *gate);

// Reports that the receiving program has read `total` records of the sink, counted from the first. A smaller total than before
// changes nothing, and neither do records that were never sent. Never waits.
fw_status fw_gate_acknowledge(fw_gate gate,
                              uint64_t total);

// Reports that the receiving program has read `records` more. Never waits.
fw_status fw_gate_acknowledge_more(fw_gate gate, uint64_t records);

// Writes the number of committed records that the program has not acknowledged.
//
// # Safety
//
// `outstanding` points to a writable value.
fw_status fw_gate_outstanding(fw_gate gate, uint64_t *outstanding);

// Frees a gate. Its sink continues, without further acknowledgements.
fw_status fw_gate_free(fw_gate gate);

// Makes a policy for live pictures in several renditions, with sound: it decides late which rendition a receiver gets. It is for the
// fw_policy of one sink, of the kind FW_ADAPTIVE; further sinks have those of fw_adaptive_for_another.
//
// Pictures of rendition r are numbered from r << 48 on, without gaps, and sound above all renditions (from 8 << 48 on). Pass every record
// of the stream to fw_adaptive_observe. Push the pictures of the `current` rendition of its selection into a sink, and those of the
// `wanted` one from a key frame on.
//
// # Safety
//
// `adaptive` points to a writable handle.
fw_status fw_adaptive_new(fw_adaptive *adaptive);

// Makes a policy for another receiver of the same stream, which may have the renditions whose bits are set in `allowed`. It begins with
// the smallest that is known.
//
// # Safety
//
// `another` points to a writable handle.
fw_status fw_adaptive_for_another(fw_adaptive adaptive,
                                  uint8_t allowed,
                                  fw_adaptive *another);

// Tells of a record of `len` bytes of the stream, when it is offered, in order of the numbers of each rendition.
//
// # Safety
//
// `meta` points to a valid value.
fw_status fw_adaptive_observe(fw_adaptive adaptive, const fw_meta *meta, uint32_t len);

// Says whether a rendition has a source now, if `is_present` is not 0: from one without, receivers change to another. None has at first.
fw_status fw_adaptive_set_present(fw_adaptive adaptive,
                                  uint32_t number,
                                  uint8_t is_present);

// Writes the receiver's present and wanted rendition, for the code that fills its ring.
//
// # Safety
//
// `selected` points to a writable structure.
fw_status fw_adaptive_selection(fw_adaptive adaptive, fw_selected *selected);

// Writes what a rendition asks of a path. FW_NOTHING before a whole group was seen.
//
// # Safety
//
// `cost` points to a writable structure.
fw_status fw_adaptive_cost(fw_adaptive adaptive, uint32_t number, fw_cost *cost);

// Frees an adaptive policy. A sink that has it keeps it.
fw_status fw_adaptive_free(fw_adaptive adaptive);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_POLICY_H */
