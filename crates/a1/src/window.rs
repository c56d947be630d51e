//! How far the peer may go beyond what the application has consumed.

use std::time::Duration;

use freshwire_record::Timestamp;

use crate::outbox::Credit;
use crate::wire::Qos;

/// The flow-control window. Its number of messages follows the pace of the application. If it were larger
/// than the path needs, messages that the application is too slow for would become stale here, where nobody
/// can drop them any more.
#[derive(Debug)]
pub(crate) struct Window {
    size: Credit,
    /// As many messages as were agreed on.
    most: u64,
    /// When the pace was looked at, and what had been consumed by then.
    looked: Option<(Timestamp, u64)>,
    /// Since when the application has not once taken all there was.
    behind_since: Option<Timestamp>,
}

impl Window {
    pub(crate) fn new(qos: &Qos) -> Self {
        Self { size: first_window(qos), most: qos.outstanding.into(), looked: None, behind_since: None }
    }

    pub(crate) fn size(&self) -> Credit {
        self.size
    }

    /// Another quality of service was agreed on. It does not make an application faster that is behind.
    pub(crate) fn change(&mut self, qos: &Qos) {
        let first = first_window(qos);
        let least = if self.behind_since.is_some() { 0 } else { first.messages };
        self.most = qos.outstanding.into();
        self.size = Credit { messages: self.size.messages.clamp(least, self.most), ..first };
    }

    /// The application has taken a message. `consumed` is how many it has by now, with those that are gone, and `is_empty`
    /// whether there is no other one for it.
    //= spec/a1.md A1-FLOW-5
    pub(crate) fn on_taken(&mut self, now: Timestamp, round_trip: Duration, consumed: u64, is_empty: bool) {
        self.behind_since = self.behind_since.or(Some(now)).filter(|_| !is_empty);
        let (since, before) = *self.looked.get_or_insert((now, consumed));
        let twice = (2 * (consumed - before)).max(LEAST).min(self.most);
        self.size.messages = self.size.messages.max(twice);
        if now.saturating_since(since) < round_trip.max(PACE_TIME) {
            return;
        }
        self.looked = Some((now, consumed));
        let patience = (PATIENCE_ROUND_TRIPS * round_trip).max(PATIENCE);
        if self.behind_since.is_some_and(|since| now.saturating_since(since) >= patience) {
            self.size.messages = twice;
        }
    }
}

/// The window before anything is known of the application.
//= spec/a1.md A1-FLOW-1
pub(crate) fn first_window(qos: &Qos) -> Credit {
    Credit { messages: u64::from(qos.outstanding).min(FIRST), bytes: qos.receive_window() }
}

/// Messages at first (A1-FLOW-1).
const FIRST: u64 = 64;
/// The least number of messages for a slow application (A1-FLOW-5).
const LEAST: u64 = 4;
/// The pace is looked at after a round trip, but not before this time (A1-FLOW-5): applications share the
/// processor.
const PACE_TIME: Duration = Duration::from_millis(20);
/// An application is slow if it was behind for this number of round trips, and for the time below
/// (A1-FLOW-5).
const PATIENCE_ROUND_TRIPS: u32 = 4;
/// The least time (A1-FLOW-5).
const PATIENCE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// An application that takes `count` messages each `pause`, of which `left` stay behind.
    fn take(window: &mut Window, clock: &mut (Timestamp, u64), pause_ms: u64, count: u64, left: bool) {
        clock.0 += Duration::from_millis(pause_ms);
        for taken in 1..=count {
            clock.1 += 1;
            window.on_taken(clock.0, ROUND_TRIP, clock.1, taken == count && !left);
        }
    }

    #[test]
    fn the_window_grows_to_twice_the_pace_within_the_agreement() {
        let qos = Qos { outstanding: 300, ..Qos::default() };
        let (mut window, mut clock) = (Window::new(&qos), (Timestamp::ZERO, 0));
        assert_eq!(window.size().messages, 64);
        for (per_ms, expected) in [(1, 100), (2, 200), (9, 300), (1, 300)] {
            for _ in 0..150 {
                take(&mut window, &mut clock, 1, per_ms, false);
            }
            assert_eq!(window.size().messages, expected);
        }
    }

    #[test]
    fn reading_in_bursts_does_not_shrink_it() {
        let (mut window, mut clock) = (Window::new(&Qos::default()), (Timestamp::ZERO, 0));
        for count in [60, 60, 2, 1, 2] {
            take(&mut window, &mut clock, 1000, count, false);
        }
        assert_eq!(window.size().messages, 120);
    }

    #[test]
    fn a_new_quality_does_not_open_it_for_a_slow_application() {
        let (few, many) = (Qos { outstanding: 2, ..Qos::default() }, Qos::default());
        let (mut window, mut clock) = (Window::new(&few), (Timestamp::ZERO, 0));
        window.change(&many);
        assert_eq!(window.size().messages, 64, "nobody is slow yet");
        for _ in 0..5 {
            take(&mut window, &mut clock, 50, 1, true);
        }
        for (qos, expected) in [(many, 4), (few, 2), (many, 2)] {
            window.change(&qos);
            assert_eq!(window.size().messages, expected);
        }
        take(&mut window, &mut clock, 50, 1, false);
        assert_eq!(window.size().messages, 4, "two of twice the pace at least");
    }

    #[test]
    fn a_slow_application_has_little_waiting_until_it_is_fast() {
        let (mut window, mut clock) = (Window::new(&Qos::default()), (Timestamp::ZERO, 0));
        for _ in 0..5 {
            take(&mut window, &mut clock, 50, 1, true);
        }
        assert_eq!(window.size().messages, 4);
        for _ in 0..20 {
            let all = window.size().messages;
            take(&mut window, &mut clock, 50, all, false);
        }
        assert_eq!(window.size().messages, 1024);
    }
}
