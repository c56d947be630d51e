use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::random::random;

/// An older nonce has to be asked for anew; the client does so without bothering anybody.
const NONCE_LIFE: u64 = 600;

/// Clocks of one machine go back a little when they are set.
const NONCE_FUTURE: u64 = 60;

/// Used nonces that are remembered, 100 bytes each. With more of them within their life, the oldest are asked
/// for anew. A client with 100 requests a second, each over a new connection, still has 160 s for the next
/// request with a nonce.
const MOST_USED: usize = 16 << 10;

/// Hexadecimal digits of the time, of the serial number, and of the authentication.
const DIGITS: usize = 16;
const MAC_BYTES: usize = 16;

/// Counts behind the largest that may still come: those of a browser's parallel requests overtake each other.
const WINDOW: u32 = u128::BITS;

/// Makes nonces, and sees to it that no answer to one counts twice (RFC 7616, section 5.5). A nonce carries its time and its number,
/// authenticated, and takes memory only once somebody with a password has used it.
pub(super) struct Nonces {
    secret: [u8; 32],
    made: AtomicU64,
    used: Mutex<UsedNonces>,
}

/// The distinction of an answer to a challenge from a copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerId {
    /// The client's count of its requests.
    Count(u32),
    /// Without a count (RFC 2069): the connection that used the nonce first.
    Connection(SocketAddr),
}

#[derive(Default)]
struct UsedNonces {
    /// By the number of the nonce, which rises with its time.
    nonces: BTreeMap<u64, (u64, NonceUse)>,
    /// Nonces with smaller numbers that are not remembered may have been used.
    forgotten: u64,
}

enum NonceUse {
    /// The largest count, and which of those up to it came.
    Counts {
        largest: u32,
        seen: u128,
    },
    Connection(SocketAddr),
}

impl Nonces {
    /// With a secret of this process.
    pub(super) fn new() -> Self {
        Self { secret: random(), made: AtomicU64::new(0), used: Mutex::default() }
    }

    /// A nonce of this second.
    pub(super) fn make(&self, now: u64) -> String {
        // Alone it orders nothing.
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mac = self.mac(now, number).finalize().into_bytes();
        format!("{now:016x}{number:016x}{}", HEXLOWER.encode(&mac[..MAC_BYTES]))
    }

    /// Takes an answer with this nonce. Returns `false` if the nonce was not made here or is too old, and for an answer that came
    /// before.
    pub(super) fn take(&self, nonce: &str, once: AnswerId, now: u64) -> bool {
        let Some((made, number)) = self.read(nonce, now) else { return false };
        self.used.lock().unwrap_or_else(PoisonError::into_inner).take(number, made, once, now)
    }

    /// The time and the number of a nonce that was made here, and not too long ago.
    fn read(&self, nonce: &str, now: u64) -> Option<(u64, u64)> {
        let (made, rest) = nonce.split_at_checked(DIGITS)?;
        let (number, mac) = rest.split_at_checked(DIGITS)?;
        let made = u64::from_str_radix(made, 16).ok()?;
        let number = u64::from_str_radix(number, 16).ok()?;
        let mac = HEXLOWER.decode(mac.as_bytes()).ok()?;
        let is_own = mac.len() == MAC_BYTES && self.mac(made, number).verify_truncated_left(&mac).is_ok();
        let in_time = made <= now.saturating_add(NONCE_FUTURE) && now <= made.saturating_add(NONCE_LIFE);
        (is_own && in_time).then_some((made, number))
    }

    fn mac(&self, made: u64, number: u64) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("a key may have any length");
        mac.update(&made.to_be_bytes());
        mac.update(&number.to_be_bytes());
        mac
    }
}

impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nonces(hidden)")
    }
}

impl UsedNonces {
    fn take(&mut self, number: u64, made: u64, once: AnswerId, now: u64) -> bool {
        match self.nonces.get_mut(&number) {
            Some((_, before)) => before.take(once),
            None if number < self.forgotten => false,
            None => {
                self.nonces.insert(number, (made, NonceUse::first(once)));
                self.forget(now);
                true
            }
        }
    }

    /// Forgets the oldest nonces, if they are out of date anyway or there are too many.
    fn forget(&mut self, now: u64) {
        while let Some(oldest) = self.nonces.first_entry()
            && (now > oldest.get().0.saturating_add(NONCE_LIFE) || self.nonces.len() > MOST_USED)
        {
            if let Some((number, _)) = self.nonces.pop_first() {
                self.forgotten = number + 1;
            }
        }
    }
}

impl NonceUse {
    fn first(once: AnswerId) -> Self {
        match once {
            AnswerId::Count(count) => Self::Counts { largest: count, seen: 1 },
            AnswerId::Connection(peer) => Self::Connection(peer),
        }
    }

    fn take(&mut self, once: AnswerId) -> bool {
        match (self, once) {
            (Self::Connection(owner), AnswerId::Connection(peer)) => *owner == peer,
            (Self::Counts { largest, seen }, AnswerId::Count(count)) => {
                if let Some(ahead) = count.checked_sub(*largest).filter(|ahead| *ahead > 0) {
                    *seen = seen.checked_shl(ahead).unwrap_or(0) | 1;
                    *largest = count;
                    return true;
                }
                let behind = *largest - count;
                let is_new = behind < WINDOW && *seen >> behind & 1 == 0;
                if is_new {
                    *seen |= 1 << behind;
                }
                is_new
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: AnswerId = AnswerId::Count(1);

    #[test]
    fn a_nonce_is_fresh_for_ten_minutes_and_only_here() {
        let nonces = Nonces::new();
        let made = |at| nonces.make(at);
        assert!(nonces.take(&made(5000), FIRST, 5000) && nonces.take(&made(5000), FIRST, 5000 + NONCE_LIFE));
        assert!(!nonces.take(&made(5000), FIRST, 5001 + NONCE_LIFE));
        assert!(!nonces.take(&made(5000), FIRST, 5000 - NONCE_FUTURE - 1));
        let nonce = made(5000);
        assert!(!Nonces::new().take(&nonce, FIRST, 5000));
        let later = format!("{:016x}{}", 6000, &nonce[16..]);
        let other = format!("{}{:016x}{}", &nonce[..16], 77, &nonce[32..]);
        let umlauts = "\u{e4}".repeat(32);
        for forged in ["", "0", &nonce[..16], &nonce[..40], &format!("{nonce}00"), &later, &other, &umlauts] {
            assert!(!nonces.take(forged, FIRST, 5000), "{forged}");
        }
        assert!(nonces.take(&nonce, FIRST, 5000));
    }

    #[test]
    fn each_count_is_taken_once_in_any_order_of_parallel_requests() {
        let nonces = Nonces::new();
        for spread in [1, 7, 100] {
            let nonce = nonces.make(0);
            // Each group comes backwards.
            let counts: Vec<u32> =
                (0..10).flat_map(|group| (1..=spread).rev().map(move |at| group * spread + at)).collect();
            assert!(counts.iter().all(|&count| nonces.take(&nonce, AnswerId::Count(count), 0)), "{spread}");
            assert!(!counts.iter().any(|&count| nonces.take(&nonce, AnswerId::Count(count), 0)), "{spread}");
        }
        let nonce = nonces.make(0);
        for (count, expected) in
            [(0, true), (0, false), (500, true), (300, false), (u32::MAX, true), (499, false)]
        {
            assert_eq!(nonces.take(&nonce, AnswerId::Count(count), 0), expected, "{count}");
        }
    }

    #[test]
    fn without_a_count_a_nonce_belongs_to_one_connection() {
        let nonces = Nonces::new();
        let nonce = nonces.make(0);
        let from = |port| AnswerId::Connection(SocketAddr::from(([192, 0, 2, 1], port)));
        assert!(nonces.take(&nonce, from(1), 0) && nonces.take(&nonce, from(1), 9));
        assert!(!nonces.take(&nonce, from(2), 0) && !nonces.take(&nonce, FIRST, 0));
        let counted = nonces.make(0);
        assert!(nonces.take(&counted, FIRST, 0) && !nonces.take(&counted, from(1), 0));
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_not_taken() {
        let nonces = Nonces::new();
        let made: Vec<_> = (0..3 * MOST_USED).map(|_| nonces.make(0)).collect();
        assert!(made.iter().all(|nonce| nonces.take(nonce, FIRST, 0)));
        assert_eq!(nonces.used.lock().unwrap().nonces.len(), MOST_USED);
        assert!(!made.iter().any(|nonce| nonces.take(nonce, FIRST, 0)), "an answer counts twice");
        assert!(nonces.take(made.last().unwrap(), AnswerId::Count(2), 0));
        let late = nonces.make(NONCE_LIFE + 1);
        assert!(nonces.take(&late, FIRST, NONCE_LIFE + 1));
        assert_eq!(nonces.used.lock().unwrap().nonces.len(), 1, "those out of date take no memory");
    }
}
