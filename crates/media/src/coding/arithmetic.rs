//! The arithmetic encoder that H.264 and H.265 share (ITU-T H.264, 9.3.4; H.265, 9.3.5).

use super::bits::BitWriter;

/// Encodes the values of one slice.
pub(crate) struct Encoder {
    low: u32,
    range: u32,
    /// Bits that are known once the next one is.
    carries: u32,
    is_first: bool,
    bits: BitWriter,
}

/// How likely a value is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    state: u8,
    likelier: bool,
}

impl Context {
    /// A context with this slope and offset at this quantiser.
    pub(crate) fn new(slope: i32, offset: i32, quantiser: i32) -> Self {
        let state = ((slope * quantiser.clamp(0, 51)) >> 4) + offset;
        let state = state.clamp(1, 126) as u8;
        if state < 64 {
            Self { state: 63 - state, likelier: false }
        } else {
            Self { state: state - 64, likelier: true }
        }
    }
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { low: 0, range: 510, carries: 0, is_first: true, bits: BitWriter::default() }
    }

    /// A value in its context.
    pub(crate) fn encode(&mut self, context: &mut Context, value: bool) {
        let state = usize::from(context.state);
        let less_likely = u32::from(RANGES[state][self.range as usize / 64 % 4]);
        self.range -= less_likely;
        if value == context.likelier {
            context.state = (context.state + 1).min(MOST_CERTAIN);
        } else {
            self.low += self.range;
            self.range = less_likely;
            context.likelier ^= state == 0;
            context.state = AFTER_LESS_LIKELY[state];
        }
        self.scale();
    }

    /// The slice goes on.
    pub(crate) fn go_on(&mut self) {
        self.range -= 2;
        self.scale();
    }

    /// The slice's end: its bytes, with the stop bit and filled up with zeros.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.low += self.range - 2;
        self.range = 2;
        self.scale();
        self.put(self.low >> 9 & 1 == 1);
        self.bits.bit(self.low >> 8 & 1 == 1);
        self.bits.bit(true);
        self.bits.into_bytes()
    }

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

    fn put(&mut self, bit: bool) {
        if !std::mem::take(&mut self.is_first) {
            self.bits.bit(bit);
        }
        for _ in 0..std::mem::take(&mut self.carries) {
            self.bits.bit(!bit);
        }
    }
}

/// State 63 is for the end alone.
const MOST_CERTAIN: u8 = 62;

/// The range that is left to the less likely value, by state and by the range's quarter.
#[rustfmt::skip]
const RANGES: [[u8; 4]; 64] = [
    [128, 176, 208, 240], [128, 167, 197, 227], [128, 158, 187, 216], [123, 150, 178, 205],
    [116, 142, 169, 195], [111, 135, 160, 185], [105, 128, 152, 175], [100, 122, 144, 166],
    [95, 116, 137, 158], [90, 110, 130, 150], [85, 104, 123, 142], [81, 99, 117, 135],
    [77, 94, 111, 128], [73, 89, 105, 122], [69, 85, 100, 116], [66, 80, 95, 110],
    [62, 76, 90, 104], [59, 72, 86, 99], [56, 69, 81, 94], [53, 65, 77, 89],
    [51, 62, 73, 85], [48, 59, 69, 80], [46, 56, 66, 76], [43, 53, 63, 72],
    [41, 50, 59, 69], [39, 48, 56, 65], [37, 45, 54, 62], [35, 43, 51, 59],
    [33, 41, 48, 56], [32, 39, 46, 53], [30, 37, 43, 50], [29, 35, 41, 48],
    [27, 33, 39, 45], [26, 31, 37, 43], [24, 30, 35, 41], [23, 28, 33, 39],
    [22, 27, 32, 37], [21, 26, 30, 35], [20, 24, 29, 33], [19, 23, 27, 31],
    [18, 22, 26, 30], [17, 21, 25, 28], [16, 20, 23, 27], [15, 19, 22, 25],
    [14, 18, 21, 24], [14, 17, 20, 23], [13, 16, 19, 22], [12, 15, 18, 21],
    [12, 14, 17, 20], [11, 14, 16, 19], [11, 13, 15, 18], [10, 12, 15, 17],
    [10, 12, 14, 16], [9, 11, 13, 15], [9, 11, 12, 14], [8, 10, 12, 14],
    [8, 9, 11, 13], [7, 9, 11, 12], [7, 9, 10, 12], [7, 8, 10, 11],
    [6, 8, 9, 11], [6, 7, 9, 10], [6, 7, 8, 9], [2, 2, 2, 2],
];

/// The state after the less likely value.
const AFTER_LESS_LIKELY: [u8; 64] = [
    0, 0, 1, 2, 2, 4, 4, 5, 6, 7, 8, 9, 9, 11, 11, 12, 13, 13, 15, 15, 16, 16, 18, 18, 19, 19, 21, 21, 22,
    22, 23, 24, 24, 25, 26, 26, 27, 27, 28, 29, 29, 30, 30, 30, 31, 32, 32, 33, 33, 33, 34, 34, 35, 35, 35,
    36, 36, 36, 37, 37, 37, 38, 38, 63,
];
