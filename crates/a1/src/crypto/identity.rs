use std::fmt;
use std::str::FromStr;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use thiserror::Error;
use zeroize::Zeroizing;

use super::random::Random;

/// The private X25519 key by which an endpoint is known. It is wiped from memory when it is dropped, and its debug form
/// shows the public key only.
///
/// Its text form, which [`FromStr`] reads, is 64 hexadecimal digits.
#[derive(Clone)]
pub struct StaticKey {
    private: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

impl StaticKey {
    /// The key with these 32 private bytes; any bytes are a key.
    pub fn from_bytes(private: [u8; 32]) -> Self {
        let mut dh =
            DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("the crate is built with snow's X25519");
        dh.set(&private);
        let mut public = [0; 32];
        public.copy_from_slice(dh.pubkey());
        Self { private: Zeroizing::new(private), public: PublicKey(public) }
    }

    /// A new key, made from 32 bytes that nobody else can guess. The same seed gives the same key.
    pub fn generate(seed: [u8; 32]) -> Self {
        Self::from_bytes(Random::from_seed(seed).bytes())
    }

    /// The private bytes, to be stored where only the endpoint's owner can read them.
    pub fn to_bytes(&self) -> [u8; 32] {
        *self.private
    }

    /// The key that peers know this one by.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    pub(super) fn private(&self) -> &[u8; 32] {
        &self.private
    }
}

impl FromStr for StaticKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        parse_hex(text).map(Self::from_bytes)
    }
}

impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The X25519 public key of an endpoint. Its text form is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key with these 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key's 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A secret that both ends know beforehand, mixed into the handshake besides the keys: who does not have it can neither
/// connect nor be connected to. It is wiped from memory when it is dropped, and its debug form shows nothing.
///
/// Its text form, which [`FromStr`] reads, is 64 hexadecimal digits.
#[derive(Clone)]
pub struct Psk(Zeroizing<[u8; 32]>);

impl Psk {
    /// The secret with these 32 bytes. They have to be random: a password is not enough.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Psk {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        parse_hex(text).map(Self::from_bytes)
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").finish_non_exhaustive()
    }
}

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key is 64 hexadecimal digits")]
pub struct ParseKeyError;

fn parse_hex(text: &str) -> Result<[u8; 32], ParseKeyError> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return Err(ParseKeyError);
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = char::from(*digit).to_digit(16).ok_or(ParseKeyError)?;
            *byte = *byte << 4 | u8::try_from(value).map_err(|_| ParseKeyError)?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_keys_are_those_of_rfc_7748_section_6_1() {
        for (private, public) in [
            (
                "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
                "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            ),
            (
                "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
                "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            ),
        ] {
            let key: StaticKey = private.parse().unwrap();
            assert_eq!(key.public_key().to_string(), public);
        }
    }

    #[test]
    fn texts_of_keys_are_read_back_and_wrong_ones_refused() {
        let public = StaticKey::generate([7; 32]).public_key();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!(public.to_string().to_uppercase().parse(), Ok(public));
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(63), &"0".repeat(65), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(ParseKeyError), "{wrong}");
            assert!(wrong.parse::<StaticKey>().is_err() && wrong.parse::<Psk>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn debug_forms_hide_secrets() {
        let key = StaticKey::from_bytes([0xab; 32]);
        assert_eq!(format!("{key:?}"), format!("StaticKey {{ public: {:?}, .. }}", key.public_key()));
        assert_eq!(format!("{:?}", Psk::from_bytes([0xab; 32])), "Psk { .. }");
    }

    #[test]
    fn seeds_give_different_keys() {
        assert_eq!(StaticKey::generate([1; 32]).public_key(), StaticKey::generate([1; 32]).public_key());
        assert_ne!(StaticKey::generate([1; 32]).public_key(), StaticKey::generate([2; 32]).public_key());
    }
}
