//! AES-256-GCM by the library that is faster on this processor.
//!
//! Both make the same bytes. `aws-lc` has code for AVX-512, which takes half as long as that of `ring` for a byte in large packets;
//! without AVX-512 `ring` has code for VAES on AVX2, which takes four sevenths as long as that of `aws-lc`, and costs less for each
//! packet.

/// A key.
pub(super) enum Aes256Gcm {
    AwsLc(Box<aws_lc_rs::aead::LessSafeKey>),
    Ring(Box<ring::aead::LessSafeKey>),
}

impl Aes256Gcm {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        if prefers_ring() { Self::ring(secret) } else { Self::aws_lc(secret) }
    }

    fn aws_lc(secret: &[u8; 32]) -> Self {
        use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
        let key = UnboundKey::new(&AES_256_GCM, secret).expect("32 bytes are a key");
        Self::AwsLc(Box::new(LessSafeKey::new(key)))
    }

    fn ring(secret: &[u8; 32]) -> Self {
        use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
        let key = UnboundKey::new(&AES_256_GCM, secret).expect("32 bytes are a key");
        Self::Ring(Box::new(LessSafeKey::new(key)))
    }

    /// Encrypts in place; the tag.
    pub(super) fn seal(&self, nonce: [u8; NONCE_LENGTH], bytes: &mut [u8]) -> [u8; TAG_LENGTH] {
        const TOO_LONG: &str = "a packet is shorter than AES-GCM's limit of 64 GiB";
        let mut out = [0; TAG_LENGTH];
        match self {
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes).expect(TOO_LONG);
                out.copy_from_slice(tag.as_ref());
            }
            Self::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes).expect(TOO_LONG);
                out.copy_from_slice(tag.as_ref());
            }
        }
        out
    }

    /// Decrypts in place what its tag follows; `None` if it is not authentic.
    pub(super) fn open<'a>(&self, nonce: [u8; NONCE_LENGTH], sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        match self {
            Self::AwsLc(key) => {
                use aws_lc_rs::aead::{Aad, Nonce};
                key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), sealed).ok()
            }
            Self::Ring(key) => {
                use ring::aead::{Aad, Nonce};
                key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), sealed).ok()
            }
        }
        .map(|plain| &*plain)
    }
}

fn prefers_ring() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

pub(super) const NONCE_LENGTH: usize = 12;
pub(super) const TAG_LENGTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_make_the_same_bytes_and_open_them() {
        for len in [0, 1, 15, 16, 64, 1400, 65_000] {
            let plain: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let keys = [Aes256Gcm::aws_lc(&[7; 32]), Aes256Gcm::ring(&[7; 32])];
            let [by_aws_lc, by_ring] = keys.each_ref().map(|key| {
                let mut sealed = plain.clone();
                let tag = key.seal([3; NONCE_LENGTH], &mut sealed);
                sealed.extend(tag);
                sealed
            });
            assert_eq!(by_aws_lc, by_ring, "{len}");
            for key in &keys {
                assert_eq!(key.open([3; NONCE_LENGTH], &mut by_ring.clone()), Some(&plain[..]));
                assert_eq!(key.open([4; NONCE_LENGTH], &mut by_ring.clone()), None);
            }
        }
    }
}
