//! Senders: records into rings.

use std::sync::Mutex;

use freshwire::Sender;

use crate::border::{Failure, Out, Result, call, done, fw_status, get_or};
use crate::common::locks::{lock, take};
use crate::common::structures::fw_ring;
use crate::engine::handle_of;
use crate::handles::{enter, fw_engine, fw_sender, handle};
use crate::types::fw_ring_default;

/// A sender; `None` once it was freed.
pub(crate) struct SenderObject(Mutex<Option<Sender>>);

handle!(fw_sender, SenderObject, "sender");

impl SenderObject {
    /// Calls `f` with the sender.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Sender) -> Result<R>) -> Result<R> {
        let mut sender = lock(&self.0);
        f(sender.as_mut().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the sender was freed"))?)
    }
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
        let sender = unsafe { Out::new("sender", sender, fw_sender::default()) }?;
        // SAFETY: as the caller promises.
        let ring = unsafe { get_or("ring", ring, || fw_ring_default()) }?;
        let made = match engine.id {
            0 => Sender::without_engine(&ring.into()),
            _ => Sender::new(&ring.into(), &handle_of(engine)?),
        };
        sender.put(enter(SenderObject(Mutex::new(Some(made?))))?)
    })
}

/// Frees a sender. Its sinks go on with what is queued, and take no more.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sender_free(sender: fw_sender) -> fw_status {
    call(|| {
        let object = sender.free()?;
        Ok(done(take(&object.0)))
    })
}
