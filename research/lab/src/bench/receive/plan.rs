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

/// The task of a process of the bench.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Plan {
    Send { to: SocketAddr, rate: u64, count: u64 },
    Stall { method: Method, rate: u64, count: u64, seed: u64 },
    Slow { rule: Rule, rate: u64, count: u64 },
}
