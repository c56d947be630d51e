//! From the PES packets of a sound track to its frames and their times.

use std::sync::Arc;

use crate::adts;
use crate::demux::opus;
use crate::unit::{AudioCodec, AudioTrack, MediaTime};

/// How the sound of a transport stream is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Adts,
    Opus { channels: u8 },
}

/// A frame of sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::demux) struct Frame {
    pub(in crate::demux) track: Arc<AudioTrack>,
    pub(in crate::demux) pts: MediaTime,
    pub(in crate::demux) bytes: Vec<u8>,
}

/// Splits PES payloads into frames.
#[derive(Clone, Debug)]
pub(super) struct Sound {
    packing: Packing,
    frames: adts::Frames,
    track: Option<Arc<AudioTrack>>,
    /// Time of the next frame in nanoseconds.
    next: Option<i64>,
}

impl Sound {
    pub(super) fn new(packing: Packing) -> Self {
        Self { packing, frames: adts::Frames::new(), track: None, next: None }
    }

    pub(super) fn packing(&self) -> Packing {
        self.packing
    }

    /// Forgets a frame whose rest was lost.
    pub(super) fn lost(&mut self) {
        self.frames.clear();
    }

    /// The frames that a payload completes. `pts` is the time of the first that begins in it. Frames before the first
    /// known time are left out.
    pub(super) fn push(&mut self, pts: Option<MediaTime>, payload: &[u8]) -> Vec<Frame> {
        let pts = pts.map(MediaTime::as_nanos);
        match self.packing {
            Packing::Adts => self.push_adts(pts, payload),
            Packing::Opus { channels } => {
                self.next = pts.or(self.next);
                self.push_opus(channels, payload)
            }
        }
    }

    fn push_adts(&mut self, mut pts: Option<i64>, payload: &[u8]) -> Vec<Frame> {
        let begin = self.frames.offset();
        self.frames.push(payload);
        let mut frames = Vec::new();
        while let Some(frame) = self.frames.next() {
            if frame.at >= begin {
                self.next = pts.take().or(self.next);
            }
            let track = frame.header.track();
            let duration = i64::from(adts::SAMPLES) * 1_000_000_000 / i64::from(track.rate.max(1));
            frames.extend(self.frame(track, duration, frame.bytes));
        }
        // The first frame that begins here goes on in the next payload.
        self.next = pts.or(self.next);
        frames
    }

    fn push_opus(&mut self, channels: u8, payload: &[u8]) -> Vec<Frame> {
        let track = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels };
        let mut frames = Vec::new();
        let mut rest = payload;
        while let Some((packet, after)) = opus::split(rest) {
            rest = after;
            if let Some(duration) = opus::duration_ns(packet) {
                frames.extend(self.frame(track.clone(), i64::from(duration), packet.to_vec()));
            }
        }
        frames
    }

    fn frame(&mut self, track: AudioTrack, duration: i64, bytes: Vec<u8>) -> Option<Frame> {
        let pts = self.next?;
        self.next = Some(pts.saturating_add(duration));
        let known = self.track.take().filter(|known| **known == track);
        let track = known.unwrap_or_else(|| Arc::new(track));
        self.track = Some(Arc::clone(&track));
        Some(Frame { track, pts: MediaTime::from_nanos(pts), bytes })
    }
}
