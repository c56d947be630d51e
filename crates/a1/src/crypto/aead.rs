//! A key of packets: AEGIS-128X2 with 128-bit tags (RFC 10032).

use aegis::aegis128x2::Aegis128X2;
use zeroize::Zeroizing;

/// The key of one direction until the next update. A packet's number is its nonce, so no number may be sealed twice.
pub(super) struct Key(Zeroizing<[u8; 32]>);

impl Key {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*secret))
    }

    /// Encrypts in place; the tag.
    pub(super) fn seal(&self, number: u64, bytes: &mut [u8]) -> [u8; TAG_LENGTH] {
        self.cipher(number).encrypt_in_place(bytes, &[])
    }

    /// Decrypts in place what its tag follows; `None` if it is not authentic.
    pub(super) fn open<'a>(&self, number: u64, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let (bytes, tag) = sealed.split_last_chunk_mut()?;
        self.cipher(number).decrypt_in_place(bytes, tag, &[]).ok()?;
        Some(bytes)
    }

    /// The key that follows: Noise's REKEY with this cipher.
    //= spec/a1.md A1-SEC-3
    pub(super) fn next(&self) -> Self {
        let mut secret = Zeroizing::new([0; 32]);
        let _tag = self.seal(u64::MAX, secret.as_mut_slice());
        Self(secret)
    }

    /// Half of the secret is the key, the other one makes the nonces of each connection others, as the IV of TLS 1.3 does.
    //= spec/a1.md A1-SEC-2
    fn cipher(&self, number: u64) -> Aegis128X2<TAG_LENGTH> {
        let (key, mask) = self.0.split_at(16);
        let key = key.try_into().expect("half of the secret");
        let mask = u128::from_be_bytes(mask.try_into().expect("half of the secret"));
        Aegis128X2::new(key, &(mask ^ u128::from(number)).to_be_bytes())
    }
}

pub(super) const TAG_LENGTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        assert_eq!(hex.len(), N * 2);
        std::array::from_fn(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap())
    }

    fn counting() -> Key {
        Key::new(&std::array::from_fn(|at| at as u8))
    }

    #[test]
    fn the_cipher_is_that_of_the_rfc() {
        // RFC 10032, AEGIS-128X2, test vector 1.
        assert_eq!(counting().seal(0, &mut []), bytes("63117dc57756e402819a82e13eca8379"));
    }

    #[test]
    fn packets_and_the_key_after_are_those_of_the_specification() {
        let mut frames = [1];
        let tag = counting().seal(0x0102_0304_0506_0708, &mut frames);
        assert_eq!((frames, tag), (bytes("9f"), bytes("e51858caf9cd227c5c5441a7badf16e7")));
        let next = counting().next();
        assert_eq!(*next.0, bytes("175be51cefc3b84970a27f0f2545e06ce08f385615d91430920829cc62992819"));
    }
}
