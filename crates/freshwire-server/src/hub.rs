//! Streams, those who publish them and those who view them.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use freshwire::Seal;
use freshwire_media::framing::Framer;
use freshwire_media::unit::{Catalog, MediaTime, Tracks, Unit};
use tokio::sync::watch;

/// All streams of a server, and the engine that serves their viewers. Clones are handles to the same hub.
#[derive(Clone)]
pub struct Hub {}

/// What the hub allows.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Most streams at once. Default 64.
    pub max_streams: usize,
    /// Most viewers of one stream, and the number of its rings. Default 1024.
    pub max_viewers: usize,
    /// Bytes of one stream's arena: the bound of its payload memory. Default 32 MiB.
    pub arena_bytes: usize,
    /// How old a video unit may be when it arrives. Default 700 ms.
    pub latency: Duration,
    /// A keyframe may be this much older. Default 600 ms.
    pub key_grace: Duration,
    /// The oldest keyframe that a viewer who joins may begin with; with an older one it waits for the next. Default 500 ms.
    pub join_age: Duration,
    /// A viewer whose path takes nothing for this long is disconnected. Default 30 s.
    pub stall_timeout: Duration,
    /// The kernel name of the congestion control of viewers' connections; `None` keeps the system's.
    pub congestion: Option<String>,
}

/// A viewer or a publisher is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Somebody publishes this stream already.
    #[error("stream {0} has a publisher already")]
    Busy(String),
    /// No stream may be added.
    #[error("{0} streams are the limit; raise max_streams")]
    TooManyStreams(usize),
    /// No viewer may be added.
    #[error("stream has {0} viewers, which is the limit; raise max_viewers")]
    TooManyViewers(usize),
    /// The connection does not take its settings, or memory is missing.
    #[error("{0}")]
    Io(String),
}

/// One stream. It outlives its publishers: viewers stay connected while a source is away.
pub struct Stream {}

/// The right to feed a stream; dropping it lets another one publish.
pub struct Publisher {}

/// How a viewer is served.
pub struct ViewRequest {
    /// The connection. What has to be sent before the stream goes into `preface`. The caller keeps a clone for reading.
    pub socket: TcpStream,
    /// Bytes in front of the stream, such as the answer to PLAY; not yet encrypted.
    pub preface: Vec<u8>,
    /// Writes the stream.
    pub framer: Box<dyn Framer>,
    /// Encrypts it, if it is encrypted.
    pub seal: Option<Box<dyn Seal>>,
    /// By which protocol: `rtsp`, `rtsps`, `websocket`, `ts`, `mp4`, `freshwire`.
    pub protocol: &'static str,
    /// The viewer's address.
    pub peer: SocketAddr,
    /// Who it is, if it had to say so.
    pub user: Option<String>,
    /// Overrides [`HubConfig::join_age`].
    pub join_age: Option<Duration>,
}

/// One viewer; dropping it disconnects after the record that was begun.
pub struct Viewer {}

/// A viewer over datagrams: gets each unit when it is published, without a queue.
pub trait DatagramSink: Send {
    /// Sends the unit. Must not block. False: the viewer is gone.
    fn send(&mut self, head: &freshwire_media::unit::UnitHead, bytes: &[u8]) -> bool;
}

/// What a viewer has got and missed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ViewerSnapshot {
    /// Number of the viewer, unique in this server's life.
    pub id: u64,
    /// By which protocol.
    pub protocol: &'static str,
    /// Its address.
    pub peer: SocketAddr,
    /// Who it is.
    pub user: Option<String>,
    /// For how long it has been served.
    pub age: Duration,
    /// What the engine has counted: ages at commit, drops by reason, horizon, rate.
    pub sink: freshwire::SinkSnapshot,
    /// Video units offered and sent by layer (0 to 7).
    pub offered: [u64; 8],
    /// Video units begun on the wire by layer (0 to 7).
    pub sent: [u64; 8],
    /// Units that could not even be queued.
    pub missed: u64,
}

/// What a stream has carried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Its name.
    pub name: String,
    /// Where it comes from, `None` while nobody publishes.
    pub origin: Option<String>,
    /// Units and bytes published, of them keyframes.
    pub units: u64,
    /// Payload bytes published.
    pub bytes: u64,
    /// Keyframes published.
    pub keys: u64,
    /// Bytes of the arena and of them in use.
    pub arena_bytes: u64,
    /// Bytes of the arena in use.
    pub arena_used: u64,
    /// Its viewers.
    pub viewers: Vec<ViewerSnapshot>,
}

impl Hub {
    /// A hub without streams; starts its engine.
    pub fn new(config: HubConfig) -> std::io::Result<Self> {
        let _ = config;
        unimplemented!()
    }

    /// The stream of this name, made if it is new.
    pub fn stream(&self, name: &str) -> Result<Arc<Stream>, HubError> {
        let _ = name;
        unimplemented!()
    }

    /// The stream of this name, if it exists.
    pub fn find(&self, name: &str) -> Option<Arc<Stream>> {
        let _ = name;
        unimplemented!()
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        unimplemented!()
    }
}

impl Stream {
    /// Its name.
    pub fn name(&self) -> &str {
        unimplemented!()
    }

    /// What its framings look units up in.
    pub fn catalog(&self) -> &Arc<Catalog> {
        unimplemented!()
    }

    /// What it consists of; `None` until a source has said so.
    pub fn tracks(&self) -> watch::Receiver<Option<Arc<Tracks>>> {
        unimplemented!()
    }

    /// Which wall time belongs to which media time; `None` before the first unit.
    pub fn wall_clock(&self) -> Option<(MediaTime, SystemTime)> {
        unimplemented!()
    }

    /// The right to feed it. `origin` is shown to people. `key_requests` gets a message when a viewer needs a keyframe.
    pub fn publish(
        self: &Arc<Self>,
        origin: &str,
        key_requests: Option<tokio::sync::mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        let _ = (origin, key_requests);
        unimplemented!()
    }

    /// Serves a viewer from now on.
    pub fn view(self: &Arc<Self>, request: ViewRequest) -> Result<Viewer, HubError> {
        let _ = request;
        unimplemented!()
    }

    /// Serves a viewer over datagrams until its sink says that it is gone.
    pub fn view_datagrams(self: &Arc<Self>, sink: Box<dyn DatagramSink>) -> Result<(), HubError> {
        let _ = sink;
        unimplemented!()
    }

    /// What it has carried.
    pub fn snapshot(&self) -> StreamSnapshot {
        unimplemented!()
    }
}

impl Publisher {
    /// Says what the stream consists of, before the first unit and whenever it changes.
    pub fn tracks(&mut self, tracks: Arc<Tracks>) {
        let _ = tracks;
        unimplemented!()
    }

    /// Publishes a unit. Never blocks.
    pub fn push(&mut self, unit: Unit) {
        let _ = unit;
        unimplemented!()
    }
}

impl Viewer {
    /// Its number.
    pub fn id(&self) -> u64 {
        unimplemented!()
    }

    /// Sends bytes between two records, such as the answer to a request. False: too many wait already, the viewer does not
    /// read.
    pub fn interject(&self, bytes: Vec<u8>) -> bool {
        let _ = bytes;
        unimplemented!()
    }

    /// Stops sending units; what was begun is finished.
    pub fn pause(&self) {
        unimplemented!()
    }

    /// Goes on with the next keyframe.
    pub fn resume(&self) {
        unimplemented!()
    }

    /// How it ended, `None` while it is served. Look once a second.
    pub fn ended(&self) -> Option<freshwire::Ended> {
        unimplemented!()
    }

    /// What it has got and missed.
    pub fn snapshot(&self) -> ViewerSnapshot {
        unimplemented!()
    }
}
