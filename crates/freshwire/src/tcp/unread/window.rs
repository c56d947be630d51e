//! Unread bytes in the receiver's kernel, as far as TCP shows. The window that the peer advertises shrinks by what
//! its program has not read, once its buffer has stopped growing.
//!
//! ```text
//!  most ─────────┐                    ┌─ a value at a time ("probe") while it is held back,
//!  window        │ unread = most      │  so that an acknowledgement says how the window is
//!  advertised ───┴──────────── - window
//! ```

use std::time::Duration;

use freshwire_io::tcp::TcpInfo;
use freshwire_units::Timestamp;

/// The pause between two probes: a part of the time that the receiver has not read, within these. A window that opens is advertised
/// without being asked only when it has doubled.
const PROBE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
const PROBE_SHARE: u32 = 8;

/// The same for a receiver that has stopped: what is sent meanwhile is stale when it reads again.
const LONG_PROBE: Duration = Duration::from_secs(1);
const LONG_PROBE_SHARE: u32 = 100;

/// How long after it was held back a receiver is taken for a slow one, which gets no more at a time than the bound leaves.
const SLOW: Duration = Duration::from_secs(1);

/// A receiver that has read so much while its window stayed as it is has a smaller buffer than it had: an eighth of the largest window,
/// and at least this.
const REBASE_BYTES: u64 = 16 << 10;

/// Part of the largest window by which one may differ and count as unchanged: windows are rounded.
const SAME_SHARE: u32 = 16;

/// Estimates the unread bytes, and says how much more may go to the receiver.
#[derive(Debug, Default)]
pub(super) struct Unread {
    bound: Option<u64>,
    /// The largest window of this connection, that of a smaller buffer once the receiver shows one.
    most: u32,
    bytes: Option<u64>,
    held: Option<Held>,
    slow_until: Timestamp,
}

/// Since when the receiver has more than it may.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Timestamp,
    probe_at: Timestamp,
    /// The window for as long as it has been the same, and what was acknowledged when it became so.
    window: u32,
    acked: u64,
}

impl Unread {
    pub(super) fn new(bound: Option<u32>) -> Self {
        Self { bound: bound.map(u64::from), ..Self::default() }
    }

    /// Whether there is a bound, so that the window has to be looked at.
    pub(super) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }

    /// The estimate; `None` while the kernel does not say the window, and where nobody has asked for it.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Whether the receiver has more than it may.
    pub(super) fn is_over(&self) -> bool {
        self.held.is_some()
    }

    /// Takes in a fresh look at the connection.
    pub(super) fn update(&mut self, now: Timestamp, info: &TcpInfo) {
        let (Some(bound), Some(window)) = (self.bound, info.window) else { return };
        self.most = self.most.max(window);
        if let Some(held) = &mut self.held {
            if held.window.abs_diff(window) > self.most / SAME_SHARE {
                (held.window, held.acked) = (window, info.bytes_acked);
            } else if info.bytes_acked.saturating_sub(held.acked)
                >= REBASE_BYTES.max(u64::from(self.most / 8))
            {
                self.most = window;
            }
        }
        let unread = u64::from(self.most - window);
        self.bytes = Some(unread);
        if unread < bound {
            if self.held.take().is_some() {
                self.slow_until = now + SLOW;
            }
        } else if self.held.is_none() {
            let acked = info.bytes_acked;
            self.held = Some(Held { since: now, probe_at: now + PROBE.0.max(info.rtt), window, acked });
        }
    }

    /// How many bytes of new records may be begun now, with `outstanding` bytes on the way: `None` where that is not limited. A record is
    /// begun while this is not zero.
    pub(super) fn room(&self, now: Timestamp, outstanding: u64) -> Option<u64> {
        let bound = self.bound?;
        match self.held {
            Some(held) => Some(u64::from(now >= held.probe_at)),
            None if now < self.slow_until => {
                let unread = self.bytes.unwrap_or(0).saturating_add(outstanding);
                // With nothing on the way there is nothing that an acknowledgement could tell.
                Some(bound.saturating_sub(unread).max(u64::from(outstanding == 0)))
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

    const BOUND: u32 = 4_000;

    /// A receiver in virtual time: its kernel's buffer, the rounding of its window, and how fast its program reads.
    struct Receiver {
        unread: Unread,
        now: Timestamp,
        buffer: u64,
        rounding: u64,
        /// Bytes that it takes before its window shrinks.
        slack: u64,
        waiting: u64,
        acked: u64,
        /// Bytes that the program reads in a millisecond.
        pace: u64,
    }

    impl Receiver {
        fn new(pace: u64) -> Self {
            Self {
                unread: Unread::new(Some(BOUND)),
                now: Timestamp::ZERO,
                buffer: 64_000,
                rounding: 1,
                slack: 0,
                waiting: 0,
                acked: 0,
                pace,
            }
        }

        fn window(&self) -> u32 {
            let shrunk = self.buffer.saturating_sub(self.waiting.saturating_sub(self.slack));
            (shrunk / self.rounding * self.rounding) as u32
        }

        /// A sender with always something to send, records of 100 bytes, for so many milliseconds; the most that lay unread.
        fn run(&mut self, milliseconds: u64) -> u64 {
            let mut most = 0;
            for _ in 0..milliseconds {
                self.now += Duration::from_millis(1);
                let info = TcpInfo {
                    window: Some(self.window()),
                    bytes_acked: self.acked,
                    rtt: Duration::from_micros(100),
                    ..TcpInfo::default()
                };
                self.unread.update(self.now, &info);
                let room = self.unread.room(self.now, 0).unwrap_or(10_000);
                let free = self.buffer.saturating_sub(self.waiting);
                let sent = room.div_ceil(100).saturating_mul(100).min(free);
                if sent > 0 {
                    self.unread.wrote(self.now, info.rtt);
                }
                self.acked += sent;
                self.waiting += sent;
                most = most.max(self.waiting);
                self.waiting -= self.pace.min(self.waiting);
            }
            most
        }
    }

    #[test]
    fn a_fast_reader_is_never_held_back_for_long() {
        let mut receiver = Receiver::new(20_000);
        receiver.run(1000);
        assert!(receiver.acked > 9_000_000, "{}", receiver.acked);
    }

    #[test]
    fn a_slow_reader_gets_what_it_reads_and_no_more() {
        for pace in [5, 20, 60, 1000] {
            let mut receiver = Receiver::new(pace);
            receiver.run(2_000);
            let before = receiver.acked;
            let most = receiver.run(5_000);
            assert!(most <= u64::from(BOUND) + 10_100, "{pace}: {most} bytes unread");
            let share = (receiver.acked - before) as f64 / (5_000 * pace) as f64;
            assert!(share > 0.9, "{pace}: {share} of what it would have read");
        }
    }

    #[test]
    fn rounding_and_slack_cost_that_much_and_no_more() {
        for (rounding, slack) in [(1024, 0), (1, 9_000), (16_384, 9_000)] {
            let mut receiver = Receiver { rounding, slack, ..Receiver::new(20) };
            receiver.run(2_000);
            let most = receiver.run(5_000);
            let bound = u64::from(BOUND) + 10_100 + rounding + slack;
            assert!(most <= bound, "rounding {rounding}, slack {slack}: {most} bytes unread");
        }
    }

    #[test]
    fn a_stalled_reader_gets_little_and_is_noticed_when_it_returns() {
        let mut receiver = Receiver::new(0);
        let most = receiver.run(10_000);
        assert!(most <= 10_100 + 15_000, "{most} bytes unread after ten seconds");
        receiver.pace = 1_000_000;
        receiver.run(101);
        assert!(!receiver.unread.is_over());
        // Another one, for a minute: nobody gets to a full buffer by probes.
        let mut receiver = Receiver::new(0);
        let most = receiver.run(60_000);
        assert!(most < 45_000, "{most} bytes unread after a minute");
    }

    #[test]
    fn a_window_of_zero_is_held_back_and_opens_again() {
        let mut receiver = Receiver { buffer: 3_000, ..Receiver::new(0) };
        receiver.run(1_000);
        assert_eq!(receiver.window(), 0);
        receiver.pace = 100;
        let before = receiver.acked;
        receiver.run(1_000);
        assert!(receiver.acked - before > 80_000, "{}", receiver.acked - before);
    }

    #[test]
    fn a_buffer_that_grows_is_followed() {
        let mut receiver = Receiver::new(20);
        receiver.run(1_000);
        receiver.buffer = 2_000_000;
        receiver.run(3_000);
        let most = receiver.run(5_000);
        assert!(most <= 30_000, "{most} bytes unread in the larger buffer");
    }

    #[test]
    fn a_buffer_that_shrinks_is_not_taken_for_unread_bytes_for_ever() {
        let mut receiver = Receiver::new(2_000);
        receiver.run(1_000);
        receiver.buffer = 20_000;
        receiver.run(120_000);
        let before = receiver.acked;
        receiver.run(1_000);
        assert!(receiver.acked - before > 500_000, "{}", receiver.acked - before);
    }

    #[test]
    fn a_kernel_that_does_not_say_the_window_holds_nothing_back() {
        let mut unread = Unread::new(Some(1));
        unread.update(Timestamp::ZERO, &TcpInfo::default());
        assert_eq!((unread.bytes(), unread.room(Timestamp::ZERO, 1 << 30)), (None, None));
        let mut unbounded = Unread::new(None);
        unbounded.update(Timestamp::ZERO, &TcpInfo { window: Some(0), ..TcpInfo::default() });
        assert_eq!((unbounded.bytes(), unbounded.room(Timestamp::ZERO, 0)), (None, None));
    }
}
