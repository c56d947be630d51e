use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Unguessable bytes from a seed: the only source of randomness of the crate.
pub(crate) struct Random(ChaCha20Rng);

impl Random {
    pub(crate) fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}
