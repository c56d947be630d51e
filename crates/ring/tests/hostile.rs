//! The other side lies: single wrong words at the ABI's offsets, then random words all over the region.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use freshwire_record::Timestamp;
use freshwire_ring::{Config, Consumer, Meta, Outcome, Producer, PushError, Reason, Record, Region, TooLate};
use rustix::fs::FallocateFlags;

const CONFIG: Config = Config { rings: 2, slots: 8, block_bytes: 64, blocks: 16 };
const RING: u64 = 192;
const SLOTS: u64 = RING + 2 * 384;
const SLOT: u64 = 128;

struct Victim {
    producer: Producer,
    sender: Consumer,
    file: File,
}

fn victim() -> Victim {
    let region = Region::create(&CONFIG).unwrap();
    let file = File::from(region.as_fd().unwrap().try_clone_to_owned().unwrap());
    let mut producer = region.producer().unwrap();
    for number in 1..=3 {
        let _ = producer.push(0, &[number as u8; 100], &Meta { seq: number, ..Meta::default() }).unwrap();
    }
    Victim { producer, sender: region.consumer(0).unwrap(), file }
}

impl Victim {
    fn put(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    fn seen(&mut self) -> Vec<u64> {
        let mut queue = Vec::new();
        self.sender.queue(usize::MAX, &mut queue);
        queue.iter().map(|record| record.seq).collect()
    }
}

#[test]
fn an_impossible_user_i_makes_the_ring_empty_and_is_counted() {
    for user_i in [u64::MAX, 1 << 62, 1000, 9_999_999] {
        let mut victim = victim();
        assert_eq!(victim.seen(), [1, 2, 3]);
        victim.put(RING, &user_i.to_ne_bytes());
        assert_eq!(victim.seen(), [0; 0], "{user_i}");
        assert!(victim.sender.counters().bad_values() > 0, "{user_i}");
        assert_eq!(victim.sender.take(user_i.wrapping_sub(1)), Err(TooLate));
        victim.put(RING, &6_u64.to_ne_bytes());
        assert_eq!(victim.seen(), [1, 2, 3], "it comes back when the value does");
    }
    let mut victim = victim();
    let taken = victim.sender.take(0).unwrap();
    victim.sender.finish(&taken, Timestamp::ZERO).unwrap();
    victim.put(RING, &1_u64.to_ne_bytes());
    assert_eq!(victim.seen(), [0; 0], "backwards");
    assert_eq!(victim.sender.counters().bad_indexes, 1);
}

#[test]
fn a_wrong_descriptor_is_passed_over_and_counted() {
    let slot = SLOTS;
    let wrong: [(&str, u64, &[u8]); 4] = [
        ("no slots", slot + 60, &0_u16.to_ne_bytes()),
        ("more slots than there are", slot + 60, &9_u16.to_ne_bytes()),
        ("longer than its slots", slot + 44, &129_u32.to_ne_bytes()),
        ("length at its limit", slot + 44, &u32::MAX.to_ne_bytes()),
    ];
    for (what, at, bytes) in wrong {
        let mut victim = victim();
        victim.put(at, bytes);
        assert_eq!(victim.seen(), [2, 3], "{what}");
        assert_eq!(victim.sender.counters().bad_descriptors, 1, "{what}");
        assert_eq!(victim.sender.take(0), Err(TooLate), "{what}");
    }
}

#[test]
fn a_record_with_wrong_blocks_is_not_taken_and_dies() {
    let wrong: [(&str, u64, &[u8]); 5] = [
        ("block outside", SLOTS + 40, &16_u32.to_ne_bytes()),
        ("block far outside", SLOTS + 40, &u32::MAX.to_ne_bytes()),
        ("second block outside", SLOTS + SLOT + 40, &16_u32.to_ne_bytes()),
        ("second slot misnumbered", SLOTS + SLOT + 60, &2_u16.to_ne_bytes()),
        ("second slot of another state", SLOTS + SLOT, &1_u64.to_ne_bytes()),
    ];
    for (what, at, bytes) in wrong {
        let mut victim = victim();
        victim.put(at, bytes);
        assert_eq!(victim.sender.take(0), Err(TooLate), "{what}");
        assert_eq!(victim.sender.counters().bad_descriptors, 1, "{what}");
        let fate = victim.producer.poll_fate(0).unwrap();
        assert_eq!(fate.outcome, Outcome::Dropped(Reason::Invalid), "{what}");
    }
}

#[test]
fn a_wrong_state_is_counted_by_both_sides() {
    for state in [15_u64, 0, 7 << 32 | 9, u64::MAX] {
        let mut victim = victim();
        victim.put(SLOTS, &state.to_ne_bytes());
        assert_eq!(victim.seen(), [2, 3]);
        assert!(victim.sender.counters().bad_states > 0 || state >> 32 == 7, "{state:x}");
        let fate = victim.producer.poll_fate(0).unwrap();
        assert_eq!(fate.outcome, Outcome::Dropped(Reason::Invalid));
        assert_eq!(victim.producer.bad_values(), 1);
    }
}

#[test]
fn a_wrong_hint_hides_records_from_an_editor_at_most() {
    let mut victim = victim();
    victim.put(RING + 128, &u64::MAX.to_ne_bytes());
    assert_eq!(victim.producer.pending(0), 3);
    victim.put(RING + 128, &5_u64.to_ne_bytes());
    assert!(!victim.producer.drop_seq(0, 1));
    assert_eq!(victim.seen(), [1, 2, 3]);
}

/// Where ring 0 has its `umod_i` and its `kern_flag`.
const HOLD: u64 = RING + 64;
const FLAG: u64 = RING + 192;

fn push(producer: &mut Producer, number: u64) -> Result<bool, PushError> {
    let meta = Meta { seq: number, ..Meta::default() };
    producer.push(0, &[0; 10], &meta).map(|pushed| pushed.notify)
}

#[test]
fn a_hold_that_nobody_asked_for_ends_with_the_next_push() {
    let mut victim = victim();
    victim.put(HOLD, &0_u64.to_ne_bytes());
    assert_eq!(victim.seen(), [0; 0]);
    assert!(victim.sender.sleep());
    assert_eq!(push(&mut victim.producer, 4), Ok(true));
    assert_eq!((victim.seen(), victim.producer.bad_values()), (vec![1, 2, 3, 4], 1));
}

#[test]
fn a_hold_over_an_awake_sender_ends_when_the_ring_is_full() {
    let mut victim = victim();
    victim.put(HOLD, &0_u64.to_ne_bytes());
    let refused = (4..20).find_map(|number| push(&mut victim.producer, number).err());
    assert_eq!((refused, victim.producer.bad_values()), (Some(PushError::Full), 1));
    assert_eq!(victim.seen(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_hold_of_the_producers_own_stays() {
    let mut victim = victim();
    assert_eq!(victim.producer.hold_from(0, 0), Some(0));
    assert_eq!(victim.seen(), [0; 0]);
    assert!(victim.sender.sleep());
    assert_eq!(push(&mut victim.producer, 4), Ok(true));
    assert_eq!((victim.seen(), victim.producer.bad_values()), (vec![], 0));
    let _notify = victim.producer.release_hold(0);
    assert_eq!(victim.seen(), [1, 2, 3, 4]);
}

#[test]
fn a_ring_that_its_sender_did_not_close_opens_again() {
    let mut victim = victim();
    victim.put(FLAG, &2_u32.to_ne_bytes());
    assert_eq!(push(&mut victim.producer, 4), Err(PushError::Closed));
    assert_eq!(victim.seen(), [1, 2, 3]);
    assert!(victim.sender.sleep());
    assert_eq!(victim.sender.counters().bad_states, 1);
    assert_eq!(push(&mut victim.producer, 4), Ok(true));
}

#[test]
fn a_ring_that_is_made_anew_remembers_nothing() {
    // Held back, its oldest record in the hands of a process that lives, and `user_i` far away.
    let wrong: [&[(u64, u64)]; 3] = [&[(HOLD, 0)], &[(SLOTS, 1 << 10 | 2)], &[(HOLD, 7), (RING, 1 << 61)]];
    for words in wrong {
        let Victim { mut producer, sender, file } = victim();
        for (at, word) in words {
            file.write_all_at(&word.to_ne_bytes(), *at).unwrap();
        }
        drop(sender);
        producer.renew(0);
        assert_eq!((producer.free_slots(0), producer.free_blocks()), (8, 16));
        let mut victim = Victim { sender: producer.region().consumer(0).unwrap(), producer, file };
        assert_eq!(victim.seen(), [0; 0]);
        for number in 4..100 {
            let meta = Meta { seq: number, ..Meta::default() };
            let pushed = victim.producer.push(0, &[0; 10], &meta).unwrap();
            assert_eq!(victim.seen(), [number], "{words:?}");
            let taken = victim.sender.take(pushed.index).unwrap();
            victim.sender.finish_for_good(&taken, Timestamp::ZERO).unwrap();
        }
    }
}

/// The seals keep the file's size and not its pages.
//= spec/ring.md R-TRUST-8
#[test]
fn holes_are_zeros_that_nobody_trusts() {
    let Victim { mut producer, mut sender, file } = victim();
    let region = producer.region().clone();
    let fd = || region.as_fd().unwrap().try_clone_to_owned().unwrap();
    assert!(Region::attach(fd()).is_ok());
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 0, region.total_bytes()).unwrap();
    assert!(file.set_len(0).is_err() && file.metadata().unwrap().len() == region.total_bytes());
    assert!(Region::attach(fd()).is_err(), "who comes finds no region");
    let mut queue = Vec::new();
    sender.queue(64, &mut queue);
    assert_eq!(queue, []);
    let pushed = (4..100).filter(|number| push(&mut producer, *number).is_ok()).count();
    assert!(producer.bad_values() > 0, "{pushed} pushed");
    drop(sender);
    producer.renew(0);
    let mut victim = Victim { sender: region.consumer(0).unwrap(), producer, file };
    let _notify = push(&mut victim.producer, 100).unwrap();
    assert_eq!(victim.seen(), [100]);
}

#[test]
fn a_scribbler_harms_nobody_but_itself() {
    let (mut bad, mut copied) = (0, 0);
    for seed in 1..=500 {
        let (bad_now, copied_now) = scribble_once(seed);
        bad += bad_now;
        copied += copied_now;
    }
    assert!(bad > 100, "the scribbler was met: {bad}");
    assert!(copied > 100, "and records were still taken: {copied}");
}

/// A producer and a sender work on a region while another thread writes random words into it. A few are also written
/// between their steps, because on a busy machine that thread may not get its turn.
fn scribble_once(seed: u64) -> (u64, u64) {
    let Victim { mut producer, mut sender, file } = victim();
    let region = sender.region().clone();
    let bounds = mapping(&region, &mut sender);
    let stop = AtomicBool::new(false);
    let total = region.total_bytes();
    let copied = thread::scope(|scope| {
        let _stops_at_the_end = Stop(&stop);
        scope.spawn(|| {
            let mut scribbler = Scribbler::new(&file, total, seed);
            while !stop.load(Ordering::Relaxed) {
                let pause = scribbler.write_one() % 50;
                // Pause: the scribbler writes at irregular times.
                thread::sleep(Duration::from_micros(pause));
            }
        });
        let mut scribbler = Scribbler::new(&file, total, seed + 1000);
        let mut copied = 0;
        for number in 0..300 {
            if number % 4 == seed % 4 {
                scribbler.write_one();
            }
            submit(&mut producer, number);
            copied += deliver(&mut sender, &bounds);
        }
        copied
    });
    let bad = sender.counters().bad_values() + producer.bad_values();
    // Whatever is left there, the roles can be claimed anew, or it is said why not.
    drop((producer, sender));
    drop((region.producer(), region.consumer(0)));
    (bad, copied)
}

/// Stops the scribbler also when an assertion fails, so that the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn submit(producer: &mut Producer, number: u64) {
    let meta = Meta { seq: number, key: number % 4, ..Meta::default() };
    let _refused_or_not = producer.push(0, &vec![1; (number % 200) as usize], &meta);
    let _refused_or_not = producer.replace(0, &[2; 60], &meta);
    producer.drop_seq(0, number / 2);
    if let Ok(mut edit) = producer.edit(0, number) {
        let _refused_or_not = edit.write(3, &[4; 40]);
        let _late_or_not = edit.release();
    }
    if number.is_multiple_of(8) {
        let _hold = producer.hold_from(0, number);
        let _notify = producer.release_hold(0);
        while producer.poll_fate(0).is_some() {}
    }
}

fn deliver(sender: &mut Consumer, bounds: &Range<usize>) -> u64 {
    let mut queue: Vec<Record> = Vec::new();
    sender.queue(64, &mut queue);
    assert!(queue.len() <= CONFIG.slots as usize);
    let mut copied = 0;
    for record in &queue {
        assert!(record.len <= CONFIG.slots * CONFIG.block_bytes);
        let Ok(taken) = sender.take(record.index) else { continue };
        let mut slices = Vec::new();
        sender.slices(&taken, 0, usize::MAX, &mut slices);
        assert_eq!(slices.iter().map(|slice| slice.len).sum::<usize>(), taken.record.len as usize);
        for slice in &slices {
            assert!(bounds.contains(&slice.ptr.addr()) && slice.ptr.addr() + slice.len <= bounds.end);
        }
        let mut payload = vec![0xA5; 64];
        let len = sender.copy(&taken, 0, taken.record.len as usize + 64, &mut payload);
        assert_eq!((len, payload.len()), (taken.record.len as usize, 64 + len));
        assert!(payload[..64].iter().all(|&byte| byte == 0xA5), "wrote in front of the place");
        sender.commit(&taken, Timestamp::ZERO, 0);
        let _late_or_not = sender.finish(&taken, Timestamp::ZERO);
        copied += 1;
    }
    let _late_or_not = sender.discard(0, Reason::Expired, Timestamp::ZERO);
    if sender.sleep() {
        sender.awake();
    }
    sender.recover();
    copied
}

/// Where the region is mapped, according to the kernel.
fn mapping(region: &Region, sender: &mut Consumer) -> Range<usize> {
    let taken = sender.take(0).unwrap();
    let mut slices = Vec::new();
    sender.slices(&taken, 0, 1, &mut slices);
    sender.finish(&taken, Timestamp::ZERO).unwrap();
    let inside = slices[0].ptr.addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let end = rest.split_once(' ')?.0;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        // Two mappings made one after the other may be printed as one: only the region's own size counts.
        (start..end).contains(&inside).then_some(start..end)
    });
    let range = range.unwrap();
    assert!(range.len() >= region.total_bytes() as usize);
    range
}

/// Random words, mostly where they hurt: states, descriptors and indexes, often near a value that would be right.
struct Scribbler<'a> {
    file: &'a File,
    total: u64,
    random: u64,
}

impl<'a> Scribbler<'a> {
    fn new(file: &'a File, total: u64, seed: u64) -> Self {
        Self { file, total, random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Writes a word; returns a random number.
    fn write_one(&mut self) -> u64 {
        let slot = SLOTS + self.next() % 16 * SLOT;
        let word = self.next();
        let (at, word) = match self.next() % 8 {
            0 => (self.next(), word),
            1 => (slot, word % 16),
            2 => (slot, (word % 64) << 32 | (self.next() % 8)),
            3 => (slot + 40, word % 64),
            4 => (slot + 56, word),
            5 => (RING, word % 600),
            6 => (RING + 64 * (self.next() % 6), word % 600),
            _ => (slot + self.next() % 128, word),
        };
        self.file.write_all_at(&word.to_ne_bytes(), at % (self.total - 8)).unwrap();
        self.next()
    }
}
