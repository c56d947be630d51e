//! The carriers of chosen records to the wire: plain TCP, the ring inside the kernel's TCP, or A1.

use freshwire_io::kernel_ring::KernelRingError;
use freshwire_ring::{AttachError, ClaimError};

/// Requested carrier of a sink's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// Plain TCP, on any kernel: the engine writes a record when the socket's unsent queue is almost empty.
    #[default]
    Tcp,
    /// The kernel's ring if the module `tcp_ldc` is there and the framing permits, else plain TCP;
    /// [`Sink::fallback`](crate::Sink::fallback) says why.
    Auto,
    /// The kernel's ring, or a [`CarrierError`].
    Kernel,
}

/// Carrier that a sink uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CarrierInUse {
    /// Plain TCP.
    #[default]
    Tcp,
    /// The kernel's ring, which the application fills without the engine: the policy sends in order, so that the kernel
    /// carries it out.
    KernelRing,
    /// The kernel's ring, which the engine fills with the records that the policy chooses.
    KernelFed,
    /// A1, over UDP.
    A1,
    /// A1, over TCP: UDP does not pass, and [`NodeConfig::tcp_fallback`](crate::a1::NodeConfig::tcp_fallback) permits it.
    A1OverTcp,
    /// Datagrams of another protocol, on a [`DatagramPath`](crate::datagram::DatagramPath).
    Datagrams,
}

impl CarrierInUse {
    /// Name for logs, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::KernelRing => "kernel-ring",
            Self::KernelFed => "kernel-fed",
            Self::A1 => "a1",
            Self::A1OverTcp => "a1-over-tcp",
            Self::Datagrams => "datagrams",
        }
    }
}

/// Reason for which a sink cannot use the kernel ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// The kernel gives none.
    #[error(transparent)]
    Kernel(#[from] KernelRingError),
    /// The framing creates its bytes at the commit point, which the kernel cannot do, or abandons records in progress.
    #[error(
        "the kernel ring supports only raw and length-prefixed framing; use Carrier::Tcp or Carrier::Auto"
    )]
    Framing,
    /// The stream is encrypted record by record at the commit point.
    #[error("the kernel ring supports only unencrypted streams; use Carrier::Tcp or Carrier::Auto")]
    Sealed,
    /// The sink notes departures.
    #[error("the kernel ring does not note departures; use Carrier::Tcp or Carrier::Auto")]
    Departures,
    /// A setting of the kernel's ring, for a sink on plain TCP.
    #[error("{0} is a setting of the kernel ring: use Carrier::Auto, or leave it at its default")]
    KernelSetting(&'static str),
    /// The preface is larger than the kernel's ring.
    #[error("the preface of the stream is larger than the kernel's ring; use Carrier::Tcp or a larger ring")]
    Preface,
    /// The kernel's mapping has another layout than this library.
    #[error("the kernel's ring is not one that this release understands")]
    Region(#[from] AttachError),
    /// The kernel's ring cannot be fed.
    #[error("the kernel's ring has a producer already")]
    Claim(#[from] ClaimError),
}
