//! A1: nodes and connections.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use freshwire::a1::{
    self, Closed, ConnectConfig, Connecting, Connection, Events, Node, NodeConfig, PublicKey,
};

use crate::a1_types::{fw_node_config, fw_qos, with_key};
use crate::border::{Failure, Out, Result, call, fw_status, get, once, put, text};
use crate::common::locks::{lock, take};
use crate::common::structures::fw_endpoint_stats;
use crate::handles::{enter, fw_connection, fw_node, handle};
use crate::receiver::{copy_out, until};

pub(crate) struct NodeObject {
    node: Mutex<Option<Arc<Node>>>,
    /// From the first `fw_node_events` on.
    events: OnceLock<Events>,
}

handle!(fw_node, NodeObject, "node");

impl NodeObject {
    fn new(node: Node) -> Self {
        Self { node: Mutex::new(Some(Arc::new(node))), events: OnceLock::new() }
    }

    fn events(&self) -> Result<&Events> {
        once(&self.events, || Ok(self.native()?.events()?))
    }

    pub(crate) fn native(&self) -> Result<Arc<Node>> {
        let node = lock(&self.node);
        node.clone().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the A1 node has stopped"))
    }
}

pub(crate) struct ConnectionObject {
    stage: Mutex<Stage>,
    /// From the first `fw_connection_events` on.
    events: OnceLock<Events>,
    /// Messages that did not fit into a caller's buffer: each call that waits may have had one.
    kept: Mutex<VecDeque<a1::Message>>,
    /// A sink or a stream has it too.
    has_user: AtomicBool,
}

/// How far a connection is.
enum Stage {
    /// Made by `fw_node_begin_connect`.
    Connecting(Connecting),
    Open(Connection),
    Freed,
}

handle!(fw_connection, ConnectionObject, "connection");

impl ConnectionObject {
    pub(crate) fn new(connection: Connection) -> Self {
        Self::of(Stage::Open(connection))
    }

    fn of(stage: Stage) -> Self {
        let (events, kept) = (OnceLock::new(), Mutex::default());
        Self { stage: Mutex::new(stage), events, kept, has_user: AtomicBool::new(false) }
    }

    /// The connection once its handshake is complete; `None` until then.
    fn poll_open(&self) -> Result<Option<Connection>> {
        let mut stage = lock(&self.stage);
        let open = match &*stage {
            Stage::Open(connection) => return Ok(Some(connection.clone())),
            Stage::Freed => return Err(was_freed()),
            Stage::Connecting(connecting) => connecting.poll_open()?,
        };
        if let Some(connection) = &open {
            *stage = Stage::Open(connection.clone());
        }
        Ok(open)
    }

    pub(crate) fn native(&self) -> Result<Connection> {
        let in_progress =
            || Failure::new(fw_status::FW_NOT_CONNECTED, "the handshake is in progress: wait for its end");
        self.poll_open()?.ok_or_else(in_progress)
    }

    /// From now on the connection does not end with its handle.
    pub(crate) fn mark_used(&self) {
        self.has_user.store(true, Ordering::Relaxed);
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<a1::Message>> {
        lock(&self.kept)
    }

    pub(crate) fn events(&self) -> Result<&Events> {
        once(&self.events, || match &*lock(&self.stage) {
            Stage::Open(connection) => Ok(connection.events()?),
            Stage::Connecting(connecting) => Ok(connecting.events()?),
            Stage::Freed => Err(was_freed()),
        })
    }
}

fn was_freed() -> Failure {
    Failure::new(fw_status::FW_CLOSED, "the connection was freed")
}

/// Bytes of a key's text: 64 hexadecimal digits and a zero byte.
pub const FW_KEY_TEXT: usize = 65;

/// The code of a connection that is closed with its handle, as by its last owner in Rust.
const CODE_DONE: u64 = 0;

/// Longest wait inside the library without a look at the time limit.
pub(crate) const SLICE: Duration = Duration::from_secs(3600);

/// Calls `look` with time limits until it has something, or `timeout` has passed.
pub(crate) fn wait<T, E>(
    timeout: u64,
    look: impl Fn(Duration) -> std::result::Result<Option<T>, E>,
) -> std::result::Result<Option<T>, E> {
    let until = until(timeout);
    loop {
        let left = until.saturating_since(freshwire::now()).min(SLICE);
        let found = look(left)?;
        if found.is_some() || left < SLICE {
            return Ok(found);
        }
    }
}

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
        let node = unsafe { Out::new("node", node, fw_node::default()) }?;
        // SAFETY: as the caller promises.
        let address = unsafe { text("address", address) }?;
        let address = parse_address(address)?;
        // SAFETY: as the caller promises.
        let config = unsafe { with_key(private_key) }?;
        node.put(bind(address, config)?)
    })
}

fn parse_address(address: &str) -> Result<SocketAddr> {
    address.parse().map_err(|error| Failure::invalid(format!("address {address}: {error}")))
}

fn bind(address: SocketAddr, config: NodeConfig) -> Result<fw_node> {
    enter(NodeObject::new(Node::bind(address, config)?))
}

/// As fw_node_bind, with all settings. `config` may be NULL for the default.
///
/// # Safety
///
/// `address` is a string; `config` is NULL or points to valid settings; `node` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_bind_with(
    address: *const c_char,
    config: *const fw_node_config,
    node: *mut fw_node,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { Out::new("node", node, fw_node::default()) }?;
        // SAFETY: as the caller promises.
        let address = parse_address(unsafe { text("address", address) }?)?;
        let config = match config.is_null() {
            true => NodeConfig::new()?,
            false => {
                // SAFETY: as the caller promises.
                let config = unsafe { get("config", config) }?;
                // SAFETY: as the caller promises.
                unsafe { config.native() }?
            }
        };
        node.put(bind(address, config)?)
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
        let address = node.find()?.native()?.local_addr()?;
        // SAFETY: as the caller promises.
        unsafe { put("port", port, address.port()) }
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
        let text = node.find()?.native()?.public_key().to_string();
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
        let connection = unsafe { Out::new("connection", connection, fw_connection::default()) }?;
        // SAFETY: as the caller promises.
        let host = unsafe { text("host", host) }?;
        // SAFETY: as the caller promises.
        let key = unsafe { text("key", key) }?;
        let key: PublicKey = key.parse().map_err(Failure::invalid)?;
        let native = node.find()?.native()?;
        // SAFETY: NULL is the node's maximum.
        let config = unsafe { connect_config(std::ptr::null(), timeout) }?;
        let made = native.connect((host, port), &key, &config)?;
        connection.put(enter(ConnectionObject::new(made))?)
    })
}

/// # Safety
///
/// `qos` is NULL or points to a valid structure.
unsafe fn connect_config(qos: *const fw_qos, timeout: u64) -> Result<ConnectConfig> {
    let config = ConnectConfig::default().timeout(Duration::from_nanos(timeout));
    if qos.is_null() {
        return Ok(config);
    }
    // SAFETY: as the caller promises.
    let qos = unsafe { get("qos", qos) }?;
    Ok(config.qos(qos.checked()?))
}

/// Begins to connect to `address`, such as "192.0.2.1:5000", and returns at once; the handshake takes at most `timeout` nanoseconds. `qos`
/// is the requested quality of service, which the peer may narrow; NULL for the node's maximum. fw_connection_open tells how it went;
/// fw_connection_events becomes readable then. Until it has gone well, other calls for the connection are FW_NOT_CONNECTED.
///
/// # Safety
///
/// `address` and `key` are strings; `qos` is NULL or points to a valid structure; `connection` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_begin_connect(
    node: fw_node,
    address: *const c_char,
    key: *const c_char,
    qos: *const fw_qos,
    timeout: u64,
    connection: *mut fw_connection,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let connection = unsafe { Out::new("connection", connection, fw_connection::default()) }?;
        // SAFETY: as the caller promises.
        let address = parse_address(unsafe { text("address", address) }?)?;
        // SAFETY: as the caller promises.
        let key = unsafe { text("key", key) }?;
        let key: PublicKey = key.parse().map_err(Failure::invalid)?;
        // SAFETY: as the caller promises.
        let config = unsafe { connect_config(qos, timeout) }?;
        let native = node.find()?.native()?;
        let connecting = native.begin_connect(address, &key, &config)?;
        connection.put(enter(ConnectionObject::of(Stage::Connecting(connecting)))?)
    })
}

/// Connects anew to the peer of a connection, with a larger maximum of the quality of service, which may exceed the node's. It is the remedy
/// where fw_connection_set_qos finds a request beyond the maximum. Waits for the handshake, at most `timeout` nanoseconds. `qos` is the requested
/// quality of service; NULL for `maximum`. The old connection stays as it is. FW_NOT_CONNECTED too if the peer allows less than `maximum`.
///
/// # Safety
///
/// `maximum` points to a valid structure, `qos` is NULL or does; `reopened` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_reopen(
    node: fw_node,
    connection: fw_connection,
    maximum: *const fw_qos,
    qos: *const fw_qos,
    timeout: u64,
    reopened: *mut fw_connection,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let reopened = unsafe { Out::new("reopened", reopened, fw_connection::default()) }?;
        // SAFETY: as the caller promises.
        let maximum = unsafe { get("maximum", maximum) }?.checked()?;
        // SAFETY: as the caller promises.
        let config = unsafe { connect_config(qos, timeout) }?;
        let (native, old) = (node.find()?.native()?, connection.find()?.native()?);
        let made = native.reopen(&old, maximum, &config)?;
        reopened.put(enter(ConnectionObject::new(made))?)
    })
}

/// Tells how the handshake of fw_node_begin_connect went: FW_OK, FW_NOTHING while it is in progress, FW_NOT_CONNECTED.
#[unsafe(no_mangle)]
pub extern "C" fn fw_connection_open(connection: fw_connection) -> fw_status {
    call(|| {
        let open = connection.find()?.poll_open()?;
        Ok(if open.is_some() { fw_status::FW_OK } else { fw_status::FW_NOTHING })
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
        let connection = unsafe { Out::new("connection", connection, fw_connection::default()) }?;
        let native = node.find()?.native()?;
        let Some(made) = wait(timeout, |slice| native.accept(slice))? else {
            return Ok(fw_status::FW_NOTHING);
        };
        connection.put(enter(ConnectionObject::new(made))?)
    })
}

/// Writes a descriptor that becomes readable when a connection or an attempt waits to be taken, or the node has stopped: call fw_node_accept
/// or fw_node_incoming with a timeout of 0. It stays readable until fw_node_clear_events. It is the node's own, the same at each call
/// and valid until fw_node_free: do not close it, and let one place wait for it.
///
/// # Safety
///
/// `fd` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_events(node: fw_node, fd: *mut c_int) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let fd = unsafe { Out::new("fd", fd, -1) }?;
        fd.put(node.find()?.events()?.as_raw_fd())
    })
}

/// Makes the descriptor of fw_node_events unreadable until the next change. Call it before the next attempt, not after.
#[unsafe(no_mangle)]
pub extern "C" fn fw_node_clear_events(node: fw_node) -> fw_status {
    call(|| {
        node.find()?.events()?.clear();
        Ok(fw_status::FW_OK)
    })
}

/// Writes the counters of a node.
///
/// # Safety
///
/// `stats` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_node_stats(node: fw_node, stats: *mut fw_endpoint_stats) -> fw_status {
    call(|| {
        let known = node.find()?.native()?.stats().into();
        // SAFETY: as the caller promises.
        unsafe { put("stats", stats, known) }
    })
}

/// Stops a node and aborts its connections. Calls of other threads that wait for them end, and no policy of their sinks is asked any more.
#[unsafe(no_mangle)]
pub extern "C" fn fw_node_free(node: fw_node) -> fw_status {
    call(|| {
        let object = node.free()?;
        let node = take(&object.node);
        if let Some(node) = node {
            // A call that waits has the node too, and would keep it alive.
            node.stop();
        }
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
        let message = unsafe { Out::new("message", message, fw_message::default()) }?;
        let object = connection.find()?;
        let native = object.native()?;
        let kept = object.kept().pop_front();
        let was_kept = kept.is_some();
        let received = match kept {
            Some(kept) => kept,
            None => match wait(timeout, |slice| native.recv(slice)) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(fw_status::FW_NOTHING),
                Err(Closed::Peer { code: 0, .. }) => return Ok(fw_status::FW_END),
                Err(ended) => return Err(ended.into()),
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
        message.put(found)?;
        // SAFETY: as the caller promises.
        match unsafe { copy_out(&received.data, buffer, size) } {
            Ok(()) => Ok(fw_status::FW_OK),
            Err(failure) => {
                let mut kept = object.kept();
                if was_kept {
                    kept.push_front(received)
                } else {
                    kept.push_back(received)
                }
                Err(failure)
            }
        }
    })
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
        connection.find()?.native()?.close(code, reason);
        Ok(fw_status::FW_OK)
    })
}

/// Frees a connection, which closes it unless a sink or a stream has it. A call that waits for a message ends with the connection.
#[unsafe(no_mangle)]
pub extern "C" fn fw_connection_free(connection: fw_connection) -> fw_status {
    call(|| {
        let object = connection.free()?;
        let stage = std::mem::replace(&mut *lock(&object.stage), Stage::Freed);
        // Dropping it closes it as well, but not while a call that waits has it too.
        if let Stage::Open(connection) = stage
            && !object.has_user.load(Ordering::Relaxed)
        {
            connection.close(CODE_DONE, "");
        }
        Ok(fw_status::FW_OK)
    })
}
