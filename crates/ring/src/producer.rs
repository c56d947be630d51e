use std::io::Write as _;
use std::sync::Arc;

use freshwire_record::{Fate, Meta, Outcome, Reason, Record};

use crate::blocks::{Blocks, Stored};
use crate::edit::{Edit, edit_seq, flags, write_meta};
use crate::error::{ClaimError, EditError, ModifyError, PushError, TooLate};
use crate::fates::read_fate;
use crate::finished::{Finished, finished};
use crate::layout::{MAX_INDEX, NO_HOLD};
use crate::own::{Own, Ring, Room};
use crate::process::own_pid;
use crate::pushed::{Pushed, Replaced};
use crate::record::{Descriptor, RecordStatus, Stage};
use crate::region::{ProducerRole, Region};
use crate::sync::{Ordering, fence};
use crate::view::{SlotContent, View};
use crate::word::{State, Word};

/// The only one that pushes records into a region's rings. Dropping it, and its [reservations](Self::reserve), gives the role
/// back; the rings stay as they are.
///
/// A push reuses the slots of finished records when it needs them, oldest first, and skips those of unfinished
/// records: a slow record keeps no other from a slot. Fates that have not been polled until then are kept, up to
/// [`MAX_KEPT_FATES`](crate::MAX_KEPT_FATES); the others are counted as [lost](Self::fates_lost). The blocks of the
/// arena are given back as soon as a push needs them.
#[derive(Debug)]
pub struct Producer {
    pub(crate) region: Region,
    pub(crate) role: Arc<ProducerRole>,
    pid: u32,
    pub(crate) rings: Vec<Ring>,
    pub(crate) blocks: Blocks,
    /// Number of the next record that does not bring its own.
    next_seq: u64,
    bad_values: u64,
}

impl Producer {
    //= spec/ring.md R-ROLE-1
    pub(crate) fn claim(region: &Region, force: bool) -> Result<Self, ClaimError> {
        let mut producer = Self {
            region: region.clone(),
            role: Arc::new(ProducerRole::claim(region, force)?),
            pid: own_pid(),
            rings: Vec::new(),
            blocks: Blocks::new(Vec::new()),
            next_seq: 0,
            bad_values: 0,
        };
        // From here on dropping `producer` gives the claim back.
        let (rings, blocks) = crate::takeover::rebuild(region)?;
        producer.rings = rings;
        producer.blocks = blocks;
        let newest = (0..producer.rings.len()).filter_map(|ring| producer.last_seq(ring)).max();
        producer.next_seq = newest.map_or(0, following);
        Ok(producer)
    }

    /// The region that it feeds.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Gives a record its number: `meta`, with the next number in place of [`Meta::NEXT_SEQ`]. The number is one more
    /// than that of the record numbered before, in whichever ring, and is used up even if a push is then refused.
    /// Pushes do this themselves; call it to give one record the same number in several rings.
    pub fn number(&mut self, meta: &Meta) -> Meta {
        let seq = if meta.seq == Meta::NEXT_SEQ { self.next_seq } else { meta.seq };
        self.next_seq = following(seq);
        Meta { seq, ..*meta }
    }

    /// Puts a record on a ring: copies `payload` into the arena, fills the slots, makes them visible. No system call,
    /// no allocation.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] or [`PushError::OutOfBlocks`] without space, [`PushError::TooLarge`] for a record that never
    /// fits, [`PushError::Closed`] after the sender's end, [`PushError::NoSuchRing`].
    pub fn push(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<Pushed, PushError> {
        let meta = self.number(meta);
        let index = self.push_quiet(ring, payload, &meta)?;
        Ok(Pushed { index, seq: meta.seq, notify: self.wake_for_push(ring) })
    }

    /// Like [`push`](Self::push), without looking whether the sender sleeps: to fill first and notify once, call
    /// [`wake_needed`](Self::wake_needed) after the last. Returns the record's index.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_quiet(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        let meta = &self.number(meta);
        let room = self.make_room(ring, payload.len())?;
        let Room { span, index } = room;
        self.make_blocks(span)?;
        self.clear_slots(ring, room);
        let block_bytes = self.region.config().block_bytes as usize;
        let mut rest = payload;
        for part in 0..span {
            let block = self.blocks.alloc().ok_or(PushError::OutOfBlocks)?;
            let (now, later) = rest.split_at(rest.len().min(block_bytes));
            let copied = self.region.inner().copy_in(block, 0, now);
            debug_assert!(copied, "a block of the free list holds block_bytes");
            self.fill(ring, index, part, span, block, payload.len() as u32, meta, false);
            rest = later;
        }
        self.publish(ring, span);
        Ok(index)
    }

    /// Copies a payload into the arena, to be pushed to several rings.
    ///
    /// # Errors
    ///
    /// [`PushError::OutOfBlocks`] without space, [`PushError::TooLarge`] for a payload that never fits.
    pub fn store(&mut self, payload: &[u8]) -> Result<Stored, PushError> {
        let mut reservation = self.reserve(payload.len())?;
        let copied = reservation.write(payload);
        debug_assert!(copied.is_ok_and(|copied| copied == payload.len()), "there is space for all of it");
        self.store_reserved(reservation)
    }

    /// Adds the bytes of a stored payload to `out`.
    ///
    /// # Errors
    ///
    /// [`PushError::ForeignPayload`] if another producer stored it.
    pub fn read_stored(&self, payload: &Stored, out: &mut Vec<u8>) -> Result<(), PushError> {
        if !self.blocks.owns(payload) {
            return Err(PushError::ForeignPayload);
        }
        let begin = out.len();
        out.resize(begin + payload.len() as usize, 0);
        let mut block = Some(payload.first());
        for part in out[begin..].chunks_mut(self.region.config().block_bytes as usize) {
            let Some(this) = block else { break };
            let copied = self.region.inner().copy_out(this, 0, part);
            debug_assert!(copied, "a block of a stored payload lies in the arena");
            block = self.blocks.after(this);
        }
        Ok(())
    }

    /// Puts a stored payload on a ring. Its record can be dropped and re-ranked there, but not modified in place.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), and [`PushError::ForeignPayload`] if another producer stored it.
    pub fn push_stored(&mut self, ring: usize, payload: &Stored, meta: &Meta) -> Result<Pushed, PushError> {
        let meta = self.number(meta);
        let index = self.push_stored_quiet(ring, payload, &meta)?;
        Ok(Pushed { index, seq: meta.seq, notify: self.wake_for_push(ring) })
    }

    /// Like [`push_stored`](Self::push_stored), without looking whether the sender sleeps.
    ///
    /// # Errors
    ///
    /// As [`push_stored`](Self::push_stored).
    //= spec/ring.md R-ROLE-4
    pub fn push_stored_quiet(
        &mut self,
        ring: usize,
        payload: &Stored,
        meta: &Meta,
    ) -> Result<u64, PushError> {
        if !self.blocks.owns(payload) {
            return Err(PushError::ForeignPayload);
        }
        let meta = &self.number(meta);
        let room = self.make_room(ring, payload.len() as usize)?;
        self.clear_slots(ring, room);
        self.place(ring, room, payload.first(), payload.len(), meta, true);
        Ok(room.index)
    }

    /// Fills the slots of a record whose payload is in the arena, and makes them visible. A payload that is not `shared` gets no
    /// more users: the ring has the use that the handle was.
    pub(crate) fn place(&mut self, ring: usize, room: Room, first: u32, len: u32, meta: &Meta, shared: bool) {
        let Room { span, index } = room;
        let mut block = Some(first);
        for part in 0..span {
            let Some(this) = block else { break };
            if shared {
                self.blocks.retain(this);
            }
            self.fill(ring, index, part, span, this, len, meta, shared);
            block = self.blocks.after(this);
        }
        self.publish(ring, span);
    }

    /// After quiet pushes: true if the sender sleeps; the caller then has to notify it, once.
    #[must_use = "a sleeping sender has to be notified"]
    pub fn wake_needed(&self, ring: usize) -> bool {
        self.view(ring).is_some_and(|view| view.wake())
    }

    /// Drops the queued records with this number. Returns `true` if there was one: it is never sent. Returns `false` if
    /// it is too late: the record was taken, held or dropped before, or was never in the ring.
    pub fn drop_seq(&self, ring: usize, seq: u64) -> bool {
        self.drop_where(ring, Reason::Application, |record| record.seq == seq) > 0
    }

    /// Drops the queued record at `index`, in the same time however many are queued. Returns `true` if it is never sent, `false` if it is
    /// too late.
    pub fn drop_at(&self, ring: usize, index: u64, reason: Reason) -> bool {
        let code = u32::from(reason.code());
        self.view(ring).is_some_and(|view| view.move_ready(index, State::Dead, code).is_ok())
    }

    /// Returns `true` if the record at `index` is ready or held, in the same time however many are queued.
    pub fn is_waiting(&self, ring: usize, index: u64) -> bool {
        let state = self.view(ring).and_then(|view| view.word(index).ok()).and_then(Word::state);
        matches!(state, Some(State::Ready | State::Held))
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
        let view = self.view(ring).ok_or(TooLate)?;
        edit_seq(view, seq, self.pid)
    }

    /// Holds the record at `index` for editing.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if it has been taken, held or dropped.
    pub fn edit_at(&self, ring: usize, index: u64) -> Result<Edit<'_>, TooLate> {
        Edit::begin(self.view(ring).ok_or(TooLate)?, index, self.pid, |_| true)
    }

    /// Puts a record in the place of the newest unsent one with the same key, if it has a key. Overwrites it if the
    /// payload fits into its slots and is in no other ring; otherwise pushes a new one and drops the older one. If
    /// that push fails the older one stays.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn replace(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        let meta = &self.number(meta);
        let view = self.view(ring).ok_or(PushError::NoSuchRing)?;
        if view.is_closed() {
            return Err(PushError::Closed);
        }
        let Some(older) = newest_with_key(&view, meta.key) else {
            return self.push(ring, payload, meta).map(Replaced::Appended);
        };
        if let Some(pushed) = self.overwrite(&view, &older, payload, meta) {
            return Ok(Replaced::InPlace(pushed));
        }
        let same = |record: &Record| record.index == older.record.index && record.key == meta.key;
        if self.room_is_the_older_ones(ring, payload.len(), older.slots) {
            let is_dropped = self.drop_where(ring, Reason::Superseded, same) > 0;
            let pushed = self.push(ring, payload, meta)?;
            return Ok(if is_dropped { Replaced::Superseded(pushed) } else { Replaced::Appended(pushed) });
        }
        let pushed = self.push(ring, payload, meta)?;
        let is_dropped = self.drop_where(ring, Reason::Superseded, same) > 0;
        Ok(if is_dropped { Replaced::Superseded(pushed) } else { Replaced::Appended(pushed) })
    }

    /// Whether a record of `len` bytes finds room once a queued one of `slots` slots is dropped, and not before.
    fn room_is_the_older_ones(&mut self, ring: usize, len: usize, slots: u32) -> bool {
        matches!(self.make_room(ring, len), Err(PushError::Full))
            && self.region.inner().layout.passes_over
            && self.span(len).is_ok_and(|span| span <= slots && self.make_blocks(span).is_ok())
    }

    /// Whether a push of `len` bytes would find room now.
    pub fn has_room(&mut self, ring: usize, len: usize) -> bool {
        self.check_room(ring, len).is_ok()
    }

    /// What a push of `len` bytes would fail with now.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn check_room(&mut self, ring: usize, len: usize) -> Result<(), PushError> {
        let room = self.make_room(ring, len)?;
        self.make_blocks(room.span)
    }

    /// Holds the sender back from `index` on, Birkedal's `umod_i`. Returns the index from which on nothing has been
    /// taken: records there stay unsent until [`release_hold`](Self::release_hold); what lies between `index` and
    /// it may be on its way. The sender goes on with what lies before.
    pub fn hold_from(&mut self, ring: usize, index: u64) -> Option<u64> {
        self.view(ring)?;
        self.skip_orphans(ring);
        self.rings[ring].hold = index;
        let view = self.view(ring)?;
        let end = self.rings[ring].user_i;
        view.head.umod_i.0.store(index, Ordering::Relaxed);
        // Pairs with the fence in `Consumer::take`: either we see its `taken` here, or it sees our `umod_i` there and
        // puts the record back.
        fence(Ordering::SeqCst);
        let start = index.max(self.rings[ring].tail);
        let start = start.min(end);
        let mut safe = start;
        for at in start..end {
            // Where no record of ours begins, the slot may still hold the fate of a record that a former
            // producer reported.
            let span = self.rings[ring].own(at).record_span();
            let word = Word(view.slot(at).state.load(Ordering::Acquire));
            let untaken = matches!(word.state(), Some(State::Ready | State::Held | State::Dead));
            if span > 0 && !untaken {
                safe = at + u64::from(span);
            }
        }
        Some(safe)
    }

    /// Lets the sender go on. True if it sleeps and has to be notified by the caller.
    #[must_use = "a sleeping sender has to be notified"]
    pub fn release_hold(&mut self, ring: usize) -> bool {
        let Some(view) = View::new(self.region.inner(), ring) else { return false };
        self.rings[ring].hold = NO_HOLD;
        // Release: what was edited during the hold is visible to a sender that sees the hold gone.
        view.head.umod_i.0.store(NO_HOLD, Ordering::Release);
        view.changed()
    }

    /// Makes a ring whose sender is gone as good as new. Records that are left on it end with a lost fate.
    /// Words that another party wrote over the producer's are repaired and counted. The caller has claimed
    /// the ring and given it back, so that no sender has it.
    //= spec/ring.md R-CLAIM-6
    pub fn renew(&mut self, ring: usize) {
        self.mend(ring);
        let Some(view) = View::new(self.region.inner(), ring) else { return };
        let own = &mut self.rings[ring];
        own.hold = NO_HOLD;
        view.head.umod_i.0.store(NO_HOLD, Ordering::Release);
        view.head.kern_i.0.store(own.user_i, Ordering::Relaxed);
        let waiting = (own.tail..own.user_i).filter(|&index| own.own(index).record_span() != 0);
        for index in waiting.chain(own.behind.iter().map(|behind| behind.index)) {
            if matches!(finished(&view, index), Finished::No { .. }) {
                let dead = Word::new(view.lap(index), State::Dead, u32::from(Reason::Closed.code()));
                // Nobody but a sender, of which there is none, and the holder of an edit, who comes too late now, waits for
                // what it was.
                view.slot(index).state.store(dead.0, Ordering::Release);
            }
        }
        while let Some(&behind) = own.behind.last() {
            own.forget_behind(behind, &mut self.blocks);
        }
        while self.reclaim(ring) {}
        self.forget_fates(ring);
    }

    /// Repairs the words that only this producer may write, if another process changed them: a sender that they mislead takes nothing, and nobody
    /// would know why. The next push tells it.
    //= spec/ring.md R-TRUST-6
    #[cold]
    fn mend(&mut self, ring: usize) {
        let (Some(view), Some(own)) = (View::new(self.region.inner(), ring), self.rings.get(ring)) else {
            return;
        };
        for (word, value) in [(&view.head.umod_i.0, own.hold), (&view.head.user.user_i, own.user_i)] {
            if word.load(Ordering::Relaxed) != value {
                // Release, as where it is written otherwise.
                word.store(value, Ordering::Release);
                self.bad_values += 1;
                view.head.changes.0.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// How far the record at `index` is: at each call anew, without ending its account. `None` if its slots have been
    /// reclaimed, or if it was never pushed.
    pub fn status(&self, ring: usize, index: u64) -> Option<RecordStatus> {
        let own = self.rings.get(ring)?;
        let is_known = if index < own.tail {
            own.behind.iter().any(|behind| behind.index == index)
        } else {
            index < own.user_i && own.own(index).record_span() != 0
        };
        if !is_known {
            return None;
        }
        let view = self.view(ring)?;
        let finished = finished(&view, index);
        let stage = match (finished.outcome(), finished) {
            (Some(outcome), _) => Stage::Ended(outcome),
            (None, Finished::No { taken: true }) => Stage::Taken,
            (None, _) => Stage::Waiting,
        };
        let fate = read_fate(&view, index, Outcome::Sent);
        let Fate { committed_at, finished_at, acked_at, horizon, .. } = fate;
        Some(RecordStatus { stage, committed_at, finished_at, acked_at, horizon })
    }

    /// Slots that a push can use without skipping any that is in use, those of finished records among them: a record
    /// of that many blocks finds room. Behind slots that are in use there may be more.
    pub fn free_slots(&self, ring: usize) -> u32 {
        let Some(own) = self.rings.get(ring) else { return 0 };
        if !own.behind.is_empty() {
            return self.free_run(ring);
        }
        let tail = self.finished_until(ring, own.user_i);
        own.slots.len() as u32 - own.user_i.saturating_sub(tail) as u32
    }

    /// Records that are ready or held.
    pub fn pending(&self, ring: usize) -> usize {
        let Some(view) = self.view(ring) else { return 0 };
        let (window, passed) = (view.window(), view.passed_i());
        let waits = |index: &u64| {
            let state = view.word(view.holder(*index, passed)).ok().and_then(Word::state);
            matches!(state, Some(State::Ready | State::Held))
        };
        window.filter(waits).count()
    }

    /// Slots from the oldest record that the sender may still take up to the newest: how far it is behind, without a look at
    /// the slots. Records in progress do not count.
    pub fn backlog(&self, ring: usize) -> usize {
        self.view(ring).map_or(0, |view| {
            let window = view.window();
            usize::try_from(window.end - window.start).unwrap_or(usize::MAX)
        })
    }

    /// Blocks of the arena that are free at this moment, without those of finished records that have not been
    /// reclaimed.
    pub fn free_blocks(&self) -> usize {
        self.blocks.available()
    }

    /// The application's number of the newest record on a ring, to go on from after a take-over.
    pub fn last_seq(&self, ring: usize) -> Option<u64> {
        let newest = self.rings.get(ring)?.user_i.checked_sub(1)?;
        Some(self.view(ring)?.slot(newest).user_seq.load(Ordering::Relaxed))
    }

    /// Lists up to `limit` ready records into `out`, oldest first.
    pub fn queue(&self, ring: usize, limit: usize, out: &mut Vec<Record>) {
        out.clear();
        if let Some(view) = self.view(ring) {
            view.list(limit, out);
        }
    }

    /// Drops the records that are held by a process that no longer lives; returns how many.
    pub fn recover(&self, ring: usize) -> usize {
        self.view(ring).map_or(0, |view| view.recover())
    }

    /// Values in shared memory that no honest party writes, as far as the producer has met them.
    pub fn bad_values(&self) -> u64 {
        self.bad_values
    }

    /// Whether the sender sleeps, after a push. One that sleeps may have been misled, and a look costs little beside the call
    /// that wakes it.
    #[inline]
    pub(crate) fn wake_for_push(&mut self, ring: usize) -> bool {
        let wakes = self.wake_needed(ring);
        if wakes {
            self.mend(ring);
        }
        wakes
    }

    pub(crate) fn view(&self, ring: usize) -> Option<View<'_>> {
        View::new(self.region.inner(), ring)
    }

    /// Slots that a record of `len` bytes takes, if it can ever fit.
    #[inline]
    pub(crate) fn span(&self, len: usize) -> Result<u32, PushError> {
        let span = self.region.inner().layout.span(len);
        span.filter(|&span| span as usize <= self.blocks.total()).ok_or(PushError::TooLarge)
    }

    /// Looks for room for a record of `len` bytes.
    #[inline]
    pub(crate) fn make_room(&mut self, ring: usize, len: usize) -> Result<Room, PushError> {
        let span = self.span(len)?;
        let Some(own) = self.rings.get(ring) else { return Err(PushError::NoSuchRing) };
        if self.view(ring).is_some_and(|view| view.is_closed()) {
            return Err(PushError::Closed);
        }
        let needed = own.user_i + u64::from(span);
        if needed >= MAX_INDEX {
            return Err(PushError::Full);
        }
        let tail = needed.saturating_sub(own.slots.len() as u64);
        let goes_on = own.behind.is_empty() && (own.tail >= tail || self.finished_until(ring, tail) >= tail);
        if goes_on {
            return Ok(Room { span, index: own.user_i });
        }
        let room = self.find_room(ring, span);
        if room.is_err() {
            self.mend(ring);
        }
        room
    }

    /// The index up to which all records of a ring are finished, looking no further than `enough`.
    fn finished_until(&self, ring: usize, enough: u64) -> u64 {
        let (Some(view), Some(own)) = (self.view(ring), self.rings.get(ring)) else { return 0 };
        let mut tail = own.tail;
        while tail < own.user_i.min(enough) {
            let span = own.own(tail).record_span();
            if span != 0 && matches!(finished(&view, tail), Finished::No { .. }) {
                break;
            }
            tail += u64::from(span.max(1));
        }
        tail
    }

    /// Sees to it that `span` blocks are free, and that no packet refers to the next ones.
    #[inline]
    pub(crate) fn make_blocks(&mut self, span: u32) -> Result<(), PushError> {
        if self.blocks.available() < span as usize {
            self.find_blocks(span)?;
        }
        #[cfg(not(loom))]
        if self.region.has_lent() {
            let inner = self.region.inner();
            inner.renew(self.blocks.upcoming(span)).map_err(|_| PushError::OutOfBlocks)?;
        }
        Ok(())
    }

    #[cold]
    fn find_blocks(&mut self, span: u32) -> Result<(), PushError> {
        self.blocks.collect();
        for ring in 0..self.rings.len() {
            self.release_finished_blocks(ring);
        }
        if self.blocks.available() >= span as usize { Ok(()) } else { Err(PushError::OutOfBlocks) }
    }

    /// Gives back the blocks of every finished record of a ring; the slots keep their fates.
    //= spec/ring.md R-ROLE-5
    fn release_finished_blocks(&mut self, ring: usize) {
        let Some(view) = View::new(self.region.inner(), ring) else { return };
        let own = &mut self.rings[ring];
        for place in 0..own.behind.len() {
            let behind = own.behind[place];
            if !matches!(finished(&view, behind.index), Finished::No { .. }) {
                (0..u64::from(behind.span))
                    .for_each(|part| own.give_back(behind.index + part, &mut self.blocks));
            }
        }
        let mut index = own.tail;
        while index < own.user_i {
            let span = own.own(index).record_span();
            if span != 0 && !matches!(finished(&view, index), Finished::No { .. }) {
                for part in 0..u64::from(span) {
                    own.give_back(index + part, &mut self.blocks);
                }
            }
            index += u64::from(span.max(1));
        }
    }

    /// Reclaims the oldest record of a ring if it is finished, and keeps its fate.
    #[inline]
    pub(crate) fn reclaim(&mut self, ring: usize) -> bool {
        self.reclaim_oldest(ring, true)
    }

    /// The same; unless it `is_untold`, the fate is known to whoever wants it.
    #[inline]
    pub(crate) fn reclaim_oldest(&mut self, ring: usize, is_untold: bool) -> bool {
        let Some(view) = View::new(self.region.inner(), ring) else { return false };
        let own = &mut self.rings[ring];
        if own.tail >= own.user_i {
            return false;
        }
        let span = own.own(own.tail).record_span();
        if span == 0 {
            own.give_back_unless_behind(own.tail, &mut self.blocks);
            own.tail += 1;
            return true;
        }
        match finished(&view, own.tail) {
            Finished::No { .. } => return false,
            Finished::Bad => self.bad_values += 1,
            _ => {}
        }
        if is_untold {
            own.fates.keep_of(&view, own.tail);
        }
        for _ in 0..span {
            own.give_back(own.tail, &mut self.blocks);
            own.tail += 1;
        }
        view.head.user.tail_i.store(own.tail, Ordering::Relaxed);
        true
    }

    /// Passes over slots at the tail that belong to no record: left-overs of a take-over.
    pub(crate) fn skip_orphans(&mut self, ring: usize) {
        let Some(own) = self.rings.get_mut(ring) else { return };
        while own.tail < own.user_i && own.own(own.tail).record_span() == 0 {
            own.give_back_unless_behind(own.tail, &mut self.blocks);
            own.tail += 1;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one slot, inlined into two callers")]
    #[inline]
    fn fill(
        &mut self,
        ring: usize,
        first: u64,
        part: u32,
        span: u32,
        block: u32,
        len: u32,
        meta: &Meta,
        shared: bool,
    ) {
        let index = first + u64::from(part);
        let inner = self.region.inner();
        let lap = inner.layout.lap(index);
        let slot = inner.slot(ring, index);
        // Orders the end of the slot's former use, which we have seen, before these stores. A reader that
        // sees one of them sees that end, or a later word, in the state as well (`View::see`).
        fence(Ordering::Release);
        write_meta(slot, meta);
        slot.block.store(block, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.flags.store(flags(shared), Ordering::Relaxed);
        let (state, number) = if part == 0 { (State::Ready, span) } else { (State::Cont, part) };
        slot.span.store(number as u16, Ordering::Relaxed);
        // Release: whoever sees the state sees the fields and the payload.
        slot.state.store(Word::new(lap, state, 0).0, Ordering::Release);
        let own = &mut self.rings[ring];
        let at = own.at(index);
        own.slots[at] = Own { block, span: if part == 0 { span } else { 0 } };
    }

    #[inline]
    fn publish(&mut self, ring: usize, span: u32) {
        let own = &mut self.rings[ring];
        own.user_i += u64::from(span);
        if let Some(head) = self.region.inner().ring(ring) {
            // Release pairs with the Acquire load in `View::user_i`.
            head.user.user_i.store(own.user_i, Ordering::Release);
        }
    }

    fn overwrite(&self, view: &View<'_>, older: &Descriptor, payload: &[u8], meta: &Meta) -> Option<Pushed> {
        let len = u32::try_from(payload.len()).ok()?;
        let capacity = u64::from(older.slots) * u64::from(view.inner.layout.config.block_bytes);
        if older.shared || u64::from(len) > capacity {
            return None;
        }
        let mut edit =
            Edit::begin(*view, older.record.index, self.pid, |record| record.key == meta.key).ok()?;
        // From the first byte on the record is half old, half new: it may only become ready again as a whole.
        if edit.set_len(len).and_then(|()| edit.write(0, payload)).is_err() {
            let _dropped = edit.kill();
            return None;
        }
        edit.set_meta(meta);
        let notify = edit.release().ok()?;
        Some(Pushed { index: older.record.index, seq: meta.seq, notify })
    }
}

/// The number after `seq`.
fn following(seq: u64) -> u64 {
    match seq.wrapping_add(1) {
        Meta::NEXT_SEQ => 0,
        next => next,
    }
}

fn newest_with_key(view: &View<'_>, key: u64) -> Option<Descriptor> {
    if key == 0 {
        return None;
    }
    let (window, passed) = (view.window(), view.passed_i());
    let has_key = |index: u64| match view.see(index, window.end) {
        SlotContent::Ready(descriptor, _) if descriptor.record.key == key => Some(descriptor),
        _ => None,
    };
    if window.start >= passed {
        return window.clone().rev().find_map(has_key);
    }
    let all = window.clone().filter_map(|index| has_key(view.holder(index, passed)));
    all.max_by_key(|descriptor| descriptor.record.index)
}
