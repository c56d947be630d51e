//! RTMP (Adobe's RTMP 1.0, and Enhanced RTMP v2 for H.265, AV1, VP9 and Opus), as a publisher sends it: messages of pictures and
//! sound, cut into chunks.
//!
//! ```text
//!  key, tracks are new   [onMetaData] [video sequence header] [ header · tag · length · NAL unit … ]
//!  picture               [ header · tag · length · NAL … ] [ C0 · … NAL · length · NAL … ] [ C0 · … ]
//!  sound                 [ header · tag · frame ]           may come between the chunks of a picture
//! ```
//!
//! **Whatever is dropped, the stream is valid.** Each message has a header of the full kind, with its absolute time, so no message
//! depends on the one before. A sequence header precedes the first key unit, and each key unit whose tracks differ, as after a change
//! of rendition. Where the pictures that follow are dropped, repetitions take their places, as in [`super::ts`].
//!
//! **Times** are decode times in milliseconds. The first unit lies one second behind 0, so that no time is negative; times have 32
//! bits and wrap after 49.7 days. Pictures have their composition offset in the tag.
//!
//! Protocol messages, such as acknowledgements, use another chunk stream: they may be sent wherever a piece is a boundary.

mod chunks;
mod tag;

use std::ops::Range;
use std::sync::Arc;

pub use self::chunks::CHUNK_BYTES;
use self::chunks::{Message, Messages, Type};
use super::viewer::{self, OpenUnits, Units};
use super::{Framer, Piece};
use crate::unit::{AudioTrack, Catalog, Kind, MediaTime, Tracks, UnitHead, VideoCodec, VideoTrack};

/// The media messages of a publisher, from the answer to `publish` on. The publisher has announced [`CHUNK_BYTES`] before
/// (Set Chunk Size).
///
/// A unit that cannot be carried is skipped: it makes one piece without bytes. These are units that the catalog does not have, or that
/// need a key unit before them which was not sent. So it is with a track that cannot be described, and with more than 16,777,215 bytes.
#[derive(Debug)]
pub struct Rtmp {
    units: Units,
    messages: Messages,
    origin: Option<MediaTime>,
    video: Option<VideoTrack>,
    audio: Option<AudioTrack>,
    /// Whole messages and the first bytes of the unit in progress, before its payload.
    lead: Vec<u8>,
    open_units: OpenUnits<Open>,
}

/// A unit in progress.
#[derive(Debug)]
struct Open {
    head: Arc<UnitHead>,
    message: Message,
    /// The NAL unit that is being written, and how far, once its length is written.
    nal: usize,
    position: Option<u32>,
    is_started: bool,
}

impl Rtmp {
    /// A framer for a target of the stream with this catalog. `message_stream` is the number that the answer to `createStream` has.
    pub fn new(catalog: Arc<Catalog>, message_stream: u32) -> Self {
        Self {
            units: Units::new(catalog),
            messages: Messages::new(message_stream),
            origin: None,
            video: None,
            audio: None,
            lead: Vec::new(),
            open_units: OpenUnits::default(),
        }
    }

    /// Prepares the message of a unit; `None` if it has to be skipped.
    fn open(&mut self, seq: u64, len: u32) -> Option<Open> {
        let head = self.units.find(seq, len).filter(|head| is_whole(head))?;
        let can_begin = head.key || head.kind == Kind::Audio;
        if can_begin {
            self.describe(&head)?;
        }
        let tag = tag::of_unit(&head)?;
        let bytes = u32::try_from(tag.len()).ok()?.checked_add(len)?;
        let kind = Type::of(head.kind);
        let at = self.time(&head);
        let mut message = self.messages.begin(kind, at, bytes, &mut self.lead)?;
        message.put(&tag, &mut self.lead);
        self.units.accept(&head);
        Some(Open { head, message, nal: 0, position: None, is_started: false })
    }

    /// Writes what a reader has to know before this unit, where it is new. `None` if it cannot be described.
    fn describe(&mut self, head: &UnitHead) -> Option<()> {
        let Tracks { video, audio } = &*head.tracks;
        match head.kind {
            Kind::Video if self.video != *video => {
                let track = video.as_ref()?;
                let sequence = tag::video_sequence(track)?;
                let metadata = tag::metadata(&head.tracks);
                let at = self.time(head);
                self.messages.write(Type::Data, at, &metadata, &mut self.lead)?;
                self.messages.write(Type::Video, at, &sequence, &mut self.lead)?;
                self.video.clone_from(video);
            }
            // Sound may be that of another rendition: it says nothing of the pictures.
            Kind::Audio if self.audio != *audio => {
                let sequence = tag::audio_sequence(audio.as_ref()?)?;
                let at = self.time(head);
                self.messages.write(Type::Audio, at, &sequence, &mut self.lead)?;
                self.audio.clone_from(audio);
            }
            _ => {}
        }
        Some(())
    }

    /// The decode time on the wire.
    fn time(&mut self, head: &UnitHead) -> u32 {
        let origin = *self.origin.get_or_insert_with(|| viewer::origin(head));
        let since = head.dts.as_nanos().saturating_sub(origin.as_nanos());
        // Sound from before the first picture by more than the lead is heard with it.
        MediaTime::from_nanos(since.max(0)).ticks(tag::TICKS) as u32
    }

    /// Adds the message of a picture of these NAL units, in the place of the unit with this head.
    fn write_whole(&mut self, head: &UnitHead, nals: &[Vec<u8>], out: &mut Vec<u8>) -> Option<()> {
        let mut body = tag::of_unit(&UnitHead { key: false, ..head.clone() })?;
        for nal in nals {
            body.extend_from_slice(&u32::try_from(nal.len()).ok()?.to_be_bytes());
            body.extend_from_slice(nal);
        }
        let at = self.time(head);
        self.messages.write(Type::Video, at, &body, out)
    }
}

impl Framer for Rtmp {
    fn begin(&mut self, seq: u64, len: u32) {
        self.lead.clear();
        let open = self.open(seq, len);
        self.open_units.begin(open);
    }

    fn missed(&mut self, seq: u64) {
        self.units.missed(seq);
    }

    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        let mut repetitions = 0;
        for (head, nals) in self.units.repetitions() {
            repetitions += usize::from(self.write_whole(&head, &nals, out).is_some());
        }
        repetitions
    }

    fn next(&mut self, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        self.open_units.next(|open| {
            let start = prefix.len();
            if !open.is_started {
                prefix.append(&mut self.lead);
                open.is_started = true;
            }
            open.piece(start, max, prefix)
        })
    }

    fn can_be_overtaken(&self) -> bool {
        self.open_units
            .alone()
            .is_some_and(|open| open.head.kind == Kind::Video && open.is_started && open.message.is_between())
    }

    fn can_overtake(&self, seq: u64) -> bool {
        self.can_be_overtaken() && self.units.of(Kind::Audio, seq).is_some()
    }
}

impl Open {
    /// The next piece, whose prefix begins at `start` of `prefix`.
    fn piece(&mut self, start: usize, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let nal = range(&self.head, self.nal)?;
        let nals = nals(&self.head).len();
        if self.position.is_none() && nals > 0 {
            self.message.put(&(nal.end - nal.start).to_be_bytes(), prefix);
        }
        let begin = self.position.unwrap_or(nal.start);
        let written = prefix.len() - start;
        let room = u32::try_from(max.saturating_sub(written)).unwrap_or(u32::MAX);
        if room == 0 && written == 0 {
            return None;
        }
        let end = begin + self.message.take(room.min(nal.end - begin), prefix);
        self.position = Some(end);
        if end == nal.end {
            self.nal += 1;
            self.position = None;
        }
        let last = self.position.is_none() && self.nal >= nals;
        Some(Piece { payload: begin..end, last, boundary: self.message.is_between() })
    }
}

/// The NAL units of a unit that has a length before each; none in codecs without.
fn nals(head: &UnitHead) -> &[Range<u32>] {
    match head.tracks.video.as_ref().map(|video| &video.codec) {
        Some(VideoCodec::H264 { .. } | VideoCodec::H265 { .. }) if head.kind == Kind::Video => &head.nals,
        _ => &[],
    }
}

/// The `index`th stretch of payload that belongs to the message: a NAL unit, or all of it in codecs without.
fn range(head: &UnitHead, index: usize) -> Option<Range<u32>> {
    let nals = nals(head);
    if nals.is_empty() { (index == 0).then_some(0..head.len) } else { nals.get(index).cloned() }
}

/// Whether the unit has bytes, and each of them belongs to a NAL unit or its start code, whose place the length takes.
fn is_whole(head: &UnitHead) -> bool {
    let nals = nals(head);
    let written: u64 = nals.iter().map(|nal| 4 + u64::from(nal.end.saturating_sub(nal.start))).sum();
    let is_ordered = nals.iter().all(|nal| nal.start < nal.end && nal.end <= head.len);
    head.len > 0 && (nals.is_empty() || (is_ordered && written == u64::from(head.len)))
}

#[cfg(test)]
mod tests;
