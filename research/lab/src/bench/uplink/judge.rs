//! What of the stream was at the server, whole and on time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use freshwire_record::Timestamp;

use super::clip::{Clip, Part};
use super::player::Arrival;
use crate::metrics::AgeCurve;
use crate::results::Recovery;

/// A screen may stand still for that long (docs/glossary.md).
const FREEZE: Duration = Duration::from_millis(500);

/// What a run is judged by.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The capture of the stream's first picture.
    pub(super) begin: Timestamp,
    /// Pictures that were captured from then on count.
    pub(super) from: Timestamp,
    pub(super) length: Duration,
    /// From `from` to the begin and the end of the dip.
    pub(super) dip: Option<[Duration; 2]>,
    /// How old a picture may be when it is whole at the server.
    pub(super) on_time: Duration,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// Pictures captured in it.
    pub(super) pictures: usize,
    /// Share of them that were whole and on time.
    pub(super) on_time: f64,
    /// Age of the newest whole picture at the server, over time.
    pub(super) age_p50: Duration,
    pub(super) age_p95: Duration,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) all: Phase,
    /// In the dip, and after it.
    pub(super) phases: Option<[Phase; 2]>,
    /// Share of all pictures that were whole sooner or later.
    pub(super) whole: f64,
    /// Share that arrived and looks otherwise than it was encoded, as something it refers to is missing.
    pub(super) damaged: f64,
    /// Pictures of nobody: those that repeat the one before, in place of a dropped one.
    pub(super) others: usize,
    /// Time beyond half a second without a newer whole picture.
    pub(super) frozen: Duration,
    /// From the end of the dip until the age stays on time for a second; `None` if it never does.
    pub(super) recovery: Option<Option<Duration>>,
    /// Share of the blocks of sound that arrived on time.
    pub(super) sound: f64,
}

/// What a player got of a clip.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// When each picture arrived first.
    pictures: BTreeMap<usize, Timestamp>,
    /// By capture.
    sounds: BTreeMap<Duration, Timestamp>,
    /// The pictures that look as they were encoded when all that arrived is decoded.
    intact: BTreeSet<usize>,
    others: usize,
}

impl Sight {
    /// From everything that arrived, and how the pictures of that look.
    pub(super) fn of(clip: &Clip, arrivals: &[Arrival], looks: &[String]) -> Self {
        let mut sight = Self::default();
        for Arrival { at, tag } in arrivals {
            match clip.identify(tag) {
                Some(Part::Picture(number)) => drop(sight.pictures.entry(number).or_insert(*at)),
                Some(Part::Sound(captured)) => drop(sight.sounds.entry(captured).or_insert(*at)),
                None if tag.composition_ms().is_some() => sight.others += 1,
                None => {}
            }
        }
        sight.intact = looks.iter().filter_map(|look| clip.seen(look)).collect();
        sight
    }

    /// When a picture was whole.
    fn whole(&self, number: usize) -> Option<Timestamp> {
        self.pictures.get(&number).copied().filter(|_| self.intact.contains(&number))
    }

    /// Judges it.
    pub(super) fn judge(&self, clip: &Clip, window: &Window) -> Outcome {
        let Window { begin, from, length, on_time, .. } = *window;
        let since = |at: Timestamp| at.saturating_since(from);
        // From the begin of the window to capture, and until whole.
        let counted: Vec<(usize, Duration)> = (clip.pictures().iter().enumerate())
            .filter(|(_, picture)| begin + picture.captured >= from)
            .map(|(number, picture)| (number, since(begin + picture.captured)))
            .collect();
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        let units = counted.iter().map(|&(number, captured)| {
            (nanoseconds(captured), self.whole(number).map(|at| nanoseconds(since(at))))
        });
        let age = AgeCurve::of(units, nanoseconds(length));
        let phase = |from: Duration, to: Duration| {
            let within = counted.iter().copied().filter(|(_, captured)| (from..to).contains(captured));
            let within: Vec<(usize, Duration)> = within.collect();
            let is_on_time = |&&(number, captured): &&(usize, Duration)| {
                self.whole(number).is_some_and(|at| since(at) <= captured + on_time)
            };
            let span = nanoseconds(from)..nanoseconds(to);
            let quantile = |share| Duration::from_nanos(age.quantile(span.clone(), share));
            Phase {
                pictures: within.len(),
                on_time: share(within.iter().filter(is_on_time).count(), within.len()),
                age_p50: quantile(0.5),
                age_p95: quantile(0.95),
            }
        };
        let within: Vec<usize> =
            counted.iter().filter(|(_, at)| *at < length).map(|(number, _)| *number).collect();
        let arrived = within.iter().filter(|number| self.pictures.contains_key(number)).count();
        let whole = within.iter().filter(|number| self.whole(**number).is_some()).count();
        let recovery =
            window.dip.map(|[_, end]| match age.recovery(nanoseconds(end), nanoseconds(on_time)) {
                Recovery::After { after_ns } => Some(Duration::from_nanos(after_ns)),
                Recovery::NoDip | Recovery::Never => None,
            });
        let sounds: Vec<Duration> = (clip.sounds().into_iter())
            .filter(|captured| begin + *captured >= from && begin + *captured < from + length)
            .collect();
        let heard = sounds.iter().filter(|captured| {
            self.sounds.get(captured).is_some_and(|at| *at <= begin + **captured + on_time)
        });
        Outcome {
            all: phase(Duration::ZERO, length),
            phases: window.dip.map(|[begin, end]| [phase(begin, end), phase(end, length)]),
            whole: share(whole, within.len()),
            damaged: share(arrived - whole, within.len()),
            others: self.others,
            frozen: Duration::from_nanos(age.frozen(nanoseconds(FREEZE))),
            recovery,
            sound: share(heard.count(), sounds.len()),
        }
    }
}

/// NaN of nothing.
fn share(part: usize, of: usize) -> f64 {
    part as f64 / of as f64
}
