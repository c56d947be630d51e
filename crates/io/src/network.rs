//! The service that a socket asks of the network and of the host's queues: a DSCP, a priority, a pacing rate, departure times.

mod dscp;
mod qdisc;
#[cfg(test)]
mod tests;

pub use dscp::{Dscp, UnknownDscp};
pub use qdisc::{Outlet, outlet_towards};

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use freshwire_record::Rate;
use rustix::net::{AddressFamily, sockopt};

/// Quality of service of one socket towards the network. The default asks for nothing and changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkQos {
    /// Differentiated services code point of each packet (RFC 2474). The two ECN bits beside it stay as they are. Default: `None`, the
    /// socket's.
    pub dscp: Option<Dscp>,
    /// Priority in the host's queueing disciplines (`SO_PRIORITY`), from 0. More than [`MAX_FREE_PRIORITY`] needs
    /// `CAP_NET_ADMIN`. Default: `None`; a DSCP of IPv4 then selects it, as ip(7) says.
    pub priority: Option<u32>,
    /// Largest pacing rate (`SO_MAX_PACING_RATE`). TCP paces by itself. For datagrams the interface needs the queueing
    /// discipline `fq`. Default: `None`, no limit.
    pub max_rate: Option<Rate>,
    /// Whether each datagram has a departure time (`SO_TXTIME`), at the agreed or the largest rate, so that bursts leave
    /// evenly. For datagrams only, without segmentation offload, and the interface needs `fq`. Default: `false`.
    pub departure_times: bool,
}

/// Largest `SO_PRIORITY` without `CAP_NET_ADMIN` (socket(7)).
pub const MAX_FREE_PRIORITY: u32 = 6;

/// The kernel does not give a socket the quality of service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkQosError {
    /// The process lacks a capability.
    #[error(
        "SO_PRIORITY {0} needs CAP_NET_ADMIN: take 0 to {MAX_FREE_PRIORITY}, or give the program the capability"
    )]
    Priority(u32),
    /// No queueing discipline on the way out of this machine lets datagrams wait.
    #[error(
        "{option} has no effect on datagrams to {to}: interface {interface} has the queueing discipline {found}, not fq; \
         run `tc qdisc replace dev {interface} root fq`, or leave the setting out"
    )]
    NoPacing {
        /// The socket option.
        option: &'static str,
        /// The destination.
        to: SocketAddr,
        /// The interface of its route.
        interface: String,
        /// The queueing disciplines of the interface.
        found: String,
    },
    /// The setting is not for this kind of socket.
    #[error("departure times are for datagrams: TCP paces its segments itself, at the pacing rate")]
    DepartureTimes,
    /// The kernel refuses an option.
    #[error("the kernel refuses {option}: {error}")]
    Refused {
        /// The socket option.
        option: &'static str,
        /// Its reason.
        error: String,
    },
}

impl NetworkQos {
    /// Sets the DSCP.
    #[must_use]
    pub fn dscp(mut self, dscp: Option<Dscp>) -> Self {
        self.dscp = dscp;
        self
    }

    /// Sets the priority in the host's queueing disciplines.
    #[must_use]
    pub fn priority(mut self, priority: Option<u32>) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the largest pacing rate.
    #[must_use]
    pub fn max_rate(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// Sets whether datagrams have departure times.
    #[must_use]
    pub fn departure_times(mut self, wanted: bool) -> Self {
        self.departure_times = wanted;
        self
    }

    /// The settings of both; those made here have precedence.
    #[must_use]
    pub fn or(self, general: Self) -> Self {
        Self {
            dscp: self.dscp.or(general.dscp),
            priority: self.priority.or(general.priority),
            max_rate: self.max_rate.or(general.max_rate),
            departure_times: self.departure_times || general.departure_times,
        }
    }

    /// Asks for it on a TCP socket. The ECN bits remain the kernel's.
    ///
    /// # Errors
    ///
    /// If the kernel refuses an option, or departure times are wanted.
    pub fn apply_to_stream(&self, socket: impl AsFd) -> Result<(), NetworkQosError> {
        if self.departure_times {
            return Err(NetworkQosError::DepartureTimes);
        }
        self.apply(socket.as_fd())
    }

    /// Asks for DSCP, priority and pacing rate on a socket of datagrams to `to`, with the ECN bits that it has.
    ///
    /// # Errors
    ///
    /// If the kernel refuses an option, or has it without effect.
    pub fn apply_to_datagrams(&self, socket: impl AsFd, to: SocketAddr) -> Result<(), NetworkQosError> {
        self.check_towards(to)?;
        self.apply(socket.as_fd())
    }

    /// Whether what is asked for has an effect on datagrams to `to`.
    ///
    /// # Errors
    ///
    /// If a pacing rate or departure times are wanted and the interface does not have the queueing discipline `fq`.
    pub fn check_towards(&self, to: SocketAddr) -> Result<(), NetworkQosError> {
        let option = match (self.departure_times, self.max_rate) {
            (true, _) => "SO_TXTIME",
            (false, Some(_)) => "SO_MAX_PACING_RATE",
            (false, None) => return Ok(()),
        };
        let outlet = outlet_towards(to.ip())
            .map_err(|error| NetworkQosError::Refused { option, error: error.to_string() })?;
        if outlet.paces() {
            return Ok(());
        }
        let Outlet { interface, disciplines } = outlet;
        let found = if disciplines.is_empty() { "none".to_owned() } else { disciplines.join(", ") };
        Err(NetworkQosError::NoPacing { option, to, interface, found })
    }

    fn apply(&self, socket: BorrowedFd<'_>) -> Result<(), NetworkQosError> {
        if let Some(dscp) = self.dscp {
            let kept = traffic_class(socket).map_err(refused("IP_TOS"))? & ECN_BITS;
            set_traffic_class(socket, dscp.traffic_class() | kept).map_err(refused("IP_TOS"))?;
        }
        // After the DSCP, by which IPv4 selects a priority.
        if let Some(priority) = self.priority {
            set_priority(socket, priority)?;
        }
        if let Some(rate) = self.max_rate {
            set_max_rate(socket, Some(rate))?;
        }
        Ok(())
    }
}

/// The part of the traffic class that is not the DSCP (RFC 3168).
const ECN_BITS: u8 = 0b11;

fn refused(option: &'static str) -> impl FnOnce(io::Error) -> NetworkQosError {
    move |error| NetworkQosError::Refused { option, error: error.to_string() }
}

fn is_v6(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_domain(socket)? == AddressFamily::INET6)
}

/// The byte with DSCP and ECN that a socket's packets have.
///
/// # Errors
///
/// If the kernel refuses the query.
pub fn traffic_class(socket: impl AsFd) -> io::Result<u8> {
    let socket = socket.as_fd();
    Ok(if is_v6(socket)? { sockopt::ipv6_tclass(socket)? as u8 } else { sockopt::ip_tos(socket)? })
}

/// Sets the byte with DSCP and ECN. A TCP socket keeps its own ECN bits. A socket of the newer family sends to the older one too.
pub(crate) fn set_traffic_class(socket: BorrowedFd<'_>, class: u8) -> io::Result<()> {
    if is_v6(socket)? {
        sockopt::set_ipv6_tclass(socket, u32::from(class))?;
    }
    sockopt::set_ip_tos(socket, class)?;
    Ok(())
}

pub(crate) fn set_priority(socket: BorrowedFd<'_>, priority: u32) -> Result<(), NetworkQosError> {
    set(socket, libc::SO_PRIORITY, &priority).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => NetworkQosError::Priority(priority),
        _ => refused("SO_PRIORITY")(error),
    })
}

/// `None`: no limit.
pub(crate) fn set_max_rate(socket: BorrowedFd<'_>, rate: Option<Rate>) -> Result<(), NetworkQosError> {
    // Zero would stop the socket; the largest value is the kernel's for no limit.
    let bytes = rate.map_or(u64::MAX, |rate| (rate.bits_per_sec() / 8).max(1));
    set(socket, libc::SO_MAX_PACING_RATE, &bytes).map_err(refused("SO_MAX_PACING_RATE"))
}

/// Lets each datagram have a departure time by `CLOCK_MONOTONIC`, which is the clock of `fq`.
pub(crate) fn set_departure_times(socket: BorrowedFd<'_>) -> Result<(), NetworkQosError> {
    /// `struct sock_txtime` of `linux/net_tstamp.h`.
    #[repr(C)]
    struct SockTxtime {
        clock: libc::clockid_t,
        flags: u32,
    }
    let wanted = SockTxtime { clock: libc::CLOCK_MONOTONIC, flags: 0 };
    set(socket, libc::SO_TXTIME, &wanted).map_err(refused("SO_TXTIME"))
}

fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (start, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, start, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
