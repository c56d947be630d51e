//! Connection attempts that the application decides about, and own ones that are in progress.

use freshwire::a1;
use pyo3::prelude::*;

use super::config::protection_name;
use super::connection::Connection;
use super::qos::Qos;
use crate::errors::raise;
use crate::events::Events;
use crate::guard::Owned;

/// A connection attempt that waits for a decision, of a node with `ask=True`. The peer has proved that it receives at its
/// address and owns its key. Dropping it without a decision refuses the connection, with code 256.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Incoming(Owned<a1::Incoming>);

const DECIDED: &str = "the incoming connection was accepted or refused before";

impl Incoming {
    pub(super) fn new(incoming: a1::Incoming) -> Self {
        Self(Owned::new(incoming))
    }

    fn look<T>(&self, look: impl FnOnce(&a1::Incoming) -> T) -> PyResult<T> {
        self.0.with(DECIDED, look)
    }
}

#[pymethods]
impl Incoming {
    /// The peer's address, as (host, port).
    #[getter]
    fn peer_address(&self) -> PyResult<(String, u16)> {
        self.look(|incoming| (incoming.peer_addr().ip().to_string(), incoming.peer_addr().port()))
    }

    /// The peer's public key.
    #[getter]
    fn peer_key(&self) -> PyResult<String> {
        self.look(|incoming| incoming.peer_key().to_string())
    }

    /// Weakest protection that the peer accepts: "aead" or "dangerous-plain".
    #[getter]
    fn protection(&self) -> PyResult<&'static str> {
        self.look(|incoming| protection_name(incoming.protection()))
    }

    /// Requested quality of service, from this end's view.
    #[getter]
    fn qos(&self) -> PyResult<Qos> {
        self.look(|incoming| Qos(incoming.qos()))
    }

    /// Upper limit of the peer's requests on this connection, from this end's view.
    #[getter]
    fn maximum(&self) -> PyResult<Qos> {
        self.look(|incoming| Qos(incoming.maximum()))
    }

    /// Accepts the connection, within this upper limit of the quality of service and the node's.
    #[pyo3(signature = (maximum = None))]
    fn accept(&self, py: Python<'_>, maximum: Option<Qos>) -> PyResult<Connection> {
        let incoming = self.0.take(DECIDED)?;
        let accepted = py.detach(|| match maximum {
            Some(maximum) => incoming.accept_within(&maximum.0),
            None => incoming.accept(),
        });
        accepted.map(Connection::new).map_err(raise)
    }

    /// Refuses the connection with a code for the peer, from 256 on the application's, and a reason of at most 256 bytes.
    #[pyo3(signature = (code = 256, reason = "not wanted"))]
    fn refuse(&self, py: Python<'_>, code: u64, reason: &str) -> PyResult<()> {
        let incoming = self.0.take(DECIDED)?;
        py.detach(|| incoming.refuse(code, reason));
        Ok(())
    }
}

/// An outgoing connection whose handshake is in progress, made by `Node.begin_connect`. Dropping it gives up.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Connecting(Owned<a1::Connecting>);

impl Connecting {
    pub(super) fn new(connecting: a1::Connecting) -> Self {
        Self(Owned::new(connecting))
    }

    fn look<T: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&a1::Connecting) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.0.with("the connection was dropped", look))?
    }
}

#[pymethods]
impl Connecting {
    /// A file that becomes readable when the handshake has ended.
    fn events(&self, py: Python<'_>) -> PyResult<Events> {
        let events = self.look(py, |connecting| Ok(connecting.events()?))?;
        Ok(Events::new(events, self.0.born))
    }

    /// The connection once the handshake is complete; `None` until then. Raises `ConnectError` if it has failed, `Closed` if the node has
    /// stopped.
    fn poll_open(&self, py: Python<'_>) -> PyResult<Option<Connection>> {
        let open = self.look(py, |connecting| connecting.poll_open().map_err(raise))?;
        Ok(open.map(Connection::new))
    }
}
