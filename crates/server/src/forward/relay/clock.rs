//! When what is shown at a media time was captured, as times on the wire.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use freshwire_media::unit::MediaTime;

/// How far the zero of the wire lies before the first picture. Sound from before it and pictures that are shown early are not before zero.
const LEAD: Duration = Duration::from_secs(10);

/// The media clock and the wall clock may be so far apart: the arrival of pictures says no more. Chosen, not measured.
const SLACK_NS: i64 = 20_000_000;

/// By more the source has started anew.
const JUMP_NS: i64 = 1_000_000_000;

/// How far a look moves the times: a thousandth of the time between looks. Clocks drift by less, and players do not notice.
const STEP_NS: i64 = 50_000;

/// Makes times on the wire of media times: microseconds since [`zero`](Self::zero).
pub(super) struct WireClock {
    zero: SystemTime,
    /// Added to a media time, in nanoseconds.
    offset: AtomicI64,
}

impl WireClock {
    /// `captured`: when pictures were captured that are shown at a media time, if that is known.
    pub(super) fn new(captured: Option<(MediaTime, SystemTime)>) -> Self {
        let (media, wall) = captured.unwrap_or((MediaTime::default(), SystemTime::now()));
        let zero = wall.min(SystemTime::now()).checked_sub(LEAD).unwrap_or(SystemTime::UNIX_EPOCH);
        let clock = Self { zero, offset: AtomicI64::new(0) };
        clock.offset.store(clock.offset_of(media, wall), Ordering::Relaxed);
        clock
    }

    /// The wall time of the time 0.
    pub(super) fn zero(&self) -> SystemTime {
        self.zero
    }

    fn offset_of(&self, media: MediaTime, wall: SystemTime) -> i64 {
        let since = wall.duration_since(self.zero).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX).saturating_sub(media.as_nanos())
    }

    /// Follows the stream's clock.
    pub(super) fn follow(&self, captured: Option<(MediaTime, SystemTime)>) {
        let Some((media, wall)) = captured else { return };
        let (now, wanted) = (self.offset.load(Ordering::Relaxed), self.offset_of(media, wall));
        let apart = wanted.saturating_sub(now);
        let next = match apart.saturating_abs() {
            0..=SLACK_NS => return,
            JUMP_NS.. => wanted,
            _ => now.saturating_add(apart.signum() * STEP_NS),
        };
        self.offset.store(next, Ordering::Relaxed);
    }

    /// The time on the wire of what is shown at this media time.
    pub(super) fn micros(&self, media: MediaTime) -> u64 {
        let nanos = media.as_nanos().saturating_add(self.offset.load(Ordering::Relaxed));
        u64::try_from(nanos / 1000).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn times_follow_the_wall_clock() {
        let wall = SystemTime::now();
        let media = |ms: i64| MediaTime::from_nanos(ms * MS);
        let at = |ms: u64| wall + Duration::from_millis(ms);
        let clock = WireClock::new(Some((media(-500), wall)));
        let zero = clock.micros(media(-500));
        assert_eq!(zero, LEAD.as_micros() as u64);
        clock.follow(Some((media(500), at(1010))));
        assert_eq!(clock.micros(media(500)), zero + 1_000_000, "within the slack");
        for _ in 0..10 {
            clock.follow(Some((media(500), at(1100))));
        }
        assert_eq!(clock.micros(media(500)), zero + 1_000_500, "step by step");
        clock.follow(Some((media(70_000_000), at(2000))));
        assert_eq!(clock.micros(media(70_000_000)), zero + 2_000_000, "the source began anew");
        assert_eq!(clock.micros(MediaTime::from_nanos(i64::MIN)), 0);
    }
}
