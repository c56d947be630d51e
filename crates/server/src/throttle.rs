use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most clients remembered.
const CLIENTS: usize = 4096;

/// The permitted rate of an action: a burst, and the interval at which it refills by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Times in a burst.
    pub(crate) at_once: u32,
    /// Time after which one more is permitted.
    pub(crate) each: Duration,
}

/// Limits the rate of an action for each client; the caller passes the [`Allowance`].
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// For each client: when all that it has done is forgotten.
    forgiven: Mutex<BTreeMap<IpAddr, Instant>>,
}

impl Throttle {
    pub(crate) fn blocks(&self, peer: IpAddr, now: Instant, allowance: Allowance) -> bool {
        let owed = self.lock().get(&source_of(peer)).map(|forgiven| forgiven.saturating_duration_since(now));
        owed.is_some_and(|owed| owed + allowance.each > allowance.each * allowance.at_once)
    }

    pub(crate) fn count(&self, peer: IpAddr, now: Instant, allowance: Allowance) {
        let source = source_of(peer);
        let mut clients = self.lock();
        if clients.len() >= CLIENTS && !clients.contains_key(&source) {
            clients.retain(|_, forgiven| *forgiven > now);
            // No entry has expired. The loss is least for the client nearest to forgiveness.
            if clients.len() >= CLIENTS
                && let Some(nearest) =
                    clients.iter().min_by_key(|(_, forgiven)| **forgiven).map(|(ip, _)| *ip)
            {
                clients.remove(&nearest);
            }
        }
        let forgiven = clients.entry(source).or_insert(now);
        *forgiven = (*forgiven).max(now) + allowance.each;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Instant>> {
        self.forgiven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits, which is what one household gets.
pub(crate) fn source_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Allowance = Allowance { at_once: 10, each: Duration::from_secs(6) };

    #[test]
    fn after_ten_at_once_one_more_is_borne_each_six_seconds() {
        let throttle = Throttle::default();
        let (peer, now) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        for _ in 0..10 {
            assert!(!throttle.blocks(peer, now, TEN));
            throttle.count(peer, now, TEN);
        }
        assert!(throttle.blocks(peer, now, TEN));
        assert!(!throttle.blocks(IpAddr::from([192, 0, 2, 2]), now, TEN));
        let later = now + TEN.each;
        assert!(!throttle.blocks(peer, later, TEN));
        throttle.count(peer, later, TEN);
        assert!(throttle.blocks(peer, later, TEN));
        assert!(!throttle.blocks(peer, later + 10 * TEN.each, TEN));
    }

    #[test]
    fn a_crowd_of_attackers_takes_bounded_memory() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let persistent = IpAddr::from([192, 0, 2, 1]);
        (0..10).for_each(|_| throttle.count(persistent, now, TEN));
        for number in 0..2 * CLIENTS as u32 {
            throttle.count(IpAddr::from(number.to_be_bytes()), now, TEN);
        }
        assert_eq!(throttle.lock().len(), CLIENTS);
        assert!(throttle.blocks(persistent, now, TEN));
    }
}
