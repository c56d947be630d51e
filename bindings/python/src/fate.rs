//! Fates of records.

use std::sync::Arc;

use freshwire::ring::NO_INDEX;
use freshwire::{SinkId, Timestamp};
use pyo3::prelude::*;

use crate::choice::Reason;
use crate::common::ends::Outcome;
use crate::core::Core;
use crate::errors::raise;

/// The fate of one record. Times are nanoseconds of the monotonic clock.
#[pyclass(frozen, get_all, module = "freshwire")]
pub(crate) struct Fate {
    /// The record's number.
    seq: u64,
    outcome: Outcome,
    /// Why it was dropped, or `None`.
    reason: Option<Reason>,
    committed_at: Option<u64>,
    finished_at: Option<u64>,
    acked_at: Option<u64>,
    /// When its last byte entered the queueing discipline of the network interface, with `departures`.
    scheduled_at: Option<u64>,
    /// When the interface's driver had its last byte for the device, with `departures`.
    departed_at: Option<u64>,
    /// Bytes committed and not yet on the wire at the record's commit point.
    horizon: u32,
    /// Estimate of the bytes that the receiving program had not read then.
    unread: Option<u32>,
    text: String,
}

impl Fate {
    pub(crate) fn new(fate: &freshwire::Fate) -> Self {
        debug_assert!(fate.outcome != freshwire::Outcome::Refused || fate.index == NO_INDEX);
        Self {
            seq: fate.seq,
            outcome: fate.outcome.into(),
            reason: fate.outcome.reason().map(Reason::of),
            committed_at: fate.committed_at.map(Timestamp::as_nanos),
            finished_at: fate.finished_at.map(Timestamp::as_nanos),
            acked_at: fate.acked_at.map(Timestamp::as_nanos),
            scheduled_at: fate.scheduled_at.map(Timestamp::as_nanos),
            departed_at: fate.departed_at.map(Timestamp::as_nanos),
            horizon: fate.horizon,
            unread: fate.unread,
            text: fate.to_string(),
        }
    }
}

#[pymethods]
impl Fate {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<freshwire.Fate {}>", self.text)
    }
}

/// Iterates over the fates that are known now, each once. It can be iterated again for those that come later.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Fates {
    pub(crate) core: Arc<Core>,
    pub(crate) sink: SinkId,
}

#[pymethods]
impl Fates {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Fate>> {
        let fate = self.core.with(py, |state| state.sender()?.poll_fate(self.sink).map_err(raise))?;
        Ok(fate.as_ref().map(Fate::new))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Outcome>()?;
    module.add_class::<Fate>()?;
    module.add_class::<Fates>()
}
