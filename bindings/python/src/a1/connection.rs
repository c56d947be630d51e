//! Connections and their messages.

use freshwire::a1::{self, Closed as Ended};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::config::protection_name;
use super::qos::Qos;
use super::reports::{Closed as Report, ConnectionStatus, Membership, Missing};
use crate::common::structures::fw_a1_stats;
use crate::errors::raise;
use crate::events::Events;
use crate::guard::Owned;
use crate::waiting::{duration, in_slices};

/// A complete message.
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
pub(crate) struct Connection(Owned<a1::Connection>);

impl Connection {
    pub(super) fn new(connection: a1::Connection) -> Self {
        Self(Owned::new(connection))
    }

    pub(crate) fn native(&self) -> PyResult<a1::Connection> {
        self.0.with("the connection was dropped", Clone::clone)
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
        let received = self.wait(py, timeout)?.map_err(raise)?;
        Ok(received.map(|message| Message::new(py, &message)))
    }

    /// Whether it has ended in good order, and the next message if one is there.
    fn _look(&self, py: Python<'_>) -> PyResult<(bool, Option<Message>)> {
        match self.wait(py, Some(0.0))? {
            Ok(message) => Ok((false, message.map(|message| Message::new(py, &message)))),
            Err(ended) if is_good(&ended) => Ok((true, None)),
            Err(ended) => Err(raise(ended)),
        }
    }

    /// A file that becomes readable on a message, a report of a missing one, a change of the quality of
    /// service or membership, or the end of the connection. Then call `recv(0)`.
    fn events(&self, py: Python<'_>) -> PyResult<Events> {
        let connection = self.native()?;
        Ok(Events::new(py.detach(|| connection.events())?, self.0.born))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends where the peer has closed the connection in good order; raises `Closed` after any other end.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        match self.wait(py, None)? {
            Ok(message) => Ok(message.map(|message| Message::new(py, &message))),
            Err(ended) if is_good(&ended) => Ok(None),
            Err(ended) => Err(raise(ended)),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
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

    /// Quality of service in force, from this end's view; the last one after the connection's end.
    #[getter]
    fn qos(&self, py: Python<'_>) -> PyResult<Option<Qos>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.qos()).map(Qos))
    }

    /// Upper limit for `set_qos`: the smaller of both ends' maxima in each field.
    #[getter]
    fn maximum(&self, py: Python<'_>) -> PyResult<Option<Qos>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.maximum()).map(Qos))
    }

    /// Requests another quality of service within `maximum`. It takes effect with the peer's answer.
    ///
    /// Raises `ValueError` if it exceeds the maximum, `Closed` after the connection's end, `FreshwireError` while another change
    /// is pending.
    fn set_qos(&self, py: Python<'_>, qos: Qos) -> PyResult<()> {
        let connection = self.native()?;
        py.detach(|| connection.set_qos(qos.0)).map_err(raise)
    }

    /// Protection of the packets: "aead" or "dangerous-plain".
    #[getter]
    fn protection(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.protection()).map(protection_name))
    }

    /// Counters, also after the connection's end.
    fn stats(&self, py: Python<'_>) -> PyResult<Option<fw_a1_stats>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.stats()).map(Into::into))
    }

    /// Reasons why messages wait, changes of the quality of service, and the end. A change is reported once.
    fn status(&self, py: Python<'_>) -> PyResult<ConnectionStatus> {
        let connection = self.native()?;
        Ok(ConnectionStatus::new(py.detach(|| connection.status())))
    }

    /// How it has ended; `None` while it is open.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<Option<Report>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.closed()).map(Report::new))
    }

    /// The next message that the peer has announced as dropped or abandoned, the oldest first; `None` if there is none.
    fn poll_missing(&self, py: Python<'_>) -> PyResult<Option<Missing>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.poll_missing()).and_then(Missing::new))
    }

    /// Multicast groups to which the peer has invited this node. Their messages come with those of the connection.
    fn memberships(&self, py: Python<'_>) -> PyResult<Vec<Membership>> {
        let connection = self.native()?;
        Ok(py.detach(|| connection.memberships()).iter().map(Membership::new).collect())
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

/// Whether the end is the end of an iteration.
fn is_good(ended: &Ended) -> bool {
    matches!(ended, Ended::Peer { code: 0, .. } | Ended::Local)
}
