//! A track of a relay as the engine drives it, and the uplink that all tracks share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freshwire::choice::{LinkView, Record};
use freshwire::datagram::{DatagramPath, Flushed, KnownPath};
use freshwire::stats::PathRate;
use freshwire::{Rate, Timestamp};
use freshwire_media::framing::frames::Frame;
use freshwire_media::unit::Kind;
use freshwire_moq::{Demand, Link, MoqError, TrackWriter};

use super::clock::WireClock;

/// The rate before the first estimate, which takes some hundred milliseconds. Chosen, not measured.
const FIRST_RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// The least rate that is believed. Chosen, not measured.
const LEAST_RATE: Rate = Rate::from_bits_per_sec(50_000);
/// The connection reports its window over the round trip as its rate. BBRv3 keeps a window of twice what the path holds
/// (`DEFAULT_CWND_GAIN` in moq-noq-proto 1.3.5).
const WINDOW_GAIN: u64 = 2;
/// A viewer begins with the present group, however long ago that began: relays hand out whole groups. As long as the hub keeps one.
const JOIN_AGE: Duration = Duration::from_secs(5);
/// The longest queue in front of the uplink. Its length is known to about 100 ms, the interval of upstream's statistics.
const RESERVE: Duration = Duration::from_millis(100);
/// The same in bytes, at least: some packets.
const LEAST_RESERVE: u64 = 8 << 10;

/// The writer of a track. A viewer that comes after another goes on with it.
pub(super) struct TrackSink {
    /// `None` once the track has ended.
    writer: Option<TrackWriter>,
    demand: Demand,
    /// Pictures need a key first.
    awaits_key: bool,
    /// When something was written last.
    wrote: Option<Instant>,
    failure: Option<MoqError>,
}

impl TrackSink {
    pub(super) fn new(writer: TrackWriter) -> Self {
        let demand = writer.demand();
        Self { writer: Some(writer), demand, awaits_key: true, wrote: None, failure: None }
    }

    /// Ends the track. Its name is free at once, although the engine has the path for a while.
    pub(super) fn close(&mut self) {
        self.writer = None;
    }

    /// The oldest group that a new viewer may begin with: one from before the last write is on the track in part, and times there do not
    /// go back.
    pub(super) fn join_age(&self, now: Instant) -> Duration {
        self.wrote.map_or(JOIN_AGE, |at| now.saturating_duration_since(at).min(JOIN_AGE))
    }

    /// Why it cannot go on.
    pub(super) fn take_failure(&mut self) -> Option<MoqError> {
        self.failure.take()
    }

    /// Returns whether the bytes go to a reader.
    fn write(&mut self, frame: &Frame<'_>, micros: u64, now: Instant) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        if frame.kind == Kind::Video && self.awaits_key && !frame.is_key {
            return false;
        }
        match writer.write(micros, frame.bytes.to_vec()) {
            Ok(()) => {
                (self.awaits_key, self.wrote) = (false, Some(now));
                return self.demand.is_used();
            }
            // A damaged picture costs its group, a key that cannot be written the broadcast.
            Err(_) if frame.kind == Kind::Video && !frame.is_key => self.awaits_key = true,
            Err(error) => self.failure = Some(error),
        }
        false
    }
}

/// A mutex's content. Every change is of one value, so what a panic left is still sound.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What waits for the uplink, and what that carries.
pub(super) struct Uplink(Mutex<Backlog>);

struct Backlog {
    rate: Rate,
    rtt: Duration,
    /// Bytes that waited at the time `at`.
    bytes: f64,
    at: Instant,
    /// Bytes that waited at the last reading, and those that were written since.
    known: f64,
    /// Bytes that had left at the last reading.
    sent: u64,
}

impl Uplink {
    pub(super) fn new(now: Instant) -> Self {
        let (rate, rtt) = (FIRST_RATE, Duration::ZERO);
        Self(Mutex::new(Backlog { rate, rtt, bytes: 0.0, at: now, known: 0.0, sent: 0 }))
    }

    /// Takes a reading of the connection. One that is as before says nothing.
    pub(super) fn follow(&self, link: &Link, now: Instant) {
        let mut backlog = lock(&self.0);
        if let Some(rate) = link.rate {
            backlog.rate = Rate::from_bits_per_sec(rate / WINDOW_GAIN).max(LEAST_RATE);
        }
        backlog.rtt = link.rtt.unwrap_or(backlog.rtt);
        if link.sent == backlog.sent {
            return;
        }
        let left = link.sent.saturating_sub(backlog.sent) as f64;
        backlog.known = (backlog.known - left).max(0.0);
        (backlog.bytes, backlog.sent, backlog.at) = (backlog.known, link.sent, now);
    }

    /// Nobody reads: what was written and has not left never will.
    pub(super) fn clear(&self) {
        let mut backlog = lock(&self.0);
        (backlog.bytes, backlog.known) = (0.0, 0.0);
    }

    fn wrote(&self, bytes: u64, now: Instant) {
        let mut backlog = lock(&self.0);
        backlog.bytes = backlog.waiting(now) + bytes as f64;
        backlog.known += bytes as f64;
        backlog.at = now;
    }
}

impl Backlog {
    /// Bytes that wait, as far as readings and the rate tell.
    fn waiting(&self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        let left = self.rate.bytes_per_sec() as f64 * since;
        (self.bytes - left).max(0.0)
    }

    fn reserve(&self) -> f64 {
        (self.rate.bytes_per_sec() as f64 * RESERVE.as_secs_f64()).max(LEAST_RESERVE as f64)
    }
}

/// The path of one track for the engine.
pub(super) struct TrackPath {
    sink: Arc<Mutex<TrackSink>>,
    clock: Arc<WireClock>,
    uplink: Arc<Uplink>,
    flushed: Flushed,
    sent: u64,
}

impl TrackPath {
    pub(super) fn new(sink: Arc<Mutex<TrackSink>>, clock: Arc<WireClock>, uplink: Arc<Uplink>) -> Self {
        // A viewer begins with a key.
        lock(&sink).awaits_key = true;
        Self { sink, clock, uplink, flushed: Flushed::default(), sent: 0 }
    }
}

impl DatagramPath for TrackPath {
    fn view(&self, _: Timestamp, committed: u64) -> LinkView {
        let backlog = lock(&self.uplink.0);
        let waiting = backlog.waiting(Instant::now());
        LinkView {
            rtt: backlog.rtt,
            // Bytes count when they leave, so the round trip is no part of the time for which they occupy the path.
            min_rtt: Duration::ZERO,
            unsent: committed,
            agreed: Some(backlog.rate),
            // What waits has to leave first.
            credit: -(waiting as i64),
            ..LinkView::default()
        }
    }

    fn ready_at(&self, now: Timestamp, _: u64) -> Timestamp {
        let backlog = lock(&self.uplink.0);
        let over = backlog.waiting(Instant::now()) - backlog.reserve();
        if over <= 0.0 {
            return now;
        }
        now + Duration::from_secs_f64(over / backlog.rate.bytes_per_sec().max(1) as f64)
    }

    fn send(&mut self, _: Timestamp, _: Option<&Record>, packets: &[u8]) {
        let now = Instant::now();
        let mut sink = lock(&self.sink);
        let mut rest = packets;
        while let Some((frame, behind)) = Frame::read(rest) {
            let bytes = frame.bytes.len() as u64;
            if sink.write(&frame, self.clock.micros(frame.pts), now) {
                self.uplink.wrote(bytes, now);
            }
            self.flushed.bytes += bytes;
            self.flushed.calls += 1;
            self.sent += bytes;
            rest = behind;
        }
    }

    fn flush(&mut self, _: Timestamp) -> io::Result<Flushed> {
        if lock(&self.sink).failure.is_some() {
            return Err(io::Error::other("the relay takes no more of this track"));
        }
        Ok(std::mem::take(&mut self.flushed))
    }

    fn known(&self) -> KnownPath {
        let backlog = lock(&self.uplink.0);
        let rate = PathRate { at_least: false, rate: backlog.rate };
        let waiting = backlog.waiting(Instant::now()) as u64;
        KnownPath { rate: Some(rate), acked: self.sent.saturating_sub(waiting), ..KnownPath::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_follows_the_rate_and_the_readings() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let uplink = Uplink::new(begin);
        let waiting = |ms| lock(&uplink.0).waiting(at(ms));
        let link = |sent| Link { rate: Some(1_600_000), sent, ..Link::default() };
        uplink.follow(&link(5000), at(0));
        uplink.wrote(30_000, at(1000));
        assert_eq!(waiting(1000), 30_000.0, "time without bytes is no credit");
        assert_eq!(waiting(1100), 20_000.0, "100 bytes a millisecond");
        uplink.follow(&link(5000), at(1100));
        assert_eq!(waiting(1200), 10_000.0, "the same reading says nothing new");
        uplink.follow(&link(10_000), at(1200));
        assert_eq!(waiting(1200), 25_000.0, "5,000 have left");
        uplink.follow(&link(50_000), at(1300));
        assert_eq!(waiting(1300), 0.0);
        uplink.wrote(30_000, at(1300));
        uplink.clear();
        assert_eq!(waiting(1300), 0.0, "nobody reads it");
        uplink.follow(&link(50_100), at(1400));
        assert_eq!(waiting(1400), 0.0, "and no reading brings it back");
    }
}
