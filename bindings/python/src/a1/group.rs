//! Multicast groups.

use freshwire::a1;
use pyo3::prelude::*;

use super::connection::Connection;
use crate::common::structures::fw_multicast_stats;
use crate::errors::raise;
use crate::guard::Owned;

/// One stream to many over IP multicast, made by `Node.group`: a record's packets are sent once for all members, and a member
/// requests missing packets over its connection. `Sender.add_a1_group` feeds it.
///
/// There are no acknowledgements: the fate "acknowledged" means that a record was sent and that the time for its repair is over.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct Group(Owned<a1::Group>);

impl Group {
    pub(super) fn new(group: a1::Group) -> Self {
        Self(Owned::new(group))
    }

    pub(crate) fn native(&self) -> PyResult<a1::Group> {
        self.0.with("the group was dropped", Clone::clone)
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
        py.detach(|| group.invite(&connection)).map_err(raise)
    }

    /// Counters; `None` if the node has stopped.
    fn stats(&self, py: Python<'_>) -> PyResult<Option<fw_multicast_stats>> {
        let group = self.native()?;
        Ok(py.detach(|| group.stats()).map(Into::into))
    }
}
