use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::net::source_of;

/// A failure is forgotten after so long; together with [`PATIENCE`]: ten at once, then ten in a minute.
const FAILURE: Duration = Duration::from_secs(6);

/// So much time of failures is borne.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most clients remembered.
const CLIENTS: usize = 4096;

/// Who has failed too often has to wait.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// For each client: when all its failures are forgotten.
    forgiven: Mutex<BTreeMap<IpAddr, Instant>>,
}

impl Throttle {
    pub(super) fn blocks(&self, peer: IpAddr, now: Instant) -> bool {
        let owed = self.lock().get(&source_of(peer)).map(|forgiven| forgiven.saturating_duration_since(now));
        owed.is_some_and(|owed| owed + FAILURE > PATIENCE)
    }

    pub(super) fn failed(&self, peer: IpAddr, now: Instant) {
        let source = source_of(peer);
        let mut clients = self.lock();
        if clients.len() >= CLIENTS && !clients.contains_key(&source) {
            clients.retain(|_, forgiven| *forgiven > now);
            // All of them failed within a minute. Whoever is nearest to forgiveness loses least.
            if clients.len() >= CLIENTS
                && let Some(nearest) =
                    clients.iter().min_by_key(|(_, forgiven)| **forgiven).map(|(ip, _)| *ip)
            {
                clients.remove(&nearest);
            }
        }
        let forgiven = clients.entry(source).or_insert(now);
        *forgiven = (*forgiven).max(now) + FAILURE;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Instant>> {
        self.forgiven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_ten_failures_one_more_is_borne_each_six_seconds() {
        let throttle = Throttle::default();
        let (peer, now) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        for _ in 0..10 {
            assert!(!throttle.blocks(peer, now));
            throttle.failed(peer, now);
        }
        assert!(throttle.blocks(peer, now));
        assert!(!throttle.blocks(IpAddr::from([192, 0, 2, 2]), now));
        let later = now + FAILURE;
        assert!(!throttle.blocks(peer, later));
        throttle.failed(peer, later);
        assert!(throttle.blocks(peer, later));
        assert!(!throttle.blocks(peer, later + PATIENCE));
    }

    #[test]
    fn a_crowd_of_attackers_takes_bounded_memory() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let persistent = IpAddr::from([192, 0, 2, 1]);
        (0..10).for_each(|_| throttle.failed(persistent, now));
        for number in 0..2 * CLIENTS as u32 {
            throttle.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        assert_eq!(throttle.lock().len(), CLIENTS);
        assert!(throttle.blocks(persistent, now));
    }
}
