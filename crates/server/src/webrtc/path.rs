//! A viewer's packets, as the engine drives them: what leaves is committed, and the protocol's own queue is empty.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::choice::{LinkView, Record};
use freshwire::datagram::{DatagramPath, Flushed, KnownPath};
use freshwire::stats::PathRate;
use freshwire::{Rate, Timestamp, now};
use freshwire_media::rtp::HEADER_BYTES;
use str0m::Event;
use str0m::bwe::{Bitrate, BweKind};
use str0m::media::{Mid, Pt};
use str0m::rtp::{RtpWrite, SeqNo};

use super::session::{Inner, Role, Session};
use crate::net::Pace;
use crate::rtsp::rtp_path::Frame;

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
    pub(super) is_begun: bool,
    pace: Pace,
    rate: Rate,
    /// The client says what arrives.
    is_estimated: bool,
    rtt: Duration,
    flushed: Flushed,
    /// Bytes that have left in all.
    sent: u64,
}

/// One track on its way out.
pub(super) struct TrackOut {
    mid: Mid,
    pt: Pt,
    clock_rate: u32,
    seq: u64,
    /// A timestamp and the time at which that was captured.
    captured: Option<(u32, Instant)>,
}

/// The path of a viewer for the engine.
pub(super) struct SessionPath(pub(super) Arc<Session>);

impl TrackOut {
    pub(super) fn new(mid: Mid, pt: Pt, clock_rate: u32) -> Self {
        Self { mid, pt, clock_rate, seq: 0, captured: None }
    }

    /// When the media with this timestamp was captured. `known`: when the record was.
    fn captured(&mut self, timestamp: u32, known: Option<Instant>) -> Instant {
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
            is_begun: false,
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

impl Inner {
    fn viewing(&mut self) -> Option<&mut Viewing> {
        match &mut self.role {
            Role::Viewer(viewing) => Some(viewing),
            Role::Publisher(_) => None,
        }
    }

    /// Looks for more room up to this rate.
    pub(super) fn want(&mut self, rate: Rate) {
        self.rtc.bwe().set_desired_bitrate(Bitrate::from(rate.bits_per_sec()));
    }

    /// Sends a packet of the framing.
    fn write(&mut self, track: usize, packet: &[u8], captured: Option<Instant>) {
        let Role::Viewer(viewing) = &mut self.role else { return };
        let track = if track == 0 { &mut viewing.video } else { &mut viewing.audio };
        let (Some(track), Some((header, payload))) = (track, packet.split_first_chunk::<HEADER_BYTES>())
        else {
            return;
        };
        let &[_, kind, _, _, t0, t1, t2, t3, ..] = header;
        let timestamp = u32::from_be_bytes([t0, t1, t2, t3]);
        let captured = track.captured(timestamp, captured);
        let (seq, pt, mid) = (track.seq, track.pt, track.mid);
        track.seq += 1;
        let mut api = self.rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(mid, None) else { return };
        let write = RtpWrite::new(pt, SeqNo::from(seq), timestamp, captured, payload);
        stream.write_rtp(write.marker(kind & 0x80 != 0).nackable(true));
    }
}

impl DatagramPath for SessionPath {
    fn view(&self, now: Timestamp, committed: u64) -> LinkView {
        let view = self.0.with(|inner| {
            let viewing = inner.viewing()?;
            Some(LinkView {
                rtt: viewing.rtt,
                // Packets count when they leave, so the round trip is no part of the time for which they occupy the path.
                min_rtt: Duration::ZERO,
                unsent: committed,
                agreed: Some(viewing.rate),
                credit: viewing.pace.tokens_at(now, viewing.rate) as i64,
                ..LinkView::default()
            })
        });
        view.flatten().unwrap_or_default()
    }

    fn ready_at(&self, now: Timestamp, bytes: u64) -> Timestamp {
        let ready = self.0.with(|inner| {
            let viewing = inner.viewing()?;
            Some(viewing.pace.ready_at(now, bytes, viewing.rate))
        });
        ready.flatten().unwrap_or(Timestamp::MAX)
    }

    fn send(&mut self, now: Timestamp, record: Option<&Record>, packets: &[u8]) {
        let captured =
            record.and_then(|record| Instant::now().checked_sub(now.saturating_since(record.generated)));
        self.0.with(|inner| {
            let mut at = 0;
            while let Some(Frame { track, is_report, head, .. }) = Frame::read(packets, at, 0) {
                at = head.end;
                // The protocol makes reports of its own.
                if !is_report {
                    inner.write(track, packets.get(head).unwrap_or_default(), captured);
                }
            }
            inner.turn();
        });
    }

    fn flush(&mut self, _: Timestamp) -> io::Result<Flushed> {
        let flushed =
            self.0.with(|inner| inner.viewing().map(|viewing| std::mem::take(&mut viewing.flushed)));
        flushed.flatten().ok_or_else(|| io::Error::other("the WebRTC session has ended"))
    }

    fn known(&self) -> KnownPath {
        let known = self.0.with(|inner| {
            let viewing = inner.viewing()?;
            let rate = PathRate { at_least: false, rate: viewing.rate };
            Some(KnownPath { rate: Some(rate), acked: viewing.sent, ..KnownPath::default() })
        });
        known.flatten().unwrap_or_default()
    }
}
