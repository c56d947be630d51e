use std::time::Duration;

use freshwire_units::Timestamp;

/// This end's time in microseconds since it began the connection, and an estimate of the peer's.
#[derive(Debug)]
pub(crate) struct Clock {
    epoch: Timestamp,
    /// The peer's microseconds minus ours, and the round trip of the sample that said so.
    offset: i64,
    round_trip: Duration,
    taken_at: Timestamp,
}

impl Clock {
    pub(crate) fn new(epoch: Timestamp) -> Self {
        Self { epoch, offset: 0, round_trip: Duration::MAX, taken_at: epoch }
    }

    pub(crate) fn micros(&self, at: Timestamp) -> u64 {
        at.saturating_since(self.epoch).as_micros() as u64
    }

    pub(super) fn instant(&self, micros: u64) -> Timestamp {
        self.epoch + Duration::from_micros(micros)
    }

    /// The peer's time at `at`.
    pub(super) fn peer_micros(&self, at: Timestamp) -> u64 {
        self.micros(at).saturating_add_signed(self.offset)
    }

    /// A SYNC came back: the peer's time was `arrived_us` half a round trip before now. The shortest round trip of the
    /// last seconds says it best.
    pub(super) fn on_echo(&mut self, now: Timestamp, arrived_us: u64, held: Duration, round_trip: Duration) {
        let is_stale = now.saturating_since(self.taken_at) > KEEP;
        if round_trip > self.round_trip && !is_stale {
            return;
        }
        let peer_now = arrived_us.saturating_add((held + round_trip / 2).as_micros() as u64);
        self.offset = peer_now as i64 - self.micros(now) as i64;
        self.round_trip = round_trip;
        self.taken_at = now;
    }
}

/// For how long a sample counts against worse ones: clocks drift.
const KEEP: Duration = Duration::from_secs(30);
