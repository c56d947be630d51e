//! Waiting that Ctrl-C ends.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Longest wait between two looks for signals.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Seconds from Python, `None` for ever.
pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{name}={seconds}: a number of seconds, not below zero, is wanted"))
    })
}

/// Calls `look` with short time limits, detached, until it has something, `timeout` has passed or a signal's handler raises.
pub(crate) fn in_slices<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut look: impl FnMut(Duration) -> PyResult<Option<T>> + Send,
) -> PyResult<Option<T>> {
    let deadline = timeout.and_then(|timeout| now().checked_add(timeout));
    loop {
        let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(now()).min(SLICE));
        if let Some(found) = py.detach(|| look(left))? {
            return Ok(Some(found));
        }
        py.check_signals()?;
        if deadline.is_some_and(|deadline| now() >= deadline) {
            return Ok(None);
        }
    }
}

/// Calls something that waits on a thread of its own, so that a signal's handler can end the wait. The call goes on then,
/// and what it returns is dropped.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, result) = sync_channel(1);
    std::thread::Builder::new().name("freshwire-wait".to_owned()).spawn(move || {
        // Nobody receives after an interruption.
        let _ = sender.send(call());
    })?;
    // Not shared between threads, and only this one may use it: the closure borrows it exclusively.
    let mut result = Some(result);
    loop {
        let receiver = result.take();
        let (receiver, received) = py.detach(move || {
            let received = receiver.as_ref().map(|receiver| receiver.recv_timeout(SLICE));
            (receiver, received)
        });
        match received {
            Some(Ok(value)) => return Ok(value),
            Some(Err(RecvTimeoutError::Timeout)) => result = receiver,
            _ => return Err(PyRuntimeError::new_err("the call panicked; its message is on standard error")),
        }
        if let Err(raised) = py.check_signals() {
            // A result that has come just now may wait for a thread that wants the interpreter when it is dropped.
            py.detach(move || drop(result));
            return Err(raised);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "time limits of calls that wait, not of the protocol")]
fn now() -> Instant {
    Instant::now()
}
