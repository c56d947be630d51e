//! A viewer's packets, as the engine drives them: what leaves is committed, and the protocol's own queue is empty.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::choice::{LinkView, Record};
use freshwire::datagram::{DatagramPath, Flushed, KnownPath};
use freshwire::stats::PathRate;
use freshwire::{Rate, Timestamp};
use freshwire_media::rtp::HEADER_BYTES;
use str0m::bwe::Bitrate;
use str0m::rtp::{RtpWrite, SeqNo};

use super::session::{Inner, Role, Session};
use super::viewing::Viewing;
use crate::rtsp::rtp_path::Frame;

/// The path of a viewer for the engine.
pub(super) struct SessionPath(pub(super) Arc<Session>);

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
        let captured = track.captured_at(timestamp, captured);
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
