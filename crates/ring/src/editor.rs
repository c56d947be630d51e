use freshwire_record::{Reason, Record};

use crate::edit::{Edit, edit_seq};
use crate::error::{EditError, ModifyError, TooLate};
use crate::process::own_pid;
use crate::region::Region;
use crate::view::View;

/// A second party: lists, drops, edits and re-ranks what others have pushed, without touching the sender. Any number
/// may work at once, in any process that has the region mapped.
#[derive(Clone, Debug)]
pub struct Editor {
    region: Region,
    pid: u32,
}

impl Editor {
    pub(crate) fn new(region: &Region) -> Self {
        Self { region: region.clone(), pid: own_pid() }
    }

    /// Lists up to `limit` ready records of a ring into `out`, oldest first.
    pub fn queue(&self, ring: usize, limit: usize, out: &mut Vec<Record>) {
        out.clear();
        if let Some(view) = self.view(ring) {
            view.list(limit, out);
        }
    }

    /// Drops the queued records with this number. Returns `true` if there was one: it is never sent. Returns `false` if
    /// it is too late: the record was taken, held or dropped before, or was never in the ring.
    pub fn drop_seq(&self, ring: usize, seq: u64) -> bool {
        self.drop_where(ring, Reason::Application, |record| record.seq == seq) > 0
    }

    /// Drops the queued records that `pick` selects. Returns how many.
    pub fn drop_where(&self, ring: usize, reason: Reason, pick: impl FnMut(&Record) -> bool) -> usize {
        self.view(ring).map_or(0, |view| view.drop_where(reason, pick))
    }

    /// Modifies the oldest queued record with this number in place. `change` has exclusive access to it; the sender
    /// skips it meanwhile. Returns `true` if the sender sleeps and has to be notified by the caller.
    ///
    /// # Errors
    ///
    /// [`ModifyError::TooLate`] if there is no such record in the queue, or it is held by another party.
    /// [`ModifyError::Invalid`] with the error of `change`; the record then stays queued.
    pub fn modify(
        &self,
        ring: usize,
        seq: u64,
        change: impl FnOnce(&mut Edit<'_>) -> Result<(), EditError>,
    ) -> Result<bool, ModifyError> {
        self.edit(ring, seq)?.apply(change)
    }

    /// Holds the oldest queued record with this number for editing.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if there is none.
    pub fn edit(&self, ring: usize, seq: u64) -> Result<Edit<'_>, TooLate> {
        edit_seq(self.view(ring).ok_or(TooLate)?, seq, self.pid)
    }

    /// Holds the record at `index` for editing.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if it has been taken, held or dropped.
    pub fn edit_at(&self, ring: usize, index: u64) -> Result<Edit<'_>, TooLate> {
        Edit::begin(self.view(ring).ok_or(TooLate)?, index, self.pid, |_| true)
    }

    /// Gives the oldest queued record with this number another layer. Returns `true` if the sender sleeps and has to be
    /// notified by the caller.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if there is no such record.
    pub fn set_layer(&self, ring: usize, seq: u64, layer: u8) -> Result<bool, TooLate> {
        let mut edit = self.edit(ring, seq)?;
        edit.set_layer(layer);
        edit.release()
    }

    /// Records that are not at their end: ready, held or taken.
    pub fn unfinished(&self, ring: usize) -> usize {
        self.view(ring).map_or(0, |view| view.unfinished())
    }

    /// Drops the records that are held by a process that no longer lives; returns how many.
    pub fn recover(&self, ring: usize) -> usize {
        self.view(ring).map_or(0, |view| view.recover())
    }

    fn view(&self, ring: usize) -> Option<View<'_>> {
        View::new(self.region.inner(), ring)
    }
}
