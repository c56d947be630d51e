//! A1: nodes and connections.

use std::ffi::c_char;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshwire::a1::{self, Closed, ConnectConfig, Connection, Node, NodeConfig, PublicKey, StaticKey};

use crate::border::{Failure, Result, call, fw_status, put, text};
use crate::handles::{Object, enter, find, free, fw_connection, fw_node};
use crate::receiver::{copy_out, until};

pub(crate) struct NodeObject(Mutex<Option<Arc<Node>>>);

impl Object for NodeObject {
    const NAME: &'static str = "node";
}

impl NodeObject {
    fn native(&self) -> Result<Arc<Node>> {
        let node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        node.clone().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the A1 node has stopped"))
    }
}

pub(crate) struct ConnectionObject {
    connection: Mutex<Option<Connection>>,
    /// A message that did not fit into the caller's buffer.
    kept: Mutex<Option<a1::Message>>,
}

impl Object for ConnectionObject {
    const NAME: &'static str = "connection";
}

impl ConnectionObject {
    fn new(connection: Connection) -> Self {
        Self { connection: Mutex::new(Some(connection)), kept: Mutex::default() }
    }

    pub(crate) fn native(&self) -> Result<Connection> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.clone().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the connection was freed"))
    }
}

/// Bytes of a key's text: 64 hexadecimal digits and a zero byte.
pub const FW_KEY_TEXT: usize = 65;

/// Longest wait inside the library without a look at the time limit.
const SLICE: Duration = Duration::from_secs(3600);

/// A message that came whole over A1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fw_message {
    /// Its number among all that the sender began, from 0.
    pub id: u64,
    /// The sending application's number.
    pub seq: u64,
    /// Messages with the same key replace each other; 0 is no key.
    pub key: u64,
    /// How old its content was when it was taken, in nanoseconds, by an estimate of the sender's clock.
    pub age: u64,
    /// Its bytes.
    pub len: usize,
    /// Messages that are decodable together.
    pub group: u32,
    /// Distances back in `seq` to the messages that it depends on.
    pub refs: [u32; 2],
    /// Rank in a layered stream.
    pub layer: u8,
    /// 1: it was taken after its deadline, by the same estimate.
    pub late: u8,
}

/// Writes a key's text.
///
/// # Safety
///
/// `to` has room for `FW_KEY_TEXT` bytes.
unsafe fn put_key(name: &str, to: *mut c_char, key: &str) -> Result<()> {
    if to.is_null() || key.len() + 1 != FW_KEY_TEXT {
        return Err(Failure::invalid(format!("{name} is NULL: room for FW_KEY_TEXT bytes is wanted")));
    }
    for (at, byte) in key.bytes().chain([0]).enumerate() {
        // SAFETY: as the caller promises, there is room for `FW_KEY_TEXT` bytes.
        let place = unsafe { to.add(at) };
        // SAFETY: likewise.
        unsafe { place.write(byte.cast_signed() as c_char) };
    }
    Ok(())
}

/// Makes a new private key, and writes it and its public key as text of FW_KEY_TEXT bytes.
///
/// # Safety
///
/// Both point to room for FW_KEY_TEXT bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_key_generate(private_key: *mut c_char, public_key: *mut c_char) -> fw_status {
    call(|| {
        let key = a1::generate_key()?;
        let text: String = key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        // SAFETY: as the caller promises.
        unsafe { put_key("private_key", private_key, &text) }?;
        // SAFETY: as the caller promises.
        unsafe { put_key("public_key", public_key, &key.public_key().to_string()) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Binds a node to an address such as "0.0.0.0:5000"; port 0 lets the kernel choose one. `private_key` is its text, or NULL for
/// a new one.
///
/// # Safety
///
/// `address` is a string, `private_key` NULL or a string; `node` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_bind(
    address: *const c_char,
    private_key: *const c_char,
    node: *mut fw_node,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("node", node, fw_node::default()) }?;
        // SAFETY: as the caller promises.
        let address = unsafe { text("address", address) }?;
        let address: SocketAddr =
            address.parse().map_err(|error| Failure::invalid(format!("address {address}: {error}")))?;
        let config = match private_key.is_null() {
            true => NodeConfig::new()?,
            false => {
                // SAFETY: as the caller promises.
                let key = unsafe { text("private_key", private_key) }?;
                NodeConfig::with_key(key.parse::<StaticKey>().map_err(Failure::invalid)?)
            }
        };
        let bound = Node::bind(address, config).map_err(|error| Failure::new(fw_status::FW_SYSTEM, error))?;
        let id = enter(NodeObject(Mutex::new(Some(Arc::new(bound)))))?;
        // SAFETY: as the caller promises.
        unsafe { put("node", node, fw_node { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Writes the port of a node's socket.
///
/// # Safety
///
/// `port` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_port(node: fw_node, port: *mut u16) -> fw_status {
    call(|| {
        let address = find::<NodeObject>(node.id)?.native()?.local_addr()?;
        // SAFETY: as the caller promises.
        unsafe { put("port", port, address.port()) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Writes a node's public key as text of FW_KEY_TEXT bytes.
///
/// # Safety
///
/// `key` points to room for FW_KEY_TEXT bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_public_key(node: fw_node, key: *mut c_char) -> fw_status {
    call(|| {
        let text = find::<NodeObject>(node.id)?.native()?.public_key().to_string();
        // SAFETY: as the caller promises.
        unsafe { put_key("key", key, &text) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Connects to the node with this public key, and waits for the handshake, at most `timeout` nanoseconds.
///
/// # Safety
///
/// `host` and `key` are strings; `connection` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_connect(
    node: fw_node,
    host: *const c_char,
    port: u16,
    key: *const c_char,
    timeout: u64,
    connection: *mut fw_connection,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("connection", connection, fw_connection::default()) }?;
        // SAFETY: as the caller promises.
        let host = unsafe { text("host", host) }?;
        // SAFETY: as the caller promises.
        let key = unsafe { text("key", key) }?;
        let key: PublicKey = key.parse().map_err(Failure::invalid)?;
        let native = find::<NodeObject>(node.id)?.native()?;
        let config = ConnectConfig::default().timeout(Duration::from_nanos(timeout));
        let made = native
            .connect((host, port), &key, &config)
            .map_err(|error| Failure::new(fw_status::FW_NOT_CONNECTED, error))?;
        let id = enter(ConnectionObject::new(made))?;
        // SAFETY: as the caller promises.
        unsafe { put("connection", connection, fw_connection { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for an incoming connection. FW_NOTHING: there was none.
///
/// # Safety
///
/// `connection` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_accept(
    node: fw_node,
    timeout: u64,
    connection: *mut fw_connection,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("connection", connection, fw_connection::default()) }?;
        let native = find::<NodeObject>(node.id)?.native()?;
        let until = until(timeout);
        let made = loop {
            let left = until.saturating_since(freshwire::now()).min(SLICE);
            match native.accept(left).map_err(|error| Failure::new(fw_status::FW_CLOSED, error))? {
                Some(made) => break made,
                None if left < SLICE => return Ok(fw_status::FW_NOTHING),
                None => {}
            }
        };
        let id = enter(ConnectionObject::new(made))?;
        // SAFETY: as the caller promises.
        unsafe { put("connection", connection, fw_connection { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Stops a node and aborts its connections.
#[unsafe(no_mangle)]
pub extern "C" fn fw_node_free(node: fw_node) -> fw_status {
    call(|| {
        let object = free::<NodeObject>(node.id)?;
        let node = object.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(node);
        Ok(fw_status::FW_OK)
    })
}

/// Waits at most `timeout` nanoseconds, FW_DEFAULT for ever, for the next message, and copies it to `buffer`. FW_NOTHING: none
/// came. FW_END: the peer has closed the connection with code 0. FW_SMALL_BUFFER: it has `message->len` bytes, and waits for a
/// call with a larger buffer.
///
/// # Safety
///
/// `buffer` points to `size` writable bytes, `message` to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_recv(
    connection: fw_connection,
    timeout: u64,
    buffer: *mut u8,
    size: usize,
    message: *mut fw_message,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("message", message, fw_message::default()) }?;
        let object = find::<ConnectionObject>(connection.id)?;
        let native = object.native()?;
        let kept = object.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let received = match kept {
            Some(kept) => kept,
            None => match receive(&native, timeout)? {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(fw_status::FW_NOTHING),
                Err(()) => return Ok(fw_status::FW_END),
            },
        };
        let found = fw_message {
            id: received.id,
            seq: received.seq,
            key: received.key,
            age: u64::try_from(received.age.as_nanos()).unwrap_or(u64::MAX),
            len: received.data.len(),
            group: received.group,
            refs: received.refs,
            layer: received.layer,
            late: received.late.into(),
        };
        // SAFETY: as the caller promises.
        unsafe { put("message", message, found) }?;
        // SAFETY: as the caller promises.
        match unsafe { copy_out(&received.data, buffer, size) } {
            Ok(()) => Ok(fw_status::FW_OK),
            Err(failure) => {
                *object.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
                Err(failure)
            }
        }
    })
}

/// The next message; `Err(())` after an end in good order.
fn receive(connection: &Connection, timeout: u64) -> Result<std::result::Result<Option<a1::Message>, ()>> {
    let until = until(timeout);
    loop {
        let left = until.saturating_since(freshwire::now()).min(SLICE);
        match connection.recv(left) {
            Ok(None) if left == SLICE => {}
            Ok(received) => return Ok(Ok(received)),
            Err(Closed::Peer { code: 0, .. }) => return Ok(Err(())),
            Err(ended) => return Err(Failure::new(fw_status::FW_CLOSED, ended)),
        }
    }
}

/// Closes a connection with a code (0 for normal) and a text for the peer. Undelivered messages are abandoned; close the sink
/// instead to deliver them first.
///
/// # Safety
///
/// `reason` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_connection_close(
    connection: fw_connection,
    code: u64,
    reason: *const c_char,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { text("reason", reason) }?;
        find::<ConnectionObject>(connection.id)?.native()?.close(code, reason);
        Ok(fw_status::FW_OK)
    })
}

/// Frees a connection, which closes it unless a sink has it.
#[unsafe(no_mangle)]
pub extern "C" fn fw_connection_free(connection: fw_connection) -> fw_status {
    call(|| {
        let object = free::<ConnectionObject>(connection.id)?;
        let connection = object.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(connection);
        Ok(fw_status::FW_OK)
    })
}
