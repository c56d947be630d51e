//! The two places where Python hands out raw memory and raw file descriptors. `reservation` hands memory to Python.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;

/// `Py_buffer`. The stable ABI has it from 3.11 on, unchanged; 3.9 and 3.10 have the same layout and export the calls.
#[repr(C)]
pub(crate) struct RawBuffer {
    buf: *mut c_void,
    pub(crate) obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
}

/// Contiguous bytes, of whatever type.
const PYBUF_SIMPLE: c_int = 0;

/// Gives the bytes back to their owner, also after a panic.
struct Held(RawBuffer);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once; the thread is attached, as
        // `with_bytes` is the only one to make it.
        unsafe { PyBuffer_Release(&raw mut self.0) }
    }
}

/// Calls `use_bytes` with the bytes of an object that has the buffer protocol: `bytes`, `bytearray`, `memoryview`, arrays.
pub(crate) fn with_bytes<R>(
    object: &Bound<'_, PyAny>,
    use_bytes: impl FnOnce(&[u8]) -> PyResult<R>,
) -> PyResult<R> {
    let mut view = MaybeUninit::<RawBuffer>::uninit();
    // SAFETY: the object is alive, and the view has the layout that the call fills.
    let result = unsafe { PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), PYBUF_SIMPLE) };
    if result != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    // SAFETY: the call has succeeded, so the view is filled. A simple view has no pointer into itself.
    let held = Held(unsafe { view.assume_init() });
    let len = usize::try_from(held.0.len).unwrap_or(0);
    if len == 0 {
        return use_bytes(&[]);
    }
    // SAFETY: the exporter keeps `len` bytes at `buf` until the view is released. Python code cannot write them while this
    // thread holds the interpreter's lock; whoever detaches copies them before. A native thread that writes them meanwhile
    // breaks the buffer protocol's rules itself.
    let bytes = unsafe { std::slice::from_raw_parts(held.0.buf.cast::<u8>().cast_const(), len) };
    use_bytes(bytes)
}

/// Duplicates the descriptor of an object with `fileno()`, such as a socket, so that its owner may close it.
pub(crate) fn duplicate(object: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: i32 = object.call_method0("fileno")?.extract()?;
    if number < 0 {
        return Err(pyo3::exceptions::PyValueError::new_err("the socket is closed: pass an open one"));
    }
    // SAFETY: the object says that it owns this open descriptor. It lives until the end of this call, and the interpreter's
    // lock keeps Python code from closing it meanwhile.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(borrowed.try_clone_to_owned()?)
}
