//! Threads survive neither a fork nor the interpreter.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, Weak};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::common::locks::{lock, take};
use crate::common::process::{count_fork, decides, forks};
use crate::errors::Closed;

/// Objects that are stopped when the interpreter ends.
static RUNNING: Mutex<Vec<Weak<dyn Stop>>> = Mutex::new(Vec::new());

/// Something with a thread of its own.
pub(crate) trait Stop: Send + Sync {
    fn stop(&self);
}

/// Has `it` stopped at the interpreter's end, after which no thread may call Python.
pub(crate) fn stop_at_exit(it: &Arc<dyn Stop>) {
    let mut running = lock(&RUNNING);
    running.retain(|other| other.strong_count() > 0);
    running.push(Arc::downgrade(it));
}

/// The process that an object belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Born(u64);

impl Born {
    pub(crate) fn now() -> Self {
        Self(forks())
    }

    /// Whether this process is a child of the object's.
    pub(crate) fn is_of_parent(self) -> bool {
        self.0 != forks()
    }

    /// # Errors
    ///
    /// If the call comes from another process than the object's, or from a policy, which holds the engine's lock.
    #[inline]
    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_of_parent() {
            return Err(of_parent());
        }
        if decides() {
            return Err(in_policy());
        }
        Ok(())
    }
}

#[cold]
fn of_parent() -> PyErr {
    PyRuntimeError::new_err(
        "this object belongs to the process that was forked, with its threads: make new ones in the child, or start it with \
         multiprocessing's \"spawn\"",
    )
}

#[cold]
fn in_policy() -> PyErr {
    PyRuntimeError::new_err("a policy cannot call Freshwire: it decides while the engine waits for it")
}

/// Leaks this process's copy of a parent's object: dropping the last handle would wait for a thread that is not there.
pub(crate) fn leave_to_parent<T: ?Sized>(shared: &Arc<T>) {
    std::mem::forget(Arc::clone(shared));
}

/// Drops something whose destructor may wait for a thread that wants the interpreter, or that only the parent process has.
pub(crate) fn drop_apart<T: Send + 'static>(born: Born, value: T) {
    if born.is_of_parent() {
        // Its threads and locks are the parent's.
        std::mem::forget(value);
        return;
    }
    if decides() {
        // This thread may hold the lock that the destructor takes, or be the one that it waits for. Without a thread to spare
        // the value leaks: a failed spawn drops the closure here.
        let value = ManuallyDrop::new(value);
        let _ = std::thread::Builder::new()
            .name("freshwire-drop".to_owned())
            .spawn(move || drop(ManuallyDrop::into_inner(value)));
        return;
    }
    let mut value = Some(value);
    let dropped = Python::try_attach(|py| {
        let value = value.take();
        py.detach(move || drop(value));
    });
    if dropped.is_none() {
        // The interpreter is gone, and with it the danger.
        drop(value);
    }
}

/// An object of the library: this process drops it apart, and leaves its parent's alone.
pub(crate) struct Owned<T: Send + 'static> {
    value: Mutex<Option<T>>,
    pub(crate) born: Born,
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(Some(value)), born: Born::now() }
    }

    /// Calls `f` with the object; `gone` says why it may be gone.
    pub(crate) fn with<R>(&self, gone: &'static str, f: impl FnOnce(&T) -> R) -> PyResult<R> {
        self.born.check()?;
        lock(&self.value).as_ref().map(f).ok_or_else(|| Closed::new_err(gone))
    }

    pub(crate) fn take(&self, gone: &'static str) -> PyResult<T> {
        self.born.check()?;
        take(&self.value).ok_or_else(|| Closed::new_err(gone))
    }
}

impl<T: Send> Drop for Owned<T> {
    fn drop(&mut self) {
        if let Ok(value) = self.value.get_mut() {
            drop_apart(self.born, value.take());
        }
    }
}

#[pyfunction]
fn _forked() {
    count_fork();
    // The threads are the parent's. A list that another thread had locked stays locked; then nothing is stopped at exit.
    if let Ok(mut running) = RUNNING.try_lock() {
        running.clear();
    }
}

#[pyfunction]
fn _stop_all(py: Python<'_>) {
    let Ok(mut locked) = RUNNING.try_lock() else { return };
    let running = std::mem::take(&mut *locked);
    drop(locked);
    py.detach(|| running.iter().filter_map(Weak::upgrade).for_each(|it| it.stop()));
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let forked = wrap_pyfunction!(_forked, module)?;
    let after = pyo3::types::PyDict::new(py);
    after.set_item("after_in_child", forked)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&after))?;
    let stop_all = wrap_pyfunction!(_stop_all, module)?;
    py.import("atexit")?.call_method1("register", (stop_all,))?;
    Ok(())
}
