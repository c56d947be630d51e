//! Passing over slots that are still in use, so that a record that is in progress, held or waiting keeps no other
//! from a slot.
//!
//! ```text
//!  lap 3:   │ a │ b │ c │ d │ e │ f │ g │ h │     b is not finished, all others are
//!  lap 4:   │ i │ · │ j │ k │ ...                 index 33 is passed over: its slot is still that of index 25
//! ```

use crate::error::PushError;
use crate::finished::{Finished, finished};
use crate::own::{Own, Ring, Room, Straggler};
use crate::producer::Producer;
use crate::sync::Ordering;
use crate::view::View;
use crate::word::{State, Word};

impl Producer {
    /// Where a record of `span` slots finds room although the oldest record of the ring has not ended: the first stretch of slots whose
    /// records have. Looks only.
    //= spec/ring.md R-PASS-1
    #[cold]
    pub(crate) fn find_room(&self, ring: usize, span: u32) -> Result<Room, PushError> {
        let (Some(view), Some(own)) = (self.view(ring), self.rings.get(ring)) else {
            return Err(PushError::NoSuchRing);
        };
        if !self.region.inner().layout.passes_over {
            return Err(PushError::Full);
        }
        let slots = own.slots.len() as u64;
        let (mut at, mut run, mut index) = (own.user_i, 0, own.user_i);
        while at < own.user_i + slots {
            let (is_free, step) = self.is_free(&view, own, at);
            at += step;
            if is_free {
                run += step;
            } else {
                (run, index) = (0, at);
            }
            if run >= u64::from(span) {
                return Ok(Room { span, index });
            }
        }
        Err(PushError::Full)
    }

    /// Slots that are free in a row from the ring's end on.
    #[cold]
    pub(crate) fn free_run(&self, ring: usize) -> u32 {
        let (Some(view), Some(own)) = (self.view(ring), self.rings.get(ring)) else { return 0 };
        let end = own.user_i + own.slots.len() as u64;
        let mut at = own.user_i;
        while at < end {
            match self.is_free(&view, own, at) {
                (true, step) => at += step,
                (false, _) => break,
            }
        }
        (at - own.user_i) as u32
    }

    /// Whether the slots that index `at`, and those behind it that belong to the same record, would use are free.
    fn is_free(&self, view: &View<'_>, own: &Ring, at: u64) -> (bool, u64) {
        let has_ended = |index: u64| !matches!(finished(view, index), Finished::No { .. });
        if let Some(behind) = own.behind_at(own.at(at)) {
            return (has_ended(behind.index), 1);
        }
        match at.checked_sub(own.slots.len() as u64).filter(|&former| former >= own.tail) {
            None => (true, 1),
            Some(former) => match own.own(former).record_span() {
                0 => (true, 1),
                span => (has_ended(former), u64::from(span)),
            },
        }
    }

    /// Frees the slots for a record: what has ended is reclaimed, and what has not is passed over.
    #[inline]
    pub(crate) fn clear_slots(&mut self, ring: usize, room: Room) {
        let own = &self.rings[ring];
        let Room { span, index } = room;
        let tail = (index + u64::from(span)).saturating_sub(own.slots.len() as u64);
        while self.rings[ring].tail < tail {
            if !self.reclaim(ring) {
                self.pass_over_oldest(ring);
            }
        }
        if !self.rings[ring].behind.is_empty() || index > self.rings[ring].user_i {
            self.clear_passed(ring, room);
        }
    }

    #[cold]
    fn pass_over_oldest(&mut self, ring: usize) {
        let own = &mut self.rings[ring];
        let (index, span) = (own.tail, own.own(own.tail).record_span().max(1));
        own.leave_behind(index, span);
        own.tail += u64::from(span);
        if let Some(head) = self.region.inner().ring(ring) {
            head.user.tail_i.store(own.tail, Ordering::Relaxed);
        }
    }

    /// Makes the ring's end `room.index`: reclaims records that were passed over before and whose slots are used now.
    #[cold]
    fn clear_passed(&mut self, ring: usize, room: Room) {
        let own = &self.rings[ring];
        let (from, to) = (own.user_i, room.index + u64::from(room.span));
        for at in from..to {
            let own = &mut self.rings[ring];
            let place = own.at(at);
            match own.behind_at(place) {
                Some(behind) if at >= room.index => self.reclaim_behind(ring, behind),
                Some(_) => {}
                None => {
                    own.slots[place] = Own::EMPTY;
                    if at < room.index {
                        self.skip(ring, at);
                    }
                }
            }
        }
        let own = &mut self.rings[ring];
        if room.index > own.user_i {
            own.user_i = room.index;
            if let Some(head) = self.region.inner().ring(ring) {
                // Before `user_i` is released with the new record: who sees that one knows what was passed over.
                head.user.passed_i.store(room.index, Ordering::Relaxed);
            }
        }
    }

    /// Says of a free slot that its present index has no record.
    fn skip(&mut self, ring: usize, index: u64) {
        let inner = self.region.inner();
        let word = Word::new(inner.layout.lap(index), State::Cont, 0);
        // Release: whoever sees it sees the end of the slot's former use.
        inner.slot(ring, index).state.store(word.0, Ordering::Release);
    }

    fn reclaim_behind(&mut self, ring: usize, behind: Straggler) {
        let Some(view) = View::new(self.region.inner(), ring) else { return };
        let own = &mut self.rings[ring];
        own.fates.keep_of(&view, behind.index);
        own.forget_behind(behind, &mut self.blocks);
    }

    /// A record that was passed over, has ended, and has nothing more to wait for.
    pub(crate) fn ended_behind(&self, ring: usize) -> Option<Straggler> {
        let (view, own) = (self.view(ring)?, self.rings.get(ring)?);
        let is_final = view.is_final();
        let has_ended = |behind: &&Straggler| match finished(&view, behind.index) {
            Finished::No { .. } => false,
            Finished::Sent { last } => last || is_final,
            Finished::Acked | Finished::Dropped(_) | Finished::Bad => true,
        };
        own.behind.iter().filter(has_ended).min_by_key(|behind| behind.index).copied()
    }
}
