//! The producer's account of what became of its records.

use freshwire_record::Timestamp;
use freshwire_record::{Fate, Reason};

use crate::fates::fate_of;
use crate::finished::{Finished, finished};
use crate::producer::Producer;

impl Producer {
    /// Keeps the fates of a ring's records when their slots are used again, as it does from the first [`poll_fate`](Self::poll_fate) on:
    /// reserves memory for [`MAX_KEPT_FATES`](crate::MAX_KEPT_FATES).
    pub fn keep_fates(&mut self, ring: usize) {
        if let Some(own) = self.rings.get_mut(ring) {
            own.fates.want();
        }
    }

    /// The next fate that is known, once each, and reclaims the record's slots: first those of records whose slots were used again, then
    /// in slot order. `None` if the oldest record is not finished; a sent one is finished when it is acknowledged, or the ring is closed
    /// and its sender tells no more.
    //= spec/ring.md R-ROLE-8
    pub fn poll_fate(&mut self, ring: usize) -> Option<Fate> {
        self.poll_fate_with(ring, || [])
    }

    /// As [`poll_fate`](Self::poll_fate), with what `late` returns noted before, as by [`note_acked`](Self::note_acked): the records'
    /// indexes and times. `late` is called after the look whether the sender tells no more, so an acknowledgement reported before that
    /// end is never missed.
    //= spec/ring.md R-ROLE-8
    pub fn poll_fate_with<I>(&mut self, ring: usize, late: impl FnOnce() -> I) -> Option<Fate>
    where
        I: IntoIterator<Item = (u64, Option<Timestamp>)>,
    {
        let closed = self.drop_if_closed(ring)?;
        let fates = &mut self.rings[ring].fates;
        for (index, at) in late() {
            fates.acked(index, at);
        }
        if closed {
            fates.end();
        }
        if let Some(fate) = fates.poll() {
            return Some(fate);
        }
        if !self.rings[ring].behind.is_empty()
            && let Some(behind) = self.ended_behind(ring)
        {
            let fate = self.view(ring).and_then(|view| fate_of(&view, behind.index));
            self.rings[ring].forget_behind(behind, &mut self.blocks);
            return fate;
        }
        if !self.oldest_has_ended(ring, closed) {
            return None;
        }
        let fate = self.view(ring).and_then(|view| fate_of(&view, self.rings[ring].tail));
        self.reclaim_oldest(ring, false);
        fate
    }

    /// Reclaims the slots and payload of the records that [`poll_fate`](Self::poll_fate) would report, and keeps no fates: for a program
    /// that asks for none. Their memory, 3.7 MB of address space for a ring, is not reserved.
    pub fn reclaim_ended(&mut self, ring: usize) {
        let Some(closed) = self.drop_if_closed(ring) else { return };
        while let Some(behind) = self.ended_behind(ring) {
            self.rings[ring].forget_behind(behind, &mut self.blocks);
        }
        while self.oldest_has_ended(ring, closed) {
            self.reclaim_oldest(ring, false);
        }
    }

    /// Drops what is left on a closed ring. Returns `true` if its sender tells no more.
    fn drop_if_closed(&self, ring: usize) -> Option<bool> {
        let view = self.view(ring)?;
        if view.is_closed() {
            view.drop_where(Reason::Closed, |_| true);
        }
        Some(view.is_final())
    }

    /// Whether the oldest record has nothing more to wait for.
    fn oldest_has_ended(&mut self, ring: usize, closed: bool) -> bool {
        self.skip_orphans(ring);
        let own = &self.rings[ring];
        let Some(view) = self.view(ring).filter(|_| own.tail < own.user_i) else { return false };
        match finished(&view, own.tail) {
            Finished::No { .. } => false,
            Finished::Sent { last } => closed || last,
            Finished::Acked | Finished::Dropped(_) | Finished::Bad => true,
        }
    }

    /// Says that the receiver's host has all of a record that was sent and whose slots have been used again since: what its sender was
    /// [too late](crate::Consumer::acked) to write there. `at` is `None` where the time is not known.
    pub fn note_acked(&mut self, ring: usize, index: u64, at: Option<Timestamp>) {
        if let Some(own) = self.rings.get_mut(ring) {
            own.fates.acked(index, at);
        }
    }

    /// Returns `true` if [`note_acked`](Self::note_acked) may have something to say: fates of records whose slots were used again wait
    /// for their acknowledgement, or some of them were not kept.
    pub fn awaits_acks(&self, ring: usize) -> bool {
        self.rings.get(ring).is_some_and(|own| own.fates.awaits_acks())
    }

    /// Adds the fate of a record that did not get on the ring to those that are polled.
    pub fn note_refused(&mut self, ring: usize, seq: u64) {
        if let Some(own) = self.rings.get_mut(ring) {
            own.fates.keep(Fate::refused(seq));
        }
    }

    /// Forgets the fates of all records that are at their end, for a ring that gets another sender: those that were not polled count as
    /// [lost](Self::fates_lost).
    pub fn forget_fates(&mut self, ring: usize) {
        let Some(own) = self.rings.get_mut(ring) else { return };
        own.fates.forget();
        while let Some(behind) = self.ended_behind(ring) {
            self.rings[ring].fates.lose();
            self.rings[ring].forget_behind(behind, &mut self.blocks);
        }
        loop {
            self.skip_orphans(ring);
            if !self.reclaim_oldest(ring, false) {
                return;
            }
            self.rings[ring].fates.lose();
        }
    }

    /// Fates that were never polled and are not kept any more.
    pub fn fates_lost(&self, ring: usize) -> u64 {
        self.rings.get(ring).map_or(0, |ring| ring.fates.lost())
    }
}
