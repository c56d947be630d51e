//! Records that the program reads, receives or encodes into the arena.

use std::sync::Mutex;

use freshwire::ring::Reservation;

use crate::border::{Failure, Out, Result, borrow, call, done, fw_status, put_if_wanted, slice};
use crate::common::locks::{lock, take};
use crate::fanout::{Sinks, ids_of, to_all};
use crate::handles::{enter, fw_reservation, fw_sender, fw_sink, handle};
use crate::meta::fw_meta;
use crate::sink::{meta_of, queue};

/// A reservation; `None` once it was committed or freed.
pub(crate) struct ReservationObject(Mutex<Option<Reservation>>);

handle!(fw_reservation, ReservationObject, "reservation");

impl ReservationObject {
    /// Calls `f` with the reservation, of which the first `len` bytes are the record's. A call for the sender too has locked the sender
    /// before.
    fn with<R>(&self, len: usize, f: impl FnOnce(&mut Option<Reservation>) -> Result<R>) -> Result<R> {
        let mut held = lock(&self.0);
        let reservation = held.as_mut().ok_or_else(used_up)?;
        let capacity = reservation.capacity();
        reservation.set_len(len).map_err(|_| {
            Failure::invalid(format!("{len} bytes in a reservation of {capacity}: reserve more"))
        })?;
        f(&mut held)
    }
}

fn used_up() -> Failure {
    Failure::new(fw_status::FW_DEAD_HANDLE, "the reservation was committed or freed")
}

/// Reserves memory for a record of at most `len` bytes for a sink, which the program writes and then commits with fw_sink_commit:
/// fw_reservation_piece tells where. `meta` may be NULL; the policy drops stale records for it if the ring is full. Otherwise
/// as fw_sink_push. A reservation holds memory of the sender's arena and no place in the ring.
///
/// # Safety
///
/// `meta` is NULL or points to a valid value; `reservation` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_reserve(
    sink: fw_sink,
    len: usize,
    meta: *const fw_meta,
    reservation: *mut fw_reservation,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::new("reservation", reservation, fw_reservation::default()) }?;
        // SAFETY: as the caller promises.
        let meta = meta_of(unsafe { borrow("meta", meta) }?);
        let reserved = queue(sink, |sender, id| sender.reserve(id, len, &meta))?;
        out.put(enter(ReservationObject(Mutex::new(Some(reserved))))?)
    })
}

/// Reserves memory for a record of at most `len` bytes for several sinks of a sender, to be committed with fw_sender_commit_to_all.
/// `meta` may be NULL; the policies drop stale records for it if the arena is full.
///
/// # Safety
///
/// `sinks` points to `count` handles; `meta` is NULL or points to a valid value; `reservation` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_reserve(
    sender: fw_sender,
    sinks: *const fw_sink,
    count: usize,
    len: usize,
    meta: *const fw_meta,
    reservation: *mut fw_reservation,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::new("reservation", reservation, fw_reservation::default()) }?;
        let object = sender.find()?;
        // SAFETY: as the caller promises.
        let ids = ids_of(&object, unsafe { slice(sinks, count) }?)?.1;
        // SAFETY: as the caller promises.
        let meta = meta_of(unsafe { borrow("meta", meta) }?);
        let reserved = object.with(|sender| Ok(sender.reserve_for_all(ids, len, &meta)?))?;
        out.put(enter(ReservationObject(Mutex::new(Some(reserved))))?)
    })
}

/// Writes where byte `offset` of the record goes, and how many bytes lie there in a row. A record that needs several blocks of the
/// arena may have several pieces: the next one begins at `offset` + `len`. FW_END behind the last byte. The memory is the
/// program's until the reservation is committed or freed; nothing may be written to it afterwards.
///
/// # Safety
///
/// `data` and `len` point to writable values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_reservation_piece(
    reservation: fw_reservation,
    offset: usize,
    data: *mut *mut u8,
    len: *mut usize,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let data = unsafe { Out::new("data", data, std::ptr::null_mut()) }?;
        // SAFETY: as the caller promises.
        let len = unsafe { Out::new("len", len, 0) }?;
        let piece = reservation.find()?.with(offset, |held| {
            let piece = held.as_mut().and_then(|reservation| reservation.pieces().next());
            Ok(piece.map(|piece| (piece.cast::<u8>().as_ptr(), piece.len())))
        })?;
        let Some((start, bytes)) = piece else { return Ok(fw_status::FW_END) };
        len.put(bytes)?;
        data.put(start)
    })
}

/// Queues the first `len` bytes of a reservation, without a copy, and frees it; the rest of its memory is free at once. `meta` and
/// `seq` as in fw_sink_push. After a failure, such as FW_FULL, the reservation is as it was.
///
/// # Safety
///
/// `meta` and `seq` are NULL or point to a valid value. Nothing writes to the reservation's memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sink_commit(
    sink: fw_sink,
    reservation: fw_reservation,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let meta = meta_of(unsafe { borrow("meta", meta) }?);
        let object = reservation.find()?;
        let number = queue(sink, |sender, id| {
            object.with(len, |held| {
                let number = sender.commit(id, held.as_mut().ok_or_else(used_up)?, &meta)?;
                *held = None;
                Ok(number)
            })
        })?;
        // Fails only if another call has freed the handle since.
        let _ = reservation.free();
        // SAFETY: as the caller promises.
        unsafe { put_if_wanted("seq", seq, || Ok(number)) }
    })
}

/// Queues the first `len` bytes of a reservation of fw_sender_reserve for several sinks, and frees it. Otherwise as
/// fw_sender_push_to_all. A sink that misses the record does not get it later.
///
/// # Safety
///
/// As fw_sender_push_to_all. Nothing writes to the reservation's memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_sender_commit_to_all(
    sender: fw_sender,
    sinks: *const fw_sink,
    count: usize,
    reservation: fw_reservation,
    len: usize,
    meta: *const fw_meta,
    seq: *mut u64,
    missed: *mut fw_status,
) -> fw_status {
    let sinks = Sinks { sinks, count, missed };
    // SAFETY: as the caller promises.
    unsafe {
        to_all(sender, sinks, meta, seq, |sender, ids, meta| {
            let reserved = reservation.find()?.with(len, |held| held.take().ok_or_else(used_up))?;
            // Fails only if another call has freed the handle since.
            let _ = reservation.free();
            sender.commit_to_all(ids, reserved, meta).map_err(Failure::from)
        })
    }
}

/// Gives a reservation back. Nothing may be written to its memory any more.
#[unsafe(no_mangle)]
pub extern "C" fn fw_reservation_free(reservation: fw_reservation) -> fw_status {
    call(|| {
        let object = reservation.free()?;
        Ok(done(take(&object.0)))
    })
}
