//! A1 connection attempts that the application decides about.

use std::ffi::c_char;
use std::sync::Mutex;

use freshwire::a1::Incoming;

use crate::a1::{ConnectionObject, wait};
use crate::a1_connection::{fw_peer, text_in};
use crate::a1_types::fw_qos;
use crate::border::{Failure, Out, Result, call, done, fw_status, get, put, put_if_wanted, text};
use crate::common::locks::{lock, take};
use crate::handles::{enter, fw_connection, fw_incoming, fw_node, handle};

pub(crate) struct IncomingObject(Mutex<Option<Incoming>>);

handle!(fw_incoming, IncomingObject, "incoming connection");

impl IncomingObject {
    fn look<T>(&self, look: impl FnOnce(&Incoming) -> T) -> Result<T> {
        lock(&self.0).as_ref().map(look).ok_or_else(decided)
    }

    fn take(&self) -> Result<Incoming> {
        take(&self.0).ok_or_else(decided)
    }
}

fn decided() -> Failure {
    Failure::new(fw_status::FW_CLOSED, "the incoming connection was accepted or refused before")
}

/// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for a connection attempt to accept or refuse, of a node with `ask`.
/// FW_NOTHING: there was none.
///
/// # Safety
///
/// `incoming` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_incoming(
    node: fw_node,
    timeout: u64,
    incoming: *mut fw_incoming,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let incoming = unsafe { Out::new("incoming", incoming, fw_incoming::default()) }?;
        let native = node.find()?.native()?;
        let Some(asked) = wait(timeout, |slice| native.incoming(slice))? else {
            return Ok(fw_status::FW_NOTHING);
        };
        incoming.put(enter(IncomingObject(Mutex::new(Some(asked))))?)
    })
}

/// Writes the address and the public key of the peer, which has proved that it has both.
///
/// # Safety
///
/// `peer` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_incoming_peer(incoming: fw_incoming, peer: *mut fw_peer) -> fw_status {
    call(|| {
        let found = incoming.find()?.look(|incoming| fw_peer {
            address: text_in(&incoming.peer_addr().to_string()),
            key: text_in(&incoming.peer_key().to_string()),
        })?;
        // SAFETY: as the caller promises.
        unsafe { put("peer", peer, found) }
    })
}

/// Writes the requested quality of service, from this end's view, and, if `maximum` is not NULL, the upper limit of the peer's requests.
///
/// # Safety
///
/// `qos` points to a writable structure, `maximum` is NULL or does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_incoming_qos(
    incoming: fw_incoming,
    qos: *mut fw_qos,
    maximum: *mut fw_qos,
) -> fw_status {
    call(|| {
        let (asked, most) = incoming.find()?.look(|incoming| (incoming.qos(), incoming.maximum()))?;
        // SAFETY: as the caller promises.
        unsafe { put("qos", qos, asked.into()) }?;
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("maximum", maximum, || Ok(most.into())) }
    })
}

/// Accepts a connection, within the node's quality of service and within `maximum`, unless that is NULL. FW_CLOSED: the attempt has timed
/// out. The handle of the attempt is to be freed.
///
/// # Safety
///
/// `maximum` is NULL or points to a valid structure; `connection` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_incoming_accept(
    incoming: fw_incoming,
    maximum: *const fw_qos,
    connection: *mut fw_connection,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let connection = unsafe { Out::new("connection", connection, fw_connection::default()) }?;
        let maximum = match maximum.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { get("maximum", maximum) }?.checked()?),
        };
        let asked = incoming.find()?.take()?;
        let accepted = match maximum {
            Some(maximum) => asked.accept_within(&maximum),
            None => asked.accept(),
        };
        connection.put(enter(ConnectionObject::new(accepted?))?)
    })
}

/// Refuses a connection with a code for the peer, from 256 on the application's, and a reason of at most 256 bytes. The handle of the
/// attempt is to be freed.
///
/// # Safety
///
/// `reason` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_incoming_refuse(
    incoming: fw_incoming,
    code: u64,
    reason: *const c_char,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { text("reason", reason) }?;
        incoming.find()?.take()?.refuse(code, reason);
        Ok(fw_status::FW_OK)
    })
}

/// Frees an attempt. One that was not decided is refused with the code 256.
#[unsafe(no_mangle)]
pub extern "C" fn fw_incoming_free(incoming: fw_incoming) -> fw_status {
    call(|| {
        let object = incoming.free()?;
        Ok(done(take(&object.0)))
    })
}
