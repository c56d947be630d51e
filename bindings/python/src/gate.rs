//! Late choice up to where the receiving program reads.

use freshwire::choice as native;
use pyo3::prelude::*;

use crate::choice::{Made, Policy};
use crate::guard::Born;

/// Opens the gate of one sink; made by `gate`. Calls may come from any thread, and never wait.
#[pyclass(frozen, module = "freshwire.choice")]
pub(crate) struct Gate {
    gate: native::Gate,
    born: Born,
}

#[pymethods]
impl Gate {
    /// Reports that the program has read `total` records of the sink, counted from the first. A smaller total than before changes
    /// nothing, and neither do records that were never sent.
    fn acknowledge(&self, total: u64) -> PyResult<()> {
        self.born.check()?;
        self.gate.acknowledge(total);
        Ok(())
    }

    /// Reports that the program has read `records` more.
    fn acknowledge_more(&self, records: u64) -> PyResult<()> {
        self.born.check()?;
        self.gate.acknowledge_more(records);
        Ok(())
    }

    /// Number of committed records that the program has not acknowledged.
    #[getter]
    fn outstanding(&self) -> u64 {
        self.gate.outstanding()
    }

    fn __repr__(&self) -> String {
        format!("<freshwire.choice.Gate outstanding={}>", self.outstanding())
    }
}

/// Puts a gate before a policy, and returns the policy for one sink, and its gate. At most `records` records are on their way to the
/// receiving program, or unread by it. A record counts from its commit point until `Gate.acknowledge` reports that the program has read it;
/// how the program says so is the application's affair. TCP's own acknowledgements precede the reading. A program that never acknowledges
/// receives `records` records and no more; 0 counts as 1.
#[pyfunction]
fn gate(py: Python<'_>, policy: &Policy, records: u32) -> PyResult<(Policy, Gate)> {
    let Made { policy, asks_python, failure } = policy.make(py)?;
    let (gated, gate) = native::gate(policy, records);
    let made = Made { policy: Box::new(gated), asks_python, failure };
    Ok((Policy::once("gate", made), Gate { gate, born: Born::now() }))
}

pub(crate) fn register(parent: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = parent.getattr("choice")?.cast_into::<PyModule>()?;
    module.add_class::<Gate>()?;
    module.add_function(wrap_pyfunction!(gate, &module)?)
}
