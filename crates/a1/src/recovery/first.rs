//! What a path carries before a round trip has shown it: how fast packets come that were sent without a pause.
//!
//! What the first round of a connection delivers is spread over the round trip before it, so that the path seems a fraction as fast.
//! But packets that were sent faster than the path carries them come out of its bottleneck one after the other, and the peer says
//! when each came. Should there be no bottleneck, they come as fast as they were sent.

use freshwire_record::Rate;

#[derive(Debug, Default)]
pub(super) struct FirstRate {
    /// Streaks that were sent.
    streaks: u64,
    is_paused: bool,
    streak: Option<Streak>,
    /// The fastest of the streaks before.
    best: Option<Rate>,
}

/// Packets between which there was always something to send.
#[derive(Clone, Copy, Debug)]
struct Streak {
    number: u64,
    /// When the first of them came, by the receiver's clock.
    first_us: u32,
    last_us: u32,
    /// Bytes that came from then on, up to the last and since.
    bytes: u64,
    since: u64,
}

impl FirstRate {
    /// A packet leaves; the number of its streak.
    pub(super) fn on_sent(&mut self) -> u64 {
        self.streaks += u64::from(std::mem::take(&mut self.is_paused));
        self.streaks
    }

    /// There is nothing to send.
    pub(super) fn on_pause(&mut self) {
        self.is_paused = true;
    }

    /// `bytes` were acknowledged, the newest packet of them of this streak; it came at `receiver_us`, where that is known.
    pub(super) fn on_acked(&mut self, number: u64, bytes: u64, receiver_us: Option<u32>) {
        if let Some(streak) = self.streak.as_mut().filter(|streak| streak.number >= number) {
            streak.since += bytes;
            if let Some(receiver_us) = receiver_us {
                streak.last_us = receiver_us;
                streak.bytes += std::mem::take(&mut streak.since);
            }
        } else if let Some(first_us) = receiver_us {
            self.best = self.rate();
            self.streak = Some(Streak { number, first_us, last_us: first_us, bytes: 0, since: 0 });
        }
    }

    /// `None`: too little has come.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.best.max(self.streak.as_ref().and_then(Streak::rate))
    }
}

impl Streak {
    fn rate(&self) -> Option<Rate> {
        let micros = u64::from(self.last_us.wrapping_sub(self.first_us));
        let bits = (self.bytes.saturating_mul(8_000_000)).checked_div(micros)?;
        (self.bytes >= ENOUGH).then(|| Rate::from_bits_per_sec(bits))
    }
}

/// This number of bytes, two packets, tells how fast they follow each other.
const ENOUGH: u64 = 2400;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1250 bytes of the next streak came at these times.
    fn streak(first: &mut FirstRate, came_us: &[u32]) {
        let number = first.on_sent();
        for &at in came_us {
            first.on_acked(number, 1250, Some(at));
        }
        first.on_pause();
    }

    fn megabits(first: &FirstRate) -> Option<u64> {
        first.rate().map(|rate| rate.bits_per_sec() / 1_000_000)
    }

    #[test]
    fn a_pause_is_not_the_path() {
        let mut first = FirstRate::default();
        streak(&mut first, &[0]);
        streak(&mut first, &[50_000, 51_000, 52_000]);
        assert_eq!(megabits(&first), Some(10));
        streak(&mut first, &[90_000, 95_000, 100_000]);
        assert_eq!(megabits(&first), Some(10), "the fastest counts");
    }

    #[test]
    fn too_few_packets_tell_nothing() {
        let mut first = FirstRate::default();
        streak(&mut first, &[0, 1000]);
        assert_eq!(first.rate(), None);
        streak(&mut first, &[5000, 5000, 5000]);
        assert_eq!(first.rate(), None, "no time has passed");
    }

    #[test]
    fn packets_of_unknown_time_count_with_their_successors() {
        let mut first = FirstRate::default();
        let number = first.on_sent();
        first.on_acked(number, 1250, Some(u32::MAX - 999));
        first.on_acked(number, 1250, None);
        assert_eq!(first.rate(), None);
        first.on_acked(number, 1250, Some(1000));
        assert_eq!(megabits(&first), Some(10), "also where the clock wraps");
    }
}
