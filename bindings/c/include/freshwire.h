/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_H
#define FRESHWIRE_H

#include <stddef.h>
#include <stdint.h>

// No value, where 0 is one.
#define FW_DEFAULT UINT64_MAX

// `data` goes into the payload.
#define FW_CHANGE_DATA 1

// The record has the length `length`.
#define FW_CHANGE_LENGTH 2

// The record has the layer `layer`.
#define FW_CHANGE_LAYER 4

// The record has the deadline `deadline`.
#define FW_CHANGE_DEADLINE 8

// Result of a call. Zero is success; a negative value is a failure, which `fw_last_error` explains; a positive one tells that
// there is nothing now, and has no message.
enum fw_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  FW_OK = 0,
  // Nothing came within the time limit, or there is nothing to report yet.
  FW_NOTHING = 1,
  // The stream or connection has ended in good order.
  FW_END = 2,
  // The ring or the arena has no room: wait, drop or replace a record.
  FW_FULL = -1,
  // The sink, connection, node or engine has ended.
  FW_CLOSED = -2,
  // The record is larger than the ring can ever hold.
  FW_TOO_LARGE = -3,
  // The record was committed, dropped, or is held by another party.
  FW_TOO_LATE = -4,
  // The payload is shared, or the change does not fit into it.
  FW_NOT_CHANGED = -5,
  // An argument is out of its range, or a pointer is NULL.
  FW_INVALID = -6,
  // The handle was freed, or never was one of this kind.
  FW_DEAD_HANDLE = -7,
  // All rings are in use.
  FW_NO_RING = -8,
  // The operating system refused something.
  FW_SYSTEM = -9,
  // The stream violates its framing.
  FW_BAD_STREAM = -10,
  // The buffer is too small for the record, which stays: its length was written.
  FW_SMALL_BUFFER = -11,
  // The A1 connection was not made.
  FW_NOT_CONNECTED = -12,
  // The handle belongs to the parent of this process.
  FW_FORKED = -13,
  // A policy's function called the library.
  FW_IN_POLICY = -14,
  // Another failure.
  FW_FAILED = -15,
  // The library has panicked, which is a mistake in it. The handles of the call should be freed.
  FW_PANIC = -16,
  // The system gives no network namespaces to this user: a test of an emulated link is to be skipped, or run as root.
  FW_NOT_PERMITTED = -17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum fw_status fw_status;
#else
typedef int32_t fw_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Sizes of a sender's shared memory.
typedef struct {
  // Destinations at a time.
  uint32_t rings;
  // Records of each, a power of two.
  uint32_t slots;
  // Bytes of a payload block; a larger record takes several slots.
  uint32_t block_bytes;
  // Payload blocks, shared by all rings.
  uint32_t blocks;
} fw_ring;

// FW_FIFO to FW_ADAPTIVE.
typedef uint32_t fw_policy_kind;

// FW_SEND, FW_DROP or FW_WAIT.
typedef uint32_t fw_verdict;

// What a policy's function decides.
typedef struct {
  // What to do.
  fw_verdict verdict;
  // Position in the queue, for FW_SEND and FW_DROP.
  size_t at;
  // Time to ask again, for FW_WAIT; 0 is none.
  uint64_t until;
} fw_decision;

// A queued record, as a policy's function sees it.
typedef struct {
  // The application's number.
  uint64_t seq;
  // When the data came into being.
  uint64_t generated;
  // When it loses its value; 0 is never.
  uint64_t deadline;
  // Records of which a newer one replaces an older one; 0 is no key.
  uint64_t key;
  // Bytes.
  uint32_t len;
  // Records that are decodable together.
  uint32_t group;
  // Distances back in `seq` to the records that it depends on.
  uint32_t refs[2];
  // Rank in a layered stream.
  uint8_t layer;
} fw_record;

// The state of the path.
typedef struct {
  // Delivery rate in bits per second; 0 while it is not known.
  uint64_t rate;
  // Smoothed round trip.
  uint64_t rtt;
  // Smallest round trip.
  uint64_t min_rtt;
  // Bytes on the wire and not acknowledged.
  uint64_t in_flight;
  // Bytes committed and not on the wire.
  uint64_t unsent;
} fw_link_view;

// A policy's function: decides over `queue`, the oldest record first. A position outside the queue counts as FW_WAIT.
//
// Over TCP it runs on the engine's thread, every sink of which waits for it. Over A1 it runs on the node's thread, or on any thread in a
// call for the node, its connections, streams or sinks. One call of it is in progress at a time. It cannot call the library, and must not
// wait for a lock that a thread holds during such a call.
typedef fw_decision (*fw_pick)(void *context,
                               uint64_t now,
                               const fw_record *queue,
                               size_t count,
                               const fw_link_view *link);

// FW_EXPIRED to FW_LAYER_LIMIT.
typedef uint32_t fw_rule_kind;

// A condition for dropping a queued record.
typedef struct {
  // Which one.
  fw_rule_kind kind;
  // Margin or window, where the kind has one.
  uint64_t time;
  // The highest layer that is sent, for FW_LAYER_LIMIT.
  uint8_t layer;
} fw_rule;

// FW_BY_AGE, FW_BY_LAYER, FW_BY_NEWEST or FW_BY_TURN: which of the remaining records is sent first.
typedef uint32_t fw_order;

// A gate: late choice up to where the receiving program reads.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_gate;

// A policy for pictures in several renditions, and what it knows of their stream.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_adaptive;

// A policy. A structure of zeros is FW_FIFO.
typedef struct {
  // Which one.
  fw_policy_kind kind;
  // Margin or window, where the kind has one.
  uint64_t time;
  // A function that is asked before, or NULL. It must stay valid until the sink has ended: fw_sink_close or fw_sink_ended has said so,
  // or fw_engine_free, over A1 fw_node_free, has returned.
  fw_pick pick;
  // Given to the function, and valid for as long.
  void *context;
  // For FW_RULES: conditions for dropping a record, asked in this order; read when the sink is added.
  const fw_rule *rules;
  // How many.
  size_t rule_count;
  // For FW_RULES: which of the remaining records is sent first.
  fw_order order;
  // For FW_LATEST, and FW_RULES with FW_BY_TURN: weights of the layers, layer 0 first, read when the sink is added. Higher layers
  // have the last weight. Where two keys always have data, a key with twice the weight is sent twice as often.
  const uint32_t *weights;
  // How many.
  size_t weight_count;
  // A gate to put the policy behind, for one sink; zero is none. A call that fails does not use it up.
  fw_gate gate;
  // For FW_ADAPTIVE: the policy, for one sink. A call that fails does not use it up.
  fw_adaptive adaptive;
} fw_policy;

// FW_RAW, FW_LENGTH_PREFIXED or FW_CHUNKED.
typedef uint32_t fw_framing;

// FW_TCP, FW_AUTO or FW_KERNEL.
typedef uint32_t fw_carrier;

// Service asked of the network and of the queues of this host. From fw_sink_config_default or fw_node_config_default it asks for nothing.
typedef struct {
  // Differentiated services code point of each packet, its name such as "AF41" or its number as text; NULL keeps the socket's.
  const char *dscp;
  // Priority in the queues of this host (SO_PRIORITY); above 6 it needs CAP_NET_ADMIN. FW_DEFAULT keeps the socket's.
  uint64_t priority;
  // Largest pacing rate (SO_MAX_PACING_RATE); 0 is no limit. Datagrams need the queueing discipline fq.
  uint64_t max_rate;
  // 1: each datagram has a departure time (SO_TXTIME), at the agreed or the largest rate. Not for TCP.
  uint8_t departure_times;
} fw_network_qos;

// Settings of a sink, from fw_sink_config_default. FW_DEFAULT leaves a default.
typedef struct {
  // Selects the record to send, to drop or to wait for.
  fw_policy policy;
  // How records lie in the stream.
  fw_framing framing;
  // What takes them to the wire.
  fw_carrier carrier;
  // Bytes committed and not on the wire.
  uint64_t reserve;
  // Bound on the bottleneck's queue, as a time; 0 is no bound.
  uint64_t queue_target;
  // Bound on the bytes that the receiving program has not read; 0 is no bound.
  uint64_t max_unread;
  // Keys that the ring must have slots for.
  uint64_t keys;
  // Time for a freed sink to deliver the record in progress.
  uint64_t linger;
  // Time after which a peer that accepts no data is disconnected; 0 is never.
  uint64_t stall_timeout;
  // Kernel name of the congestion control, such as "bbr"; NULL keeps the socket's.
  const char *congestion;
  // Shortest retransmission timeout (Linux 6.15 and later).
  uint64_t min_rto;
  // Longest retransmission timeout (Linux 6.15 and later), at least one second.
  uint64_t max_rto;
  // 1: fates wait for the acknowledgement; 0: a fate is complete when the last byte is handed over.
  uint8_t ack_fates;
  // 1: fates say when the record's last byte entered the queueing discipline and left for the device. Plain TCP only, with ack_fates.
  uint8_t departures;
  // Service asked of the network.
  fw_network_qos network;
  // Segments that the kernel's ring may commit before TCP can send them: 1, or 0 for none. For FW_AUTO and FW_KERNEL.
  uint8_t kernel_horizon;
  // 1: packets refer to the memory of the kernel's ring, which costs more within one machine; 0: they are copied. For FW_AUTO
  // and FW_KERNEL.
  uint8_t kernel_zero_copy;
} fw_sink_config;

// An engine: serves sinks on a thread of its own.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_engine;

// A sender: puts records into the rings of its sinks.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_sender;

// A sink: one destination.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_sink;

// An A1 connection.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_connection;

// Settings of a sink over A1, from fw_a1_sink_config_default.
typedef struct {
  // Selects the record to send, to drop or to wait for.
  fw_policy policy;
  // Time for a freed sink to deliver the records in progress; FW_DEFAULT leaves the default.
  uint64_t linger;
  // 1: fates say when the packet with the record's last byte entered the queueing discipline and left for the device (Linux 6.13 or
  // newer).
  uint8_t departures;
} fw_a1_sink_config;

// Description of a record. A structure of zeros is a record without key or deadline, generated now.
typedef struct {
  // The application's number; 0 is the sender's next one, which is one more than the last, and 0 at first.
  uint64_t seq;
  // When the data came into being; 0 is now.
  uint64_t generated;
  // When it loses its value; 0 is never.
  uint64_t deadline;
  // Records of which a newer one replaces an older one; 0 is no key.
  uint64_t key;
  // Records that are decodable together.
  uint32_t group;
  // Distances back in `seq` to the records that it depends on; 0 is none.
  uint32_t refs[2];
  // Rank in a layered stream; 0 is the base.
  uint8_t layer;
} fw_meta;

// A change of a queued record: members that have their bit in `what` count.
typedef struct {
  // FW_CHANGE_DATA, FW_CHANGE_LENGTH, FW_CHANGE_LAYER, FW_CHANGE_DEADLINE, added.
  uint32_t what;
  // Where `data` goes.
  uint32_t offset;
  // The new bytes.
  const uint8_t *data;
  // How many.
  size_t len;
  // The record's length.
  uint32_t length;
  // Its layer.
  uint8_t layer;
  // Its deadline.
  uint64_t deadline;
} fw_change;

// Why a sink has ended, from FW_ENDED_CLOSED to FW_ENDED_OTHER; fw_last_error says more of all but the first.
typedef uint32_t fw_ended;

// FW_DRAIN, FW_FINISH_RECORD or FW_ABORT.
typedef uint32_t fw_close;

// Memory of a sender's arena for a record that the program writes there.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_reservation;

// A receiver: reads a stream with chunked framing.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_receiver;

// An A1 node.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_node;

// An A1 connection attempt that waits for a decision.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_incoming;

// A multicast group that a node sends to.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_group;

// A stream of bytes over an A1 connection.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_stream;

// An emulated link, for tests.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_link;

// Records back to back.
#define FW_RAW 0

// A 32-bit big-endian length before each record.
#define FW_LENGTH_PREFIXED 1

// Chunks, for fw_receiver: a record in progress can be given up.
#define FW_CHUNKED 2

// Plain TCP.
#define FW_TCP 0

// The kernel's ring if the module tcp_ldc is there, else plain TCP.
#define FW_AUTO 1

// The kernel's ring, or a failure.
#define FW_KERNEL 2

// Sends everything in order.
#define FW_FIFO 0

// In order, without expired records.
#define FW_EXPIRING 1

// In order, without records that would arrive less than `time` before their deadline.
#define FW_DEADLINE 2

// For state: the newest value of each key, none past its deadline, in turns.
#define FW_LATEST 3

// For layered media with deadlines; `time` is the margin.
#define FW_LAYERED 4

// For video frames with deadlines.
#define FW_FRAMES 5

// For pictures: the freshest and smoothest screen.
#define FW_SCREEN 6

// For live pictures with sound.
#define FW_LIVE 7

// In order; at the end of a window of `time` the rest of it is dropped, the highest layer first.
#define FW_THESIS 8

// Within a window of `time` the lowest layer first; the rest is dropped at its end.
#define FW_PRIORITY_PROGRESS 9

// The rules and the order of the policy, which has to have `rules`, or none and an order.
#define FW_RULES 10

// For live pictures in several renditions: the policy of `adaptive`.
#define FW_ADAPTIVE 11

// Its deadline has passed.
#define FW_EXPIRED 0

// It is next, and would arrive less than `time` before its deadline.
#define FW_PREDICTED_LATE 1

// A record that it depends on was dropped.
#define FW_DEPENDENCY_CLOSURE 2

// A newer record with the same key is queued.
#define FW_LATEST_BY_KEY 3

// Its window, of the length `time`, has ended.
#define FW_WINDOW_END 4

// A record of a newer group is queued.
#define FW_NEWEST_GROUP 5

// Its layer is above `layer`.
#define FW_LAYER_LIMIT 6

// The oldest.
#define FW_BY_AGE 0

// The lowest layer of the oldest group.
#define FW_BY_LAYER 1

// The newest.
#define FW_BY_NEWEST 2

// The key that has waited longest.
#define FW_BY_TURN 3

// Commit nothing until something changes, or `until` comes. Without a time, the policy behind the function decides.
#define FW_WAIT 0

// Commit the record at `at`.
#define FW_SEND 1

// Remove the record at `at`, and ask again.
#define FW_DROP 2

// The records that the policy still wants are sent.
#define FW_DRAIN 0

// The record in progress is finished, the others are dropped.
#define FW_FINISH_RECORD 1

// Everything is discarded, and the connection reset.
#define FW_ABORT 2

// It was closed by its owner.
#define FW_ENDED_CLOSED 0

// The operating system reported an error of the connection.
#define FW_ENDED_IO 1

// The A1 connection ended.
#define FW_ENDED_A1 2

// The peer closed the connection.
#define FW_ENDED_PEER_CLOSED 3

// The time given to fw_sink_close passed.
#define FW_ENDED_OUT_OF_TIME 4

// The sink was freed, and the peer did not take the record in progress within the linger time.
#define FW_ENDED_LINGERED 5

// The peer took nothing for the stall timeout.
#define FW_ENDED_STALLED 6

// Too much of fw_sink_interject waited for the peer.
#define FW_ENDED_NOT_READING 7

// The carrier cannot send bytes between records.
#define FW_ENDED_CANNOT_INTERJECT 8

// The engine or the A1 node was stopped.
#define FW_ENDED_STOPPED 9

// Another reason.
#define FW_ENDED_OTHER 10

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of this thread's last failure, or the words of a later call that has described an end or a membership; "" before
// the first one. It stays valid until the thread's next failure, its next call that describes an end or a membership, or its end.
const char *fw_last_error(void);

// Returns the default sizes: one ring of 1024 slots, 1024 blocks of 1448 bytes.
fw_ring fw_ring_default(void);

// Returns sizes for `clients` at a time, each with a ring for the newest values of `keys` keys of at most `bytes` bytes. A
// value is then never refused.
fw_ring fw_ring_for_clients(uint32_t clients,
                            uint32_t keys,
                            uint32_t bytes);

// Returns the default settings, with the policy that sends everything in order.
fw_sink_config fw_sink_config_default(void);

// Time of CLOCK_MONOTONIC in nanoseconds: the clock of all timestamps.
uint64_t fw_now(void);

// The library's version, such as "0.1.0".
const char *fw_version(void);

// Starts an engine, a thread that serves sinks.
//
// # Safety
//
// `engine` points to a writable handle.
fw_status fw_engine_new(fw_engine *engine);

// Stops an engine and aborts the sinks that it still serves.
fw_status fw_engine_free(fw_engine engine);

// Makes a sender with this shared memory. `engine` is zero for a sender of A1 sinks alone; `ring` may be NULL for the default.
//
// # Safety
//
// `ring` is NULL or points to valid sizes; `sender` points to a writable handle.
fw_status fw_sender_new(fw_engine engine,
                        const fw_ring *ring,
                        fw_sender *sender);

// Frees a sender. Its sinks go on with what is queued, and take no more.
fw_status fw_sender_free(fw_sender sender);

// Serves a connected TCP socket from a free ring. The descriptor is duplicated: the caller may close it, and read the client's
// data from it, but nothing else may write to it. `config` may be NULL for the default.
//
// # Safety
//
// `config` is NULL or points to valid settings; `sink` points to a writable handle.
fw_status fw_sender_add_sink(fw_sender sender,
                             int fd,
                             const fw_sink_config *config,
                             fw_sink *sink);

// Serves the other end of an A1 connection from a free ring. `policy` may be NULL for FW_FIFO. `linger` is the time for a freed
// sink to deliver the records in progress.
//
// # Safety
//
// `policy` is NULL or points to a valid policy; `sink` points to a writable handle.
fw_status fw_sender_add_a1_sink(fw_sender sender,
                                fw_connection connection,
                                const fw_policy *policy,
                                uint64_t linger,
                                fw_sink *sink);

// Returns the default settings, with the policy that sends everything in order.
fw_a1_sink_config fw_a1_sink_config_default(void);

// As fw_sender_add_a1_sink, with all settings. FW_SYSTEM where the kernel cannot note departures.
//
// # Safety
//
// `config` points to valid settings; `sink` points to a writable handle.
fw_status fw_sender_add_a1_sink_with(fw_sender sender,
                                     fw_connection connection,
                                     const fw_a1_sink_config *config,
                                     fw_sink *sink);

// Queues one payload for several sinks of a sender, copied once. `meta` may be NULL. `seq`, if it is not NULL, gets the
// record's number, and `missed`, if it is not NULL, the status of each sink: FW_OK, FW_FULL or FW_CLOSED.
//
// # Safety
//
// `sinks` points to `count` handles, `data` to `len` bytes; `meta` and `seq` are NULL or point to a valid value, `missed` is
// NULL or points to room for `count` values.
fw_status fw_sender_push_to_all(fw_sender sender,
                                const fw_sink *sinks,
                                size_t count,
                                const uint8_t *data,
                                size_t len,
                                const fw_meta *meta,
                                uint64_t *seq,
                                fw_status *missed);

// Replaces a value in several sinks of a sender, as fw_sink_replace does in each, with one number and one wake-up of the engine. `meta`
// has the key. `seq`, if it is not NULL, gets the record's number, and `missed`, if it is not NULL, the status of each sink:
// FW_OK, FW_FULL or FW_CLOSED.
//
// # Safety
//
// As fw_sender_push_to_all.
fw_status fw_sender_replace_to_all(fw_sender sender,
                                   const fw_sink *sinks,
                                   size_t count,
                                   const uint8_t *data,
                                   size_t len,
                                   const fw_meta *meta,
                                   uint64_t *seq,
                                   fw_status *missed);

// Queues a record. `meta` may be NULL for a record without key or deadline, generated now. `seq`, if it is not NULL, gets its
// number. Never blocks: without room the status is FW_FULL, after the sink's end FW_CLOSED.
//
// # Safety
//
// `data` points to `len` bytes; `meta` and `seq` are NULL or point to a valid value.
fw_status fw_sink_push(fw_sink sink,
                       const uint8_t *data,
                       size_t len,
                       const fw_meta *meta,
                       uint64_t *seq);

// Replaces the newest queued record with the key in `meta`, which keeps its turn; queues it at the end without one. Otherwise as
// fw_sink_push.
//
// # Safety
//
// As fw_sink_push.
fw_status fw_sink_replace(fw_sink sink,
                          const uint8_t *data,
                          size_t len,
                          const fw_meta *meta,
                          uint64_t *seq);

// Drops the queued records with this number. FW_OK: they will not be sent. FW_TOO_LATE: there is none.
fw_status fw_sink_drop(fw_sink sink, uint64_t seq);

// Changes a queued record in place. FW_TOO_LATE if it was committed, dropped or is held, FW_NOT_CHANGED if the change does not
// fit or the payload is shared with other sinks.
//
// # Safety
//
// `change` points to a valid change, whose `data` points to `len` bytes.
fw_status fw_sink_modify(fw_sink sink,
                         uint64_t seq,
                         const fw_change *change);

// Whether a push of `len` bytes would find room now: FW_OK, or FW_NOTHING without room.
fw_status fw_sink_has_room(fw_sink sink, size_t len);

// Writes a descriptor that becomes readable when a record was sent or dropped, or the sink has ended: a push may find room,
// and fw_sink_poll_fate a fate. For poll(2), epoll and their kin. It stays readable until fw_sink_clear_events. It is the sink's
// own, the same at each call and valid until fw_sink_free: do not close it, and let one place wait for it. FW_FAILED for the
// carrier "kernel-ring", whose records no thread of this process handles.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_sink_events(fw_sink sink,
                         int *fd);

// Makes the descriptor of fw_sink_events unreadable until the next change. Call it before the next attempt, not after.
fw_status fw_sink_clear_events(fw_sink sink);

// Name of the carrier in use: "tcp", "kernel-ring", "kernel-fed", "a1" or "a1-over-tcp"; NULL for a dead handle.
const char *fw_sink_carrier(fw_sink sink);

// Sends bytes between two records, such as the answer to a request on the same connection.
//
// # Safety
//
// `data` points to `len` bytes.
fw_status fw_sink_interject(fw_sink sink, const uint8_t *data, size_t len);

// Writes why a sink has ended. FW_NOTHING: it is served.
//
// # Safety
//
// `ended` points to a writable value.
fw_status fw_sink_ended(fw_sink sink, fw_ended *ended);

// Closes a sink, and waits at most `timeout` nanoseconds, after which the connection is aborted. Writes why it has ended. The
// handle stays valid for fates and counters until it is freed. A sink that another call closes already, as fw_websocket_close or
// the client's close does, is only waited for: FW_NOTHING after `timeout`, without an abort.
//
// # Safety
//
// `ended` points to a writable value.
fw_status fw_sink_close(fw_sink sink,
                        fw_close mode,
                        uint64_t timeout,
                        fw_ended *ended);

// Frees a sink. One that was not closed finishes the record in progress, as long as its linger time permits, without waiting.
fw_status fw_sink_free(fw_sink sink);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_H */

#include "freshwire/reservation.h"
#include "freshwire/fate.h"
#include "freshwire/receiver.h"
#include "freshwire/a1.h"
#include "freshwire/policy.h"
#include "freshwire/websocket.h"
#include "freshwire/link.h"
