//! A virtual-time link, a sender on it, streams with a ladder, and an oracle.

use std::time::Duration;

use freshwire_choice::{Choice, Decision, LinkView, Outcome, Record};
use freshwire_units::{Rate, Timestamp};

const MS: u64 = 1_000_000;
const CHUNK: u32 = 1448;
const DEADLINE: u64 = 300 * MS;
const MEAN_LEN: f64 = 4e6 / 8.0 / 30.0;

/// A path: a rate that changes in steps, a fixed delay, a queue that the sender keeps filled.
pub struct Link {
    /// (from this ns on, bits per second), ascending.
    steps: Vec<(u64, u64)>,
    rtt: u64,
    queue: u64,
}

impl Link {
    pub fn constant(bits: u64, rtt_ms: u64) -> Self {
        Self { steps: vec![(0, bits)], rtt: rtt_ms * MS, queue: std::env::var("Q").map_or(6000,|q|q.parse().unwrap()) }
    }

    /// 6, 1, 6 Mbit/s; 5 s of 1 Mbit/s.
    pub fn dip(rtt_ms: u64) -> Self {
        let steps = vec![(0, 6_000_000), (7000 * MS, 1_000_000), (12000 * MS, 6_000_000)];
        Self { steps, rtt: rtt_ms * MS, queue: std::env::var("Q").map_or(6000,|q|q.parse().unwrap()) }
    }

    /// When `bytes` that begin at `start` have left.
    fn end(&self, start: u64, bytes: u64) -> u64 {
        let mut bits = bytes as f64 * 8.0;
        let mut at = start;
        for (index, &(from, rate)) in self.steps.iter().enumerate() {
            let until = self.steps.get(index + 1).map_or(u64::MAX, |step| step.0);
            if at >= until || from > at {
                continue;
            }
            let room = (until - at) as f64 * rate as f64 / 1e9;
            if bits <= room {
                return at + (bits * 1e9 / rate as f64) as u64;
            }
            bits -= room;
            at = until;
        }
        at
    }
}

/// A kind of stream: the repeating pattern of (size weight, layer, refs).
pub struct Ladder {
    pub name: &'static str,
    gop: usize,
    key: f64,
    bframes: bool,
    jitter: f64,
}

impl Ladder {
    pub const ALL: [Self; 8] = [
        Self { name: "flat", gop: 1, key: 1.0, bframes: false, jitter: 0.0 },
        Self { name: "flat-jit", gop: 1, key: 1.0, bframes: false, jitter: 0.25 },
        Self { name: "ippp30", gop: 30, key: 3.0, bframes: false, jitter: 0.2 },
        Self { name: "ladder33", gop: 33, key: 4.0, bframes: true, jitter: 0.2 },
        Self { name: "ladder61", gop: 61, key: 4.0, bframes: true, jitter: 0.2 },
        Self { name: "ladder61-", gop: 61, key: 2.5, bframes: true, jitter: 0.4 },
        Self { name: "t3-32", gop: 32, key: 2.0, bframes: false, jitter: 0.2 },
        Self { name: "t3-64", gop: 64, key: 3.0, bframes: false, jitter: 0.2 },
    ];

    fn kind(&self, at: usize) -> (f64, u8, [u32; 2]) {
        if at == 0 {
            return (self.key, 0, [0, 0]);
        }
        if self.name.starts_with("t3") {
            // Temporal layers: each second frame can go, then each second of the rest.
            return match at % 4 {
                0 => (1.0, 1, [4, 0]),
                2 => (1.0, 2, [2, 0]),
                _ => (1.0, 3, [1, 0]),
            };
        }
        if !self.bframes {
            return (1.0, 1, [1, 0]);
        }
        // Decode order of a mini group: P, B, b, b; display order b B b P.
        match (at - 1) % 4 {
            0 => (2.0, 1, [if at == 1 { 1 } else { 4 }, 0]),
            1 => (1.0, 2, [1, if at == 2 { 2 } else { 5 }]),
            2 => (0.5, 3, [1, if at == 3 { 3 } else { 6 }]),
            _ => (0.5, 3, [2, 3]),
        }
    }

    pub fn frames(&self, count: usize, seed: u64) -> Vec<Record> {
        let weights: f64 = (0..self.gop).map(|at| self.kind(at).0).sum::<f64>() / self.gop as f64;
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..count)
            .map(|index| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let noise = 1.0 + self.jitter * ((random >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
                let (weight, layer, refs) = self.kind(index % self.gop);
                let generated = index as u64 * 1_000_000_000 / 30;
                Record {
                    index: index as u64,
                    seq: index as u64,
                    len: (MEAN_LEN * weight / weights * noise) as u32,
                    layer,
                    group: (index / self.gop) as u32,
                    key: 0,
                    refs,
                    generated: Timestamp::from_nanos(generated),
                    deadline: Timestamp::from_nanos(generated + DEADLINE),
                }
            })
            .collect()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Frames whole, decodable and on time.
    pub on_time: usize,
    /// Frames that were sent and late.
    pub late: usize,
    /// Most frames in a row that were not on time.
    pub longest_gap: usize,
}

/// A sender with a small reserve on a link.
pub struct Run<'a> {
    link: &'a Link,
    link_free: u64,
    /// Chunks sent: (end of serialisation, bytes, serialisation time).
    sent: Vec<(u64, u64, u64)>,
}

impl<'a> Run<'a> {
    pub fn new(link: &'a Link) -> Self {
        Self { link, link_free: 0, sent: Vec::new() }
    }

    /// What a sender can know: acknowledgements come a round trip after serialisation; the rate is the mean over the
    /// last 100 ms of them.
    fn view(&self, now: u64) -> LinkView {
        if std::env::var("TRUE").is_ok() {
            let acked = self.sent.partition_point(|chunk| chunk.0 + self.link.rtt <= now);
            let in_flight = self.sent[acked..].iter().map(|chunk| chunk.1).sum();
            let at = self.link.steps.iter().rev().find(|s| s.0 <= now).unwrap().1;
            let rtt = Duration::from_nanos(self.link.rtt);
            return LinkView { rate: Some(Rate::from_bits_per_sec(at)), rtt, min_rtt: rtt, in_flight, unsent: 0, loss: 0.0 };
        }
        let acked = self.sent.partition_point(|chunk| chunk.0 + self.link.rtt <= now);
        let in_flight = self.sent[acked..].iter().map(|chunk| chunk.1).sum();
        let newest = self.sent[..acked].last().map_or(0, |chunk| chunk.0);
        let recent = self.sent[..acked].iter().rev().take_while(|chunk| chunk.0 + 100 * MS >= newest);
        let (bytes, time) = recent.fold((0, 0), |sum, chunk| (sum.0 + chunk.1, sum.1 + chunk.2));
        let rate = (acked > 0).then(|| Rate::from_bits_per_sec(bytes * 8 * 1_000_000_000 / time.max(1)));
        let rtt = Duration::from_nanos(self.link.rtt);
        LinkView { rate, rtt, min_rtt: rtt, in_flight, unsent: 0, loss: 0.0 }
    }

    /// When the queue has room for another chunk.
    fn room_at(&self, now: u64) -> u64 {
        let mut at = now;
        while at < self.link_free && self.link.end(at, self.link.queue) < self.link_free {
            at += MS / 4;
        }
        at
    }

    pub fn play(mut self, frames: &[Record], choice: &mut dyn Choice) -> Score {
        let mut queue: Vec<Record> = Vec::new();
        let mut arrivals = vec![None; frames.len()];
        let (mut now, mut offered) = (0, 0);
        loop {
            now = self.room_at(now);
            while offered < frames.len() && frames[offered].generated.as_nanos() <= now {
                queue.push(frames[offered]);
                offered += 1;
            }
            let next = frames.get(offered).map(|frame| frame.generated.as_nanos());
            let decision = choice.pick(Timestamp::from_nanos(now), &queue, &self.view(now));
            if std::env::var("TRACE").is_ok() && now > 3900*MS && now < 9000*MS {
                let v = self.view(now);
                println!("{:7.1} infl {:5} rate {:?} queue {:?} -> {decision:?}", now as f64/1e6, v.in_flight, v.rate.map(|r| r.bits_per_sec()/1000), queue.iter().map(|r| (r.seq, r.layer, r.len, (now-r.generated.as_nanos())/MS)).collect::<Vec<_>>());
            }
            match decision {
                Decision::Send(at) => {
                    let record = queue.remove(at);
                    choice.outcome(&record, Outcome::Sent);
                    now = self.send(now, &record);
                    arrivals[record.index as usize] = Some(self.link_free + self.link.rtt / 2);
                }
                Decision::Drop(at, reason) => choice.outcome(&queue.remove(at), Outcome::Dropped(reason)),
                Decision::Wait(_) if next.is_none() && queue.is_empty() => break,
                Decision::Wait(until) => {
                    let until = until.map_or(u64::MAX, Timestamp::as_nanos).min(next.unwrap_or(u64::MAX));
                    assert!(until > now, "a wait has to end");
                    now = until;
                }
            }
        }
        score(frames, &arrivals)
    }

    fn send(&mut self, mut now: u64, record: &Record) -> u64 {
        let mut left = record.len;
        while left > 0 {
            now = self.room_at(now);
            let bytes = left.min(CHUNK);
            let start = self.link_free.max(now);
            self.link_free = self.link.end(start, u64::from(bytes));
            self.sent.push((self.link_free, u64::from(bytes), self.link_free - start));
            left -= bytes;
        }
        now
    }
}

fn score(frames: &[Record], arrivals: &[Option<u64>]) -> Score {
    let mut score = Score::default();
    let mut usable: Vec<Option<u64>> = Vec::new();
    let mut gap = 0;
    for (frame, arrival) in frames.iter().zip(arrivals) {
        let ready = frame.references().try_fold(*arrival, |ready, reference| {
            let reference = usable[usize::try_from(reference?).ok()?]?;
            Some(ready.map(|ready: u64| ready.max(reference)))
        });
        let ready = ready.flatten();
        usable.push(ready);
        let on_time = ready.is_some_and(|ready| ready <= frame.deadline.as_nanos());
        score.late += usize::from(arrival.is_some() && !on_time);
        score.on_time += usize::from(on_time);
        if std::env::var("G").is_ok() { if frame.is_key() { print!(" | {}:", frame.len) } print!("{}", if on_time { char::from(b'0'+frame.layer) } else if arrival.is_some() { 'L' } else { '.' }) }
        gap = if on_time { 0 } else { gap + 1 };
        score.longest_gap = score.longest_gap.max(gap);
    }
    score
}

/// The most frames that can be whole, decodable and on time. With `late_references` a frame may also be sent late for
/// the sake of those that depend on it.
pub fn oracle(frames: &[Record], link: &Link, late_references: bool) -> usize {
    // (references at hand as a mask of distances, end of serialisation, frames on time)
    let mut states: Vec<(u64, u64, usize)> = vec![(0, 0, 0)];
    for (index, frame) in frames.iter().enumerate() {
        let needed = (1..16).filter(|&d| frames.iter().skip(index + 1).take(16).any(|later| {
            later.references().flatten().any(|seq| seq + d == frame.seq + 1)
        })).fold(0u64, |mask, d| mask | 1 << (d - 1));
        let mut next = Vec::new();
        for &(mask, end, count) in &states {
            next.push(((mask << 1) & needed, end, count));
            let at_hand = frame.refs.iter().all(|&d| d == 0 || mask & 1 << (d - 1) != 0);
            if at_hand {
                let end = link.end(end.max(frame.generated.as_nanos()), u64::from(frame.len));
                let on_time = end + link.rtt / 2 <= frame.deadline.as_nanos();
                if on_time || late_references && end <= frame.generated.as_nanos() + 2 * DEADLINE {
                    next.push((((mask << 1) | 1) & needed, end, count + usize::from(on_time)));
                }
            }
        }
        next.sort_unstable_by_key(|&(mask, end, count)| (mask, end, usize::MAX - count));
        states.clear();
        for state in next {
            let state = (state.0, state.1.max(frame.generated.as_nanos()), state.2);
            if states.last().is_none_or(|kept| kept.0 != state.0 || kept.2 < state.2) {
                states.push(state);
            }
        }
    }
    states.iter().map(|state| state.2).max().unwrap_or(0)
}
