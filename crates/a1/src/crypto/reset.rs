use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq as _;

use super::identity::StaticKey;

/// Makes the tokens by which an endpoint without knowledge of a connection ends it at its peer. They follow
/// from the static key: an endpoint that restarts with the same one makes the same tokens, and keeps nothing
/// for it.
pub(crate) struct ResetKey(hmac::Key);

impl ResetKey {
    pub(crate) fn new(key: &StaticKey) -> Self {
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.private()), LABEL);
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()))
    }

    /// The token of this endpoint's connection `id` with a peer at `peer`. It is good for that address only: who asks for
    /// the tokens of all ids from another one learns nothing.
    //= spec/a1.md A1-RST-2
    pub(crate) fn token(&self, id: u32, peer: IpAddr) -> ResetToken {
        let address = match peer {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut claim = [0; 20];
        let (id_bytes, address_bytes) = claim.split_at_mut(4);
        id_bytes.copy_from_slice(&id.to_be_bytes());
        address_bytes.copy_from_slice(&address.octets());
        let mut token = [0; ResetToken::LENGTH];
        let tag = hmac::sign(&self.0, &claim);
        token.iter_mut().zip(tag.as_ref()).for_each(|(place, byte)| *place = *byte);
        ResetToken(token)
    }
}

/// Proof that a reset comes from the peer. The handshake carries it under encryption, and it is compared in
/// constant time.
#[derive(Clone, Copy)]
pub(crate) struct ResetToken([u8; Self::LENGTH]);

impl ResetToken {
    pub(crate) const LENGTH: usize = 16;

    pub(crate) fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl PartialEq for ResetToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for ResetToken {}

impl fmt::Debug for ResetToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResetToken").finish_non_exhaustive()
    }
}

const LABEL: &[u8] = b"freshwire a1 reset";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_follow_from_key_id_and_address_alone() {
        let key = StaticKey::generate([1; 32]);
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        let token = ResetKey::new(&key).token(7, peer);
        let again = StaticKey::from_bytes(key.to_bytes());
        assert_eq!(token, ResetKey::new(&again).token(7, peer), "after a restart");
        assert_eq!(
            token,
            ResetKey::new(&key).token(7, "::ffff:192.0.2.1".parse().unwrap()),
            "the same address"
        );
        assert_ne!(token, ResetKey::new(&key).token(8, peer));
        assert_ne!(token, ResetKey::new(&key).token(7, "192.0.2.2".parse().unwrap()));
        assert_ne!(token, ResetKey::new(&StaticKey::generate([2; 32])).token(7, peer));
        for bit in 0..8 * ResetToken::LENGTH {
            let mut flipped = *token.as_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(token, ResetToken::from_bytes(flipped), "bit {bit}");
        }
        assert_eq!(format!("{token:?}"), "ResetToken { .. }");
    }
}
