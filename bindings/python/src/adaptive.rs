//! Several codings of the same pictures, of which each receiver gets one at a time.

use std::sync::Arc;

use freshwire::choice as native;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::choice::{Failure, Made, Policy};
use crate::core::About;

/// Demands of a rendition on a path, as measured from key frame to key frame.
#[pyclass(frozen, get_all, eq, module = "freshwire.choice")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    bytes_per_sec: u64,
    /// Bytes of a key frame.
    key_bytes: u64,
    /// Seconds from one key frame to the next.
    key_interval: f64,
}

/// Which rendition a receiver has, and which it wants.
#[pyclass(frozen, get_all, eq, module = "freshwire.choice")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selected {
    /// The rendition whose pictures it gets; `None` before the first.
    current: Option<usize>,
    /// The one whose next key frame it waits for; `current` if it is content. `None`: any to begin with.
    wanted: Option<usize>,
    /// "start", "carries", "slow", "late" or "gone".
    why: &'static str,
    /// How often it has changed.
    changes: u16,
}

#[pymethods]
impl Selected {
    fn __repr__(&self) -> String {
        let Self { current, wanted, why, changes } = self;
        let name =
            |rendition: &Option<usize>| rendition.map_or_else(|| "None".to_owned(), |it| it.to_string());
        format!(
            "Selected(current={}, wanted={}, why={why:?}, changes={changes})",
            name(current),
            name(wanted)
        )
    }
}

/// For live pictures in several renditions, with sound: the policy of one sink, which decides late which rendition its receiver gets.
///
/// Pictures of rendition r are numbered from `r << 48` on, without gaps, and sound above all renditions (from `8 << 48` on). Pass every
/// record of the stream to `observe`. Push the pictures of `selection.current` into a sink, and those of `selection.wanted` from a key frame
/// on. The first sink has this policy, and each further one that of `for_another`.
#[pyclass(frozen, extends = Policy, module = "freshwire.choice")]
pub(crate) struct Adaptive {
    /// A policy of the same stream; the sink has the other one.
    stream: native::Adaptive,
    selection: Arc<native::Selection>,
}

impl Adaptive {
    fn of(policy: native::Adaptive) -> PyClassInitializer<Self> {
        let stream = policy.for_another(0);
        let selection = Arc::clone(policy.selection());
        let made = Made { policy: Box::new(policy), asks_python: false, failure: Failure::default() };
        PyClassInitializer::from(Policy::once("Adaptive", made)).add_subclass(Self { stream, selection })
    }
}

fn check(rendition: usize) -> PyResult<usize> {
    match rendition < native::MAX_RENDITIONS {
        true => Ok(rendition),
        false => Err(PyValueError::new_err(format!(
            "rendition={rendition}: a stream has at most {}, counted from 0",
            native::MAX_RENDITIONS
        ))),
    }
}

#[pymethods]
impl Adaptive {
    #[new]
    fn new() -> PyClassInitializer<Self> {
        Self::of(native::Adaptive::default())
    }

    /// Tells of a record of `len` bytes of the stream, when it is offered, in order of the numbers of each rendition. The other arguments
    /// are those of `Sink.push`.
    #[pyo3(signature = (
        len, *, seq, layer = 0, group = 0, key = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn observe(
        &self,
        len: u32,
        seq: u64,
        layer: u8,
        group: u32,
        key: u64,
        refs: (u32, u32),
        generated: Option<u64>,
        deadline: Option<u64>,
        expires_in: Option<f64>,
    ) -> PyResult<()> {
        let about = About { seq: Some(seq), key, layer, group, refs, generated, deadline, expires_in };
        self.stream.observe(freshwire::now(), &native::Record::of(&about.meta()?, len));
        Ok(())
    }

    /// Says whether a rendition has a source now: from one without, receivers change to another. None has at first.
    fn set_present(&self, rendition: usize, is_present: bool) -> PyResult<()> {
        self.stream.set_present(check(rendition)?, is_present);
        Ok(())
    }

    /// A policy for another receiver of the same stream, which may have the renditions whose bits are set in `allowed`. It begins with the
    /// smallest that is known.
    #[pyo3(signature = (allowed = u8::MAX))]
    fn for_another(&self, py: Python<'_>, allowed: u8) -> PyResult<Py<Self>> {
        Py::new(py, Self::of(self.stream.for_another(allowed)))
    }

    /// The receiver's present and wanted rendition, for the code that fills its ring.
    #[getter]
    fn selection(&self) -> Selected {
        let native::Selected { current, wanted, why, changes } = self.selection.get();
        Selected { current, wanted, why: why.name(), changes }
    }

    /// Demands of a rendition on a path; `None` before a whole group was seen.
    fn cost(&self, rendition: usize) -> PyResult<Option<Cost>> {
        let cost = self.stream.cost(check(rendition)?);
        Ok(cost.map(|native::Cost { bytes_per_sec, key_bytes, key_interval }| Cost {
            bytes_per_sec,
            key_bytes,
            key_interval: key_interval.as_secs_f64(),
        }))
    }
}

/// The rendition that a picture belongs to by its number; `None` for sound.
#[pyfunction]
fn rendition_of(seq: u64) -> Option<usize> {
    native::rendition_of(seq)
}

pub(crate) fn register(parent: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = parent.getattr("choice")?.cast_into::<PyModule>()?;
    module.add_class::<Adaptive>()?;
    module.add_class::<Selected>()?;
    module.add_class::<Cost>()?;
    module.add_function(wrap_pyfunction!(rendition_of, &module)?)
}
