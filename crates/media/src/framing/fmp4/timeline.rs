//! Where the samples of one track lie on a viewer's decode timeline.

use crate::unit::{MediaTime, UnitHead};

/// How long the samples of a track last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durations {
    /// Each until its own true end, and it begins where the one before it ends.
    CatchUp,
    /// Each for [`BRIDGE_MS`], past those that follow it, and it begins at its true time.
    Bridge,
}

/// The decode timeline of one track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    rate: u32,
    durations: Durations,
    /// The earliest and the latest begin of the next sample.
    next: Option<(u64, u64)>,
}

/// A sample's place, in ticks of its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) decode_time: u64,
    pub(super) duration: u32,
    /// Presentation time less decode time.
    pub(super) offset: i32,
}

impl Timeline {
    /// A track of `rate` ticks a second.
    pub(super) fn new(rate: u32, durations: Durations) -> Self {
        Self { rate: rate.max(1), durations, next: None }
    }

    /// The track has `rate` ticks a second from now on; the timeline goes on where it is.
    pub(super) fn set_rate(&mut self, rate: u32) {
        let rate = rate.max(1);
        let scale = |ticks: u64| {
            let scaled = (u128::from(ticks) * u128::from(rate)).div_ceil(u128::from(self.rate));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        self.next = self.next.map(|(first, last)| (scale(first), scale(last)));
        self.rate = rate;
    }

    /// Places the next sample, with the time `origin` at tick 0.
    pub(super) fn place(&mut self, unit: &UnitHead, origin: MediaTime) -> Place {
        let ticks =
            |nanos: i64| MediaTime::from_nanos(nanos.saturating_sub(origin.as_nanos())).ticks(self.rate);
        let (pts, dts) = (unit.pts.as_nanos(), unit.dts.as_nanos());
        let (first, last) = self.next.unwrap_or((0, u64::MAX));
        let begin = u64::try_from(ticks(dts)).unwrap_or(0).clamp(first, last);
        let duration = match self.durations {
            Durations::CatchUp => {
                let end = ticks(dts.saturating_add(i64::from(unit.duration_ns)));
                u64::try_from(end).unwrap_or(0).saturating_sub(begin).clamp(1, MAX_DURATION)
            }
            Durations::Bridge => (u64::from(self.rate) * BRIDGE_MS / 1000).clamp(1, MAX_DURATION),
        };
        let end = begin.saturating_add(duration);
        self.next = Some(match self.durations {
            Durations::CatchUp => (end, end),
            Durations::Bridge => (begin.saturating_add(1), end),
        });
        let offset = i128::from(ticks(pts)) - i128::from(begin);
        Place {
            decode_time: begin,
            duration: duration as u32,
            offset: offset.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
        }
    }
}

/// The longest time for which a picture is shown because the next ones are missing. Chosen, not measured.
const BRIDGE_MS: u64 = 1500;

/// Some readers take durations for signed. Several samples fill a longer gap.
const MAX_DURATION: u64 = i32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Kind;

    fn unit(pts_ms: i64, dts_ms: i64) -> UnitHead {
        UnitHead {
            kind: Kind::Video,
            pts: MediaTime::from_nanos(pts_ms * 1_000_000),
            dts: MediaTime::from_nanos(dts_ms * 1_000_000),
            duration_ns: 40_000_000,
            key: false,
            len: 0,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Default::default(),
        }
    }

    #[test]
    fn the_sample_after_a_gap_catches_up() {
        let mut timeline = Timeline::new(1000, Durations::CatchUp);
        let origin = MediaTime::from_nanos(-1_000_000_000);
        let mut place = |pts, dts| timeline.place(&unit(pts, dts), origin);
        assert_eq!(place(80, 0), Place { decode_time: 1000, duration: 40, offset: 80 });
        assert_eq!(place(240, 160), Place { decode_time: 1040, duration: 160, offset: 200 });
        assert_eq!(place(200, 200), Place { decode_time: 1200, duration: 40, offset: 0 });
        assert_eq!(place(10, 10), Place { decode_time: 1240, duration: 1, offset: -230 });
    }

    #[test]
    fn a_bridging_sample_outlasts_those_behind_it() {
        let mut timeline = Timeline::new(1000, Durations::Bridge);
        let mut place = |pts, dts| timeline.place(&unit(pts, dts), MediaTime::default());
        assert_eq!(place(80, 0), Place { decode_time: 0, duration: 1500, offset: 80 });
        assert_eq!(place(240, 160), Place { decode_time: 160, duration: 1500, offset: 80 });
        assert_eq!(place(200, 160), Place { decode_time: 161, duration: 1500, offset: 39 });
        assert_eq!(place(9080, 9000), Place { decode_time: 1661, duration: 1500, offset: 7419 });
    }

    #[test]
    fn any_times_make_a_timeline_without_jumps() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<Vec<(i32, i16, u32)>>()
            .for_each(|units| {
                let mut contiguous = Timeline::new(90_000, Durations::CatchUp);
                let mut bridging = Timeline::new(90_000, Durations::Bridge);
                let (mut end, mut before) = (None, None::<Place>);
                for &(dts, offset, duration_ns) in units {
                    let (dts, offset) = (i64::from(dts), i64::from(offset));
                    let unit = UnitHead { duration_ns, ..unit(dts.saturating_add(offset), dts) };
                    let place = contiguous.place(&unit, MediaTime::default());
                    assert!(place.duration > 0);
                    assert!(end.is_none_or(|end| end == place.decode_time));
                    end = Some(place.decode_time + u64::from(place.duration));
                    let place = bridging.place(&unit, MediaTime::default());
                    assert!(before.is_none_or(|before| {
                        let step = place.decode_time - before.decode_time;
                        (1..=u64::from(before.duration)).contains(&step)
                    }));
                    before = Some(place);
                }
            });
    }

    #[test]
    fn a_new_rate_keeps_the_place_in_time() {
        let mut timeline = Timeline::new(44_100, Durations::CatchUp);
        timeline.place(&unit(0, 0), MediaTime::default());
        timeline.set_rate(48_000);
        assert_eq!(timeline.place(&unit(40, 40), MediaTime::default()).decode_time, 1920);
    }
}
