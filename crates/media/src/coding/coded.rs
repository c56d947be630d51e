//! Coded units.

use std::ops::Range;
use std::sync::Arc;

use crate::unit::{Repeat, VideoTrack};

/// A unit of the video track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coded {
    /// Its bytes as [`Unit`](crate::unit::Unit) describes them. H.264 and H.265: also without filler and
    /// end-of-sequence NAL units. A key unit begins with all parameter sets that its sequence uses, others with those
    /// that changed since the last key unit. AV1: likewise without padding; a key unit has a sequence header.
    pub bytes: Vec<u8>,
    /// The NAL units in `bytes`, with header, without start code. Empty for AV1 and VP9.
    pub nals: Vec<Range<u32>>,
    /// Decoding can begin here. Units after it that depend on units before it name those in `refs`.
    pub key: bool,
    /// 0 for a key, 1 for others of the lowest temporal layer, 2 for references above, 3 if nothing depends on it.
    pub layer: u8,
    /// Number of its group, from 0; a group begins with each key.
    pub group: u32,
    /// Distances back, in units that the parser yielded, to those it depends on; 0 is none. With what these depend on in
    /// turn they are all that is needed, at times more.
    pub refs: [u32; 2],
    /// Sorts the units of the whole stream in display order. Values are not consecutive.
    pub display: i64,
    /// The track. The same allocation as long as it does not change; it changes at key units.
    pub track: Arc<VideoTrack>,
    /// How many units a decoder holds back to put them into display order: what the stream says, else the most that was
    /// needed so far.
    pub reorder: u8,
    /// Nominal duration of a frame in nanoseconds, if the stream says it.
    pub frame_ns: Option<u32>,
    /// How a repetition of the unit before it can take its place. `None` where that is not done.
    pub repeat: Option<Repeat>,
}

/// Part of a stream was left out because of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VideoError {
    /// A unit above the limit. The parser goes on with the next key unit.
    #[error("a video unit of more than {limit} bytes; lower the encoder's bit rate or raise the limit")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}
