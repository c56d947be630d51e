//! Senders: records into rings.

use std::ffi::c_int;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire::{PushError, Sender, SenderError, SinkConfig};

use crate::a1::ConnectionObject;
use crate::border::{Failure, Result, bytes, call, fw_status, get, put, slice};
use crate::engine::handle_of;
use crate::handles::{enter, find, free, fw_connection, fw_engine, fw_sender, fw_sink};
use crate::policy::fw_policy;
use crate::sink::SinkObject;
use crate::types::{FW_DEFAULT, fw_meta, fw_ring, fw_sink_config};

pub(crate) struct SenderObject(Mutex<State>);

/// What is behind a sender's lock.
pub(crate) struct State {
    /// `None` once it was freed.
    sender: Option<Sender>,
    /// By ring, the number of the sink that has it.
    owners: Vec<u64>,
    next_owner: u64,
    next_seq: u64,
}

/// A sink's ring, and the number that shows that it is still the sink's.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) ring: usize,
    owner: u64,
}

impl SenderObject {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn sender(&mut self) -> Result<&mut Sender> {
        self.sender.as_mut().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the sender was freed"))
    }

    /// The sender, if the ring is still the sink's.
    #[inline]
    pub(crate) fn sender_of(&mut self, place: Place) -> Result<&mut Sender> {
        if self.owners.get(place.ring) != Some(&place.owner) {
            let words = "the sink has ended, and another one has its ring";
            return Err(Failure::new(fw_status::FW_CLOSED, words));
        }
        self.sender()
    }

    fn own(&mut self, ring: usize) -> Place {
        self.next_owner += 1;
        if ring >= self.owners.len() {
            self.owners.resize(ring + 1, 0);
        }
        self.owners[ring] = self.next_owner;
        Place { ring, owner: self.next_owner }
    }

    /// The record's number: the given one, or the next.
    #[inline]
    pub(crate) fn number(&mut self, meta: &fw_meta) -> Result<u64> {
        let seq = if meta.seq == 0 { self.next_seq } else { meta.seq };
        let next = seq.checked_add(1).ok_or_else(|| Failure::invalid("seq: at most 2**64 - 2 is wanted"))?;
        self.next_seq = self.next_seq.max(next);
        Ok(seq)
    }
}

pub(crate) fn status_of(error: PushError) -> fw_status {
    match error {
        PushError::Full | PushError::OutOfBlocks => fw_status::FW_FULL,
        PushError::TooLarge => fw_status::FW_TOO_LARGE,
        PushError::Closed => fw_status::FW_CLOSED,
        _ => fw_status::FW_FAILED,
    }
}

pub(crate) fn of_push(error: PushError) -> Failure {
    Failure::new(status_of(error), error)
}

fn of_sender(error: SenderError) -> Failure {
    let status = match &error {
        SenderError::Create(freshwire::CreateError::Config(_)) | SenderError::TooFewSlots { .. } => {
            fw_status::FW_INVALID
        }
        SenderError::Create(_) | SenderError::Stream(_) | SenderError::Carrier(_) => fw_status::FW_SYSTEM,
        SenderError::Claim(_) => fw_status::FW_NO_RING,
        SenderError::ConnectionEnded(_) => fw_status::FW_CLOSED,
        _ => fw_status::FW_FAILED,
    };
    Failure::new(status, error)
}

/// Duplicates a descriptor, so that the caller may close it.
pub(crate) fn duplicate(fd: c_int) -> Result<OwnedFd> {
    // SAFETY: the call only asks about a number, which may be no descriptor.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::invalid(format!("fd={fd}: an open descriptor is wanted")));
    }
    // SAFETY: it is an open descriptor, and the caller keeps it open during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?)
}

/// Makes a sender with this shared memory. `engine` is zero for a sender of A1 sinks alone; `ring` may be NULL for the default.
///
/// # Safety
///
/// `ring` is NULL or points to valid sizes; `sender` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_new(
    engine: fw_engine,
    ring: *const fw_ring,
    sender: *mut fw_sender,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("sender", sender, fw_sender::default()) }?;
        // SAFETY: as the caller promises.
        let ring =
            if ring.is_null() { crate::types::fw_ring_default() } else { unsafe { get("ring", ring) }? };
        let made = match engine.id {
            0 => Sender::without_engine(&ring.into()),
            _ => Sender::new(&ring.into(), &handle_of(engine)?),
        };
        let state =
            State { sender: Some(made.map_err(of_sender)?), owners: Vec::new(), next_owner: 0, next_seq: 1 };
        let id = enter(SenderObject(Mutex::new(state)))?;
        // SAFETY: as the caller promises.
        unsafe { put("sender", sender, fw_sender { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Frees a sender. Its sinks go on with what is queued, and take no more.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sender_free(sender: fw_sender) -> fw_status {
    call(|| {
        let object = free::<SenderObject>(sender.id)?;
        let taken = object.lock().sender.take();
        drop(taken);
        Ok(fw_status::FW_OK)
    })
}

/// Serves a connected TCP socket from a free ring. The descriptor is duplicated: the caller may close it, and read the client's
/// data from it, but nothing else may write to it. `config` may be NULL for the default.
///
/// # Safety
///
/// `config` is NULL or points to valid settings; `sink` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_add_sink(
    sender: fw_sender,
    fd: c_int,
    config: *const fw_sink_config,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("sink", sink, fw_sink::default()) }?;
        let object = find::<SenderObject>(sender.id)?;
        // SAFETY: as the caller promises.
        let config = if config.is_null() {
            crate::types::fw_sink_config_default()
        } else {
            unsafe { get("config", config) }?
        };
        let settings = config.apply(SinkConfig::new(config.policy.make()?))?;
        let stream = TcpStream::from(duplicate(fd)?);
        let mut state = object.lock();
        let made = state.sender()?.add_sink(stream, settings).map_err(of_sender)?;
        let place = state.own(made.ring());
        drop(state);
        let id = enter(SinkObject::new(object, place, made))?;
        // SAFETY: as the caller promises.
        unsafe { put("sink", sink, fw_sink { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Serves the other end of an A1 connection from a free ring. `policy` may be NULL for FW_FIFO. `linger` is the time for a freed
/// sink to deliver the records in progress.
///
/// # Safety
///
/// `policy` is NULL or points to a valid policy; `sink` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_add_a1_sink(
    sender: fw_sender,
    connection: fw_connection,
    policy: *const fw_policy,
    linger: u64,
    sink: *mut fw_sink,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { put("sink", sink, fw_sink::default()) }?;
        let object = find::<SenderObject>(sender.id)?;
        let connection = find::<ConnectionObject>(connection.id)?.native()?;
        // SAFETY: as the caller promises.
        let policy = if policy.is_null() { fw_policy::default() } else { unsafe { get("policy", policy) }? };
        let mut config = freshwire::a1::SinkConfig::new(policy.make()?);
        if linger != FW_DEFAULT {
            config = config.linger(Duration::from_nanos(linger));
        }
        let mut state = object.lock();
        let made = state.sender()?.add_a1_sink(&connection, config).map_err(of_sender)?;
        let place = state.own(made.ring());
        drop(state);
        let id = enter(SinkObject::new(object, place, made))?;
        // SAFETY: as the caller promises.
        unsafe { put("sink", sink, fw_sink { id }) }?;
        Ok(fw_status::FW_OK)
    })
}

/// Queues one payload for several sinks of a sender, copied once. `meta` may be NULL. `seq`, if it is not NULL, gets the
/// record's number, and `missed`, if it is not NULL, the status of each sink: FW_OK, FW_FULL or FW_CLOSED.
///
/// # Safety
///
/// `sinks` points to `count` handles, `data` to `len` bytes; `meta` and `seq` are NULL or point to a valid value, `missed` is
/// NULL or points to room for `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_push_to_all(
    sender: fw_sender,
    sinks: *const fw_sink,
    count: usize,
    data: *const u8,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
    missed: *mut fw_status,
) -> fw_status {
    call(|| {
        let object = find::<SenderObject>(sender.id)?;
        // SAFETY: as the caller promises.
        let (sinks, payload) = unsafe { (slice(sinks, count)?, bytes(data, len)?) };
        // SAFETY: as the caller promises.
        let meta = if meta.is_null() { fw_meta::default() } else { unsafe { get("meta", meta) }? };
        let objects: Result<Vec<Arc<SinkObject>>> = sinks.iter().map(|sink| find(sink.id)).collect();
        let objects = objects?;
        if objects.iter().any(|sink| !Arc::ptr_eq(sink.sender(), &object)) {
            return Err(Failure::invalid("a sink belongs to another sender"));
        }
        let mut state = object.lock();
        let number = state.number(&meta)?;
        let mut statuses = vec![fw_status::FW_OK; count];
        let mut rings = Vec::with_capacity(count);
        for (at, sink) in objects.iter().enumerate() {
            match state.sender_of(sink.place()) {
                Ok(_) => rings.push((sink.place().ring, at)),
                Err(failure) => statuses[at] = failure.status,
            }
        }
        let native = state.sender()?;
        native
            .push_to_all(rings.iter().map(|(ring, _)| *ring), payload, &meta.meta(number))
            .map_err(of_push)?;
        for (ring, error) in native.missed() {
            if let Some((_, at)) = rings.iter().find(|(other, _)| other == ring) {
                statuses[*at] = status_of(*error);
            }
        }
        if !seq.is_null() {
            // SAFETY: as the caller promises.
            unsafe { put("seq", seq, number) }?;
        }
        if !missed.is_null() {
            for (at, status) in statuses.into_iter().enumerate() {
                // SAFETY: as the caller promises, there is room for `count` values.
                let place = unsafe { missed.add(at) };
                // SAFETY: likewise.
                unsafe { put("missed", place, status) }?;
            }
        }
        Ok(fw_status::FW_OK)
    })
}
