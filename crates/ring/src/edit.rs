use std::ops::Range;

use freshwire_record::Timestamp;
use freshwire_record::{Meta, Reason, Record};

use crate::error::{EditError, ModifyError, TooLate};
use crate::layout::SLOT_SHARED;
use crate::record::Descriptor;
use crate::sync::{Ordering, fence};
use crate::view::{Extents, SlotContent, View};
use crate::word::{State, Word};

/// A record that is held for editing: the sender passes it over until it is released.
///
/// Dropping the guard releases the record as it is. If the process dies, the record is dropped by whoever calls
/// `recover` next, because it may be half written.
#[must_use = "dropping the guard releases the record at once"]
pub struct Edit<'a> {
    view: View<'a>,
    held: Word,
    descriptor: Descriptor,
    extents: Extents,
    released: bool,
}

impl<'a> Edit<'a> {
    /// Holds the record at `index` if it is ready and `pick` still wants it.
    pub(crate) fn begin(
        view: View<'a>,
        index: u64,
        pid: u32,
        pick: impl Fn(&Record) -> bool,
    ) -> Result<Self, TooLate> {
        let user_i = view.user_i().ok_or(TooLate)?;
        let oldest = user_i.saturating_sub(view.slots());
        // An older record may have kept its slot; whether it has, its lap says.
        if index >= user_i || (index < oldest && view.passed_i() <= oldest) {
            return Err(TooLate);
        }
        // A few attempts: each failure means that the record was changed between looking and holding.
        for _ in 0..4 {
            let SlotContent::Ready(descriptor, word) = view.see(index, user_i) else { return Err(TooLate) };
            if !pick(&descriptor.record) {
                return Err(TooLate);
            }
            let held = word.to(State::Held, pid);
            if view.swap(index, word, held).is_err() {
                continue;
            }
            // Orders the hold before the stores of this edit, for readers in `View::see`.
            fence(Ordering::Release);
            let Some(extents) = view.extents(&descriptor) else {
                let dead = held.dead(Reason::Invalid);
                // A failure means that somebody has already dropped it for a dead holder.
                let _gone = view.swap(index, held, dead);
                return Err(TooLate);
            };
            return Ok(Self { view, held, descriptor, extents, released: false });
        }
        Err(TooLate)
    }

    /// The record's descriptor as it now is.
    pub fn record(&self) -> &Record {
        &self.descriptor.record
    }

    /// Copies payload bytes from `offset` on into `to`; returns how many there were.
    pub fn read(&self, offset: u32, to: &mut [u8]) -> usize {
        let Self { view, extents, descriptor, .. } = self;
        let wanted = to.len();
        each_part(view, extents, descriptor.record.len, (offset, wanted), |block, within, part| {
            view.inner.copy_out(block, within, &mut to[part])
        })
    }

    /// Overwrites payload bytes.
    ///
    /// # Errors
    ///
    /// [`EditError::OutOfRange`] for bytes past the record's present length, [`EditError::Shared`] if the payload is in
    /// other rings too.
    //= spec/ring.md R-ROLE-4
    pub fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), EditError> {
        if self.descriptor.shared {
            return Err(EditError::Shared);
        }
        let end = u64::from(offset) + bytes.len() as u64;
        if end > u64::from(self.record().len) {
            return Err(EditError::OutOfRange);
        }
        let block_bytes = self.view.inner.layout.config.block_bytes as usize;
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % block_bytes;
            let (now, later) = rest.split_at(rest.len().min(block_bytes - within));
            let block = self.extents.block(at / block_bytes).ok_or(EditError::OutOfRange)?;
            if !self.view.inner.copy_in(block, within, now) {
                return Err(EditError::OutOfRange);
            }
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Changes the record's length, at most to what its slots hold. New bytes have any value until they are written.
    ///
    /// # Errors
    ///
    /// [`EditError::OutOfRange`] if the slots hold less, [`EditError::Shared`] if the payload is in other rings too.
    pub fn set_len(&mut self, len: u32) -> Result<(), EditError> {
        if self.descriptor.shared {
            return Err(EditError::Shared);
        }
        let block_bytes = self.view.inner.layout.config.block_bytes;
        if u64::from(len) > u64::from(self.descriptor.slots) * u64::from(block_bytes) {
            return Err(EditError::OutOfRange);
        }
        self.descriptor.record.len = len;
        self.view.slot(self.record().index).len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Re-ranks the record.
    pub fn set_layer(&mut self, layer: u8) {
        self.descriptor.record.layer = layer;
        self.view.slot(self.record().index).layer.store(layer, Ordering::Relaxed);
    }

    /// Changes when the record loses its value.
    pub fn set_deadline(&mut self, deadline: Timestamp) {
        self.descriptor.record.deadline = deadline;
        self.view.slot(self.record().index).deadline.store(deadline.as_nanos(), Ordering::Relaxed);
    }

    /// Gives the record back to the sender. Returns `true` if the sender sleeps and has to be notified by the caller.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party took this process for dead and dropped the record.
    pub fn release(mut self) -> Result<bool, TooLate> {
        self.finish(self.held.edited())?;
        Ok(self.view.changed())
    }

    /// Drops the record.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party took this process for dead and dropped the record.
    pub fn kill(mut self) -> Result<(), TooLate> {
        self.finish(self.held.dead(Reason::Application))
    }

    /// Applies `change`, then gives the record back. Returns `true` if the sender sleeps and has to be notified.
    pub(crate) fn apply(
        mut self,
        change: impl FnOnce(&mut Edit<'_>) -> Result<(), EditError>,
    ) -> Result<bool, ModifyError> {
        let changed = change(&mut self);
        let notify = self.release()?;
        changed?;
        Ok(notify)
    }

    /// Puts another record's description in place of this one's.
    pub(crate) fn set_meta(&mut self, meta: &Meta) {
        let slot = self.view.slot(self.record().index);
        write_meta(slot, meta);
        self.descriptor = self.view.describe(self.record().index);
    }

    fn finish(&mut self, to: Word) -> Result<(), TooLate> {
        self.released = true;
        self.view.swap(self.record().index, self.held, to).map_err(|_| TooLate)
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        if !self.released && self.finish(self.held.edited()).is_ok() {
            // A dropped edit has no way to return a wake-up: the count keeps an awake sender from going to
            // sleep over it.
            self.view.head.changes.0.fetch_add(1, Ordering::Release);
        }
    }
}

impl std::fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edit")
            .field("ring", &self.view.ring)
            .field("record", self.record())
            .finish_non_exhaustive()
    }
}

/// Stores everything of `meta` but the record's length and blocks. The caller owns the slot.
#[inline]
pub(crate) fn write_meta(slot: &crate::layout::Slot, meta: &Meta) {
    slot.user_seq.store(meta.seq, Ordering::Relaxed);
    slot.generated.store(meta.generated.as_nanos(), Ordering::Relaxed);
    slot.deadline.store(meta.deadline.as_nanos(), Ordering::Relaxed);
    slot.key.store(meta.key, Ordering::Relaxed);
    slot.group.store(meta.group, Ordering::Relaxed);
    slot.refs[0].store(meta.refs[0], Ordering::Relaxed);
    slot.refs[1].store(meta.refs[1], Ordering::Relaxed);
    slot.layer.store(meta.layer, Ordering::Relaxed);
}

/// The flags of a slot as a byte.
pub(crate) const fn flags(shared: bool) -> u8 {
    if shared { SLOT_SHARED } else { 0 }
}

/// Adds up to `max` payload bytes of a taken record to `out`; returns how many there were.
pub(crate) fn append_out(
    view: &View<'_>,
    extents: &Extents,
    len: u32,
    (offset, max): (u32, usize),
    out: &mut Vec<u8>,
) -> usize {
    each_part(view, extents, len, (offset, max), |block, within, part| {
        view.inner.append_out(block, within, part.len(), out)
    })
}

/// Calls `copy` for each part of a payload of `len` bytes that lies in one block, until it fails. The
/// arguments are the block, the part's place in the block, and its place in the wanted bytes. Returns the
/// number of copied bytes.
fn each_part(
    view: &View<'_>,
    extents: &Extents,
    len: u32,
    (offset, max): (u32, usize),
    mut copy: impl FnMut(u32, usize, Range<usize>) -> bool,
) -> usize {
    let block_bytes = view.inner.layout.config.block_bytes as usize;
    let wanted = max.min(len.saturating_sub(offset) as usize);
    let mut done = 0;
    while done < wanted {
        let at = offset as usize + done;
        let within = at % block_bytes;
        let part = (wanted - done).min(block_bytes - within);
        let Some(block) = extents.block(at / block_bytes) else { break };
        if !copy(block, within, done..done + part) {
            break;
        }
        done += part;
    }
    done
}

/// Holds the oldest ready record with this number.
pub(crate) fn edit_seq(view: View<'_>, seq: u64, pid: u32) -> Result<Edit<'_>, TooLate> {
    let (window, passed) = (view.window(), view.passed_i());
    for index in window.clone() {
        let index = view.holder(index, passed);
        if let SlotContent::Ready(descriptor, _) = view.see(index, window.end)
            && descriptor.record.seq == seq
            && let Ok(edit) = Edit::begin(view, index, pid, |record| record.seq == seq)
        {
            return Ok(edit);
        }
    }
    Err(TooLate)
}
