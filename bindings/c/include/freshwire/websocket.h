/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfreshwire: time-critical data, as fresh as the path allows. docs/c.md has the rules and examples.
 * Made by cbindgen from bindings/c; a test compares. The calls of the kernel's own ring are in ldc.h (host/kernel/libldc).
 */

#ifndef FRESHWIRE_WEBSOCKET_H
#define FRESHWIRE_WEBSOCKET_H

#include <stddef.h>
#include <stdint.h>
#include "../freshwire.h"

// Bytes of the answer to a WebSocket key: 28 characters and a zero byte.
#define FW_WEBSOCKET_ACCEPT 29

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

// A text message: UTF-8.
#define FW_TEXT 0

// A binary message.
#define FW_BINARY 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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

// Writes a descriptor that wakes `poll` when the client has sent something or left, or when the sink has ended. It also wakes it
// now and then without a reason. Call fw_websocket_next then, with a timeout of 0. It is the WebSocket's own, the same at each call and valid until
// fw_websocket_free: do not close it or read from it.
//
// # Safety
//
// `fd` points to a writable value.
fw_status fw_websocket_fd(fw_websocket websocket,
                          int *fd);

// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the client's next message, and copies it to `buffer`. Answers
// pings and the close meanwhile, and pings a client that is silent for 15 s, so call it every few seconds also where no message is expected. A client that
// does not answer within 30 s has left. FW_NOTHING: none came. FW_END: the client
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

// Frees a WebSocket. Its sink continues until fw_sink_free, but the client's pings and close are not answered any more.
fw_status fw_websocket_free(fw_websocket websocket);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHWIRE_WEBSOCKET_H */
