//! Records into rings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freshwire::{Meta, SinkConfig, SinkId, Timestamp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::a1::Connection;
use crate::choice::Policy;
use crate::config::{self, Ring};
use crate::engine::Engine;
use crate::errors::{Closed, of_push, of_sender};
use crate::ffi::{duplicate, with_bytes};
use crate::guard::{Born, drop_apart};
use crate::room::{Room, Watched};
use crate::sink::Sink;
use crate::waiting::duration;

/// A node's lock may be held while a Python function decides: true once an A1 sink has such a policy.
static NODES_ASK_PYTHON: AtomicBool = AtomicBool::new(false);

/// Puts records into the rings of its sinks. `Sender(engine, Ring(...))`; without an engine for A1 sinks alone.
///
/// Calls never block: a full ring is the exception `Full`. They may come from any thread.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Sender {
    core: Arc<Core>,
}

/// A sender that its sinks share.
pub(crate) struct Core {
    state: Mutex<State>,
    has_nodes: AtomicBool,
    pub(crate) born: Born,
}

/// What is behind the sender's lock.
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

/// What becomes of a payload.
#[derive(Clone, Copy)]
pub(crate) enum How {
    Push,
    Replace,
}

impl Core {
    /// Calls `f` with the state. The lock is never waited for with the interpreter's.
    #[inline]
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut State) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        self.born.check()?;
        if self.may_wait() {
            return py.detach(|| f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner)));
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
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
        How::Replace => sender.replace(sink, payload, meta).map(|replaced| replaced.pushed().user_seq),
    }
    .map_err(of_push)
}

/// A sink that missed a payload, and the exception that says why.
type Missed = (Py<Sink>, Py<PyAny>);

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
        let refs = [self.refs.0, self.refs.1];
        Ok(Meta {
            user_seq: self.seq.unwrap_or(Meta::NEXT_SEQ),
            generated,
            deadline,
            layer: self.layer,
            group: self.group,
            key: self.key,
            refs,
        })
    }
}

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (engine = None, ring = None))]
    fn new(engine: Option<&Bound<'_, Engine>>, ring: Option<Ring>) -> PyResult<Self> {
        let ring = ring.map(|ring| ring.0).unwrap_or_default();
        let sender = match engine {
            Some(engine) => freshwire::Sender::new(&ring, &engine.get().handle()?),
            None => freshwire::Sender::without_engine(&ring),
        };
        let sender = Some(sender.map_err(of_sender)?);
        let state = State { sender };
        let core = Core { state: Mutex::new(state), has_nodes: AtomicBool::new(false), born: Born::now() };
        Ok(Self { core: Arc::new(core) })
    }

    /// Serves a connected TCP socket from a free ring. The socket is duplicated: it may be closed, and the client's data read
    /// from it, but nothing else may write to it.
    ///
    /// Keyword arguments, with seconds and bytes: framing ("raw", "length-prefixed", "chunked"), carrier ("tcp", "auto",
    /// "kernel"), reserve, queue_target, max_unread, keys, congestion, min_rto, max_rto, linger, stall_timeout, ack_fates,
    /// preface.
    #[pyo3(signature = (socket, policy, **options))]
    fn add_sink(
        &self,
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        policy: &Bound<'_, Policy>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Sink> {
        self.core.born.check()?;
        let stream = std::net::TcpStream::from(duplicate(socket)?);
        let made = policy.get().make(py);
        let room = Arc::<Room>::default();
        let watched = Watched { policy: made.policy, room: Arc::clone(&room) };
        let config = config::apply(SinkConfig::new(watched), options)?;
        let sink = self.core.with(py, |state| state.sender()?.add_sink(stream, config).map_err(of_sender))?;
        Ok(Sink::new(Arc::clone(&self.core), sink, room, made.failure))
    }

    /// Serves the other end of an A1 connection from a free ring. Closing the sink closes the connection.
    #[pyo3(signature = (connection, policy, *, linger = 30.0))]
    fn add_a1_sink(
        &self,
        py: Python<'_>,
        connection: &Bound<'_, Connection>,
        policy: &Bound<'_, Policy>,
        linger: f64,
    ) -> PyResult<Sink> {
        self.core.born.check()?;
        let connection = connection.get().native()?;
        let made = policy.get().make(py);
        if made.asks_python {
            NODES_ASK_PYTHON.store(true, Ordering::SeqCst);
        }
        self.core.has_nodes.store(true, Ordering::SeqCst);
        let room = Arc::<Room>::default();
        let watched = Watched { policy: made.policy, room: Arc::clone(&room) };
        let config = freshwire::a1::SinkConfig::new(watched).linger(duration("linger", linger)?);
        let sink = self
            .core
            .with(py, |state| state.sender()?.add_a1_sink(&connection, config).map_err(of_sender))?;
        Ok(Sink::new(Arc::clone(&self.core), sink, room, made.failure))
    }

    /// Queues one payload for several sinks, copied once. Returns the record's number and the sinks that missed it, with the
    /// exception that `Sink.push` would have raised.
    #[pyo3(signature = (sinks, payload, *, seq = None, key = 0, layer = 0, group = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn push_to_all(
        &self,
        py: Python<'_>,
        sinks: Vec<Py<Sink>>,
        payload: &Bound<'_, PyAny>,
        seq: Option<u64>,
        key: u64,
        layer: u8,
        group: u32,
        refs: (u32, u32),
        generated: Option<u64>,
        deadline: Option<u64>,
        expires_in: Option<f64>,
    ) -> PyResult<(u64, Vec<Missed>)> {
        let meta = About { seq, key, layer, group, refs, generated, deadline, expires_in }.meta()?;
        let ids: Vec<SinkId> =
            sinks.iter().map(|sink| sink.get().id_in(&self.core)).collect::<PyResult<_>>()?;
        // Rings without room ask their policies, behind the engine's lock.
        let payload = with_bytes(payload, |bytes| Ok(bytes.to_vec()))?;
        self.core.born.check()?;
        let (seq, missed) = py.detach(|| {
            let mut state = self.core.state.lock().unwrap_or_else(PoisonError::into_inner);
            let sender = state.sender()?;
            let meta = sender.producer().number(&meta);
            sender.push_to_all(ids.iter().copied(), &payload, &meta).map_err(of_push)?;
            let missed: Vec<_> = sender.missed().iter().map(|&(id, error)| (id, of_push(error))).collect();
            Ok::<_, PyErr>((meta.user_seq, missed))
        })?;
        let mut told = Vec::with_capacity(missed.len());
        for (id, error) in missed {
            if let Some(at) = ids.iter().position(|other| *other == id) {
                told.push((sinks[at].clone_ref(py), error.into_value(py).into_any()));
            }
        }
        Ok((seq, told))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sender>()?;
    module.add_class::<Ring>()
}
