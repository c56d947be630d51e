use std::net::Ipv4Addr;
use std::str::FromStr;

/// The largest range: 65536 addresses.
const MOST_BITS: u32 = 16;

/// Where multicast packets go. Multicast has no rate that follows its members: the network has to carry the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// Addresses, of which each stream takes one.
    pub range: AddressRange,
    /// UDP port of the pictures, even; reports and sound have the three after it.
    pub port: u16,
    /// How many routers packets may pass, plus one.
    pub ttl: u8,
    /// The address of this machine at the interface that packets leave by. `None`: the interface by which each viewer asks.
    pub interface: Option<Ipv4Addr>,
}

/// A range of IPv4 multicast addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: Ipv4Addr,
    count: u32,
}

/// The text names no range of multicast addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range of IPv4 multicast addresses; write 239.192.0.0/24, or one address")]
pub struct AddressRangeError(String);

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let error = || AddressRangeError(text.chars().take(32).collect());
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| error())?;
        let length: u32 = length.parse().map_err(|_| error())?;
        let bits = 32_u32.checked_sub(length).filter(|&bits| bits <= MOST_BITS).ok_or_else(error)?;
        let first = Ipv4Addr::from_bits(address.to_bits() >> bits << bits);
        if !first.is_multicast() {
            return Err(error());
        }
        Ok(Self { first, count: 1 << bits })
    }
}

impl AddressRange {
    /// Its addresses in ascending order.
    pub(crate) fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        (0..self.count).map(move |at| Ipv4Addr::from_bits(self.first.to_bits() + at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_multicast_addresses() {
        let range = |text: &str| text.parse::<AddressRange>();
        let first = |text: &str| range(text).map(|range| (range.addresses().next(), range.count));
        assert_eq!(first("239.192.0.7/30"), Ok((Some(Ipv4Addr::new(239, 192, 0, 4)), 4)));
        assert_eq!(first("232.1.2.3"), Ok((Some(Ipv4Addr::new(232, 1, 2, 3)), 1)));
        for wrong in
            ["", "10.0.0.0/24", "239.0.0.0/8", "239.0.0.0/33", "239.0.0/24", "ff02::1", "223.255.255.255"]
        {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
