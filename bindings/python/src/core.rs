//! The sender behind the objects of Python, and how its lock is taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use freshwire::{Meta, SinkId, Timestamp};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::common::locks::lock;
use crate::engine::Engine;
use crate::errors::{Closed, raise};
use crate::guard::{Born, drop_apart};
use crate::waiting::duration;

/// A node's lock may be held while a Python function decides: true once an A1 sink has such a policy.
static NODES_ASK_PYTHON: AtomicBool = AtomicBool::new(false);

/// A sender that its sinks share.
pub(crate) struct Core {
    state: Mutex<State>,
    has_nodes: AtomicBool,
    pub(crate) born: Born,
    /// The engine serves as long as a sender or a sink is used, whether or not the program keeps it.
    _engine: Option<Py<Engine>>,
}

/// The state behind the sender's lock.
pub(crate) struct State {
    /// `None` when it was dropped apart.
    sender: Option<freshwire::Sender>,
}

impl State {
    #[inline]
    pub(crate) fn sender(&mut self) -> PyResult<&mut freshwire::Sender> {
        self.sender.as_mut().ok_or_else(|| Closed::new_err("the sender has ended"))
    }

    /// Whether a push would find room. A stale handle finds some: the push says so.
    #[inline]
    pub(crate) fn has_room(&mut self, sink: SinkId, len: usize) -> PyResult<bool> {
        Ok(self.sender()?.producer().has_room(sink.ring(), len))
    }
}

/// The way of a payload into the ring.
#[derive(Clone, Copy)]
pub(crate) enum How {
    Push,
    Replace,
}

impl Core {
    pub(crate) fn new(sender: freshwire::Sender, engine: Option<Py<Engine>>) -> Self {
        let state = Mutex::new(State { sender: Some(sender) });
        Self { state, has_nodes: AtomicBool::new(false), born: Born::now(), _engine: engine }
    }

    /// Notes an A1 sink, which may have a Python function as its policy.
    pub(crate) fn note_node(&self, asks_python: bool) {
        if asks_python {
            NODES_ASK_PYTHON.store(true, Ordering::SeqCst);
        }
        self.has_nodes.store(true, Ordering::SeqCst);
    }

    /// Calls `f` with the sender, detached: for calls that may wait for the engine.
    pub(crate) fn with_detached<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut freshwire::Sender) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        self.born.check()?;
        py.detach(|| f(lock(&self.state).sender()?))
    }

    /// Calls `f` with the state. The lock is never waited for with the interpreter's.
    #[inline]
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut State) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        self.born.check()?;
        if self.may_wait() {
            return py.detach(|| f(&mut lock(&self.state)));
        }
        let mut state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        f(&mut state)
    }

    fn may_wait(&self) -> bool {
        self.has_nodes.load(Ordering::Relaxed) && NODES_ASK_PYTHON.load(Ordering::Relaxed)
    }

    /// Queues a payload, and returns the record's number.
    pub(crate) fn put(
        &self,
        py: Python<'_>,
        sink: SinkId,
        how: How,
        payload: &[u8],
        meta: &Meta,
    ) -> PyResult<u64> {
        self.born.check()?;
        if !self.may_wait() {
            let mut state = self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            // Without room the policy is asked what is stale, behind the engine's lock.
            if state.has_room(sink, payload.len())? {
                return put_into(state.sender()?, sink, how, payload, meta);
            }
        }
        // Detached, Python code may write into a bytearray.
        let payload = payload.to_vec();
        py.detach(|| {
            let mut state = lock(&self.state);
            put_into(state.sender()?, sink, how, &payload, meta)
        })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Ok(state) = self.state.get_mut() {
            drop_apart(self.born, state.sender.take());
        }
    }
}

#[inline]
fn put_into(
    sender: &mut freshwire::Sender,
    sink: SinkId,
    how: How,
    payload: &[u8],
    meta: &Meta,
) -> PyResult<u64> {
    match how {
        How::Push => sender.push(sink, payload, meta),
        How::Replace => sender.replace(sink, payload, meta).map(|replaced| replaced.pushed().seq),
    }
    .map_err(raise)
}

/// The description of a record in Python's terms.
#[derive(Clone, Copy, Default)]
pub(crate) struct About {
    pub(crate) seq: Option<u64>,
    pub(crate) key: u64,
    pub(crate) layer: u8,
    pub(crate) group: u32,
    pub(crate) refs: (u32, u32),
    pub(crate) generated: Option<u64>,
    pub(crate) deadline: Option<u64>,
    pub(crate) expires_in: Option<f64>,
}

impl About {
    #[inline]
    pub(crate) fn meta(self) -> PyResult<Meta> {
        let generated = self.generated.map_or_else(freshwire::now, Timestamp::from_nanos);
        let deadline = match (self.deadline, self.expires_in) {
            (None, None) => Timestamp::MAX,
            (Some(deadline), None) => Timestamp::from_nanos(deadline),
            (None, Some(seconds)) => generated + duration("expires_in", seconds)?,
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err("deadline and expires_in exclude each other: give one"));
            }
        };
        if self.seq == Some(Meta::NEXT_SEQ) {
            return Err(PyOverflowError::new_err("seq is at most 2**64 - 2"));
        }
        let refs = [self.refs.0, self.refs.1];
        Ok(Meta {
            seq: self.seq.unwrap_or(Meta::NEXT_SEQ),
            generated,
            deadline,
            layer: self.layer,
            group: self.group,
            key: self.key,
            refs,
        })
    }
}
