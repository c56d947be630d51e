//! RTSP over IP multicast: one viewer of the hub for all who view a stream so, and one send for all of them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use freshwire_media::rtp::Identity;
use freshwire_media::unit::Kind;

use super::rtp_path::Farewell;
use super::transport::Profile;
use crate::hub::{Stream, Viewer};

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
    fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        (0..self.count).map(move |at| Ipv4Addr::from_bits(self.first.to_bits() + at))
    }
}

/// The groups of a server.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    config: OnceLock<MulticastConfig>,
    open: Mutex<BTreeMap<String, Weak<Group>>>,
}

/// A stream's group. It ends with its last session.
pub(crate) struct Group {
    address: Ipv4Addr,
    config: MulticastConfig,
    video: Identity,
    audio: Identity,
    /// The members of a stream that comes later with the same name have another group.
    stream: Weak<Stream>,
    viewer: OnceLock<(Viewer, Farewell)>,
    has_ended: AtomicBool,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Groups {
    /// Allows multicast. Counts once.
    pub(crate) fn configure(&self, config: MulticastConfig) {
        let _ = self.config.set(config);
    }

    /// The group of this stream, which is new if nobody has it. `None` if multicast is off, or no address is left.
    pub(crate) fn of(
        &self,
        stream: &Arc<Stream>,
        identities: impl FnOnce() -> io::Result<[Identity; 2]>,
    ) -> Option<Arc<Group>> {
        let &config = self.config.get()?;
        let mut open = lock(&self.open);
        open.retain(|_, group| group.strong_count() > 0);
        let of = Arc::downgrade(stream);
        let same = open.get(stream.name()).and_then(Weak::upgrade);
        if let Some(group) = same.filter(|group| group.stream.ptr_eq(&of)) {
            return Some(group);
        }
        // That of a stream which was removed gives up its address: its members are leaving.
        open.remove(stream.name());
        let taken: Vec<_> = open.values().filter_map(|group| Some(group.upgrade()?.address)).collect();
        let address = config.range.addresses().find(|address| !taken.contains(address))?;
        let [video, audio] = identities().ok()?;
        let (viewer, has_ended) = (OnceLock::new(), AtomicBool::new(false));
        let group = Arc::new(Group { address, config, video, audio, stream: of, viewer, has_ended });
        open.insert(stream.name().to_owned(), Arc::downgrade(&group));
        Some(group)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Group {
    /// What a track's packets are known by.
    pub(crate) fn identity(&self, kind: Kind) -> Identity {
        match kind {
            Kind::Video => self.video,
            Kind::Audio => self.audio,
        }
    }

    /// Where a track's packets go; its reports go to the next port.
    pub(crate) fn address(&self, kind: Kind) -> SocketAddr {
        let port = match kind {
            Kind::Video => self.config.port,
            Kind::Audio => self.config.port.saturating_add(2),
        };
        SocketAddrV4::new(self.address, port).into()
    }

    /// Routers that packets may pass, plus one.
    pub(crate) fn ttl(&self) -> u8 {
        self.config.ttl
    }

    /// The address that packets come from, for a viewer that is connected to `local`.
    pub(super) fn source(&self, local: IpAddr) -> IpAddr {
        self.config.interface.map_or(local, IpAddr::V4)
    }

    /// What the answer to SETUP says of a track.
    pub(super) fn transport(&self, profile: Profile, kind: Kind, local: IpAddr) -> String {
        let local = self.source(local);
        let (address, ttl) = (self.address(kind), self.config.ttl);
        let port = address.port();
        format!(
            "{};multicast;destination={};source={local};port={port}-{};ttl={ttl}",
            profile.name(),
            address.ip(),
            port + 1
        )
    }

    /// Begins to send, if nobody has before.
    pub(crate) fn begin<E>(&self, view: impl FnOnce() -> Result<(Viewer, Farewell), E>) -> Result<(), E> {
        // Two that begin at once make two viewers for a moment; the second is dropped.
        if self.viewer.get().is_none() {
            let _ = self.viewer.set(view()?);
        }
        Ok(())
    }

    /// The viewer that stands for all members.
    pub(crate) fn viewer(&self) -> Option<&Viewer> {
        self.viewer.get().map(|(viewer, _)| viewer)
    }

    /// Says to all members why they get no more, once.
    pub(super) fn say_goodbye(&self, reason: &str) {
        if let Some((viewer, farewell)) = self.viewer.get()
            && !self.has_ended.swap(true, Ordering::Relaxed)
        {
            viewer.pause();
            farewell.say(reason);
        }
    }
}

/// The largest range: 65536 addresses.
const MOST_BITS: u32 = 16;

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

    #[test]
    fn each_stream_has_an_address_while_somebody_has_the_group() {
        let groups = Groups::default();
        let identity = Identity { ssrc: 1, seq: 2, timestamp_offset: 3 };
        let hub = crate::hub::Hub::new(crate::hub::HubConfig::default()).unwrap();
        let of = |name: &str| groups.of(&hub.stream(name).unwrap(), || Ok([identity; 2]));
        assert!(of("cam").is_none(), "it is off");
        let range = "239.192.0.0/31".parse().unwrap();
        groups.configure(MulticastConfig { range, port: 5004, ttl: 1, interface: None });
        let (first, second) = (of("cam").unwrap(), of("door").unwrap());
        assert_eq!(of("cam").unwrap().address(Kind::Video), first.address(Kind::Video));
        assert_ne!(first.address, second.address);
        assert!(of("hall").is_none(), "no address is left");
        drop(first);
        let hall = of("hall").unwrap();
        assert_eq!(hall.address(Kind::Audio).to_string(), "239.192.0.0:5006");
        // A stream of the same name is another one, and gets the address although somebody has not left yet.
        hub.exchange(&["door".to_owned()], &[]).unwrap();
        let again = of("door").unwrap();
        assert!(!Arc::ptr_eq(&again, &second) && again.address == second.address);
    }
}
