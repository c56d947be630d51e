//! A virtual-time link, a sender on it, streams with a ladder, and an oracle.

use std::time::Duration;

use freshwire_choice::{Choice, Decision, LinkView, Outcome, Record};
use freshwire_record::{Rate, Timestamp};

const MS: u64 = 1_000_000;
const DIP_END: u64 = 12_000 * MS;
const CHUNK: u32 = 1448;
/// Bytes that the sender keeps in the bottleneck's queue.
const QUEUE: u64 = 6000;
const DEADLINE: u64 = 300 * MS;
const MEAN_LEN: f64 = 4e6 / 8.0 / 30.0;

/// A path: a rate that changes in steps, a fixed delay, a queue that the sender keeps filled.
pub(crate) struct Link {
    /// (from this ns on, bits per second), ascending.
    steps: Vec<(u64, u64)>,
    pub(crate) rtt: u64,
    queue: u64,
}

impl Link {
    pub(crate) fn constant(bits: u64, rtt_ms: u64) -> Self {
        Self { steps: vec![(0, bits)], rtt: rtt_ms * MS, queue: QUEUE }
    }

    /// 6, 1, 6 Mbit/s; 5 s of 1 Mbit/s.
    pub(crate) fn dip(rtt_ms: u64) -> Self {
        let steps = vec![(0, 6_000_000), (DIP_END - 5000 * MS, 1_000_000), (DIP_END, 6_000_000)];
        Self { steps, rtt: rtt_ms * MS, queue: QUEUE }
    }

    /// When `bytes` that begin at `start` have left.
    pub(crate) fn end(&self, start: u64, bytes: u64) -> u64 {
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

/// A kind of stream.
pub(crate) struct Ladder {
    pub(crate) name: &'static str,
    shape: Shape,
    /// Frames from key to key.
    group: usize,
    /// Size of a key frame; other sizes are in [`Ladder::kind`].
    key: f64,
    /// Sizes vary evenly by this part.
    jitter: f64,
}

#[derive(Clone, Copy)]
enum Shape {
    /// Each frame depends on the one before.
    Line,
    /// P, B, b, b as x264 makes them with `b-pyramid=strict`.
    Pyramid,
    /// Temporal layers of equal size: each second frame can go, then each second of the rest.
    Temporal,
}

impl Ladder {
    pub(crate) const FLAT: Self = Self { name: "flat", shape: Shape::Line, group: 1, key: 1.0, jitter: 0.0 };
    pub(crate) const INTRA: Self = Self { name: "intra", jitter: 0.25, ..Self::FLAT };
    pub(crate) const LINE: Self = Self { name: "line", shape: Shape::Line, group: 30, key: 3.0, jitter: 0.2 };
    pub(crate) const PYRAMID: Self =
        Self { name: "pyramid", shape: Shape::Pyramid, group: 61, key: 4.0, jitter: 0.2 };
    pub(crate) const TEMPORAL: Self =
        Self { name: "temporal", shape: Shape::Temporal, group: 32, key: 2.0, jitter: 0.2 };

    /// Size, layer and references of the frame at this place of a group.
    fn kind(&self, at: usize) -> (f64, u8, [u32; 2]) {
        match self.shape {
            _ if at == 0 => (self.key, 0, [0, 0]),
            Shape::Line => (1.0, 1, [1, 0]),
            Shape::Temporal => match at % 4 {
                0 => (1.0, 1, [4, 0]),
                2 => (1.0, 2, [2, 0]),
                _ => (1.0, 3, [1, 0]),
            },
            Shape::Pyramid => match (at - 1) % 4 {
                0 => (2.0, 1, [if at == 1 { 1 } else { 4 }, 0]),
                1 => (1.0, 2, [1, if at == 2 { 2 } else { 5 }]),
                2 => (0.5, 3, [1, if at == 3 { 3 } else { 6 }]),
                _ => (0.5, 3, [2, 3]),
            },
        }
    }

    pub(crate) fn frames(&self, count: usize, seed: u64) -> Vec<Record> {
        let weights: f64 = (0..self.group).map(|at| self.kind(at).0).sum::<f64>() / self.group as f64;
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..count)
            .map(|index| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let noise = 1.0 + self.jitter * ((random >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
                let (weight, layer, refs) = self.kind(index % self.group);
                let generated = index as u64 * 1_000_000_000 / 30;
                Record {
                    index: index as u64,
                    seq: index as u64,
                    len: (MEAN_LEN * weight / weights * noise) as u32,
                    layer,
                    group: (index / self.group) as u32,
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
pub(crate) struct Score {
    /// Frames whole, decodable and on time.
    pub(crate) on_time: usize,
    /// Frames that were sent and late.
    pub(crate) late: usize,
    /// From the end of a dip to the first frame on time.
    pub(crate) recovery: Option<Duration>,
    /// Most frames in a row that were not on time.
    pub(crate) longest_gap: usize,
}

/// A sender with a small reserve on a link.
pub(crate) struct Run<'a> {
    link: &'a Link,
    link_free: u64,
    /// Chunks sent: (end of serialisation, bytes, serialisation time).
    sent: Vec<(u64, u64, u64)>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(link: &'a Link) -> Self {
        Self { link, link_free: 0, sent: Vec::new() }
    }

    /// What a sender can know: acknowledgements come a round trip after serialisation; the rate is the mean over the
    /// last 100 ms of them.
    fn view(&self, now: u64) -> LinkView {
        let acked = self.sent.partition_point(|chunk| chunk.0 + self.link.rtt <= now);
        let in_flight = self.sent[acked..].iter().map(|chunk| chunk.1).sum();
        let newest = self.sent[..acked].last().map_or(0, |chunk| chunk.0);
        let recent = self.sent[..acked].iter().rev().take_while(|chunk| chunk.0 + 100 * MS >= newest);
        let (bytes, time) = recent.fold((0, 0), |sum, chunk| (sum.0 + chunk.1, sum.1 + chunk.2));
        let rate = (acked > 0).then(|| Rate::from_bits_per_sec(bytes * 8 * 1_000_000_000 / time.max(1)));
        let rtt = Duration::from_nanos(self.link.rtt);
        LinkView { rate, rtt, min_rtt: rtt, in_flight, ..LinkView::default() }
    }

    /// When the queue has room for another chunk.
    fn room_at(&self, now: u64) -> u64 {
        let mut at = now;
        while at < self.link_free && self.link.end(at, self.link.queue) < self.link_free {
            at += MS / 4;
        }
        at
    }

    pub(crate) fn play(self, frames: &[Record], choice: &mut dyn Choice) -> (Score, Vec<Decision>) {
        let offers: Vec<u64> = frames.iter().map(|frame| frame.generated.as_nanos()).collect();
        let (arrivals, decisions) = self.play_offered(frames, &offers, choice);
        (score(frames, &arrivals), decisions)
    }

    /// When each frame arrived whole, if it was sent, and the decisions. `offers` tells when each is there to be sent.
    pub(crate) fn play_offered(
        mut self,
        frames: &[Record],
        offers: &[u64],
        choice: &mut dyn Choice,
    ) -> (Vec<Option<u64>>, Vec<Decision>) {
        let mut decisions = Vec::new();
        let mut queue: Vec<Record> = Vec::new();
        let mut arrivals = vec![None; frames.len()];
        let (mut now, mut offered) = (0, 0);
        for _ in 0..40 * frames.len() {
            now = self.room_at(now);
            while offered < frames.len() && offers[offered] <= now {
                queue.push(frames[offered]);
                offered += 1;
            }
            let next = offers.get(offered).copied();
            let decision = choice.pick(Timestamp::from_nanos(now), &queue, &self.view(now));
            decisions.push(decision);
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
        (arrivals, decisions)
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
        let since_dip = frame.generated.as_nanos().checked_sub(DIP_END);
        if let (true, Some(_), None) = (on_time, since_dip, score.recovery) {
            let shown = ready.unwrap_or_default().saturating_sub(DIP_END);
            score.recovery = Some(Duration::from_nanos(shown));
        }
        gap = if on_time { 0 } else { gap + 1 };
        score.longest_gap = score.longest_gap.max(gap);
    }
    score
}

/// The most frames that can be whole, decodable and on time for a sender that knows all sizes and rates
/// beforehand. Found by dynamic programming over the references at hand and the time at which the link is
/// free. It also sends frames late for the sake of their dependants.
pub(crate) fn oracle(frames: &[Record], link: &Link) -> usize {
    let mut states: Vec<(u64, u64, usize)> = vec![(0, 0, 0)];
    for (index, frame) in frames.iter().enumerate() {
        // Bit d - 1 is the frame d - 1 before this one.
        let later = || frames.iter().skip(index + 1).take(16);
        let is_needed =
            |d: u64| later().any(|f| f.references().flatten().any(|seq| seq + d == frame.seq + 1));
        let needed = (1..16).filter(|&d| is_needed(d)).fold(0, |mask, d| mask | 1 << (d - 1));
        let generated = frame.generated.as_nanos();
        let mut next = Vec::new();
        for &(mask, end, count) in &states {
            next.push(((mask << 1) & needed, end.max(generated), count));
            let at_hand = frame.refs.iter().all(|&d| d == 0 || mask & 1 << (d - 1) != 0);
            let end = link.end(end.max(generated), u64::from(frame.len));
            let on_time = end + link.rtt / 2 <= frame.deadline.as_nanos();
            if at_hand && (on_time || needed & 1 != 0) {
                next.push((((mask << 1) | 1) & needed, end, count + usize::from(on_time)));
            }
        }
        next.sort_unstable_by_key(|&(mask, end, count)| (mask, end, usize::MAX - count));
        states.clear();
        for state in next {
            if states.last().is_none_or(|kept| kept.0 != state.0 || kept.2 < state.2) {
                states.push(state);
            }
        }
    }
    states.iter().map(|state| state.2).max().unwrap_or(0)
}
