//! One destination.

use std::os::fd::{AsFd as _, IntoRawFd as _};
use std::sync::{Arc, Mutex};

use freshwire::sink::{CloseMode, Monitor};
use freshwire::{Ended as Native, PushError, SinkId};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::choice::{Failure, check};
use crate::common::ends::Cause;
use crate::common::locks::{lock, take};
use crate::core::{About, Core, How};
use crate::errors::{Closed, raise};
use crate::events::SinkEvents;
use crate::fate::Fates;
use crate::ffi::with_bytes;
use crate::guard::drop_apart;
use crate::reservation::Reservation;
use crate::room::Room;
use crate::stats::Stats;
use crate::waiting::{duration, interruptible};

/// Treatment of queued records when a sink is closed.
#[pyclass(frozen, eq, eq_int, from_py_object, module = "freshwire")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// The records that the policy still wants are sent.
    Drain,
    /// The record in progress is finished, the others are dropped.
    FinishRecord,
    /// Everything is discarded, and the connection reset.
    Abort,
}

/// Why a sink has ended.
#[pyclass(frozen, eq, from_py_object, module = "freshwire")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was closed; the peer has acknowledged every byte, unless it was aborted.
    Closed {},
    /// It ended before that, because of `cause`, in words: `reason`.
    Broken { cause: Cause, reason: String },
}

#[pymethods]
impl Ended {
    fn __repr__(&self) -> String {
        match self {
            Self::Closed {} => "Ended.Closed()".to_owned(),
            Self::Broken { cause, reason } => format!("Ended.Broken(Cause.{cause:?}, {reason:?})"),
        }
    }
}

impl Ended {
    pub(crate) fn new(ended: Native) -> Self {
        match &ended {
            Native::Closed => Self::Closed {},
            Native::Broken(error) => Self::Broken { cause: error.into(), reason: ended.to_string() },
            // One of a newer release.
            _ => Self::Broken { cause: Cause::Other, reason: ended.to_string() },
        }
    }
}

/// One destination, made by `Sender.add_sink`. Dropping it closes it after the record in progress; `with` drains it.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Sink {
    core: Arc<Core>,
    id: SinkId,
    monitor: Monitor,
    fallback: Option<String>,
    /// `None` once it was closed.
    open: Mutex<Option<freshwire::Sink>>,
    room: Arc<Room>,
    failure: Failure,
}

impl Sink {
    pub(crate) fn new(core: Arc<Core>, sink: freshwire::Sink, room: Arc<Room>, failure: Failure) -> Self {
        let (id, monitor, fallback) = (sink.id(), sink.monitor(), sink.fallback().map(str::to_owned));
        Self { core, id, monitor, fallback, open: Mutex::new(Some(sink)), room, failure }
    }

    /// Its handle, if it is a sink of this sender.
    pub(crate) fn id_in(&self, core: &Arc<Core>) -> PyResult<SinkId> {
        match Arc::ptr_eq(core, &self.core) {
            true => Ok(self.id),
            false => Err(PyValueError::new_err("the sink belongs to another sender")),
        }
    }

    fn with_open<T>(&self, f: impl FnOnce(&freshwire::Sink) -> PyResult<T>) -> PyResult<T> {
        self.core.born.check()?;
        f(lock(&self.open).as_ref().ok_or_else(|| Closed::new_err("the sink was closed"))?)
    }

    fn take(&self) -> Option<freshwire::Sink> {
        take(&self.open)
    }

    fn put(&self, payload: &Bound<'_, PyAny>, how: How, about: About) -> PyResult<u64> {
        let py = payload.py();
        check(py, &self.failure)?;
        let meta = about.meta()?;
        with_bytes(payload, |bytes| self.core.put(py, self.id, how, bytes, &meta))
    }
}

#[pymethods]
impl Sink {
    /// Queues a record and returns its number. `seq` is the application's own number, by default the sender's next one.
    /// `generated` and `deadline` are nanoseconds of the monotonic clock; `expires_in` is the deadline in seconds from
    /// `generated`, which is now by default. `refs` are distances back to the records that this one depends on.
    ///
    /// Raises `Full` if the ring has no room, `Closed` after the sink's end, `TooLarge` for a record that never fits.
    #[pyo3(signature = (payload, *, seq = None, key = 0, layer = 0, group = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn push(
        &self,
        payload: &Bound<'_, PyAny>,
        seq: Option<u64>,
        key: u64,
        layer: u8,
        group: u32,
        refs: (u32, u32),
        generated: Option<u64>,
        deadline: Option<u64>,
        expires_in: Option<f64>,
    ) -> PyResult<u64> {
        let about = About { seq, key, layer, group, refs, generated, deadline, expires_in };
        self.put(payload, How::Push, about)
    }

    /// Replaces the newest queued record with the same key, which keeps its turn; queues it at the end without one. The
    /// arguments are those of `push`.
    #[pyo3(signature = (payload, *, key, seq = None, layer = 0, group = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn replace(
        &self,
        payload: &Bound<'_, PyAny>,
        key: u64,
        seq: Option<u64>,
        layer: u8,
        group: u32,
        refs: (u32, u32),
        generated: Option<u64>,
        deadline: Option<u64>,
        expires_in: Option<f64>,
    ) -> PyResult<u64> {
        let about = About { seq, key, layer, group, refs, generated, deadline, expires_in };
        self.put(payload, How::Replace, about)
    }

    /// Reserves memory of the sender's arena for a record of at most `size` bytes, which the program writes there and then commits.
    ///
    /// Raises what `push` would raise.
    fn reserve(&self, py: Python<'_>, size: usize) -> PyResult<Reservation> {
        check(py, &self.failure)?;
        let meta = About::default().meta()?;
        let reserved =
            self.core.with_detached(py, |sender| sender.reserve(self.id, size, &meta).map_err(raise))?;
        Reservation::new(py, reserved, self.core.born)
    }

    /// Queues the first `size` bytes of a reservation of this sink, by default all, without a copy, and returns the record's number. Its
    /// buffers are released. The other arguments are those of `push`.
    ///
    /// Raises what `push` raises; the reservation can be committed again then. `BufferError` while something uses a part of a
    /// buffer, `ValueError` for a reservation that was committed before or made elsewhere.
    #[pyo3(signature = (reservation, size = None, *, seq = None, key = 0, layer = 0, group = 0, refs = (0, 0), generated = None, deadline = None, expires_in = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn commit(
        &self,
        py: Python<'_>,
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
    ) -> PyResult<u64> {
        check(py, &self.failure)?;
        let about = About { seq, key, layer, group, refs, generated, deadline, expires_in };
        let meta = about.meta()?;
        let filled = reservation.get().filled(py, size)?;
        self.core.with_detached(py, |sender| {
            filled.commit(|held| match held {
                Some(reservation) => sender.commit(self.id, reservation, &meta),
                None => Err(PushError::ForeignReservation),
            })
        })
    }

    /// Drops the queued records with this number. `True`: they will not be sent. `False`: too late.
    fn drop(&self, py: Python<'_>, seq: u64) -> PyResult<bool> {
        self.core.with(py, |state| state.sender()?.drop_seq(self.id, seq).map_err(raise))
    }

    /// Changes a queued record in place: its bytes from `offset` on, its length, layer or deadline.
    ///
    /// Raises `TooLate` if it was committed, dropped or is held; `NotChanged` if the payload is shared with other sinks or the
    /// change does not fit.
    #[pyo3(signature = (seq, payload = None, *, offset = 0, length = None, layer = None, deadline = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn modify(
        &self,
        py: Python<'_>,
        seq: u64,
        payload: Option<&Bound<'_, PyAny>>,
        offset: u32,
        length: Option<u32>,
        layer: Option<u8>,
        deadline: Option<u64>,
    ) -> PyResult<()> {
        let bytes = payload.map(|payload| with_bytes(payload, |bytes| Ok(bytes.to_vec()))).transpose()?;
        self.core.with(py, |state| {
            let changed = state.sender()?.modify(self.id, seq, |edit| {
                if let Some(bytes) = &bytes {
                    edit.write(offset, bytes)?;
                }
                if let Some(length) = length {
                    edit.set_len(length)?;
                }
                if let Some(layer) = layer {
                    edit.set_layer(layer);
                }
                if let Some(deadline) = deadline {
                    edit.set_deadline(freshwire::Timestamp::from_nanos(deadline));
                }
                Ok(())
            });
            changed.map_err(raise)
        })
    }

    /// Whether a push of `size` bytes would find room now. Raises `Closed` after the sink's end.
    #[pyo3(signature = (size = 1))]
    fn has_room(&self, py: Python<'_>, size: usize) -> PyResult<bool> {
        if let Some(ended) = self.monitor.ended() {
            return Err(Closed::new_err(format!("the sink has ended: {ended}")));
        }
        check(py, &self.failure)?;
        self.core.with(py, |state| {
            // A stale handle has another sink's room.
            state.sender()?.waiting(self.id).map_err(raise)?;
            state.has_room(self.id, size)
        })
    }

    /// Changes of the sink as a file that becomes readable: a push may find room, a fate may be known, or the sink has ended.
    ///
    /// For event loops other than asyncio. Raises `Closed` after `close`, and `OSError` where the kernel sends the records itself.
    fn events(&self) -> PyResult<SinkEvents> {
        self.with_open(|open| Ok(SinkEvents::new(open.events()?, self.core.born)))
    }

    /// A descriptor that becomes readable when the ring may have room. Armed by each call.
    fn _room_fd(&self) -> PyResult<i32> {
        self.core.born.check()?;
        Ok(self.room.arm()?)
    }

    /// A descriptor that becomes readable at the sink's end, and stays so. The caller closes it.
    fn _end_fd(&self) -> PyResult<i32> {
        self.with_open(|open| Ok(open.end_event()?.as_fd().try_clone_to_owned()?.into_raw_fd()))
    }

    /// The fates that are known now, each once.
    fn fates(&self) -> Fates {
        Fates { core: Arc::clone(&self.core), sink: self.id }
    }

    /// Number of fates that were not polled in time and are lost.
    #[getter]
    fn fates_lost(&self, py: Python<'_>) -> PyResult<u64> {
        self.core.with(py, |state| state.sender()?.fates_lost(self.id).map_err(raise))
    }

    /// Counters, also after the end.
    fn stats(&self) -> PyResult<Stats> {
        self.core.born.check()?;
        Ok(Stats::new(&self.monitor.stats()))
    }

    /// Why it has ended; `None` while it is served.
    #[getter]
    fn ended(&self) -> PyResult<Option<Ended>> {
        self.core.born.check()?;
        Ok(self.monitor.ended().map(Ended::new))
    }

    /// Why carrier="auto" chose plain TCP; `None` if it did not.
    #[getter]
    fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Sends bytes between two records, such as the answer to a request on the same connection.
    fn interject(&self, py: Python<'_>, data: Vec<u8>) -> PyResult<()> {
        py.detach(|| {
            self.with_open(|open| {
                open.interject(data);
                Ok(())
            })
        })
    }

    /// Closes the sink after the record in progress and `last`, without waiting.
    fn _finish_with(&self, py: Python<'_>, last: Vec<u8>) -> PyResult<()> {
        self.core.born.check()?;
        py.detach(|| {
            if let Some(sink) = self.take() {
                sink.finish_with(last);
            }
        });
        Ok(())
    }

    /// Closes the sink, and waits at most `timeout` seconds, after which the connection is aborted. Returns why it has ended.
    #[pyo3(signature = (mode = Close::Drain, timeout = 30.0))]
    fn close(&self, py: Python<'_>, mode: Close, timeout: f64) -> PyResult<Ended> {
        self.core.born.check()?;
        let timeout = duration("timeout", timeout)?;
        let mode = match mode {
            Close::Drain => CloseMode::Drain,
            Close::FinishRecord => CloseMode::FinishRecord,
            Close::Abort => CloseMode::Abort,
        };
        let Some(sink) = self.take() else {
            let ended = self.monitor.ended();
            return ended
                .map(Ended::new)
                .ok_or_else(|| PyRuntimeError::new_err("another call closes the sink"));
        };
        interruptible(py, move || sink.close(mode, timeout)).map(Ended::new)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if let Some(sink) = self.take() {
            interruptible(py, move || sink.close(CloseMode::Drain, freshwire::sink::DEFAULT_LINGER))?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        match self.monitor.ended() {
            None => "<freshwire.Sink served>".to_owned(),
            Some(ended) => format!("<freshwire.Sink ended: {ended}>"),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.core.born.is_of_parent() {
            if let Ok(open) = self.open.get_mut() {
                std::mem::forget(open.take());
            }
            return;
        }
        drop_apart(self.core.born, self.take());
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Close>()?;
    module.add_class::<Ended>()?;
    module.add_class::<Cause>()?;
    module.add_class::<Sink>()
}
