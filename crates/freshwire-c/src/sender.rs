//! Senders: records into rings.

use std::sync::{Mutex, PoisonError};

use freshwire::sink::StaleSink;
use freshwire::{PushError, Sender, SenderError};

use crate::border::{Failure, Result, call, fw_status, get_or, put};
use crate::engine::handle_of;
use crate::handles::{Object, enter, free, fw_engine, fw_sender};
use crate::types::{fw_ring, fw_ring_default};

/// A sender; `None` once it was freed.
pub(crate) struct SenderObject(Mutex<Option<Sender>>);

impl Object for SenderObject {
    const NAME: &'static str = "sender";
}

impl SenderObject {
    /// Calls `f` with the sender.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Sender) -> Result<R>) -> Result<R> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f(sender.as_mut().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the sender was freed"))?)
    }
}

pub(crate) fn of_stale(error: StaleSink) -> Failure {
    Failure::new(fw_status::FW_CLOSED, error)
}

pub(crate) fn status_of(error: PushError) -> fw_status {
    match error {
        PushError::Full | PushError::OutOfBlocks => fw_status::FW_FULL,
        PushError::TooLarge => fw_status::FW_TOO_LARGE,
        PushError::Closed | PushError::StaleSink(_) => fw_status::FW_CLOSED,
        _ => fw_status::FW_FAILED,
    }
}

pub(crate) fn of_push(error: PushError) -> Failure {
    Failure::new(status_of(error), error)
}

pub(crate) fn of_sender(error: SenderError) -> Failure {
    let status = match &error {
        SenderError::Create(freshwire::ring::CreateError::Config(_)) | SenderError::TooFewSlots { .. } => {
            fw_status::FW_INVALID
        }
        SenderError::Create(_) | SenderError::Stream(_) | SenderError::Carrier(_) => fw_status::FW_SYSTEM,
        SenderError::Claim(_) => fw_status::FW_NO_RING,
        SenderError::ConnectionEnded(_) => fw_status::FW_CLOSED,
        _ => fw_status::FW_FAILED,
    };
    Failure::new(status, error)
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
        let ring = unsafe { get_or("ring", ring, || fw_ring_default()) }?;
        let made = match engine.id {
            0 => Sender::without_engine(&ring.into()),
            _ => Sender::new(&ring.into(), &handle_of(engine)?),
        };
        let id = enter(SenderObject(Mutex::new(Some(made.map_err(of_sender)?))))?;
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
        let taken = object.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
        Ok(fw_status::FW_OK)
    })
}
