use crate::edit::{Edit, edit_seq};
use crate::error::TooLate;
use crate::process::own_pid;
use crate::reason;
use crate::record::Queued;
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
    pub fn queue(&self, ring: usize, limit: usize, out: &mut Vec<Queued>) {
        out.clear();
        if let Some(view) = self.view(ring) {
            view.list(limit, out);
        }
    }

    /// Drops the ready records with this number; returns their slots. Exact: a record that is counted is never sent,
    /// one that is not was taken, held or dropped before.
    pub fn drop_seq(&self, ring: usize, user_seq: u64) -> usize {
        self.drop_where(ring, reason::APPLICATION, |record| record.user_seq == user_seq)
    }

    /// Drops the ready records for which `pick` says so, for a [`reason`]; returns their slots.
    pub fn drop_where(&self, ring: usize, reason: u8, pick: impl FnMut(&Queued) -> bool) -> usize {
        self.view(ring).map_or(0, |view| view.drop_where(reason, pick))
    }

    /// Holds the oldest ready record with this number for editing.
    pub fn edit(&self, ring: usize, user_seq: u64) -> Result<Edit<'_>, TooLate> {
        edit_seq(self.view(ring).ok_or(TooLate)?, user_seq, self.pid)
    }

    /// Holds the record at `index` for editing.
    pub fn edit_at(&self, ring: usize, index: u64) -> Result<Edit<'_>, TooLate> {
        Edit::begin(self.view(ring).ok_or(TooLate)?, index, self.pid, |_| true)
    }

    /// Gives the oldest ready record with this number another layer. `true`: the sender sleeps and has to be
    /// notified by the caller.
    pub fn set_layer(&self, ring: usize, user_seq: u64, layer: u8) -> Result<bool, TooLate> {
        let mut edit = self.edit(ring, user_seq)?;
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
