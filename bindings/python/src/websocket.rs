//! The frames of a WebSocket client, for `freshwire.WebSocket`, which reads its socket in asyncio.

use std::sync::Mutex;

use freshwire::websocket::{Event, Reader, Role, Violation, close, ping};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::common::locks::lock;

/// Reads a client's frames.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct _Frames(Mutex<State>);

struct State {
    reader: Reader,
    violation: Option<Violation>,
    code: Option<u16>,
}

#[pymethods]
impl _Frames {
    #[new]
    fn new(max_message: usize) -> Self {
        let reader = Reader::new(Role::Server, max_message);
        Self(Mutex::new(State { reader, violation: None, code: None }))
    }

    /// Takes in bytes. Returns the messages in them, the frames that answer them, and whether those are the last.
    fn received<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
    ) -> (Vec<Bound<'py, PyAny>>, Bound<'py, PyBytes>, bool) {
        let mut state = lock(&self.0);
        let State { reader, violation, code } = &mut *state;
        reader.push(data);
        let mut messages = Vec::new();
        for event in reader.by_ref() {
            match event {
                Ok(Event::Text(text)) => messages.push(PyString::new(py, &text).into_any()),
                Ok(Event::Binary(bytes)) => messages.push(PyBytes::new(py, &bytes).into_any()),
                Ok(Event::Close { code: given, .. }) => *code = given,
                Ok(Event::Ping(_) | Event::Pong(_)) => {}
                Err(error) => (*violation, *code) = (Some(error), Some(error.code())),
            }
        }
        let output = PyBytes::new(py, &reader.take_output());
        (messages, output, reader.is_closed())
    }

    /// The code of the close frame that ended it.
    #[getter]
    fn code(&self) -> Option<u16> {
        lock(&self.0).code
    }

    /// The client's breach of the protocol; `None` without one.
    #[getter]
    fn violation(&self) -> Option<String> {
        lock(&self.0).violation.map(|violation| violation.to_string())
    }
}

/// A close frame.
#[pyfunction]
fn _close_frame<'py>(py: Python<'py>, code: u16, reason: &str) -> Bound<'py, PyBytes> {
    let mut frame = Vec::new();
    close(code, reason, &mut frame);
    PyBytes::new(py, &frame)
}

/// A ping.
#[pyfunction]
fn _ping_frame(py: Python<'_>) -> Bound<'_, PyBytes> {
    let mut frame = Vec::new();
    ping(&[], &mut frame);
    PyBytes::new(py, &frame)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_close_frame, module)?)?;
    module.add_function(wrap_pyfunction!(_ping_frame, module)?)?;
    module.add_class::<_Frames>()
}
