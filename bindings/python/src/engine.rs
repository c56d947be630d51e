//! The engine's thread.

use std::sync::{Arc, Mutex};

use freshwire::EngineHandle;
use freshwire::engine::EngineThread;
use pyo3::prelude::*;

use crate::common::locks::{lock, take};
use crate::errors::Closed;
use crate::guard::{Born, Stop, drop_apart, leave_to_parent, stop_at_exit};

/// Serves sinks on a thread of its own. `with Engine() as engine:` stops it at the end of the block.
///
/// Stopping it, and the end of the interpreter, abort the sinks that are still open: close them before to deliver what is
/// queued.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Engine {
    slot: Arc<Slot>,
    born: Born,
}

struct Slot(Mutex<Option<EngineThread>>);

impl Stop for Slot {
    fn stop(&self) {
        let thread = take(&self.0);
        drop(thread);
    }
}

impl Engine {
    /// # Errors
    ///
    /// If it was stopped.
    pub(crate) fn handle(&self) -> PyResult<EngineHandle> {
        self.born.check()?;
        let slot = lock(&self.slot.0);
        let thread = slot.as_ref().ok_or_else(|| Closed::new_err("the engine has stopped"))?;
        Ok(thread.handle())
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn new() -> PyResult<Self> {
        let thread = freshwire::Engine::new()?.spawn()?;
        let slot = Arc::new(Slot(Mutex::new(Some(thread))));
        let stop: Arc<dyn Stop> = slot.clone();
        stop_at_exit(&stop);
        Ok(Self { slot, born: Born::now() })
    }

    /// Whether the thread serves its sinks.
    #[getter]
    fn is_running(&self) -> PyResult<bool> {
        self.born.check()?;
        let slot = lock(&self.slot.0);
        Ok(slot.as_ref().is_some_and(EngineThread::is_running))
    }

    /// Stops the thread and aborts the sinks that are still open. May be called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.born.check()?;
        py.detach(|| self.slot.stop());
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let is_open = self.slot.0.try_lock().is_ok_and(|slot| slot.is_some());
        format!("<freshwire.Engine {}>", if is_open { "running" } else { "stopped" })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.born.is_of_parent() {
            return leave_to_parent(&self.slot);
        }
        let thread = take(&self.slot.0);
        drop_apart(self.born, thread);
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()
}
