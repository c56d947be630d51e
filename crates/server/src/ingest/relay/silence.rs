use std::time::{Duration, Instant};

/// The silence that is believed at first. A publisher that sends a group at a time pauses for about as long.
const SHORTEST: Duration = Duration::from_secs(2);

/// The longest silence that is believed.
const LONGEST: Duration = Duration::from_secs(60);

/// A pause longer than this multiple of the longest one lately is none of the publisher's.
const PAUSES: u32 = 2;

/// A long pause is forgotten within some hundred frames: an outage is no pause.
const FORGET: u32 = 64;

/// Frames so soon after the beginning may be those that a relay keeps, however old. They show nothing.
const JOINING: Duration = Duration::from_secs(1);

/// Finds out that nothing comes although the connection is alive. A relay can lose its way to the publisher without an error: behind two relays,
/// moq-relay 0.17.10 did when a publisher was killed and started again, one of three times. A publisher that pauses for long is asked
/// for again a few times, until its pauses are known.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When reading began. `None` while nothing is read.
    began: Option<Instant>,
    /// When a frame came last.
    heard: Option<Instant>,
    /// The longest pause lately.
    pause: Duration,
    /// Times in a row that asking again brought nothing.
    fruitless: u32,
}

impl Silence {
    /// Something is read, or nothing is.
    pub(super) fn reads(&mut self, is_reading: bool, now: Instant) {
        if is_reading {
            self.began.get_or_insert(now);
        } else {
            (self.began, self.heard) = (None, None);
        }
    }

    /// A frame has come.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.began.is_none_or(|began| now.duration_since(began) < JOINING) {
            return;
        }
        let pause = self.heard.map_or(Duration::ZERO, |heard| now.duration_since(heard));
        self.pause = pause.max(self.pause - self.pause / FORGET);
        (self.heard, self.fruitless) = (Some(now), 0);
    }

    /// The connection has ended.
    pub(super) fn ended(&mut self) {
        self.began = None;
    }

    /// The silence, if it is too long. The broadcast is to be asked for again.
    pub(super) fn is_too_long(&mut self, now: Instant) -> Option<Duration> {
        let silence = now.duration_since(self.began?.max(self.heard.unwrap_or(self.began?)));
        let believed = (self.pause * PAUSES).max(SHORTEST) * (1 << self.fruitless.min(8));
        if silence <= believed.min(LONGEST) {
            return None;
        }
        self.fruitless += 1;
        Some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(50);

    /// How often a source is asked again whose frames come with this pause, in a number of them. Each time it gets the last frame once more.
    fn asked_again(silence: &mut Silence, now: &mut Instant, pause: Duration, frames: u32) -> usize {
        let mut asked = 0;
        for _ in 0..frames {
            let next = *now + pause;
            while *now + LOOK < next {
                *now += LOOK;
                if silence.is_too_long(*now).is_some() {
                    silence.ended();
                    silence.reads(true, *now);
                    silence.heard(*now);
                    asked += 1;
                }
            }
            *now = next;
            silence.heard(*now);
        }
        asked
    }

    #[test]
    fn pauses_of_the_publisher_are_learned() {
        for millis in [5, 40, 200, 1000, 1900, 2500, 5000, 10_000, 25_000] {
            let (mut silence, mut now) = (Silence::default(), Instant::now());
            silence.reads(true, now);
            let pause = Duration::from_millis(millis);
            let first = asked_again(&mut silence, &mut now, pause, 5);
            assert!(if millis < 2000 { first == 0 } else { first <= 8 }, "{millis} ms: {first}");
            assert_eq!(asked_again(&mut silence, &mut now, pause, 200), 0, "{millis} ms");
        }
    }

    #[test]
    fn an_outage_is_found_soon_after_another() {
        let (mut silence, mut now) = (Silence::default(), Instant::now());
        for outage in 0..3 {
            silence.reads(true, now);
            assert_eq!(asked_again(&mut silence, &mut now, Duration::from_millis(40), 500), 0);
            let from = now;
            while silence.is_too_long(now).is_none() {
                now += LOOK;
            }
            assert!(
                now.duration_since(from) <= SHORTEST + 2 * LOOK,
                "{outage}: {:?}",
                now.duration_since(from)
            );
            silence.ended();
            // The publisher is away for a while.
            now += Duration::from_secs(20);
        }
        silence.reads(false, now);
        assert_eq!(silence.is_too_long(now + LONGEST * 2), None, "nothing is read");
    }
}
