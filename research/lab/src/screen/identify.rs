//! Which picture of the stream a received one is, by its bytes and its time.

use std::collections::BTreeMap;

use super::receive::Frame;
use super::source::{Codec, CodedPicture, TICKS};

/// Tolerance of a picture's time: servers count in other units.
const TOLERANCE_TICKS: u64 = TICKS as u64 / 200;

/// For each received picture its position in the stream; none for one that is not of the stream.
///
/// The sender's clock has an origin of its own. It is the one by which most of the pictures are those of the stream at
/// their time: a stream that does not move has many equal ones.
pub(super) fn identify(pictures: &[CodedPicture], codec: Codec, frames: &[Frame]) -> Vec<Option<usize>> {
    let mut known: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (place, picture) in pictures.iter().enumerate() {
        known.entry(codec.essence(&picture.bytes)).or_default().push(place);
    }
    let candidates: Vec<&[usize]> = frames
        .iter()
        .map(|frame| known.get(&codec.essence(&frame.bytes)).map_or(&[][..], Vec::as_slice))
        .collect();
    let mut votes: BTreeMap<i64, usize> = BTreeMap::new();
    for (frame, places) in frames.iter().zip(&candidates) {
        for &place in *places {
            *votes.entry(frame.ticks - pictures[place].ticks).or_default() += 1;
        }
    }
    let Some((&origin, _)) = votes.iter().max_by_key(|(_, count)| **count) else {
        return vec![None; frames.len()];
    };
    let is_at = |frame: &Frame, place: usize| {
        (frame.ticks - origin).abs_diff(pictures[place].ticks) <= TOLERANCE_TICKS
    };
    frames
        .iter()
        .zip(candidates)
        .map(|(frame, places)| places.iter().copied().find(|&place| is_at(frame, place)))
        .collect()
}

#[cfg(test)]
mod tests {
    use freshwire_record::Timestamp;

    use super::*;

    fn coded(ticks: i64, slice: &[u8]) -> CodedPicture {
        let bytes = [&[0, 0, 0, 1, 0x41][..], slice].concat();
        CodedPicture { captured_ns: 0, offered_ns: 0, ticks, key: false, refs: Vec::new(), bytes }
    }

    fn frame(ticks: i64, slice: &[u8]) -> Frame {
        // A delimiter and parameter sets are none of the picture.
        let bytes = [&[0, 0, 0, 1, 9, 0x10, 0, 0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x41][..], slice].concat();
        Frame { at: Timestamp::ZERO, ticks, bytes }
    }

    #[test]
    fn equal_pictures_are_distinguished_by_their_time() {
        let stream: Vec<CodedPicture> =
            [1, 2, 3, 2, 4, 2].iter().zip(0..).map(|(slice, at)| coded(at * 3600, &[*slice; 3])).collect();
        let frames = [
            frame(501_000, &[2; 3]),
            frame(504_601, &[2; 3]),
            frame(506_000, &[3; 3]),
            frame(508_200, &[4; 3]),
            frame(511_800, &[2; 3]),
            frame(511_800, &[2; 2]),
        ];
        // By the origin 493800 two are of the stream to the tick and one to a tick; the first is of another picture's time.
        assert_eq!(identify(&stream, Codec::H264, &frames), [None, Some(3), None, Some(4), Some(5), None]);
        assert_eq!(identify(&stream, Codec::H264, &frames[5..]), [None]);
    }
}
