//! A picture of a few bytes that shows the one before again: all of its macroblocks are skipped (ITU-T H.264, 7.3.4).
//!
//! A decoder holds pictures back, to put them into order and to work on several at once, until others come. Where the others
//! are dropped, what was sent last would wait for the next key picture; a repetition takes their place.

use std::sync::Arc;

use super::headers::Coded;
use super::syntax::{Order, Picture, Sequence};
use crate::unit::UnitHead;
use crate::video::bits::BitWriter;

/// Repetitions after each picture that was sent. Decoders work on up to 16 pictures at once, and put a few into order.
const MOST_REPETITIONS: usize = 20;

/// The fewest repetitions that go together: a segment of its own for each would cost a slow path more than their bytes.
const TOGETHER: usize = 5;

/// How a picture is numbered: enough to put a repetition of the one before it in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    blank: Arc<Blank>,
    frame_num: u32,
    order: [i32; 2],
    /// `nal_ref_idc`.
    rank: u8,
    /// Those that come later depend on it, up to the next key.
    in_chain: bool,
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

/// What a picture parameter set says about slice headers behind the picture order count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceRules {
    pub(super) is_arithmetic: bool,
    /// The default is one reference picture.
    pub(super) one_reference: bool,
    pub(super) weighted: bool,
    pub(super) initial_qp_minus26: i32,
    pub(super) has_deblocking: bool,
    pub(super) has_redundancy: bool,
}

/// The most macroblocks: those of 8192x4320.
const MOST_MACROBLOCKS: u32 = 139_264;

impl Blank {
    /// `None` for what is not done: fields, pictures in slice groups or in separate planes, counts in cycles.
    pub(super) fn new(sequence: &Sequence, picture: &Picture) -> Option<Self> {
        let slice = picture.slice?;
        let is_plain = sequence.frames_only
            && !sequence.separate_planes
            && !matches!(sequence.order, Order::Cycles { .. })
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
    fn nal(&self, place: &Repeat, frame_num: u32) -> Vec<u8> {
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
            Some(data) => bits.into_nal_with(header, data),
            None => {
                bits.ue(sequence.macroblocks);
                bits.into_nal(header)
            }
        }
    }
}

impl Repeat {
    pub(super) fn new(blank: Arc<Blank>, coded: &Coded, layer: u8) -> Self {
        let identity = coded.slice.identity;
        Self {
            blank,
            frame_num: identity.frame_num,
            order: identity.order,
            rank: coded.ref_idc,
            in_chain: layer <= CHAIN_LAYER,
        }
    }
}

/// Follows what one receiver gets, and makes the repetitions for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeater {
    /// `frame_num` of the newest reference that the receiver has.
    frame_num: u32,
    /// How many repetitions may follow.
    left: usize,
    /// Something was left out that later pictures depend on.
    is_broken: bool,
    /// Pictures whose places are to be taken.
    waiting: Vec<Arc<UnitHead>>,
}

impl Repeater {
    /// The picture is sent.
    pub(crate) fn sent(&mut self, head: &UnitHead) {
        self.waiting.clear();
        let Some(place) = &head.repeat else {
            self.left = 0;
            return;
        };
        if head.key {
            self.is_broken = false;
        }
        if place.rank > 0 {
            self.frame_num = place.frame_num;
        }
        self.left = MOST_REPETITIONS;
    }

    /// The picture is not sent, and nothing that comes before it will be.
    pub(crate) fn missed(&mut self, head: Arc<UnitHead>) {
        let Some(place) = &head.repeat else { return };
        if head.key {
            self.left = 0;
        }
        // As long as the chain goes on, pictures follow that push out what a decoder holds.
        self.is_broken |= place.in_chain;
        if self.is_broken && self.left > self.waiting.len() {
            self.waiting.push(head);
        }
    }

    /// The repetitions that are to go now: the head of the picture whose place each takes, and its NAL unit.
    pub(crate) fn repetitions(&mut self) -> Vec<(Arc<UnitHead>, Vec<u8>)> {
        if self.waiting.len() < TOGETHER.min(self.left) {
            return Vec::new();
        }
        self.left -= self.waiting.len();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let repetition = |head: Arc<UnitHead>| {
            let place = head.repeat.as_ref()?;
            let nal = place.blank.nal(place, self.number(place));
            Some((head, nal))
        };
        waiting.filter_map(repetition).collect()
    }

    /// The number of the next repetition.
    fn number(&mut self, place: &Repeat) -> u32 {
        let frame_num = (self.frame_num + 1) % (1 << place.blank.sequence.frame_num_bits);
        if place.rank > 0 {
            self.frame_num = frame_num;
        }
        frame_num
    }
}

/// A coded slice of a picture that is no key.
const SLICE: u8 = 1;
/// `slice_type`: P, as all others of the picture.
const ALL_SLICES_P: u32 = 5;
/// `disable_deblocking_filter_idc`.
const NO_DEBLOCKING: u32 = 1;
/// Layers up to this one are what later pictures depend on.
const CHAIN_LAYER: u8 = 1;
/// The quantiser for which a skipped macroblock is the most probable: nothing is quantised here.
const SKIP_QP: i32 = 51;
/// The range that is left to the less likely value (table 9-44), by state and by the range's quarter: from state 42 on, which
/// the flag of a skipped macroblock begins with at that quantiser (context 11, `cabac_init_idc` 0, "skipped" is likelier).
const LESS_LIKELY: [[u32; 4]; 21] = [
    [16, 20, 23, 27],
    [15, 19, 22, 25],
    [14, 18, 21, 24],
    [14, 17, 20, 23],
    [13, 16, 19, 22],
    [12, 15, 18, 21],
    [12, 14, 17, 20],
    [11, 14, 16, 19],
    [11, 13, 15, 18],
    [10, 12, 15, 17],
    [10, 12, 14, 16],
    [9, 11, 13, 15],
    [9, 11, 12, 14],
    [8, 10, 12, 14],
    [8, 9, 11, 13],
    [7, 9, 11, 12],
    [7, 9, 10, 12],
    [7, 8, 10, 11],
    [6, 8, 9, 11],
    [6, 7, 9, 10],
    [6, 7, 8, 9],
];

/// The data of a slice in which all macroblocks are skipped, coded arithmetically (9.3.4): with the stop bit.
fn skip_all(macroblocks: u32) -> Vec<u8> {
    let mut coder = Coder { low: 0, range: 510, carries: 0, is_first: true, bits: BitWriter::default() };
    for macroblock in 1..=macroblocks {
        let state = (macroblock as usize - 1).min(LESS_LIKELY.len() - 1);
        coder.range -= LESS_LIKELY[state][coder.range as usize / 64 % 4];
        coder.scale();
        // Whether the slice ends.
        coder.range -= 2;
        if macroblock < macroblocks {
            coder.scale();
        }
    }
    coder.end()
}

/// The arithmetic encoder of 9.3.4, as far as it codes the likelier of two values and an end.
struct Coder {
    low: u32,
    range: u32,
    /// Bits that are known once the next one is.
    carries: u32,
    is_first: bool,
    bits: BitWriter,
}

impl Coder {
    fn scale(&mut self) {
        while self.range < 256 {
            match self.low {
                ..256 => self.put(false),
                512.. => {
                    self.low -= 512;
                    self.put(true);
                }
                _ => {
                    self.low -= 256;
                    self.carries += 1;
                }
            }
            self.range *= 2;
            self.low *= 2;
        }
    }

    /// The slice's end: the bytes, the last one filled up with zeros.
    fn end(mut self) -> Vec<u8> {
        self.low += self.range;
        self.range = 2;
        self.scale();
        self.put(self.low >> 9 & 1 == 1);
        self.bits.bit(self.low >> 8 & 1 == 1);
        // The stop bit.
        self.bits.bit(true);
        self.bits.into_bytes()
    }

    fn put(&mut self, bit: bool) {
        if !std::mem::take(&mut self.is_first) {
            self.bits.bit(bit);
        }
        for _ in 0..std::mem::take(&mut self.carries) {
            self.bits.bit(!bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{decode, encode};
    use crate::video::{Coded, Format, Parser};

    fn units(stream: &[u8]) -> Vec<Coded> {
        let mut parser = Parser::new(Format::H264);
        parser.push(stream);
        parser.finish();
        parser.map(Result::unwrap).collect()
    }

    /// What a receiver decodes that gets the first `sent` pictures of each group and repetitions of those that follow: sums of the
    /// frames of the group, and what the decoder says.
    fn shown(units: &[Coded], sent: usize) -> (Vec<Vec<String>>, String, usize) {
        let (mut stream, mut repeater, mut frames, mut in_group) =
            (Vec::new(), Repeater::default(), Vec::new(), 0);
        let mut repetitions = 0;
        for unit in units {
            let head = head(unit);
            if unit.key {
                in_group = 0;
                frames.push(0);
            }
            in_group += 1;
            if in_group <= sent {
                *frames.last_mut().unwrap() += 1;
                repeater.sent(&head);
                stream.extend_from_slice(&unit.bytes);
            } else {
                repeater.missed(Arc::new(head));
                for (_, nal) in repeater.repetitions() {
                    assert!(nal.len() < 40, "{}", nal.len());
                    stream.extend_from_slice(&[0, 0, 0, 1]);
                    stream.extend_from_slice(&nal);
                    repetitions += 1;
                    *frames.last_mut().unwrap() += 1;
                }
            }
        }
        let (mut sums, complaints) = decode(&stream, "h264");
        let groups = frames.into_iter().map(|count: usize| sums.drain(..count.min(sums.len())).collect());
        (groups.collect(), complaints, repetitions)
    }

    fn head(unit: &Coded) -> UnitHead {
        UnitHead {
            kind: crate::unit::Kind::Video,
            pts: Default::default(),
            dts: Default::default(),
            duration_ns: 1,
            key: unit.key,
            len: unit.bytes.len() as u32,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: unit.repeat.clone(),
            tracks: Arc::default(),
        }
    }

    #[test]
    fn decoders_show_the_last_picture_again_and_complain_of_nothing() {
        let kinds: [&[&str]; 7] = [
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=3"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=3:b-pyramid=strict:cabac=0"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:bframes=0"],
            &["-tune", "zerolatency", "-x264-params", "keyint=32:scenecut=0:cabac=0:slices=3"],
            &["-profile:v", "baseline", "-x264-params", "keyint=16:min-keyint=16:scenecut=0"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:ref=4:weightp=2:no-deblock=1:qp=40"],
            &["-x264-params", "keyint=16:min-keyint=16:scenecut=0:b-pyramid=none:bframes=2:aq-mode=0"],
        ];
        for options in kinds {
            let Some(stream) = encode(&[&["-c:v", "libx264"], options].concat(), "h264") else { return };
            let units = units(&stream);
            let keys = units.iter().filter(|unit| unit.key).count();
            for sent in 1..8 {
                let (groups, complaints, repetitions) = shown(&units, sent);
                assert_eq!(complaints, "", "{options:?}, {sent} sent");
                assert!(repetitions >= keys * TOGETHER, "{options:?}: {repetitions} for {keys} groups");
                for sums in groups {
                    // Pictures that were sent may be shown one after another, and then only the last one.
                    let mut different: Vec<&String> = sums.iter().collect();
                    different.dedup();
                    assert!(different.len() <= sent + 2, "{options:?}, {sent} sent: {sums:?}");
                    let last = sums.last().unwrap();
                    let still = sums.iter().rev().take_while(|sum| *sum == last).count();
                    assert!(still >= 5, "{options:?}, {sent} sent: {sums:?}");
                }
            }
        }
    }
}
