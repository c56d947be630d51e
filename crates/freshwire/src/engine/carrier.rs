//! The carrier of a TCP sink: what was asked for, as far as the kernel and the framing permit.

use std::sync::Arc;

use freshwire_io::kernel_ring::{Geometry, Horizon, KernelRingError, RingSocket};
use freshwire_io::tcp::TcpSocket;
use freshwire_media::framing::Framing;
use freshwire_ring::{Config, MAX_KEPT_FATES, Producer, Region};

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

/// Chooses the carrier of a sink whose records come from a ring of this size. The application `may_be_direct`: fill the kernel's ring.
pub(crate) fn choose(
    socket: TcpSocket,
    config: &SinkConfig,
    ring: &Config,
    may_be_direct: bool,
) -> Result<CarrierChoice, CarrierError> {
    if config.carrier == Carrier::Tcp {
        check_no_kernel_settings(config)?;
        return Ok(CarrierChoice::Tcp(socket, None));
    }
    // What the engine fills keeps its slots until it is acknowledged.
    let is_direct = may_be_direct && needs_no_engine(config);
    let keep_acks = if is_direct && config.ack_fates { MAX_KEPT_FATES as u32 } else { 0 };
    let refused = match obstacle(config) {
        Some(error) => (socket, error),
        None => match RingSocket::attach(socket, &geometry(ring, keep_acks)) {
            Ok(socket) => return Ok(CarrierChoice::Kernel(prepare(socket, config)?)),
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

fn geometry(ring: &Config, keep_acks: u32) -> Geometry {
    let block_bytes = ring.block_bytes.saturating_add(FRAMING_ROOM).min(freshwire_ring::MAX_BLOCK_BYTES);
    // A slot has one block at most.
    Geometry { slots: ring.slots, block_bytes, blocks: ring.blocks.min(ring.slots), keep_acks }
}

/// Refuses settings that plain TCP would ignore.
fn check_no_kernel_settings(config: &SinkConfig) -> Result<(), CarrierError> {
    let settings = [
        ("kernel_watch", config.kernel_watch.is_some()),
        ("kernel_horizon", config.kernel_horizon != Horizon::default()),
        ("kernel_zero_copy", config.kernel_zero_copy),
    ];
    match settings.into_iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(CarrierError::KernelSetting(name)),
        None => Ok(()),
    }
}

/// Sets the ring's options and maps it.
fn prepare(socket: RingSocket, config: &SinkConfig) -> Result<KernelRing, CarrierError> {
    socket.set_horizon(config.kernel_horizon).map_err(KernelRingError::Io)?;
    socket.set_zero_copy(config.kernel_zero_copy).map_err(KernelRingError::Io)?;
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
        choose(TcpSocket::new(stream).expect("a socket"), &config, &Config::default(), true)
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
    fn plain_tcp_ignores_no_setting_of_the_kernel_ring() {
        type Change = fn(SinkConfig) -> SinkConfig;
        let changes: [(&str, Change); 3] = [
            ("kernel_watch", |config| config.kernel_watch(Some(Duration::from_millis(5)))),
            ("kernel_horizon", |config| config.kernel_horizon(Horizon::Nothing)),
            ("kernel_zero_copy", |config| config.kernel_zero_copy(true)),
        ];
        for (name, change) in changes {
            let config = || change(SinkConfig::new(choice::fifo()));
            let Err(error) = chosen(config()) else { panic!("{name} was ignored") };
            assert!(
                error.to_string().contains(&format!("{name} is a setting of the kernel ring")),
                "{error}"
            );
            assert!(error.to_string().contains("Carrier::Auto"), "{error}");
            // Where the ring is missing or does not suit the framing, the sink says so instead.
            let auto = config().carrier(Carrier::Auto).framing(Framing::Chunked);
            assert!(matches!(chosen(auto), Ok(CarrierChoice::Tcp(_, Some(_)))), "{name}");
        }
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
