//! VP9 (the bitstream specification's version 0.6) as one of the live formats.
//!
//! A frame depends on the frame buffers it names. Unless it is error-resilient it also depends on the frame before it,
//! whatever that is: motion vectors, probabilities, segmentation and filter levels live on from frame to frame.

use crate::coding::bits::Bits;
use crate::coding::whole::{Frame, Slots, WholeCodec};
use crate::unit::{VideoCodec, VideoTrack};

/// Follows the frames of a live VP9 stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    slots: Slots,
    before: Option<u64>,
}

impl WholeCodec for Live {
    fn read(&mut self, bytes: &[u8], number: u64) -> Option<Frame> {
        let mut unit = Frame::new(bytes.to_vec());
        let mut first = true;
        for frame in frames(bytes)? {
            match Header::parse(frame)? {
                Header::Existing { slot } => unit.on.push(self.slots.get(slot)?),
                Header::Key(key) => {
                    unit.key |= first;
                    unit.droppable = false;
                    unit.track = Some(key.track());
                    self.slots.refresh(0xff, number);
                }
                Header::IntraOnly { refresh, resilient } => {
                    unit.droppable &= refresh == 0 && resilient;
                    unit.on.extend(self.before.filter(|_| !resilient));
                    self.slots.refresh(refresh, number);
                }
                Header::Inter { refresh, references, resilient } => {
                    unit.droppable &= refresh == 0 && resilient;
                    unit.on.extend(self.before.filter(|_| !resilient));
                    for slot in references {
                        unit.on.push(self.slots.get(slot)?);
                    }
                    self.slots.refresh(refresh, number);
                }
            }
            first = false;
        }
        // A key resets what the frame before it left.
        unit.on.retain(|&on| on != number && !unit.key);
        self.before = Some(number);
        (!first).then_some(unit)
    }

    fn holds(&self, number: u64) -> bool {
        self.slots.hold(number)
    }

    fn is_key(&mut self, bytes: &[u8]) -> bool {
        let first = frames(bytes).and_then(|frames| frames.first().copied());
        matches!(first.and_then(Header::parse), Some(Header::Key(_)))
    }
}

/// The frames of a superframe (Annex B of the specification), or the one frame.
fn frames(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let &marker = bytes.last()?;
    let count = usize::from(marker & 7) + 1;
    let size_bytes = usize::from(marker >> 3 & 3) + 1;
    let begin = bytes.len().checked_sub(2 + count * size_bytes);
    let index = begin.and_then(|begin| bytes.get(begin..)).filter(|index| index.first() == Some(&marker));
    let Some(index) = index.filter(|_| marker & 0xe0 == 0xc0) else { return Some(vec![bytes]) };
    let mut rest = &bytes[..bytes.len() - index.len()];
    let mut frames = Vec::with_capacity(count);
    for size in index[1..index.len() - 1].chunks(size_bytes) {
        let size = size.iter().rev().fold(0, |size, &byte| size << 8 | usize::from(byte));
        let (frame, after) = rest.split_at_checked(size)?;
        if !frame.is_empty() {
            frames.push(frame);
        }
        rest = after;
    }
    Some(frames)
}

/// The uncompressed header, as far as frames depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Existing { slot: u32 },
    Key(Key),
    IntraOnly { refresh: u32, resilient: bool },
    Inter { refresh: u32, references: [u32; 3], resilient: bool },
}

/// What a key frame says of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    profile: u8,
    bit_depth: u8,
    width: u32,
    height: u32,
}

impl Key {
    fn track(self) -> VideoTrack {
        let codec = VideoCodec::Vp9 { profile: self.profile, bit_depth: self.bit_depth };
        VideoTrack { codec, width: self.width, height: self.height }
    }
}

impl Header {
    fn parse(frame: &[u8]) -> Option<Self> {
        let mut bits = Bits::plain(frame.get(..frame.len().min(HEADER_BYTES))?);
        if bits.bits(2)? != 2 {
            return None;
        }
        let profile = u8::from(bits.bit()?) | u8::from(bits.bit()?) << 1;
        if profile == 3 && bits.bit()? {
            return None;
        }
        if bits.bit()? {
            return Some(Self::Existing { slot: bits.bits(3)? });
        }
        let inter = bits.bit()?;
        let shown = bits.bit()?;
        let resilient = bits.bit()?;
        if !inter {
            return Key::parse(&mut bits, profile).map(Self::Key);
        }
        let intra_only = !shown && bits.bit()?;
        if !resilient {
            bits.skip(2)?;
        }
        if intra_only {
            read_sync(&mut bits)?;
            if profile > 0 {
                read_colours(&mut bits, profile)?;
            }
            return Some(Self::IntraOnly { refresh: bits.bits(8)?, resilient });
        }
        let refresh = bits.bits(8)?;
        let mut references = [0; 3];
        for reference in &mut references {
            *reference = bits.bits(3)?;
            bits.bit()?;
        }
        Some(Self::Inter { refresh, references, resilient })
    }
}

impl Key {
    fn parse(bits: &mut Bits, profile: u8) -> Option<Self> {
        read_sync(bits)?;
        let bit_depth = read_colours(bits, profile)?;
        let [width, height] = [bits.bits(16)? + 1, bits.bits(16)? + 1];
        Some(Self { profile, bit_depth, width, height })
    }
}

fn read_sync(bits: &mut Bits) -> Option<()> {
    (bits.bits(24)? == 0x49_83_42).then_some(())
}

/// Reads how samples are coded and gives the bits of one.
fn read_colours(bits: &mut Bits, profile: u8) -> Option<u8> {
    const RGB: u32 = 7;
    let bit_depth = match profile {
        0 | 1 => 8,
        _ if bits.bit()? => 12,
        _ => 10,
    };
    let subsampled = profile & 1 == 1;
    if bits.bits(3)? != RGB {
        bits.skip(if subsampled { 4 } else { 1 })?;
    } else if subsampled {
        bits.skip(1)?;
    } else {
        return None;
    }
    Some(bit_depth)
}

/// The part of a header that is read ends within these bytes.
const HEADER_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_frame_says_its_depth_and_size() {
        let frame = [0x92, 0x49, 0x83, 0x42, 0x90, 0x03, 0xf8, 0x02, 0xf8];
        let key = Key { profile: 2, bit_depth: 12, width: 128, height: 96 };
        assert_eq!(Header::parse(&frame), Some(Header::Key(key)));
    }

    #[test]
    fn only_resilient_frames_do_without_the_one_before() {
        // Each refers to slot 0, where the key is, and goes to slot 1.
        let (plain, resilient) = ([0x86, 0x00, 0x80, 0x00], [0x87, 0x02, 0x00, 0x00]);
        let mut live = Live { slots: Slots::default(), before: Some(0) };
        live.slots.refresh(0xff, 0);
        let mut on = |frame: &[u8], number| {
            let mut on = live.read(frame, number).expect("valid").on;
            on.dedup();
            on
        };
        assert_eq!([on(&plain, 1), on(&plain, 2), on(&resilient, 3)], [vec![0], vec![1, 0], vec![0]]);
    }

    #[test]
    fn a_superframe_is_cut_at_its_index() {
        let bytes = [1, 2, 3, 4, 5, 0xc1, 2, 3, 0xc1];
        assert_eq!(frames(&bytes), Some(vec![&bytes[..2], &bytes[2..5]]));
        assert_eq!(frames(&[1, 2, 3, 0xc1, 2, 3, 0xc1]), None, "frames larger than there are bytes");
        assert_eq!(frames(&[7, 7]), Some(vec![&[7, 7][..]]));
        assert_eq!(frames(&[]), None);
    }
}
