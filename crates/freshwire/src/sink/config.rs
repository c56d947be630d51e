use std::time::Duration;

use freshwire_choice::Choice;
use freshwire_io::kernel_ring::Horizon;
use freshwire_io::network::NetworkQos;
use freshwire_media::framing::{Framer, Framing};

use super::reserve::Reserve;
use super::seal::Seal;
use crate::carrier::Carrier;

/// Default bound on the bottleneck queue that a sink may build.
pub const DEFAULT_QUEUE_TARGET: Duration = Duration::from_millis(50);

/// Default bound on unread bytes for state policies: some ten to a hundred values of the usual sizes.
pub const DEFAULT_MAX_UNREAD: u32 = 10 << 10;

/// Default time for a dropped sink to deliver the record in progress.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(30);

/// Configuration of one destination.
#[non_exhaustive]
pub struct SinkConfig {
    /// Selects the record to send, at each commit point.
    pub policy: Box<dyn Choice>,
    /// Carrier of the records. Default: [`Carrier::Tcp`].
    pub carrier: Carrier,
    /// Framing of the records; keeps the stream valid when records are dropped. Default: [`Framing::Raw`],
    /// records back to back.
    pub framer: Box<dyn Framer>,
    /// Encrypts the stream. Default: none.
    pub seal: Option<Box<dyn Seal>>,
    /// Bytes sent before the stream and its framing. Default: none.
    pub preface: Vec<u8>,
    /// Bound on the bytes that are committed and not on the wire. Default: [`Reserve::Auto`].
    pub reserve: Reserve,
    /// Bound on the bottleneck queue that this sink may build, as a time. Beyond it records stay in the ring,
    /// where they can still be dropped; a short queue also reveals lost segments sooner. Default:
    /// [`DEFAULT_QUEUE_TARGET`]. `None` leaves the queue to the congestion control, and
    /// [`CarrierInUse::KernelRing`](crate::sink::CarrierInUse::KernelRing) always does.
    pub queue_target: Option<Duration>,
    /// Bound on the bytes that the receiving program has not read. TCP acknowledges data before the program reads it. Beyond the
    /// bound records stay in the ring, where newer values replace them. Plain TCP only.
    ///
    /// The bound is exact for a peer on this machine and rough for any other: see [`UnreadBy`](crate::stats::UnreadBy). For distant
    /// readers use a [gate](freshwire_choice::gate()), a small `SO_RCVBUF` at the receiver, or A1.
    ///
    /// Default: [`DEFAULT_MAX_UNREAD`] if the policy [is for state](Choice::is_for_state), else `None`.
    pub max_unread: Option<u32>,
    /// Largest number of keys. A sink whose ring has [too few slots](freshwire_ring::Config::slots_for) for
    /// the newest value of each key is refused. Default: `None`, not checked.
    pub keys: Option<u32>,
    /// Service asked of the network: DSCP, priority and pacing rate. For all carriers on TCP; the sockets of a
    /// [`DatagramPath`](crate::datagram::DatagramPath) are the application's. Default: nothing.
    pub network: NetworkQos,
    /// The kernel name of the congestion control; `None` keeps the socket's.
    pub congestion: Option<String>,
    /// Shortest retransmission timeout (Linux 6.15 and later). `None` keeps the kernel's 200 ms.
    pub min_rto: Option<Duration>,
    /// Longest retransmission timeout (Linux 6.15 and later), at least one second: the longest pause before
    /// the path is tried again in an outage. `None` keeps the kernel's two minutes.
    pub max_rto: Option<Duration>,
    /// Time for a dropped sink to deliver the record in progress. Default: [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// Time after which a peer that accepts no data, although there is some, is disconnected. Default:
    /// `None`; TCP gives up after some fifteen minutes.
    pub stall_timeout: Option<Duration>,
    /// Whether fates wait for the acknowledgement, over TCP. If `false`, a fate is complete when the last
    /// byte is handed over, which is less work with many receivers. Default: `true`. The kernel ring reports
    /// acknowledgements in any case; if `true`, also those of records whose slots were used again, for which the kernel takes 640 KiB.
    pub ack_fates: bool,
    /// Whether fates say when the record's last byte [entered the queueing discipline](crate::Fate::scheduled_at) and
    /// [left for the device](crate::Fate::departed_at), by the kernel's timestamps: those of its first
    /// transmission. Over plain TCP, with `ack_fates`: each record is then a write of its own, and costs three more system calls. Over
    /// datagrams, if the [path](crate::datagram::DatagramPath::notes_departures) notes them. Records that wait for notes take at most half of
    /// the ring; the oldest beyond that have the times that are known by then. For A1 see
    /// [its configuration](crate::a1::SinkConfig::departures). Default: `false`.
    pub departures: bool,
    /// Interval at which the kernel polls an empty ring, for [`CarrierInUse::KernelRing`](crate::sink::CarrierInUse::KernelRing) only, at most a
    /// second. A steady stream then makes one system call, and a record that finds the ring empty waits for
    /// the next poll. Default: `None`; the kernel sleeps, and the next record wakes it with a system call.
    ///
    /// With [`Carrier::Tcp`] an interval is a [`CarrierError`](super::CarrierError).
    pub kernel_watch: Option<Duration>,
    /// Segments that the kernel's ring may commit before TCP can send them. Default: [`Horizon::OneSegment`]. With
    /// [`Horizon::Nothing`] a record can be dropped for up to a round trip longer. A congestion control that paces, such as bbr,
    /// then leaves most of the link idle, and a lossy link carries up to half less.
    ///
    /// With [`Carrier::Tcp`] another value than the default is a [`CarrierError`](super::CarrierError).
    pub kernel_horizon: Horizon,
    /// Whether packets refer to the memory of the kernel's ring instead of a copy. For records of 4 KiB and more, sent through a
    /// network card by a program that the processor limits; not measured there. Between programs of one machine it costs more:
    /// over a virtual link it had 0.57 of the throughput of `send()`, copying 1.12. A record keeps its slots until it is
    /// acknowledged. Default: `false`.
    ///
    /// With [`Carrier::Tcp`], `true` is a [`CarrierError`](super::CarrierError).
    pub kernel_zero_copy: bool,
}

impl SinkConfig {
    /// Creates the default configuration with this policy.
    pub fn new(policy: impl Choice + 'static) -> Self {
        Self {
            max_unread: policy.is_for_state().then_some(DEFAULT_MAX_UNREAD),
            keys: None,
            policy: Box::new(policy),
            carrier: Carrier::default(),
            framer: Framing::Raw.into(),
            seal: None,
            preface: Vec::new(),
            reserve: Reserve::Auto,
            queue_target: Some(DEFAULT_QUEUE_TARGET),
            network: NetworkQos::default(),
            congestion: None,
            min_rto: None,
            max_rto: None,
            linger: DEFAULT_LINGER,
            stall_timeout: None,
            ack_fates: true,
            departures: false,
            kernel_watch: None,
            kernel_horizon: Horizon::default(),
            kernel_zero_copy: false,
        }
    }

    /// Sets the [`carrier`](Self::carrier).
    #[must_use]
    pub fn carrier(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    /// Sets the framing.
    #[must_use]
    pub fn framing(mut self, framing: impl Into<Box<dyn Framer>>) -> Self {
        self.framer = framing.into();
        self
    }

    /// Sets the encryption.
    #[must_use]
    pub fn seal(mut self, seal: Option<Box<dyn Seal>>) -> Self {
        self.seal = seal;
        self
    }

    /// Sets the bytes before the stream.
    #[must_use]
    pub fn preface(mut self, bytes: Vec<u8>) -> Self {
        self.preface = bytes;
        self
    }

    /// Sets the interval at which the kernel polls an empty ring.
    #[must_use]
    pub fn kernel_watch(mut self, every: Option<Duration>) -> Self {
        self.kernel_watch = every;
        self
    }

    /// Sets how much the kernel's ring may commit before TCP can send it.
    #[must_use]
    pub fn kernel_horizon(mut self, horizon: Horizon) -> Self {
        self.kernel_horizon = horizon;
        self
    }

    /// Sets whether packets refer to the memory of the kernel's ring.
    #[must_use]
    pub fn kernel_zero_copy(mut self, wanted: bool) -> Self {
        self.kernel_zero_copy = wanted;
        self
    }

    /// Sets the time after which a stalled peer is disconnected.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Sets whether fates wait for the acknowledgement.
    #[must_use]
    pub fn ack_fates(mut self, wanted: bool) -> Self {
        self.ack_fates = wanted;
        self
    }

    /// Sets whether fates say when records departed.
    #[must_use]
    pub fn departures(mut self, wanted: bool) -> Self {
        self.departures = wanted;
        self
    }

    /// Sets the reserve.
    #[must_use]
    pub fn reserve(mut self, reserve: Reserve) -> Self {
        self.reserve = reserve;
        self
    }

    /// Sets the bound on the bottleneck queue.
    #[must_use]
    pub fn queue_target(mut self, queue: Option<Duration>) -> Self {
        self.queue_target = queue;
        self
    }

    /// Sets the bound on unread bytes.
    #[must_use]
    pub fn max_unread(mut self, bytes: Option<u32>) -> Self {
        self.max_unread = bytes;
        self
    }

    /// Sets the number of keys that the ring must have slots for.
    #[must_use]
    pub fn keys(mut self, keys: u32) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Sets the service asked of the network.
    #[must_use]
    pub fn network(mut self, qos: NetworkQos) -> Self {
        self.network = qos;
        self
    }

    /// Sets the congestion control by its kernel name.
    #[must_use]
    pub fn congestion(mut self, name: impl Into<String>) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// Sets the time for a dropped sink to deliver the record in progress.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the longest retransmission timeout.
    #[must_use]
    pub fn max_rto(mut self, timeout: Duration) -> Self {
        self.max_rto = Some(timeout);
        self
    }

    /// Sets the shortest retransmission timeout.
    #[must_use]
    pub fn min_rto(mut self, timeout: Duration) -> Self {
        self.min_rto = Some(timeout);
        self
    }
}
