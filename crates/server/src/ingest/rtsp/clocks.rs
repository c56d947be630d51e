//! The clocks of a source's tracks, brought together.

use freshwire_media::depacketize::rtcp::SenderClock;
use freshwire_media::unit::MediaTime;

/// Tracks count from random places. Their sender reports say which of their timestamps belong together; until those have
/// come, a track's first packet is taken to be as old as its arrival says.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// The difference from the sender's times to media times.
    base_ns: Option<i64>,
}

/// One track's clock.
#[derive(Debug)]
pub(super) struct TrackClock {
    rate: u32,
    /// The difference from the track's times to media times.
    offset_ns: Option<i64>,
    /// A time of the track and the sender's time then.
    report: Option<(i64, i64)>,
}

impl TrackClock {
    /// A clock that makes `rate` ticks a second.
    pub(super) fn new(rate: u32) -> Self {
        Self { rate, offset_ns: None, report: None }
    }

    fn nanos(&self, ticks: i64) -> i64 {
        MediaTime::from_ticks(ticks, self.rate).as_nanos()
    }
}

impl Clocks {
    /// The media time of `ticks`; `now_ns` is when they came.
    pub(super) fn time(&mut self, track: &mut TrackClock, ticks: i64, now_ns: i64) -> MediaTime {
        let own = track.nanos(ticks);
        let offset = *track.offset_ns.get_or_insert_with(|| match (track.report, self.base_ns) {
            (Some((reported, sender)), Some(base)) => base.saturating_add(sender).saturating_sub(reported),
            _ => now_ns.saturating_sub(own),
        });
        self.settle(track, offset);
        MediaTime::from_nanos(own.saturating_add(offset))
    }

    /// A sender report of the track; the first counts. `ticks` is its timestamp.
    pub(super) fn report(&mut self, track: &mut TrackClock, clock: &SenderClock, ticks: i64) {
        if track.report.is_some() {
            return;
        }
        let (reported, sender) = (track.nanos(ticks), ntp_nanos(clock.ntp));
        track.report = Some((reported, sender));
        let Some(offset) = track.offset_ns else { return };
        match self.base_ns {
            None => self.settle(track, offset),
            Some(base) => {
                let exact = base.saturating_add(sender).saturating_sub(reported);
                if exact.abs_diff(offset) < MOST_CORRECTION_NS {
                    track.offset_ns = Some(exact);
                }
            }
        }
    }

    /// The first track with a report and a time decides what the sender's times are.
    fn settle(&mut self, track: &TrackClock, offset: i64) {
        if let (None, Some((reported, sender))) = (self.base_ns, track.report) {
            self.base_ns = Some(offset.saturating_add(reported).saturating_sub(sender));
        }
    }
}

fn ntp_nanos(ntp: u64) -> i64 {
    // 2^32 seconds in nanoseconds fit.
    ((u128::from(ntp) * 1_000_000_000) >> 32) as i64
}

/// Reports that want more are wrong: the tracks would be apart by what nobody sends.
const MOST_CORRECTION_NS: u64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn clock(seconds: u64, timestamp: u32) -> SenderClock {
        SenderClock { ssrc: 1, ntp: seconds << 32, timestamp }
    }

    #[test]
    fn without_reports_arrival_counts() {
        let mut clocks = Clocks::default();
        let mut video = TrackClock::new(90_000);
        assert_eq!(clocks.time(&mut video, 500, 7 * SECOND).as_nanos(), 7 * SECOND);
        assert_eq!(clocks.time(&mut video, 500 + 45_000, 9 * SECOND).as_nanos(), 7 * SECOND + SECOND / 2);
    }

    #[test]
    fn reports_before_the_packets_bring_tracks_together() {
        let mut clocks = Clocks::default();
        let (mut video, mut audio) = (TrackClock::new(90_000), TrackClock::new(48_000));
        clocks.report(&mut video, &clock(100, 1000), 1000);
        clocks.report(&mut audio, &clock(100, 77), 77);
        let shown = clocks.time(&mut video, 1000, 5 * SECOND);
        // Heard a second after what was shown, and it comes three seconds later.
        let heard = clocks.time(&mut audio, 77 + 48_000, 8 * SECOND);
        assert_eq!(heard.as_nanos() - shown.as_nanos(), SECOND);
    }

    #[test]
    fn reports_behind_the_packets_bring_tracks_together() {
        let mut clocks = Clocks::default();
        let (mut video, mut audio) = (TrackClock::new(90_000), TrackClock::new(48_000));
        clocks.time(&mut video, 1000, 5 * SECOND);
        clocks.time(&mut audio, 77, 6 * SECOND);
        clocks.report(&mut video, &clock(100, 1000), 1000);
        clocks.report(&mut audio, &clock(100, 77), 77);
        assert_eq!(clocks.time(&mut audio, 77, 0).as_nanos(), 5 * SECOND);
        // A report that is far off changes nothing.
        let mut broken = TrackClock::new(48_000);
        clocks.time(&mut broken, 0, 6 * SECOND);
        clocks.report(&mut broken, &clock(900, 0), 0);
        assert_eq!(clocks.time(&mut broken, 0, 0).as_nanos(), 6 * SECOND);
    }

    #[test]
    fn any_report() {
        bolero::check!().with_type::<(Vec<(bool, u64, i64)>, u32)>().for_each(|(events, rate)| {
            let mut clocks = Clocks::default();
            let mut track = TrackClock::new(*rate);
            for &(is_report, number, ticks) in events {
                if is_report {
                    clocks.report(&mut track, &SenderClock { ssrc: 0, ntp: number, timestamp: 0 }, ticks);
                } else {
                    clocks.time(&mut track, ticks, number as i64);
                }
            }
        });
    }
}
