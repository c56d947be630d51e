//! Wrong and dead handles are a status, whatever is done with them and in whatever order.

use std::ffi::CStr;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use freshwire_c::*;
use fw_status::*;

/// Every call with this handle's number, without anything behind the pointers that may be NULL.
fn call_all(id: u64) -> Vec<fw_status> {
    let (mut seq, mut fd, mut ended, mut fate, mut stats) =
        (0, 0, 0, fw_fate::default(), fw_stats::default());
    let (sink, sender) = (fw_sink { id }, fw_sender { id });
    let (receiver, node, connection) = (fw_receiver { id }, fw_node { id }, fw_connection { id });
    let (mut record, mut message, mut port) = (fw_received::default(), fw_message::default(), 0);
    let (mut new_sink, mut new_sender, mut new_connection) =
        (fw_sink::default(), fw_sender::default(), fw_connection::default());
    let websocket = fw_websocket { id };
    let (mut new_websocket, mut client_message, mut code) =
        (fw_websocket::default(), fw_websocket_message::default(), 0);
    let (gate, adaptive, link) = (fw_gate { id }, fw_adaptive { id }, fw_link { id });
    let (mut outstanding, mut another, mut account) = (0, fw_adaptive::default(), fw_link_account::default());
    let (mut socket, mut selected, mut cost) = (-1, fw_selected::default(), fw_cost::default());
    let mut text = [0; FW_KEY_TEXT];
    let change = fw_change { what: 0, offset: 0, data: null(), len: 0, length: 0, layer: 0, deadline: 0 };
    let meta = fw_meta { key: 1, ..fw_meta::default() };
    // SAFETY: every pointer is to a local value, or null where that is allowed.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
    let statuses = unsafe {
        vec![
            fw_sink_push(sink, b"x".as_ptr(), 1, null(), &raw mut seq),
            fw_sink_replace(sink, b"x".as_ptr(), 1, &raw const meta, null_mut()),
            fw_sink_drop(sink, 1),
            fw_sink_modify(sink, 1, &raw const change),
            fw_sink_has_room(sink, 1),
            fw_sink_events(sink, &raw mut fd),
            fw_sink_clear_events(sink),
            fw_sink_poll_fate(sink, &raw mut fate),
            fw_sink_stats(sink, &raw mut stats),
            fw_sink_interject(sink, null(), 0),
            fw_sink_ended(sink, &raw mut ended),
            fw_sink_close(sink, FW_ABORT, 0, &raw mut ended),
            fw_sender_push_to_all(sender, null(), 0, null(), 0, null(), null_mut(), null_mut()),
            fw_sender_push_to_all(sender, &raw const sink, 1, null(), 0, null(), null_mut(), null_mut()),
            fw_sender_add_sink(sender, 0, null(), &raw mut new_sink),
            fw_sender_add_a1_sink(sender, connection, null(), 0, &raw mut new_sink),
            fw_sender_add_a1_sink_with(sender, connection, &fw_a1_sink_config_default(), &raw mut new_sink),
            fw_sender_new(fw_engine { id: id | 1 }, null(), &raw mut new_sender),
            fw_receiver_next(receiver, 0, null_mut(), 0, &raw mut record),
            fw_node_port(node, &raw mut port),
            fw_node_public_key(node, text.as_mut_ptr()),
            fw_node_accept(node, 0, &raw mut new_connection),
            fw_connection_recv(connection, 0, null_mut(), 0, &raw mut message),
            fw_connection_close(connection, 0, c"".as_ptr()),
            fw_websocket_new(
                sender,
                0,
                null(),
                0,
                FW_TEXT,
                0,
                null(),
                &raw mut new_websocket,
                &raw mut new_sink,
            ),
            fw_websocket_next(websocket, 0, null_mut(), 0, &raw mut client_message),
            fw_websocket_fd(websocket, &raw mut fd),
            fw_websocket_ended(websocket, &raw mut code),
            fw_websocket_close(websocket, 1000, null()),
            fw_gate_acknowledge(gate, 1),
            fw_gate_acknowledge_more(gate, 1),
            fw_gate_outstanding(gate, &raw mut outstanding),
            fw_adaptive_observe(adaptive, &raw const meta, 1),
            fw_adaptive_set_present(adaptive, 0, 1),
            fw_adaptive_for_another(adaptive, 1, &raw mut another),
            fw_adaptive_free(another),
            fw_adaptive_selection(adaptive, &raw mut selected),
            fw_adaptive_cost(adaptive, 0, &raw mut cost),
            fw_link_socket(link, FW_NEAR, libc::AF_INET, libc::SOCK_DGRAM, 0, &raw mut socket),
            fw_link_port(link, &raw mut port),
            fw_link_set_rate(link, FW_UP, 1000),
            fw_link_stats(link, &raw mut account),
            fw_link_close(link),
        ]
    };
    if socket >= 0 {
        // SAFETY: the link made it for its caller.
        drop(unsafe { OwnedFd::from_raw_fd(socket) });
    }
    statuses
}

fn all_statuses(id: u64) -> impl Iterator<Item = fw_status> {
    call_all(id).into_iter().chain(call_all_of_reservations(id)).chain(call_all_of_a1(id))
}

/// The calls of reservations, likewise.
fn call_all_of_reservations(id: u64) -> [fw_status; 6] {
    let (sink, sender) = (fw_sink { id }, fw_sender { id });
    let (reservation, mut new_reservation) = (fw_reservation { id }, fw_reservation::default());
    let (mut data, mut len) = (null_mut(), 0);
    // SAFETY: every pointer is to a local value, or null where that is allowed.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
    unsafe {
        [
            fw_sink_reserve(sink, 1, null(), &raw mut new_reservation),
            fw_sink_commit(sink, reservation, 0, null(), null_mut()),
            fw_reservation_piece(reservation, 0, &raw mut data, &raw mut len),
            fw_sender_reserve(sender, null(), 0, 1, null(), &raw mut new_reservation),
            fw_sender_commit_to_all(sender, null(), 0, reservation, 0, null(), null_mut(), null_mut()),
            fw_reservation_free(reservation),
        ]
    }
}

/// The calls of A1 beyond nodes and messages, likewise.
fn call_all_of_a1(id: u64) -> Vec<fw_status> {
    let (node, connection, group) = (fw_node { id }, fw_connection { id }, fw_group { id });
    let (incoming, stream, sender) = (fw_incoming { id }, fw_stream { id }, fw_sender { id });
    let (mut fd, mut count, mut kind, mut code, mut byte) = (0, 0, 0, 0, 0);
    let (mut qos, mut stats, mut status) =
        (fw_qos_default(), fw_a1_stats::default(), fw_a1_status::default());
    let mut peer = fw_peer { address: [0; FW_ADDRESS_TEXT], key: [0; FW_KEY_TEXT] };
    let mut membership = fw_membership { group: 0, joined: 0, address: [0; FW_ADDRESS_TEXT] };
    let config = fw_group_config_default(c"239.255.79.2:5004".as_ptr(), 1_000_000);
    let key = c"0000000000000000000000000000000000000000000000000000000000000009".as_ptr();
    let (mut new_incoming, mut new_group) = (fw_incoming::default(), fw_group::default());
    let (mut new_connections, mut new_stream) = ([fw_connection::default(); 2], fw_stream::default());
    let mut new_sink = fw_sink::default();
    // SAFETY: every pointer is to a local value, or null where that is allowed.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
    let statuses = unsafe {
        vec![
            fw_node_events(node, &raw mut fd),
            fw_node_clear_events(node),
            fw_node_stats(node, &mut fw_endpoint_stats::default()),
            fw_node_incoming(node, 0, &raw mut new_incoming),
            fw_node_group(node, &raw const config, &raw mut new_group),
            fw_node_begin_connect(node, c"127.0.0.1:9".as_ptr(), key, null(), 1, &raw mut new_connections[0]),
            fw_connection_open(connection),
            fw_connection_peer(connection, &raw mut peer),
            fw_connection_qos(connection, &raw mut qos, null_mut()),
            fw_connection_set_qos(connection, &raw const qos),
            fw_connection_protection(connection, &raw mut kind),
            fw_connection_stats(connection, &raw mut stats),
            fw_connection_status(connection, &raw mut status),
            fw_connection_closed(connection, &raw mut kind, &raw mut code),
            fw_connection_poll_missing(connection, &mut fw_missing::default()),
            fw_connection_membership(connection, 0, &raw mut membership),
            fw_connection_events(connection, &raw mut fd),
            fw_connection_clear_events(connection),
            fw_group_invite(group, connection),
            fw_group_stats(group, &mut fw_multicast_stats::default()),
            fw_sender_add_a1_group(sender, group, null(), 0, &raw mut new_sink),
            fw_incoming_peer(incoming, &raw mut peer),
            fw_incoming_qos(incoming, &raw mut qos, null_mut()),
            fw_incoming_accept(incoming, null(), &raw mut new_connections[1]),
            fw_incoming_refuse(incoming, 300, c"".as_ptr()),
            fw_stream_new(connection, &raw mut new_stream),
            fw_stream_read(stream, 0, &raw mut byte, 1, &raw mut count),
            fw_stream_write(stream, 0, null(), 0, &raw mut count),
            fw_stream_finish(stream, 0),
            fw_stream_events(stream, FW_READ, &raw mut fd),
            fw_stream_clear_events(stream, FW_WRITE),
        ]
    };
    fw_incoming_free(new_incoming);
    fw_group_free(new_group);
    for connection in new_connections {
        fw_connection_free(connection);
    }
    fw_sink_free(new_sink);
    fw_stream_free(new_stream);
    statuses
}

fn free_all(id: u64) -> [fw_status; 13] {
    [
        fw_websocket_free(fw_websocket { id }),
        fw_sink_free(fw_sink { id }),
        fw_sender_free(fw_sender { id }),
        fw_receiver_free(fw_receiver { id }),
        fw_node_free(fw_node { id }),
        fw_connection_free(fw_connection { id }),
        fw_group_free(fw_group { id }),
        fw_incoming_free(fw_incoming { id }),
        fw_stream_free(fw_stream { id }),
        fw_gate_free(fw_gate { id }),
        fw_adaptive_free(fw_adaptive { id }),
        fw_link_free(fw_link { id }),
        fw_engine_free(fw_engine { id }),
    ]
}

#[test]
fn any_number_is_a_status() {
    bolero::check!().with_type::<u64>().for_each(|id| {
        // The handles of the other tests have small numbers and low generations.
        let id = *id | 1 << 62;
        for status in all_statuses(id) {
            assert_eq!(status, FW_DEAD_HANDLE);
        }
        assert_eq!(free_all(id), [FW_DEAD_HANDLE; 13]);
    });
}

#[test]
fn zero_is_no_handle() {
    assert_eq!(free_all(0), [FW_DEAD_HANDLE; 13]);
    // SAFETY: the message is valid until this thread's next failure.
    let words = unsafe { CStr::from_ptr(fw_last_error()) };
    assert_eq!(words.to_str(), Ok("the engine is 0, which is no handle"));
}

/// Handles of every kind, used and freed in any order and as any kind, also twice.
#[test]
fn calls_in_any_order_never_crash() {
    bolero::check!().with_iterations(100).with_type::<Vec<(u8, u8)>>().for_each(|steps| {
        let mut ids = vec![0_u64];
        let mut peers = Vec::new();
        for &(step, which) in steps {
            let id = ids[usize::from(which) % ids.len()];
            match step % 20 {
                0 => ids.push(made_engine()),
                1 => ids.push(made_sender(id)),
                2 => {
                    let (near, far) = UnixStream::pair().expect("a pair");
                    let mut sink = fw_sink::default();
                    // SAFETY: the handle is local.
                    unsafe { fw_sender_add_sink(fw_sender { id }, near.as_raw_fd(), null(), &raw mut sink) };
                    ids.push(sink.id);
                    peers.push(far);
                }
                3 => {
                    let (near, far) = UnixStream::pair().expect("a pair");
                    let mut receiver = fw_receiver::default();
                    // SAFETY: the handle is local.
                    unsafe { fw_receiver_new(near.as_raw_fd(), 0, &raw mut receiver) };
                    ids.push(receiver.id);
                    peers.push(far);
                }
                4 => drop(free_all(id)),
                5 => ids.push(made_node()),
                6 => ids.extend(connected(id)),
                7 => ids.push(made_group(id)),
                8 => ids.push(made_stream(id)),
                13 => {
                    let (near, far) = UnixStream::pair().expect("a pair");
                    ids.extend(made_websocket(id, near.as_raw_fd(), &[0x89, 0x80, which, step, 0, 1]));
                    peers.push(far);
                }
                9 => ids.push(made_gate()),
                10 => ids.push(made_adaptive()),
                11 => ids.push(made_gated_sink(id, ids[usize::from(step) % ids.len()], &mut peers)),
                12 if which % 8 == 0 => ids.push(made_link()),
                _ => {
                    for status in all_statuses(id) {
                        assert_ne!(status, FW_PANIC);
                    }
                }
            }
        }
        for id in ids {
            free_all(id);
            assert_eq!(free_all(id), [FW_DEAD_HANDLE; 13]);
        }
    });
}

fn made_engine() -> u64 {
    let mut engine = fw_engine::default();
    // SAFETY: the handle is local.
    assert_eq!(unsafe { fw_engine_new(&raw mut engine) }, FW_OK);
    engine.id
}

fn made_gate() -> u64 {
    let mut gate = fw_gate::default();
    // SAFETY: the handle is local.
    assert_eq!(unsafe { fw_gate_new(1, &raw mut gate) }, FW_OK);
    gate.id
}

/// A link, or no handle where the system gives none. The first four, as each is a process.
fn made_link() -> u64 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let mut link = fw_link::default();
    if MADE.fetch_add(1, Ordering::Relaxed) < 4 {
        // SAFETY: the handle is local.
        let status = unsafe { fw_link_new(null(), &raw mut link) };
        assert!(status == FW_OK || status == FW_NOT_PERMITTED, "{status:?}");
    }
    link.id
}

fn made_adaptive() -> u64 {
    let mut adaptive = fw_adaptive::default();
    // SAFETY: the handle is local.
    assert_eq!(unsafe { fw_adaptive_new(&raw mut adaptive) }, FW_OK);
    adaptive.id
}

/// A sink whose policy has a gate and renditions of any handle.
fn made_gated_sink(sender: u64, policy: u64, peers: &mut Vec<UnixStream>) -> u64 {
    let (near, far) = UnixStream::pair().expect("a pair");
    let mut sink = fw_sink::default();
    let mut config = fw_sink_config_default();
    config.policy.kind = if policy.is_multiple_of(2) { FW_ADAPTIVE } else { FW_RULES };
    config.policy.adaptive = fw_adaptive { id: policy };
    if config.policy.kind == FW_RULES {
        config.policy.gate = fw_gate { id: policy };
    }
    // SAFETY: the settings and the handle are local.
    unsafe {
        fw_sender_add_sink(fw_sender { id: sender }, near.as_raw_fd(), &raw const config, &raw mut sink)
    };
    peers.push(far);
    sink.id
}

fn made_sender(engine: u64) -> u64 {
    let mut sender = fw_sender::default();
    // SAFETY: the handle is local.
    unsafe { fw_sender_new(fw_engine { id: engine }, null(), &raw mut sender) };
    sender.id
}

/// The handles of a WebSocket and its sink, with these bytes behind the request.
fn made_websocket(sender: u64, fd: i32, leftover: &[u8]) -> [u64; 2] {
    let (mut websocket, mut sink) = (fw_websocket::default(), fw_sink::default());
    let sender = fw_sender { id: sender };
    let (bytes, len) = (leftover.as_ptr(), leftover.len());
    // SAFETY: the handles are local.
    unsafe {
        fw_websocket_new(sender, fd, bytes, len, FW_BINARY, 0, null(), &raw mut websocket, &raw mut sink)
    };
    [websocket.id, sink.id]
}

/// Any bytes of a client, in any pieces, are messages or the end of the connection.
#[test]
fn any_bytes_of_a_websocket_client_are_read_or_refused() {
    let engine = made_engine();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    bolero::check!().with_iterations(200).with_type::<(Vec<u8>, Vec<u8>, u8)>().for_each(
        |(leftover, sent, size)| {
            let mut far = TcpStream::connect(address).expect("a connection");
            let near = listener.accept().expect("a connection").0;
            let sender = made_sender(engine);
            let [websocket, sink] = made_websocket(sender, near.as_raw_fd(), leftover);
            drop(near);
            assert!(websocket != 0 && sink != 0);
            // A client that was refused is closed.
            let _ = far.write_all(sent);
            let _ = far.shutdown(std::net::Shutdown::Write);
            let websocket = fw_websocket { id: websocket };
            let (mut buffer, mut message) = (vec![0; usize::from(*size)], fw_websocket_message::default());
            loop {
                let len = buffer.len();
                // SAFETY: the buffer and the structure are local.
                let status = unsafe {
                    fw_websocket_next(websocket, FW_DEFAULT, buffer.as_mut_ptr(), len, &raw mut message)
                };
                match status {
                    FW_OK => assert!(message.len <= buffer.len()),
                    FW_SMALL_BUFFER => buffer.resize(message.len, 0),
                    FW_END => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(fw_websocket_free(websocket), FW_OK);
            assert_eq!(fw_sink_free(fw_sink { id: sink }), FW_OK);
            assert_eq!(fw_sender_free(fw_sender { id: sender }), FW_OK);
        },
    );
    assert_eq!(fw_engine_free(fw_engine { id: engine }), FW_OK);
}

fn made_node() -> u64 {
    let config = fw_node_config { in_order: 1, ..fw_node_config_default() };
    let mut node = fw_node::default();
    // SAFETY: the handle and the settings are local.
    let bound = unsafe { fw_node_bind_with(c"127.0.0.1:0".as_ptr(), &raw const config, &raw mut node) };
    assert_eq!(bound, FW_OK);
    node.id
}

/// Both ends of a connection of a node with itself; none if it is no node.
fn connected(node: u64) -> Vec<u64> {
    let (node, mut port, mut key) = (fw_node { id: node }, 0, [0; FW_KEY_TEXT]);
    // SAFETY: the places are local, and have the room.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
    let is_node = unsafe {
        fw_node_port(node, &raw mut port) == FW_OK && fw_node_public_key(node, key.as_mut_ptr()) == FW_OK
    };
    if !is_node {
        return Vec::new();
    }
    const LIMIT: u64 = 60_000_000_000;
    let (mut from, mut to) = (fw_connection::default(), fw_connection::default());
    // SAFETY: the strings and handles are local.
    let made =
        unsafe { fw_node_connect(node, c"127.0.0.1".as_ptr(), port, key.as_ptr(), LIMIT, &raw mut from) };
    assert_eq!(made, FW_OK);
    // SAFETY: the handle is local.
    assert_eq!(unsafe { fw_node_accept(node, LIMIT, &raw mut to) }, FW_OK);
    vec![from.id, to.id]
}

fn made_group(node: u64) -> u64 {
    let config = fw_group_config_default(c"239.255.79.3:5004".as_ptr(), 1_000_000);
    let mut group = fw_group::default();
    // SAFETY: the settings and the handle are local.
    unsafe { fw_node_group(fw_node { id: node }, &raw const config, &raw mut group) };
    group.id
}

fn made_stream(connection: u64) -> u64 {
    let mut stream = fw_stream::default();
    // SAFETY: the handle is local.
    unsafe { fw_stream_new(fw_connection { id: connection }, &raw mut stream) };
    stream.id
}

#[test]
fn null_pointers_are_a_status() {
    // SAFETY: null is what the calls promise to notice.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
    unsafe {
        assert_eq!(fw_engine_new(null_mut()), FW_INVALID);
        assert_eq!(fw_sink_push(fw_sink::default(), null(), 1, null(), null_mut()), FW_INVALID);
        assert_eq!(
            fw_sink_push(fw_sink::default(), b"x".as_ptr(), usize::MAX, null(), null_mut()),
            FW_INVALID
        );
        assert_eq!(fw_sink_modify(fw_sink::default(), 0, null()), FW_INVALID);
        assert_eq!(fw_node_bind(null(), null(), null_mut()), FW_INVALID);
        let mut node = fw_node::default();
        assert_eq!(fw_node_bind(c"nowhere".as_ptr(), null(), &raw mut node), FW_INVALID);
        assert_eq!(fw_receiver_new(-1, 0, &mut fw_receiver::default()), FW_INVALID);
        assert_eq!(fw_gate_new(1, null_mut()), FW_INVALID);
        assert_eq!(fw_adaptive_new(null_mut()), FW_INVALID);
        assert_eq!(fw_adaptive_observe(fw_adaptive::default(), null(), 1), FW_INVALID);
        assert_eq!(fw_link_new(null(), null_mut()), FW_INVALID);
        assert_eq!(fw_rate_parse(null(), null_mut()), FW_INVALID);
        assert_eq!(fw_rate_parse(c"1kbit".as_ptr(), null_mut()), FW_INVALID);
        assert_eq!(fw_receiver_new(1 << 20, 0, &mut fw_receiver::default()), FW_INVALID);
        assert_eq!(fw_node_bind_with(null(), null(), &raw mut node), FW_INVALID);
        let address = c"127.0.0.1:0".as_ptr();
        assert_eq!(fw_node_bind_with(address, null(), null_mut()), FW_INVALID);
        for wrong in wrong_configs() {
            assert_eq!(fw_node_bind_with(address, &raw const wrong, &raw mut node), FW_INVALID);
            assert_eq!(node.id, 0);
        }
        assert_eq!(fw_node_events(fw_node::default(), null_mut()), FW_INVALID);
        assert_eq!(fw_node_group(fw_node::default(), null(), &mut fw_group::default()), FW_INVALID);
        let nowhere = fw_group_config_default(null(), 1);
        assert_eq!(
            fw_node_group(fw_node::default(), &raw const nowhere, &mut fw_group::default()),
            FW_INVALID
        );
        assert_eq!(fw_connection_set_qos(fw_connection::default(), null()), FW_INVALID);
        assert_eq!(fw_connection_status(fw_connection::default(), null_mut()), FW_INVALID);
        assert_eq!(fw_stream_new(fw_connection::default(), null_mut()), FW_INVALID);
        assert_eq!(fw_stream_read(fw_stream::default(), 0, null_mut(), 0, null_mut()), FW_INVALID);
        assert_eq!(fw_incoming_refuse(fw_incoming::default(), 300, null()), FW_INVALID);
    }
}

/// Settings of a node, each wrong in one.
fn wrong_configs() -> Vec<fw_node_config> {
    let right = fw_node_config_default();
    let no_window = fw_qos { outstanding: 0, ..right.maximum };
    vec![
        fw_node_config { private_key: c"no key".as_ptr(), ..right },
        fw_node_config { psk: c"no secret".as_ptr(), ..right },
        fw_node_config { allowed: NO_KEYS.as_ptr().cast(), allowed_count: 1, ..right },
        fw_node_config { allowed: NO_KEYS.as_ptr().cast(), allowed_count: usize::MAX, ..right },
        fw_node_config { join_most: 1, join_interface: c"eth0".as_ptr(), ..right },
        fw_node_config { maximum: no_window, ..right },
        fw_node_config { protection: 9, ..right },
        fw_node_config { congestion: 9, ..right },
        fw_node_config { backlog: 1 << 40, ..right },
    ]
}

/// A list of keys with none in it.
static NO_KEYS: AtomicPtr<std::ffi::c_char> = AtomicPtr::new(null_mut());
