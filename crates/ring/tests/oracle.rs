//! Sequences of operations against a simple model. `cargo test` runs it as a property test, `cargo bolero test
//! agrees_with_the_model` as a fuzz target.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

#[path = "support/foreign.rs"]
mod foreign;
#[path = "support/model.rs"]
mod model;

use std::io::Write as _;

use bolero::{TypeGenerator, check};
use freshwire_record::Timestamp;
use freshwire_ring::{
    Config, Consumer, Meta, Producer, PushError, Reason, Record, Region, Replaced, Reservation, Taken,
    TooLate,
};

use model::{Model, RINGS, SLOTS};

const BLOCK_BYTES: u32 = 16;
const BLOCKS: u32 = 7;

#[derive(Clone, Debug, TypeGenerator)]
enum Op {
    Push { ring: u8, len: u8, key: bool },
    PushMany { len: u8, rings: u8 },
    Reserve { len: u8 },
    Commit { ring: u8, nth: u8, len: u8 },
    GiveUp { nth: u8 },
    Replace { ring: u8, len: u8 },
    Drop { ring: u8, back: u8 },
    Edit { ring: u8, back: u8, len: u8, kill: bool },
    Take { ring: u8, nth: u8 },
    End { ring: u8, nth: u8, abandon: bool },
    PutBack { ring: u8, nth: u8 },
    Ack { ring: u8, back: u8 },
    Discard { ring: u8, nth: u8 },
    PollFate { ring: u8 },
    Hold { ring: u8, back: u8 },
    ReleaseHold { ring: u8 },
    Sleep { ring: u8 },
    NewProducer,
    NewConsumer { ring: u8 },
}

struct Pair {
    /// The memory as its maker has it: that of the senders.
    region: Region,
    /// The same memory as the producer and the editors have it.
    user_side: Region,
    producer: Option<Producer>,
    senders: Vec<Option<Consumer>>,
    in_hand: Vec<Vec<(Taken, Vec<u8>)>>,
    /// Reservations, and their numbers in the model.
    reserved: Vec<(Reservation, usize)>,
    model: Model,
    number: u64,
}

fn config() -> Config {
    Config { rings: RINGS as u32, slots: SLOTS as u32, block_bytes: BLOCK_BYTES, blocks: BLOCKS }
}

fn keeper(region: &Region) -> Producer {
    let mut producer = region.producer().unwrap();
    (0..RINGS).for_each(|ring| producer.keep_fates(ring));
    producer
}

impl Pair {
    /// Both sides in one process's own memory.
    fn new() -> Self {
        let region = Region::heap(&config()).unwrap();
        Self::over(region.clone(), region)
    }

    /// A maker of the memory, as a kernel is, and a user side that has only a mapping of it.
    fn foreign() -> Self {
        let region = Region::create(&config()).unwrap();
        let user_side = foreign::view(&region).unwrap();
        Self::over(region, user_side)
    }

    fn over(region: Region, user_side: Region) -> Self {
        Self {
            producer: Some(keeper(&user_side)),
            senders: (0..RINGS).map(|ring| Some(region.consumer(ring).unwrap())).collect(),
            in_hand: vec![Vec::new(); RINGS],
            reserved: Vec::new(),
            model: Model::new(BLOCKS as usize),
            region,
            user_side,
            number: 0,
        }
    }

    fn producer(&mut self) -> &mut Producer {
        self.producer.as_mut().unwrap()
    }

    fn sender(&mut self, ring: usize) -> &mut Consumer {
        self.senders[ring].as_mut().unwrap()
    }

    /// The next record: its bytes tell it from every other.
    fn next(&mut self, len: u8, key: u64) -> (Vec<u8>, Meta) {
        self.number += 1;
        let number = self.number;
        let payload = (0..len % 80).map(|at| (number as u8).wrapping_mul(31).wrapping_add(at)).collect();
        (payload, Meta { seq: number, key, ..Meta::default() })
    }

    fn ack(&mut self, ring: usize, back: u8) {
        let index = self.model.rings[ring].user_i.saturating_sub(u64::from(back % 12));
        let expected = if self.model.ack(ring, index) { Ok(()) } else { Err(TooLate) };
        let acked = self.sender(ring).acked(index, Timestamp::ZERO);
        // The slot of a record that a former producer passed over may still say "sent", which nobody
        // reads.
        let is_forgotten = self.model.rings[ring].is_forgotten(index);
        assert!(acked == expected || is_forgotten, "{acked:?} instead of {expected:?}");
        if expected.is_err() {
            self.model.note_acked(ring, index);
            self.producer().note_acked(ring, index, Some(Timestamp::ZERO));
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push { ring, len, key } => {
                let ring = usize::from(ring) % RINGS;
                let (payload, meta) = self.next(len, u64::from(key));
                let expected = self.model.push(ring, &payload, meta.seq, meta.key);
                let pushed = self.producer().push(ring, &payload, &meta);
                assert_eq!(pushed.map(|pushed| (pushed.index, pushed.notify)), expected);
            }
            Op::PushMany { len, rings } => self.push_many(len, rings),
            Op::Reserve { len } => {
                let space = vec![0; usize::from(len % 80)];
                let reserved = self.producer().reserve(space.len());
                let expected = self.model.store(&space);
                assert_eq!(reserved.as_ref().map(|_| ()).map_err(|error| *error), expected.map(|_| ()));
                self.reserved.extend(reserved.ok().zip(expected.ok()));
            }
            Op::Commit { ring, nth, len } => self.commit(usize::from(ring) % RINGS, nth, len),
            Op::GiveUp { nth } => self.give_up(nth),
            Op::Replace { ring, len } => self.replace(usize::from(ring) % RINGS, len),
            Op::Drop { ring, back } => {
                let ring = usize::from(ring) % RINGS;
                let number = self.number.saturating_sub(u64::from(back % 16));
                let expected = self.model.drop_seq(ring, number) > 0;
                assert_eq!(self.producer().drop_seq(ring, number), expected);
            }
            Op::Edit { ring, back, len, kill } => self.edit(usize::from(ring) % RINGS, back, len, kill),
            Op::Take { ring, nth } => self.take(usize::from(ring) % RINGS, nth),
            Op::End { ring, nth, abandon } => self.end(usize::from(ring) % RINGS, nth, abandon),
            Op::PutBack { ring, nth } => self.put_back(usize::from(ring) % RINGS, nth),
            Op::Ack { ring, back } => self.ack(usize::from(ring) % RINGS, back),
            Op::Discard { ring, nth } => {
                let ring = usize::from(ring) % RINGS;
                let index = self.model.rings[ring].index_of(nth);
                let expected = if self.model.discard(ring, index) { Ok(()) } else { Err(TooLate) };
                assert_eq!(self.sender(ring).discard(index, Reason::Expired, Timestamp::ZERO), expected);
            }
            Op::PollFate { ring } => {
                let ring = usize::from(ring) % RINGS;
                let expected = self.model.poll_fate(ring);
                let fate = self.producer().poll_fate(ring);
                assert_eq!(fate.map(|fate| (fate.index, fate.seq, fate.outcome)), expected);
            }
            Op::Hold { ring, back } => {
                let ring = usize::from(ring) % RINGS;
                let index = self.model.rings[ring].user_i.saturating_sub(u64::from(back % 12));
                let expected = self.model.hold(ring, index);
                assert_eq!(self.producer().hold_from(ring, index), Some(expected));
            }
            Op::ReleaseHold { ring } => {
                let ring = usize::from(ring) % RINGS;
                let expected = self.model.release_hold(ring);
                assert_eq!(self.producer().release_hold(ring), expected);
            }
            Op::Sleep { ring } => {
                let ring = usize::from(ring) % RINGS;
                self.look(ring);
                assert!(self.sender(ring).sleep(), "nothing has changed since the last look");
                self.model.rings[ring].asleep = true;
            }
            Op::NewProducer => {
                self.producer = None;
                while !self.reserved.is_empty() {
                    assert!(self.user_side.producer().is_err(), "a reservation keeps the role");
                    self.give_up(0);
                }
                self.producer = Some(keeper(&self.user_side));
                self.model.new_producer();
            }
            Op::NewConsumer { ring } => {
                let ring = usize::from(ring) % RINGS;
                self.senders[ring] = None;
                self.senders[ring] = Some(self.region.consumer(ring).unwrap());
                self.in_hand[ring].clear();
                self.model.new_consumer(ring);
            }
        }
    }

    fn push_many(&mut self, len: u8, rings: u8) {
        let (payload, meta) = self.next(len, 0);
        let stored = self.producer().store(&payload);
        let expected = self.model.store(&payload);
        assert_eq!(stored.as_ref().map(|_| ()).map_err(|error| *error), expected.map(|_| ()));
        let (Ok(stored), Ok(id)) = (stored, expected) else { return };
        for ring in (0..RINGS).filter(|ring| rings & (1 << ring) != 0) {
            let expected = self.model.push_stored(ring, id, &payload, meta.seq);
            let pushed = self.producer().push_stored(ring, &stored, &meta);
            assert_eq!(pushed.map(|pushed| (pushed.index, pushed.notify)), expected);
        }
        drop(stored);
        self.model.drop_stored(id);
    }

    fn commit(&mut self, ring: usize, nth: u8, len: u8) {
        if self.reserved.is_empty() {
            return;
        }
        let at = usize::from(nth) % self.reserved.len();
        let (mut payload, meta) = self.next(len, 0);
        let (mut reservation, id) = self.reserved.swap_remove(at);
        payload.truncate(reservation.capacity());
        reservation.set_len(0).unwrap();
        reservation.write_all(&payload).unwrap();
        let expected = self.model.commit(ring, id, &payload, meta.seq);
        let pushed = self.producer().commit(ring, &mut reservation, &meta);
        assert_eq!(pushed.map(|pushed| (pushed.index, pushed.notify)), expected);
        if pushed.is_err() {
            self.reserved.push((reservation, id));
        }
    }

    fn give_up(&mut self, nth: u8) {
        if !self.reserved.is_empty() {
            let at = usize::from(nth) % self.reserved.len();
            let (reservation, id) = self.reserved.swap_remove(at);
            drop(reservation);
            self.model.drop_stored(id);
        }
    }

    fn replace(&mut self, ring: usize, len: u8) {
        let (payload, meta) = self.next(len, 1);
        let (expected, in_place) = self.model.replace(ring, &payload, meta.seq, 1);
        let replaced = self.producer().replace(ring, &payload, &meta);
        assert_eq!(
            replaced.map(|replaced| (replaced.pushed().index, replaced.pushed().notify)),
            expected.map(|(index, notify, _)| (index, notify))
        );
        match (replaced, expected) {
            (Ok(Replaced::InPlace(_)), _) => assert!(in_place),
            (Ok(Replaced::Superseded(_)), Ok((_, _, dropped))) => assert!(dropped > 0),
            (Ok(Replaced::Appended(_)), Ok((_, _, dropped))) => assert!(dropped == 0 && !in_place),
            _ => {}
        }
    }

    fn edit(&mut self, ring: usize, back: u8, len: u8, kill: bool) {
        let number = self.number.saturating_sub(u64::from(back % 16));
        let editor = self.user_side.editor();
        let Ok(mut edit) = editor.edit(ring, number) else {
            assert!(self.model.ready(ring, number).is_none());
            return;
        };
        let record = self.model.ready(ring, number).unwrap();
        let mut payload = vec![0; 99];
        let length = edit.read(0, &mut payload);
        assert_eq!(payload[..length], record.payload);
        if kill {
            assert_eq!(edit.kill(), Ok(()));
            record.kill(Reason::Application);
            return;
        }
        let fits = u64::from(len % 80) <= record.span * u64::from(BLOCK_BYTES) && !record.shared;
        assert_eq!(edit.set_len(u32::from(len % 80)).is_ok(), fits);
        if fits {
            record.payload = vec![len; usize::from(len % 80)];
            edit.write(0, &record.payload).unwrap();
        }
        let notify = edit.release().unwrap();
        assert_eq!(notify, self.model.wake(ring));
    }

    fn take(&mut self, ring: usize, nth: u8) {
        let index = self.model.rings[ring].index_of(nth);
        let expected = self.model.take(ring, index);
        match self.sender(ring).take(index) {
            Ok(taken) => {
                let payload = expected.unwrap();
                let mut copy = Vec::new();
                assert_eq!(
                    self.sender(ring).copy(&taken, 0, usize::MAX, &mut copy),
                    taken.record.len as usize
                );
                assert_eq!(copy, payload);
                self.in_hand[ring].push((taken, payload));
            }
            Err(TooLate) => assert_eq!(expected, None),
        }
    }

    fn end(&mut self, ring: usize, nth: u8, abandon: bool) {
        if self.in_hand[ring].is_empty() {
            return;
        }
        let at = usize::from(nth) % self.in_hand[ring].len();
        let (taken, payload) = self.in_hand[ring].swap_remove(at);
        // Whatever happened since, the bytes are still those that were taken.
        let mut copy = Vec::new();
        self.sender(ring).copy(&taken, 0, usize::MAX, &mut copy);
        assert_eq!(copy, payload);
        let ended = if abandon {
            self.sender(ring).abandon(&taken, Reason::Abandoned, Timestamp::ZERO)
        } else {
            self.sender(ring).finish(&taken, Timestamp::ZERO)
        };
        assert_eq!(ended, Ok(()));
        self.model.end(ring, taken.record.index, abandon);
    }

    fn put_back(&mut self, ring: usize, nth: u8) {
        if self.in_hand[ring].is_empty() {
            return;
        }
        let at = usize::from(nth) % self.in_hand[ring].len();
        let (taken, _) = self.in_hand[ring].swap_remove(at);
        assert_eq!(self.sender(ring).put_back(&taken), Ok(()));
        self.model.put_back(ring, taken.record.index);
    }

    /// What the sender sees is what the model says.
    fn look(&mut self, ring: usize) {
        let mut queue: Vec<Record> = Vec::new();
        self.sender(ring).queue(usize::MAX, &mut queue);
        let seen: Vec<_> =
            queue.iter().map(|record| (record.index, record.seq, record.len as usize)).collect();
        assert_eq!(seen, self.model.visible(ring));
    }

    fn check(&mut self) {
        for ring in 0..RINGS {
            self.look(ring);
            assert_eq!(self.producer().pending(ring), self.model.pending(ring));
            assert_eq!(self.user_side.editor().unfinished(ring), self.model.unfinished(ring));
            assert_eq!(self.producer().free_slots(ring), self.model.free_slots(ring) as u32);
            assert_eq!(self.producer().fates_lost(ring), 0);
            for (index, stage) in self.model.stages(ring) {
                assert_eq!(self.producer().status(ring, index).map(|status| status.stage), stage);
            }
            assert_eq!(self.sender(ring).counters().bad_values(), 0);
        }
        assert_eq!(self.producer().free_blocks(), self.model.free_blocks());
        for (ring, len) in (0..RINGS).flat_map(|ring| [(ring, 10), (ring, 30), (ring, 64)]) {
            assert_eq!(
                self.producer().has_room(ring, len),
                self.model.has_room(ring, len),
                "{ring}, {len} bytes"
            );
        }
        assert_eq!(self.producer().bad_values(), 0);
    }
}

#[test]
fn agrees_with_the_model() {
    check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut pair = Pair::new();
        for op in ops {
            pair.apply(op);
            pair.check();
        }
    });
}

/// The user-space side of a kernel's ring: the same sequences, over memory that the other side made.
#[test]
fn agrees_with_the_model_over_foreign_memory() {
    check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut pair = Pair::foreign();
        for op in ops {
            pair.apply(op);
            pair.check();
        }
    });
}

#[test]
fn a_record_that_never_fits_is_refused_at_once() {
    let mut pair = Pair::new();
    let refused = pair.producer().push(0, &[0; 200], &Meta::default());
    assert_eq!(refused, Err(PushError::TooLarge));
    pair.check();
}
