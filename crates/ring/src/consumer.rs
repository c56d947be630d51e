use freshwire_record::Timestamp;
use freshwire_record::{Reason, Record};

use crate::edit::append_out;
use crate::error::{ClaimError, TooLate};
use crate::layout::{FLAG_CLOSED, FLAG_SLEEPS, FLAG_TELLS};
use crate::prefetch::prefetch;
use crate::process::Claim;
use crate::region::{Region, claim, release_claim};
use crate::sync::{Ordering, fence};
use crate::view::{Extents, SlotContent, View};
use crate::word::{SENT_LAST, State, Word};

/// The sender's role on one ring: lists ready records, takes or drops them, and reports their fates.
///
/// Look ([`queue`](Self::queue)), take or discard, hand over, and when nothing is to be done [`sleep`](Self::sleep).
/// Dropping it gives the role back; taken and unfinished records are dropped when the role is claimed next.
#[derive(Debug)]
pub struct Consumer {
    region: Region,
    ring: usize,
    claim: Claim,
    cursor: Cursor,
}

/// What the sender keeps to itself, apart from the region so that both can be used at once.
#[derive(Debug, Default)]
struct Cursor {
    /// Private copy of `kern_i`: below it nothing is left to take.
    next: u64,
    seen: Visible,
    /// Below it every record's end is known to the caller of [`Consumer::dropped_by_others`].
    reported_to: u64,
    /// By slot: one more than the lap, modulo 2^32, of the dead record whose end the caller knows.
    reported_laps: Box<[u32]>,
    /// The sender has closed the ring.
    closed: bool,
    counters: Counters,
}

/// Faults that a sender has found in shared memory. The counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Records taken.
    pub taken: u64,
    /// Records discarded.
    pub discarded: u64,
    /// Takes, discards and reports that came too late.
    pub too_late: u64,
    /// State words that no honest party writes; one that stays is counted each time it is met.
    pub bad_states: u64,
    /// Descriptors whose length, slots or blocks are out of bounds.
    pub bad_descriptors: u64,
    /// Values of `user_i` that cannot be; the ring was treated as empty.
    pub bad_indexes: u64,
}

impl Counters {
    /// All values that no honest party writes.
    pub fn bad_values(&self) -> u64 {
        self.bad_states + self.bad_descriptors + self.bad_indexes
    }
}

/// A record that the sender has in hand: its descriptor and blocks, privately copied and checked. Nobody can change
/// it until it is [finished](Consumer::finish) or [abandoned](Consumer::abandon), one of which has to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a taken record has to be finished or abandoned"]
pub struct Taken {
    /// Its description as it was taken: it may have been modified or replaced since it was listed.
    pub record: Record,
    extents: Extents,
}

impl Taken {
    /// Slots that the record takes in its ring, and blocks in the arena.
    pub fn slots(&self) -> usize {
        self.extents.len()
    }
}

/// Payload bytes in shared memory, for a system call such as `writev`.
///
/// The other side may change them at any time, so form no reference to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSlice {
    /// The first byte; valid while a handle to the region lives.
    pub ptr: *const u8,
    /// How many bytes.
    pub len: usize,
}

// SAFETY: the value is an address and a length; reading through it is unsafe and its reader's to justify.
unsafe impl Send for RawSlice {}

/// The parts of a ring by which something becomes visible to the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Visible {
    user_i: u64,
    changes: u64,
}

impl Consumer {
    //= spec/ring.md R-ROLE-1
    pub(crate) fn claim(region: &Region, ring: usize, force: bool) -> Result<Self, ClaimError> {
        let view = View::new(region.inner(), ring).ok_or(ClaimError::NoSuchRing(ring))?;
        let claim = claim(&view.head.consumer_claim.0, force)?;
        // Release: who finds the ring open finds the claim.
        view.head.kern_flag.0.store(0, Ordering::Release);
        let next = clear_left_overs(&view);
        let reported_laps = vec![0; view.slots() as usize].into_boxed_slice();
        let cursor = Cursor { next, reported_to: next, reported_laps, ..Cursor::default() };
        view.head.kern_i.0.store(cursor.next, Ordering::Release);
        Ok(Self { region: region.clone(), ring, claim, cursor })
    }

    /// The region that its ring is in.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The number of its ring.
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// Prefetches the memory of the next listing and the next take; see [`prefetch`].
    pub fn prefetch(&self) {
        let inner = self.region.inner();
        let Some(head) = inner.ring(self.ring) else { return };
        prefetch(head);
        prefetch(inner.slot(self.ring, self.cursor.next));
    }

    /// The same for what [`is_empty`](Self::is_empty) touches.
    pub fn prefetch_is_empty(&self) {
        let Some(head) = self.region.inner().ring(self.ring) else { return };
        prefetch(&head.user.user_i);
        prefetch(&head.umod_i.0);
    }

    /// Whether nothing waits in the ring, ready or held, and what is pushed next may be taken at once.
    pub fn is_empty(&self) -> bool {
        let Some(view) = View::new(self.region.inner(), self.ring) else { return false };
        let next = self.cursor.next;
        view.user_i() == Some(next) && next < view.head.umod_i.0.load(Ordering::Acquire)
    }

    /// Whether [`dropped_by_others`](Self::dropped_by_others) may have something to tell of what has left the ring.
    pub fn has_untold(&self) -> bool {
        self.cursor.reported_to < self.cursor.next
    }

    /// Fills `out` with the oldest ready records, at most `limit`. Held records, and those from `umod_i` on, are
    /// passed over. The cost is that of the records looked at.
    pub fn queue(&mut self, limit: usize, out: &mut Vec<Record>) {
        out.clear();
        let Some(view) = View::new(self.region.inner(), self.ring) else { return };
        self.cursor.look(&view, limit, out);
    }

    /// Adds to `out` the number and the reason of each record that another party dropped, once each: what depends on
    /// them is of no use either. A record whose slot was reused before this call is not reported. The cost is that of
    /// the ring's slots in use.
    pub fn dropped_by_others(&mut self, out: &mut Vec<(u64, Reason)>) {
        let Some(view) = View::new(self.region.inner(), self.ring) else { return };
        let Some(user_i) = view.user_i().filter(|&user_i| user_i >= self.cursor.reported_to) else { return };
        let mut leading = true;
        let passed = view.passed_i();
        for at in self.cursor.reported_to.max(user_i.saturating_sub(view.slots()))..user_i {
            let index = view.holder(at, passed);
            match view.word(index).map(|word| (word.state(), word.reason())) {
                Ok((Some(State::Dead), reason)) => {
                    if self.cursor.tell(index) {
                        out.push((view.slot(index).user_seq.load(Ordering::Relaxed), reason));
                    }
                }
                Ok((Some(State::Taken | State::Sent | State::Acked | State::Cont), _))
                | Err(SlotContent::Gone) => {}
                // Ready and held ones may still be dropped.
                _ => leading = false,
            }
            if leading {
                self.cursor.reported_to = at + 1;
            }
        }
    }

    /// Takes the record at `index`: from now on nobody can change it. Too late if it has been dropped, is held, or
    /// the sender is held back from it.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if the record has been taken, held or dropped, or the producer holds the sender back from it.
    pub fn take(&mut self, index: u64) -> Result<Taken, TooLate> {
        self.take_up_to(index, u32::MAX)
    }

    /// Takes the record at `index` if it has at most `most` bytes, which is also too late if it was changed to more since it was
    /// looked at. It stays ready then.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if the record has been taken, held or dropped, is longer than `most`, or the producer holds the
    /// sender back from it.
    pub fn take_up_to(&mut self, index: u64, most: u32) -> Result<Taken, TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        let taken = self.cursor.try_take(&view, index, most);
        match taken {
            Ok(_) => self.cursor.counters.taken += 1,
            Err(TooLate) => self.cursor.counters.too_late += 1,
        }
        self.cursor.advance(&view);
        taken
    }

    /// Payload bytes of a taken record from `offset` on, at most `max`, as pieces of shared memory.
    pub fn slices(&self, taken: &Taken, offset: u32, max: usize, out: &mut Vec<RawSlice>) {
        out.clear();
        let inner = self.region.inner();
        let block_bytes = inner.layout.config.block_bytes as usize;
        let mut at = offset as usize;
        let end = (taken.record.len as usize).min(at.saturating_add(max));
        while at < end {
            let within = at % block_bytes;
            let len = (end - at).min(block_bytes - within);
            let Some(block) = taken.extents.block(at / block_bytes) else { return };
            let Some(ptr) = inner.address(block, within, len) else { return };
            out.push(RawSlice { ptr, len });
            at += len;
        }
    }

    /// Adds payload bytes of a taken record from `offset` on, at most `max`, to `out`; returns how many there were.
    //= spec/ring.md R-TRUST-2
    pub fn copy(&self, taken: &Taken, offset: u32, max: usize, out: &mut Vec<u8>) -> usize {
        match View::new(self.region.inner(), self.ring) {
            Some(view) => append_out(&view, &taken.extents, taken.record.len, (offset, max), out),
            None => 0,
        }
    }

    /// Drops a ready record.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if the record has been taken, held or dropped.
    pub fn discard(&mut self, index: u64, reason: Reason, now: Timestamp) -> Result<(), TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        let discarded = self.cursor.try_discard(&view, index, reason, now);
        match discarded {
            Ok(()) => {
                self.cursor.tell(index);
                self.cursor.counters.discarded += 1;
            }
            Err(TooLate) => self.cursor.counters.too_late += 1,
        }
        self.cursor.advance(&view);
        discarded
    }

    /// Says that the record's first byte is being handed over, with `horizon` bytes committed before it and not yet
    /// on the wire.
    pub fn commit(&mut self, taken: &Taken, now: Timestamp, horizon: u32) {
        let slot = self.region.inner().slot(self.ring, taken.record.index);
        slot.committed_at.store(stamp(now), Ordering::Relaxed);
        slot.horizon.store(horizon, Ordering::Relaxed);
    }

    /// Notes how many bytes the receiving program had not read at the record's commit point, as far as that is known. After
    /// [`commit`](Self::commit).
    pub fn note_unread(&mut self, taken: &Taken, bytes: u64) {
        let slot = self.region.inner().slot(self.ring, taken.record.index);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        slot.unread.store(bytes + 1, Ordering::Relaxed);
    }

    /// Says that the record's last byte was handed over and its memory is no longer needed.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party overwrote the state of the slot.
    pub fn finish(&mut self, taken: &Taken, now: Timestamp) -> Result<(), TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        self.cursor.end(&view, taken.record.index, Ending { state: State::Sent, arg: 0, now })
    }

    /// As above, without a later acknowledgement: the fate is complete.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party overwrote the state of the slot.
    pub fn finish_for_good(&mut self, taken: &Taken, now: Timestamp) -> Result<(), TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        self.cursor.end(&view, taken.record.index, Ending { state: State::Sent, arg: 1, now })
    }

    /// Reports the end of a record whose acknowledgement is known already, in one step. After [`finish`](Self::finish) the
    /// producer may reuse the slots before [`acked`](Self::acked), which is too late then.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party overwrote the state of the slot.
    pub fn finish_acked(&mut self, taken: &Taken, now: Timestamp) -> Result<(), TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        view.slot(taken.record.index).acked_at.store(stamp(now), Ordering::Relaxed);
        self.cursor.end(&view, taken.record.index, Ending { state: State::Acked, arg: 0, now })
    }

    /// Reports that the record was taken or in progress, and abandoned.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party overwrote the state of the slot.
    pub fn abandon(&mut self, taken: &Taken, reason: Reason, now: Timestamp) -> Result<(), TooLate> {
        self.cursor.tell(taken.record.index);
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        self.cursor.end(
            &view,
            taken.record.index,
            Ending { state: State::Dead, arg: u32::from(reason.code()), now },
        )
    }

    /// Makes a taken record ready again, unchanged, as long as none of its bytes was handed over. "Too late" answers given
    /// meanwhile remain correct.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if another party overwrote the state of the slot.
    pub fn put_back(&mut self, taken: &Taken) -> Result<(), TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        let in_hand = |word: &Word| word.state() == Some(State::Taken);
        let word = view.word(taken.record.index).ok().filter(in_hand).ok_or(TooLate)?;
        view.swap(taken.record.index, word, word.to(State::Ready, 0)).map_err(|_| TooLate)?;
        self.cursor.next = self.cursor.next.min(taken.record.index);
        view.head.kern_i.0.store(self.cursor.next, Ordering::Release);
        Ok(())
    }

    /// Says that the receiver's host has all of a sent record. Too late if its slot has been reused, or if it
    /// was sent by a former sender.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if the slots of the record are in use again, or it was not sent.
    pub fn acked(&mut self, index: u64, now: Timestamp) -> Result<(), TooLate> {
        self.acked_at(index, Some(now))
    }

    /// The same where it is not known when: `None`.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if the slots of the record are in use again, or it was not sent.
    pub fn acked_at(&mut self, index: u64, at: Option<Timestamp>) -> Result<(), TooLate> {
        let view = View::new(self.region.inner(), self.ring).ok_or(TooLate)?;
        // A record that was sent for good may already have a reported fate.
        let awaits = |word: &Word| word.state() == Some(State::Sent) && word.arg() != SENT_LAST;
        let Some(word) = view.word(index).ok().filter(awaits) else {
            self.cursor.counters.too_late += 1;
            return Err(TooLate);
        };
        view.slot(index).acked_at.store(at.map_or(0, stamp), Ordering::Relaxed);
        view.swap(index, word, word.to(State::Acked, 0)).map_err(|_| TooLate)
    }

    /// Ends the ring: every ready record is dropped for `reason`, pushes are refused, sent records count as finished.
    /// Taken records are still to be finished or abandoned. Claiming the role anew opens the ring again. Returns the
    /// records dropped.
    pub fn close(&mut self, reason: Reason, now: Timestamp) -> usize {
        let dropped = self.refuse(reason, now);
        self.tell_no_more();
        dropped
    }

    /// Like [`close`](Self::close), for a sender that still tells of acknowledgements: fates of sent records are final when it
    /// [closes](Self::close) the ring or is dropped.
    pub fn refuse(&mut self, reason: Reason, now: Timestamp) -> usize {
        let Some(view) = View::new(self.region.inner(), self.ring) else { return 0 };
        self.cursor.closed = true;
        if !view.is_closed() {
            view.head.kern_flag.0.fetch_or(FLAG_CLOSED | FLAG_TELLS, Ordering::AcqRel);
        }
        // Pairs with the fence in `View::wake`: a record that is not seen here is dropped by its producer there.
        fence(Ordering::SeqCst);
        let Some(range) = self.cursor.range(&view) else { return 0 };
        let mut dropped = 0;
        let passed = view.passed_i();
        for index in range {
            let index = view.holder(index, passed);
            dropped += usize::from(self.cursor.try_discard(&view, index, reason, now).is_ok());
        }
        self.cursor.counters.discarded += dropped as u64;
        self.cursor.advance(&view);
        dropped
    }

    fn tell_no_more(&self) {
        if let Some(view) = View::new(self.region.inner(), self.ring) {
            // Release: whoever finds the ring final finds the acknowledgements.
            view.head.kern_flag.0.fetch_and(!FLAG_TELLS, Ordering::AcqRel);
        }
    }

    /// Announces that the sender goes to sleep. `false`: something became visible since the last
    /// [`queue`](Self::queue), look again. `true`: sleep; the next party that makes something visible will find that
    /// it has to notify. Bound the sleep or watch for the end of the producer's process: it may die between the two.
    #[must_use = "when something became visible the sender must not sleep"]
    pub fn sleep(&mut self) -> bool {
        let Some(view) = View::new(self.region.inner(), self.ring) else { return true };
        let flag = view.head.kern_flag.0.fetch_or(FLAG_SLEEPS, Ordering::Relaxed);
        if flag & FLAG_CLOSED != 0 && !self.cursor.closed {
            // Nobody else may close the ring: those who push would wait for its end for ever.
            view.head.kern_flag.0.fetch_and(!FLAG_CLOSED, Ordering::AcqRel);
            self.cursor.counters.bad_states += 1;
        }
        // Pairs with the fence in `View::wake`: either the other side sees the flag, or we see its change here.
        fence(Ordering::SeqCst);
        if visible(&view) == self.cursor.seen {
            return true;
        }
        self.awake();
        false
    }

    /// Takes the announcement back: the sender is awake, pushes need not notify.
    pub fn awake(&mut self) {
        if let Some(view) = View::new(self.region.inner(), self.ring) {
            view.head.kern_flag.0.fetch_and(!FLAG_SLEEPS, Ordering::AcqRel);
        }
    }

    /// Whether somebody has called for the sender since it announced that it sleeps; true as well if it never did.
    pub fn notified(&self) -> bool {
        let view = View::new(self.region.inner(), self.ring);
        // Acquire: what was made visible before the call is seen by the look that follows.
        view.is_none_or(|view| view.head.kern_flag.0.load(Ordering::Acquire) & FLAG_SLEEPS == 0)
    }

    /// Drops the records that are held by a process that no longer lives; returns how many.
    pub fn recover(&mut self) -> usize {
        View::new(self.region.inner(), self.ring).map_or(0, |view| view.recover())
    }

    /// Faults found so far.
    pub fn counters(&self) -> Counters {
        self.cursor.counters
    }
}

impl Cursor {
    /// Notes that the caller knows the end of the record at `index`; false if that was noted before.
    fn tell(&mut self, index: u64) -> bool {
        let slots = self.reported_laps.len() as u64;
        let place = &mut self.reported_laps[(index % slots) as usize];
        let lap = (index / slots) as u32;
        std::mem::replace(place, lap.wrapping_add(1)) != lap.wrapping_add(1)
    }

    //= spec/ring.md R-ROLE-2
    fn look(&mut self, view: &View<'_>, limit: usize, out: &mut Vec<Record>) {
        self.seen = visible(view);
        let Some(range) = self.range(view) else { return };
        let end = range.end.min(view.head.umod_i.0.load(Ordering::Acquire));
        let passed = view.passed_i();
        if range.start < passed {
            return self.look_everywhere(view, (range.end, end, passed), limit, out);
        }
        let mut leading = true;
        for index in range.clone() {
            if out.len() >= limit || index >= end {
                break;
            }
            match view.see(index, range.end) {
                SlotContent::Ready(descriptor, _) => {
                    leading = false;
                    out.push(descriptor.record);
                }
                SlotContent::Held => leading = false,
                SlotContent::Gone if leading => self.next = index + 1,
                SlotContent::Gone => {}
                SlotContent::Bad => {
                    leading = false;
                    self.count_bad(view, index);
                }
            }
        }
        view.head.kern_i.0.store(self.next, Ordering::Release);
    }

    /// The look where records have kept their slots while the ring went on. //= spec/ring.md R-PASS-3
    #[cold]
    fn look_everywhere(
        &mut self,
        view: &View<'_>,
        (user_i, end, passed): (u64, u64, u64),
        limit: usize,
        out: &mut Vec<Record>,
    ) {
        let mut next = user_i;
        for at in user_i.saturating_sub(view.slots())..user_i {
            let index = view.holder(at, passed);
            if index >= end {
                next = next.min(index);
                continue;
            }
            match view.see(index, user_i) {
                SlotContent::Ready(descriptor, _) => {
                    next = next.min(index);
                    out.push(descriptor.record);
                }
                SlotContent::Held => next = next.min(index),
                SlotContent::Gone => {}
                SlotContent::Bad => {
                    next = next.min(index);
                    self.count_bad(view, index);
                }
            }
        }
        out.sort_unstable_by_key(|record| record.index);
        out.truncate(limit);
        self.next = next;
        view.head.kern_i.0.store(next, Ordering::Release);
    }

    /// The indexes that may hold something to take. //= spec/ring.md R-TRUST-3
    fn range(&mut self, view: &View<'_>) -> Option<std::ops::Range<u64>> {
        match view.user_i() {
            Some(user_i) if user_i >= self.next => {
                // A producer may have dropped and reused more than a ring's slots since the last look.
                Some(self.next.max(user_i.saturating_sub(view.slots()))..user_i)
            }
            _ => {
                self.counters.bad_indexes += 1;
                None
            }
        }
    }

    /// Moves `kern_i` over what is neither ready nor held.
    fn advance(&mut self, view: &View<'_>) {
        let Some(user_i) = view.user_i() else { return };
        let oldest = user_i.saturating_sub(view.slots());
        let mut next = self.next.max(oldest);
        if next < view.passed_i() {
            // The next look finds out what is left.
            return;
        }
        while next < user_i {
            match view.word(next).map(Word::state) {
                Ok(Some(State::Ready | State::Held | State::Free) | None) | Err(SlotContent::Bad) => break,
                _ => next += 1,
            }
        }
        // A `user_i` that is a lie moves nothing: every slot below it is found bad.
        if next > self.next && next > oldest {
            self.next = next;
            view.head.kern_i.0.store(next, Ordering::Release);
        }
    }

    //= spec/ring.md R-STATE-3
    fn try_take(&mut self, view: &View<'_>, index: u64, most: u32) -> Result<Taken, TooLate> {
        let user_i = self.check_index(view, index)?;
        if index >= view.head.umod_i.0.load(Ordering::Acquire) {
            return Err(TooLate);
        }
        let was = view.move_ready(index, State::Taken, 0).map_err(|()| TooLate)?;
        // Pairs with the fence in `Producer::hold_from`: either it sees `taken` there, or we see its `umod_i` here.
        fence(Ordering::SeqCst);
        let taken = was.to(State::Taken, 0);
        let descriptor = view.describe(index);
        if index >= view.head.umod_i.0.load(Ordering::Relaxed) || descriptor.record.len > most {
            // Nobody else moves a taken record on, so a failure is a lie and the record is lost to us.
            let _put_back = view.swap(index, taken, was);
            return Err(TooLate);
        }
        let extents = view.is_sound(&descriptor, user_i).then(|| view.extents(&descriptor)).flatten();
        let Some(extents) = extents else {
            self.counters.bad_descriptors += 1;
            let _dropped = view.swap(index, taken, taken.dead(Reason::Invalid));
            return Err(TooLate);
        };
        start_fate(view, index, Timestamp::ZERO);
        Ok(Taken { record: descriptor.record, extents })
    }

    fn try_discard(
        &mut self,
        view: &View<'_>,
        index: u64,
        reason: Reason,
        now: Timestamp,
    ) -> Result<(), TooLate> {
        self.check_index(view, index)?;
        let ready = view.word(index).is_ok_and(|word| word.state() == Some(State::Ready));
        if !ready {
            return Err(TooLate);
        }
        // Written before the state, so that it is there for whoever sees the state.
        start_fate(view, index, now);
        view.move_ready(index, State::Dead, u32::from(reason.code())).map(|_| ()).map_err(|()| TooLate)
    }

    fn end(&mut self, view: &View<'_>, index: u64, to: Ending) -> Result<(), TooLate> {
        let ended =
            view.word(index).ok().filter(|word| word.state() == Some(State::Taken)).and_then(|word| {
                // Written before the state, so that it is there for whoever sees the state.
                view.slot(index).finished_at.store(stamp(to.now), Ordering::Relaxed);
                view.swap(index, word, word.to(to.state, to.arg)).ok()
            });
        self.counters.too_late += u64::from(ended.is_none());
        ended.ok_or(TooLate)
    }

    /// `user_i`, if `index` can be in the ring.
    fn check_index(&mut self, view: &View<'_>, index: u64) -> Result<u64, TooLate> {
        let Some(user_i) = view.user_i() else {
            self.counters.bad_indexes += 1;
            return Err(TooLate);
        };
        // An older record may have kept its slot; whether it has, its lap says.
        let oldest = user_i.saturating_sub(view.slots());
        let may_be = index < user_i && (index >= oldest || view.passed_i() > oldest);
        if may_be { Ok(user_i) } else { Err(TooLate) }
    }

    fn count_bad(&mut self, view: &View<'_>, index: u64) {
        let ready = view.word(index).is_ok_and(|word| word.state() == Some(State::Ready));
        if ready {
            self.counters.bad_descriptors += 1;
        } else {
            self.counters.bad_states += 1;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.tell_no_more();
        if let Some(view) = View::new(self.region.inner(), self.ring) {
            release_claim(&view.head.consumer_claim.0, self.claim);
        }
    }
}

/// Begins the sender's line of a slot for the record at `index`. //= spec/ring.md R-ROLE-6
fn start_fate(view: &View<'_>, index: u64, finished_at: Timestamp) {
    let slot = view.slot(index);
    slot.committed_at.store(0, Ordering::Relaxed);
    slot.finished_at.store(finished_at.as_nanos(), Ordering::Relaxed);
    slot.acked_at.store(0, Ordering::Relaxed);
    slot.horizon.store(0, Ordering::Relaxed);
    slot.unread.store(0, Ordering::Relaxed);
    slot.fate_of.store(index + 1, Ordering::Relaxed);
}

/// How a taken record ends.
struct Ending {
    state: State,
    arg: u32,
    now: Timestamp,
}

fn visible(view: &View<'_>) -> Visible {
    // Acquire: pairs with the Release of publishing and of `View::changed`.
    Visible {
        user_i: view.head.user.user_i.load(Ordering::Acquire),
        changes: view.head.changes.0.load(Ordering::Acquire),
    }
}

/// A time as the ABI has it: 0 means "never", so the origin itself is one nanosecond later.
fn stamp(now: Timestamp) -> u64 {
    now.as_nanos().max(1)
}

/// Ends what a former sender had in hand; returns the oldest index that may be ready. //= spec/ring.md R-CLAIM-4
fn clear_left_overs(view: &View<'_>) -> u64 {
    let Some(user_i) = view.user_i() else { return 0 };
    let oldest = user_i.saturating_sub(view.slots());
    let (mut next, passed) = (oldest, view.passed_i());
    for index in oldest..user_i {
        let index = view.holder(index, passed);
        next = next.min(index);
        let Ok(word) = view.word(index) else { continue };
        let ended = match word.state() {
            Some(State::Taken) => word.dead(Reason::SenderLost),
            Some(State::Sent) => word.to(State::Sent, SENT_LAST),
            _ => continue,
        };
        // Nobody but the sender, which we are, moves these on.
        let _ended = view.swap(index, word, ended);
    }
    next
}
