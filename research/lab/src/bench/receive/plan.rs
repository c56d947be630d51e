//! The tasks of the processes of `bench receive`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Kernel buffer in bytes.
pub(super) const KERNEL_BUFFER: usize = 256 << 10;
/// Deadline of [`Rule::Deadline`].
pub(super) const DEADLINE: Duration = Duration::from_millis(50);
/// Keys of [`Rule::LatestByKey`].
pub(super) const KEYS: u64 = 50;

/// How a program receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(super) enum Method {
    Recv,
    Recvmmsg,
    Large,
    /// A buffer that grows when a thread beside finds it half full, or datagrams lost.
    Monitored,
    /// A receiving thread of real-time priority.
    RealTime,
    PacketRing,
    PushThread,
    PushUring,
    Preloaded,
    Module,
}

impl Method {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Recv => "recv",
            Self::Recvmmsg => "recvmmsg of 32",
            Self::Large => "recv, largest buffer",
            Self::Monitored => "recv, buffer by monitoring",
            Self::RealTime => "recv, real-time reader",
            Self::PacketRing => "TPACKET_V3",
            Self::PushThread => "push by a thread",
            Self::PushUring => "push by io_uring",
            Self::Preloaded => "recv, preloaded",
            Self::Module => "push by the kernel module",
        }
    }
}

/// The drop rule for a program that is always too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Rule {
    Kernel,
    Newest,
    Deadline,
    LatestByKey,
}

impl Rule {
    pub(super) fn text(self) -> String {
        match self {
            Self::Kernel => "recv, largest buffer".to_owned(),
            Self::Newest => "push, the kernel's rule".to_owned(),
            Self::Deadline => format!("push, deadline of {} ms", DEADLINE.as_millis()),
            Self::LatestByKey => format!("push, newest of each of {} keys", KEYS),
        }
    }
}

/// What a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Traffic {
    /// Datagrams a second, and altogether.
    pub(super) rate: u64,
    pub(super) count: u64,
    /// Payload of a datagram, in bytes.
    pub(super) len: usize,
    /// Datagrams that one call sends (`UDP_SEGMENT`); loopback and other paths with offload pass them together.
    pub(super) segments: usize,
}

/// A receiver's account.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) received: u64,
    /// Processor time of the receiving process.
    pub(super) cpu_ns: f64,
    /// Median over stalls of the mean time of a receive after it.
    pub(super) take_ns: f64,
    /// Ages at the slow receiver: from sending to reading, in the order of reading.
    pub(super) ages_ns: Vec<u64>,
    /// Share of a processor that the program beside has got, and the longest time in which it got nothing.
    pub(super) beside: f64,
    pub(super) beside_waits_ns: f64,
}

/// The task of a process of the bench.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Plan {
    Send {
        to: SocketAddr,
        traffic: Traffic,
    },
    Stall {
        method: Method,
        traffic: Traffic,
        seed: u64,
    },
    /// As `Stall`, on one processor with [`Plan::Beside`], and with stalls that compute.
    Shared {
        method: Method,
        traffic: Traffic,
        seed: u64,
    },
    /// A program that computes for this long.
    Beside {
        time: Duration,
    },
    Slow {
        rule: Rule,
        traffic: Traffic,
    },
}
