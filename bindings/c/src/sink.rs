//! Sinks: one destination each.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use freshwire::ring::Edit;
use freshwire::sink::{CloseMode, Monitor};
use freshwire::watch::{EndEvent, SinkEvents};
use freshwire::{Ended, Meta, Sender, Sink, SinkId, Timestamp};

use crate::border::{
    Failure, Out, Result, borrow, bytes, call, done, fw_status, get, once, put, put_if_wanted,
};
use crate::common::ends::Cause;
use crate::common::locks::{lock, take};
use crate::common::process::forks;
use crate::handles::{fw_sink, handle};
use crate::meta::fw_meta;
use crate::sender::SenderObject;

pub(crate) struct SinkObject {
    sender: Arc<SenderObject>,
    id: SinkId,
    monitor: Monitor,
    /// `None` once it was closed.
    open: Mutex<Option<Sink>>,
    /// From the first `fw_sink_events` on.
    events: OnceLock<SinkEvents>,
    is_freed: AtomicBool,
}

handle!(fw_sink, SinkObject, "sink");

impl SinkObject {
    pub(crate) fn new(sender: Arc<SenderObject>, sink: Sink) -> Self {
        let (id, monitor) = (sink.id(), sink.monitor());
        let (open, is_freed) = (Mutex::new(Some(sink)), AtomicBool::new(false));
        Self { sender, id, monitor, open, events: OnceLock::new(), is_freed }
    }

    pub(crate) fn sender(&self) -> &Arc<SenderObject> {
        &self.sender
    }

    pub(crate) fn id(&self) -> SinkId {
        self.id
    }

    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> freshwire::stats::SinkSnapshot {
        self.monitor.stats()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.monitor.ended().is_some()
    }

    /// A file that becomes readable at its end; not once it was closed.
    pub(crate) fn end_event(&self) -> Result<EndEvent> {
        self.with_open(|open| Ok(open.end_event()?))
    }

    fn with_open<T>(&self, f: impl FnOnce(&Sink) -> Result<T>) -> Result<T> {
        let open = lock(&self.open);
        f(open.as_ref().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the sink was closed"))?)
    }

    /// Sends whole frames between two records; nothing once the sink was closed.
    pub(crate) fn interject(&self, frames: Vec<u8>) {
        if let Some(open) = &*lock(&self.open) {
            open.interject(frames);
        }
    }

    /// Ends the stream with these bytes behind the record in progress; not once the sink was closed.
    pub(crate) fn finish_with(&self, last: Vec<u8>) {
        if let Some(open) = self.take() {
            open.finish_with(last);
        }
    }

    fn events(&self) -> Result<&SinkEvents> {
        let make = |open: &Sink| {
            open.events().map_err(|error| match error.kind() {
                ErrorKind::Unsupported => Failure::new(
                    fw_status::FW_FAILED,
                    "the kernel sends the records of this sink and reports nothing of them: use the carrier FW_TCP to wait for room",
                ),
                _ => Failure::from(error),
            })
        };
        once(&self.events, || self.with_open(make))
    }

    fn take(&self) -> Option<Sink> {
        take(&self.open)
    }
}

thread_local! {
    /// The sink of this thread's last push: most programs push into one for long.
    static RECENT: RefCell<Option<(u64, u64, Arc<SinkObject>)>> = const { RefCell::new(None) };
}

/// Looks a sink up, as fast as possible where it is the same as last time.
#[inline]
fn with_sink<R>(id: u64, f: impl FnOnce(&SinkObject) -> Result<R>) -> Result<R> {
    RECENT.with_borrow_mut(|recent| match recent {
        Some((number, born, sink)) if *number == id && *born == forks() && !sink.is_freed() => f(sink),
        _ => {
            *recent = None;
            let sink = fw_sink { id }.find()?;
            f(&recent.insert((id, forks(), sink)).2)
        }
    })
}

/// FW_DRAIN, FW_FINISH_RECORD or FW_ABORT.
pub type fw_close = u32;
/// The records that the policy still wants are sent.
pub const FW_DRAIN: fw_close = 0;
/// The record in progress is finished, the others are dropped.
pub const FW_FINISH_RECORD: fw_close = 1;
/// Everything is discarded, and the connection reset.
pub const FW_ABORT: fw_close = 2;

/// Why a sink has ended, from FW_ENDED_CLOSED to FW_ENDED_OTHER; fw_last_error says more of all but the first.
pub type fw_ended = u32;
/// It was closed by its owner.
pub const FW_ENDED_CLOSED: fw_ended = 0;
/// The operating system reported an error of the connection.
pub const FW_ENDED_IO: fw_ended = 1;
/// The A1 connection ended.
pub const FW_ENDED_A1: fw_ended = 2;
/// The peer closed the connection.
pub const FW_ENDED_PEER_CLOSED: fw_ended = 3;
/// The time given to fw_sink_close passed.
pub const FW_ENDED_OUT_OF_TIME: fw_ended = 4;
/// The sink was freed, and the peer did not take the record in progress within the linger time.
pub const FW_ENDED_LINGERED: fw_ended = 5;
/// The peer took nothing for the stall timeout.
pub const FW_ENDED_STALLED: fw_ended = 6;
/// Too much of fw_sink_interject waited for the peer.
pub const FW_ENDED_NOT_READING: fw_ended = 7;
/// The carrier cannot send bytes between records.
pub const FW_ENDED_CANNOT_INTERJECT: fw_ended = 8;
/// The engine or the A1 node was stopped.
pub const FW_ENDED_STOPPED: fw_ended = 9;
/// Another reason.
pub const FW_ENDED_OTHER: fw_ended = 10;

/// A change of a queued record: members that have their bit in `what` count.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_change {
    /// FW_CHANGE_DATA, FW_CHANGE_LENGTH, FW_CHANGE_LAYER, FW_CHANGE_DEADLINE, added.
    pub what: u32,
    /// Where `data` goes.
    pub offset: u32,
    /// The new bytes.
    pub data: *const u8,
    /// How many.
    pub len: usize,
    /// The record's length.
    pub length: u32,
    /// Its layer.
    pub layer: u8,
    /// Its deadline.
    pub deadline: u64,
}

/// `data` goes into the payload.
pub const FW_CHANGE_DATA: u32 = 1;
/// The record has the length `length`.
pub const FW_CHANGE_LENGTH: u32 = 2;
/// The record has the layer `layer`.
pub const FW_CHANGE_LAYER: u32 = 4;
/// The record has the deadline `deadline`.
pub const FW_CHANGE_DEADLINE: u32 = 8;

#[inline]
pub(crate) fn queue<R, E>(
    sink: fw_sink,
    put: impl FnOnce(&mut Sender, SinkId) -> std::result::Result<R, E>,
) -> Result<R>
where
    Failure: From<E>,
{
    with_sink(sink.id, |object| object.sender.with(|sender| put(sender, object.id).map_err(Failure::from)))
}

#[inline]
pub(crate) fn meta_of(meta: Option<&fw_meta>) -> Meta {
    match meta {
        Some(meta) => meta.meta(),
        None => Meta { generated: freshwire::now(), ..Meta::default() },
    }
}

/// Queues a record. `meta` may be NULL for a record without key or deadline, generated now. `seq`, if it is not NULL, gets its
/// number. Never blocks: without room the status is FW_FULL, after the sink's end FW_CLOSED.
///
/// # Safety
///
/// `data` points to `len` bytes; `meta` and `seq` are NULL or point to a valid value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_push(
    sink: fw_sink,
    data: *const u8,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let payload = unsafe { bytes(data, len) }?;
        // SAFETY: as the caller promises.
        let meta = unsafe { borrow("meta", meta) }?;
        // Made where it is used: see `Failure` on what copies cost.
        let number = queue(sink, |sender, id| sender.push(id, payload, &meta_of(meta)))?;
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("seq", seq, || Ok(number)) }
    })
}

/// Replaces the newest queued record with the key in `meta`, which keeps its turn; queues it at the end without one. Otherwise as
/// fw_sink_push.
///
/// # Safety
///
/// As fw_sink_push.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_replace(
    sink: fw_sink,
    data: *const u8,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let payload = unsafe { bytes(data, len) }?;
        // SAFETY: as the caller promises.
        let meta = unsafe { get("meta", meta) }?;
        let replaced = |replaced: freshwire::ring::Replaced| replaced.pushed().seq;
        let number = queue(sink, |sender, id| sender.replace(id, payload, &meta.meta()).map(replaced))?;
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("seq", seq, || Ok(number)) }
    })
}

/// Drops the queued records with this number. FW_OK: they will not be sent. FW_TOO_LATE: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sink_drop(sink: fw_sink, seq: u64) -> fw_status {
    call(|| {
        let object = sink.find()?;
        match object.sender.with(|sender| sender.drop_seq(object.id, seq).map_err(Failure::from))? {
            true => Ok(fw_status::FW_OK),
            false => Err(Failure::new(fw_status::FW_TOO_LATE, freshwire::ring::TooLate)),
        }
    })
}

/// Changes a queued record in place. FW_TOO_LATE if it was committed, dropped or is held, FW_NOT_CHANGED if the change does not
/// fit or the payload is shared with other sinks.
///
/// # Safety
///
/// `change` points to a valid change, whose `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_modify(sink: fw_sink, seq: u64, change: *const fw_change) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let change = unsafe { get("change", change) }?;
        let wants = |bit: u32| change.what & bit != 0;
        let payload = match wants(FW_CHANGE_DATA) {
            // SAFETY: as the caller promises.
            true => unsafe { bytes(change.data, change.len) }?,
            false => &[],
        };
        let object = sink.find()?;
        let edit = |edit: &mut Edit<'_>| {
            if wants(FW_CHANGE_DATA) {
                edit.write(change.offset, payload)?;
            }
            if wants(FW_CHANGE_LENGTH) {
                edit.set_len(change.length)?;
            }
            if wants(FW_CHANGE_LAYER) {
                edit.set_layer(change.layer);
            }
            if wants(FW_CHANGE_DEADLINE) {
                edit.set_deadline(Timestamp::from_nanos(change.deadline));
            }
            Ok(())
        };
        object.sender.with(|sender| Ok(done(sender.modify(object.id, seq, edit)?)))
    })
}

/// Whether a push of `len` bytes would find room now: FW_OK, or FW_NOTHING without room.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sink_has_room(sink: fw_sink, len: usize) -> fw_status {
    call(|| {
        let object = sink.find()?;
        if let Some(ended) = object.monitor.ended() {
            return Err(Failure::new(fw_status::FW_CLOSED, format!("the sink has ended: {ended}")));
        }
        let has_room = object.sender.with(|sender| {
            // A stale handle has another sink's room.
            sender.waiting(object.id)?;
            Ok(sender.producer().has_room(object.id.ring(), len))
        })?;
        Ok(if has_room { fw_status::FW_OK } else { fw_status::FW_NOTHING })
    })
}

/// Writes a descriptor that becomes readable when a record was sent or dropped, or the sink has ended: a push may find room,
/// and fw_sink_poll_fate a fate. For poll(2), epoll and their kin. It stays readable until fw_sink_clear_events. It is the sink's
/// own, the same at each call and valid until fw_sink_free: do not close it, and let one place wait for it. FW_FAILED for the
/// carrier "kernel-ring", whose records no thread of this process handles.
///
/// # Safety
///
/// `fd` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_events(sink: fw_sink, fd: *mut c_int) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let fd = unsafe { Out::new("fd", fd, -1) }?;
        fd.put(sink.find()?.events()?.as_raw_fd())
    })
}

/// Makes the descriptor of fw_sink_events unreadable until the next change. Call it before the next attempt, not after.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sink_clear_events(sink: fw_sink) -> fw_status {
    call(|| {
        sink.find()?.events()?.clear();
        Ok(fw_status::FW_OK)
    })
}

/// Name of the carrier in use: "tcp", "kernel-ring", "kernel-fed", "a1" or "a1-over-tcp"; NULL for a dead handle.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sink_carrier(sink: fw_sink) -> *const c_char {
    let mut name = std::ptr::null();
    call(|| {
        let stats = sink.find()?.monitor.stats();
        let text = match stats.carrier.name() {
            "tcp" => c"tcp",
            "kernel-ring" => c"kernel-ring",
            "kernel-fed" => c"kernel-fed",
            "a1" => c"a1",
            "a1-over-tcp" => c"a1-over-tcp",
            other => {
                return Err(Failure::new(
                    fw_status::FW_FAILED,
                    format!("the carrier {other} has no name here"),
                ));
            }
        };
        name = text.as_ptr();
        Ok(fw_status::FW_OK)
    });
    name
}

/// Sends bytes between two records, such as the answer to a request on the same connection.
///
/// # Safety
///
/// `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_interject(sink: fw_sink, data: *const u8, len: usize) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let answer = unsafe { bytes(data, len) }?.to_vec();
        sink.find()?.with_open(|open| {
            open.interject(answer);
            Ok(fw_status::FW_OK)
        })
    })
}

/// Writes why a sink has ended. FW_NOTHING: it is served.
///
/// # Safety
///
/// `ended` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_ended(sink: fw_sink, ended: *mut fw_ended) -> fw_status {
    call(|| {
        let object = sink.find()?;
        match object.monitor.ended() {
            None => Ok(fw_status::FW_NOTHING),
            // SAFETY: as the caller promises.
            Some(reason) => unsafe { put_ended(ended, &reason) },
        }
    })
}

/// # Safety
///
/// `to` points to a writable value.
unsafe fn put_ended(to: *mut fw_ended, ended: &Ended) -> Result<fw_status> {
    let value = match ended {
        Ended::Closed => FW_ENDED_CLOSED,
        Ended::Broken(error) => FW_ENDED_IO + Cause::from(error) as fw_ended,
        _ => FW_ENDED_OTHER,
    };
    // SAFETY: as the caller promises.
    unsafe { put("ended", to, value) }?;
    if *ended != Ended::Closed {
        crate::border::note(&ended.to_string());
    }
    Ok(fw_status::FW_OK)
}

/// Closes a sink, and waits at most `timeout` nanoseconds, after which the connection is aborted. Writes why it has ended. The
/// handle stays valid for fates and counters until it is freed. A sink that another call closes already, as fw_websocket_close or
/// the client's close does, is only waited for: FW_NOTHING after `timeout`, without an abort.
///
/// # Safety
///
/// `ended` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_close(
    sink: fw_sink,
    mode: fw_close,
    timeout: u64,
    ended: *mut fw_ended,
) -> fw_status {
    call(|| {
        let mode = match mode {
            FW_DRAIN => CloseMode::Drain,
            FW_FINISH_RECORD => CloseMode::FinishRecord,
            FW_ABORT => CloseMode::Abort,
            other => {
                return Err(Failure::invalid(format!(
                    "mode={other}: FW_DRAIN, FW_FINISH_RECORD or FW_ABORT is wanted"
                )));
            }
        };
        // SAFETY: as the caller promises. Tried before the sink is closed.
        unsafe { put("ended", ended, FW_ENDED_OTHER) }?;
        let object = sink.find()?;
        let reason = match object.take() {
            Some(open) => open.close(mode, Duration::from_nanos(timeout)),
            None => match object.monitor.wait(Duration::from_nanos(timeout)) {
                Some(reason) => reason,
                None => return Ok(fw_status::FW_NOTHING),
            },
        };
        // SAFETY: as the caller promises.
        unsafe { put_ended(ended, &reason) }
    })
}

/// Frees a sink. One that was not closed finishes the record in progress, as long as its linger time permits, without waiting.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sink_free(sink: fw_sink) -> fw_status {
    call(|| {
        let object = sink.free()?;
        object.is_freed.store(true, Ordering::Relaxed);
        RECENT.with_borrow_mut(|recent| drop(recent.take_if(|(number, ..)| *number == sink.id)));
        drop(object.take());
        Ok(fw_status::FW_OK)
    })
}
