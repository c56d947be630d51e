//! RTSP over IP multicast: one viewer of the hub for all who view a stream so, and one send for all of them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use freshwire_media::rtp::Identity;
use freshwire_media::unit::Kind;

use crate::config::MulticastConfig;
use crate::hub::{Stream, Viewer};

/// The groups of a server.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    config: OnceLock<MulticastConfig>,
    open: Mutex<BTreeMap<String, Weak<Group>>>,
}

/// Reports to all members why they get no more.
pub(crate) type Farewell = Box<dyn Fn(&str) + Send + Sync>;

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
        let goes_on =
            |group: &Arc<Group>| group.stream.ptr_eq(&of) && !group.has_ended.load(Ordering::Relaxed);
        if let Some(group) = same.filter(goes_on) {
            return Some(group);
        }
        // One that has ended, as that of a stream which was removed, gives up its address: its members are leaving.
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
    /// The identity of a track's packets.
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
    pub(crate) fn source(&self, local: IpAddr) -> IpAddr {
        self.config.interface.map_or(local, IpAddr::V4)
    }

    /// Begins to send, if nobody has before.
    pub(crate) fn begin<E>(&self, view: impl FnOnce() -> Result<(Viewer, Farewell), E>) -> Result<(), E> {
        // Two that begin at once make two viewers for a moment; the second is dropped.
        if self.viewer.get().is_none() {
            let _ = self.viewer.set(view()?);
        }
        Ok(())
    }

    /// The viewer that represents all members.
    pub(crate) fn viewer(&self) -> Option<&Viewer> {
        self.viewer.get().map(|(viewer, _)| viewer)
    }

    /// Says to all members why they get no more, once.
    pub(crate) fn say_goodbye(&self, reason: &str) {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some((viewer, farewell)) = self.viewer.get() {
            viewer.pause();
            farewell(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // One that has ended does not go on, whether or not it sent anything.
        hall.say_goodbye("the codec has changed");
        let next = of("hall").unwrap();
        assert!(!Arc::ptr_eq(&next, &hall) && next.address == hall.address);
        // A stream of the same name is another one, and gets the address although somebody has not left yet.
        hub.exchange(&["door".to_owned()], &[]).unwrap();
        let again = of("door").unwrap();
        assert!(!Arc::ptr_eq(&again, &second) && again.address == second.address);
    }
}
