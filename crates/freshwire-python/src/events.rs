//! Changes of a sink, for the event loops of others.

use std::os::fd::AsRawFd;

use pyo3::prelude::*;

use crate::guard::Born;

/// Changes of a sink as a file for `selectors`, `poll` and other event loops: readable from the first change on until `clear`.
///
/// All of one sink have the same file, so let one place wait for it, and do not close it.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct SinkEvents {
    events: freshwire::sink::SinkEvents,
    born: Born,
}

impl SinkEvents {
    pub(crate) fn new(events: freshwire::sink::SinkEvents, born: Born) -> Self {
        Self { events, born }
    }
}

#[pymethods]
impl SinkEvents {
    /// The descriptor.
    fn fileno(&self) -> PyResult<i32> {
        self.born.check()?;
        Ok(self.events.as_raw_fd())
    }

    /// Makes the file unreadable until the next change. Call it before the next attempt, not after.
    fn clear(&self) -> PyResult<()> {
        self.born.check()?;
        self.events.clear();
        Ok(())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SinkEvents>()
}
