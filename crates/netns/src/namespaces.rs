//! The three network namespaces of an emulated link, and how code gets into them.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::error::NetnsError;
use super::netlink::{self, Netlink};
use super::{ethtool, process, user};

/// The near, the middle and the far network namespace. They end when this value and everything that runs in them
/// have gone.
#[derive(Debug)]
pub struct Namespaces {
    pub(super) near: OwnedFd,
    pub(super) middle: OwnedFd,
    pub(super) far: OwnedFd,
    has_ipv6: bool,
}

impl Namespaces {
    /// The near end.
    pub const NEAR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    /// The far end.
    pub const FAR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    /// The near end.
    pub const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
    /// The far end.
    pub const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

    /// Makes and configures the three namespaces.
    ///
    /// With `CAP_SYS_ADMIN` and `CAP_NET_ADMIN` it can be called at any time. Without them, the process first enters
    /// a user namespace of its own, for good. There it keeps its user and group id, and has all capabilities over the
    /// new network namespaces alone. The kernel allows that only while the process has a single thread: call it at
    /// the start of `main`. Further calls then work at any time.
    ///
    /// # Errors
    ///
    /// [`NetnsError::is_not_permitted`] if the system does not let this user make namespaces; another error if the kernel
    /// lacks veth pairs, or an interface cannot be configured.
    pub fn create() -> Result<Self, NetnsError> {
        user::become_capable()?;
        let near = new_namespace()?;
        let middle = new_namespace()?;
        let far = new_namespace()?;
        in_namespace(middle.as_fd(), || connect_middle(near.as_fd(), far.as_fd()))??;
        let near_v6 = in_namespace(near.as_fd(), || configure_end(&NEAR, &FAR))??;
        let far_v6 = in_namespace(far.as_fd(), || configure_end(&FAR, &NEAR))??;
        Ok(Self { near, middle, far, has_ipv6: near_v6 && far_v6 })
    }

    /// Runs `f` on a thread in the near namespace and waits for it. Sockets and child processes that it creates stay
    /// there.
    ///
    /// # Errors
    ///
    /// If no thread can be started, or it cannot enter the namespace.
    pub fn in_near<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        in_namespace(self.near.as_fd(), f)
    }

    /// Runs `f` on a thread in the far namespace and waits for it.
    ///
    /// # Errors
    ///
    /// As [`Namespaces::in_near`].
    pub fn in_far<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        in_namespace(self.far.as_fd(), f)
    }

    /// Starts a program in the near namespace. It keeps this process's user and may choose any congestion control, send
    /// raw packets and listen on any port there. It is killed when the calling thread ends.
    ///
    /// # Errors
    ///
    /// If the program does not start.
    pub fn spawn_near(&self, command: &mut Command) -> io::Result<Child> {
        process::spawn(self.near.as_fd(), command)
    }

    /// Starts a program in the far namespace, as [`Namespaces::spawn_near`].
    ///
    /// # Errors
    ///
    /// As [`Namespaces::spawn_near`].
    pub fn spawn_far(&self, command: &mut Command) -> io::Result<Child> {
        process::spawn(self.far.as_fd(), command)
    }

    /// Whether both ends have their IPv6 address; a kernel may be without IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }
}

/// One end of the path.
pub(super) struct End {
    pub(super) mac: [u8; 6],
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

pub(super) const NEAR: End =
    End { mac: [0x02, 0xf7, 0, 0, 0, 1], v4: Namespaces::NEAR_V4, v6: Namespaces::NEAR_V6 };
pub(super) const FAR: End =
    End { mac: [0x02, 0xf7, 0, 0, 0, 2], v4: Namespaces::FAR_V4, v6: Namespaces::FAR_V6 };

const MIDDLE_NEAR_MAC: [u8; 6] = [0x02, 0xf7, 0, 0, 1, 1];
const MIDDLE_FAR_MAC: [u8; 6] = [0x02, 0xf7, 0, 0, 1, 2];

const LOOPBACK_INDEX: u32 = 1;
/// The end's only interface beside `lo`.
const LINK_INDEX: u32 = 2;
pub(super) const LINK_NAME: &str = "link0";
pub(super) const MIDDLE_NEAR_INDEX: u32 = 2;
pub(super) const MIDDLE_NEAR_NAME: &str = "near0";
pub(super) const MIDDLE_FAR_INDEX: u32 = 3;
pub(super) const MIDDLE_FAR_NAME: &str = "far0";

const MTU: u32 = 1500;

fn new_namespace() -> Result<OwnedFd, NetnsError> {
    on_thread(|| {
        // SAFETY: NEWNET does not touch the file descriptor table, the one hazard of this call.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|error| NetnsError::NetworkNamespace(error.into()))?;
        let file = File::open("/proc/thread-self/ns/net")
            .map_err(NetnsError::setup("open /proc/thread-self/ns/net (is /proc mounted?)"))?;
        Ok(OwnedFd::from(file))
    })?
}

/// Runs `f` on a new thread inside `namespace`.
pub(super) fn in_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    f: impl FnOnce() -> T + Send,
) -> Result<T, NetnsError> {
    on_thread(|| {
        enter(namespace)?;
        Ok(f())
    })?
}

/// Moves the calling thread for good.
pub(super) fn enter(namespace: BorrowedFd<'_>) -> Result<(), NetnsError> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
        .map_err(|error| NetnsError::setup("enter a network namespace")(error.into()))
}

/// A thread of its own, so that the caller's namespace does not change. A panic of `f` goes on in the caller.
fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, f)
            .map_err(NetnsError::setup("start a thread"))?;
        thread.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}

fn connect_middle(near: BorrowedFd<'_>, far: BorrowedFd<'_>) -> Result<(), NetnsError> {
    let mut netlink = Netlink::open().map_err(NetnsError::setup("open a netlink socket"))?;
    let sides = [
        (MIDDLE_NEAR_INDEX, MIDDLE_NEAR_NAME, MIDDLE_NEAR_MAC, near, NEAR.mac),
        (MIDDLE_FAR_INDEX, MIDDLE_FAR_NAME, MIDDLE_FAR_MAC, far, FAR.mac),
    ];
    for (index, name, mac, namespace, peer_mac) in sides {
        let here = netlink::Interface { index, name, mac, mtu: MTU };
        let there = netlink::Interface { index: LINK_INDEX, name: LINK_NAME, mac: peer_mac, mtu: MTU };
        netlink
            .create_veth(&here, &there, namespace)
            .map_err(NetnsError::setup("create a veth pair (is the veth module available?)"))?;
        // A link-local address would make the kernel send packets of its own over the link.
        let _ = netlink.disable_address_generation(index);
        ethtool::disable_offloads(name).map_err(NetnsError::setup("switch offloads off"))?;
        netlink.set_up(index).map_err(NetnsError::setup("bring an interface up"))?;
    }
    Ok(())
}

/// Configures one end from within it; returns whether it has IPv6.
fn configure_end(own: &End, peer: &End) -> Result<bool, NetnsError> {
    let mut netlink = Netlink::open().map_err(NetnsError::setup("open a netlink socket"))?;
    netlink.set_up(LOOPBACK_INDEX).map_err(NetnsError::setup("bring lo up"))?;
    let _ = netlink.disable_address_generation(LINK_INDEX);
    ethtool::disable_offloads(LINK_NAME).map_err(NetnsError::setup("switch offloads off"))?;
    netlink.set_up(LINK_INDEX).map_err(NetnsError::setup("bring an interface up"))?;
    netlink.add_address(LINK_INDEX, own.v4.into(), 24).map_err(NetnsError::setup("add an IPv4 address"))?;
    netlink
        .add_neighbour(LINK_INDEX, peer.v4.into(), peer.mac)
        .map_err(NetnsError::setup("add an IPv4 neighbour"))?;
    let has_ipv6 = netlink.add_address(LINK_INDEX, own.v6.into(), 64).is_ok();
    if has_ipv6 {
        netlink
            .add_neighbour(LINK_INDEX, peer.v6.into(), peer.mac)
            .map_err(NetnsError::setup("add an IPv6 neighbour"))?;
    }
    Ok(has_ipv6)
}
