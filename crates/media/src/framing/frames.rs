//! Whole units, each behind a head of fixed size: for a reader of the same process that hands them on as frames of another protocol.
//!
//! ```text
//!  flags (1) · time shown, ns (8) · length (4) · the unit's bytes
//! ```
//!
//! Whatever is dropped, what is left can be decoded: units that need one that was not sent are skipped, and repetitions take the places
//! of dropped pictures, as in [`super::rtmp`].

use std::sync::Arc;

use super::viewer::{OpenUnits, Units};
use super::{Framer, Piece};
use crate::unit::{Catalog, Kind, MediaTime, UnitHead};

/// Bytes of a head.
pub const HEAD_BYTES: usize = 13;

/// Decoding can begin here.
const KEY: u8 = 1;
/// It is sound.
const SOUND: u8 = 2;

/// Whole units of one viewer.
#[derive(Debug)]
pub struct Frames {
    units: Units,
    open_units: OpenUnits<Open>,
}

/// A unit in progress.
#[derive(Debug)]
struct Open {
    head: [u8; HEAD_BYTES],
    len: u32,
}

/// A unit that [`Frames`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its track.
    pub kind: Kind,
    /// Decoding can begin here.
    pub is_key: bool,
    /// When it is shown or heard.
    pub pts: MediaTime,
    /// Its bytes, as [`Unit`](crate::unit::Unit) has them.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of `bytes`, and what is behind it; `None` if none is whole.
    pub fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&[flags, t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3], rest) = bytes.split_first_chunk()?;
        let pts = MediaTime::from_nanos(i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]));
        let len = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).ok()?;
        let (bytes, rest) = rest.split_at_checked(len)?;
        let kind = if flags & SOUND == 0 { Kind::Video } else { Kind::Audio };
        Some((Self { kind, is_key: flags & KEY != 0, pts, bytes }, rest))
    }
}

fn head_of(head: &UnitHead, is_key: bool, len: u32) -> [u8; HEAD_BYTES] {
    let kind = if head.kind == Kind::Audio { SOUND } else { 0 };
    let mut bytes = [0; HEAD_BYTES];
    let (flags, rest) = bytes.split_at_mut(1);
    let (time, length) = rest.split_at_mut(8);
    flags.fill(kind | if is_key { KEY } else { 0 });
    time.copy_from_slice(&head.pts.as_nanos().to_be_bytes());
    length.copy_from_slice(&len.to_be_bytes());
    bytes
}

impl Frames {
    /// A framer for a viewer of the stream with this catalog.
    pub fn new(catalog: Arc<Catalog>) -> Self {
        Self { units: Units::new(catalog), open_units: OpenUnits::default() }
    }

    fn open(&mut self, seq: u64, len: u32) -> Option<Open> {
        let head = self.units.find(seq, len).filter(|_| len > 0)?;
        self.units.accept(&head);
        Some(Open { head: head_of(&head, head.key, len), len })
    }
}

impl Framer for Frames {
    fn begin(&mut self, seq: u64, len: u32) {
        let open = self.open(seq, len);
        self.open_units.begin(open);
    }

    fn next(&mut self, _max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        self.open_units.next(|open| {
            prefix.extend_from_slice(&open.head);
            Some(Piece { payload: 0..open.len, last: true, boundary: true })
        })
    }

    fn missed(&mut self, seq: u64) {
        self.units.missed(seq);
    }

    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        let mut repetitions = 0;
        for (head, nals) in self.units.repetitions() {
            let len: usize = nals.iter().map(|nal| 4 + nal.len()).sum();
            let Ok(len) = u32::try_from(len) else { continue };
            out.extend_from_slice(&head_of(&head, false, len));
            for nal in nals {
                out.extend_from_slice(&[0, 0, 0, 1]);
                out.extend_from_slice(&nal);
            }
            repetitions += 1;
        }
        repetitions
    }
}

#[cfg(test)]
mod tests {
    use super::super::clip;
    use super::*;
    use crate::demux::{Assembler, Config, Event};
    use crate::timeline::Given;
    use crate::video::Format;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let (_, units) = clip::stream(clip::h264(), Some(clip::opus()));
        let catalog = clip::catalog(&units);
        let mut framer = Frames::new(catalog);
        for (seq, unit) in units.iter().enumerate() {
            framer.begin(seq as u64, unit.head.len);
            let mut bytes = Vec::new();
            let piece = framer.next(usize::MAX, &mut bytes).expect("a piece");
            assert!(piece.last && piece.payload == (0..unit.head.len));
            bytes.extend_from_slice(&unit.bytes);
            let (frame, rest) = Frame::read(&bytes).expect("a frame");
            assert!(rest.is_empty());
            assert_eq!((frame.kind, frame.is_key), (unit.head.kind, unit.head.key));
            assert_eq!((frame.pts, frame.bytes), (unit.head.pts, &unit.bytes[..]));
        }
    }

    #[test]
    fn kept_frames_can_be_assembled_again() {
        let Some(pictures) = clip::h264() else { return };
        let (_, units) = clip::stream(Some(pictures), None);
        let mut random = clip::Random(7);
        let mut framer = Frames::new(clip::catalog(&units));
        let kept = clip::kept(&units, 30, &mut random);
        let mut assembler = Assembler::new(Config::default(), Some(Format::H264), None);
        for (seq, unit) in units.iter().enumerate() {
            let mut bytes = Vec::new();
            if kept.contains(&seq) {
                framer.begin(seq as u64, unit.head.len);
                let piece = framer.next(usize::MAX, &mut bytes).expect("a piece");
                bytes
                    .extend_from_slice(&unit.bytes[piece.payload.start as usize..piece.payload.end as usize]);
            } else {
                framer.missed(seq as u64);
                framer.replace(&mut bytes);
            }
            let mut rest = &bytes[..];
            while let Some((frame, behind)) = Frame::read(rest) {
                assembler.video(frame.bytes, Given::Shown(frame.pts));
                rest = behind;
            }
            assert!(rest.is_empty());
        }
        assembler.finish();
        let faults = assembler.faults();
        let pictures = assembler.filter(|event| matches!(event, Event::Unit(_))).count();
        assert!(pictures >= kept.len(), "{pictures} pictures of {}", kept.len());
        assert_eq!((faults.damaged, faults.undecodable), (0, 0));
    }

    #[test]
    fn any_bytes_are_frames_or_none() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let mut rest = &bytes[..];
            let mut read = 0;
            while let Some((frame, behind)) = Frame::read(rest) {
                read += HEAD_BYTES + frame.bytes.len();
                rest = behind;
            }
            assert_eq!(read + rest.len(), bytes.len());
        });
    }
}
