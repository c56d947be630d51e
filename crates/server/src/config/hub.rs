use std::collections::BTreeMap;
use std::time::Duration;

use freshwire::engine::Transfer;
use freshwire::network::NetworkQos;
use freshwire_media::framing::interleaved::DEFAULT_MAX_PACKET_BYTES;

/// Limits and defaults of the hub.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Most streams at once. Default 64.
    pub max_streams: usize,
    /// A stream that is published without being configured ends this long after its last publisher and viewer; at once if
    /// another one needs its place. Default 30 s.
    pub unused_timeout: Duration,
    /// Most viewers of one stream, and the number of its rings. Default 1024.
    pub max_viewers: usize,
    /// Bytes of one stream's arena: the bound of its payload memory, whatever viewers do. Default 32 MiB.
    pub arena_bytes: usize,
    /// Most keys of one stream of values, and most deletions that one of its readers waits for. Default 256.
    pub max_keys: usize,
    /// Most bytes of one value. Default 64 KiB.
    pub max_value_bytes: usize,
    /// Most publishers of one stream's values over WebSocket. Default 16.
    pub max_publishers: usize,
    /// How old a picture may be when it arrives. Default `None`: as old as it likes, as long as it makes the screen fresher.
    pub latency: Option<Duration>,
    /// A keyframe and sound may be this much older. Default 600 ms.
    pub key_grace: Duration,
    /// The oldest keyframe that a viewer who joins may begin with; with an older one it waits for the next. Default 500 ms.
    pub join_age: Duration,
    /// A viewer whose path takes nothing for this long is disconnected. Default 30 s.
    pub stall_timeout: Duration,
    /// Largest RTP packet in an RTSP connection, in bytes, its header included. Default [`DEFAULT_MAX_PACKET_BYTES`].
    pub rtp_packet_bytes: usize,
    /// The kernel name of the congestion control of viewers' connections; `None` keeps the system's.
    pub congestion: Option<String>,
    /// Service asked of the network for viewers' connections and datagrams. A pacing rate limits datagrams only where the
    /// interface has the queueing discipline `fq`; the log says if not. Default: nothing.
    pub network: NetworkQos,
    /// The same of single streams, by name; it has precedence.
    pub stream_network: BTreeMap<String, NetworkQos>,
    /// Threads over which viewers are spread, each with its own engine. Default: one per processor, at most [`MAX_ENGINES`].
    pub engines: usize,
    /// Viewers of one stream that its first engine gets before another one gets any. Default: as many as take half of a processor.
    pub fill_first: Option<usize>,
    /// Writes to many viewers with one system call, where the system has io_uring. Default `true`.
    pub io_uring: bool,
    /// How payload gets from the arena into the sockets of viewers over TCP. Default: by reference where it is measured to take less
    /// processor time.
    pub transfer: Transfer,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            max_streams: 64,
            unused_timeout: Duration::from_secs(30),
            max_viewers: 1024,
            arena_bytes: 32 << 20,
            max_keys: 256,
            max_value_bytes: 64 << 10,
            max_publishers: 16,
            latency: None,
            key_grace: Duration::from_millis(600),
            join_age: Duration::from_millis(500),
            stall_timeout: Duration::from_secs(30),
            rtp_packet_bytes: DEFAULT_MAX_PACKET_BYTES,
            congestion: None,
            network: NetworkQos::default(),
            stream_network: BTreeMap::new(),
            engines: default_engines(),
            fill_first: None,
            io_uring: true,
            transfer: Transfer::Auto,
        }
    }
}

impl HubConfig {
    /// The service asked of the network for a stream's viewers.
    pub fn network_of(&self, stream: &str) -> NetworkQos {
        self.stream_network.get(stream).map_or(self.network, |own| own.or(self.network))
    }
}

/// Most engines of a server.
pub const MAX_ENGINES: usize = 64;

fn default_engines() -> usize {
    // Where the number is not known, one engine serves everybody.
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_ENGINES)
}
