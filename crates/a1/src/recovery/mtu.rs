//! The largest packet that the path carries, found by probing (RFC 8899).

use std::time::Duration;

use freshwire_record::Timestamp;

use super::flight::{Acked, Lost};

/// The search between a size that every path carries and a configured maximum.
///
/// The maximum is tried first, for it is the usual answer; after that the interval is halved. A size is given up
/// after three lost probes. When only large packets are lost, the size falls back to the base. A queue that overflows
/// looks the same, if small packets still find a place in it: the size before is tried again at once.
#[derive(Clone, Debug)]
pub(super) struct MtuSearch {
    base: u16,
    max: u16,
    current: u16,
    /// Sizes above this are known not to pass.
    upper: u16,
    /// `upper` itself was not tried yet.
    tries_upper: bool,
    /// Number and size of the probe in flight. The size alone while it has not been reported as sent.
    probe: Option<(u64, u16)>,
    failures: u32,
    next_at: Timestamp,
    black_hole: BlackHole,
    /// When larger packets were found to pass no more, at first the beginning: of what left by then no other verdict follows.
    verdict_at: Timestamp,
}

#[derive(Clone, Debug, Default)]
struct BlackHole {
    /// Large packets lost in a row, and when the first of them left.
    lost: u32,
    since: Timestamp,
}

impl MtuSearch {
    pub(super) fn new(base: u16, max: u16, now: Timestamp) -> Self {
        let max = max.max(base);
        Self {
            base,
            max,
            current: base,
            upper: max,
            tries_upper: true,
            probe: None,
            failures: 0,
            next_at: now,
            black_hole: BlackHole::default(),
            verdict_at: now,
        }
    }

    pub(super) fn current(&self) -> u16 {
        self.current
    }

    pub(super) fn probe(&self, now: Timestamp) -> Option<u16> {
        let searching = self.upper.saturating_sub(self.current) >= PRECISION || self.tries_upper;
        let due = self.probe.is_none() && now >= self.next_at && self.current < self.upper && searching;
        due.then(|| self.candidate())
    }

    /// Bytes of the probe that is neither acknowledged nor lost.
    pub(super) fn under_way(&self) -> u64 {
        self.probe.map_or(0, |(_, size)| u64::from(size))
    }

    pub(super) fn on_sent(&mut self, number: u64) {
        self.probe = Some((number, self.candidate()));
    }

    /// `newest_sent_at` is when the newest acknowledged packet left.
    pub(super) fn on_acked(&mut self, now: Timestamp, acked: &Acked, newest_sent_at: Timestamp) {
        if let (Some((number, size)), Some((acked_number, _))) = (self.probe, acked.mtu_probe)
            && number == acked_number
        {
            self.current = size;
            self.settle_probe(now);
        }
        if acked.largest_size > u32::from(self.base) {
            self.black_hole = BlackHole::default();
        } else if self.black_hole.lost >= BLACK_HOLE_PACKETS
            && newest_sent_at >= self.black_hole.since
            && acked.largest_size > 0
        {
            self.fall_back(now);
        }
    }

    //= spec/a1.md A1-PATH-5
    pub(super) fn on_lost(&mut self, now: Timestamp, lost: &Lost) {
        if let (Some((number, size)), Some(lost_number)) = (self.probe, lost.mtu_probe)
            && number == lost_number
        {
            self.probe = None;
            self.failures += 1;
            if self.failures >= MAX_FAILURES {
                self.upper = size - 1;
                self.tries_upper = false;
                self.settle_probe(now);
            }
        }
        for &(bytes, sent_at) in &lost.sizes {
            if bytes > u32::from(self.base) && sent_at > self.verdict_at {
                if self.black_hole.lost == 0 {
                    self.black_hole.since = sent_at;
                }
                self.black_hole.lost += 1;
            }
        }
    }

    fn candidate(&self) -> u16 {
        if self.tries_upper || self.upper - self.current < 2 * PRECISION {
            self.upper
        } else {
            self.current + (self.upper - self.current) / 2
        }
    }

    fn settle_probe(&mut self, now: Timestamp) {
        self.probe = None;
        self.failures = 0;
        if self.upper.saturating_sub(self.current) < PRECISION && self.upper < self.max {
            self.search(self.max, now + RAISE_AFTER);
        }
    }

    fn fall_back(&mut self, now: Timestamp) {
        self.search(self.current, now);
        self.current = self.base;
        self.probe = None;
        self.failures = 0;
        self.black_hole = BlackHole::default();
        self.verdict_at = now;
    }

    /// Begins to search below `upper` then.
    fn search(&mut self, upper: u16, at: Timestamp) {
        self.upper = upper;
        self.tries_upper = true;
        self.next_at = at;
    }
}

/// Gains smaller than this, in bytes, are not worth a probe. Chosen, not measured.
const PRECISION: u16 = 16;
/// Probes of a size that may be lost by chance (A1-PATH-5; RFC 8899, MAX_PROBES).
const MAX_FAILURES: u32 = 3;
/// Large packets that are lost in a row while smaller ones arrive (A1-PATH-5).
const BLACK_HOLE_PACKETS: u32 = 6;
/// RFC 8899's PMTU_RAISE_TIMER.
const RAISE_AFTER: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_of(search: &mut MtuSearch, now: Timestamp, number: u64) -> Option<u16> {
        let size = search.probe(now)?;
        search.on_sent(number);
        assert_eq!(search.probe(now), None, "one at a time");
        Some(size)
    }

    /// Runs the search on a path that carries `limit`; the sizes probed.
    fn search(search: &mut MtuSearch, now: Timestamp, limit: u16) -> Vec<u16> {
        let mut sizes = Vec::new();
        while let Some(size) = probe_of(search, now, sizes.len() as u64) {
            let number = sizes.len() as u64;
            sizes.push(size);
            assert!(sizes.len() < 100, "{sizes:?}");
            if size <= limit {
                let acked = Acked { mtu_probe: Some((number, u32::from(size))), ..Acked::default() };
                search.on_acked(now, &acked, now);
            } else {
                search.on_lost(now, &Lost { mtu_probe: Some(number), ..Lost::default() });
            }
        }
        sizes
    }

    //= spec/a1.md A1-PATH-5
    #[test]
    fn the_maximum_is_tried_first() {
        let mut mtu = MtuSearch::new(1200, 1472, Timestamp::ZERO);
        assert_eq!(search(&mut mtu, Timestamp::ZERO, 1472), [1472]);
        assert_eq!(mtu.current(), 1472);
    }

    #[test]
    fn every_limit_is_found() {
        for limit in [1200, 1201, 1215, 1300, 1400, 1471, 9000, 65_000] {
            let mut mtu = MtuSearch::new(1200, 65_507, Timestamp::ZERO);
            search(&mut mtu, Timestamp::ZERO, limit);
            assert!(
                mtu.current() <= limit && limit - mtu.current() < PRECISION,
                "{limit}: {}",
                mtu.current()
            );
            assert_eq!(mtu.probe(Timestamp::ZERO + RAISE_AFTER / 2), None);
            assert!(mtu.probe(Timestamp::ZERO + RAISE_AFTER).is_some(), "the path may have changed");
        }
    }

    #[test]
    fn a_black_hole_is_left_once_small_packets_get_through() {
        let mut mtu = MtuSearch::new(1200, 1472, Timestamp::ZERO);
        search(&mut mtu, Timestamp::ZERO, 1472);
        let second = Timestamp::ZERO + Duration::from_secs(1);
        let sizes = vec![(1472, second); BLACK_HOLE_PACKETS as usize];
        mtu.on_lost(second, &Lost { sizes, ..Lost::default() });
        let small = Acked { largest_size: 100, ..Acked::default() };
        mtu.on_acked(second, &small, Timestamp::ZERO);
        assert_eq!(mtu.current(), 1472, "a packet from before the losses says nothing");
        mtu.on_acked(second, &small, second);
        assert_eq!(mtu.current(), 1200);
        let sizes = search(&mut mtu, second, 1300);
        assert!(sizes.starts_with(&[1472; 3]) && !sizes[3..].contains(&1472), "{sizes:?}");
        assert!((1285..=1300).contains(&mtu.current()), "{}", mtu.current());
        assert_eq!(mtu.probe(second + RAISE_AFTER), Some(1472), "it may have been a short failure");
    }

    #[test]
    fn a_queue_that_overflows_is_found_to_be_no_black_hole() {
        for limit in [1472, 9000] {
            let mut mtu = MtuSearch::new(1200, 65_507, Timestamp::ZERO);
            search(&mut mtu, Timestamp::ZERO, limit);
            let (size, second) = (mtu.current(), Timestamp::ZERO + Duration::from_secs(1));
            let sizes = vec![(size.into(), second); BLACK_HOLE_PACKETS as usize];
            mtu.on_lost(second, &Lost { sizes, ..Lost::default() });
            mtu.on_acked(second, &Acked { largest_size: 100, ..Acked::default() }, second);
            assert_eq!(mtu.current(), 1200);
            assert_eq!(search(&mut mtu, second, limit), [size]);
            assert_eq!(mtu.current(), size);
        }
    }

    /// More of the window that has shown the black hole is lost after the verdict.
    //= spec/a1.md A1-PATH-5
    #[test]
    fn packets_from_before_a_verdict_do_not_end_the_next_search() {
        let mut mtu = MtuSearch::new(1200, 1472, Timestamp::ZERO);
        search(&mut mtu, Timestamp::ZERO, 1472);
        let second = Timestamp::ZERO + Duration::from_secs(1);
        for later in [second, second + Duration::from_millis(20)] {
            let sizes = vec![(1472, second); BLACK_HOLE_PACKETS as usize];
            mtu.on_lost(later, &Lost { sizes, ..Lost::default() });
            mtu.on_acked(later, &Acked { largest_size: 1200, ..Acked::default() }, later);
            assert_eq!(mtu.current(), 1200);
        }
        search(&mut mtu, second + Duration::from_millis(20), 1400);
        assert!((1385..=1400).contains(&mtu.current()), "{}", mtu.current());
    }

    #[test]
    fn losses_among_arrivals_are_no_black_hole() {
        let mut mtu = MtuSearch::new(1200, 1472, Timestamp::ZERO);
        search(&mut mtu, Timestamp::ZERO, 1472);
        let second = Timestamp::ZERO + Duration::from_secs(1);
        for _ in 0..10 {
            let sizes = vec![(1472, second); BLACK_HOLE_PACKETS as usize - 1];
            mtu.on_lost(second, &Lost { sizes, ..Lost::default() });
            let large = Acked { largest_size: 1472, ..Acked::default() };
            mtu.on_acked(second, &large, second);
            let small = Acked { largest_size: 100, ..Acked::default() };
            mtu.on_acked(second, &small, second);
        }
        assert_eq!(mtu.current(), 1472);
    }
}
