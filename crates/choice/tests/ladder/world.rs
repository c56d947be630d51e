//! A stream of renditions, a viewer's seat in it, and the engine that serves the seat over a connection.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_choice::{
    Adaptive, Choice as _, Decision, Outcome, RENDITION_BITS, Record, Selected, rendition_of,
};
use freshwire_link::{Config, Loss};
use freshwire_record::{Rate, Timestamp};

use crate::estimate::Estimate;
use crate::tcp::{Flow, HEADERS, MSS, Wire};

const SOUND: u64 = 1 << 62;
const PICTURE: Duration = Duration::from_millis(40);
/// AAC of 64 kbit/s in frames of 21 ms.
const SOUND_FRAME: (Duration, u32) = (Duration::from_millis(21), 170);
const SLOTS: usize = 256;
const QUEUE_TARGET: Duration = Duration::from_millis(50);
const RENDITIONS: usize = 3;

/// A ladder over a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    /// Bits a second of the pictures, highest first.
    pub(crate) rates: [f64; RENDITIONS],
    /// Rate of the link, in IP packets.
    pub(crate) link: f64,
    pub(crate) delay: Duration,
    pub(crate) loss: f64,
    pub(crate) key_interval: Duration,
    /// Size of a keyframe in mean pictures.
    pub(crate) key: f64,
    pub(crate) has_sound: bool,
    /// The viewer joins before anything is known, and starts with the highest rendition.
    pub(crate) is_early: bool,
    /// Keyframes of the renditions do not coincide.
    pub(crate) is_shifted: bool,
    pub(crate) beside: CrossTraffic,
    pub(crate) seed: u64,
}

/// What else is on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrossTraffic {
    Nothing,
    /// A download, from 10 to 40 s after the viewer.
    Download,
    /// Another viewer of the same stream.
    Viewer,
}

/// What a viewer saw.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// When it changed to which rendition; times count from the first picture's arrival on.
    pub(crate) changes: Vec<(Duration, usize)>,
    /// Arrival and age of each picture.
    pub(crate) shown: Vec<(Duration, Duration)>,
}

impl Observation {
    pub(crate) fn rendition(&self, at: Duration) -> Option<usize> {
        self.changes.iter().take_while(|change| change.0 <= at).last().map(|change| change.1)
    }

    /// Freezes of more than half a second, and seconds in them.
    pub(crate) fn freezes(&self, from: Duration) -> (usize, f64) {
        let times: Vec<Duration> = self.shown.iter().map(|shown| shown.0).filter(|&at| at >= from).collect();
        let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        gaps.filter(|gap| *gap > FREEZE).fold((0, 0.0), |(n, sum), gap| (n + 1, sum + gap.as_secs_f64()))
    }

    /// Median and 95th percentile of the screen's age.
    pub(crate) fn age(&self, from: Duration, until: Duration) -> (Duration, Duration) {
        let mut ages = Vec::new();
        let mut at = from;
        let mut next = 0;
        let mut captured: Option<Duration> = None;
        while at < until {
            while let Some(&(arrived, age)) = self.shown.get(next).filter(|shown| shown.0 <= at) {
                captured = captured.max(Some(arrived.saturating_sub(age)));
                next += 1;
            }
            ages.extend(captured.map(|captured| at.saturating_sub(captured)));
            at += Duration::from_millis(10);
        }
        ages.sort_unstable();
        let place = |share: usize| ages.get(ages.len() * share / 100).copied().unwrap_or(Duration::MAX);
        (place(50), place(95))
    }

    pub(crate) fn pictures(&self, from: Duration, until: Duration) -> f64 {
        let count = self.shown.iter().filter(|shown| (from..until).contains(&shown.0)).count();
        count as f64 / until.saturating_sub(from).as_secs_f64()
    }
}

pub(crate) const FREEZE: Duration = Duration::from_millis(700);

/// The hub's part for one viewer.
struct Viewer {
    policy: Adaptive,
    first_shown: [Option<u64>; RENDITIONS],
    queue: Vec<Record>,
    estimate: Estimate,
    calm_until: Timestamp,
    unseen: u64,
    open: Option<(Record, u64)>,
    /// End in the stream and record, of what was committed.
    committed: VecDeque<(u64, Record)>,
    written: u64,
    wake: Timestamp,
    seen: Observation,
    first: Option<Timestamp>,
    /// Pictures that arrived since the last key frame.
    have: std::collections::BTreeSet<u64>,
}

impl Viewer {
    fn new(policy: Adaptive) -> Self {
        Self {
            policy,
            first_shown: [None; RENDITIONS],
            queue: Vec::new(),
            estimate: Estimate::default(),
            calm_until: Timestamp::ZERO,
            unseen: 0,
            open: None,
            committed: VecDeque::new(),
            written: 0,
            wake: Timestamp::MAX,
            seen: Observation::default(),
            first: None,
            have: Default::default(),
        }
    }

    fn offer(&mut self, record: Record, is_early: bool) {
        let Some(this) = rendition_of(record.seq) else {
            if self.first.is_some() {
                self.queue.push(record);
            }
            return;
        };
        let Selected { current, wanted, .. } = self.policy.selection().get();
        if (current, wanted) == (None, None) && record.is_key() && (this == 0 || !is_early) {
            self.policy.selection().want(this, freshwire_choice::Why::Start);
        }
        let Selected { current, wanted, .. } = self.policy.selection().get();
        for (at, first) in self.first_shown.iter_mut().enumerate() {
            if Some(at) != current && Some(at) != wanted {
                *first = None;
            }
        }
        if Some(this) != current && Some(this) != wanted {
            return;
        }
        if record.is_key() {
            self.first_shown[this].get_or_insert(record.seq);
        }
        if self.first_shown[this].is_none() {
            return;
        }
        if self.queue.len() < SLOTS {
            self.queue.push(record);
        } else {
            self.first_shown[this] = None;
        }
    }

    fn look(&mut self, now: Timestamp, flow: &Flow) {
        let info = flow.info(now);
        self.unseen = 0;
        if now < self.calm_until && info.unacked == 0 && info.unsent == 0 {
            self.estimate.all_delivered(now);
            return;
        }
        self.estimate.update(now, info);
        self.calm_until =
            if self.estimate.is_unlimited() { now + Duration::from_secs(1) } else { Timestamp::ZERO };
    }

    fn soon(&self, now: Timestamp) -> Timestamp {
        if now < self.calm_until {
            return now + Duration::from_millis(100);
        }
        let rtt = self.estimate.info().rtt / 4;
        now + rtt.clamp(Duration::from_millis(2), Duration::from_millis(25))
    }

    fn ack_watch(&self, now: Timestamp, flow: &Flow) -> Timestamp {
        if flow.timeout() == Timestamp::MAX && flow.unsent() == 0 {
            Timestamp::MAX
        } else if now < self.calm_until {
            now + Duration::from_millis(500)
        } else {
            self.soon(now)
        }
    }

    /// A turn of the engine.
    fn serve(&mut self, now: Timestamp, flow: &mut Flow, wire: &mut Wire) {
        for _ in 0..64 {
            self.look(now, flow);
            let unsent = flow.unsent();
            if unsent >= 1 {
                self.estimate.hold();
                self.wake = self.ack_watch(now, flow);
                return;
            }
            let info = self.estimate.info();
            let mut budget = 1;
            if now < self.calm_until {
                budget = u64::from(info.cwnd.saturating_sub(info.unacked)) * MSS;
                budget = budget.max(1);
            }
            if let Some(room) = self.estimate.room(QUEUE_TARGET, unsent) {
                budget = budget.min(room);
            }
            if budget == 0 {
                self.estimate.hold();
                self.wake = self.soon(now);
                return;
            }
            let planned = self.gather(now, budget);
            if planned == 0 {
                self.wake = self.wake.min(self.ack_watch(now, flow));
                return;
            }
            self.estimate.wrote();
            flow.write(now, planned, wire);
        }
        self.wake = now + Duration::from_millis(1);
    }

    /// Commits up to this and to a whole segment; how many bytes.
    fn gather(&mut self, now: Timestamp, goal: u64) -> u64 {
        let mut planned = 0;
        self.wake = Timestamp::MAX;
        loop {
            let room = if planned < goal { goal - planned } else { planned.next_multiple_of(MSS) - planned };
            if room == 0 {
                return planned;
            }
            if let Some((open, _)) = &self.open {
                let is_first = |record: &&Record| self.policy.overtakes(now, record, open);
                if let Some(at) = self.queue.iter().position(|record| is_first(&record)) {
                    let sound = self.queue.remove(at);
                    self.policy.outcome(&sound, Outcome::Sent);
                    planned += u64::from(sound.len);
                    self.written += u64::from(sound.len);
                    continue;
                }
            } else if !self.pick(now, planned) {
                return planned;
            }
            let Some((record, left)) = &mut self.open else { return planned };
            let part = room.min(*left);
            *left -= part;
            planned += part;
            self.written += part;
            if *left == 0 {
                self.committed.push_back((self.written, *record));
                self.open = None;
            }
        }
    }

    fn pick(&mut self, now: Timestamp, planned: u64) -> bool {
        for _ in 0..512 {
            if self.queue.is_empty() {
                return false;
            }
            let view = self.estimate.view(now, planned);
            match self.policy.pick(now, &self.queue, &view) {
                Decision::Wait(until) => {
                    self.wake = until.unwrap_or(Timestamp::MAX).max(now + Duration::from_millis(1));
                    return false;
                }
                Decision::Drop(place, reason) => {
                    let record = self.queue.remove(place);
                    self.policy.outcome(&record, Outcome::Dropped(reason));
                }
                Decision::Send(place) => {
                    let record = self.queue.remove(place);
                    let before = self.policy.selection().get().current;
                    self.policy.outcome(&record, Outcome::Sent);
                    let after = self.policy.selection().get().current;
                    if before != after {
                        let since = now.saturating_since(self.first.unwrap_or(now));
                        self.seen.changes.push((since, after.expect("changed")));
                    }
                    self.open = Some((record, u64::from(record.len)));
                    return true;
                }
            }
        }
        false
    }

    fn arrived(&mut self, flow: &mut Flow) {
        while let Some((at, end)) = flow.arrived.pop_front() {
            while let Some(&(last, record)) = self.committed.front().filter(|committed| committed.0 <= end) {
                debug_assert!(last <= end);
                self.committed.pop_front();
                if rendition_of(record.seq).is_none() {
                    continue;
                }
                let whole = record.references().all(|seq| self.have.contains(&seq.expect("known")));
                assert!(whole, "a receiver cannot decode {record:?}");
                if record.is_key() {
                    self.have.clear();
                }
                self.have.insert(record.seq);
                let first = *self.first.get_or_insert(at);
                self.seen.shown.push((at.saturating_since(first), at.saturating_since(record.generated)));
            }
        }
    }
}

impl Cell {
    fn group(&self) -> u64 {
        (self.key_interval.as_millis() / PICTURE.as_millis()) as u64
    }

    /// Bytes of this picture.
    fn len(&self, rendition: usize, picture: u64, is_key: bool) -> u32 {
        let mean = self.rates[rendition] / 8.0 * PICTURE.as_secs_f64();
        let group = self.group() as f64;
        let key = self.key.min(0.8 * group);
        let noise = {
            let mixed =
                (picture ^ self.seed << 20 ^ (rendition as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
        };
        let noise = noise as f64 / f64::from(1 << 24) - 0.5;
        let len = if is_key {
            mean * key * (1.0 + 0.3 * noise)
        } else {
            mean * (group - key) / (group - 1.0) * (1.0 + noise)
        };
        (len as u32).max(40)
    }

    fn wire(&self) -> Wire {
        let queue = (self.link / 8.0 * 0.1).max(15_000.0) as u64;
        let there = Config::builder()
            .rate(Rate::from_bits_per_sec(self.link as u64))
            .delay(self.delay)
            .queue_bytes(queue)
            .loss(if self.loss > 0.0 { Loss::Random { share: self.loss } } else { Loss::None })
            .seed(self.seed);
        let back = Config::builder().delay(self.delay);
        Wire::new(there.build().expect("a link"), back.build().expect("a link"))
    }

    /// Payload bits a second that a transfer without end gets.
    pub(crate) fn carries(&self) -> f64 {
        let most = self.link * MSS as f64 / (MSS + HEADERS) as f64;
        if self.loss == 0.0 {
            return most;
        }
        let mut wire = self.wire();
        let mut flows = [Flow::new(0)];
        let (mut now, end) = (Timestamp::ZERO, Timestamp::from_nanos(20_000_000_000));
        let mut bytes = 0;
        while now < end {
            let missing = (4 * MSS).saturating_sub(flows[0].unsent());
            flows[0].write(now, missing, &mut wire);
            now = wire.timeout().unwrap_or(end).min(flows[0].timeout()).max(now + Duration::from_micros(1));
            wire.run(now, &mut flows);
            if flows[0].timeout() <= now {
                flows[0].handle_timeout(now, &mut wire);
            }
            while let Some((_, last)) = flows[0].arrived.pop_front() {
                bytes = last;
            }
        }
        (bytes as f64 * 8.0 / 20.0).min(most)
    }

    /// Payload bits a second of a rendition, with sound.
    pub(crate) fn needs(&self, rendition: usize) -> f64 {
        let sound = f64::from(SOUND_FRAME.1) * 8.0 / SOUND_FRAME.0.as_secs_f64();
        self.rates[rendition] + if self.has_sound { sound } else { 0.0 }
    }

    /// The largest rendition that needs at most this share of what the link carries, the smallest if none does.
    pub(crate) fn best(&self, carries: f64, share: f64) -> usize {
        (0..RENDITIONS).find(|&at| self.needs(at) <= share * carries).unwrap_or(RENDITIONS - 1)
    }

    /// What the first viewer saw in so long from its first picture on.
    pub(crate) fn run(&self, length: Duration) -> Observation {
        let mut world = World::new(self);
        while world.first.is_none_or(|first| world.now.saturating_since(first) < length)
            && world.now < world.join + length * 2
        {
            world.step();
        }
        world.viewers.swap_remove(0).seen
    }
}

struct World<'a> {
    cell: &'a Cell,
    stream: Adaptive,
    wire: Wire,
    flows: Vec<Flow>,
    viewers: Vec<Viewer>,
    now: Timestamp,
    join: Timestamp,
    /// When the first viewer's first picture arrived.
    first: Option<Timestamp>,
    picture: u64,
    next_picture: Timestamp,
    next_sound: Timestamp,
    /// Numbers of the last picture of each rendition, and of the next sound.
    numbers: [u64; RENDITIONS],
    sound: u64,
}

impl<'a> World<'a> {
    fn new(cell: &'a Cell) -> Self {
        let stream = Adaptive::default();
        (0..RENDITIONS).for_each(|rendition| stream.set_present(rendition, true));
        let known = cell.key_interval * 3 + Duration::from_millis(777);
        let flows = if cell.beside == CrossTraffic::Nothing { 1 } else { 2 };
        Self {
            cell,
            stream,
            wire: cell.wire(),
            flows: (0..flows).map(Flow::new).collect(),
            viewers: Vec::new(),
            now: Timestamp::ZERO,
            join: Timestamp::ZERO + if cell.is_early { Duration::from_millis(10) } else { known },
            first: None,
            picture: 0,
            next_picture: Timestamp::ZERO,
            next_sound: Timestamp::ZERO,
            numbers: [0; RENDITIONS],
            sound: SOUND,
        }
    }

    /// Goes to the next event.
    fn step(&mut self) {
        let timers =
            self.flows.iter().map(Flow::timeout).chain(self.viewers.iter().map(|viewer| viewer.wake));
        let next = timers.chain(self.wire.timeout()).chain([self.next_picture, self.next_sound]).min();
        self.now = next.unwrap_or(self.now).max(self.now);
        let now = self.now;
        self.wire.run(now, &mut self.flows);
        for flow in &mut self.flows {
            if flow.timeout() <= now {
                flow.handle_timeout(now, &mut self.wire);
            }
        }
        if now >= self.join && self.viewers.is_empty() {
            let count = if self.cell.beside == CrossTraffic::Viewer { 2 } else { 1 };
            self.viewers.extend((0..count).map(|_| Viewer::new(self.stream.for_another(u8::MAX))));
        }
        self.download();
        let units = self.units();
        for unit in &units {
            self.stream.observe(now, unit);
            self.viewers.iter_mut().for_each(|viewer| viewer.offer(*unit, self.cell.is_early));
        }
        for (viewer, flow) in self.viewers.iter_mut().zip(&mut self.flows) {
            viewer.arrived(flow);
            // The engine is called when the kernel's queue has room, when something is pushed, and by its timer.
            let has_room = flow.unsent() == 0 && viewer.open.is_some();
            if !units.is_empty() || now >= viewer.wake || has_room {
                viewer.wake = Timestamp::MAX;
                viewer.serve(now, flow, &mut self.wire);
                viewer.wake = viewer.wake.max(now + Duration::from_millis(1));
            }
        }
        self.first = self.viewers.first().and_then(|viewer| viewer.first);
    }

    /// Keeps the download's connection full.
    fn download(&mut self) {
        let Some(first) = self.first.filter(|_| self.cell.beside == CrossTraffic::Download) else { return };
        let Some(flow) = self.flows.last_mut() else { return };
        let since = self.now.saturating_since(first);
        if (Duration::from_secs(10)..Duration::from_secs(40)).contains(&since) {
            let missing = (4 * MSS).saturating_sub(flow.unsent());
            flow.write(self.now, missing, &mut self.wire);
        }
        flow.arrived.clear();
    }

    /// What the source gives now.
    fn units(&mut self) -> Vec<Record> {
        let (now, cell) = (self.now, self.cell);
        let mut units = Vec::new();
        if now >= self.next_picture {
            for (rendition, number) in self.numbers.iter_mut().enumerate() {
                let shift = if cell.is_shifted { rendition as u64 * (cell.group() / 3) } else { 0 };
                let is_key = (self.picture + shift).is_multiple_of(cell.group());
                *number += 1;
                units.push(Record {
                    len: cell.len(rendition, self.picture, is_key),
                    refs: [u32::from(!is_key), 0],
                    layer: u8::from(!is_key),
                    generated: self.next_picture,
                    ..Record::numbered(((rendition as u64) << RENDITION_BITS) + *number)
                });
            }
            self.picture += 1;
            self.next_picture += PICTURE;
        }
        if now >= self.next_sound {
            if cell.has_sound {
                let deadline = now + Duration::from_millis(1250);
                let frame = Record::numbered(self.sound);
                units.push(Record { len: SOUND_FRAME.1, generated: now, deadline, ..frame });
                self.sound += 1;
            }
            self.next_sound += SOUND_FRAME.0;
        }
        units
    }
}
