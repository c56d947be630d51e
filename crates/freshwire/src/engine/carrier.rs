//! The carrier of a TCP sink: what was asked for, as far as the kernel and the framing permit.

use std::sync::Arc;

use freshwire_io::kernel_ring::{Geometry, RingSocket};
use freshwire_io::tcp::TcpSocket;
use freshwire_media::framing::Framing;
use freshwire_ring::{Config, Producer, Region};

use crate::carrier::{Carrier, CarrierError};
use crate::sink::config::SinkConfig;

/// A ring in the kernel, and the right to fill it.
pub(crate) struct KernelRing {
    pub(crate) socket: Arc<RingSocket>,
    pub(crate) producer: Producer,
}

/// The carrier that a sink gets.
pub(crate) enum CarrierChoice {
    /// With the reason, if another was wanted.
    Tcp(TcpSocket, Option<String>),
    Kernel(KernelRing),
}

/// Room for framing bytes in each block, so that what fits a sender's ring fits the kernel's.
const FRAMING_ROOM: u32 = 8;

/// Chooses the carrier of a sink whose records come from a ring of this size.
pub(crate) fn choose(
    socket: TcpSocket,
    config: &SinkConfig,
    ring: &Config,
) -> Result<CarrierChoice, CarrierError> {
    if config.carrier == Carrier::Tcp {
        return Ok(CarrierChoice::Tcp(socket, None));
    }
    let refused = match obstacle(config) {
        Some(error) => (socket, error),
        None => match RingSocket::attach(socket, &geometry(ring)) {
            Ok(socket) => return Ok(CarrierChoice::Kernel(map(socket)?)),
            Err(refused) => (refused.socket, refused.error.into()),
        },
    };
    match (config.carrier, refused) {
        (Carrier::Kernel, (_, error)) => Err(error),
        (_, (socket, error)) => Ok(CarrierChoice::Tcp(socket, Some(error.to_string()))),
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
    if config.departures {
        return Some(CarrierError::Departures);
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

    fn chosen(config: SinkConfig) -> Result<CarrierChoice, CarrierError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        choose(TcpSocket::new(stream).expect("a socket"), &config, &Config::default())
    }

    #[test]
    fn only_sinks_that_the_kernel_can_serve_bypass_the_engine() {
        let direct = |config: SinkConfig| needs_no_engine(&config);
        assert!(direct(SinkConfig::new(choice::fifo())));
        assert!(direct(SinkConfig::new(choice::expiring())));
        assert!(!direct(SinkConfig::new(choice::deadline(Duration::ZERO))), "it predicts");
        assert!(!direct(SinkConfig::new(choice::latest())), "it reorders");
        assert!(!direct(SinkConfig::new(choice::fifo()).framing(Framing::LengthPrefixed)));
        assert!(!direct(SinkConfig::new(choice::fifo()).preface(vec![0])));
    }

    #[test]
    fn a_framing_unknown_to_the_kernel_stays_on_tcp_and_says_why() {
        let config = || SinkConfig::new(choice::fifo()).framing(Framing::Chunked);
        assert!(matches!(chosen(config()), Ok(CarrierChoice::Tcp(_, None))));
        let Ok(CarrierChoice::Tcp(_, Some(why))) = chosen(config().carrier(Carrier::Auto)) else {
            panic!("chunked framing is not the kernel's")
        };
        assert!(why.contains("length-prefixed"), "{why}");
        assert!(matches!(chosen(config().carrier(Carrier::Kernel)), Err(CarrierError::Framing)));
    }
}
