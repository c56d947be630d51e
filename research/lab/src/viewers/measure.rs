//! The numbers that follow from the times at which pictures were seen: age, keyframes, freezes, recovery.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::clip::{Clip, FPS};
use crate::metrics::AgeCurve;
use crate::results::{Freezes, Recovery};

/// After a dip the age has to stay below this.
const FRESH_NS: u64 = 1_000_000_000;
/// A key picture captured later than this before the end need not be there yet.
const KEY_GRACE_NS: u64 = 1_300_000_000;

/// When pictures were captured and seen. Instants are nanoseconds since the capture of the stream's first picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Observed {
    /// When each picture was there, and its number; in order of arrival. One that is shown again is there again.
    pub(super) seen: Vec<(u64, u32)>,
    /// The key pictures of the whole stream.
    pub(super) keys: Vec<u32>,
    /// When the player complained.
    pub(super) complaints: Vec<u64>,
    /// When the link's rate last rose, if it did.
    pub(super) link_back_ns: Option<u64>,
    /// When the observation ended.
    pub(super) end_ns: u64,
}

/// A viewer's share of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Metrics {
    /// Different pictures that were there.
    pub(super) pictures: usize,
    /// Pictures that were captured from the first that was there on.
    pub(super) captured: usize,
    /// Age at arrival over all pictures, in nanoseconds.
    pub(super) age: Ages,
    /// Key pictures that were there.
    pub(super) keys: usize,
    /// Key pictures that should have been.
    pub(super) keys_due: usize,
    /// Gaps between shown pictures that a viewer notices.
    pub(super) freezes: Freezes,
    /// How long after the link's return the age was below a second again.
    pub(super) recovery: Recovery,
    /// Complaints until the first key picture, where a player may have to begin in the middle.
    pub(super) complaints_joining: usize,
    /// Complaints after that.
    pub(super) complaints: usize,
}

/// A distribution of ages in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ages {
    pub(super) median_ns: u64,
    pub(super) p95_ns: u64,
    pub(super) max_ns: u64,
}

impl Observed {
    /// Age at arrival of each picture, the first time that it is there: when that was, and how old it was; in nanoseconds.
    pub(super) fn ages(&self) -> impl Iterator<Item = (u64, u64)> {
        self.first_seen().map(|(at, picture)| (at, at.saturating_sub(Clip::captured_ns(picture))))
    }

    fn first_seen(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut known = BTreeSet::new();
        self.seen.iter().copied().filter(move |(_, picture)| known.insert(*picture))
    }

    /// None when no picture was there.
    pub(super) fn metrics(&self) -> Option<Metrics> {
        let pictures: BTreeSet<u32> = self.seen.iter().map(|(_, picture)| *picture).collect();
        let first = *pictures.first()?;
        let begin_ns = Clip::captured_ns(first);
        let mut ages: Vec<u64> = self.ages().map(|(_, age)| age).collect();
        ages.sort_unstable();
        let is_due = |key: &&u32| {
            (begin_ns..=self.end_ns.saturating_sub(KEY_GRACE_NS)).contains(&Clip::captured_ns(**key))
        };
        let first_key = self.seen.iter().find(|(_, picture)| self.keys.binary_search(picture).is_ok());
        let joined_ns = first_key.map_or(u64::MAX, |(at, _)| *at);
        let joining = self.complaints.iter().filter(|at| **at <= joined_ns).count();
        let captured = (first..).take_while(|picture| Clip::captured_ns(*picture) <= self.end_ns).count();
        let since_begin = |ns: u64| ns.saturating_sub(begin_ns);
        let curve = AgeCurve::of(
            self.first_seen()
                .map(|(at, picture)| (since_begin(Clip::captured_ns(picture)), Some(since_begin(at)))),
            since_begin(self.end_ns),
        );
        Some(Metrics {
            pictures: pictures.len(),
            captured,
            age: Ages {
                median_ns: percentile(&ages, 50),
                p95_ns: percentile(&ages, 95),
                max_ns: percentile(&ages, 100),
            },
            keys: self.keys.iter().filter(is_due).filter(|key| pictures.contains(key)).count(),
            keys_due: self.keys.iter().filter(is_due).count(),
            freezes: curve.freezes(1e9 / f64::from(FPS)),
            recovery: self
                .link_back_ns
                .map_or(Recovery::NoDip, |back| curve.recovery(since_begin(back), FRESH_NS)),
            complaints_joining: joining,
            complaints: self.complaints.len() - joining,
        })
    }
}

/// By nearest rank; 0 of nothing.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 10 s of a stream with a key picture each second; pictures 25 to 224 of it, all `late_ms` after their capture.
    fn observed(late_ms: impl Fn(u32) -> Option<u64>) -> Observed {
        let seen = (25..225)
            .filter_map(|picture| Some((Clip::captured_ns(picture) + late_ms(picture)? * MS, picture)));
        Observed {
            seen: seen.collect(),
            keys: (0..10).map(|second| second * 25).collect(),
            complaints: vec![900 * MS, 1100 * MS, 5000 * MS],
            link_back_ns: None,
            end_ns: 9000 * MS,
        }
    }

    #[test]
    fn a_steady_stream_has_everything() {
        let metrics = observed(|_| Some(100)).metrics().unwrap();
        assert_eq!((metrics.pictures, metrics.captured), (200, 201));
        let age = 100 * MS;
        assert_eq!(metrics.age, Ages { median_ns: age, p95_ns: age, max_ns: age });
        // Key pictures of seconds 1 to 7: the one of second 8 may still be on its way.
        assert_eq!((metrics.keys, metrics.keys_due), (7, 7));
        assert_eq!((metrics.freezes.count, metrics.recovery), (0, Recovery::NoDip));
        assert_eq!((metrics.complaints_joining, metrics.complaints), (2, 1), "joined after 1.1 s");
    }

    #[test]
    fn missing_and_late_pictures_are_counted() {
        let metrics = observed(|picture| match picture {
            50 => None,
            100..110 => None,
            200.. => Some(300),
            _ => Some(100),
        });
        let metrics = metrics.metrics().unwrap();
        assert_eq!((metrics.keys, metrics.keys_due), (5, 7));
        let freezes = metrics.freezes;
        assert_eq!(
            (freezes.count, freezes.longest_ns),
            (2, 440 * MS),
            "the later pictures' wait of 240 ms is one"
        );
        assert_eq!(metrics.age.max_ns, 300 * MS);
        assert_eq!(metrics.age.p95_ns, 300 * MS);
        assert_eq!(metrics.age.median_ns, 100 * MS);
    }

    #[test]
    fn a_picture_that_is_shown_again_is_counted_once() {
        let steady = observed(|_| Some(100));
        let mut repeated = steady.clone();
        let again = steady.seen.iter().map(|&(at, picture)| (at + 900 * MS, picture));
        repeated.seen.extend(again);
        repeated.seen.sort_unstable();
        assert_eq!(repeated.metrics(), steady.metrics());
        assert_eq!(repeated.ages().count(), 200);
    }

    #[test]
    fn recovery_counts_from_the_links_return() {
        // Nothing from 3 to 5 s; from then on what is captured comes at once.
        let mut outage = observed(|picture| (!(75..130).contains(&picture)).then_some(100));
        outage.link_back_ns = Some(5000 * MS);
        assert_eq!(outage.metrics().unwrap().recovery, Recovery::After { after_ns: 300 * MS });
        let mut lagging = observed(|picture| Some(if picture < 75 { 100 } else { 1500 }));
        lagging.link_back_ns = Some(5000 * MS);
        assert_eq!(lagging.metrics().unwrap().recovery, Recovery::Never);
    }

    #[test]
    fn nothing_seen_is_nothing_measured() {
        assert_eq!(observed(|_| None).metrics(), None);
    }

    #[test]
    fn percentiles_are_of_nearest_rank() {
        let values: Vec<u64> = (1..=20).collect();
        assert_eq!([50, 95, 100].map(|percent| percentile(&values, percent)), [10, 19, 20]);
        assert_eq!((percentile(&[7], 50), percentile(&[], 50)), (7, 0));
    }
}
