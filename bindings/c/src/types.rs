//! Structures of the interface. Times are nanoseconds, sizes bytes.

use freshwire::network::NetworkQos;
use freshwire::sink::{Carrier, Horizon};
use freshwire::{Framing, Rate, RingConfig, SinkConfig};
use std::ffi::c_char;
use std::time::Duration;

use crate::border::{Failure, Result, text};
use crate::common::structures::fw_ring;
use crate::policy::fw_policy;

/// Returns the default sizes: one ring of 1024 slots, 1024 blocks of 1448 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn fw_ring_default() -> fw_ring {
    RingConfig::default().into()
}

/// Returns sizes for `clients` at a time, each with a ring for the newest values of `keys` keys of at most `bytes` bytes. A
/// value is then never refused.
#[unsafe(no_mangle)]
pub extern "C" fn fw_ring_for_clients(clients: u32, keys: u32, bytes: u32) -> fw_ring {
    RingConfig::for_clients(clients, keys.min(1 << 24), bytes).into()
}

/// No value, where 0 is one.
pub const FW_DEFAULT: u64 = u64::MAX;

/// FW_RAW, FW_LENGTH_PREFIXED or FW_CHUNKED.
pub type fw_framing = u32;
/// Records back to back.
pub const FW_RAW: fw_framing = 0;
/// A 32-bit big-endian length before each record.
pub const FW_LENGTH_PREFIXED: fw_framing = 1;
/// Chunks, for fw_receiver: a record in progress can be given up.
pub const FW_CHUNKED: fw_framing = 2;

/// FW_TCP, FW_AUTO or FW_KERNEL.
pub type fw_carrier = u32;
/// Plain TCP.
pub const FW_TCP: fw_carrier = 0;
/// The kernel's ring if the module tcp_ldc is there, else plain TCP.
pub const FW_AUTO: fw_carrier = 1;
/// The kernel's ring, or a failure.
pub const FW_KERNEL: fw_carrier = 2;

/// Service asked of the network and of the queues of this host. From fw_sink_config_default or fw_node_config_default it asks for nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_network_qos {
    /// Differentiated services code point of each packet, its name such as "AF41" or its number as text; NULL keeps the socket's.
    pub dscp: *const c_char,
    /// Priority in the queues of this host (SO_PRIORITY); above 6 it needs CAP_NET_ADMIN. FW_DEFAULT keeps the socket's.
    pub priority: u64,
    /// Largest pacing rate (SO_MAX_PACING_RATE); 0 is no limit. Datagrams need the queueing discipline fq.
    pub max_rate: u64,
    /// 1: each datagram has a departure time (SO_TXTIME), at the agreed or the largest rate. Not for TCP.
    pub departure_times: u8,
}

impl fw_network_qos {
    pub(crate) const NOTHING: Self =
        Self { dscp: std::ptr::null(), priority: FW_DEFAULT, max_rate: 0, departure_times: 0 };

    /// # Safety
    ///
    /// `dscp` is NULL or a string.
    pub(crate) unsafe fn native(&self) -> Result<NetworkQos> {
        let mut qos = NetworkQos::default().departure_times(self.departure_times != 0);
        if !self.dscp.is_null() {
            // SAFETY: as the caller promises.
            let dscp = unsafe { text("dscp", self.dscp) }?;
            qos = qos.dscp(Some(dscp.parse().map_err(Failure::invalid)?));
        }
        if self.priority != FW_DEFAULT {
            qos = qos.priority(Some(number("priority", self.priority)?));
        }
        Ok(qos.max_rate((self.max_rate > 0).then(|| Rate::from_bits_per_sec(self.max_rate))))
    }
}

fn number(name: &str, value: u64) -> Result<u32> {
    u32::try_from(value).map_err(|_| Failure::invalid(format!("{name}={value}: at most 2**32 - 1 is wanted")))
}

/// Settings of a sink, from fw_sink_config_default. FW_DEFAULT leaves a default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_sink_config {
    /// Selects the record to send, to drop or to wait for.
    pub policy: fw_policy,
    /// How records lie in the stream.
    pub framing: fw_framing,
    /// What takes them to the wire.
    pub carrier: fw_carrier,
    /// Bytes committed and not on the wire.
    pub reserve: u64,
    /// Bound on the bottleneck's queue, as a time; 0 is no bound.
    pub queue_target: u64,
    /// Bound on the bytes that the receiving program has not read; 0 is no bound.
    pub max_unread: u64,
    /// Keys that the ring must have slots for.
    pub keys: u64,
    /// Time for a freed sink to deliver the record in progress.
    pub linger: u64,
    /// Time after which a peer that accepts no data is disconnected; 0 is never.
    pub stall_timeout: u64,
    /// Kernel name of the congestion control, such as "bbr"; NULL keeps the socket's.
    pub congestion: *const c_char,
    /// Shortest retransmission timeout (Linux 6.15 and later).
    pub min_rto: u64,
    /// Longest retransmission timeout (Linux 6.15 and later), at least one second.
    pub max_rto: u64,
    /// 1: fates wait for the acknowledgement; 0: a fate is complete when the last byte is handed over.
    pub ack_fates: u8,
    /// 1: fates say when the record's last byte entered the queueing discipline and left for the device. Plain TCP only, with ack_fates.
    pub departures: u8,
    /// Service asked of the network.
    pub network: fw_network_qos,
    /// Segments that the kernel's ring may commit before TCP can send them: 1, or 0 for none. For FW_AUTO and FW_KERNEL.
    pub kernel_horizon: u8,
    /// 1: packets refer to the memory of the kernel's ring, which costs more within one machine; 0: they are copied. For FW_AUTO
    /// and FW_KERNEL.
    pub kernel_zero_copy: u8,
}

impl fw_sink_config {
    /// Applies all but the policy.
    ///
    /// # Safety
    ///
    /// `congestion` and `network.dscp` are NULL or strings.
    pub(crate) unsafe fn apply(&self, mut config: SinkConfig) -> Result<SinkConfig> {
        let given = |value: u64| (value != FW_DEFAULT).then_some(value);
        config = config.framing(match self.framing {
            FW_RAW => Framing::Raw,
            FW_LENGTH_PREFIXED => Framing::LengthPrefixed,
            FW_CHUNKED => Framing::Chunked,
            other => {
                return Err(Failure::invalid(format!(
                    "framing={other}: FW_RAW, FW_LENGTH_PREFIXED or FW_CHUNKED is wanted"
                )));
            }
        });
        config = config.carrier(match self.carrier {
            FW_TCP => Carrier::Tcp,
            FW_AUTO => Carrier::Auto,
            FW_KERNEL => Carrier::Kernel,
            other => {
                return Err(Failure::invalid(format!(
                    "carrier={other}: FW_TCP, FW_AUTO or FW_KERNEL is wanted"
                )));
            }
        });
        if let Some(reserve) = given(self.reserve) {
            config = config.reserve(freshwire::sink::Reserve::Fixed(number("reserve", reserve)?));
        }
        if let Some(queue) = given(self.queue_target) {
            config = config.queue_target((queue > 0).then(|| Duration::from_nanos(queue)));
        }
        if let Some(unread) = given(self.max_unread) {
            let unread = number("max_unread", unread)?;
            config = config.max_unread((unread > 0).then_some(unread));
        }
        if let Some(keys) = given(self.keys) {
            config = config.keys(number("keys", keys)?);
        }
        if let Some(linger) = given(self.linger) {
            config = config.linger(Duration::from_nanos(linger));
        }
        if let Some(stall) = given(self.stall_timeout) {
            config = config.stall_timeout((stall > 0).then(|| Duration::from_nanos(stall)));
        }
        if !self.congestion.is_null() {
            // SAFETY: as the caller promises.
            config = config.congestion(unsafe { text("congestion", self.congestion) }?);
        }
        if let Some(rto) = given(self.min_rto) {
            config = config.min_rto(Duration::from_nanos(rto));
        }
        if let Some(rto) = given(self.max_rto) {
            config = config.max_rto(Duration::from_nanos(rto));
        }
        // SAFETY: as the caller promises.
        config = config.network(unsafe { self.network.native() }?);
        config = config.kernel_horizon(match self.kernel_horizon {
            0 => Horizon::Nothing,
            1 => Horizon::OneSegment,
            other => return Err(Failure::invalid(format!("kernel_horizon={other}: 0 or 1 is wanted"))),
        });
        config = config.kernel_zero_copy(self.kernel_zero_copy != 0);
        Ok(config.ack_fates(self.ack_fates != 0).departures(self.departures != 0))
    }
}

/// Returns the default settings, with the policy that sends everything in order.
#[unsafe(no_mangle)]
pub extern "C" fn fw_sink_config_default() -> fw_sink_config {
    fw_sink_config {
        policy: fw_policy::default(),
        framing: FW_RAW,
        carrier: FW_TCP,
        reserve: FW_DEFAULT,
        queue_target: FW_DEFAULT,
        max_unread: FW_DEFAULT,
        keys: FW_DEFAULT,
        linger: FW_DEFAULT,
        stall_timeout: FW_DEFAULT,
        congestion: std::ptr::null(),
        min_rto: FW_DEFAULT,
        max_rto: FW_DEFAULT,
        ack_fates: 1,
        departures: 0,
        network: fw_network_qos::NOTHING,
        kernel_horizon: 1,
        kernel_zero_copy: 0,
    }
}
