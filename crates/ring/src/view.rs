//! One ring as any party sees it: checked reads, drops and holds. Loaded values are never trusted.

use freshwire_record::Timestamp;
use freshwire_record::{Reason, Record};

use crate::layout::{FLAG_CLOSED, FLAG_SLEEPS, FLAG_TELLS, MAX_INDEX, RingHeader, SLOT_SHARED, Slot};
use crate::process::pid_is_alive;
use crate::record::Descriptor;
use crate::region::Inner;
use crate::sync::{Ordering, fence};
use crate::word::{State, Word};

/// Attempts of a compare-and-swap when only the edit count differs. Each failure means that another party
/// changed the record meanwhile; a party that does so without end is not worth waiting for. Chosen, not
/// measured.
const TRIES: u32 = 8;

#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) head: &'a RingHeader,
    pub(crate) ring: usize,
}

/// What one slot is found to be.
pub(crate) enum SlotContent {
    /// A record that can be had, and the word under which that was so.
    Ready(Descriptor, Word),
    /// Somebody edits it.
    Held,
    /// Over, reused, or a further slot of a record.
    Gone,
    /// A value that no honest party writes.
    Bad,
}

/// The blocks of one record, a private checked copy; that of a small record allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    few: [u32; Self::FEW],
    rest: Vec<u32>,
    count: usize,
}

impl Extents {
    const FEW: usize = 8;

    pub(crate) fn block(&self, part: usize) -> Option<u32> {
        let block = if part < Self::FEW { self.few.get(part) } else { self.rest.get(part - Self::FEW) };
        block.copied().filter(|_| part < self.count)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn push(&mut self, block: u32) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = block,
            None => self.rest.push(block),
        }
        self.count += 1;
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(inner: &'a Inner, ring: usize) -> Option<Self> {
        Some(Self { inner, head: inner.ring(ring)?, ring })
    }

    #[inline]
    pub(crate) fn slot(&self, index: u64) -> &'a Slot {
        self.inner.slot(self.ring, index)
    }

    #[inline]
    pub(crate) fn lap(&self, index: u64) -> u32 {
        self.inner.layout.lap(index)
    }

    pub(crate) fn slots(&self) -> u64 {
        u64::from(self.inner.layout.config.slots)
    }

    /// `user_i`, or `None` if no honest producer wrote it. //= spec/ring.md R-TRUST-3
    pub(crate) fn user_i(&self) -> Option<u64> {
        // Acquire pairs with the Release store of `Producer::publish`: slots below it are written.
        Some(self.head.user.user_i.load(Ordering::Acquire)).filter(|&user_i| user_i < MAX_INDEX)
    }

    /// The indexes that the ring can still hold, oldest first, from the sender's hint on.
    pub(crate) fn window(&self) -> std::ops::Range<u64> {
        let Some(user_i) = self.user_i() else { return 0..0 };
        let oldest = user_i.saturating_sub(self.slots());
        let hint = self.head.kern_i.0.load(Ordering::Relaxed);
        if (oldest..=user_i).contains(&hint) { hint..user_i } else { oldest..user_i }
    }

    /// From where on no slot was passed over. To be asked after `user_i`. //= spec/ring.md R-PASS-2
    pub(crate) fn passed_i(&self) -> u64 {
        self.head.user.passed_i.load(Ordering::Relaxed)
    }

    /// The index of the record that has the slot of `index`: that one, or an older one that kept its slot while the ring went on.
    /// `passed` is [`passed_i`](Self::passed_i). //= spec/ring.md R-PASS-2
    #[inline]
    pub(crate) fn holder(&self, index: u64, passed: u64) -> u64 {
        if index >= passed { index } else { self.older_holder(index) }
    }

    #[cold]
    fn older_holder(&self, index: u64) -> u64 {
        // Acquire: as in `word`.
        let word = Word(self.slot(index).state.load(Ordering::Acquire));
        let laps = self.lap(index).wrapping_sub(word.lap()) as i32;
        if laps <= 0 || matches!(word.state(), Some(State::Free) | None) {
            return index;
        }
        // None: a lap that never was, which whoever looks at the slot finds.
        index.checked_sub(laps as u64 * self.slots()).unwrap_or(index)
    }

    /// The state word of `index`, if it belongs to this use of the slot and its state exists.
    pub(crate) fn word(&self, index: u64) -> Result<Word, SlotContent> {
        // Acquire pairs with the Release of publishing, of `restore` and of the compare-and-swaps.
        let word = Word(self.slot(index).state.load(Ordering::Acquire));
        match word.lap().wrapping_sub(self.lap(index)) as i32 {
            0 if word.state().is_some() => Ok(word),
            1.. => Err(SlotContent::Gone),
            _ => Err(SlotContent::Bad),
        }
    }

    /// Looks at one index below `user_i`. //= spec/ring.md R-ORDER-2
    pub(crate) fn see(&self, index: u64, user_i: u64) -> SlotContent {
        for _ in 0..TRIES {
            let word = match self.word(index) {
                Ok(word) => word,
                Err(seen) => return seen,
            };
            match word.state() {
                Some(State::Ready) => {}
                Some(State::Held) => return SlotContent::Held,
                Some(State::Taken | State::Sent | State::Acked | State::Dead | State::Cont) => {
                    return SlotContent::Gone;
                }
                Some(State::Free) | None => return SlotContent::Bad,
            }
            let descriptor = self.describe(index);
            // The fence orders the loads above before the second load of the state. An unchanged word means
            // that nobody wrote the descriptor in between (pairs with the Release fences in `Producer::fill`
            // and `Edit::begin`).
            fence(Ordering::Acquire);
            if self.slot(index).state.load(Ordering::Relaxed) == word.0 {
                return if self.is_sound(&descriptor, user_i) {
                    SlotContent::Ready(descriptor, word)
                } else {
                    SlotContent::Bad
                };
            }
        }
        SlotContent::Held
    }

    /// Copies a descriptor out, unchecked.
    pub(crate) fn describe(&self, index: u64) -> Descriptor {
        let slot = self.slot(index);
        let record = Record {
            index,
            seq: slot.user_seq.load(Ordering::Relaxed),
            len: slot.len.load(Ordering::Relaxed),
            layer: slot.layer.load(Ordering::Relaxed),
            group: slot.group.load(Ordering::Relaxed),
            key: slot.key.load(Ordering::Relaxed),
            refs: [slot.refs[0].load(Ordering::Relaxed), slot.refs[1].load(Ordering::Relaxed)],
            generated: Timestamp::from_nanos(slot.generated.load(Ordering::Relaxed)),
            deadline: Timestamp::from_nanos(slot.deadline.load(Ordering::Relaxed)),
        };
        Descriptor {
            record,
            slots: u32::from(slot.span.load(Ordering::Relaxed)),
            shared: slot.flags.load(Ordering::Relaxed) & SLOT_SHARED != 0,
        }
    }

    /// True if the record lies within the ring and its length within its slots. //= spec/ring.md R-TRUST-4
    pub(crate) fn is_sound(&self, descriptor: &Descriptor, user_i: u64) -> bool {
        let &Descriptor { ref record, slots, .. } = descriptor;
        let span = u64::from(slots);
        let capacity = span * u64::from(self.inner.layout.config.block_bytes);
        (1..=u64::from(self.inner.layout.max_span())).contains(&span)
            && record.index + span <= user_i
            && u64::from(record.len) <= capacity
    }

    /// The record's blocks, `None` if a slot or a block is not what it must be. The caller has it held or taken. //= spec/ring.md R-STATE-2
    pub(crate) fn extents(&self, descriptor: &Descriptor) -> Option<Extents> {
        let blocks = self.inner.layout.config.blocks;
        let block =
            |index: u64| Some(self.slot(index).block.load(Ordering::Relaxed)).filter(|&block| block < blocks);
        let mut extents = Extents::default();
        let first = descriptor.record.index;
        extents.push(block(first)?);
        for part in 1..u64::from(descriptor.slots) {
            let index = first + part;
            let word = self.word(index).ok()?;
            let number = u64::from(self.slot(index).span.load(Ordering::Relaxed));
            if word.state() != Some(State::Cont) || number != part {
                return None;
            }
            extents.push(block(index)?);
        }
        Some(extents)
    }

    /// Moves a ready record to `state`, whatever its edit count. The answer is exact: `Ok` is the word it had.
    pub(crate) fn move_ready(&self, index: u64, state: State, arg: u32) -> Result<Word, ()> {
        let mut word = self.word(index).map_err(|_| ())?;
        for _ in 0..TRIES {
            if word.state() != Some(State::Ready) {
                return Err(());
            }
            match self.swap(index, word, word.to(state, arg)) {
                Ok(()) => return Ok(word),
                Err(now) if now.lap() == word.lap() => word = now,
                Err(_) => return Err(()),
            }
        }
        Err(())
    }

    /// One compare-and-swap of a state word. AcqRel: it pairs with every other one on the same slot, so that whoever
    /// wins sees what the former owner of the record wrote. //= spec/ring.md R-STATE-1, R-ORDER-3
    pub(crate) fn swap(&self, index: u64, from: Word, to: Word) -> Result<(), Word> {
        let state = &self.slot(index).state;
        state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire).map(|_| ()).map_err(Word)
    }

    /// Drops all ready records for which `pick` says so; returns how many.
    //= spec/ring.md R-ROLE-3
    pub(crate) fn drop_where(&self, why: Reason, mut pick: impl FnMut(&Record) -> bool) -> usize {
        let window = self.window();
        let passed = self.passed_i();
        let mut records = 0;
        for index in window.clone() {
            let index = self.holder(index, passed);
            if let SlotContent::Ready(Descriptor { record, .. }, word) = self.see(index, window.end) {
                // The word of the reading: if the record has been changed since, look again.
                if pick(&record) && self.drop_seen(&record, word, window.end, why, &mut pick) {
                    records += 1;
                }
            }
        }
        records
    }

    fn drop_seen(
        &self,
        record: &Record,
        word: Word,
        user_i: u64,
        why: Reason,
        pick: &mut impl FnMut(&Record) -> bool,
    ) -> bool {
        let mut word = word;
        for _ in 0..TRIES {
            if self.swap(record.index, word, word.dead(why)).is_ok() {
                return true;
            }
            match self.see(record.index, user_i) {
                SlotContent::Ready(again, now) if pick(&again.record) => word = now,
                _ => return false,
            }
        }
        false
    }

    /// Records that are not at their end, wherever the sender says that it is.
    pub(crate) fn unfinished(&self) -> usize {
        let Some(user_i) = self.user_i() else { return 0 };
        let passed = self.passed_i();
        let lives = |index: &u64| {
            let state = self.word(self.holder(*index, passed)).ok().and_then(Word::state);
            matches!(state, Some(State::Ready | State::Held | State::Taken))
        };
        (user_i.saturating_sub(self.slots())..user_i).filter(lives).count()
    }

    /// Drops what is held by a process that no longer lives; returns the records. //= spec/ring.md R-EDIT-1
    pub(crate) fn recover(&self) -> usize {
        let window = self.window();
        let passed = self.passed_i();
        let mut records = 0;
        for index in window {
            let index = self.holder(index, passed);
            let Ok(word) = self.word(index) else { continue };
            if word.state() == Some(State::Held) && !pid_is_alive(word.arg()) {
                let dead = word.dead(Reason::HolderLost);
                records += usize::from(self.swap(index, word, dead).is_ok());
            }
        }
        records
    }

    /// After something was made visible: true if the sender sleeps and has to be notified by the caller, who then is
    /// the only one to do so. If the ring is closed, what is ready is dropped. //= spec/ring.md R-ORDER-4, R-ORDER-6
    pub(crate) fn wake(&self) -> bool {
        // Pairs with the fence in `Consumer::sleep` (and in `Consumer::close`): either we see its flag here, or it
        // sees there what we made visible before.
        fence(Ordering::SeqCst);
        let flag = self.head.kern_flag.0.load(Ordering::Relaxed);
        if flag == 0 {
            return false;
        }
        self.wake_slow(flag)
    }

    #[cold]
    fn wake_slow(&self, flag: u32) -> bool {
        if flag & FLAG_CLOSED != 0 {
            self.drop_where(Reason::Closed, |_| true);
            return false;
        }
        // AcqRel: pairs with the sender's own read-modify-writes of the flag; only one party gets the bit.
        flag & FLAG_SLEEPS != 0
            && self.head.kern_flag.0.fetch_and(!FLAG_SLEEPS, Ordering::AcqRel) & FLAG_SLEEPS != 0
    }

    /// Whether the sender has closed the ring and says no more of what it has sent. //= spec/ring.md R-ORDER-6
    pub(crate) fn is_final(&self) -> bool {
        // Acquire: what the sender said before is seen.
        self.head.kern_flag.0.load(Ordering::Acquire) & (FLAG_CLOSED | FLAG_TELLS) == FLAG_CLOSED
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.head.kern_flag.0.load(Ordering::Relaxed) & FLAG_CLOSED != 0
    }

    /// Counts something that became visible without `user_i`, then [`wake`](Self::wake)s. //= spec/ring.md R-ORDER-7
    pub(crate) fn changed(&self) -> bool {
        // Release: a sender that sees the count sees the change (Acquire load in `Consumer::queue`).
        self.head.changes.0.fetch_add(1, Ordering::Release);
        self.wake()
    }

    /// Lists up to `limit` ready records, oldest first, whether or not the sender is held back from them.
    pub(crate) fn list(&self, limit: usize, out: &mut Vec<Record>) {
        out.clear();
        let window = self.window();
        let passed = self.passed_i();
        let in_order = window.start >= passed;
        for index in window.clone() {
            if in_order && out.len() >= limit {
                break;
            }
            if let SlotContent::Ready(descriptor, _) = self.see(self.holder(index, passed), window.end) {
                out.push(descriptor.record);
            }
        }
        if !in_order {
            out.sort_unstable_by_key(|record| record.index);
            out.truncate(limit);
        }
    }
}
