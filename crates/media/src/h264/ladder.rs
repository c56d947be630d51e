//! Which pictures a picture depends on, and how much depends on it.

use std::collections::VecDeque;

use super::headers::CodedPicture;
use super::syntax::{Identity, Order, Sequence, SliceType};

/// What follows for one access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) poc: i32,
    pub(super) display: i64,
    pub(super) layer: u8,
    pub(super) group: u32,
    pub(super) refs: [u32; 2],
}

/// Follows the pictures in decoding order.
///
/// The chain holds the pictures on which everything after them depends: I and P pictures, and reference B
/// pictures that the encoder ranks equally. A reference B that is ranked below them is taken to serve only
/// the B pictures around it. The rank is `nal_ref_idc`; x264 does so with `b-pyramid=strict`.
#[derive(Clone, Debug, Default)]
pub(super) struct Ladder {
    decoded: u64,
    group: u32,
    /// Reference pictures since the last key, newest last.
    references: VecDeque<Reference>,
    chain_rank: u8,
    order: OrderCount,
    base: i64,
    highest: i64,
    anew: bool,
    key: Option<Key>,
}

/// The newest key, if it is one that pictures shown before it may follow.
#[derive(Clone, Copy, Debug)]
struct Key {
    number: u64,
    display: i64,
    /// Decoding began here anew.
    anew: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reference {
    number: u64,
    display: i64,
    in_chain: bool,
    /// Shown before the key that came before it.
    leading: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct OrderCount {
    high: i32,
    low: i32,
    wraps: i32,
    frame_num: u32,
}

impl Ladder {
    /// The place of the next picture in decoding order; `None` for one that is shown before the picture at which
    /// decoding began anew, and refers to what was before.
    pub(super) fn place(&mut self, picture: &CodedPicture) -> Option<Place> {
        let CodedPicture { slice, ref_idc, sequence, .. } = *picture;
        let identity = slice.identity;
        let key = picture.is_key();
        let anew = std::mem::take(&mut self.anew);
        if identity.idr || anew {
            self.references.clear();
            self.order = OrderCount::default();
            // Fields and reordered pictures use two counts a frame; the next group begins after all of them.
            self.base = self.highest + if self.decoded > 0 { 2 } else { 0 };
        }
        let poc = self.order.count(&identity, &sequence);
        if anew {
            self.base -= i64::from(poc);
        }
        let display = self.base + i64::from(poc);
        let number = self.decoded;
        if key {
            self.key = (!identity.idr).then_some(Key { number, display, anew });
        }
        let leads = self.key.filter(|key| display < key.display);
        if leads.is_some_and(|key| key.anew) {
            return None;
        }
        self.decoded += 1;
        if key && number > 0 {
            self.group = self.group.wrapping_add(1);
        }
        self.highest = self.highest.max(display);

        let droppable_reference =
            slice.slice_type == SliceType::B && ref_idc > 0 && ref_idc < self.chain_rank;
        let (layer, refs) = match slice.slice_type {
            _ if key => (0, [0, 0]),
            _ if leads.is_some() => (if ref_idc == 0 { 3 } else { 2 }, self.leading(number, leads)),
            _ if ref_idc == 0 => (3, self.around(number, display, slice.slice_type, false)),
            SliceType::B if droppable_reference => (2, self.around(number, display, SliceType::B, true)),
            SliceType::I | SliceType::P | SliceType::B => (1, [self.distance_to_chain(number), 0]),
        };
        if ref_idc > 0 {
            if !droppable_reference {
                self.chain_rank =
                    self.chain_rank.max(if slice.slice_type == SliceType::P { ref_idc } else { 0 });
            }
            if self.references.len() == REFERENCES {
                self.references.pop_front();
            }
            let leading = leads.is_some();
            let in_chain = !droppable_reference && !leading;
            self.references.push_back(Reference { number, display, in_chain, leading });
        }
        Some(Place { poc, display, layer, group: self.group, refs })
    }

    /// Something was lost: the next picture is a key, and nothing after it can refer to anything before.
    pub(super) fn begin_anew(&mut self) {
        self.anew = true;
    }

    /// Distance to the newest picture of the chain; 0 if there is none.
    fn distance_to_chain(&self, number: u64) -> u32 {
        let newest = self.references.iter().rev().find(|reference| reference.in_chain);
        newest.map_or(0, |reference| distance(number, reference))
    }

    /// Distances to what a picture shown before its key depends on: the key and the chain before it, or the newest
    /// reference that does.
    fn leading(&self, number: u64, key: Option<Key>) -> [u32; 2] {
        let Some(key) = key else { return [0, 0] };
        let newest = |wanted: &dyn Fn(&&Reference) -> bool| self.references.iter().rev().find(wanted);
        if let Some(leading) = newest(&|reference| reference.leading && reference.number > key.number) {
            return [distance(number, leading), 0];
        }
        let before = newest(&|reference| reference.in_chain && reference.number < key.number);
        let to_key = u32::try_from(number - key.number).unwrap_or(0);
        [to_key, before.map_or(0, |before| distance(number, before))]
    }

    /// Distances to the nearest references before and after in display order.
    fn around(&self, number: u64, display: i64, slice_type: SliceType, chain_only: bool) -> [u32; 2] {
        if slice_type != SliceType::B {
            return [self.distance_to_chain(number), 0];
        }
        let usable = || self.references.iter().filter(|one| !one.leading && (one.in_chain || !chain_only));
        let before = usable().filter(|reference| reference.display < display).max_by_key(|r| r.display);
        let after = usable().filter(|reference| reference.display > display).min_by_key(|r| r.display);
        let distance_to = |side: Option<&Reference>| side.map(|reference| distance(number, reference));
        match (distance_to(before), distance_to(after)) {
            (Some(before), Some(after)) => [before, after],
            (Some(one), None) | (None, Some(one)) => {
                let chain = self.distance_to_chain(number);
                [one, if chain == one { 0 } else { chain }]
            }
            (None, None) => [0, 0],
        }
    }
}

fn distance(number: u64, reference: &Reference) -> u32 {
    u32::try_from(number - reference.number).unwrap_or(0)
}

impl OrderCount {
    /// The picture order count (8.2.1). Counts coded in cycles (type 1) are taken in decoding order.
    fn count(&mut self, identity: &Identity, sequence: &Sequence) -> i32 {
        match sequence.order {
            Order::Low { bits } => {
                let (low, period) = (identity.order[0], 1 << bits);
                let mut high = self.high;
                if low < self.low && self.low - low >= period / 2 {
                    high = high.wrapping_add(period);
                } else if low > self.low && low - self.low > period / 2 {
                    high = high.wrapping_sub(period);
                }
                if identity.is_reference {
                    (self.high, self.low) = (high, low);
                }
                high.wrapping_add(low)
            }
            Order::Cycles { .. } | Order::Decoding => {
                if identity.frame_num < self.frame_num {
                    self.wraps = self.wraps.wrapping_add(1 << sequence.frame_num_bits);
                }
                self.frame_num = identity.frame_num;
                let number = self.wraps.wrapping_add(identity.frame_num as i32);
                number.wrapping_mul(2).wrapping_sub(i32::from(!identity.is_reference))
            }
        }
    }
}

/// References remembered: a decoder holds at most 16 frames or 32 fields.
const REFERENCES: usize = 32;
