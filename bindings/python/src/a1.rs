//! A1: nodes, and the modules of what they make.

mod config;
mod connection;
mod group;
mod incoming;
mod qos;
mod reports;
mod stream;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freshwire::a1::{
    self, ConnectConfig, GroupConfig, GroupTransportConfig, NodeConfig, NodeStopped, PublicKey, Rate,
    StaticKey,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use self::config::parse;
pub(crate) use self::connection::Connection;
pub(crate) use self::group::Group;
use self::incoming::{Connecting, Incoming};
use self::qos::Qos;
use crate::common::locks::{lock, take};
use crate::common::structures::{fw_a1_stats, fw_endpoint_stats, fw_multicast_stats};
use crate::errors::raise;
use crate::events::Events;
use crate::guard::{Born, Stop, drop_apart, leave_to_parent, stop_at_exit};
use crate::network::NetworkQos;
use crate::waiting::{duration, in_slices, interruptible};

/// An A1 address: connects to other nodes and accepts their connections, over one UDP socket.
///
/// Binds to `address`, such as "0.0.0.0:5000"; port 0 lets the kernel choose one. `key` is the node's private key and
/// `psk` a shared secret, 64 hexadecimal digits each; `allowed` are the public keys of the peers that may connect.
///
/// Further keyword arguments, in seconds and bytes. For the node:
///
/// - accept: whether others may connect; backlog: connections that wait for `accept`; ask: decide with `incoming`.
/// - join: a `Join`, for groups; limits: a `Limits` of the work that strangers can cause.
/// - receive_buffer: bytes of the socket's buffer; busy_poll: seconds for which a call that waits polls first.
/// - tcp_fallback: go over TCP, at the same port, where UDP does not pass; both ends have to permit it.
/// - attempt_delay: seconds without an answer over UDP after which a new connection tries TCP as well, 0.01 to 2.
/// - network: a `NetworkQos` for all datagrams of the node. A connection towards an interface without `fq` is refused if a rate or
///   departure times are set.
/// - translate: each connection's agreed `Qos` becomes that of the network, where `network` leaves it open. A priority p is class selector
///   p, at most CS5, and `SO_PRIORITY` p, at most 6. With departure times its datagrams leave at its average rate.
///
/// For its connections:
///
/// - maximum: a `Qos`, the most that a peer gets; protection: "aead" or "dangerous-plain".
/// - idle_timeout: seconds of silence after which a connection has ended; keep_alive: seconds between signs of life, or `None`.
/// - in_order: messages come in the order of pushing, as a `ByteStream` needs.
/// - congestion: "copa", "cubic" or "newreno"; ecn: whether routers may mark packets; ack_delay: seconds.
/// - max_datagram: bytes, or `None` to find them; fec, fec_layers: forward error correction, and for how many layers.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Node {
    slot: Arc<Slot>,
    born: Born,
}

struct Slot(Mutex<Option<Arc<a1::Node>>>);

impl Slot {
    /// The node; dropped detached, since the last owner's drop joins its thread.
    fn native(&self) -> PyResult<Arc<a1::Node>> {
        let node = lock(&self.0);
        node.clone().ok_or_else(|| raise(NodeStopped))
    }
}

impl Stop for Slot {
    fn stop(&self) {
        let node = take(&self.0);
        if let Some(node) = node {
            // Calls of other threads have it too.
            node.stop();
        }
    }
}

impl Node {
    /// Calls `f` with the node, detached: a policy that holds the node's lock may wait for the interpreter.
    fn with<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&a1::Node) -> PyResult<T> + Send) -> PyResult<T> {
        self.born.check()?;
        py.detach(|| f(&*self.slot.native()?))
    }

    /// Calls `look` with short time limits, as [`in_slices`] does. A node that is closed meanwhile raises `Closed`.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        look: impl Fn(&a1::Node, Duration) -> Result<Option<T>, NodeStopped> + Sync,
    ) -> PyResult<Option<T>> {
        self.born.check()?;
        let timeout = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        in_slices(py, timeout, |slice| look(&*self.slot.native()?, slice).map_err(raise))
    }
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(
        signature = (address = "0.0.0.0:0", *, key = None, psk = None, allowed = None, **options),
        text_signature = "(address=\"0.0.0.0:0\", *, key=None, psk=None, allowed=None, accept=True, backlog=128, ask=False, join=None, \
receive_buffer=2097152, busy_poll=5e-05, tcp_fallback=False, attempt_delay=0.1, network=..., translate=False, limits=..., maximum=..., protection=\"aead\", idle_timeout=30.0, keep_alive=None, \
ack_delay=0.025, max_datagram=None, congestion=\"copa\", ecn=True, in_order=False, fec=True, fec_layers=0)"
    )]
    fn new(
        address: &str,
        key: Option<&str>,
        psk: Option<&str>,
        allowed: Option<Vec<String>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let address: SocketAddr = parse("address", address)?;
        let mut config = match key {
            Some(key) => NodeConfig::with_key(parse::<StaticKey>("key", key)?),
            None => NodeConfig::new()?,
        };
        config.endpoint.psk = psk.map(|psk| parse("psk", psk)).transpose()?;
        if let Some(allowed) = allowed {
            let keys: PyResult<BTreeSet<PublicKey>> =
                allowed.iter().map(|key| parse("allowed", key)).collect();
            config.endpoint.allowed = Some(keys?);
        }
        config::apply(&mut config, options)?;
        let node = a1::Node::bind(address, config).map_err(raise)?;
        let slot = Arc::new(Slot(Mutex::new(Some(Arc::new(node)))));
        let stop: Arc<dyn Stop> = slot.clone();
        stop_at_exit(&stop);
        Ok(Self { slot, born: Born::now() })
    }

    /// The socket's address, as (host, port).
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        let address = self.with(py, |node| Ok(node.local_addr()?))?;
        Ok((address.ip().to_string(), address.port()))
    }

    /// The key by which peers know this node: 64 hexadecimal digits.
    #[getter]
    fn public_key(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |node| Ok(node.public_key().to_string()))
    }

    /// Connects to the node with this public key, and waits for the handshake, at most `timeout` seconds. `qos` is the
    /// requested quality of service, by default the node's maximum; the peer may narrow it.
    #[pyo3(signature = (host, port, key, timeout = 10.0, *, qos = None))]
    fn connect(
        &self,
        py: Python<'_>,
        host: String,
        port: u16,
        key: &str,
        timeout: f64,
        qos: Option<Qos>,
    ) -> PyResult<Connection> {
        self.born.check()?;
        let key: PublicKey = parse("key", key)?;
        let config = connect_config(timeout, qos)?;
        let slot = Arc::clone(&self.slot);
        let connected = interruptible(py, move || {
            slot.native()?.connect((host.as_str(), port), &key, &config).map_err(raise)
        })?;
        Ok(Connection::new(connected?))
    }

    /// Begins to connect to `address`, such as "192.0.2.1:5000", and returns at once; the handshake takes at most `timeout`
    /// seconds.
    #[pyo3(signature = (address, key, timeout = 10.0, *, qos = None))]
    fn begin_connect(
        &self,
        py: Python<'_>,
        address: &str,
        key: &str,
        timeout: f64,
        qos: Option<Qos>,
    ) -> PyResult<Connecting> {
        self.born.check()?;
        let (address, key): (SocketAddr, PublicKey) = (parse("address", address)?, parse("key", key)?);
        let config = connect_config(timeout, qos)?;
        let connecting = self.with(py, |node| node.begin_connect(address, &key, &config).map_err(raise))?;
        Ok(Connecting::new(connecting))
    }

    /// Connects anew to the peer of `connection`, with a larger `maximum`, which may exceed the node's: the remedy where `set_qos` finds a
    /// request beyond the maximum. Waits for the handshake, at most `timeout` seconds. `qos` is the requested quality of service, by
    /// default `maximum`. The old connection stays as it is. Raises `ConnectError` too if the peer allows less than `maximum`.
    #[pyo3(signature = (connection, maximum, timeout = 10.0, *, qos = None))]
    fn reopen(
        &self,
        py: Python<'_>,
        connection: &Bound<'_, Connection>,
        maximum: Qos,
        timeout: f64,
        qos: Option<Qos>,
    ) -> PyResult<Connection> {
        self.born.check()?;
        let config = connect_config(timeout, qos)?;
        let (slot, old) = (Arc::clone(&self.slot), connection.get().native()?);
        let reopened =
            interruptible(py, move || slot.native()?.reopen(&old, maximum.0, &config).map_err(raise))?;
        Ok(Connection::new(reopened?))
    }

    /// Service asked of the network for the datagrams that left last.
    #[getter]
    fn network_qos(&self, py: Python<'_>) -> PyResult<NetworkQos> {
        self.with(py, |node| Ok(NetworkQos(node.network_qos())))
    }

    /// Waits for an incoming connection, at most `timeout` seconds, `None` for ever. `None` if there was none.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Connection>> {
        Ok(self.wait(py, timeout, a1::Node::accept)?.map(Connection::new))
    }

    /// Waits for a connection attempt to accept or refuse, of a node with `ask=True`, at most `timeout` seconds, `None` for
    /// ever. `None` if there was none.
    #[pyo3(signature = (timeout = None))]
    fn incoming(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Incoming>> {
        Ok(self.wait(py, timeout, a1::Node::incoming)?.map(Incoming::new))
    }

    /// A file that becomes readable when a connection or an attempt waits to be taken, or the node has stopped: call `accept(0)`
    /// or `incoming(0)`.
    fn events(&self, py: Python<'_>) -> PyResult<Events> {
        Ok(Events::new(self.with(py, |node| Ok(node.events()?))?, self.born))
    }

    /// Makes a multicast group for sending, without members. `address` is its address and port, `rate` its
    /// sending rate in bits per second. There is no congestion control, so the network must provide that
    /// rate. `datagram` is the largest UDP payload in bytes, and `repair_for` the time in seconds for which
    /// sent records are kept for repairs. `interface` is a number or an IPv4 address, `hops` the number of
    /// networks to cross.
    #[pyo3(signature = (address, rate, *, datagram = 1200, repair_for = 1.0, interface = None, hops = 1, to_this_machine = true))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn group(
        &self,
        py: Python<'_>,
        address: &str,
        rate: u64,
        datagram: u16,
        repair_for: f64,
        interface: Option<&Bound<'_, PyAny>>,
        hops: u8,
        to_this_machine: bool,
    ) -> PyResult<Group> {
        self.born.check()?;
        let transport = GroupTransportConfig::new(parse("address", address)?, Rate::from_bits_per_sec(rate))
            .datagram(datagram)
            .repair_for(duration("repair_for", repair_for)?);
        let mut config = GroupConfig::from(transport).hops(hops).to_this_machine(to_this_machine);
        if let Some(interface) = interface {
            config = config.interface(config::interface(interface)?);
        }
        self.with(py, |node| node.group(&config).map_err(raise)).map(Group::new)
    }

    /// Counters since the node was bound.
    fn stats(&self, py: Python<'_>) -> PyResult<fw_endpoint_stats> {
        Ok(self.with(py, |node| Ok(node.stats()))?.into())
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Waits for the next incoming connection; ends when the node is stopped.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Connection>> {
        self.born.check()?;
        let accepted = in_slices(py, None, |slice| {
            let Ok(node) = self.slot.native() else { return Ok(Some(None)) };
            match node.accept(slice) {
                Ok(connection) => Ok(connection.map(Some)),
                Err(NodeStopped) => Ok(Some(None)),
            }
        })?;
        Ok(accepted.flatten().map(Connection::new))
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Stops the node and aborts its connections. Calls of other threads that wait for it raise `Closed`, and iterations end. May be
    /// called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.born.check()?;
        py.detach(|| self.slot.stop());
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let is_open = self.slot.0.try_lock().is_ok_and(|slot| slot.is_some());
        format!("<freshwire.a1.Node {}>", if is_open { "running" } else { "stopped" })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.born.is_of_parent() {
            return leave_to_parent(&self.slot);
        }
        let node = take(&self.slot.0);
        drop_apart(self.born, node);
    }
}

fn connect_config(timeout: f64, qos: Option<Qos>) -> PyResult<ConnectConfig> {
    let config = ConnectConfig::default().timeout(duration("timeout", timeout)?);
    Ok(match qos {
        Some(qos) => config.qos(qos.0),
        None => config,
    })
}

/// A new private key and its public key, 64 hexadecimal digits each.
#[pyfunction]
fn generate_key() -> PyResult<(String, String)> {
    let key = a1::generate_key()?;
    let private = key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((private, key.public_key().to_string()))
}

pub(crate) fn register(parent: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = PyModule::new(parent.py(), "freshwire.a1")?;
    module.setattr("__doc__", "A1, an encrypted transport over UDP for two Freshwire endpoints.")?;
    module.add_class::<Node>()?;
    module.add_class::<Connection>()?;
    module.add_class::<connection::Message>()?;
    module.add_class::<Connecting>()?;
    module.add_class::<Incoming>()?;
    module.add_class::<Group>()?;
    module.add_class::<fw_multicast_stats>()?;
    module.add_class::<stream::ByteStream>()?;
    module.add_class::<Events>()?;
    module.add_class::<Qos>()?;
    module.add_class::<config::Join>()?;
    module.add_class::<config::Limits>()?;
    module.add_class::<reports::Closed>()?;
    module.add_class::<reports::Missing>()?;
    module.add_class::<reports::ConnectionStatus>()?;
    module.add_class::<fw_a1_stats>()?;
    module.add_class::<fw_endpoint_stats>()?;
    module.add_class::<reports::Membership>()?;
    module.add_function(wrap_pyfunction!(generate_key, &module)?)?;
    parent.add("a1", &module)
}
