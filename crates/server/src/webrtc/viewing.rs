//! A viewer's side of a session: its tracks, its pace, and the estimate of its path.

use std::time::{Duration, Instant};

use freshwire::datagram::Flushed;
use freshwire::{Rate, now};
use str0m::Event;
use str0m::bwe::BweKind;
use str0m::media::{Mid, Pt};

use crate::net::Pace;

/// The rate before the first estimate. Probes find out within a second whether there is more. Chosen, not measured.
pub(super) const FIRST_RATE: Rate = Rate::from_bits_per_sec(600_000);

/// The rate of a client that reports neither what arrives nor what it can receive.
const BLIND_RATE: Rate = Rate::from_bits_per_sec(2_000_000);

/// Bytes of the headers of UDP and IP, at least.
const HEADERS: u64 = 28;

/// A viewer's side of the session.
pub(super) struct Viewing {
    pub(super) video: Option<TrackOut>,
    pub(super) audio: Option<TrackOut>,
    /// The session's task has taken note that it is connected.
    pub(super) is_served: bool,
    pub(super) pace: Pace,
    pub(super) rate: Rate,
    /// The client says what arrives.
    is_estimated: bool,
    pub(super) rtt: Duration,
    pub(super) flushed: Flushed,
    /// Bytes that have left in all.
    pub(super) sent: u64,
}

/// One track on its way out.
pub(super) struct TrackOut {
    pub(super) mid: Mid,
    pub(super) pt: Pt,
    clock_rate: u32,
    pub(super) seq: u64,
    /// A timestamp and the time at which that was captured.
    captured: Option<(u32, Instant)>,
}

impl TrackOut {
    pub(super) fn new(mid: Mid, pt: Pt, clock_rate: u32) -> Self {
        Self { mid, pt, clock_rate, seq: 0, captured: None }
    }

    /// When the media with this timestamp was captured. `known`: when the record was.
    pub(super) fn captured_at(&mut self, timestamp: u32, known: Option<Instant>) -> Instant {
        let captured = known.unwrap_or_else(|| {
            let now = Instant::now();
            let Some((before, at)) = self.captured else { return now };
            let ticks = timestamp.wrapping_sub(before).cast_signed();
            let passed =
                Duration::from_secs_f64(f64::from(ticks.unsigned_abs()) / f64::from(self.clock_rate));
            let other = if ticks < 0 { at.checked_sub(passed) } else { at.checked_add(passed) };
            other.unwrap_or(now).min(now)
        });
        self.captured = Some((timestamp, captured));
        captured
    }
}

impl Viewing {
    pub(super) fn new(video: Option<TrackOut>, audio: Option<TrackOut>) -> Self {
        Self {
            video,
            audio,
            is_served: false,
            pace: Pace::new(now()),
            rate: FIRST_RATE,
            is_estimated: false,
            rtt: Duration::ZERO,
            flushed: Flushed::default(),
            sent: 0,
        }
    }

    /// Bytes of a datagram have left.
    pub(super) fn left(&mut self, bytes: u64) {
        self.flushed.calls += 1;
        self.flushed.bytes += bytes;
        self.sent += bytes;
        self.pace.spend(now(), bytes + HEADERS, self.rate);
    }

    pub(super) fn notice(&mut self, event: &Event) {
        match event {
            Event::EgressBitrateEstimate(kind) => {
                let estimate = match *kind {
                    BweKind::Twcc { estimate, can_probe } => can_probe.then_some(estimate),
                    BweKind::Remb { estimate, .. } => (!self.is_estimated).then_some(estimate),
                    _ => None,
                };
                if let Some(estimate) = estimate {
                    self.is_estimated |= matches!(kind, BweKind::Twcc { .. });
                    self.rate = Rate::from_bits_per_sec(estimate.as_u64());
                    tracing::debug!(rate = %self.rate, "the estimate for a viewer over WebRTC");
                }
            }
            Event::PeerStats(stats) => {
                if let Some(rtt) = stats.rtt {
                    self.rtt = rtt;
                }
            }
            _ => {}
        }
    }

    /// A client that cannot report what arrives has a fixed rate.
    pub(super) fn is_blind(&mut self) {
        self.rate = BLIND_RATE;
    }
}
