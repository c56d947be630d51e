//! Reports of an A1 connection, and its quality of service.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

use freshwire::a1::{Closed, Missing};

use crate::a1::FW_KEY_TEXT;
use crate::a1_types::{fw_protection, fw_qos, protection_code};
use crate::border::{Failure, Out, call, done, fw_status, get, note, put, put_if_wanted};
use crate::common::structures::fw_a1_stats;
use crate::handles::fw_connection;

/// Bytes of an address's text with its port, such as "192.0.2.1:5000": at most this number with the zero byte.
pub const FW_ADDRESS_TEXT: usize = 64;

/// The other end of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_peer {
    /// Its address and port.
    pub address: [c_char; FW_ADDRESS_TEXT],
    /// Its public key.
    pub key: [c_char; FW_KEY_TEXT],
}

/// The text with zero bytes behind it, at least one.
pub(crate) fn text_in<const N: usize>(text: &str) -> [c_char; N] {
    let mut to = [0; N];
    for (place, byte) in to.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte.cast_signed() as c_char;
    }
    to
}

/// What holds messages of a connection back, and changes since the last call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_a1_status {
    /// 1: a message waits because the receiver's window is full.
    pub window_exceeded: u8,
    /// 1: a message waits for the agreed rate.
    pub rate_exceeded: u8,
    /// 1: a change of the quality of service is pending.
    pub qos_pending: u8,
    /// 1: the quality of service has changed since it was last reported, whichever end requested it.
    pub qos_changed: u8,
    /// 1: the connection goes over TCP: tcp_fallback permits it, and UDP does not pass.
    pub over_tcp: u8,
}

/// How a connection has ended, from FW_CLOSED_LOCAL to FW_CLOSED_OTHER.
pub type fw_closed = u32;
/// This end closed it.
pub const FW_CLOSED_LOCAL: fw_closed = 0;
/// The peer closed it, with a code.
pub const FW_CLOSED_PEER: fw_closed = 1;
/// Nothing came for too long.
pub const FW_CLOSED_SILENT: fw_closed = 2;
/// The peer broke the protocol.
pub const FW_CLOSED_VIOLATION: fw_closed = 3;
/// The peer has restarted, and does not know the connection.
pub const FW_CLOSED_PEER_RESTARTED: fw_closed = 4;
/// The keys can protect no more packets.
pub const FW_CLOSED_KEYS_EXHAUSTED: fw_closed = 5;
/// Another reason.
pub const FW_CLOSED_OTHER: fw_closed = 6;

/// FW_MISSING_COMMITTED, FW_MISSING_OF_GROUP or FW_MISSING_NEVER_COMMITTED.
pub type fw_missing_kind = u32;
/// A message whose sending had started: `first` is its number among those (`fw_message.id`).
pub const FW_MISSING_COMMITTED: fw_missing_kind = 0;
/// A message of the multicast group `group`: `first` is its number among those of the group.
pub const FW_MISSING_OF_GROUP: fw_missing_kind = 1;
/// `count` messages from the application's number `first` on, whose sending never started.
pub const FW_MISSING_NEVER_COMMITTED: fw_missing_kind = 2;

/// Messages that will not come.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_missing {
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// What the numbers are.
    pub kind: fw_missing_kind,
    /// The group's number.
    pub group: u32,
    /// Why, as in fw_fate.
    pub reason: u8,
}

/// A multicast group to which the peer of a connection has invited this node.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_membership {
    /// The number that the group's packets carry.
    pub group: u32,
    /// 1: this node has joined the address; 0: fw_last_error says why not. Delivery is up to the network.
    pub joined: u8,
    /// Destination of the group's packets.
    pub address: [c_char; FW_ADDRESS_TEXT],
}

/// Writes the address and the public key of the peer.
///
/// # Safety
///
/// `peer` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_peer(connection: fw_connection, peer: *mut fw_peer) -> fw_status {
    call(|| {
        let native = connection.find()?.native()?;
        let key = native.peer_key().map(|key| key.to_string()).unwrap_or_default();
        let found = fw_peer { address: text_in(&native.peer_addr().to_string()), key: text_in(&key) };
        // SAFETY: as the caller promises.
        unsafe { put("peer", peer, found) }
    })
}

fn ended() -> Failure {
    Failure::new(fw_status::FW_CLOSED, "the connection has ended")
}

/// Writes the quality of service in force, after the connection's end the last one, and, if `maximum` is not NULL, the upper limit for
/// fw_connection_set_qos.
///
/// # Safety
///
/// `qos` points to a writable structure, `maximum` is NULL or does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_qos(
    connection: fw_connection,
    qos: *mut fw_qos,
    maximum: *mut fw_qos,
) -> fw_status {
    call(|| {
        let native = connection.find()?.native()?;
        let current = native.qos().ok_or_else(ended)?;
        // SAFETY: as the caller promises.
        unsafe { put("qos", qos, current.into()) }?;
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("maximum", maximum, || Ok(native.maximum().ok_or_else(ended)?.into())) }
    })
}

/// Requests another quality of service. It takes effect with the peer's answer. FW_INVALID beyond the maximum, FW_FULL while another
/// change is pending, FW_CLOSED after the connection's end.
///
/// # Safety
///
/// `qos` points to a valid structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_set_qos(connection: fw_connection, qos: *const fw_qos) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let qos = unsafe { get("qos", qos) }?;
        let native = connection.find()?.native()?;
        Ok(done(native.set_qos(qos.checked()?)?))
    })
}

/// Writes the protection of the packets: the stronger of both ends' requirements.
///
/// # Safety
///
/// `protection` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_protection(
    connection: fw_connection,
    protection: *mut fw_protection,
) -> fw_status {
    call(|| {
        let native = connection.find()?.native()?;
        let code = protection_code(native.protection().ok_or_else(ended)?);
        // SAFETY: as the caller promises.
        unsafe { put("protection", protection, code) }
    })
}

/// Writes the counters of a connection, also after its end.
///
/// # Safety
///
/// `stats` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_stats(
    connection: fw_connection,
    stats: *mut fw_a1_stats,
) -> fw_status {
    call(|| {
        let native = connection.find()?.native()?;
        let known = native.stats().ok_or_else(ended)?.into();
        // SAFETY: as the caller promises.
        unsafe { put("stats", stats, known) }
    })
}

/// Writes what holds messages back and whether the quality of service has changed. A change is reported once.
///
/// # Safety
///
/// `status` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_status(
    connection: fw_connection,
    status: *mut fw_a1_status,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises. Tried before the change is reported.
        let status = unsafe { Out::new("status", status, fw_a1_status::default()) }?;
        let known = connection.find()?.native()?.status();
        let known = fw_a1_status {
            window_exceeded: known.window_exceeded.into(),
            rate_exceeded: known.rate_exceeded.into(),
            qos_pending: known.qos_pending.into(),
            qos_changed: known.qos_changed.into(),
            over_tcp: known.over_tcp.into(),
        };
        status.put(known)
    })
}

/// Writes how a connection has ended, and the peer's code for FW_CLOSED_PEER; fw_last_error has the words. FW_NOTHING: it is open.
///
/// # Safety
///
/// `closed` and `code` point to writable values; `code` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_closed(
    connection: fw_connection,
    closed: *mut fw_closed,
    code: *mut u64,
) -> fw_status {
    call(|| {
        let native = connection.find()?.native()?;
        let Some(end) = native.closed() else { return Ok(fw_status::FW_NOTHING) };
        let (kind, number) = match &end {
            Closed::Local => (FW_CLOSED_LOCAL, 0),
            Closed::Peer { code, .. } => (FW_CLOSED_PEER, *code),
            Closed::Silent => (FW_CLOSED_SILENT, 0),
            Closed::Violation(_) => (FW_CLOSED_VIOLATION, 0),
            Closed::PeerRestarted => (FW_CLOSED_PEER_RESTARTED, 0),
            Closed::KeysExhausted => (FW_CLOSED_KEYS_EXHAUSTED, 0),
            _ => (FW_CLOSED_OTHER, 0),
        };
        // SAFETY: as the caller promises.
        unsafe { put("closed", closed, kind) }?;
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("code", code, || Ok(number)) }?;
        note(&end.to_string());
        Ok(fw_status::FW_OK)
    })
}

/// Writes the next report of messages that the peer has dropped or abandoned, the oldest first. FW_NOTHING: there is none.
///
/// # Safety
///
/// `missing` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_poll_missing(
    connection: fw_connection,
    missing: *mut fw_missing,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises. Tried before the report is taken.
        let missing = unsafe { Out::new("missing", missing, fw_missing::default()) }?;
        let native = connection.find()?.native()?;
        let (kind, group, first, count, reason) = match native.poll_missing() {
            None => return Ok(fw_status::FW_NOTHING),
            Some(Missing::Committed { id, reason }) => (FW_MISSING_COMMITTED, 0, id, 1, reason),
            Some(Missing::OfGroup { group, id, reason }) => (FW_MISSING_OF_GROUP, group, id, 1, reason),
            Some(Missing::NeverCommitted { first, count, reason }) => {
                (FW_MISSING_NEVER_COMMITTED, 0, first, count, reason)
            }
            Some(other) => {
                return Err(Failure::new(fw_status::FW_FAILED, format!("unknown report {other:?}")));
            }
        };
        missing.put(fw_missing { first, count, kind, group, reason: reason.code() })
    })
}

/// Writes an invitation of the peer to a multicast group, by its place among them, from 0. FW_NOTHING: there are fewer. Messages of
/// groups come with those of the connection.
///
/// # Safety
///
/// `membership` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_membership(
    connection: fw_connection,
    at: usize,
    membership: *mut fw_membership,
) -> fw_status {
    call(|| {
        let native = connection.find()?.native()?;
        let memberships = native.memberships();
        let Some(known) = memberships.get(at) else { return Ok(fw_status::FW_NOTHING) };
        let found = fw_membership {
            group: known.group,
            joined: known.joined.is_ok().into(),
            address: text_in(&known.address.to_string()),
        };
        // SAFETY: as the caller promises.
        unsafe { put("membership", membership, found) }?;
        if let Err(reason) = &known.joined {
            note(&reason.to_string());
        }
        Ok(fw_status::FW_OK)
    })
}

/// Writes a descriptor that becomes readable when a message or a report of a missing one has come, or the connection has ended. A change
/// of the quality of service and an invitation count too. Call fw_connection_recv with a timeout of 0 then. It stays readable until
/// fw_connection_clear_events. It is the connection's own, the same at each call and valid until fw_connection_free: do not close
/// it, and let one place wait for it.
///
/// # Safety
///
/// `fd` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_events(connection: fw_connection, fd: *mut c_int) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let fd = unsafe { Out::new("fd", fd, -1) }?;
        fd.put(connection.find()?.events()?.as_raw_fd())
    })
}

/// Makes the descriptor of fw_connection_events unreadable until the next change. Call it before looking for what is new, not after.
#[unsafe(no_mangle)]
pub extern "C" fn fw_connection_clear_events(connection: fw_connection) -> fw_status {
    call(|| {
        connection.find()?.events()?.clear();
        Ok(fw_status::FW_OK)
    })
}
