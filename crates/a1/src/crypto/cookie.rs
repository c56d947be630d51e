use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::hmac;
use freshwire_record::Timestamp;

use super::random::Random;

/// Length of a cookie in bytes.
const COOKIE_LENGTH: usize = 32;

/// Time for which a secret makes cookies; it checks them for as long again, like the time for a handshake
/// (A1-HS-7).
const ROTATION: Duration = Duration::from_secs(10);

/// Makes and checks cookies, by which an initiator shows that it receives at the address it sends from. The responder
/// keeps nothing per initiator: a cookie is an authentication code of the address, the port and the initiator's
/// connection id under a secret that changes every 10 s. It is valid for 10 s at least and for less than 20 s.
pub(crate) struct CookieJar {
    random: Random,
    /// Number of the rotation in which `current` makes cookies.
    rotation: u64,
    current: hmac::Key,
    previous: Option<hmac::Key>,
}

impl CookieJar {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let mut random = Random::from_seed(seed);
        let current = secret(&mut random);
        Self { random, rotation: 0, current, previous: None }
    }

    /// The cookie of an initiator at `from` which has chosen the connection id `id`.
    pub(crate) fn issue(&mut self, now: Timestamp, from: SocketAddr, id: u32) -> [u8; COOKIE_LENGTH] {
        self.rotate(now);
        let mut cookie = [0; COOKIE_LENGTH];
        cookie.copy_from_slice(hmac::sign(&self.current, &claim(from, id)).as_ref());
        cookie
    }

    /// Whether the cookie was issued to this initiator not long ago. The comparison takes the same time whatever differs.
    //= spec/a1.md A1-HS-2
    pub(crate) fn is_valid(&mut self, now: Timestamp, from: SocketAddr, id: u32, cookie: &[u8]) -> bool {
        self.rotate(now);
        let claim = claim(from, id);
        std::iter::once(&self.current)
            .chain(&self.previous)
            .any(|secret| hmac::verify(secret, &claim, cookie).is_ok())
    }

    fn rotate(&mut self, now: Timestamp) {
        let rotation = now.as_nanos() / ROTATION.as_nanos() as u64;
        if rotation > self.rotation {
            let old = std::mem::replace(&mut self.current, secret(&mut self.random));
            self.previous = (rotation == self.rotation + 1).then_some(old);
            self.rotation = rotation;
        }
    }
}

fn secret(random: &mut Random) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &random.bytes::<32>())
}

/// What a cookie vouches for: `[address 16 B, IPv4 mapped][port u16][connection id u32]`.
fn claim(from: SocketAddr, id: u32) -> [u8; 22] {
    let address = match from.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut claim = [0; 22];
    let (address_bytes, rest) = claim.split_at_mut(16);
    let (port_bytes, id_bytes) = rest.split_at_mut(2);
    address_bytes.copy_from_slice(&address.octets());
    port_bytes.copy_from_slice(&from.port().to_be_bytes());
    id_bytes.copy_from_slice(&id.to_be_bytes());
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn cookies_are_bound_to_address_port_and_id() {
        let mut jar = CookieJar::new([1; 32]);
        let from: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let cookie = jar.issue(at(1), from, 7);
        assert!(jar.is_valid(at(1), from, 7, &cookie));
        assert!(
            jar.is_valid(at(1), "[::ffff:192.0.2.1]:4000".parse().unwrap(), 7, &cookie),
            "the same address"
        );
        assert!(!jar.is_valid(at(1), "192.0.2.2:4000".parse().unwrap(), 7, &cookie));
        assert!(!jar.is_valid(at(1), "192.0.2.1:4001".parse().unwrap(), 7, &cookie));
        assert!(!jar.is_valid(at(1), from, 8, &cookie));
        assert!(!CookieJar::new([2; 32]).is_valid(at(1), from, 7, &cookie), "another endpoint's");
        for length in 0..COOKIE_LENGTH {
            assert!(!jar.is_valid(at(1), from, 7, &cookie[..length]), "cut to {length}");
        }
        for bit in 0..8 * COOKIE_LENGTH {
            let mut flipped = cookie;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!jar.is_valid(at(1), from, 7, &flipped), "bit {bit}");
        }
    }

    #[test]
    fn cookies_last_ten_to_twenty_seconds() {
        let from: SocketAddr = "[2001:db8::1]:4000".parse().unwrap();
        for issued in [0, 5, 9, 12] {
            let mut jar = CookieJar::new([1; 32]);
            let cookie = jar.issue(at(issued), from, 7);
            assert!(jar.is_valid(at(issued + 10), from, 7, &cookie));
            assert!(!jar.is_valid(at(issued + 20), from, 7, &cookie));
        }
        let mut jar = CookieJar::new([1; 32]);
        let cookie = jar.issue(at(0), from, 7);
        assert!(!jar.is_valid(at(25), from, 7, &cookie), "a pause lets no secret live longer");
    }
}
