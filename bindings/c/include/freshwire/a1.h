/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_A1_H
#define FRESHWIRE_A1_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

// Bytes of a key's text: 64 hexadecimal digits and a zero byte.
#define FW_KEY_TEXT 65

// Bytes of an address's text with its port, such as "192.0.2.1:5000": at most this number with the zero byte.
#define FW_ADDRESS_TEXT 64

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
  // Time without an answer over UDP after which a new connection tries TCP as well, with tcp_fallback; 10 ms to 2 s.
  uint64_t attempt_delay;
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
  // 1: connections go over TCP, at the same port, where UDP does not pass; both ends have to permit it.
  uint8_t tcp_fallback;
  // 1: each connection's agreed quality of service becomes that of the network, where `network` leaves it open. A priority p is class
  // selector p, at most CS5, and SO_PRIORITY p, at most 6. With departure times its datagrams leave at its average rate.
  uint8_t translate;
  // Service asked of the network for all datagrams of the node. Connections towards an interface without fq are refused if a rate or
  // departure times are set.
  fw_network_qos network;
} fw_node_config;

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
  // Messages completed by parity.
  uint64_t messages_made_whole;
  // Packets that did not open, or came twice.
  uint64_t packets_refused;
  // Complete messages received.
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
  // 1: the connection goes over TCP: tcp_fallback permits it, and UDP does not pass.
  uint8_t over_tcp;
} fw_a1_status;

// How a connection has ended, from FW_CLOSED_LOCAL to FW_CLOSED_OTHER.
typedef uint32_t fw_closed;

// FW_MISSING_COMMITTED, FW_MISSING_OF_GROUP or FW_MISSING_NEVER_COMMITTED.
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

// Counters of a group. Bytes are UDP payload. Repairs are in fw_connection_stats of the members.
typedef struct {
  // Packets sent to the group's address.
  uint64_t packets_sent;
  // Bytes sent to the group's address.
  uint64_t bytes_sent;
  // Packets among `packets_sent` that the operating system refused.
  uint64_t packets_refused;
  // Open connections that were invited.
  uint64_t members;
} fw_multicast_stats;

// FW_READ or FW_WRITE.
typedef uint32_t fw_interest;

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
#define FW_MISSING_COMMITTED 0

// A message of the multicast group `group`: `first` is its number among those of the group.
#define FW_MISSING_OF_GROUP 1

// `count` messages from the application's number `first` on, whose sending never started.
#define FW_MISSING_NEVER_COMMITTED 2

// What comes from the peer.
#define FW_READ 0

// What goes to the peer.
#define FW_WRITE 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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

// Connects anew to the peer of a connection, with a larger maximum of the quality of service, which may exceed the node's. It is the remedy
// where fw_connection_set_qos finds a request beyond the maximum. Waits for the handshake, at most `timeout` nanoseconds. `qos` is the requested
// quality of service; NULL for `maximum`. The old connection stays as it is. FW_NOT_CONNECTED too if the peer allows less than `maximum`.
//
// # Safety
//
// `maximum` points to a valid structure, `qos` is NULL or does; `reopened` points to a writable handle.
fw_status fw_node_reopen(fw_node node,
                         fw_connection connection,
                         const fw_qos *maximum,
                         const fw_qos *qos,
                         uint64_t timeout,
                         fw_connection *reopened);

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_A1_H */
