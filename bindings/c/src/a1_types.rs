//! Settings of A1. Times are nanoseconds, rates bits per second, sizes bytes.

use std::ffi::c_char;
use std::net::Ipv4Addr;
use std::time::Duration;

use freshwire::a1::{
    self, Congestion, Interface, JoinConfig, NodeConfig, Protection, PublicKey, Rate, StaticKey,
};

use crate::border::{Failure, Result, slice, text};
use crate::types::{FW_DEFAULT, fw_network_qos};

/// Quality of service of a connection, from this end's view; from fw_qos_default. The receiver may narrow what the sender asks
/// for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct fw_qos {
    /// Average rate at which this end sends; 0 is no limit.
    pub send_average: u64,
    /// Average rate at which this end is willing to receive; 0 is no limit.
    pub receive_average: u64,
    /// Bytes that may go at once above the average.
    pub send_burst: u32,
    /// Bytes that may come at once above the average.
    pub receive_burst: u32,
    /// The largest message that this end sends; at most 64 MiB.
    pub max_send_message: u32,
    /// The largest message that this end accepts; at most 64 MiB.
    pub max_receive_message: u32,
    /// Messages that may be sent and not yet consumed by the receiving application, from 1 to 65536.
    pub outstanding: u32,
    /// Which connection of a node goes first where several have something to send; a higher one does. One turn in 16 goes to the
    /// one that waits longest of the lowest.
    pub priority: u8,
    /// 1: packets that are not encrypted carry a checksum.
    pub checksum: u8,
    /// 1: lost blocks are sent again while their message is worth it.
    pub retransmission: u8,
}

impl From<a1::Qos> for fw_qos {
    fn from(qos: a1::Qos) -> Self {
        let rate = |rate: Option<Rate>| rate.map_or(0, Rate::bits_per_sec);
        Self {
            send_average: rate(qos.send_average),
            receive_average: rate(qos.receive_average),
            send_burst: qos.send_burst,
            receive_burst: qos.receive_burst,
            max_send_message: qos.max_send_message,
            max_receive_message: qos.max_receive_message,
            outstanding: qos.outstanding,
            priority: qos.priority,
            checksum: qos.checksum.into(),
            retransmission: qos.retransmission.into(),
        }
    }
}

impl fw_qos {
    /// The same as the library has it, in range.
    pub(crate) fn checked(&self) -> Result<a1::Qos> {
        let rate = |bits: u64| (bits > 0).then(|| Rate::from_bits_per_sec(bits));
        let qos = a1::Qos {
            send_average: rate(self.send_average),
            send_burst: self.send_burst,
            receive_average: rate(self.receive_average),
            receive_burst: self.receive_burst,
            priority: self.priority,
            checksum: self.checksum != 0,
            retransmission: self.retransmission != 0,
            max_send_message: self.max_send_message,
            max_receive_message: self.max_receive_message,
            outstanding: self.outstanding,
        };
        qos.check_range()?;
        Ok(qos)
    }
}

/// Returns the default: no limit of rate, messages of up to 1 MiB, 1024 outstanding, checksum and retransmission.
#[unsafe(no_mangle)]
pub extern "C" fn fw_qos_default() -> fw_qos {
    a1::Qos::default().into()
}

/// FW_AEAD, FW_DANGEROUS_PLAIN or FW_OTHER_PROTECTION.
pub type fw_protection = u32;
/// Encrypted and authenticated.
pub const FW_AEAD: fw_protection = 0;
/// Readable and forgeable by everybody on the path. For closed networks only.
pub const FW_DANGEROUS_PLAIN: fw_protection = 1;
/// Another one, of a later release.
pub const FW_OTHER_PROTECTION: fw_protection = 2;

/// FW_COPA, FW_CUBIC or FW_NEWRENO.
pub type fw_congestion = u32;
/// Copa, by delay.
pub const FW_COPA: fw_congestion = 0;
/// CUBIC, as a reference.
pub const FW_CUBIC: fw_congestion = 1;
/// NewReno, as a reference.
pub const FW_NEWRENO: fw_congestion = 2;

pub(crate) fn protection_code(protection: Protection) -> fw_protection {
    match protection {
        Protection::Aead => FW_AEAD,
        Protection::DangerousPlain => FW_DANGEROUS_PLAIN,
        _ => FW_OTHER_PROTECTION,
    }
}

/// Settings of a node, from fw_node_config_default. FW_DEFAULT leaves a default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fw_node_config {
    /// The node's private key as text; NULL for a new one.
    pub private_key: *const c_char,
    /// A secret that both ends share, as 64 hexadecimal digits; NULL for none. A peer without it cannot connect.
    pub psk: *const c_char,
    /// Public keys of the peers that may connect, as text; NULL for all peers.
    pub allowed: *const *const c_char,
    /// How many keys `allowed` has.
    pub allowed_count: usize,
    /// Interface on which the node joins groups, its number or IPv4 address as text; NULL for that of the connection.
    pub join_interface: *const c_char,
    /// Upper limit of the quality of service of the node's connections.
    pub maximum: fw_qos,
    /// Silence that ends a connection.
    pub idle_timeout: u64,
    /// Silence after which a packet is sent, so that neither the peer nor a NAT forgets the connection; 0 is never.
    pub keep_alive: u64,
    /// Longest delay of an acknowledgement.
    pub ack_delay: u64,
    /// Incoming connections that may wait for fw_node_accept.
    pub backlog: u64,
    /// Size of the kernel's receive buffer.
    pub receive_buffer: u64,
    /// Time for which a waiting thread polls the socket before it sleeps; 0 is not at all.
    pub busy_poll: u64,
    /// Time without an answer over UDP after which a new connection tries TCP as well, with tcp_fallback; 10 ms to 2 s.
    pub attempt_delay: u64,
    /// Multicast groups that the node joins on invitation; 0 is none.
    pub join_most: u64,
    /// Weakest protection that this end accepts.
    pub protection: fw_protection,
    /// Congestion control.
    pub congestion: fw_congestion,
    /// Largest UDP payload to try; 0 is that of the network interface.
    pub max_datagram: u16,
    /// 1: peers may connect.
    pub accept: u8,
    /// 1: the application decides about each incoming connection, with fw_node_incoming.
    pub ask: u8,
    /// 1: packets carry the ECN mark.
    pub ecn: u8,
    /// 1: messages are delivered in sending order, as a stream needs it.
    pub in_order: u8,
    /// 1: messages get parity where there is no time for a second repair.
    pub fec: u8,
    /// Layers, from layer 0 on, whose messages get parity before any other message is sent.
    pub fec_layers: u8,
    /// 1: connections go over TCP, at the same port, where UDP does not pass; both ends have to permit it.
    pub tcp_fallback: u8,
    /// 1: each connection's agreed quality of service becomes that of the network, where `network` leaves it open. A priority p is class
    /// selector p, at most CS5, and SO_PRIORITY p, at most 6. With departure times its datagrams leave at its average rate.
    pub translate: u8,
    /// Service asked of the network for all datagrams of the node. Connections towards an interface without fq are refused if a rate or
    /// departure times are set.
    pub network: fw_network_qos,
}

/// Returns the default settings of a node: a new key, all peers, and the default quality of service.
#[unsafe(no_mangle)]
pub extern "C" fn fw_node_config_default() -> fw_node_config {
    fw_node_config {
        private_key: std::ptr::null(),
        psk: std::ptr::null(),
        allowed: std::ptr::null(),
        allowed_count: 0,
        join_interface: std::ptr::null(),
        maximum: fw_qos_default(),
        idle_timeout: FW_DEFAULT,
        keep_alive: 0,
        ack_delay: FW_DEFAULT,
        backlog: FW_DEFAULT,
        receive_buffer: FW_DEFAULT,
        busy_poll: FW_DEFAULT,
        attempt_delay: FW_DEFAULT,
        join_most: 0,
        protection: FW_AEAD,
        congestion: FW_COPA,
        max_datagram: 0,
        accept: 1,
        ask: 0,
        ecn: 1,
        in_order: 0,
        fec: 1,
        fec_layers: 0,
        tcp_fallback: 0,
        translate: 0,
        network: fw_network_qos::NOTHING,
    }
}

/// Settings with a private key; NULL is a new one.
///
/// # Safety
///
/// `private_key` is NULL or a string.
pub(crate) unsafe fn with_key(private_key: *const c_char) -> Result<NodeConfig> {
    if private_key.is_null() {
        return Ok(NodeConfig::new()?);
    }
    // SAFETY: as the caller promises.
    let key = unsafe { text("private_key", private_key) }?;
    Ok(NodeConfig::with_key(key.parse::<StaticKey>().map_err(Failure::invalid)?))
}

impl fw_node_config {
    /// # Safety
    ///
    /// The strings are NULL or strings, and `allowed` is NULL or points to `allowed_count` of them.
    pub(crate) unsafe fn native(&self) -> Result<NodeConfig> {
        // SAFETY: as the caller promises.
        let mut config = unsafe { with_key(self.private_key) }?;
        if !self.psk.is_null() {
            // SAFETY: as the caller promises.
            let psk = unsafe { text("psk", self.psk) }?;
            config.endpoint.psk = Some(psk.parse().map_err(Failure::invalid)?);
        }
        if !self.allowed.is_null() {
            // SAFETY: as the caller promises.
            let allowed = unsafe { slice(self.allowed, self.allowed_count) }?;
            let key = |key: &*const c_char| {
                // SAFETY: as the caller promises.
                let key = unsafe { text("allowed", *key) }?;
                key.parse::<PublicKey>().map_err(Failure::invalid)
            };
            config.endpoint.allowed = Some(allowed.iter().map(key).collect::<Result<_>>()?);
        }
        if self.join_most > 0 {
            let mut join = JoinConfig::default().most(number("join_most", self.join_most)?);
            if !self.join_interface.is_null() {
                // SAFETY: as the caller promises.
                let interface = unsafe { text("join_interface", self.join_interface) }?;
                join = join.interface(parse_interface("join_interface", interface)?);
            }
            config = config.join(join);
        }
        self.apply(&mut config)?;
        // SAFETY: as the caller promises.
        config.network = unsafe { self.network.native() }?;
        Ok(config)
    }

    /// Applies what has no pointers.
    fn apply(&self, config: &mut NodeConfig) -> Result<()> {
        let given = |value: u64| (value != FW_DEFAULT).then_some(value);
        config.endpoint.accept = self.accept != 0;
        config.ask = self.ask != 0;
        if let Some(backlog) = given(self.backlog) {
            config.backlog = number("backlog", backlog)?;
        }
        if let Some(bytes) = given(self.receive_buffer) {
            config.receive_buffer = number("receive_buffer", bytes)?;
        }
        if let Some(time) = given(self.busy_poll) {
            config.busy_poll = (time > 0).then(|| Duration::from_nanos(time));
        }
        if let Some(time) = given(self.attempt_delay) {
            config.attempt_delay = Duration::from_nanos(time);
        }
        config.tcp_fallback = self.tcp_fallback != 0;
        config.translate = self.translate != 0;
        let connection = &mut config.connection;
        connection.maximum = self.maximum.checked()?;
        connection.protection = match self.protection {
            FW_AEAD => Protection::Aead,
            FW_DANGEROUS_PLAIN => Protection::DangerousPlain,
            other => {
                return Err(Failure::invalid(format!(
                    "protection={other}: FW_AEAD or FW_DANGEROUS_PLAIN is wanted"
                )));
            }
        };
        connection.congestion = match self.congestion {
            FW_COPA => Congestion::Copa,
            FW_CUBIC => Congestion::Cubic,
            FW_NEWRENO => Congestion::NewReno,
            other => {
                return Err(Failure::invalid(format!(
                    "congestion={other}: FW_COPA, FW_CUBIC or FW_NEWRENO is wanted"
                )));
            }
        };
        if let Some(time) = given(self.idle_timeout) {
            connection.idle_timeout = Duration::from_nanos(time);
        }
        connection.keep_alive = given(self.keep_alive).filter(|time| *time > 0).map(Duration::from_nanos);
        if let Some(time) = given(self.ack_delay) {
            connection.ack_delay = Duration::from_nanos(time);
        }
        connection.max_datagram = (self.max_datagram > 0).then_some(self.max_datagram);
        connection.ecn = self.ecn != 0;
        connection.in_order = self.in_order != 0;
        connection.fec = self.fec != 0;
        connection.fec_layers = self.fec_layers;
        Ok(())
    }
}

fn number(name: &str, value: u64) -> Result<usize> {
    // A larger number is more than a system call takes, and more than any list may hold.
    match value <= u64::from(u32::MAX) {
        true => Ok(value as usize),
        false => Err(Failure::invalid(format!("{name}={value}: at most 2**32 - 1 is wanted"))),
    }
}

/// An interface's number or IPv4 address.
pub(crate) fn parse_interface(name: &str, text: &str) -> Result<Interface> {
    if let Ok(number) = text.parse() {
        return Ok(Interface::Number(number));
    }
    let address: Ipv4Addr = text.parse().map_err(|_| {
        Failure::invalid(format!("{name}={text}: an interface's number or IPv4 address is wanted"))
    })?;
    Ok(Interface::Of(address))
}
