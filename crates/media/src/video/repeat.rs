//! Whether and how a repetition takes a picture's place.

use crate::{h264, h265};

/// Layers up to this one are what later pictures depend on, up to the next key.
const CHAIN_LAYER: u8 = 1;

/// How a repetition of the picture before it takes a picture's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub(super) place: Repeatable,
    pub(super) in_chain: bool,
}

/// A picture's place among the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repeatable {
    H264(h264::Place),
    H265(h265::Place),
}

impl Repeat {
    pub(crate) fn new(place: Repeatable, layer: u8) -> Self {
        Self { place, in_chain: layer <= CHAIN_LAYER }
    }
}

impl Repeatable {
    /// What repetitions know this picture by, if they can repeat it.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::H264(place) => place.number(),
            Self::H265(place) => place.number(),
        }
    }

    /// The NAL units of a repetition of the picture with the number `newest`, which may give it another one.
    pub(super) fn repeat(&self, newest: &mut i64) -> Vec<Vec<u8>> {
        match self {
            Self::H264(place) => {
                let (number, nal) = place.repeat(*newest);
                *newest = number.unwrap_or(*newest);
                vec![nal]
            }
            Self::H265(place) => place.repeat(*newest),
        }
    }
}
