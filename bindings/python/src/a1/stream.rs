//! Byte streams.

use std::io::{self, BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire::a1::{self, ByteReader, ByteWriter};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::connection::Connection;
use crate::common::failures::{in_time, of_stream};
use crate::common::locks::lock;
use crate::errors::{Closed, exception, raise, words};
use crate::events::Events;
use crate::ffi::with_bytes;
use crate::guard::{Born, drop_apart};
use crate::waiting::{duration, in_slices};

/// A reliable stream of bytes in each direction of an unused connection, as TCP has it. The nodes at both ends need
/// `in_order=True`, and each makes its stream before it sends or receives anything else.
///
/// Reading and writing may be done by different threads or tasks. Call `finish`, or use `with`: a stream that goes without it is
/// cut off. A connection that is idle for its `idle_timeout` ends, unless the node has `keep_alive`.
#[pyclass(frozen, module = "freshwire.a1")]
pub(crate) struct ByteStream {
    reader: Half<ByteReader>,
    writer: Half<ByteWriter>,
    /// Calls that wait end.
    is_closing: AtomicBool,
    born: Born,
}

/// One direction. A waiting call takes `half` again right after each slice, and a standard mutex then lets it win over queued threads. So
/// every call takes `turn` first: a queued thread holds it, and is next.
struct Half<H> {
    turn: Mutex<()>,
    half: Mutex<Option<H>>,
}

impl<H> Half<H> {
    fn new(half: H) -> Self {
        Self { turn: Mutex::new(()), half: Mutex::new(Some(half)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<H>> {
        let _turn = lock(&self.turn);
        lock(&self.half)
    }

    fn with<T>(&self, f: impl FnOnce(&mut H) -> PyResult<T>) -> PyResult<T> {
        f(self.lock().as_mut().ok_or_else(was_closed)?)
    }

    /// Takes it at the end, without a lock.
    fn take(&mut self) -> Option<H> {
        self.half.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn was_closed() -> PyErr {
    Closed::new_err("the stream was closed")
}

/// Bytes that are read at most in a step of an iteration.
const STEP: usize = 1 << 16;

/// The result of an attempt with a time limit: `None` if the time was over.
fn attempted<T>(result: io::Result<T>) -> PyResult<Option<T>> {
    in_time(result).map_err(|error| exception(of_stream(&error), words(&error)))
}

impl ByteStream {
    /// The next bytes, at most `size`; none at the end. `None`: none came in time.
    fn next_bytes(
        &self,
        py: Python<'_>,
        size: usize,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Vec<u8>>> {
        self.born.check()?;
        in_slices(py, timeout, |slice| {
            self.check_open()?;
            self.reader.with(|reader| {
                reader.set_timeout(Some(slice));
                let found =
                    attempted(reader.fill_buf().map(|bytes| bytes[..bytes.len().min(size)].to_vec()))?;
                reader.consume(found.as_ref().map_or(0, Vec::len));
                Ok(found)
            })
        })
    }

    fn check_open(&self) -> PyResult<()> {
        if self.is_closing.load(Ordering::Relaxed) { Err(was_closed()) } else { Ok(()) }
    }

    /// Drops both halves, after at most a slice of each other thread's wait. A stream that was not finished is cut off.
    fn drop_halves(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        let reader = self.reader.lock().take();
        let writer = self.writer.lock().take();
        drop((reader, writer));
    }
}

#[pymethods]
impl ByteStream {
    #[new]
    fn new(py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<Self> {
        let connection = connection.get().native()?;
        let stream = py.detach(|| a1::ByteStream::new(connection)).map_err(raise)?;
        let (reader, writer) = stream.split();
        let (reader, writer) = (Half::new(reader), Half::new(writer));
        Ok(Self { reader, writer, is_closing: AtomicBool::new(false), born: Born::now() })
    }

    /// Reads at most `size` bytes as soon as there are some; `b""` at the end. Waits at most `timeout` seconds, `None` for ever,
    /// and returns `None` if none came. Raises `Closed` if the stream was cut off.
    #[pyo3(signature = (size = 65536, timeout = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if size == 0 {
            return Err(PyValueError::new_err("size=0: at least one byte is wanted"));
        }
        let timeout = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        Ok(self.next_bytes(py, size, timeout)?.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Writes bytes, waiting for room at most `timeout` seconds, `None` for ever. Returns how many were taken: all, unless the
    /// time was over. Raises `Closed` after the stream's end.
    #[pyo3(signature = (data, timeout = None))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<usize> {
        self.born.check()?;
        let timeout = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        // Detached, Python code may write into a bytearray.
        let data = with_bytes(data, |bytes| Ok(bytes.to_vec()))?;
        let mut written = 0;
        in_slices(py, timeout, |slice| {
            self.check_open()?;
            self.writer.with(|writer| {
                writer.set_timeout(Some(slice));
                while written < data.len() {
                    let Some(taken) = attempted(writer.write(&data[written..]))? else { return Ok(None) };
                    written += taken;
                }
                Ok(Some(()))
            })
        })?;
        Ok(written)
    }

    /// Ends what this end sends, and waits at most `timeout` seconds for the peer's acknowledgement of all bytes. The other
    /// direction continues. Raises `TimeoutError` if the time runs out, and may be called again then; `Closed` if the connection
    /// has ended.
    #[pyo3(signature = (timeout = 30.0))]
    fn finish(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.born.check()?;
        let timeout = duration("timeout", timeout)?;
        let done = in_slices(py, Some(timeout), |slice| {
            self.check_open()?;
            self.writer.with(|writer| attempted(writer.try_finish(slice)))
        })?;
        done.ok_or_else(|| PyTimeoutError::new_err("the peer has not acknowledged all bytes in time"))
    }

    /// Whether all bytes were acknowledged after the end; ends what this end sends.
    fn _try_finish(&self, py: Python<'_>) -> PyResult<bool> {
        self.born.check()?;
        let done = py.detach(|| self.writer.with(|writer| attempted(writer.try_finish(Duration::ZERO))))?;
        Ok(done.is_some())
    }

    /// A file that becomes readable when bytes have come, or the stream has ended: call `read(timeout=0)`.
    fn read_events(&self, py: Python<'_>) -> PyResult<Events> {
        self.born.check()?;
        let events = py.detach(|| self.reader.with(|reader| Ok(reader.events()?)))?;
        Ok(Events::new(events, self.born))
    }

    /// A file that becomes readable when a `write(data, timeout=0)` that has not taken everything is worth another attempt.
    fn write_events(&self, py: Python<'_>) -> PyResult<Events> {
        self.born.check()?;
        let events = py.detach(|| self.writer.with(|writer| Ok(writer.events()?)))?;
        Ok(Events::new(events, self.born))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Waits for bytes, and ends with the stream.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.next_bytes(py, STEP, None)?;
        Ok(bytes.filter(|bytes| !bytes.is_empty()).map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the connection. A stream that was not finished is cut off, and calls of other threads that wait for it raise `Closed`. May be
    /// called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.born.check()?;
        py.detach(|| self.drop_halves());
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Finishes the stream and closes it; after an exception, closes it.
    #[pyo3(signature = (kind, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let finished = match kind.is_none() && self.check_open().is_ok() {
            true => self.finish(py, freshwire::sink::DEFAULT_LINGER.as_secs_f64()),
            false => Ok(()),
        };
        self.close(py)?;
        finished
    }
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        drop_apart(self.born, (self.reader.take(), self.writer.take()));
    }
}
