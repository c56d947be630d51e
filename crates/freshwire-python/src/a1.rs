//! A1: nodes and connections.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use freshwire::a1::{self, Closed as Ended, ConnectConfig, NodeConfig, PublicKey, StaticKey};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::{Closed, ConnectError, words};
use crate::guard::{Born, Stop, drop_apart, leave_to_parent, stop_at_exit};
use crate::waiting::{duration, in_slices, interruptible};

/// An A1 address: connects to other nodes and accepts their connections, over one UDP socket.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Node {
    slot: Arc<Slot>,
    born: Born,
}

struct Slot(Mutex<Option<Arc<a1::Node>>>);

impl Stop for Slot {
    fn stop(&self) {
        let node = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(node);
    }
}

impl Node {
    fn native(&self) -> PyResult<Arc<a1::Node>> {
        self.born.check()?;
        let slot = self.slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.clone().ok_or_else(|| Closed::new_err("the A1 node has stopped"))
    }
}

fn parse<T: std::str::FromStr>(name: &str, text: &str) -> PyResult<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
}

#[pymethods]
impl Node {
    /// Binds to `address`, such as "0.0.0.0:5000"; port 0 lets the kernel choose one. `key` is the node's private key and
    /// `psk` a shared secret, 64 hexadecimal digits each; `allowed` are the public keys of the peers that may connect.
    #[new]
    #[pyo3(signature = (address = "0.0.0.0:0", *, key = None, psk = None, accept = true, allowed = None, backlog = None))]
    fn new(
        address: &str,
        key: Option<&str>,
        psk: Option<&str>,
        accept: bool,
        allowed: Option<Vec<String>>,
        backlog: Option<usize>,
    ) -> PyResult<Self> {
        let address: SocketAddr = parse("address", address)?;
        let mut config = match key {
            Some(key) => NodeConfig::with_key(parse::<StaticKey>("key", key)?),
            None => NodeConfig::new()?,
        };
        config.endpoint.accept = accept;
        config.endpoint.psk = psk.map(|psk| parse("psk", psk)).transpose()?;
        if let Some(backlog) = backlog {
            config = config.backlog(backlog);
        }
        if let Some(allowed) = allowed {
            let keys: PyResult<BTreeSet<PublicKey>> =
                allowed.iter().map(|key| parse("allowed", key)).collect();
            config.endpoint.allowed = Some(keys?);
        }
        let node = a1::Node::bind(address, config).map_err(|error| PyOSError::new_err(words(&error)))?;
        let slot = Arc::new(Slot(Mutex::new(Some(Arc::new(node)))));
        let stop: Arc<dyn Stop> = slot.clone();
        stop_at_exit(&stop);
        Ok(Self { slot, born: Born::now() })
    }

    /// The socket's address, as (host, port).
    #[getter]
    fn address(&self) -> PyResult<(String, u16)> {
        let address = self.native()?.local_addr()?;
        Ok((address.ip().to_string(), address.port()))
    }

    /// The key by which peers know this node: 64 hexadecimal digits.
    #[getter]
    fn public_key(&self) -> PyResult<String> {
        Ok(self.native()?.public_key().to_string())
    }

    /// Connects to the node with this public key, and waits for the handshake, at most `timeout` seconds.
    #[pyo3(signature = (host, port, key, timeout = 10.0))]
    fn connect(
        &self,
        py: Python<'_>,
        host: String,
        port: u16,
        key: &str,
        timeout: f64,
    ) -> PyResult<Connection> {
        let node = self.native()?;
        let key: PublicKey = parse("key", key)?;
        let config = ConnectConfig::default().timeout(duration("timeout", timeout)?);
        let connected = interruptible(py, move || node.connect((host.as_str(), port), &key, &config))?;
        let connection = connected.map_err(|error| ConnectError::new_err(words(&error)))?;
        Ok(Connection::new(connection))
    }

    /// Waits for an incoming connection, at most `timeout` seconds, `None` for ever. `None` if there was none.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Connection>> {
        let node = self.native()?;
        let timeout = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        let accepted = in_slices(py, timeout, |slice| {
            node.accept(slice).map_err(|error| Closed::new_err(words(&error)))
        })?;
        Ok(accepted.map(Connection::new))
    }

    /// Stops the node and aborts its connections. May be called again.
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
        let node = self.slot.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop_apart(self.born, node);
    }
}

/// A message that came whole.
#[pyclass(frozen, get_all, module = "freshwire.a1")]
pub(crate) struct Message {
    /// Its number among all that the sender began, from 0.
    id: u64,
    /// The sending application's number.
    seq: u64,
    layer: u8,
    group: u32,
    key: u64,
    refs: (u32, u32),
    /// How old its content was when it was taken, in seconds, by an estimate of the sender's clock.
    age: f64,
    /// It was taken after its deadline, by the same estimate.
    late: bool,
    payload: Py<PyBytes>,
}

impl Message {
    fn new(py: Python<'_>, message: &a1::Message) -> Self {
        let [first, second] = message.refs;
        Self {
            id: message.id,
            seq: message.seq,
            layer: message.layer,
            group: message.group,
            key: message.key,
            refs: (first, second),
            age: message.age.as_secs_f64(),
            late: message.late,
            payload: PyBytes::new(py, &message.data).unbind(),
        }
    }
}

#[pymethods]
impl Message {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<freshwire.a1.Message {}: {} bytes>", self.seq, self.payload.as_bytes(py).len())
    }
}

/// A connection: receives messages, and sends after `Sender.add_a1_sink`. `for message in connection` ends with the
/// connection.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Connection {
    inner: Mutex<Option<a1::Connection>>,
    born: Born,
}

impl Connection {
    fn new(connection: a1::Connection) -> Self {
        Self { inner: Mutex::new(Some(connection)), born: Born::now() }
    }

    pub(crate) fn native(&self) -> PyResult<a1::Connection> {
        self.born.check()?;
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| Closed::new_err("the connection was dropped"))
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Result<Option<a1::Message>, Ended>> {
        let connection = self.native()?;
        let timeout = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        let received = in_slices(py, timeout, |slice| {
            Ok(match connection.recv(slice) {
                Ok(Some(message)) => Some(Ok(message)),
                Ok(None) => None,
                Err(ended) => Some(Err(ended)),
            })
        })?;
        Ok(received.transpose())
    }
}

#[pymethods]
impl Connection {
    /// Waits for the next message, at most `timeout` seconds, `None` for ever. `None` if there was none; raises `Closed` at
    /// the connection's end.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Message>> {
        let received = self.wait(py, timeout)?.map_err(|ended| Closed::new_err(words(&ended)))?;
        Ok(received.map(|message| Message::new(py, &message)))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends where the peer has closed the connection in good order; raises `Closed` after any other end.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        match self.wait(py, None)? {
            Ok(message) => Ok(message.map(|message| Message::new(py, &message))),
            Err(Ended::Peer { code: 0, .. } | Ended::Local) => Ok(None),
            Err(ended) => Err(Closed::new_err(words(&ended))),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("freshwire._aio")?.getattr("next_message")?.call1((slf,))
    }

    /// The peer's address, as (host, port).
    #[getter]
    fn peer_address(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        let connection = self.native()?;
        let address = py.detach(|| connection.peer_addr());
        Ok((address.ip().to_string(), address.port()))
    }

    /// The peer's public key; `None` after the connection's end.
    #[getter]
    fn peer_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.peer_key()).map(|key| key.to_string()))
    }

    /// Closes the connection with a code (0 for normal) and a text for the peer. Undelivered messages are abandoned; close the
    /// sink instead to deliver them first.
    #[pyo3(signature = (code = 0, reason = ""))]
    fn close(&self, py: Python<'_>, code: u64, reason: &str) -> PyResult<()> {
        let connection = self.native()?;
        py.detach(|| connection.close(code, reason));
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Ok(inner) = self.inner.get_mut() {
            drop_apart(self.born, inner.take());
        }
    }
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
    module.add_class::<Message>()?;
    module.add_function(wrap_pyfunction!(generate_key, &module)?)?;
    parent.add("a1", &module)
}
