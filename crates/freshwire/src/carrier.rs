//! What takes chosen records to the wire: plain TCP, the ring inside the kernel's TCP, or A1.

use std::sync::Arc;

use freshwire_io::kernel_ring::{Geometry, KernelRingError, RingSocket};
use freshwire_io::tcp::TcpSocket;
use freshwire_media::framing::Framing;
use freshwire_ring::{AttachError, ClaimError, Config, Producer, Region};

use crate::sink::SinkConfig;

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
    /// Datagrams of another protocol, on a [`DatagramPath`](crate::DatagramPath).
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
    /// The framing makes its bytes when a record is begun, which the kernel cannot, or gives up begun records.
    #[error(
        "the kernel ring supports only raw and length-prefixed framing; use Carrier::Tcp or Carrier::Auto"
    )]
    Framing,
    /// The stream is encrypted record by record as it is begun.
    #[error("the kernel ring supports only unencrypted streams; use Carrier::Tcp or Carrier::Auto")]
    Sealed,
    /// What the kernel has mapped is not what this library understands.
    #[error("the kernel's ring is not one that this release understands")]
    Region(#[from] AttachError),
    /// The kernel's ring cannot be fed.
    #[error("the kernel's ring has a producer already")]
    Claim(#[from] ClaimError),
}

/// A ring in the kernel, and the right to fill it.
pub(crate) struct KernelRing {
    pub(crate) socket: Arc<RingSocket>,
    pub(crate) producer: Producer,
}

/// The carrier that a sink gets.
pub(crate) enum Chosen {
    /// With the reason, if another was wanted.
    Tcp(TcpSocket, Option<String>),
    Kernel(KernelRing),
}

/// Room for framing bytes in each block, so that what fits a sender's ring fits the kernel's.
const FRAMING_ROOM: u32 = 8;

/// Chooses the carrier of a sink whose records come from a ring of this size.
pub(crate) fn choose(socket: TcpSocket, config: &SinkConfig, ring: &Config) -> Result<Chosen, CarrierError> {
    if config.carrier == Carrier::Tcp {
        return Ok(Chosen::Tcp(socket, None));
    }
    let refused = match obstacle(config) {
        Some(error) => (socket, error),
        None => match RingSocket::attach(socket, &geometry(ring)) {
            Ok(socket) => return Ok(Chosen::Kernel(map(socket)?)),
            Err(refused) => (refused.socket, refused.error.into()),
        },
    };
    match (config.carrier, refused) {
        (Carrier::Kernel, (_, error)) => Err(error),
        (_, (socket, error)) => Ok(Chosen::Tcp(socket, Some(error.to_string()))),
    }
}

/// Whether the kernel can carry out all that is asked of a sink, so that the application fills its ring itself.
pub(crate) fn needs_no_engine(config: &SinkConfig) -> bool {
    config.policy.is_in_order() && config.framer.plain() == Some(Framing::Raw) && config.preface.is_empty()
}

fn obstacle(config: &SinkConfig) -> Option<CarrierError> {
    if config.seal.is_some() {
        return Some(CarrierError::Sealed);
    }
    match config.framer.plain() {
        Some(Framing::Raw | Framing::LengthPrefixed) => None,
        _ => Some(CarrierError::Framing),
    }
}

fn geometry(ring: &Config) -> Geometry {
    let block_bytes = ring.block_bytes.saturating_add(FRAMING_ROOM).min(freshwire_ring::MAX_BLOCK_BYTES);
    // A slot has one block at most.
    Geometry { slots: ring.slots, block_bytes, blocks: ring.blocks.min(ring.slots) }
}

fn map(socket: RingSocket) -> Result<KernelRing, CarrierError> {
    let mapping = socket.map()?;
    let (base, bytes) = (mapping.base(), mapping.bytes());
    // SAFETY: the mapping stays until the region drops it. The kernel keeps the memory for as long as it is mapped, at
    // the size it was made with, and nobody else in this process has its address.
    let region = unsafe { Region::from_memory(base, bytes, mapping) }?;
    Ok(KernelRing { socket: Arc::new(socket), producer: region.producer()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use crate::choice;

    fn chosen(config: SinkConfig) -> Result<Chosen, CarrierError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        choose(TcpSocket::new(stream).expect("a socket"), &config, &Config::default())
    }

    #[test]
    fn only_what_the_kernel_can_carry_out_goes_to_it_without_the_engine() {
        let direct = |config: SinkConfig| needs_no_engine(&config);
        assert!(direct(SinkConfig::new(choice::fifo())));
        assert!(direct(SinkConfig::new(choice::expiring())));
        assert!(!direct(SinkConfig::new(choice::deadline(Duration::ZERO))), "it predicts");
        assert!(!direct(SinkConfig::new(choice::latest())), "it reorders");
        assert!(!direct(SinkConfig::new(choice::fifo()).framing(Framing::LengthPrefixed)));
        assert!(!direct(SinkConfig::new(choice::fifo()).preface(vec![0])));
    }

    #[test]
    fn what_the_kernel_cannot_frame_stays_on_tcp_and_says_why() {
        let config = || SinkConfig::new(choice::fifo()).framing(Framing::Chunked);
        assert!(matches!(chosen(config()), Ok(Chosen::Tcp(_, None))));
        let Ok(Chosen::Tcp(_, Some(why))) = chosen(config().carrier(Carrier::Auto)) else {
            panic!("chunked framing is not the kernel's")
        };
        assert!(why.contains("length-prefixed"), "{why}");
        assert!(matches!(chosen(config().carrier(Carrier::Kernel)), Err(CarrierError::Framing)));
    }
}
