//! A repetition in H.265: all coding units of the picture are skipped (ITU-T H.265, 7.3.8.5), and each takes the first merge
//! candidate, which does not move.
//!
//! It has a picture parameter set of its own, under the highest number. Features that the stream's own sets allow,
//! from tiles to weights, then need no fields in the slice header.

use std::any::Any;
use std::sync::Arc;

use super::Picture;
use super::syntax::{PICTURE_SETS, PPS, Sequence, is_intra_access};
use crate::coding::arithmetic::{Context, Encoder};
use crate::coding::bits::BitWriter;
use crate::unit::Repeatable;

/// How a picture is numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    blank: Arc<Blank>,
    /// Picture order count.
    order: i64,
    is_reference: bool,
    /// It is neither an intra access picture nor one that is shown before that.
    trails: bool,
}

/// What all repetitions of a sequence have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blank {
    sequence: Sequence,
    set: Vec<u8>,
    /// The slice's data.
    data: Vec<u8>,
}

impl Blank {
    /// `None` for what is not done: profiles with more tools than those of version 1, separate planes, sub-layers; and where no
    /// picture refers to another.
    pub(super) fn new(sequence: &Sequence) -> Option<Self> {
        let is_plain = MAIN_PROFILES.contains(&(sequence.profile.general[0] & 31))
            && sequence.profile.sub_layers_minus1 == 0
            && sequence.references > 0
            && !sequence.format.separate_planes;
        let tree = is_plain.then(|| Tree::new(sequence))??;
        Some(Self { sequence: sequence.clone(), set: picture_set(sequence.id), data: tree.skip_all() })
    }

    pub(super) fn is_of(&self, sequence: &Sequence) -> bool {
        self.sequence == *sequence
    }

    /// The slice of a picture with this order count that repeats the one that lies `back` before it, or behind it if that is negative.
    fn slice(&self, kind: u8, order: i64, back: i64) -> Option<Vec<u8>> {
        let sequence = &self.sequence;
        let steps = u32::try_from(back.unsigned_abs()).ok().filter(|steps| (1..1 << 15).contains(steps))?;
        let mut bits = BitWriter::default();
        bits.bit(true);
        bits.ue(OWN_SET);
        bits.ue(SLICE_P);
        bits.bits(order.rem_euclid(1 << sequence.order_bits) as u32, sequence.order_bits);
        // A set of reference pictures of its own, with the one.
        bits.bit(false);
        if !sequence.short_term.is_empty() {
            bits.bit(false);
        }
        bits.ue(u32::from(back > 0));
        bits.ue(u32::from(back < 0));
        bits.ue(steps - 1);
        bits.bit(true);
        if let Some(choice) = &sequence.long_term {
            if !choice.is_empty() {
                bits.ue(0);
            }
            bits.ue(0);
        }
        if sequence.tools.temporal_prediction {
            bits.bit(false);
        }
        if sequence.tools.offsets {
            bits.bit(false);
            if sequence.format.chroma != 0 {
                bits.bit(false);
            }
        }
        // The set's number of references, and one merge candidate.
        bits.bit(false);
        bits.ue(4);
        bits.se(0);
        // Alignment begins with a one.
        bits.bit(true);
        bits.align(false);
        Some(bits.into_nal_with(&[kind << 1, 1], &self.data))
    }
}

impl Place {
    pub(super) fn new(blank: Arc<Blank>, picture: &Picture, order: i64) -> Self {
        let kind = picture.slice.kind;
        let is_reference = is_intra_access(kind) || kind & 1 == 1;
        Self { blank, order, is_reference, trails: kind < FIRST_LEADING }
    }
}

impl Repeatable for Place {
    /// Later pictures may refer to this one by its order count.
    fn number(&self) -> Option<i64> {
        self.is_reference.then_some(self.order)
    }

    fn repeat(&self, newest: &mut i64) -> Vec<Vec<u8>> {
        let kind = if self.is_reference { TRAIL_R } else { TRAIL_N };
        let slice = self.blank.slice(kind, self.order, self.order - *newest).filter(|_| self.trails);
        slice.map(|slice| vec![self.blank.set.clone(), slice]).unwrap_or_default()
    }

    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// A picture parameter set without any tool.
fn picture_set(sequence: u32) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.ue(OWN_SET);
    bits.ue(sequence);
    // Dependent slices, output flags, extra bits, hidden signs, contexts by slice.
    bits.bits(0, 7);
    // One reference picture by default, in either list; the quantiser.
    bits.ue(0);
    bits.ue(0);
    bits.se(0);
    // Constrained prediction, skipped transforms, quantisers by unit.
    bits.bits(0, 3);
    bits.se(0);
    bits.se(0);
    // Offsets by slice, weights of either kind, bypass, tiles, rows apart, filtering across slices.
    bits.bits(0, 7);
    // There is a word on deblocking: none, and not otherwise by slice.
    bits.bits(0b101, 3);
    // Scaling lists, modified reference lists.
    bits.bits(0, 2);
    bits.ue(0);
    // Extensions of slice headers and of the set.
    bits.bits(0, 2);
    bits.bit(true);
    bits.into_nal_with(&[PPS << 1, 1], &[])
}

/// The quadtrees of a picture, in units of the smallest coding block.
struct Tree {
    columns: usize,
    rows: usize,
    /// Units of a whole tree.
    whole: usize,
    /// How deep the tree is split at each unit.
    depths: Vec<u8>,
    split: [Context; 3],
    skip: [Context; 3],
    encoder: Encoder,
}

impl Tree {
    fn new(sequence: &Sequence) -> Option<Self> {
        let tools = sequence.tools;
        let smallest = 1 << tools.smallest_block_log2;
        let units = |samples: u32| samples.is_multiple_of(smallest).then_some((samples / smallest) as usize);
        let (columns, rows) = (units(sequence.coded[0])?, units(sequence.coded[1])?);
        let is_sound = (3..=6).contains(&tools.tree_log2) && tools.smallest_block_log2 <= tools.tree_log2;
        let count = columns.checked_mul(rows).filter(|count| (1..=MOST_UNITS).contains(count))?;
        is_sound.then(|| Self {
            columns,
            rows,
            whole: 1 << (tools.tree_log2 - tools.smallest_block_log2),
            depths: vec![0; count],
            split: SPLIT.map(context),
            skip: SKIP.map(context),
            encoder: Encoder::new(),
        })
    }

    /// The data of a slice of the whole picture in which everything is skipped.
    fn skip_all(mut self) -> Vec<u8> {
        let trees: Vec<_> = (0..self.rows)
            .step_by(self.whole)
            .flat_map(|row| (0..self.columns).step_by(self.whole).map(move |column| (row, column)))
            .collect();
        for (at, &(row, column)) in trees.iter().enumerate() {
            self.code(row, column, self.whole, 0);
            if at + 1 < trees.len() {
                self.encoder.go_on();
            }
        }
        self.encoder.end()
    }

    /// Codes the part of a tree that begins here, with `size` units on a side.
    fn code(&mut self, row: usize, column: usize, size: usize, depth: u8) {
        let is_inside = row + size <= self.rows && column + size <= self.columns;
        let deeper = self.neighbours(row, column).map(|found| found.is_some_and(|found| found > depth));
        if is_inside && size > 1 {
            let place = deeper.into_iter().map(usize::from).sum::<usize>();
            self.encoder.encode(&mut self.split[place], false);
        }
        if !is_inside {
            let half = size / 2;
            for (row, column) in
                [(row, column), (row, column + half), (row + half, column), (row + half, column + half)]
            {
                if row < self.rows && column < self.columns {
                    self.code(row, column, half, depth + 1);
                }
            }
            return;
        }
        let there = self.neighbours(row, column).into_iter().flatten().count();
        self.encoder.encode(&mut self.skip[there], true);
        for row in row..row + size {
            self.depths[row * self.columns + column..][..size].fill(depth);
        }
    }

    /// The depths to the left and above, where there is something.
    fn neighbours(&self, row: usize, column: usize) -> [Option<u8>; 2] {
        let at = row * self.columns + column;
        [
            column.checked_sub(1).map(|_| self.depths[at - 1]),
            row.checked_sub(1).map(|_| self.depths[at - self.columns]),
        ]
    }
}

/// The context with this initial value (9.3.2.2) at the set's quantiser.
fn context(initial: i32) -> Context {
    Context::new((initial >> 4) * 5 - 45, ((initial & 15) << 3) - 16, 26)
}

/// Initial values of `split_cu_flag` and `cu_skip_flag` in P slices (tables 9-8 and 9-9).
const SPLIT: [i32; 3] = [107, 139, 126];
const SKIP: [i32; 3] = [197, 185, 201];
/// The highest number.
const OWN_SET: u32 = PICTURE_SETS - 1;
const SLICE_P: u32 = 1;
const TRAIL_N: u8 = 0;
const TRAIL_R: u8 = 1;
/// Pictures of this kind and above are shown before an intra access picture, or are one.
const FIRST_LEADING: u8 = 6;
/// Main, Main 10 and Main Still Picture.
const MAIN_PROFILES: [u8; 3] = [1, 2, 3];
/// The smallest coding blocks of 8192x4320 (ITU-T H.265, table A.8, level 6.2).
const MOST_UNITS: usize = 552_960;
