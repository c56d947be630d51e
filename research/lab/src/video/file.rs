//! The file of layer frames that `research/lab/video/scalable.c` writes. All numbers are big-endian.
//!
//! ```text
//!  file    "FWSV"  version 1 (1)  spatial layers (1)  temporal layers (1)  0 (1)
//!          width (2)  height (2)  pictures per second: numerator (4) denominator (4)
//!  frame   picture (4)  spatial layer (1)  temporal layer (1)  flags (1): 1 is a key picture  0 (1)
//!          capture time, ns (8)  distances back to two frames of this file that it refers to, 0 is none (4, 4)
//!          bytes (4)  the coded layer frame
//! ```

use std::time::Duration;

/// The first four bytes.
const MAGIC: [u8; 4] = *b"FWSV";
const VERSION: u8 = 1;
const FILE_HEADER_BYTES: usize = 20;
const FRAME_HEADER_BYTES: usize = 28;
const KEY: u8 = 1;

/// The largest layer frame: with its record's header it fits what the reader of records accepts (`freshwire_media::layered`).
const MOST_FRAME_BYTES: u32 = 1_000_000;
/// libvpx has at most 5 of either; its interface says so (`VPX_SS_MAX_LAYERS`, `VPX_TS_MAX_LAYERS`).
const MOST_LAYERS: u8 = 5;

/// A picture's share in one spatial layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerFrame {
    /// The number of its picture, from 0.
    pub(crate) picture: u32,
    /// 0 is the smallest picture.
    pub(crate) spatial: u8,
    /// 0 is the slowest rate.
    pub(crate) temporal: u8,
    /// Whether its picture refers to no other picture.
    pub(crate) key: bool,
    /// From the first picture to the capture of this one.
    pub(crate) captured: Duration,
    /// Positions of the frames that it refers to, all smaller than its own.
    pub(crate) refs: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A scalable stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Video {
    /// Samples of the largest pictures.
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) spatial: u8,
    /// In decoding order: all spatial layers of a picture, from the smallest, then the next picture.
    pub(crate) frames: Vec<LayerFrame>,
}

/// The bytes are not a file of layer frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    #[error("not a file of layer frames, which begins with \"FWSV\"")]
    Magic,
    #[error("version {0} of the file; this program knows version 1")]
    Version(u8),
    #[error(
        "the header has {0} spatial and {1} temporal layers, {2}x{3} samples and {4}/{5} pictures a second"
    )]
    Header(u8, u8, u16, u16, u32, u32),
    #[error("the file ends at byte {0}, within a header or a frame; it was cut")]
    Cut(usize),
    #[error("frame {0} has {1} bytes, which is not 1 to {MOST_FRAME_BYTES}")]
    Size(usize, u32),
    #[error("frame {0} is of layer {1},{2}, which the header does not have")]
    Layer(usize, u8, u8),
    #[error("frame {0} refers to a frame {1} back, which is before the first")]
    Reference(usize, u32),
    #[error("frame {0} is of picture {1}, spatial layer {2}, which is not the next one")]
    Order(usize, u32, u8),
    #[error("there is no picture")]
    Empty,
}

impl Video {
    /// Reads a whole file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FileError> {
        let mut input = Input { bytes, at: 0 };
        if input.take::<4>().is_ok_and(|magic| *magic != MAGIC) {
            return Err(FileError::Magic);
        }
        let &[version, spatial, temporal, _, w0, w1, h0, h1, r0, r1, r2, r3, s0, s1, s2, s3] =
            input.take::<{ FILE_HEADER_BYTES - 4 }>()?;
        if version != VERSION {
            return Err(FileError::Version(version));
        }
        let (width, height) = (u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1]));
        let (rate, scale) = (u32::from_be_bytes([r0, r1, r2, r3]), u32::from_be_bytes([s0, s1, s2, s3]));
        let layers = 1..=MOST_LAYERS;
        if !layers.contains(&spatial)
            || !layers.contains(&temporal)
            || [width, height].contains(&0)
            || [rate, scale].contains(&0)
        {
            return Err(FileError::Header(spatial, temporal, width, height, rate, scale));
        }
        let mut video = Self { width, height, spatial, frames: Vec::new() };
        while input.at < bytes.len() {
            let frame = input.frame(&video, temporal)?;
            video.frames.push(frame);
        }
        match video.frames.last() {
            None => Err(FileError::Empty),
            // The last picture lacks its upper layers.
            Some(last) if last.spatial + 1 != spatial => Err(FileError::Cut(bytes.len())),
            Some(_) => Ok(video),
        }
    }

    /// Pictures of the stream.
    pub(crate) fn pictures(&self) -> usize {
        self.frames.len() / usize::from(self.spatial)
    }

    /// The layer frames of the first `spatial` layers of a picture.
    pub(crate) fn layers_of(&self, picture: usize, spatial: u8) -> &[LayerFrame] {
        let all = usize::from(self.spatial);
        let first = picture * all;
        self.frames.get(first..first + usize::from(spatial).min(all)).unwrap_or_default()
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], FileError> {
        let cut = FileError::Cut(self.bytes.len());
        let end = self.at.checked_add(len).ok_or(cut)?;
        let slice = self.bytes.get(self.at..end).ok_or(cut)?;
        self.at = end;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], FileError> {
        let cut = FileError::Cut(self.bytes.len());
        self.slice(N)?.first_chunk().ok_or(cut)
    }

    fn number(&mut self) -> Result<u32, FileError> {
        self.take().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The next frame behind those of `video`.
    fn frame(&mut self, video: &Video, temporal_layers: u8) -> Result<LayerFrame, FileError> {
        let here = video.frames.len();
        let picture = self.number()?;
        let &[spatial, temporal, flags, _] = self.take()?;
        let captured = Duration::from_nanos(self.take().map(|bytes| u64::from_be_bytes(*bytes))?);
        let back = [self.number()?, self.number()?];
        let size = self.number()?;
        if spatial >= video.spatial || temporal >= temporal_layers {
            return Err(FileError::Layer(here, spatial, temporal));
        }
        let layers = usize::from(video.spatial);
        let before = video.frames.last().map_or(Duration::ZERO, |before| before.captured);
        if picture as usize != here / layers || usize::from(spatial) != here % layers || captured < before {
            return Err(FileError::Order(here, picture, spatial));
        }
        if !(1..=MOST_FRAME_BYTES).contains(&size) {
            return Err(FileError::Size(here, size));
        }
        let position = |back: u32| here.checked_sub(back as usize).ok_or(FileError::Reference(here, back));
        let refs = back.into_iter().filter(|&back| back > 0).map(position).collect::<Result<_, _>>()?;
        let bytes = self.slice(size as usize)?.to_vec();
        Ok(LayerFrame { picture, spatial, temporal, key: flags & KEY > 0, captured, refs, bytes })
    }
}

const _: () = assert!(FRAME_HEADER_BYTES == 4 + 4 + 8 + 4 + 4 + 4, "what `frame` reads");

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const HEADER: [u8; FILE_HEADER_BYTES] = *b"FWSV\x01\x02\x02\0\0\x40\0\x20\0\0\0\x19\0\0\0\x01";

    /// A frame with a payload of its position.
    fn frame(picture: u32, [spatial, temporal]: [u8; 2], back: [u32; 2], size: u32) -> Vec<u8> {
        let mut bytes = picture.to_be_bytes().to_vec();
        bytes.extend([spatial, temporal, u8::from(picture == 0), 0]);
        bytes.extend((u64::from(picture) * 40_000_000).to_be_bytes());
        bytes.extend(back.map(u32::to_be_bytes).concat());
        bytes.extend(size.to_be_bytes());
        bytes.extend(std::iter::repeat_n((picture as u8).wrapping_mul(2) + spatial, size.min(50) as usize));
        bytes
    }

    /// Two pictures of two spatial layers; the second picture is of the upper temporal layer.
    pub(crate) fn two_pictures() -> Vec<u8> {
        let frames = [
            frame(0, [0, 0], [0, 0], 10),
            frame(0, [1, 0], [1, 0], 30),
            frame(1, [0, 1], [2, 0], 5),
            frame(1, [1, 1], [2, 1], 20),
        ];
        [&HEADER[..], &frames.concat()].concat()
    }

    #[test]
    fn a_file_is_read_with_its_references() {
        let video = Video::parse(&two_pictures()).unwrap();
        assert_eq!((video.width, video.height, video.spatial, video.pictures()), (64, 32, 2, 2));
        let refs: Vec<_> = video.frames.iter().map(|frame| frame.refs.clone()).collect();
        assert_eq!(refs, [vec![], vec![0], vec![0], vec![1, 2]]);
        let last = &video.frames[3];
        assert_eq!((last.picture, last.spatial, last.temporal, last.key), (1, 1, 1, false));
        assert_eq!((last.captured, &last.bytes[..]), (Duration::from_millis(40), &[3; 20][..]));
        assert_eq!(video.layers_of(1, 1), &video.frames[2..3]);
        assert_eq!(video.layers_of(1, 9), &video.frames[2..4]);
        assert_eq!(video.layers_of(2, 1), []);
    }

    #[test]
    fn a_cut_file_is_refused_at_any_byte() {
        let whole = two_pictures();
        let first_picture = FILE_HEADER_BYTES + 2 * FRAME_HEADER_BYTES + 40;
        assert_eq!(Video::parse(&whole[..first_picture]).unwrap().pictures(), 1);
        for end in (0..whole.len()).filter(|&end| end != first_picture) {
            let error = Video::parse(&whole[..end]).expect_err("cut");
            let expected = if end == FILE_HEADER_BYTES { FileError::Empty } else { FileError::Cut(end) };
            assert_eq!(error, expected, "{end}");
        }
    }

    #[test]
    fn impossible_files_are_refused() {
        let with = |place: usize, byte: u8| {
            let mut header = HEADER;
            header[place] = byte;
            Video::parse(&[&header[..], &frame(0, [0, 0], [0, 0], 9)].concat()).expect_err("impossible")
        };
        assert_eq!(with(0, b'D'), FileError::Magic);
        assert_eq!(with(4, 2), FileError::Version(2));
        for (place, byte) in [(5, 0), (5, 6), (6, 0), (6, 255), (9, 0), (11, 0), (15, 0), (19, 0)] {
            assert!(matches!(with(place, byte), FileError::Header(..)), "{place}");
        }
        let second = |second: Vec<u8>| {
            let first = frame(0, [0, 0], [0, 0], 9);
            Video::parse(&[&HEADER[..], &first, &second].concat()).expect_err("impossible")
        };
        for size in [0, MOST_FRAME_BYTES + 1, u32::MAX] {
            assert_eq!(second(frame(0, [1, 0], [1, 0], size)), FileError::Size(1, size));
        }
        assert_eq!(second(frame(0, [2, 0], [1, 0], 9)), FileError::Layer(1, 2, 0));
        assert_eq!(second(frame(0, [1, 2], [1, 0], 9)), FileError::Layer(1, 1, 2));
        for back in [2, u32::MAX] {
            assert_eq!(second(frame(0, [1, 0], [0, back], 9)), FileError::Reference(1, back));
        }
        for (picture, spatial) in [(0, 0), (1, 0), (1, 1), (u32::MAX, 1)] {
            assert_eq!(
                second(frame(picture, [spatial, 0], [1, 0], 9)),
                FileError::Order(1, picture, spatial)
            );
        }
    }

    #[test]
    fn no_bytes_end_the_reader() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = Video::parse(&[&HEADER[..], bytes].concat());
        });
    }
}
