use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::counter::Counter;
use crate::throttle::{Allowance, Throttle, source_of};

/// Counts the open connections of all listeners and refuses those beyond the limits.
#[derive(Debug)]
pub struct Admission {
    limits: RwLock<Limits>,
    open: Mutex<Open>,
    arrivals: Throttle,
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused because of a limit.
    pub refused: Counter,
    /// TLS handshakes that failed or took too long.
    pub failed_handshakes: Counter,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_source: BTreeMap<IpAddr, usize>,
}

/// A connection's place within the limits; dropping it gives the place back.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    source: IpAddr,
}

impl Admission {
    /// Nothing is open yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits: RwLock::new(limits),
            open: Mutex::default(),
            arrivals: Throttle::default(),
            accepted: Counter::default(),
            refused: Counter::default(),
            failed_handshakes: Counter::default(),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the limits. Open connections stay open.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// A place for a connection from this address, or which limit it would pass.
    ///
    /// # Errors
    ///
    /// With the name of the limit, as in the configuration.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Permit, &'static str> {
        self.admit_at(peer, Instant::now())
    }

    fn admit_at(self: &Arc<Self>, peer: IpAddr, now: Instant) -> Result<Permit, &'static str> {
        let limits = self.limits();
        let often = arrivals(&limits);
        let source = source_of(peer);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let from_source = open.by_source.get(&source).copied().unwrap_or(0);
        let refusal = if open.total >= limits.max_connections {
            Some("max_connections")
        } else if from_source >= limits.max_connections_per_ip && !source.is_loopback() {
            Some("max_connections_per_ip")
        } else if !source.is_loopback() && self.arrivals.blocks(source, now, often) {
            Some("max_connection_rate_per_ip")
        } else {
            None
        };
        if let Some(limit) = refusal {
            self.refused.add_one();
            return Err(limit);
        }
        open.total += 1;
        open.by_source.insert(source, from_source + 1);
        self.arrivals.count(source, now, often);
        self.accepted.add_one();
        Ok(Permit { admission: Arc::clone(self), source })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.admission.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total = open.total.saturating_sub(1);
        if let Some(count) = open.by_source.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                open.by_source.remove(&self.source);
            }
        }
    }
}

fn arrivals(limits: &Limits) -> Allowance {
    let a_second = u32::try_from(limits.max_connection_rate_per_ip.max(1)).unwrap_or(u32::MAX);
    Allowance { at_once: a_second.saturating_mul(2), each: Duration::from_secs(1) / a_second }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(max_connections: usize, max_connections_per_ip: usize) -> Arc<Admission> {
        Arc::new(Admission::new(Limits { max_connections, max_connections_per_ip, ..Limits::default() }))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_comes_back_when_its_connection_ends() {
        let admission = admission(2, 2);
        let first = admission.admit(ip("192.0.2.1")).unwrap();
        let _second = admission.admit(ip("192.0.2.2")).unwrap();
        assert_eq!(admission.admit(ip("192.0.2.3")).unwrap_err(), "max_connections");
        drop(first);
        let _third = admission.admit(ip("192.0.2.3")).unwrap();
        assert_eq!((admission.open(), admission.refused.value(), admission.accepted.value()), (2, 1, 3));
    }

    #[test]
    fn one_client_cannot_take_all_places() {
        let admission = admission(10, 1);
        let _v4 = admission.admit(ip("192.0.2.1")).unwrap();
        assert_eq!(admission.admit(ip("::ffff:192.0.2.1")).unwrap_err(), "max_connections_per_ip");
        let v6 = admission.admit(ip("2001:db8::1")).unwrap();
        assert_eq!(admission.admit(ip("2001:db8::ffff:2")).unwrap_err(), "max_connections_per_ip");
        let _other = admission.admit(ip("2001:db8:0:1::1")).unwrap();
        drop(v6);
        let _again = admission.admit(ip("2001:db8::3")).unwrap();
    }

    #[test]
    fn one_client_cannot_come_again_and_again() {
        let limits = Limits { max_connection_rate_per_ip: 5, ..Limits::default() };
        let admission = Arc::new(Admission::new(limits));
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let let_in =
            |peer: &str, at: Instant| (0..100).filter(|_| admission.admit_at(ip(peer), at).is_ok()).count();
        assert_eq!(let_in("192.0.2.1", now), 10, "those of two seconds at once");
        assert_eq!(admission.admit_at(ip("192.0.2.1"), now).unwrap_err(), "max_connection_rate_per_ip");
        assert_eq!(let_in("192.0.2.2", now), 10, "another one");
        assert_eq!(let_in("192.0.2.1", now + second), 5);
        assert_eq!(let_in("127.0.0.1", now), 100);
        admission.set_limits(Limits { max_connection_rate_per_ip: 50, ..limits });
        assert_eq!(let_in("192.0.2.1", now + 60 * second), 100);
    }

    #[test]
    fn loopback_is_bounded_by_the_total_only() {
        let admission = admission(3, 1);
        let held: Vec<_> = (0..3).map(|_| admission.admit(ip("127.0.0.1")).unwrap()).collect();
        assert!(admission.admit(ip("::1")).is_err());
        drop(held);
        assert_eq!(admission.open(), 0);
    }
}
