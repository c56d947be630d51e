//! Multicast groups.

use std::sync::{Mutex, PoisonError};

use freshwire::a1::{self, InviteError};
use pyo3::prelude::*;

use super::connection::Connection;
use crate::errors::{Closed, FreshwireError, words};
use crate::guard::{Born, drop_apart};

/// One stream to many over IP multicast, made by `Node.group`: a record's packets are sent once for all members, and a member
/// requests missing packets over its connection. `Sender.add_a1_group` feeds it.
///
/// There are no acknowledgements: the fate "acknowledged" means that a record was sent and that the time for its repair is over.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Group {
    inner: Mutex<Option<a1::Group>>,
    born: Born,
}

impl Group {
    pub(super) fn new(group: a1::Group) -> Self {
        Self { inner: Mutex::new(Some(group)), born: Born::now() }
    }

    pub(crate) fn native(&self) -> PyResult<a1::Group> {
        self.born.check()?;
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| Closed::new_err("the group was dropped"))
    }
}

#[pymethods]
impl Group {
    /// Destination of the packets, as (host, port).
    #[getter]
    fn address(&self) -> PyResult<(String, u16)> {
        let address = self.native()?.address();
        Ok((address.ip().to_string(), address.port()))
    }

    /// Number of the group in its packets.
    #[getter]
    fn id(&self) -> PyResult<u32> {
        Ok(self.native()?.id())
    }

    /// Makes the peer of a connection a member until the connection ends. It receives records sent from now on. Raises
    /// `Closed` if the connection or the node has ended.
    fn invite(&self, py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<()> {
        let (group, connection) = (self.native()?, connection.get().native()?);
        py.detach(|| group.invite(&connection)).map_err(|error| match error {
            InviteError::OtherNode => FreshwireError::new_err(words(&error)),
            _ => Closed::new_err(words(&error)),
        })
    }

    /// Counters; `None` if the node has stopped.
    fn stats(&self, py: Python<'_>) -> PyResult<Option<GroupStats>> {
        let group = self.native()?;
        Ok(py.detach(|| group.stats()).map(GroupStats::new))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(inner) = self.inner.get_mut() {
            drop_apart(self.born, inner.take());
        }
    }
}

/// Counters of a group. Bytes are UDP payload. Repairs are in `Connection.stats` of the members.
#[pyclass(frozen, get_all, module = "freshwire.a1")]
pub(crate) struct GroupStats {
    /// Packets sent to the group's address.
    packets_sent: u64,
    bytes_sent: u64,
    /// Of `packets_sent`, those that the operating system refused.
    packets_refused: u64,
    /// Open connections that were invited.
    members: usize,
}

impl GroupStats {
    fn new(stats: a1::GroupStats) -> Self {
        Self {
            packets_sent: stats.packets_sent,
            bytes_sent: stats.bytes_sent,
            packets_refused: stats.packets_refused,
            members: stats.members,
        }
    }
}
