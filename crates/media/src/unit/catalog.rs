use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Kind, MediaTime, UnitHead};

/// Numbers with the same bits above these are one lane: a track, or a rendition of the pictures.
pub const LANE_BITS: u32 = 48;

/// Number of a stream's first sound. It is above the numbers of all lanes, which have the pictures.
pub const FIRST_SOUND: u64 = 1 << 62;

/// What framings look units up in by the number of their record: the newest units of one stream, shared by the one that
/// publishes and by all framings. Each track has its own numbers, and so has each rendition of the pictures: those of a
/// [lane](LANE_BITS) grow.
///
/// A viewer may get pictures of one rendition behind those of another, whose times are a little ahead of them. Its
/// [own view](Self::for_viewer) moves such times, so that they never go back: a picture is shown too late by less and less
/// until the new rendition has caught up.
#[derive(Debug)]
pub struct Catalog {
    units: Arc<Mutex<Units>>,
    /// The newest picture that the viewer gets, 0 before the first.
    newest_shown: AtomicU64,
    is_bent: AtomicBool,
    bend: Mutex<Bend>,
}

#[derive(Debug)]
struct Units {
    lanes: Vec<Lane>,
    capacity: usize,
}

#[derive(Debug)]
struct Lane {
    number: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    seq: u64,
    head: Arc<UnitHead>,
}

/// How times of a lane are moved: the time `from` to `to`, later ones by less.
#[derive(Clone, Copy, Debug, Default)]
struct Bend {
    lane: u64,
    from: i64,
    to: i64,
}

impl Bend {
    fn time(self, time: MediaTime) -> MediaTime {
        let slow = self.to.saturating_add(time.as_nanos().saturating_sub(self.from).max(0) / CATCH_UP);
        MediaTime::from_nanos(time.as_nanos().max(slow))
    }
}

impl Units {
    fn find(&self, seq: u64) -> Option<&Arc<UnitHead>> {
        let number = seq >> LANE_BITS;
        let entries = &self.lanes.iter().find(|lane| lane.number == number)?.entries;
        // Most ask for the newest.
        let newest = entries.back().filter(|entry| entry.seq == seq);
        let entry = newest.or_else(|| {
            let at = entries.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
            entries.get(at)
        });
        entry.map(|entry| &entry.head)
    }

    /// The latest time of this picture and of the few before it.
    fn latest(&self, seq: u64) -> Option<MediaTime> {
        let entries = &self.lanes.iter().find(|lane| lane.number == seq >> LANE_BITS)?.entries;
        let until = entries.partition_point(|entry| entry.seq <= seq);
        entries.range(..until).rev().take(REORDERED).map(|entry| entry.head.pts).max()
    }
}

impl Catalog {
    /// A catalog that keeps the newest `capacity` units of each lane.
    pub fn new(capacity: usize) -> Self {
        Self::over(Arc::new(Mutex::new(Units { lanes: Vec::new(), capacity })))
    }

    fn over(units: Arc<Mutex<Units>>) -> Self {
        Self {
            units,
            newest_shown: AtomicU64::new(0),
            is_bent: AtomicBool::new(false),
            bend: Mutex::default(),
        }
    }

    /// The same units for one viewer.
    #[must_use]
    pub fn for_viewer(&self) -> Arc<Self> {
        Arc::new(Self::over(Arc::clone(&self.units)))
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a unit under the number `seq`, which is above all before it of its lane. The oldest one goes when there are
    /// too many.
    pub fn add(&self, seq: u64, head: Arc<UnitHead>) {
        let mut units = self.units();
        let (number, capacity) = (seq >> LANE_BITS, units.capacity);
        let place = units.lanes.iter().position(|lane| lane.number == number);
        let place = place.unwrap_or_else(|| {
            units.lanes.push(Lane { number, entries: VecDeque::new() });
            units.lanes.len() - 1
        });
        let entries = &mut units.lanes[place].entries;
        if entries.len() >= capacity {
            entries.pop_front();
        }
        entries.push_back(Entry { seq, head });
    }

    /// The unit with this number; `None` if it is not kept any more, or never was.
    pub fn find(&self, seq: u64) -> Option<Arc<UnitHead>> {
        let head = Arc::clone(self.units().find(seq)?);
        if !self.is_bent.load(Ordering::Relaxed) || head.kind == Kind::Audio {
            return Some(head);
        }
        let bend = *self.bend.lock().unwrap_or_else(PoisonError::into_inner);
        if bend.lane != seq >> LANE_BITS {
            return Some(head);
        }
        let (pts, dts) = (bend.time(head.pts), bend.time(head.dts));
        Some(if (pts, dts) == (head.pts, head.dts) {
            head
        } else {
            Arc::new(UnitHead { pts, dts, ..UnitHead::clone(&head) })
        })
    }

    /// The viewer gets the picture with this number now. Call it before the picture is looked up to be framed.
    pub fn begin_picture(&self, seq: u64) {
        // Relaxed: only the thread that frames for this viewer looks at these.
        let before = self.newest_shown.swap(seq, Ordering::Relaxed);
        if before >> LANE_BITS != seq >> LANE_BITS && before > 0 {
            self.change_lane(before, seq);
        }
    }

    fn change_lane(&self, before: u64, seq: u64) {
        let units = self.units();
        let mut bend = self.bend.lock().unwrap_or_else(PoisonError::into_inner);
        let is_bent = self.is_bent.load(Ordering::Relaxed) && bend.lane == before >> LANE_BITS;
        let latest = units.latest(before).map(|time| if is_bent { bend.time(time) } else { time });
        let new = units.find(seq).zip(latest).map(|(head, latest)| Bend {
            lane: seq >> LANE_BITS,
            from: head.dts.as_nanos(),
            to: latest.as_nanos().saturating_add(STEP_NS),
        });
        let needed = new.filter(|new| new.to > new.from && new.to.abs_diff(new.from) < MOST_NS);
        *bend = needed.unwrap_or_default();
        self.is_bent.store(needed.is_some(), Ordering::Relaxed);
    }

    /// The lane of the picture that the viewer got last; `None` before the first.
    pub fn lane(&self) -> Option<u64> {
        let newest = self.newest_shown.load(Ordering::Relaxed);
        (newest > 0).then_some(newest >> LANE_BITS)
    }
}

/// Pictures that may be shown after one that is decoded behind them: the most of H.264 and H.265
/// (`max_num_reorder_frames`).
const REORDERED: usize = 16;

/// Times of a rendition that is behind go on at this part of their pace until it has caught up. Chosen, not
/// measured.
const CATCH_UP: i64 = 16;

/// The first picture of another rendition is shown at least this much after the last one before. Chosen, not
/// measured.
const STEP_NS: i64 = 1_000_000;

/// Renditions whose times are further apart have no common clock: they are left as they are. Chosen, not
/// measured.
const MOST_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: Kind, key: bool, pts: i64, dts: i64) -> Arc<UnitHead> {
        Arc::new(UnitHead {
            kind,
            pts: MediaTime::from_nanos(pts),
            dts: MediaTime::from_nanos(dts),
            duration_ns: 1,
            key,
            len: 0,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Arc::default(),
        })
    }

    #[test]
    fn the_catalog_keeps_the_newest() {
        let head = |key| head(Kind::Video, key, 0, 0);
        let catalog = Catalog::new(2);
        catalog.add(1, head(true));
        catalog.add(5, head(false));
        catalog.add(6, head(true));
        assert!(catalog.find(1).is_none());
        assert!(catalog.find(4).is_none());
        assert!(!catalog.find(5).expect("kept").key);
        assert!(catalog.find(6).expect("kept").key);
        let sound = 1 << 62;
        catalog.add(sound, Arc::new(UnitHead { kind: Kind::Audio, ..UnitHead::clone(&head(false)) }));
        catalog.add(7, head(true));
        assert!(catalog.find(sound).is_some() && catalog.find(6).is_some() && catalog.find(5).is_none());
        assert!(catalog.for_viewer().find(7).is_some());
    }

    const MS: i64 = 1_000_000;

    /// Pictures of 40 ms with two B pictures between P pictures in one rendition, and none in the other, which is `behind`.
    #[test]
    fn times_go_on_when_another_rendition_is_behind() {
        for behind in [0, 1, 40, 250, 3000] {
            let catalog = Catalog::new(1000);
            let other = 1 << LANE_BITS;
            for at in 0..300 {
                let shown = [0, 3, 1, 2][if at == 0 { 0 } else { (at as usize - 1) % 3 + 1 }];
                let group = if at == 0 { 0 } else { (at - 1) / 3 * 3 };
                catalog.add(
                    1 + at as u64,
                    head(Kind::Video, at == 0, 40 * MS * (group + shown), 40 * MS * (at - 2)),
                );
                let time = 40 * MS * at - behind * MS;
                catalog.add(other + 1 + at as u64, head(Kind::Video, at == 100, time, time));
            }
            let view = catalog.for_viewer();
            let mut times = Vec::new();
            for seq in (1..101).chain(other + 101..other + 300) {
                view.begin_picture(seq);
                let head = view.find(seq).expect("kept");
                times.push((head.pts.as_nanos(), head.dts.as_nanos()));
                assert!(head.dts <= head.pts);
            }
            assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].1), "decoding goes back: {behind}");
            let before = times[..100].iter().map(|time| time.0).max();
            assert!(times[100..].iter().map(|time| time.0).is_sorted() && Some(times[100].0) > before);
            // Pictures catch up in a little more than the time by which they were behind.
            let caught_up = (behind + 120) as usize * 17 / 16 / 40 + 2;
            assert!(times[100 + caught_up].0 == 40 * MS * (100 + caught_up as i64) - behind * MS, "{behind}");
        }
    }

    #[test]
    fn clocks_that_have_nothing_in_common_stay_apart() {
        let catalog = Catalog::new(8);
        catalog.add(1, head(Kind::Video, true, i64::MAX, i64::MAX));
        catalog.add(1 << LANE_BITS, head(Kind::Video, true, i64::MIN, i64::MIN));
        let view = catalog.for_viewer();
        view.begin_picture(1);
        view.begin_picture(1 << LANE_BITS);
        assert_eq!(view.find(1 << LANE_BITS).map(|head| head.pts.as_nanos()), Some(i64::MIN));
        assert_eq!(view.lane(), Some(1));
    }
}
