use std::time::{Duration, Instant};

/// The silence that is believed at first. A publisher that sends a group at a time pauses for about as long.
const SHORTEST: Duration = Duration::from_secs(2);

/// The longest silence that is believed.
const LONGEST: Duration = Duration::from_secs(60);

/// A pause longer than this multiple of the longest one lately is none of the publisher's.
const PAUSES: u32 = 2;

/// A pause is forgotten in this time, to a third: an outage is no pause. Frames of a burst take no time, so they forget nothing.
const MEMORY: Duration = Duration::from_secs(30);

/// A first frame may take this much longer: a relay may have to ask others. As long as the answer for a track may take.
const ANSWER: Duration = Duration::from_secs(3);

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
    /// A frame has come since reading began.
    is_answered: bool,
    /// A frame has come on this connection, later than [`JOINING`].
    goes_on: bool,
}

impl Silence {
    /// Something is read, or nothing is.
    pub(super) fn reads(&mut self, is_reading: bool, now: Instant) {
        if is_reading {
            self.began.get_or_insert(now);
        } else {
            (self.began, self.heard, self.is_answered) = (None, None, false);
        }
    }

    /// A frame has come.
    pub(super) fn heard(&mut self, now: Instant) {
        self.is_answered = true;
        if self.began.is_none_or(|began| now.duration_since(began) < JOINING) {
            return;
        }
        let pause = self.heard.map_or(Duration::ZERO, |heard| now.duration_since(heard));
        let kept = (-pause.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.pause = pause.max(self.pause.mul_f64(kept));
        (self.heard, self.fruitless, self.goes_on) = (Some(now), 0, true);
    }

    /// The connection has ended. Returns whether frames came for a while. `is_silent`: by [`is_too_long`](Self::is_too_long). What comes
    /// next then ends a pause, perhaps of the publisher; after another end nothing is known of pauses.
    pub(super) fn ended(&mut self, is_silent: bool) -> bool {
        self.began = None;
        self.heard = self.heard.filter(|_| is_silent);
        self.is_answered = false;
        std::mem::take(&mut self.goes_on)
    }

    /// The silence, if it is too long. The broadcast is to be asked for again.
    pub(super) fn is_too_long(&mut self, now: Instant) -> Option<Duration> {
        let began = self.began?;
        let silence = now.duration_since(self.heard.map_or(began, |heard| heard.max(began)));
        let believed = (self.pause * PAUSES).max(SHORTEST) * (1 << self.fruitless.min(8));
        let believed = if self.is_answered { believed } else { believed.max(SHORTEST + ANSWER) };
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

    /// How often a source is asked again whose bursts of frames come with this pause. Each time it gets the last one once more.
    fn asked_again(
        silence: &mut Silence,
        now: &mut Instant,
        pause: Duration,
        burst: u32,
        bursts: u32,
    ) -> usize {
        let mut asked = 0;
        for _ in 0..bursts {
            let next = *now + pause;
            while *now + LOOK < next {
                *now += LOOK;
                if silence.is_too_long(*now).is_some() {
                    silence.ended(true);
                    silence.reads(true, *now);
                    silence.heard(*now);
                    asked += 1;
                }
            }
            *now = next;
            (0..burst).for_each(|_| silence.heard(*now));
        }
        asked
    }

    #[test]
    fn pauses_of_the_publisher_are_learned() {
        for burst in [1, 10, 300, 1000] {
            for millis in [5, 40, 200, 1000, 1900, 2500, 5000, 10_000, 25_000] {
                let (mut silence, mut now) = (Silence::default(), Instant::now());
                silence.reads(true, now);
                let pause = Duration::from_millis(millis);
                let first = asked_again(&mut silence, &mut now, pause, burst, 5);
                assert!(
                    if millis < 2000 { first == 0 } else { first <= 8 },
                    "{burst} in {millis} ms: {first}"
                );
                let later = asked_again(&mut silence, &mut now, pause, burst, 100);
                assert_eq!(later, 0, "{burst} in {millis} ms");
            }
        }
    }

    #[test]
    fn an_outage_is_found_soon_after_another() {
        for is_silent in [true, false] {
            let (mut silence, mut now) = (Silence::default(), Instant::now());
            for outage in 0..3 {
                silence.reads(true, now);
                let frames = if is_silent { 2500 } else { 50 };
                let asked = asked_again(&mut silence, &mut now, Duration::from_millis(40), 1, frames);
                assert_eq!(asked, 0);
                let from = now;
                while silence.is_too_long(now).is_none() {
                    now += LOOK;
                }
                assert!(
                    now.duration_since(from) <= SHORTEST + 2 * LOOK,
                    "{outage}: {:?}",
                    now.duration_since(from)
                );
                assert!(silence.ended(is_silent), "frames came");
                // The publisher is away for a while.
                now += Duration::from_secs(20);
            }
            silence.reads(false, now);
            assert_eq!(silence.is_too_long(now + LONGEST * 2), None, "nothing is read");
        }
    }

    #[test]
    fn a_first_frame_may_take_longer() {
        let (mut silence, mut now) = (Silence::default(), Instant::now());
        // For the first viewer, and for one that comes after all have left.
        for _ in 0..2 {
            silence.reads(true, now);
            assert_eq!(silence.is_too_long(now + SHORTEST + ANSWER), None);
            now += SHORTEST + ANSWER;
            silence.heard(now);
            assert!(silence.is_too_long(now + SHORTEST + LOOK).is_some());
            silence.heard(now);
            silence.reads(false, now);
        }
        assert!(silence.ended(true), "frames came");
        silence.reads(true, now);
        assert!(silence.is_too_long(now + SHORTEST + ANSWER + LOOK).is_some());
        assert!(!silence.ended(true), "none came any more");
    }
}
