//! Memory of the arena that Python code fills: objects with the buffer protocol, which are counted until they are gone.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use freshwire::{PushError, ring};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::common::locks::{lock, take};
use crate::errors::raise;
use crate::ffi::RawBuffer;
use crate::guard::Born;

/// Space of the arena, and the number of buffers that show it.
struct Space {
    /// `None` once it was committed or released.
    reservation: Mutex<Option<ring::Reservation>>,
    exports: AtomicUsize,
    /// Python code may still get buffers.
    is_open: AtomicBool,
    born: Born,
}

impl Drop for Space {
    fn drop(&mut self) {
        // The arena of a forked parent stays as it is.
        if self.born.is_of_parent()
            && let Ok(reservation) = self.reservation.get_mut()
        {
            std::mem::forget(reservation.take());
        }
    }
}

/// Memory of a sender's arena, made by `Sink.reserve` or `Sender.reserve`, for a record that the program reads, receives or encodes
/// there. `Sink.commit` queues it without a copy. `with` releases what was not committed.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Reservation {
    space: Arc<Space>,
    buffers: Py<PyTuple>,
    size: usize,
}

impl Reservation {
    pub(crate) fn new(py: Python<'_>, mut reservation: ring::Reservation, born: Born) -> PyResult<Self> {
        let size = reservation.capacity();
        let pieces: Vec<_> = reservation.pieces().map(|piece| (piece.cast().as_ptr(), piece.len())).collect();
        let (reservation, exports) = (Mutex::new(Some(reservation)), AtomicUsize::new(0));
        let space = Arc::new(Space { reservation, exports, is_open: AtomicBool::new(true), born });
        let views: PyResult<Vec<_>> =
            pieces.into_iter().map(|(data, len)| Piece::view(py, data, len, &space)).collect();
        Ok(Self { space, buffers: PyTuple::new(py, views?)?.unbind(), size })
    }

    /// Ends the use of the memory by Python, before a commit of `size` bytes, all by default.
    pub(crate) fn filled(&self, py: Python<'_>, size: Option<usize>) -> PyResult<Filled> {
        let size = size.unwrap_or(self.size);
        if size > self.size {
            let words = format!("{size} bytes in a reservation of {}: reserve more", self.size);
            return Err(PyValueError::new_err(words));
        }
        self.end_buffers(py)?;
        Ok(Filled { space: Arc::clone(&self.space), size })
    }

    fn end_buffers(&self, py: Python<'_>) -> PyResult<()> {
        self.space.born.check()?;
        self.space.is_open.store(false, Ordering::Relaxed);
        for buffer in self.buffers.bind(py) {
            buffer.call_method0("release")?;
        }
        match self.space.exports.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(PyBufferError::new_err(
                "something still uses a buffer of the reservation, such as a slice: release it before",
            )),
        }
    }
}

/// A reservation that nothing writes to any more.
pub(crate) struct Filled {
    space: Arc<Space>,
    size: usize,
}

impl Filled {
    /// Commits it by `put`, which takes it if it succeeds. The caller has detached.
    pub(crate) fn commit<T>(
        &self,
        put: impl FnOnce(&mut Option<ring::Reservation>) -> Result<T, PushError>,
    ) -> PyResult<T> {
        let mut held = lock(&self.space.reservation);
        let reservation = held.as_mut().ok_or_else(used_up)?;
        reservation.set_len(self.size).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let done = put(&mut held).map_err(raise)?;
        *held = None;
        Ok(done)
    }
}

fn used_up() -> PyErr {
    PyValueError::new_err("the reservation was committed or released: reserve again")
}

#[pymethods]
impl Reservation {
    /// Writable memoryviews, in order: one for each run of adjacent blocks, and one alone if the record fits into a block. For
    /// `readinto`, `recv_into`, `os.readv`, `recvmsg_into`. They are released at the commit: later uses raise `ValueError`.
    #[getter]
    fn buffers(&self, py: Python<'_>) -> Py<PyTuple> {
        self.buffers.clone_ref(py)
    }

    /// Bytes that it takes.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// Gives the memory back. Nothing is queued. Raises `BufferError` while something uses a part of a buffer.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.end_buffers(py)?;
        // A commit may wait for a policy of Python, with the lock.
        py.detach(|| drop(take(&self.space.reservation)));
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release(py)
    }

    fn __repr__(&self) -> String {
        format!("<freshwire.Reservation of {} bytes>", self.size)
    }
}

/// An object of Python that exports a part of the arena. The class of PyO3 for that needs 3.11; the slots are in all versions.
#[repr(C)]
struct Piece {
    base: PyObject,
    data: *mut u8,
    len: Py_ssize_t,
    /// From `Arc::into_raw`; null in an object that Python code has made.
    space: *const Space,
}

/// Slots of `PyBufferProcs` for `PyType_FromSpec`, in CPython from 3.9 on.
const BF_GETBUFFER: c_int = 1;
const BF_RELEASEBUFFER: c_int = 2;

unsafe extern "C" {
    fn PyBuffer_FillInfo(
        view: *mut RawBuffer,
        exporter: *mut PyObject,
        data: *mut c_void,
        len: Py_ssize_t,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Piece {
    fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
        let made = TYPE.get_or_try_init(py, || {
            let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
            let mut slots = [
                slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
                slot(BF_GETBUFFER, get_buffer as *mut c_void),
                slot(BF_RELEASEBUFFER, release_buffer as *mut c_void),
                slot(0, std::ptr::null_mut()),
            ];
            let mut spec = ffi::PyType_Spec {
                name: c"freshwire._Piece".as_ptr(),
                basicsize: size_of::<Self>() as c_int,
                itemsize: 0,
                flags: ffi::Py_TPFLAGS_DEFAULT as _,
                slots: slots.as_mut_ptr(),
            };
            // SAFETY: the slots end with a zero, their functions have the signatures that CPython calls, and the thread is attached.
            let made = unsafe { ffi::PyType_FromSpec(&raw mut spec) };
            // SAFETY: the call returns a new reference, or null with an exception.
            unsafe { Bound::from_owned_ptr_or_err(py, made) }.map(Bound::unbind)
        })?;
        Ok(made.bind(py))
    }

    /// A memoryview of `len` bytes at `data`, which belong to the space.
    fn view<'py>(
        py: Python<'py>,
        data: *mut u8,
        len: usize,
        space: &Arc<Space>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the class has the size of a piece, and the thread is attached.
        let made = unsafe { ffi::PyType_GenericAlloc(Self::class(py)?.as_ptr().cast(), 0) };
        // SAFETY: the call returns a new reference, or null with an exception.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
        let piece = object.as_ptr().cast::<Self>();
        // SAFETY: a new object of this class, which nobody else has; its own members are zeros so far.
        let piece = unsafe { &mut *piece };
        piece.data = data;
        piece.len = Py_ssize_t::try_from(len).unwrap_or(0);
        piece.space = Arc::into_raw(Arc::clone(space));
        // SAFETY: the object is alive and has the buffer protocol.
        let view = unsafe { ffi::PyMemoryView_FromObject(object.as_ptr()) };
        // SAFETY: the call returns a new reference, or null with an exception.
        unsafe { Bound::from_owned_ptr_or_err(py, view) }
    }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: CPython calls it once, with an object of this class that has no more references.
    let space = unsafe { (*object.cast::<Piece>()).space };
    if !space.is_null() {
        // SAFETY: it comes from `Arc::into_raw`, and is not used again.
        drop(unsafe { Arc::from_raw(space) });
    }
    // SAFETY: the object is alive until it is freed below.
    let class = unsafe { ffi::Py_TYPE(object) };
    // SAFETY: it was made by `PyType_GenericAlloc`, for a class without cycle collection.
    unsafe { ffi::PyObject_Free(object.cast()) };
    // SAFETY: an object of a heap type has a reference to it.
    unsafe { ffi::Py_DECREF(class.cast()) };
}

unsafe extern "C" fn get_buffer(object: *mut PyObject, view: *mut RawBuffer, flags: c_int) -> c_int {
    // SAFETY: CPython calls it with an object of this class; its members do not change.
    let piece = unsafe { &*object.cast::<Piece>() };
    // SAFETY: null, or kept alive by the object.
    let space = unsafe { piece.space.as_ref() };
    let Some(space) = space.filter(|space| space.is_open.load(Ordering::Relaxed)) else {
        // SAFETY: the view is CPython's to be filled; no object means that there is none.
        unsafe { (*view).obj = std::ptr::null_mut() };
        // SAFETY: the thread is attached, as in every call of a slot.
        let py = unsafe { Python::assume_attached() };
        PyBufferError::new_err("the reservation was committed or released").restore(py);
        return -1;
    };
    space.exports.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the memory is the reservation's until its exports have ended, and the exporter is alive.
    let filled = unsafe { PyBuffer_FillInfo(view, object, piece.data.cast(), piece.len, 0, flags) };
    if filled != 0 {
        space.exports.fetch_sub(1, Ordering::Release);
    }
    filled
}

unsafe extern "C" fn release_buffer(object: *mut PyObject, _view: *mut RawBuffer) {
    // SAFETY: as in `get_buffer`.
    let piece = unsafe { &*object.cast::<Piece>() };
    // SAFETY: null, or kept alive by the object.
    if let Some(space) = unsafe { piece.space.as_ref() } {
        space.exports.fetch_sub(1, Ordering::Release);
    }
}
