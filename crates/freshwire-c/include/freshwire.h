/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data that is never stale when it goes on the wire. docs/c.md has the rules and examples.
 * Made by cbindgen from crates/freshwire-c; a test compares. The calls of the kernel's own ring are in ldc.h (kernel/libldc).
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

// Bytes of a key's text: 64 hexadecimal digits and a zero byte.
#define FW_KEY_TEXT 65

// Bytes of an address's text with its port, such as "192.0.2.1:5000": at most this number with the zero byte.
#define FW_ADDRESS_TEXT 64

// Bytes of the answer to a WebSocket key: 28 characters and a zero byte.
#define FW_WEBSOCKET_ACCEPT 29

// No rendition, where a number names one.
#define FW_NO_RENDITION UINT32_MAX

// Zero, as a rate: nothing passes until the rate is changed.
#define FW_OUTAGE 0

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
  // have the last weight. Of two keys that always have data, one with twice the weight is sent twice as often.
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
  uint64_t begun;
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
} fw_stats;

// Why a sink has ended, from FW_ENDED_CLOSED to FW_ENDED_OTHER; fw_last_error says more of all but the first.
typedef uint32_t fw_ended;

// FW_DRAIN, FW_FINISH_RECORD or FW_ABORT.
typedef uint32_t fw_close;

// A receiver: reads a stream with chunked framing.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_receiver;

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

// Quality of service of a connection, from this end's view; from fw_qos_default. The receiver may narrow what the sender asks
// for.
typedef struct {
  // Average rate at which this end sends; 0 is no limit.
  uint64_t send_average;
  // Average rate at which this end is willing to receive; 0 is no limit.
  uint64_t receive_average;
  // Bytes that may go at once above the average.
  uint32_t send_burst;
  // Bytes that may come at once above the average.
  uint32_t receive_burst;
  // The largest message that this end sends; at most 64 MiB.
  uint32_t max_send_message;
  // The largest message that this end accepts; at most 64 MiB.
  uint32_t max_receive_message;
  // Messages that may be sent and not yet consumed by the receiving application, from 1 to 65536.
  uint32_t outstanding;
  // Which connection of a node goes first where several have something to send; a higher one does. One turn in 16 goes to the
  // one that waits longest of the lowest.
  uint8_t priority;
  // 1: packets that are not encrypted carry a checksum.
  uint8_t checksum;
  // 1: lost blocks are sent again while their message is worth it.
  uint8_t retransmission;
} fw_qos;

// FW_AEAD, FW_DANGEROUS_PLAIN or FW_OTHER_PROTECTION.
typedef uint32_t fw_protection;

// FW_COPA, FW_CUBIC or FW_NEWRENO.
typedef uint32_t fw_congestion;

// Settings of a node, from fw_node_config_default. FW_DEFAULT leaves a default.
typedef struct {
  // The node's private key as text; NULL for a new one.
  const char *private_key;
  // A secret that both ends share, as 64 hexadecimal digits; NULL for none. A peer without it cannot connect.
  const char *psk;
  // Public keys of the peers that may connect, as text; NULL for all peers.
  const char *const *allowed;
  // How many keys `allowed` has.
  size_t allowed_count;
  // Interface on which the node joins groups, its number or IPv4 address as text; NULL for that of the connection.
  const char *join_interface;
  // Upper limit of the quality of service of the node's connections.
  fw_qos maximum;
  // Silence that ends a connection.
  uint64_t idle_timeout;
  // Silence after which a packet is sent, so that neither the peer nor a NAT forgets the connection; 0 is never.
  uint64_t keep_alive;
  // Longest delay of an acknowledgement.
  uint64_t ack_delay;
  // Incoming connections that may wait for fw_node_accept.
  uint64_t backlog;
  // Size of the kernel's receive buffer.
  uint64_t receive_buffer;
  // Time for which a waiting thread polls the socket before it sleeps; 0 is not at all.
  uint64_t busy_poll;
  // Multicast groups that the node joins on invitation; 0 is none.
  uint64_t join_most;
  // Weakest protection that this end accepts.
  fw_protection protection;
  // Congestion control.
  fw_congestion congestion;
  // Largest UDP payload to try; 0 is that of the network interface.
  uint16_t max_datagram;
  // 1: peers may connect.
  uint8_t accept;
  // 1: the application decides about each incoming connection, with fw_node_incoming.
  uint8_t ask;
  // 1: packets carry the ECN mark.
  uint8_t ecn;
  // 1: messages are delivered in sending order, as a stream needs it.
  uint8_t in_order;
  // 1: messages get parity where there is no time for a second repair.
  uint8_t fec;
  // Layers, from layer 0 on, whose messages get parity before any other message is sent.
  uint8_t fec_layers;
} fw_node_config;

// An A1 node.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_node;

// Counters of a node since it was bound, mainly of ignored and invalid datagrams.
typedef struct {
  // Datagrams that are no packet of this protocol.
  uint64_t malformed;
  // Packets for a connection that is not there.
  uint64_t unknown;
  // Cookies that were handed out.
  uint64_t retries;
  // Initiations with a cookie that is too old, or not for their address.
  uint64_t wrong_cookies;
  // Handshake messages and resets that were not authentic.
  uint64_t unauthentic;
  // Resets that were sent.
  uint64_t resets;
  // Initiators that were refused.
  uint64_t refused;
  // Datagrams that were not answered because of a limit.
  uint64_t over_limit;
  // Handshake packets of this node that found the queue full.
  uint64_t queue_full;
} fw_endpoint_stats;

// A message that came whole over A1.
typedef struct {
  // Its number among all that the sender began, from 0.
  uint64_t id;
  // The sending application's number.
  uint64_t seq;
  // Messages with the same key replace each other; 0 is no key.
  uint64_t key;
  // How old its content was when it was taken, in nanoseconds, by an estimate of the sender's clock.
  uint64_t age;
  // Its bytes.
  size_t len;
  // Messages that are decodable together.
  uint32_t group;
  // Distances back in `seq` to the messages that it depends on.
  uint32_t refs[2];
  // Rank in a layered stream.
  uint8_t layer;
  // 1: it was taken after its deadline, by the same estimate.
  uint8_t late;
} fw_message;

// The other end of a connection.
typedef struct {
  // Its address and port.
  char address[FW_ADDRESS_TEXT];
  // Its public key.
  char key[FW_KEY_TEXT];
} fw_peer;

// Counters of a connection. Bytes are UDP payload unless said otherwise.
typedef struct {
  // Packets sent.
  uint64_t packets_sent;
  // Bytes sent.
  uint64_t bytes_sent;
  // Packets that came and opened.
  uint64_t packets_received;
  // Bytes of them.
  uint64_t bytes_received;
  // Packets declared lost.
  uint64_t packets_lost;
  // Packets declared lost that had arrived after all.
  uint64_t spurious_losses;
  // Bytes of messages sent for the first time.
  uint64_t payload_sent;
  // Bytes of messages sent again.
  uint64_t payload_resent;
  // Bytes of parity sent.
  uint64_t parity_sent;
  // Messages that came whole thanks to parity.
  uint64_t messages_made_whole;
  // Packets that did not open, or came twice.
  uint64_t packets_refused;
  // Messages that came whole.
  uint64_t messages_received;
  // Blocks of multicast groups that the peer missed, asked for and is sent.
  uint64_t repairs_sent;
  // Packets of multicast groups that came by way of their addresses.
  uint64_t group_packets_received;
  // Blocks of multicast groups that this end missed and got over this connection.
  uint64_t repairs_received;
} fw_a1_stats;

// What holds messages of a connection back, and changes since the last call.
typedef struct {
  // 1: a message waits because the receiver's window is full.
  uint8_t window_exceeded;
  // 1: a message waits for the agreed rate.
  uint8_t rate_exceeded;
  // 1: a change of the quality of service is pending.
  uint8_t qos_pending;
  // 1: the quality of service has changed since it was last reported, whichever end requested it.
  uint8_t qos_changed;
} fw_a1_status;

// How a connection has ended, from FW_CLOSED_LOCAL to FW_CLOSED_OTHER.
typedef uint32_t fw_closed;

// FW_MISSING_BEGUN, FW_MISSING_OF_GROUP or FW_MISSING_NEVER_BEGUN.
typedef uint32_t fw_missing_kind;

// Messages that will not come.
typedef struct {
  // The first number.
  uint64_t first;
  // How many.
  uint64_t count;
  // What the numbers are.
  fw_missing_kind kind;
  // The group's number.
  uint32_t group;
  // Why, as in fw_fate.
  uint8_t reason;
} fw_missing;

// A multicast group to which the peer of a connection has invited this node.
typedef struct {
  // The number that the group's packets carry.
  uint32_t group;
  // 1: this node has joined the address; 0: fw_last_error says why not. Delivery is up to the network.
  uint8_t joined;
  // Destination of the group's packets.
  char address[FW_ADDRESS_TEXT];
} fw_membership;

// An A1 connection attempt that waits for a decision.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_incoming;

// Settings of a multicast group, from fw_group_config_default.
typedef struct {
  // The multicast address and port, such as "239.255.0.1:5004".
  const char *address;
  // Network interface of the members, its number or IPv4 address as text; NULL for that of the first member's connection.
  const char *interface;
  // Sending rate of UDP payload. There is no congestion control: the network must provide it.
  uint64_t rate;
  // Time for which a sent record is kept for repairs; its slot stays in use for that long.
  uint64_t repair_for;
  // Largest UDP payload, at least 1200 bytes.
  uint16_t datagram;
  // Number of networks to cross.
  uint8_t hops;
  // 1: members on this machine receive the packets too.
  uint8_t to_this_machine;
} fw_group_config;

// A multicast group that a node sends to.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_group;

// Counters of a group. Bytes are UDP payload. Repairs are in fw_connection_stats of the members.
typedef struct {
  // Packets sent to the group's address.
  uint64_t packets_sent;
  // Bytes sent to the group's address.
  uint64_t bytes_sent;
  // Of `packets_sent`, those that the operating system refused.
  uint64_t packets_refused;
  // Open connections that were invited.
  uint64_t members;
} fw_multicast_stats;

// A stream of bytes over an A1 connection.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_stream;

// FW_READ or FW_WRITE.
typedef uint32_t fw_interest;

// FW_TEXT or FW_BINARY.
typedef uint32_t fw_message_kind;

// The client's side of a WebSocket: what it sends.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_websocket;

// A message of the client.
typedef struct {
  // Its bytes.
  size_t len;
  // What they are.
  fw_message_kind kind;
} fw_websocket_message;

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

// An emulated link, for tests.
typedef struct {
  // The number of the handle; 0 is none.
  uint64_t id;
} fw_link;

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

// The receiver's host has all of it.
#define FW_ACKED 0

// All of it was handed over; no acknowledgement is known.
#define FW_SENT 1

// It was dropped, because of `reason`.
#define FW_DROPPED 2

// It was never on the ring.
#define FW_REFUSED 3

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

// Encrypted and authenticated.
#define FW_AEAD 0

// Readable and forgeable by everybody on the path. For closed networks only.
#define FW_DANGEROUS_PLAIN 1

// Another one, of a later release.
#define FW_OTHER_PROTECTION 2

// Copa, by delay.
#define FW_COPA 0

// CUBIC, as a reference.
#define FW_CUBIC 1

// NewReno, as a reference.
#define FW_NEWRENO 2

// This end closed it.
#define FW_CLOSED_LOCAL 0

// The peer closed it, with a code.
#define FW_CLOSED_PEER 1

// Nothing came for too long.
#define FW_CLOSED_SILENT 2

// The peer broke the protocol.
#define FW_CLOSED_VIOLATION 3

// The peer has restarted, and does not know the connection.
#define FW_CLOSED_PEER_RESTARTED 4

// The keys can protect no more packets.
#define FW_CLOSED_KEYS_EXHAUSTED 5

// Another reason.
#define FW_CLOSED_OTHER 6

// A message whose sending had started: `first` is its number among those (`fw_message.id`).
#define FW_MISSING_BEGUN 0

// A message of the multicast group `group`: `first` is its number among those of the group.
#define FW_MISSING_OF_GROUP 1

// `count` messages from the application's number `first` on, whose sending never started.
#define FW_MISSING_NEVER_BEGUN 2

// What comes from the peer.
#define FW_READ 0

// What goes to the peer.
#define FW_WRITE 1

// A text message: UTF-8.
#define FW_TEXT 0

// A binary message.
#define FW_BINARY 1

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

// Name of the carrier in use: "tcp", "kernel-ring", "kernel-fed" or "a1"; NULL for a dead handle.
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

// Returns the default: no limit of rate, messages of up to 1 MiB, 1024 outstanding, checksum and retransmission.
fw_qos fw_qos_default(void);

// Returns the default settings of a node: a new key, all peers, and the default quality of service.
fw_node_config fw_node_config_default(void);

// Makes a new private key, and writes it and its public key as text of FW_KEY_TEXT bytes.
//
// # Safety
//
// Both point to room for FW_KEY_TEXT bytes.
fw_status fw_key_generate(char *private_key, char *public_key);

// Binds a node to an address such as "0.0.0.0:5000"; port 0 lets the kernel choose one. `private_key` is its text, or NULL for
// a new one.
//
// # Safety
//
// `address` is a string, `private_key` NULL or a string; `node` points to a writable handle.
fw_status fw_node_bind(const char *address,
                       const char *private_key,
                       fw_node *node);

// As fw_node_bind, with all settings. `config` may be NULL for the default.
//
// # Safety
//
// `address` is a string; `config` is NULL or points to valid settings; `node` points to a writable handle.
fw_status fw_node_bind_with(const char *address, const fw_node_config *config, fw_node *node);

// Writes the port of a node's socket.
//
// # Safety
//
// `port` points to a writable value.
fw_status fw_node_port(fw_node node, uint16_t *port);

// Writes a node's public key as text of FW_KEY_TEXT bytes.
//
// # Safety
//
// `key` points to room for FW_KEY_TEXT bytes.
fw_status fw_node_public_key(fw_node node, char *key);

// Connects to the node with this public key, and waits for the handshake, at most `timeout` nanoseconds.
//
// # Safety
//
// `host` and `key` are strings; `connection` points to a writable handle.
fw_status fw_node_connect(fw_node node,
                          const char *host,
                          uint16_t port,
                          const char *key,
                          uint64_t timeout,
                          fw_connection *connection);

// Begins to connect to `address`, such as "192.0.2.1:5000", and returns at once; the handshake takes at most `timeout` nanoseconds. `qos`
// is the requested quality of service, which the peer may narrow; NULL for the node's maximum. fw_connection_open tells how it went;
// fw_connection_events becomes readable then. Until it has gone well, other calls for the connection are FW_NOT_CONNECTED.
//
// # Safety
//
// `address` and `key` are strings; `qos` is NULL or points to a valid structure; `connection` points to a writable handle.
fw_status fw_node_begin_connect(fw_node node,
                                const char *address,
                                const char *key,
                                const fw_qos *qos,
                                uint64_t timeout,
                                fw_connection *connection);

// Tells how the handshake of fw_node_begin_connect went: FW_OK, FW_NOTHING while it is in progress, FW_NOT_CONNECTED.
fw_status fw_connection_open(fw_connection connection);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for an incoming connection. FW_NOTHING: there was none.
//
// # Safety
//
// `connection` points to a writable handle.
fw_status fw_node_accept(fw_node node, uint64_t timeout, fw_connection *connection);

// Writes a descriptor that becomes readable when a connection or an attempt waits to be taken, or the node has stopped: call fw_node_accept
// or fw_node_incoming with a timeout of 0. It stays readable until fw_node_clear_events. It is the node's own, the same at each call
// and valid until fw_node_free: do not close it, and let one place wait for it.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_node_events(fw_node node,
                         int *fd);

// Makes the descriptor of fw_node_events unreadable until the next change. Call it before the next attempt, not after.
fw_status fw_node_clear_events(fw_node node);

// Writes the counters of a node.
//
// # Safety
//
// `stats` points to a writable structure.
fw_status fw_node_stats(fw_node node, fw_endpoint_stats *stats);

// Stops a node and aborts its connections. Calls of other threads that wait for them end, and no policy of their sinks is asked any more.
fw_status fw_node_free(fw_node node);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the next message, and copies it to `buffer`. FW_NOTHING: none
// came. FW_END: the peer has closed the connection with code 0. FW_SMALL_BUFFER: it has `message->len` bytes, and waits for a
// call with a larger buffer.
//
// # Safety
//
// `buffer` points to `size` writable bytes, `message` to a writable structure.
fw_status fw_connection_recv(fw_connection connection,
                             uint64_t timeout,
                             uint8_t *buffer,
                             size_t size,
                             fw_message *message);

// Closes a connection with a code (0 for normal) and a text for the peer. Undelivered messages are abandoned; close the sink
// instead to deliver them first.
//
// # Safety
//
// `reason` is a string.
fw_status fw_connection_close(fw_connection connection,
                              uint64_t code,
                              const char *reason);

// Frees a connection, which closes it unless a sink or a stream has it. A call that waits for a message ends with the connection.
fw_status fw_connection_free(fw_connection connection);

// Writes the address and the public key of the peer.
//
// # Safety
//
// `peer` points to a writable structure.
fw_status fw_connection_peer(fw_connection connection, fw_peer *peer);

// Writes the quality of service in force, after the connection's end the last one, and, if `maximum` is not NULL, the upper limit for
// fw_connection_set_qos.
//
// # Safety
//
// `qos` points to a writable structure, `maximum` is NULL or does.
fw_status fw_connection_qos(fw_connection connection,
                            fw_qos *qos,
                            fw_qos *maximum);

// Requests another quality of service. It takes effect with the peer's answer. FW_INVALID beyond the maximum, FW_FULL while another
// change is pending, FW_CLOSED after the connection's end.
//
// # Safety
//
// `qos` points to a valid structure.
fw_status fw_connection_set_qos(fw_connection connection,
                                const fw_qos *qos);

// Writes the protection of the packets: the stronger of both ends' requirements.
//
// # Safety
//
// `protection` points to a writable value.
fw_status fw_connection_protection(fw_connection connection, fw_protection *protection);

// Writes the counters of a connection, also after its end.
//
// # Safety
//
// `stats` points to a writable structure.
fw_status fw_connection_stats(fw_connection connection, fw_a1_stats *stats);

// Writes what holds messages back and whether the quality of service has changed. A change is reported once.
//
// # Safety
//
// `status` points to a writable structure.
fw_status fw_connection_status(fw_connection connection, fw_a1_status *status);

// Writes how a connection has ended, and the peer's code for FW_CLOSED_PEER; fw_last_error has the words. FW_NOTHING: it is open.
//
// # Safety
//
// `closed` and `code` point to writable values; `code` may be NULL.
fw_status fw_connection_closed(fw_connection connection,
                               fw_closed *closed,
                               uint64_t *code);

// Writes the next report of messages that the peer has dropped or abandoned, the oldest first. FW_NOTHING: there is none.
//
// # Safety
//
// `missing` points to a writable structure.
fw_status fw_connection_poll_missing(fw_connection connection,
                                     fw_missing *missing);

// Writes an invitation of the peer to a multicast group, by its place among them, from 0. FW_NOTHING: there are fewer. Messages of
// groups come with those of the connection.
//
// # Safety
//
// `membership` points to a writable structure.
fw_status fw_connection_membership(fw_connection connection,
                                   size_t at,
                                   fw_membership *membership);

// Writes a descriptor that becomes readable when a message or a report of a missing one has come, or the connection has ended. A change
// of the quality of service and an invitation count too. Call fw_connection_recv with a timeout of 0 then. It stays readable until
// fw_connection_clear_events. It is the connection's own, the same at each call and valid until fw_connection_free: do not close
// it, and let one place wait for it.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_connection_events(fw_connection connection,
                               int *fd);

// Makes the descriptor of fw_connection_events unreadable until the next change. Call it before looking for what is new, not after.
fw_status fw_connection_clear_events(fw_connection connection);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for a connection attempt to accept or refuse, of a node with `ask`.
// FW_NOTHING: there was none.
//
// # Safety
//
// `incoming` points to a writable handle.
fw_status fw_node_incoming(fw_node node,
                           uint64_t timeout,
                           fw_incoming *incoming);

// Writes the address and the public key of the peer, which has proved that it has both.
//
// # Safety
//
// `peer` points to a writable structure.
fw_status fw_incoming_peer(fw_incoming incoming, fw_peer *peer);

// Writes the requested quality of service, from this end's view, and, if `maximum` is not NULL, the upper limit of the peer's requests.
//
// # Safety
//
// `qos` points to a writable structure, `maximum` is NULL or does.
fw_status fw_incoming_qos(fw_incoming incoming,
                          fw_qos *qos,
                          fw_qos *maximum);

// Accepts a connection, within the node's quality of service and within `maximum`, unless that is NULL. FW_CLOSED: the attempt has timed
// out. The handle of the attempt is to be freed.
//
// # Safety
//
// `maximum` is NULL or points to a valid structure; `connection` points to a writable handle.
fw_status fw_incoming_accept(fw_incoming incoming,
                             const fw_qos *maximum,
                             fw_connection *connection);

// Refuses a connection with a code for the peer, from 256 on the application's, and a reason of at most 256 bytes. The handle of the
// attempt is to be freed.
//
// # Safety
//
// `reason` is a string.
fw_status fw_incoming_refuse(fw_incoming incoming,
                             uint64_t code,
                             const char *reason);

// Frees an attempt. One that was not decided is refused with the code 256.
fw_status fw_incoming_free(fw_incoming incoming);

// Returns the default settings of a group with this address and rate: datagrams of 1200 bytes, repairs for a second, this network only.
fw_group_config fw_group_config_default(const char *address,
                                        uint64_t rate);

// Makes a multicast group for sending, without members.
//
// # Safety
//
// `config` points to valid settings; `group` points to a writable handle.
fw_status fw_node_group(fw_node node, const fw_group_config *config, fw_group *group);

// Makes the peer of a connection of the same node a member until the connection ends. It receives records sent from now on.
fw_status fw_group_invite(fw_group group,
                          fw_connection connection);

// Writes the counters of a group. FW_CLOSED: the node has stopped.
//
// # Safety
//
// `stats` points to a writable structure.
fw_status fw_group_stats(fw_group group, fw_multicast_stats *stats);

// Serves a multicast group from a free ring, which needs room for the records that the group keeps for repairs. Its fate FW_ACKED means
// that a record was sent and that the time for its repair is over. `policy` may be NULL for FW_FIFO.
//
// # Safety
//
// `policy` is NULL or points to a valid policy; `sink` points to a writable handle.
fw_status fw_sender_add_a1_group(fw_sender sender,
                                 fw_group group,
                                 const fw_policy *policy,
                                 uint64_t linger,
                                 fw_sink *sink);

// Frees a group, which ends it unless a sink has it.
fw_status fw_group_free(fw_group group);

// Makes a reliable stream of bytes in each direction of an unused connection, as TCP has it. The nodes at both ends need `in_order`, and
// each makes its stream before it sends or receives anything else. FW_INVALID: the node has no order, or the quality of service no
// retransmission. The connection's handle may be freed.
//
// # Safety
//
// `stream` points to a writable handle.
fw_status fw_stream_new(fw_connection connection,
                        fw_stream *stream);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for bytes, and copies at most `size` of them to `buffer`. FW_NOTHING: none
// came. FW_END: the peer has finished. FW_CLOSED: the stream was cut off.
//
// # Safety
//
// `buffer` points to `size` writable bytes, `count` to a writable value.
fw_status fw_stream_read(fw_stream stream,
                         uint64_t timeout,
                         uint8_t *buffer,
                         size_t size,
                         size_t *count);

// Writes bytes, waiting for room at most `timeout` nanoseconds, FW_DEFAULT for ever. FW_OK: all were taken. FW_NOTHING: the time was over
// when `count` were. FW_CLOSED after the stream's end.
//
// # Safety
//
// `data` points to `len` bytes, `count` to a writable value.
fw_status fw_stream_write(fw_stream stream,
                          uint64_t timeout,
                          const uint8_t *data,
                          size_t len,
                          size_t *count);

// Ends what this end sends, and waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the acknowledgement of all bytes. The other
// direction continues. FW_NOTHING: the time was over; call it again.
fw_status fw_stream_finish(fw_stream stream,
                           uint64_t timeout);

// Writes a descriptor of one direction. FW_READ: it becomes readable when bytes have come, or the stream has ended. FW_WRITE: it becomes
// readable when a write or finish with a timeout of 0, which has returned FW_NOTHING, is worth another attempt. Otherwise as
// fw_connection_events.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_stream_events(fw_stream stream,
                           fw_interest interest,
                           int *fd);

// Makes the descriptor of one direction unreadable until the next change. Call it before the next attempt, not after.
fw_status fw_stream_clear_events(fw_stream stream, fw_interest interest);

// Frees a stream, and closes its connection. One that was not finished is cut off. A call that waits ends with FW_CLOSED.
fw_status fw_stream_free(fw_stream stream);

// Writes the value of `Sec-WebSocket-Accept` that answers a request's `Sec-WebSocket-Key`, with a zero byte.
//
// # Safety
//
// `key` is a string; `accept` points to FW_WEBSOCKET_ACCEPT writable bytes.
fw_status fw_websocket_accept(const char *key, char *accept);

// Serves a socket that became a WebSocket in the caller's HTTP server: each record of `sink` is a message of this kind.
// `leftover` are the bytes that were read behind the request. The answer to the upgrade has been written. The descriptor is
// duplicated; the caller neither reads from it nor writes to it any more. Client messages of more than `max_message_bytes`, 64 KiB
// for 0, end the connection. `config` may be NULL for the default; its framing is not used. Free both handles.
//
// # Safety
//
// `leftover` points to `leftover_len` bytes; `config` is NULL or points to valid settings; `websocket` and `sink` point to
// writable handles.
fw_status fw_websocket_new(fw_sender sender,
                           int fd,
                           const uint8_t *leftover,
                           size_t leftover_len,
                           fw_message_kind kind,
                           size_t max_message_bytes,
                           const fw_sink_config *config,
                           fw_websocket *websocket,
                           fw_sink *sink);

// Writes a descriptor that wakes `poll` when the client has sent something or left, and now and then without a reason: call
// fw_websocket_next then, with a timeout of 0. It is the WebSocket's own, the same at each call and valid until
// fw_websocket_free: do not close it or read from it.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_websocket_fd(fw_websocket websocket,
                          int *fd);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the client's next message, and copies it to `buffer`. Answers
// pings and the close meanwhile, so call it also where no message is expected. FW_NOTHING: none came. FW_END: the client
// or this side has closed, the sink has ended, or the client broke the protocol; fw_websocket_ended tells more. FW_SMALL_BUFFER:
// the message has `message->len` bytes, and waits for a call with a larger buffer.
//
// # Safety
//
// `buffer` points to `size` writable bytes, `message` to a writable structure.
fw_status fw_websocket_next(fw_websocket websocket,
                            uint64_t timeout,
                            uint8_t *buffer,
                            size_t size,
                            fw_websocket_message *message);

// Writes the code of the client's close frame, or of the one that answered a breach of the protocol, which fw_last_error explains; 0
// if there was none. FW_NOTHING: the client may still send.
//
// # Safety
//
// `code` points to a writable value.
fw_status fw_websocket_ended(fw_websocket websocket,
                             uint16_t *code);

// Ends the connection: the message in progress, then the close frame. Returns at once; fw_sink_close waits until both were sent. `reason`
// may be NULL, and is cut to 123 bytes.
//
// # Safety
//
// `reason` is NULL or a string.
fw_status fw_websocket_close(fw_websocket websocket,
                             uint16_t code,
                             const char *reason);

// Frees a WebSocket. Its sink goes on until fw_sink_free, and nobody answers the client any more.
fw_status fw_websocket_free(fw_websocket websocket);

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

// Frees a gate. Its sink goes on as one whose program acknowledges nothing more.
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

// Writes which rendition the receiver has and wants, for whoever fills its ring.
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

#endif  /* FRESHWIRE_H */
