//! The choice between renditions in virtual time: a stream of three, a path with a queue, and what a screen shows.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use freshwire_choice::{
    Adaptive, Choice as _, Decision, LinkView, Outcome, RENDITION_BITS, Record, Selected, rendition_of,
};
use freshwire_record::{Rate, Timestamp};

/// Number of the first sound.
const SOUND: u64 = 1 << 62;

/// Pictures are 40 ms apart, key frames 2 s.
const GROUP: u64 = 50;
const MS: u64 = 1_000_000;
/// What the path's queue holds.
const QUEUE: f64 = 15_000.0;
/// What a ring holds.
const SLOTS: usize = 256;
const RTT: u64 = 20;
const SEGMENT: f64 = 1448.0;

/// A rendition: bits a second, and which part of a group its key frame is.
#[derive(Clone, Copy)]
struct Rendition {
    kbit: f64,
    key: f64,
    /// In pictures: key frames of renditions need not coincide.
    shift: u64,
    /// It has no source from and until these times, in ms.
    away: (u64, u64),
    /// How old its pictures are when they come, in ms.
    delay: u64,
}

const fn rendition(kbit: f64, shift: u64) -> Rendition {
    Rendition { kbit, key: 0.3, shift, away: (u64::MAX, u64::MAX), delay: 0 }
}

const THREE: [Rendition; 3] = [rendition(1000.0, 0), rendition(400.0, 17), rendition(150.0, 31)];

impl Rendition {
    fn len(&self, picture: u64) -> u32 {
        let group = self.kbit * 1000.0 / 8.0 * GROUP as f64 / 25.0;
        let is_key = (picture + self.shift).is_multiple_of(GROUP);
        let share = if is_key { self.key } else { (1.0 - self.key) / (GROUP - 1) as f64 };
        // P pictures differ.
        let swing = if is_key { 1.0 } else { [0.6, 1.4, 1.0][picture as usize % 3] };
        (group * share * swing) as u32
    }
}

/// What a run showed.
#[derive(Debug, Default)]
struct Observation {
    /// (ms, rendition)
    changes: Vec<(u64, usize)>,
    /// (arrival, generated) in ms.
    shown: Vec<(u64, u64)>,
    /// Age on the screen, each 10 ms.
    ages: Vec<(u64, u64)>,
    sound: usize,
}

impl Observation {
    fn age(&self, from: u64, until: u64) -> (f64, u64) {
        let mut ages: Vec<u64> =
            self.ages.iter().filter(|(at, _)| (from..until).contains(at)).map(|&(_, age)| age).collect();
        ages.sort_unstable();
        let mean = ages.iter().sum::<u64>() as f64 / ages.len().max(1) as f64;
        (mean, ages.get(ages.len() * 95 / 100).copied().unwrap_or(u64::MAX))
    }

    fn pictures(&self, from: u64, until: u64) -> f64 {
        let count = self.shown.iter().filter(|(at, _)| (from..until).contains(at)).count();
        count as f64 * 1000.0 / (until - from) as f64
    }

    fn longest_gap(&self, from: u64, until: u64) -> u64 {
        let times = self.shown.iter().map(|&(at, _)| at).filter(|at| (from..until).contains(at));
        let times: Vec<u64> = times.collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX)
    }
}

/// The hub's part for one receiver: pictures of the present rendition, and of the wanted one from its next key frame on.
#[derive(Default)]
struct Seat {
    /// The number that each rendition began with.
    first_shown: [Option<u64>; 3],
}

impl Seat {
    fn wants(&mut self, policy: &Adaptive, record: &Record) -> bool {
        let Selected { current, wanted, .. } = policy.selection().get();
        let this = rendition_of(record.seq).expect("a picture");
        for (at, first) in self.first_shown.iter_mut().enumerate() {
            if Some(at) != current && Some(at) != wanted {
                *first = None;
            }
        }
        if Some(this) != current && Some(this) != wanted {
            return false;
        }
        if record.is_key() {
            self.first_shown[this].get_or_insert(record.seq);
        }
        self.first_shown[this].is_some()
    }
}

struct World<'a> {
    renditions: &'a [Rendition],
    /// Bits a second at a time in ms.
    rate: &'a dyn Fn(u64) -> f64,
    has_sound: bool,
}

/// What the sender knows of its path, estimated as the engine does.
#[derive(Default)]
struct Path {
    /// Payload of committed records that has not left: (seq, generated in ms, key, refs, bytes left).
    committed: Vec<(Record, f64)>,
    on_wire: f64,
    unsent: f64,
    /// Bytes delivered in each ms of the last round trip, whose acknowledgements are on their way.
    unacked: VecDeque<f64>,
    bytes: f64,
    seconds: f64,
    rate_at: u64,
    /// What the queue adds to the round trip, in ms, smoothed as the kernel does: over eight acknowledgements.
    queued: f64,
}

impl Path {
    fn view(&self, now: u64) -> LinkView {
        let fresh = self.seconds > 1e-6 && now - self.rate_at < 500;
        LinkView {
            rate: fresh.then(|| Rate::from_bytes_per_sec((self.bytes / self.seconds) as u64)),
            rtt: Duration::from_secs_f64((RTT as f64 + self.queued) / 1000.0),
            min_rtt: Duration::from_millis(RTT),
            in_flight: (self.on_wire + self.unacked.iter().sum::<f64>()) as u64,
            unsent: self.unsent as u64,
            ..LinkView::default()
        }
    }

    /// Lets a millisecond pass; gives what has left wholly.
    fn pass(&mut self, now: u64, bits: f64) -> Vec<Record> {
        let moved = self.unsent.min(QUEUE - self.on_wire);
        (self.unsent, self.on_wire) = (self.unsent - moved, self.on_wire + moved);
        let per_ms = (bits / 8000.0).max(1e-6);
        if self.on_wire > 0.0 {
            let acks = (per_ms / SEGMENT / 8.0).min(1.0);
            self.queued += (self.on_wire / per_ms - self.queued) * acks;
        }
        let mut left = (bits / 8000.0).min(self.on_wire);
        if self.on_wire > SEGMENT {
            let keep = (-0.001_f64 / 0.2).exp();
            (self.bytes, self.seconds) = (self.bytes * keep + left, self.seconds * keep + 0.001);
            self.rate_at = now;
        }
        self.on_wire -= left;
        self.unacked.push_back(left);
        if self.unacked.len() > RTT as usize {
            self.unacked.pop_front();
        }
        let mut gone = Vec::new();
        while let Some((record, rest)) = self.committed.first_mut() {
            let part = left.min(*rest);
            (left, *rest) = (left - part, *rest - part);
            if *rest > 1e-6 {
                break;
            }
            gone.push(*record);
            self.committed.remove(0);
        }
        gone
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * MS)
}

impl World<'_> {
    /// The units that come at this time.
    fn units(&self, ms: u64, next: &mut [u64; 4]) -> Vec<Record> {
        let mut units = Vec::new();
        if self.has_sound && ms.is_multiple_of(21) {
            units.push(Record {
                len: 250,
                generated: at(ms),
                deadline: at(ms + 1250),
                ..Record::numbered(SOUND + next[3])
            });
            next[3] += 1;
        }
        for (number, rendition) in self.renditions.iter().enumerate() {
            let offset = 5 * number as u64;
            let is_away = (rendition.away.0..rendition.away.1).contains(&ms);
            if ms % 40 != offset || is_away {
                continue;
            }
            let picture = ms / 40;
            let key = (picture + rendition.shift).is_multiple_of(GROUP);
            next[number] += 1;
            let seq = ((number as u64) << RENDITION_BITS) + next[number];
            let refs = [u32::from(!key), 0];
            let layer = u8::from(!key);
            let (generated, deadline) = (at(ms - rendition.delay.min(ms)), at(ms + 4000));
            let len = rendition.len(picture);
            units.push(Record { len, refs, layer, generated, deadline, ..Record::numbered(seq) });
        }
        units
    }

    /// Runs from before the receiver joins at 6 s; times in what was seen count from then.
    fn run(&self, seconds: u64) -> Observation {
        let stream = Adaptive::default();
        (0..self.renditions.len()).for_each(|rendition| stream.set_present(rendition, true));
        let mut policy = None;
        let (mut seat, mut path, mut queue) = (Seat::default(), Path::default(), Vec::<Record>::new());
        let (mut next, mut seen, mut have) = ([0; 4], Observation::default(), BTreeSet::new());
        let mut newest = None;
        let delay = self.renditions.iter().map(|rendition| rendition.delay).max().unwrap_or(0);
        for ms in 0..(JOIN + seconds * 1000) {
            for (number, rendition) in self.renditions.iter().enumerate() {
                for (edge, is_present) in [(rendition.away.0, false), (rendition.away.1, true)] {
                    if ms == edge.saturating_add(200) {
                        stream.set_present(number, is_present);
                    }
                }
            }
            let units = self.units(ms, &mut next);
            units.iter().for_each(|unit| stream.observe(unit.generated, unit));
            if ms < JOIN {
                continue;
            }
            let policy = policy.get_or_insert_with(|| stream.for_another(u8::MAX));
            for unit in units {
                let is_wanted = unit.seq >= SOUND || seat.wants(policy, &unit);
                if is_wanted && queue.len() < SLOTS {
                    queue.push(unit);
                } else if let Some(rendition) = rendition_of(unit.seq).filter(|_| is_wanted) {
                    seat.first_shown[rendition] = None;
                }
            }
            let now = ms - JOIN;
            while path.unsent < SEGMENT {
                match policy.pick(at(ms), &queue, &path.view(ms)) {
                    Decision::Wait(_) => break,
                    Decision::Drop(place, reason) => {
                        let record = queue.remove(place);
                        policy.outcome(&record, Outcome::Dropped(reason));
                    }
                    Decision::Send(place) => {
                        let record = queue.remove(place);
                        let before = policy.selection().get().current;
                        policy.outcome(&record, Outcome::Sent);
                        let after = policy.selection().get().current;
                        if before != after {
                            seen.changes.push((now, after.expect("changed")));
                        }
                        path.unsent += f64::from(record.len);
                        path.committed.push((record, f64::from(record.len)));
                    }
                }
            }
            for record in path.pass(ms, (self.rate)(now)) {
                if record.seq >= SOUND {
                    seen.sound += 1;
                    continue;
                }
                let whole = record.references().all(|seq| have.contains(&seq.expect("within the stream")));
                assert!(whole, "a receiver cannot decode {record:?}");
                if record.is_key() {
                    have.clear();
                }
                have.insert(record.seq);
                let generated = (record.generated.as_nanos() / MS).saturating_sub(JOIN);
                assert!(newest.is_none_or(|newest| newest <= generated + delay), "the picture goes back");
                newest = Some(generated);
                seen.shown.push((now + RTT / 2, generated));
            }
            if let (true, Some(newest)) = (ms % 10 == 0, newest) {
                seen.ages.push((now, now + RTT / 2 - newest));
            }
        }
        seen
    }
}

/// The receiver joins when the stream is known.
const JOIN: u64 = 6000;

fn world<'a>(renditions: &'a [Rendition], rate: &'a dyn Fn(u64) -> f64) -> World<'a> {
    World { renditions, rate, has_sound: false }
}

/// Links of 1.3 times the lowest and more, as the issue has it.
#[test]
fn on_any_constant_link_the_picture_moves_and_is_fresh() {
    for kbit in [195, 230, 300, 450, 520, 600, 800, 1000, 1100, 1300, 1500, 2500, 8000, 100_000] {
        let seen = world(&THREE, &|_| f64::from(kbit) * 1000.0).run(60);
        let (mean, p95) = seen.age(2000, 60_000);
        let pictures = seen.pictures(2000, 60_000);
        let gap = seen.longest_gap(2000, 60_000);
        println!("{kbit}: {mean:.0} {p95} ms, {pictures:.1}/s, gap {gap} ms, {:?}", seen.changes);
        assert!(mean <= 500.0 && p95 <= 900, "{kbit} kbit/s: {mean} and {p95} ms");
        assert!(pictures >= 22.0, "{kbit} kbit/s: {pictures} pictures a second");
        assert!(gap <= 700, "{kbit} kbit/s: a freeze of {gap} ms");
        let late: Vec<u64> = seen.changes.iter().map(|&(at, _)| at).filter(|&at| at > 10_000).collect();
        assert!(late.windows(2).all(|pair| pair[1] - pair[0] >= 10_000), "{kbit} kbit/s: {late:?}");
    }
}

/// Key frames so small that they say little of a fast path.
#[test]
fn small_key_frames_do_not_keep_a_receiver_small() {
    let small = Rendition { key: 0.1, ..rendition(60.0, 31) };
    let renditions = [rendition(4000.0, 0), rendition(300.0, 17), small];
    for (kbit, best) in [(50_000, 0), (450, 1), (200, 2)] {
        let seen = world(&renditions, &|_| f64::from(kbit) * 1000.0).run(60);
        println!("{kbit}: {:?}", seen.changes);
        assert_eq!(seen.changes.last().map(|change| change.1), Some(best), "{kbit}: {:?}", seen.changes);
        assert!(seen.longest_gap(12_000, 60_000) <= 700, "{kbit}: {:?}", seen.changes);
    }
}

/// A picture moves again if this number of pictures came in the second before.
fn moves_again(seen: &Observation, from: u64) -> u64 {
    let moves = |&at: &u64| seen.pictures(at, at + 1000) >= 22.0 && seen.longest_gap(at, at + 1000) <= 300;
    (from..from + 20_000).step_by(20).find(moves).map_or(u64::MAX, |at| at - from)
}

#[test]
fn after_a_drop_the_picture_moves_again() {
    // Wherever in a group it comes.
    for drop_at in (20_000..22_000).step_by(130) {
        let rate = move |ms| if ms < drop_at { 1_500_000.0 } else { 300_000.0 };
        let seen = world(&THREE, &rate).run(60);
        let after = moves_again(&seen, drop_at);
        println!("{drop_at}: moves after {after} ms, {:?}", seen.changes);
        // What the path has taken of a large key frame cannot be taken back, and a key frame comes every 2 s.
        assert!(after <= 3000, "{after} ms after the drop at {drop_at}: {:?}", seen.changes);
        let (mean, p95) = seen.age(drop_at + 5000, 60_000);
        assert!(mean <= 500.0 && p95 <= 900, "{mean} and {p95} ms after the drop at {drop_at}");
        assert_eq!(seen.changes.last().map(|change| change.1), Some(2));
    }
}

#[test]
fn a_path_that_becomes_faster_gets_more() {
    let rate = |ms| if ms < 20_000 { 250_000.0 } else { 3_000_000.0 };
    let seen = world(&THREE, &rate).run(60);
    let last = seen.changes.last().copied().expect("changes");
    assert!(last.1 == 0 && (20_000..40_000).contains(&last.0), "{:?}", seen.changes);
}

#[test]
fn a_noisy_path_does_not_change_all_the_time() {
    for (low, high) in [(300, 900), (500, 2000), (150, 600), (900, 1400)] {
        // A new rate every 200 ms.
        let rate = move |ms: u64| {
            let noise = (ms / 200).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            1000.0 * (low + noise % (high - low)) as f64
        };
        let seen = world(&THREE, &rate).run(120);
        println!("{low}..{high}: {:?} {:?}", seen.age(2000, 120_000), seen.changes);
        let late = seen.changes.iter().filter(|&&(at, _)| at > 10_000).count();
        assert!(late <= 11, "{low} to {high} kbit/s: {:?}", seen.changes);
        let (mean, _) = seen.age(2000, 120_000);
        assert!(mean <= 600.0, "{low} to {high} kbit/s: {mean} ms");
    }
}

#[test]
fn a_vanished_rendition_is_left_and_a_returning_one_is_taken() {
    let away = Rendition { away: (20_000, 40_000), ..THREE[0] };
    let seen = world(&[away, THREE[1], THREE[2]], &|_| 5e6).run(60);
    let had = |at: u64| seen.changes.iter().take_while(|change| change.0 <= at).last().map(|change| change.1);
    // It joined 6 s before these times.
    assert_eq!([10_000, 17_000, 55_000].map(had), [Some(0), Some(1), Some(0)], "{:?}", seen.changes);
    assert!(seen.longest_gap(2000, 60_000) < 2700, "{} ms", seen.longest_gap(2000, 60_000));
}

#[test]
fn sound_is_never_late_for_a_change() {
    let rate = |ms| if ms / 15_000 % 2 == 0 { 2_000_000.0 } else { 400_000.0 };
    let seen = World { has_sound: true, ..world(&THREE, &rate) }.run(60);
    assert!(seen.changes.len() > 3, "{:?}", seen.changes);
    assert!(seen.sound >= 60_000 / 21 - 30, "{} frames", seen.sound);
}

/// An encoder of many pixels takes longer than the others, or a source was started later.
#[test]
fn a_rendition_that_is_always_behind_the_others_is_taken() {
    for delay in [1, 40, 300, 1500] {
        for best in 0..2 {
            let mut renditions = THREE;
            renditions[best].delay = delay;
            let rate = [5e6, 600_000.0][best];
            let seen = world(&renditions, &|_| rate).run(30);
            let last = seen.changes.last().map(|change| change.1);
            assert_eq!(last, Some(best), "{delay} ms: {:?}", seen.changes);
            assert!(seen.longest_gap(12_000, 30_000) <= 700, "{delay} ms: {:?}", seen.changes);
        }
    }
}

/// A whole group of the one before waits behind a key frame that takes seconds, and is wanted again then.
#[test]
fn the_picture_never_goes_back_with_a_change() {
    let rendition = |kbit, key, shift| Rendition { kbit, key, shift, away: (0, 0), delay: 0 };
    let renditions = [rendition(1084.0, 0.35, 175), rendition(468.0, 0.58, 138), rendition(124.0, 0.69, 177)];
    let rates = [222, 10, 25, 98, 0, 0, 0, 0];
    let rate = |ms: u64| 8000.0 * f64::from(rates[(ms / 1500) as usize % rates.len()]);
    // `run` asserts it.
    let seen = World { has_sound: true, ..world(&renditions, &rate) }.run(12);
    assert!(seen.changes.len() >= 2, "{:?}", seen.changes);
}

/// Whatever the renditions and the path are, and however units are lost before the queue: nothing is sent that the receiver
/// cannot decode, which `run` asserts.
#[test]
fn never_what_cannot_be_decoded() {
    type Case = ([(u8, u8, u8); 3], [u8; 8], [u16; 2]);
    bolero::check!().with_iterations(60).with_type::<Case>().for_each(|&(kinds, rates, away)| {
        let renditions = kinds.map(|(rate, key, shift)| Rendition {
            kbit: 20.0 + 8.0 * f64::from(rate),
            key: 0.02 + f64::from(key) / 300.0,
            shift: shift.into(),
            away: (u64::from(away[0]), u64::from(away[0]) + u64::from(away[1])),
            delay: 0,
        });
        let renditions = [renditions[0], Rendition { away: (0, 0), ..renditions[1] }, renditions[2]];
        let rate = |ms: u64| 1000.0 * 8.0 * f64::from(rates[(ms / 1500) as usize % rates.len()]);
        World { has_sound: rates[0] % 2 == 0, ..world(&renditions, &rate) }.run(12);
    });
}
