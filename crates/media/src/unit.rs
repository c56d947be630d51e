//! What a live stream consists of, whatever it came in by and goes out by: tracks and their units.

mod catalog;
mod repeat;

use std::ops::Range;
use std::sync::Arc;

pub use self::catalog::{Catalog, FIRST_SOUND, LANE_BITS};
pub use self::repeat::Repeat;
pub(crate) use self::repeat::Repeatable;

/// A place on a stream's media clock, in nanoseconds. The origin is the source's; only differences mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaTime(i64);

impl MediaTime {
    /// The time `nanos` ns after the origin.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The time of `ticks` of a clock that makes `rate` ticks a second, to the nearest nanosecond.
    pub fn from_ticks(ticks: i64, rate: u32) -> Self {
        Self(scale(ticks, 1_000_000_000, i64::from(rate.max(1))))
    }

    /// Ticks of a clock that makes `rate` ticks a second, to the nearest tick. Inverse of
    /// [`from_ticks`](Self::from_ticks) for rates up to 500 MHz.
    pub fn ticks(self, rate: u32) -> i64 {
        scale(self.0, i64::from(rate), 1_000_000_000)
    }
}

/// `value * by / over`, rounded. Both factors are at most `u32::MAX`, so that the rest's product fits; a division of 128 bits
/// would cost each packet more than all else in its header.
fn scale(value: i64, by: i64, over: i64) -> i64 {
    let rest = (value.rem_euclid(over) * by + over / 2) / over;
    let rounded = i128::from(value.div_euclid(over)) * i128::from(by) + i128::from(rest);
    i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
}

/// Which of a stream's two tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
}

/// How a stream's pictures are coded, with what a decoder has to know before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VideoCodec {
    /// H.264: the newest parameter sets as NAL units with header, without start code.
    H264 {
        /// Sequence parameter set.
        sps: Vec<u8>,
        /// Picture parameter set.
        pps: Vec<u8>,
    },
    /// H.265: likewise.
    H265 {
        /// Video parameter set.
        vps: Vec<u8>,
        /// Sequence parameter set.
        sps: Vec<u8>,
        /// Picture parameter set.
        pps: Vec<u8>,
    },
    /// AV1: the sequence header OBU, with header and size field.
    Av1 {
        /// Sequence header OBU.
        sequence_header: Vec<u8>,
    },
    /// VP9.
    Vp9 {
        /// Profile, 0 to 3.
        profile: u8,
        /// Bits per sample: 8, 10 or 12.
        bit_depth: u8,
    },
}

/// How a stream's sound is coded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AudioCodec {
    /// AAC: the AudioSpecificConfig (ISO 14496-3, 1.6.2.1).
    Aac {
        /// AudioSpecificConfig.
        config: Vec<u8>,
    },
    /// Opus; its clock is always 48 kHz.
    Opus,
}

/// The video track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoTrack {
    /// Its codec.
    pub codec: VideoCodec,
    /// Width of the shown picture in samples.
    pub width: u32,
    /// Height of the shown picture in samples.
    pub height: u32,
}

/// The audio track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudioTrack {
    /// Its codec.
    pub codec: AudioCodec,
    /// Samples per second.
    pub rate: u32,
    /// Channels.
    pub channels: u8,
}

/// What a stream has: at most one video and one audio track, at least one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracks {
    /// Pictures, if it has any.
    pub video: Option<VideoTrack>,
    /// Sound, if it has any.
    pub audio: Option<AudioTrack>,
}

/// A video access unit or an audio frame, with its bytes.
///
/// H.264 and H.265: an Annex B access unit in which every NAL unit has a start code of exactly four bytes, without
/// access unit delimiters. A key unit begins with its parameter sets. AV1: a temporal unit of OBUs with size fields,
/// without temporal delimiters. VP9: a frame or superframe. AAC: a raw frame without ADTS header. Opus: a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What a framing has to know of it.
    pub head: UnitHead,
    /// 0 for a key unit and for sound; a higher layer is dropped first; the highest has nothing that depends on it.
    pub layer: u8,
    /// Number of its group of pictures; a group begins with each key unit. Sound carries the number of the latest group.
    pub group: u32,
    /// Distances back, in units of the same track in decoding order, to those it depends on; 0 is none.
    pub refs: [u32; 2],
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A unit without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHead {
    /// Its track.
    pub kind: Kind,
    /// When it is shown or heard.
    pub pts: MediaTime,
    /// When it is decoded: never decreases along a track and is never after [`pts`](Self::pts).
    pub dts: MediaTime,
    /// Its place in time until the next unit of its track, as far as that is known: at least 1 ns.
    pub duration_ns: u32,
    /// Decoding can begin here.
    pub key: bool,
    /// How many bytes it has.
    pub len: u32,
    /// Its NAL units, with header, without start code: ranges of its bytes. For AV1 the OBUs, with header and
    /// size. Empty for other codecs.
    pub nals: Vec<Range<u32>>,
    /// The first two bytes of each of [`nals`](Self::nals), in the same order; what a NAL unit of one byte lacks is 0.
    pub nal_headers: Vec<[u8; 2]>,
    /// How a repetition of the picture before it can take its place, where that is supported. It is for H.264 of
    /// whole frames, unless one of the last two keys was no IDR picture, and for H.265 of its main profiles.
    pub repeat: Option<Repeat>,
    /// The stream's tracks at this unit. The same allocation as long as they do not change.
    pub tracks: Arc<Tracks>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_are_inverse() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(i32, u16)>().for_each(
            |&(ticks, rate)| {
                let rate = u32::from(rate) + 1;
                let time = MediaTime::from_ticks(i64::from(ticks), rate);
                assert_eq!(time.ticks(rate), i64::from(ticks));
            },
        );
    }

    #[test]
    fn scaling_is_exact_up_to_the_ends() {
        let exact = |value: i64, by: i64, over: i64| {
            let rounded = (i128::from(value) * i128::from(by) + i128::from(over / 2)).div_euclid(over.into());
            rounded.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        let check = |value: i64, rate: u32| {
            let (rate, second) = (i64::from(rate.max(1)), 1_000_000_000);
            assert_eq!(scale(value, rate, second), exact(value, rate, second), "{value} at {rate}");
            assert_eq!(scale(value, second, rate), exact(value, second, rate), "{value} at {rate}");
        };
        for value in [i64::MIN, -1, 0, i64::MAX] {
            [1, 90_000, u32::MAX].into_iter().for_each(|rate| check(value, rate));
        }
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<(i64, u32)>()
            .for_each(|&(value, rate)| check(value, rate));
    }
}
