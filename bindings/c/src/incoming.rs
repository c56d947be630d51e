//! A1 connection attempts that the application decides about.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use freshwire::a1::{AcceptError, Incoming};

use crate::a1::{ConnectionObject, NodeObject, SLICE};
use crate::a1_connection::{fw_peer, text_in};
use crate::a1_types::fw_qos;
use crate::border::{Failure, Result, call, fw_status, get, put, text};
use crate::handles::{Object, enter, find, free, fw_connection, fw_incoming, fw_node};
use crate::receiver::until;

pub(crate) struct IncomingObject(Mutex<Option<Incoming>>);

impl Object for IncomingObject {
    const NAME: &'static str = "incoming connection";
}

impl IncomingObject {
    fn look<T>(&self, look: impl FnOnce(&Incoming) -> T) -> Result<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(look).ok_or_else(decided)
    }

    fn take(&self) -> Result<Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(decided)
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
        unsafe { put("incoming", incoming, fw_incoming::default()) }?;
        let native = find::<NodeObject>(node.id)?.native()?;
        let until = until(timeout);
        let asked = loop {
            let left = until.saturating_since(freshwire::now()).min(SLICE);
            match native.incoming(left).map_err(|error| Failure::new(fw_status::FW_CLOSED, error))? {
                Some(asked) => break asked,
                None if left < SLICE => return Ok(fw_status::FW_NOTHING),
                None => {}
            }
        };
        let id = enter(IncomingObject(Mutex::new(Some(asked))))?;
        // SAFETY: as the caller promises.
        unsafe { put("incoming", incoming, fw_incoming { id }) }?;
        Ok(fw_status::FW_OK)
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
        let found = find::<IncomingObject>(incoming.id)?.look(|incoming| fw_peer {
            address: text_in(&incoming.peer_addr().to_string()),
            key: text_in(&incoming.peer_key().to_string()),
        })?;
        // SAFETY: as the caller promises.
        unsafe { put("peer", peer, found) }?;
        Ok(fw_status::FW_OK)
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
        let (asked, most) =
            find::<IncomingObject>(incoming.id)?.look(|incoming| (incoming.qos(), incoming.maximum()))?;
        // SAFETY: as the caller promises.
        unsafe { put("qos", qos, asked.into()) }?;
        if !maximum.is_null() {
            // SAFETY: as the caller promises.
            unsafe { put("maximum", maximum, most.into()) }?;
        }
        Ok(fw_status::FW_OK)
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
        unsafe { put("connection", connection, fw_connection::default()) }?;
        let maximum = match maximum.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { get("maximum", maximum) }?.checked()?),
        };
        let asked = find::<IncomingObject>(incoming.id)?.take()?;
        let accepted = match maximum {
            Some(maximum) => asked.accept_within(&maximum),
            None => asked.accept(),
        };
        let made = accepted.map_err(|error| {
            let status = match error {
                AcceptError::Qos(_) => fw_status::FW_INVALID,
                _ => fw_status::FW_CLOSED,
            };
            Failure::new(status, error)
        })?;
        let id = enter(ConnectionObject::new(made))?;
        // SAFETY: as the caller promises.
        unsafe { put("connection", connection, fw_connection { id }) }?;
        Ok(fw_status::FW_OK)
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
        find::<IncomingObject>(incoming.id)?.take()?.refuse(code, reason);
        Ok(fw_status::FW_OK)
    })
}

/// Frees an attempt. One that was not decided is refused with the code 256.
#[unsafe(no_mangle)]
pub extern "C" fn fw_incoming_free(incoming: fw_incoming) -> fw_status {
    call(|| {
        let object = free::<IncomingObject>(incoming.id)?;
        let incoming = object.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(incoming);
        Ok(fw_status::FW_OK)
    })
}
