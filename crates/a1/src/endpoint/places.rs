//! Places that others hold before they have shown who they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::ConnectionHandle;

/// Handles in the order in which they came, counted for each address as well. Nobody is turned away: when the places are
/// taken, who came first makes way, and of one address it is one of its own. So whoever takes many keeps nobody out who needs
/// one for a round trip.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By serial number, which grows.
    held: BTreeMap<u64, (ConnectionHandle, IpAddr)>,
    by_source: BTreeMap<IpAddr, BTreeSet<u64>>,
}

impl Places {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn insert(&mut self, handle: ConnectionHandle, from: SocketAddr) {
        let source = source_of(from.ip());
        self.held.insert(handle.serial, (handle, source));
        self.by_source.entry(source).or_default().insert(handle.serial);
    }

    pub(super) fn remove(&mut self, handle: ConnectionHandle) {
        let Some((_, source)) = self.held.remove(&handle.serial) else { return };
        if let Some(serials) = self.by_source.get_mut(&source) {
            serials.remove(&handle.serial);
            if serials.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }

    /// The entry that makes way for one more from there among `most`, of which one address has `most_of_one`.
    /// `None` as long as there is room.
    pub(super) fn first_to_go(
        &self,
        from: SocketAddr,
        most: usize,
        most_of_one: usize,
    ) -> Option<ConnectionHandle> {
        let of_source =
            self.by_source.get(&source_of(from.ip())).filter(|serials| serials.len() >= most_of_one);
        let serial = match of_source {
            Some(serials) => serials.first(),
            None if self.held.len() >= most => self.held.keys().next(),
            None => None,
        };
        Some(self.held.get(serial?)?.0)
    }
}

/// What counts as one address: an IPv4 address, or an IPv6 network of 64 bits, which is what one household gets.
fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(serial: u64) -> ConnectionHandle {
        ConnectionHandle { id: 7, serial }
    }

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    #[test]
    fn the_oldest_entry_makes_way_or_the_oldest_of_its_address() {
        let mut places = Places::default();
        let [one, two, three] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(address);
        for (serial, from) in [(1, one), (2, two), (3, two)] {
            assert_eq!(places.first_to_go(from, 4, 2), None);
            places.insert(handle(serial), from);
        }
        assert_eq!(places.first_to_go(two, 4, 2), Some(handle(2)));
        places.insert(handle(4), one);
        assert_eq!(places.first_to_go(three, 4, 2), Some(handle(1)));
        places.remove(handle(1));
        assert_eq!((places.first_to_go(three, 4, 2), places.len()), (None, 3));
        [2, 3, 4].into_iter().for_each(|serial| places.remove(handle(serial)));
        assert!(places.held.is_empty() && places.by_source.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let mut places = Places::default();
        places.insert(handle(1), address("2001:db8::1"));
        assert_eq!(places.first_to_go(address("2001:db8::ffff:2"), 9, 1), Some(handle(1)));
        assert_eq!(places.first_to_go(address("2001:db8:0:1::1"), 9, 1), None);
        places.insert(handle(2), address("::ffff:10.0.0.1"));
        assert_eq!(places.first_to_go(address("10.0.0.1"), 9, 1), Some(handle(2)));
    }
}
