use std::time::Duration;

use freshwire_record::Timestamp;

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

    /// The same, negative for what was before the connection.
    pub(crate) fn signed_micros(&self, at: Timestamp) -> i64 {
        let before = self.epoch.saturating_since(at).as_micros();
        self.micros(at) as i64 - before as i64
    }

    pub(super) fn instant(&self, micros: u64) -> Timestamp {
        self.epoch + Duration::from_micros(micros)
    }

    /// The peer's time at `at`.
    pub(super) fn peer_micros(&self, at: Timestamp) -> u64 {
        self.micros(at).saturating_add_signed(self.offset)
    }

    /// A SYNC came, which the peer had sent before at `sent_us` of its time. Until one of ours comes back
    /// nothing else is known. The two times may have started seconds apart: a handshake is repeated if it is
    /// lost.
    //= spec/a1.md A1-MSG-6
    pub(super) fn on_sync(&mut self, now: Timestamp, sent_us: u64) {
        let least = i64::try_from(sent_us).unwrap_or(i64::MAX).saturating_sub(self.micros(now) as i64);
        self.offset = self.offset.max(least);
    }

    /// A SYNC came back: the peer's time was `arrived_us` half a round trip before now. The shortest round trip of the
    /// last seconds says it best.
    //= spec/a1.md A1-MSG-6
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

/// Time for which a sample counts against worse ones, since clocks drift (A1-MSG-6).
const KEEP: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn clocks_seconds_apart_are_known_from_the_first_sync_on() {
        let mut clock = Clock::new(at(5000));
        assert_eq!(clock.peer_micros(at(5100)), 100_000, "both begin with the handshake");
        // The peer began its time 3 s before us, and a SYNC takes 40 ms.
        clock.on_sync(at(5140), 3_100_000);
        assert_eq!(clock.peer_micros(at(5140)), 3_100_000);
        clock.on_echo(at(5200), 3_160_000, Duration::ZERO, Duration::from_millis(80));
        assert_eq!(clock.peer_micros(at(5200)), 3_200_000);
        clock.on_sync(at(5300), 3_200_000);
        assert_eq!(clock.peer_micros(at(5300)), 3_300_000, "a SYNC that was slow says nothing new");
    }
}
