use std::time::Duration;

/// Numbers that follow from a seed alone: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// A generator of its own for each `purpose` of one seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self { state: seed };
        rng.state = rng.next() ^ purpose.wrapping_mul(GAMMA);
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        let value = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// From 0 up to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    /// From zero to `most`.
    pub(crate) fn time(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.share())
    }

    /// From 0 to `end` - 1; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// 32 bytes for a seed or a key.
    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
