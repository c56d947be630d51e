//! The unread bytes of a receiver on another machine, as far as its advertised window tells. That is little: a kernel that receives small
//! segments shrinks its window for good although its program has read everything. So a window counts only when it is nearly closed, or
//! while it is known what it was with nothing unread.
//!
//! ```text
//!  most ─────────┐                    ┌─ a value at a time ("probe") while it is held back,
//!  window        │ unread <= most     │  so that an acknowledgement says how the window is
//!  advertised ───┴──────────── - window
//!                 nearly closed ──────┘
//! ```

use std::time::Duration;

use freshwire_io::tcp::TcpInfo;
use freshwire_record::Timestamp;

/// The pause between two probes: a part of the time that the receiver has not read, within these. A window that opens is advertised
/// without being asked only when it has doubled.
const PROBE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
const PROBE_SHARE: u32 = 8;

/// The same for a receiver that has stopped: what is sent meanwhile is stale when it reads again.
const LONG_PROBE: Duration = Duration::from_secs(1);
const LONG_PROBE_SHARE: u32 = 100;

/// A window is nearly closed below this, and below this part of the largest one. No fast reader had a smaller one: 32 kB was the least with
/// the default buffer of Linux (ADR 0046).
const NEARLY_CLOSED: u32 = 16 << 10;
const NEARLY_CLOSED_SHARE: u32 = 4;

/// How long a window has to open before its reader counts as slow. One that waited for a processor reads everything at once.
const SLOW_OPENING: Duration = Duration::from_millis(100);

/// How long after it was held back a receiver is taken for a slow one, which gets no more at a time than the bound leaves.
const SLOW: Duration = Duration::from_secs(1);

/// A slow reader has a smaller buffer than before if it has read this much while its window stayed the same,
/// and at least an eighth of the largest window.
const REBASE_BYTES: u64 = 16 << 10;

/// The same for one that is not known to be slow, in units of the window.
const REBASE_UNITS: u64 = 4;

/// Part of the largest window by which one may differ and count as unchanged: windows are rounded.
const SAME_SHARE: u32 = 16;

/// Estimates the unread bytes, and says how much more may go to the receiver.
#[derive(Debug, Default)]
pub(in crate::tcp) struct Window {
    bound: u64,
    /// The largest window of this connection, that of a smaller buffer once the receiver shows one.
    most: u32,
    window: u32,
    held: Option<Held>,
    /// While the receiver is known to be slow: its window then tells from the bound on.
    slow_until: Option<Timestamp>,
}

/// Since when the receiver has more than it may.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Timestamp,
    probe_at: Timestamp,
    /// The window for as long as it has been the same, and what was acknowledged when it became so.
    window: u32,
    acked: u64,
    least: u32,
    opens_since: Option<Timestamp>,
}

impl Window {
    pub(super) fn new(bound: u32) -> Self {
        Self { bound: u64::from(bound), ..Self::default() }
    }

    /// The estimate; `None` while a smaller window would not tell anything.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.is_limited().then_some(self.unread())
    }

    fn unread(&self) -> u64 {
        u64::from(self.most - self.window)
    }

    /// Whether the receiver has more than it may.
    pub(super) fn is_over(&self) -> bool {
        self.held.is_some()
    }

    /// Whether it has more than it may, or had recently.
    pub(super) fn is_limited(&self) -> bool {
        self.held.is_some() || self.slow_until.is_some()
    }

    /// Takes in a fresh look at the connection.
    pub(super) fn update(&mut self, now: Timestamp, info: &TcpInfo) {
        let Some(window) = info.window else { return };
        self.most = self.most.max(window);
        self.window = window;
        if let Some(held) = &mut self.held {
            let (same, enough) = if self.slow_until.is_some() {
                (self.most / SAME_SHARE, REBASE_BYTES.max(u64::from(self.most / 8)))
            } else {
                (info.window_unit, REBASE_UNITS * u64::from(info.window_unit))
            };
            if held.window.abs_diff(window) > same {
                (held.window, held.acked) = (window, info.bytes_acked);
            } else if info.bytes_acked.saturating_sub(held.acked) >= enough {
                self.most = window;
            }
            held.least = held.least.min(window);
            if held.opens_since.is_none() && window > held.least + same {
                held.opens_since = Some(now);
            }
        }
        let is_over = self.unread() >= self.bound;
        match (self.held, is_over) {
            (Some(held), false) => {
                self.held = None;
                // Known as slow, it stays so; else only one that has read for some time what lay unread.
                let has_read =
                    held.opens_since.is_some_and(|since| now.saturating_since(since) >= SLOW_OPENING);
                if has_read || self.slow_until.is_some() {
                    self.slow_until = Some(now + SLOW);
                }
            }
            (None, true) if self.slow_until.is_some() || self.is_nearly_closed() => {
                let probe_at = now + PROBE.0.max(info.rtt);
                let (acked, least) = (info.bytes_acked, window);
                self.held = Some(Held { since: now, probe_at, window, acked, least, opens_since: None });
            }
            (None, _) => self.slow_until = self.slow_until.filter(|&until| now < until),
            (Some(_), true) => {}
        }
    }

    fn is_nearly_closed(&self) -> bool {
        self.window < NEARLY_CLOSED.min(self.most / NEARLY_CLOSED_SHARE)
    }

    /// How many bytes of new records may be committed now, with `outstanding` bytes on the way: `None` where that is not limited. A record
    /// may be committed while this is not zero.
    pub(super) fn room(&self, now: Timestamp, outstanding: u64) -> Option<u64> {
        match self.held {
            Some(held) => Some(u64::from(now >= held.probe_at)),
            None if self.slow_until.is_some_and(|until| now < until) => {
                let unread = self.unread().saturating_add(outstanding);
                // With nothing on the way there is nothing that an acknowledgement could tell.
                Some(self.bound.saturating_sub(unread).max(u64::from(outstanding == 0)))
            }
            None => None,
        }
    }

    /// Something was written: the next probe waits.
    pub(super) fn wrote(&mut self, now: Timestamp, rtt: Duration) {
        if let Some(held) = &mut self.held {
            held.probe_at = now + pause(now.saturating_since(held.since)).max(rtt);
        }
    }

    /// When to look at the window again, if it is what holds back.
    pub(super) fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        let held = self.held?;
        let half = held.probe_at.saturating_since(now) / 2;
        Some(now + half.max(PROBE.0))
    }
}

fn pause(held: Duration) -> Duration {
    let pause = (held / PROBE_SHARE).clamp(PROBE.0, PROBE.1);
    pause.max(held / LONG_PROBE_SHARE).min(LONG_PROBE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: u32 = 10 << 10;

    /// A receiver in virtual time: its kernel's buffer, the rounding of its window, and how fast its program reads.
    struct Receiver {
        unread: Window,
        now: Timestamp,
        buffer: u64,
        rounding: u64,
        /// Bytes that it takes before its window shrinks.
        slack: u64,
        /// Milliseconds between two acknowledgements.
        delay: u64,
        /// Bytes of a record, and records a millisecond.
        record: u64,
        rate: u64,
        waiting: u64,
        received: u64,
        /// As the sender knows them.
        acked: u64,
        edge: u64,
    }

    impl Receiver {
        fn new(record: u64, rate: u64) -> Self {
            Self {
                unread: Window::new(BOUND),
                now: Timestamp::ZERO,
                buffer: 64 << 10,
                rounding: 1,
                slack: 0,
                delay: 1,
                record,
                rate,
                waiting: 0,
                received: 0,
                acked: 0,
                edge: 0,
            }
        }

        /// The window as a kernel advertises it: what was promised stays promised.
        fn acknowledge(&mut self) {
            let free = self.buffer.saturating_sub(self.waiting.saturating_sub(self.slack));
            self.edge = self.edge.max(self.received + free / self.rounding * self.rounding);
            self.acked = self.received;
        }

        /// A sender with always something to send, for that number of milliseconds; in each the program reads what `reads` says. The most that
        /// lay unread.
        fn run(&mut self, milliseconds: u64, mut reads: impl FnMut(u64) -> u64) -> u64 {
            let mut most = 0;
            for at in 0..milliseconds {
                self.now += Duration::from_millis(1);
                if at % self.delay == 0 {
                    self.acknowledge();
                }
                let info = TcpInfo {
                    window: Some((self.edge - self.acked) as u32),
                    window_unit: self.rounding as u32,
                    bytes_acked: self.acked,
                    rtt: Duration::from_micros(100),
                    ..TcpInfo::default()
                };
                self.unread.update(self.now, &info);
                let room = self.unread.room(self.now, self.received - self.acked).unwrap_or(u64::MAX);
                let free = self.edge - self.received;
                let records = room.div_ceil(self.record).min(self.rate).min(free / self.record);
                if records > 0 {
                    self.unread.wrote(self.now, info.rtt);
                }
                self.received += records * self.record;
                self.waiting += records * self.record;
                most = most.max(self.waiting);
                self.waiting -= reads(at).min(self.waiting);
            }
            most
        }
    }

    /// Records of 10 bytes to 64 kB, at rates over a factor of a hundred, as far as a millisecond's fit into the buffer.
    fn receivers() -> impl Iterator<Item = Receiver> {
        [10, 100, 330, 1000, 4000, 16_000].into_iter().flat_map(|record| {
            let rates = [1, 10, 100].into_iter().filter(move |rate| record * rate <= 24_000);
            rates.flat_map(move |rate| {
                [1, 128, 1024].into_iter().flat_map(move |rounding| {
                    [1, 5].map(|delay| Receiver { rounding, delay, ..Receiver::new(record, rate) })
                })
            })
        })
    }

    /// Everything that a fast reader's sender has, it sends: also where the kernel shrinks its window for good, again and again, and where
    /// the program waits for a processor.
    #[test]
    fn a_fast_reader_is_never_held_back() {
        for mut receiver in receivers().filter(|one| one.record * one.rate * one.delay <= 24_000) {
            let name = format!("{} bytes x {}, {}", receiver.record, receiver.rate, receiver.rounding);
            for buffer in [64 << 10, 640 << 10, 100_000, 32 << 10, 200_000, 48 << 10] {
                receiver.buffer = buffer;
                receiver.run(1_000, |at| if at % 20 < 1 { 0 } else { u64::MAX });
                assert!(!receiver.unread.is_limited(), "{name}: held back at a buffer of {buffer}");
            }
            let sent = receiver.received;
            receiver.run(1_000, |_| u64::MAX);
            let due = receiver.record * receiver.rate * 1_000;
            assert_eq!(receiver.received - sent, due, "{name}");
        }
    }

    #[test]
    fn a_window_that_shrinks_to_a_sliver_costs_some_seconds() {
        for record in [100, 330, 1000] {
            let mut receiver = Receiver { rounding: 128, ..Receiver::new(record, 2) };
            receiver.buffer = 640 << 10;
            receiver.run(1_000, |_| u64::MAX);
            receiver.buffer = 8 << 10;
            receiver.run(20_000, |_| u64::MAX);
            let sent = receiver.received;
            receiver.run(1_000, |_| u64::MAX);
            assert!((receiver.received - sent) * 10 >= record * 2 * 1_000 * 9, "{record} bytes");
        }
    }

    #[test]
    fn a_slow_reader_is_known_after_its_buffer_was_full_once() {
        for pace in [5, 20, 60, 1000] {
            for (rounding, slack) in [(1, 0), (1024, 0), (1, 9_000), (1024, 9_000)] {
                let mut receiver = Receiver { rounding, slack, ..Receiver::new(100, 10 + pace / 50) };
                let first = receiver.run(2_000, |_| pace);
                assert!(first <= (64 << 10) + slack, "{first} bytes unread");
                receiver.run(80_000 / pace + 2_000, |_| pace);
                let sent = receiver.received;
                let most = receiver.run(5_000, |_| pace);
                // One that reads its buffer within the time of an opening is as fast as one that waited for a processor.
                let bound = (u64::from(BOUND) + 2_000 + 2 * rounding + slack).max(100 * pace);
                let name = format!("{pace} bytes/ms, rounding {rounding}, slack {slack}");
                assert!(most <= bound, "{name}: {most} bytes unread");
                let share = (receiver.received - sent) as f64 / (5_000 * pace) as f64;
                assert!(share > 0.9, "{name}: {share} of what it would have read");
            }
        }
    }

    #[test]
    fn a_stalled_reader_is_noticed_when_it_returns() {
        let mut receiver = Receiver { rounding: 128, ..Receiver::new(100, 10) };
        let most = receiver.run(60_000, |_| 0);
        assert!(most <= 64 << 10, "{most} bytes unread");
        assert!(receiver.unread.is_over());
        receiver.run(1_000, |_| u64::MAX);
        assert!(!receiver.unread.is_over());
    }

    #[test]
    fn a_window_of_zero_is_held_back_and_opens_again() {
        let mut receiver = Receiver { buffer: 12_000, ..Receiver::new(100, 10) };
        receiver.run(1_000, |_| 0);
        assert!(receiver.unread.is_over());
        let sent = receiver.received;
        receiver.run(1_000, |_| 100);
        assert!(receiver.received - sent > 80_000, "{}", receiver.received - sent);
    }

    #[test]
    fn a_kernel_that_does_not_say_the_window_holds_nothing_back() {
        let mut unread = Window::new(1);
        unread.update(Timestamp::ZERO, &TcpInfo::default());
        assert_eq!((unread.bytes(), unread.room(Timestamp::ZERO, 1 << 30)), (None, None));
    }
}
