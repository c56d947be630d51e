//! Packet captures on both sides of the filter.
//!
//! ```text
//!  near: TCP ◄── raw sockets: `Stack` ◄── filter (XDP or tc) ◄── emulated link: its packet log ◄── far: TCP
//! ```
//!
//! The packet log has each packet that the near host sends, each that it is given, and each that the link lost. Raw sockets are
//! given a copy of each packet that TCP is given, behind both hooks.

pub(crate) mod judge;
mod segment;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use freshwire_acks::{Config, Counters, Filter, FilterError, Hook, HookChoice, Rule};
use freshwire_netns::{Account, Emulator, EmulatorOptions, LinkConfig, Namespaces, logged_packets};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};

use super::support::skip;
pub(crate) use judge::{Connection, Kind};
pub(crate) use segment::Segment;

/// The near host's interface.
pub(crate) const LINK: &str = "link0";

/// Far longer than anything here needs on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Times that a machine may lose packets between the link and a host before the test gives up.
const TRIES: u32 = 3;

/// Bytes that may wait in a raw socket: those of every packet of a scenario.
const TAP_BYTES: usize = 64 << 20;

/// What the near host's TCP is given.
pub(crate) struct Stack {
    v4: OwnedFd,
    v6: OwnedFd,
    seen: Vec<Segment>,
}

impl Stack {
    /// Opens it in the calling thread's network namespace.
    fn open() -> io::Result<Self> {
        let tap = |family| -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(family, SocketType::RAW, flags, Some(ipproto::TCP))?;
            set_socket_recv_buffer_size_force(&socket, TAP_BYTES)?;
            Ok(socket)
        };
        Ok(Self { v4: tap(AddressFamily::INET)?, v6: tap(AddressFamily::INET6)?, seen: Vec::new() })
    }

    /// All segments until now.
    pub(crate) fn segments(&mut self) -> &[Segment] {
        let Self { v4, v6, seen } = self;
        let mut buffer = vec![0; 1 << 16];
        for (tap, parse) in
            [(&*v4, Segment::of_ipv4 as fn(&[u8]) -> Option<Segment>), (&*v6, Segment::of_tcp)]
        {
            loop {
                match recv(tap, &mut buffer[..], RecvFlags::empty()) {
                    Ok((length, _)) => seen.push(parse(&buffer[..length]).expect("a TCP segment")),
                    Err(Errno::AGAIN) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        seen
    }

    /// Waits until there is such a segment.
    pub(crate) fn wait_for(&mut self, what: &str, is_it: impl Fn(&Segment) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.segments().iter().any(&is_it) {
            assert!(Instant::now() < deadline, "{what} has not come: {:?}", self.seen.last());
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The captures of a scenario, put together.
pub(crate) struct Captured {
    pub(crate) connections: Vec<Connection>,
    pub(crate) counters: Counters,
    pub(crate) account: Account,
}

/// The path, and how the filter is attached.
pub(crate) struct Scenario {
    pub(crate) up: LinkConfig,
    pub(crate) down: LinkConfig,
    pub(crate) hook: Hook,
}

impl Scenario {
    /// Runs `talk`, which has ended its connections when it returns. `None` where the machine cannot do it.
    pub(crate) fn run(
        &self,
        namespaces: &Namespaces,
        talk: impl Fn(&Namespaces, &mut Stack),
    ) -> Option<Captured> {
        for _ in 0..TRIES {
            let captured = self.run_once(namespaces, &talk)?;
            // The kernel's own queue was full: nobody knows whether it or the filter dropped an acknowledgement.
            if captured.account.down.kernel_drops == 0 {
                return Some(captured);
            }
        }
        panic!("the machine dropped packets between the link and the near host {TRIES} times");
    }

    fn run_once(&self, namespaces: &Namespaces, talk: impl Fn(&Namespaces, &mut Stack)) -> Option<Captured> {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log.pcapng");
        let mut stack = namespaces.in_near(Stack::open).unwrap().unwrap();
        let choice = HookChoice::Only(self.hook);
        let filter = match namespaces.in_near(|| Filter::new(LINK, choice, &Config::new(Rule::Safe))).unwrap()
        {
            Ok(filter) => filter,
            Err(FilterError::NoTcx) => return skip("BPF links at tc need Linux 6.6"),
            Err(error) => panic!("{error}"),
        };
        let options = EmulatorOptions { packet_log: Some(log.clone()), ..EmulatorOptions::default() };
        let emulator = Emulator::start(namespaces, self.up.clone(), self.down.clone(), options).unwrap();
        talk(namespaces, &mut stack);
        let account = emulator.stop();
        let log = std::fs::read(log).unwrap();
        let packets = logged_packets(&log).unwrap();
        let arrived = judge::arrived(&packets) as u64;
        let deadline = Instant::now() + PATIENCE;
        // Each packet that the near host was given is dropped by the filter, or given to TCP.
        let counters = loop {
            let counters = filter.counters().unwrap();
            let given = stack.segments().len() as u64;
            if given + counters.dropped() == arrived || account.down.kernel_drops > 0 {
                break counters;
            }
            assert!(Instant::now() < deadline, "{arrived} arrived, {given} were given to TCP: {counters:?}");
            // Pause: the kernel has not handled all of them yet.
            std::thread::sleep(Duration::from_millis(2));
        };
        let connections = judge::connections(&packets, stack.segments());
        Some(Captured { connections, counters, account })
    }
}

/// An address of the far host.
pub(crate) fn far(is_v6: bool) -> IpAddr {
    if is_v6 { Namespaces::FAR_V6.into() } else { Namespaces::FAR_V4.into() }
}
