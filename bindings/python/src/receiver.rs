//! Reads streams with chunked framing.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freshwire::receive::{Message, ReceiveError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

use crate::common::locks::lock;
use crate::errors::{InvalidStream, raise};
use crate::ffi::duplicate;
use crate::guard::Born;
use crate::waiting::{duration, in_slices};

/// Records of up to this size are accepted by default, in bytes.
const MAX_RECORD_BYTES: usize = 16 << 20;

/// A whole record.
#[pyclass(frozen, get_all, module = "freshwire")]
pub(crate) struct Record {
    /// The low 32 bits of its number.
    id: u32,
    payload: Py<PyBytes>,
    /// When its last byte was read, in nanoseconds of the monotonic clock.
    arrived: u64,
}

#[pymethods]
impl Record {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<freshwire.Record {}: {} bytes>", self.id, self.payload.as_bytes(py).len())
    }
}

/// A record that the sender began and gave up.
#[pyclass(frozen, get_all, module = "freshwire")]
pub(crate) struct Abandoned {
    /// The low 32 bits of its number.
    id: u32,
}

#[pymethods]
impl Abandoned {
    fn __repr__(&self) -> String {
        format!("<freshwire.Abandoned {}>", self.id)
    }
}

/// Reads without waiting, whatever the mode of the descriptor, which it shares with others.
struct NoWait {
    file: Arc<OwnedFd>,
    is_socket: bool,
}

impl Read for NoWait {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.is_socket {
            match recv(&self.file, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((read, _)) => return Ok(read),
                Err(rustix::io::Errno::NOTSOCK) => self.is_socket = false,
                Err(error) => return Err(error.into()),
            }
        }
        match is_readable(&self.file, Duration::ZERO)? {
            true => Ok(rustix::io::read(&self.file, buffer)?),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

/// Waits until there is something to read, or the end.
fn is_readable(file: &OwnedFd, timeout: Duration) -> std::io::Result<bool> {
    let mut files = [PollFd::new(file, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(1),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut files, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        // The caller looks for signals.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads the records of a stream with chunked framing from a connected socket, which is duplicated:
/// `for record in Receiver(socket)` or `async for record in Receiver(socket)`. Yields `Record` and `Abandoned`.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Receiver {
    file: Arc<OwnedFd>,
    inner: Mutex<freshwire::receive::ChunkedReceiver<NoWait>>,
    born: Born,
}

enum Next {
    Message(Message),
    End,
}

impl Receiver {
    /// The next message that has arrived, without waiting; `None` if more has to arrive first.
    fn look(&self) -> PyResult<Option<Next>> {
        let mut inner = lock(&self.inner);
        match inner.next_message() {
            Ok(Some(message)) => Ok(Some(Next::Message(message))),
            Ok(None) => Ok(Some(Next::End)),
            Err(ReceiveError::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(raise(error)),
        }
    }

    fn wait(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Next>> {
        self.born.check()?;
        in_slices(py, timeout, |slice| match self.look()? {
            Some(next) => Ok(Some(next)),
            None if is_readable(&self.file, slice)? => self.look(),
            None => Ok(None),
        })
    }
}

fn to_python(py: Python<'_>, message: Message) -> PyResult<Py<PyAny>> {
    match message {
        Message::Record { id, payload, arrived } => {
            let payload = PyBytes::new(py, &payload).unbind();
            Ok(Py::new(py, Record { id, payload, arrived: arrived.as_nanos() })?.into_any())
        }
        Message::Abandoned { id } => Ok(Py::new(py, Abandoned { id })?.into_any()),
        other => Err(InvalidStream::new_err(format!("unknown message {other:?}"))),
    }
}

#[pymethods]
impl Receiver {
    #[new]
    #[pyo3(signature = (socket, max_record_bytes = MAX_RECORD_BYTES))]
    fn new(socket: &Bound<'_, PyAny>, max_record_bytes: usize) -> PyResult<Self> {
        let file = Arc::new(duplicate(socket)?);
        let stream = NoWait { file: Arc::clone(&file), is_socket: true };
        let inner = Mutex::new(freshwire::receive::ChunkedReceiver::with_limit(stream, max_record_bytes));
        Ok(Self { file, inner, born: Born::now() })
    }

    /// Waits at most `timeout` seconds, `None` for ever. `None` if nothing came; raises `StopIteration` at the stream's end.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let timeout = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        match self.wait(py, timeout)? {
            Some(Next::Message(message)) => to_python(py, message).map(Some),
            Some(Next::End) => Err(pyo3::exceptions::PyStopIteration::new_err(())),
            None => Ok(None),
        }
    }

    fn fileno(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.wait(py, None)? {
            Some(Next::Message(message)) => to_python(py, message).map(Some),
            _ => Ok(None),
        }
    }

    /// The next message that has arrived: `(True, message)`, `(True, None)` at the end, `(False, None)` if more has to arrive first.
    fn _look(&self, py: Python<'_>) -> PyResult<(bool, Option<Py<PyAny>>)> {
        self.born.check()?;
        match py.detach(|| self.look())? {
            Some(Next::Message(message)) => Ok((true, Some(to_python(py, message)?))),
            Some(Next::End) => Ok((true, None)),
            None => Ok((false, None)),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        format!("<freshwire.Receiver of descriptor {}>", self.file.as_raw_fd())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Record>()?;
    module.add_class::<Abandoned>()?;
    module.add_class::<Receiver>()
}
