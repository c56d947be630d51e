//! Where the samples of one track lie on a viewer's decode timeline.

use crate::unit::{MediaTime, UnitHead};

/// The decode timeline of one track: a sample begins where the one before it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    rate: u32,
    end: Option<u64>,
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
    pub(super) fn new(rate: u32) -> Self {
        Self { rate: rate.max(1), end: None }
    }

    /// The track has `rate` ticks a second from now on; the timeline goes on where it is.
    pub(super) fn set_rate(&mut self, rate: u32) {
        let rate = rate.max(1);
        self.end = self.end.map(|end| {
            let scaled = (u128::from(end) * u128::from(rate)).div_ceil(u128::from(self.rate));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        });
        self.rate = rate;
    }

    /// Places the next sample, with the time `origin` at tick 0.
    pub(super) fn place(&mut self, unit: &UnitHead, origin: MediaTime) -> Place {
        let ticks =
            |nanos: i64| MediaTime::from_nanos(nanos.saturating_sub(origin.as_nanos())).ticks(self.rate);
        let (pts, dts) = (unit.pts.as_nanos(), unit.dts.as_nanos());
        let begin = self.end.unwrap_or_else(|| u64::try_from(ticks(dts)).unwrap_or(0));
        let end = u64::try_from(ticks(dts.saturating_add(i64::from(unit.duration_ns)))).unwrap_or(0);
        let duration = end.saturating_sub(begin).clamp(1, MAX_DURATION);
        self.end = Some(begin.saturating_add(duration));
        let offset = i128::from(ticks(pts)) - i128::from(begin);
        Place {
            decode_time: begin,
            duration: duration as u32,
            offset: offset.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
        }
    }
}

/// Some readers take durations for signed. A longer gap is made up for by several samples.
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
            tracks: Default::default(),
        }
    }

    #[test]
    fn the_sample_after_a_gap_catches_up() {
        let mut timeline = Timeline::new(1000);
        let origin = MediaTime::from_nanos(-1_000_000_000);
        let mut place = |pts, dts| timeline.place(&unit(pts, dts), origin);
        assert_eq!(place(80, 0), Place { decode_time: 1000, duration: 40, offset: 80 });
        assert_eq!(place(240, 160), Place { decode_time: 1040, duration: 160, offset: 200 });
        assert_eq!(place(200, 200), Place { decode_time: 1200, duration: 40, offset: 0 });
        assert_eq!(place(10, 10), Place { decode_time: 1240, duration: 1, offset: -230 });
    }

    #[test]
    fn any_times_make_a_timeline_without_jumps() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<Vec<(i32, i16, u32)>>()
            .for_each(|units| {
                let mut timeline = Timeline::new(90_000);
                let mut end = None;
                for &(dts, offset, duration_ns) in units {
                    let (dts, offset) = (i64::from(dts), i64::from(offset));
                    let place = timeline.place(
                        &UnitHead { duration_ns, ..unit(dts.saturating_add(offset), dts) },
                        MediaTime::default(),
                    );
                    assert!(place.duration > 0);
                    assert!(end.is_none_or(|end| end == place.decode_time));
                    end = Some(place.decode_time + u64::from(place.duration));
                }
            });
    }

    #[test]
    fn a_new_rate_keeps_the_place_in_time() {
        let mut timeline = Timeline::new(44_100);
        timeline.place(&unit(0, 0), MediaTime::default());
        timeline.set_rate(48_000);
        assert_eq!(timeline.place(&unit(40, 40), MediaTime::default()).decode_time, 1920);
    }
}
