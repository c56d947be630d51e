//! Records into rings.

use std::sync::Arc;

use freshwire::{Meta, PushError, RingConfig, SinkConfig, SinkId};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::a1::{Connection, Group};
use crate::choice::{Made, Policy};
use crate::common::structures::fw_ring;
use crate::config;
use crate::core::{About, Core, How};
use crate::engine::Engine;
use crate::errors::raise;
use crate::ffi::{duplicate, with_bytes};
use crate::reservation::Reservation;
use crate::room::{Left, Room, Watched};
use crate::sink::Sink;
use crate::waiting::duration;

/// Puts records into the rings of its sinks. `Sender(engine, Ring(...))`; without an engine for A1 sinks alone.
///
/// Calls never block: a full ring is the exception `Full`. They may come from any thread.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Sender {
    core: Arc<Core>,
}

/// A sink that missed a payload, and the exception that says why.
type Missed = (Py<Sink>, Py<PyAny>);

impl Sender {
    /// Makes the policy of a sink, and the sink with it. A policy for one sink is kept for another call if there comes no sink.
    fn serve(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, Policy>,
        add: impl FnOnce(Watched, bool) -> PyResult<freshwire::Sink>,
    ) -> PyResult<Sink> {
        let policy = policy.get();
        let Made { policy: choice, asks_python, failure } = policy.make(py)?;
        let (room, left) = (Arc::<Room>::default(), Left::default());
        match add(Watched::new(choice, Arc::clone(&room), left.clone()), asks_python) {
            Ok(sink) => Ok(Sink::new(Arc::clone(&self.core), sink, room, failure)),
            Err(error) => {
                if let Some(choice) = left.take() {
                    policy.put_back(Made { policy: choice, asks_python, failure });
                }
                Err(error)
            }
        }
    }

    /// Queues a payload for several sinks.
    fn put_to_all(
        &self,
        py: Python<'_>,
        sinks: &[Py<Sink>],
        payload: &Bound<'_, PyAny>,
        how: How,
        about: About,
    ) -> PyResult<(u64, Vec<Missed>)> {
        let meta = about.meta()?;
        // Rings without room ask their policies, behind the engine's lock.
        let payload = with_bytes(payload, |bytes| Ok(bytes.to_vec()))?;
        self.to_all(py, sinks, &meta, |sender, targets, meta| {
            match how {
                How::Push => sender.push_to_all(targets, &payload, meta),
                How::Replace => sender.replace_to_all(targets, &payload, meta),
            }
            .map_err(raise)
        })
    }

    /// Queues a record for several sinks by `put`, and lists those that missed it.
    fn to_all(
        &self,
        py: Python<'_>,
        sinks: &[Py<Sink>],
        meta: &Meta,
        put: impl FnOnce(&mut freshwire::Sender, Vec<SinkId>, &Meta) -> PyResult<usize> + Send,
    ) -> PyResult<(u64, Vec<Missed>)> {
        let ids = self.ids_of(sinks)?;
        let (seq, missed) = self.core.with_detached(py, |sender| {
            let meta = sender.producer().number(meta);
            put(sender, ids.clone(), &meta)?;
            let missed: Vec<_> = sender.missed().iter().map(|&(id, error)| (id, raise(error))).collect();
            Ok((meta.seq, missed))
        })?;
        let mut missed_sinks = Vec::with_capacity(missed.len());
        for (id, error) in missed {
            if let Some(at) = ids.iter().position(|other| *other == id) {
                missed_sinks.push((sinks[at].clone_ref(py), error.into_value(py).into_any()));
            }
        }
        Ok((seq, missed_sinks))
    }

    fn ids_of(&self, sinks: &[Py<Sink>]) -> PyResult<Vec<SinkId>> {
        sinks.iter().map(|sink| sink.get().id_in(&self.core)).collect()
    }
}

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (engine = None, ring = None))]
    fn new(engine: Option<&Bound<'_, Engine>>, ring: Option<fw_ring>) -> PyResult<Self> {
        let ring = ring.map(RingConfig::from).unwrap_or_default();
        let sender = match engine {
            Some(engine) => freshwire::Sender::new(&ring, &engine.get().handle()?),
            None => freshwire::Sender::without_engine(&ring),
        };
        let core = Core::new(sender.map_err(raise)?, engine.map(|engine| engine.clone().unbind()));
        Ok(Self { core: Arc::new(core) })
    }

    /// Serves a connected TCP socket from a free ring. The socket is duplicated: it may be closed, and the client's data read
    /// from it, but nothing else may write to it.
    ///
    /// Keyword arguments, each with a default:
    ///
    /// - framing: how records lie in the stream: "raw" (the default), "length-prefixed", "chunked", "websocket",
    ///   "websocket-binary" or "event-stream".
    /// - carrier: what takes them to the wire: "tcp" (the default), "kernel", or "auto", the kernel's ring where it can be had.
    /// - keys: number of keys that the ring must have slots for; too few slots are a `ValueError`. Unchecked by default.
    /// - reserve: bytes committed and not on the wire. It follows the delivery rate by default.
    /// - queue_target: bound on the bottleneck's queue in seconds, 0.05 by default; `None` is no bound.
    /// - max_unread: bound on the bytes that the receiving program has not read; `None` is no bound. The default depends on the policy.
    /// - congestion: congestion control by its name in the kernel. The socket's by default.
    /// - min_rto, max_rto: shortest and longest retransmission timeout in seconds (Linux 6.15 and later). The kernel's by default.
    /// - linger: seconds for a dropped sink to deliver the record in progress, 30 by default.
    /// - stall_timeout: seconds after which a peer that takes nothing is disconnected. `None`, the default, leaves it to TCP.
    /// - ack_fates: whether fates wait for the acknowledgement, as they do by default.
    /// - departures: whether fates have `scheduled_at` and `departed_at`. Plain TCP only, with `ack_fates`; three more system calls a record.
    /// - network: a `NetworkQos`, the service asked of the network. Nothing by default.
    /// - kernel_horizon: segments that the kernel's ring may commit before TCP can send them, 1 by default, or 0. Not for carrier "tcp".
    /// - kernel_zero_copy: whether packets refer to the memory of the kernel's ring, which costs more within one machine. `False` by
    ///   default. Not for carrier "tcp".
    /// - preface: bytes before the first record.
    #[pyo3(
        signature = (socket, policy, **options),
        text_signature = "($self, socket, policy, *, framing=\"raw\", carrier=\"tcp\", reserve=..., queue_target=0.05, \
max_unread=..., keys=..., congestion=..., min_rto=..., max_rto=..., linger=30.0, stall_timeout=None, ack_fates=True, \
departures=False, network=..., kernel_horizon=1, kernel_zero_copy=False, preface=b\"\")"
    )]
    fn add_sink(
        &self,
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        policy: &Bound<'_, Policy>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Sink> {
        self.core.born.check()?;
        let stream = std::net::TcpStream::from(duplicate(socket)?);
        self.serve(py, policy, |watched, _| {
            let config = config::apply(SinkConfig::new(watched), options)?;
            self.core.with(py, |state| state.sender()?.add_sink(stream, config).map_err(raise))
        })
    }

    /// Serves the other end of an A1 connection from a free ring. Closing the sink closes the connection. With `departures` fates have
    /// `scheduled_at` and `departed_at`, of the packet with the record's last byte; `OSError` before Linux 6.13.
    #[pyo3(signature = (connection, policy, *, linger = 30.0, departures = false))]
    fn add_a1_sink(
        &self,
        py: Python<'_>,
        connection: &Bound<'_, Connection>,
        policy: &Bound<'_, Policy>,
        linger: f64,
        departures: bool,
    ) -> PyResult<Sink> {
        self.core.born.check()?;
        let connection = connection.get().native()?;
        let linger = duration("linger", linger)?;
        self.serve(py, policy, |watched, asks_python| {
            self.core.note_node(asks_python);
            let config = freshwire::a1::SinkConfig::new(watched).linger(linger).departures(departures);
            self.core.with(py, |state| state.sender()?.add_a1_sink(&connection, config).map_err(raise))
        })
    }

    /// Serves a multicast group from a free ring, which needs space for the records that the group keeps for repairs. Closing the
    /// sink closes no connection.
    #[pyo3(signature = (group, policy, *, linger = 30.0))]
    fn add_a1_group(
        &self,
        py: Python<'_>,
        group: &Bound<'_, Group>,
        policy: &Bound<'_, Policy>,
        linger: f64,
    ) -> PyResult<Sink> {
        self.core.born.check()?;
        let group = group.get().native()?;
        let linger = duration("linger", linger)?;
        self.serve(py, policy, |watched, asks_python| {
            self.core.note_node(asks_python);
            let config = freshwire::a1::SinkConfig::new(watched).linger(linger);
            self.core.with(py, |state| state.sender()?.add_a1_group(&group, config).map_err(raise))
        })
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
        let about = About { seq, key, layer, group, refs, generated, deadline, expires_in };
        self.put_to_all(py, &sinks, payload, How::Push, about)
    }

    /// Reserves memory of the arena for a record of at most `size` bytes for several sinks, to be committed with `commit_to_all`.
    fn reserve(&self, py: Python<'_>, sinks: Vec<Py<Sink>>, size: usize) -> PyResult<Reservation> {
        let meta = About::default().meta()?;
        let ids = self.ids_of(&sinks)?;
        let reserved =
            self.core.with_detached(py, |sender| sender.reserve_for_all(ids, size, &meta).map_err(raise))?;
        Reservation::new(py, reserved, self.core.born)
    }

    /// Queues the first `size` bytes of a reservation of `Sender.reserve` for several sinks, by default all, without a copy. Returns what
    /// `push_to_all` returns; raises what `Sink.commit` raises.
    #[pyo3(signature = (sinks, reservation, size = None, *, seq = None, key = 0, layer = 0, group = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn commit_to_all(
        &self,
        py: Python<'_>,
        sinks: Vec<Py<Sink>>,
        reservation: &Bound<'_, Reservation>,
        size: Option<usize>,
        seq: Option<u64>,
        key: u64,
        layer: u8,
        group: u32,
        refs: (u32, u32),
        generated: Option<u64>,
        deadline: Option<u64>,
        expires_in: Option<f64>,
    ) -> PyResult<(u64, Vec<Missed>)> {
        let about = About { seq, key, layer, group, refs, generated, deadline, expires_in };
        let meta = about.meta()?;
        let filled = reservation.get().filled(py, size)?;
        self.to_all(py, &sinks, &meta, |sender, targets, meta| {
            filled.commit(|held| {
                let reservation = held.take().ok_or(PushError::ForeignReservation)?;
                sender.commit_to_all(targets, reservation, meta)
            })
        })
    }

    /// As `Sink.replace` for several sinks, with one number and one wake-up of the engine. Returns the record's number and the sinks
    /// that missed it, with the exception that `Sink.replace` would have raised.
    #[pyo3(signature = (sinks, payload, *, key, seq = None, layer = 0, group = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn replace_to_all(
        &self,
        py: Python<'_>,
        sinks: Vec<Py<Sink>>,
        payload: &Bound<'_, PyAny>,
        key: u64,
        seq: Option<u64>,
        layer: u8,
        group: u32,
        refs: (u32, u32),
        generated: Option<u64>,
        deadline: Option<u64>,
        expires_in: Option<f64>,
    ) -> PyResult<(u64, Vec<Missed>)> {
        let about = About { seq, key, layer, group, refs, generated, deadline, expires_in };
        self.put_to_all(py, &sinks, payload, How::Replace, about)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sender>()?;
    module.add_class::<fw_ring>()
}
