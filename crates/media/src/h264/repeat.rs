//! A repetition in H.264: all macroblocks of the picture are skipped (ITU-T H.264, 7.3.4).

use std::any::Any;
use std::sync::Arc;

use super::headers::CodedPicture;
use super::syntax::{Order, Picture, Sequence, SliceRules};
use crate::coding::arithmetic::{Context, Encoder};
use crate::coding::bits::BitWriter;
use crate::unit::Repeatable;

/// How a picture is numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    blank: Arc<Blank>,
    frame_num: u32,
    order: [i32; 2],
    /// `nal_ref_idc`.
    rank: u8,
}

/// What all repetitions of a sequence have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blank {
    sequence: Sequence,
    picture: Picture,
    slice: SliceRules,
    /// The slice's data, if it is coded apart from the header.
    arithmetic: Option<Vec<u8>>,
}

/// The most macroblocks: those of 8192x4320 (ITU-T H.264, table A-1, level 6.2).
const MOST_MACROBLOCKS: u32 = 139_264;

impl Blank {
    /// `None` for what is not done: fields, pictures in slice groups or in separate planes, counts in cycles; and where no picture
    /// refers to another.
    pub(super) fn new(sequence: &Sequence, picture: &Picture) -> Option<Self> {
        let slice = picture.slice?;
        let is_plain = sequence.frames_only
            && !sequence.separate_planes
            && !matches!(sequence.order, Order::Cycles { .. })
            && sequence.references > 0
            && (1..=MOST_MACROBLOCKS).contains(&sequence.macroblocks);
        is_plain.then(|| Self {
            sequence: *sequence,
            picture: *picture,
            slice,
            arithmetic: slice.is_arithmetic.then(|| skip_all(sequence.macroblocks)),
        })
    }

    pub(super) fn is_of(&self, sequence: &Sequence, picture: &Picture) -> bool {
        self.sequence == *sequence && self.picture == *picture
    }

    /// The NAL unit of a repetition.
    fn nal(&self, place: &Place, frame_num: u32) -> Vec<u8> {
        let Self { sequence, picture, slice, .. } = self;
        let mut bits = BitWriter::default();
        bits.ue(0);
        bits.ue(ALL_SLICES_P);
        bits.ue(picture.id);
        bits.bits(frame_num, sequence.frame_num_bits);
        if let Order::Low { bits: low } = sequence.order {
            bits.bits(place.order[0] as u32, low);
            if picture.order_in_frame {
                bits.se(place.order[1]);
            }
        }
        if slice.has_redundancy {
            bits.ue(0);
        }
        bits.bit(!slice.one_reference);
        if !slice.one_reference {
            bits.ue(0);
        }
        // The order of references is not modified: the first one is the newest.
        bits.bit(false);
        if slice.weighted {
            let has_colour = sequence.chroma != Some(0);
            bits.ue(0);
            if has_colour {
                bits.ue(0);
            }
            bits.bit(false);
            if has_colour {
                bits.bit(false);
            }
        }
        if place.rank > 0 {
            // The oldest reference goes.
            bits.bit(false);
        }
        if slice.is_arithmetic {
            bits.ue(0);
        }
        bits.se(SKIP_QP - 26 - slice.initial_qp_minus26);
        if slice.has_deblocking {
            bits.ue(NO_DEBLOCKING);
        }
        let header = place.rank << 5 | SLICE;
        match &self.arithmetic {
            Some(data) => {
                bits.align(true);
                bits.into_nal_with(&[header], data)
            }
            None => {
                bits.ue(sequence.macroblocks);
                bits.into_nal(header)
            }
        }
    }
}

impl Place {
    pub(super) fn new(blank: Arc<Blank>, coded: &CodedPicture) -> Self {
        let identity = coded.slice.identity;
        Self { blank, frame_num: identity.frame_num, order: identity.order, rank: coded.ref_idc }
    }
}

impl Repeatable for Place {
    /// Later pictures may refer to this one by its number.
    fn number(&self) -> Option<i64> {
        (self.rank > 0).then_some(self.frame_num.into())
    }

    fn repeat(&self, newest: &mut i64) -> Vec<Vec<u8>> {
        let frame_num = (*newest + 1) % (1 << self.blank.sequence.frame_num_bits);
        if self.rank > 0 {
            *newest = frame_num;
        }
        vec![self.blank.nal(self, frame_num as u32)]
    }

    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// A coded slice of a picture that is no key.
const SLICE: u8 = 1;
/// `slice_type`: P, as all others of the picture.
const ALL_SLICES_P: u32 = 5;
/// `disable_deblocking_filter_idc`.
const NO_DEBLOCKING: u32 = 1;
/// The quantiser for which a skipped macroblock is the most probable: nothing is quantised here.
const SKIP_QP: i32 = 51;

/// The data of a slice in which all macroblocks are skipped, with the stop bit.
fn skip_all(macroblocks: u32) -> Vec<u8> {
    // The flag's context where neither neighbour is another than skipped: number 11, `cabac_init_idc` 0.
    let mut skipped = Context::new(23, 33, SKIP_QP);
    let mut encoder = Encoder::new();
    for macroblock in 1..=macroblocks {
        encoder.encode(&mut skipped, true);
        if macroblock < macroblocks {
            encoder.go_on();
        }
    }
    encoder.end()
}
