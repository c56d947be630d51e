//! One receiver: a ring, a policy, and TCP or A1.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshwire::a1::{Connection, Node, PublicKey};
use freshwire::engine::EngineThread;
use freshwire::sink::{CloseMode, Monitor};
use freshwire::stats::SinkSnapshot;
use freshwire::{Ended, Engine, Meta, PushError, RingConfig, Sender, Sink, SinkConfig, now};
use freshwire_media::adts;
use freshwire_media::unit::{AudioCodec, Kind, Unit, VideoCodec};
use freshwire_record::Timestamp;
use freshwire_server::peer::Newcomers;

use crate::endpoint::{Keys, Location, accept_tcp, connect_tcp, listen_tcp};
use crate::log::CAT;
use crate::names::{Framing, Mode, Policy};

/// The ring and its arena, as those of the command.
const RING: RingConfig = RingConfig { rings: 1, slots: 4096, block_bytes: 16 << 10, blocks: 2048 };

/// All records have the same key: the newest may replace the others.
const ONLY_KEY: u64 = 1;

/// Interval of looks at a full ring. Chosen, not measured.
const LOOK: Duration = Duration::from_millis(1);

/// Time for the record in progress when the element stops. Chosen, not measured.
const FAREWELL: Duration = Duration::from_secs(1);

/// How records are sent.
#[derive(Clone, Debug)]
pub(crate) struct LineSettings {
    pub(crate) location: Location,
    pub(crate) mode: Mode,
    pub(crate) keys: Keys,
    /// What the records are: pictures or sound.
    pub(crate) is_video: bool,
    pub(crate) policy: Policy,
    pub(crate) deadline: Option<Duration>,
    pub(crate) framing: Framing,
    pub(crate) congestion: Option<String>,
    /// How long connecting may take.
    pub(crate) timeout: Duration,
    /// How long the rest may take at the end of the stream.
    pub(crate) drain: Duration,
}

/// How receivers come.
enum Route {
    /// This end has connected.
    Caller,
    Tcp(TcpListener),
    A1(Node, Newcomers),
}

/// A receiver that is connected.
struct Receiver {
    sender: Sender,
    sink: Sink,
    server: Server,
}

/// What serves it, as long as it is held.
enum Server {
    Engine {
        _engine: EngineThread,
    },
    /// A caller's node; a listener's is in its route.
    Peer {
        connection: Connection,
        _node: Option<Node>,
    },
}

/// Counts of sent and unsent records, readable while a full ring stops the line.
#[derive(Debug, Default)]
pub(crate) struct LineStats {
    queued: AtomicU64,
    unsent: AtomicU64,
    receivers: AtomicU64,
    /// Monitor of the newest receiver, also after its end.
    monitor: Mutex<Option<Monitor>>,
}

/// What a line has done so far.
pub(crate) struct LineCounts {
    /// Records put on the ring.
    pub(crate) queued: u64,
    /// Records that found no room, or no receiver.
    pub(crate) unsent: u64,
    /// Receivers so far.
    pub(crate) receivers: u64,
    /// The newest receiver's statistics.
    pub(crate) sink: Option<SinkSnapshot>,
}

impl LineStats {
    /// The counts now.
    pub(crate) fn counts(&self) -> LineCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        LineCounts {
            queued: load(&self.queued),
            unsent: load(&self.unsent),
            receivers: load(&self.receivers),
            sink: monitor.as_ref().map(Monitor::stats),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The way to one receiver.
pub(crate) struct Line {
    settings: LineSettings,
    route: Route,
    receiver: Option<Receiver>,
    /// Set while nothing may block.
    flushing: Arc<AtomicBool>,
    next_seq: u64,
    /// What depends on something before is useless.
    waits_for_key: bool,
    wants_key: bool,
    stats: Arc<LineStats>,
    /// The stream has ended, and its receiver has been notified.
    has_ended: bool,
}

impl Line {
    /// Connects, or begins to listen. While `flushing` is set nothing waits.
    pub(crate) fn open(settings: LineSettings, flushing: Arc<AtomicBool>) -> Result<Self, String> {
        let mut line = Self {
            route: Route::Caller,
            receiver: None,
            flushing,
            next_seq: 0,
            waits_for_key: true,
            wants_key: false,
            stats: Arc::default(),
            has_ended: false,
            settings,
        };
        if line.policy().needs_deadline() && line.settings.deadline.is_none() {
            return Err("this policy drops what is late: set deadline".to_owned());
        }
        let LineSettings { location, mode, keys, timeout, .. } = &line.settings;
        match (location, mode) {
            (Location::Http(_), _) => {
                return Err(
                    "http:// is what a server's viewers use; without a location freshwiresink serves"
                        .to_owned(),
                );
            }
            (Location::Tcp(address), Mode::Listener) => line.route = Route::Tcp(listen_tcp(address)?),
            (Location::A1(address), Mode::Listener) => {
                line.route = Route::A1(keys.listen(address)?, Newcomers::default());
            }
            (Location::Tcp(address), Mode::Caller) => {
                let stream = connect_tcp(address, *timeout)?;
                line.add_tcp(stream)?;
            }
            (Location::A1(address), Mode::Caller) => {
                let (node, connection) = keys.connect(address, *timeout)?;
                line.add_a1(connection, Some(node))?;
            }
        }
        Ok(line)
    }

    /// The key that whoever connects has to know, of an A1 listener.
    pub(crate) fn public_key(&self) -> Option<PublicKey> {
        match &self.route {
            Route::A1(node, _) => Some(node.public_key()),
            Route::Caller | Route::Tcp(_) => None,
        }
    }

    /// Where it listens.
    pub(crate) fn local_address(&self) -> Option<std::net::SocketAddr> {
        match &self.route {
            Route::Caller => None,
            Route::Tcp(listener) => listener.local_addr().ok(),
            Route::A1(node, _) => node.local_addr().ok(),
        }
    }

    /// Counts of sent and unsent records.
    pub(crate) fn stats(&self) -> Arc<LineStats> {
        Arc::clone(&self.stats)
    }

    /// Whether a keyframe has been needed since the last call.
    pub(crate) fn take_key_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_key)
    }

    /// Sends a unit, unless nobody is connected.
    pub(crate) fn push(&mut self, unit: &Unit) -> Result<(), String> {
        if self.has_ended {
            return Err(
                "the stream has ended for its receiver; set the element to READY to begin another".to_owned()
            );
        }
        let header = self.header(unit)?;
        self.look()?;
        let is_video = unit.head.kind == Kind::Video;
        if self.receiver.is_none() || (is_video && self.waits_for_key && !unit.head.key) {
            count(&self.stats.unsent);
            return Ok(());
        }
        self.waits_for_key = false;
        let now = now();
        let meta = Meta {
            seq: self.next_seq,
            generated: now,
            deadline: self.settings.deadline.map_or(Timestamp::MAX, |deadline| now + deadline),
            layer: unit.layer,
            group: unit.group,
            key: ONLY_KEY,
            refs: unit.refs,
        };
        self.next_seq += 1;
        match header {
            Some(header) => self.offer(&[&header, unit.bytes.as_slice()].concat(), &meta),
            None => self.offer(&unit.bytes, &meta),
        }
    }

    /// The stream has ended: waits until the receiver has the rest, and ends the connection.
    pub(crate) fn finish(&mut self) {
        self.has_ended = true;
        let Some(Receiver { sink, .. }) = &mut self.receiver else { return };
        sink.start_close(CloseMode::Drain);
        let give_up = now() + self.settings.drain;
        while sink.ended().is_none() && now() < give_up && !self.flushing.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        self.hang_up(CloseMode::Abort);
    }

    /// The bytes in front of a record that does not describe itself: an ADTS header. An error if the framing
    /// cannot carry the unit.
    fn header(&self, unit: &Unit) -> Result<Option<[u8; 7]>, String> {
        let tracks = &unit.head.tracks;
        let is_tcp = matches!(self.settings.location, Location::Tcp(_));
        let is_delimited = match unit.head.kind {
            Kind::Video => tracks.video.as_ref().is_some_and(|track| {
                matches!(track.codec, VideoCodec::H264 { .. } | VideoCodec::H265 { .. })
            }),
            Kind::Audio => tracks.audio.as_ref().is_some_and(|track| track.codec != AudioCodec::Opus),
        };
        if is_tcp && self.settings.framing == Framing::Raw && !is_delimited {
            return Err(
                "framing=raw does not say where a record of this codec ends; use framing=chunked".to_owned()
            );
        }
        match (&tracks.audio, unit.head.kind) {
            (Some(track), Kind::Audio) if track.codec != AudioCodec::Opus => {
                let header = adts::header(track, unit.head.len);
                header
                    .map(Some)
                    .ok_or_else(|| "this kind of AAC does not fit into ADTS headers; use AAC-LC".to_owned())
            }
            _ => Ok(None),
        }
    }

    fn policy(&self) -> Policy {
        let LineSettings { policy, is_video, deadline, .. } = self.settings;
        policy.for_stream(is_video, deadline)
    }

    fn offer(&mut self, bytes: &[u8], meta: &Meta) -> Result<(), String> {
        let policy = self.policy();
        loop {
            let Some(Receiver { sender, sink, server }) = &mut self.receiver else { return Ok(()) };
            if let Server::Peer { connection, .. } = server
                && let Some(qos) = connection.qos().filter(|qos| bytes.len() > qos.max_send_message as usize)
            {
                let (len, most) = (bytes.len(), qos.max_send_message);
                return Err(format!("a record of {len} bytes is more than the {most} that both ends take"));
            }
            let id = sink.id();
            let pushed = match policy {
                Policy::Latest => sender.replace(id, bytes, meta).map(|_| ()),
                _ => sender.push(id, bytes, meta).map(|_| ()),
            };
            match pushed {
                Ok(()) => {
                    count(&self.stats.queued);
                    return Ok(());
                }
                Err(PushError::Full | PushError::OutOfBlocks)
                    if policy == Policy::Fifo && !self.flushing.load(Ordering::Relaxed) =>
                {
                    std::thread::sleep(LOOK);
                }
                Err(PushError::Full | PushError::OutOfBlocks) => {
                    count(&self.stats.unsent);
                    self.await_key();
                    return Ok(());
                }
                // Looking says how it has ended.
                Err(PushError::Closed) => std::thread::sleep(LOOK),
                Err(error) => return Err(format!("cannot queue a record: {error}")),
            }
            let receivers = self.stats.receivers.load(Ordering::Relaxed);
            self.look()?;
            if self.stats.receivers.load(Ordering::Relaxed) != receivers {
                // The next receiver begins with a picture of its own.
                count(&self.stats.unsent);
                return Ok(());
            }
        }
    }

    fn await_key(&mut self) {
        self.waits_for_key = true;
        self.wants_key = true;
    }

    /// Notes what became of records, and who has come and gone.
    fn look(&mut self) -> Result<(), String> {
        if let Some(Receiver { sender, sink, .. }) = &mut self.receiver {
            // A producer keeps few fates of slots that are used again.
            while let Ok(Some(_)) = sender.poll_fate(sink.id()) {}
            if let Some(ended) = sink.ended() {
                let why = match ended {
                    Ended::Broken(error) => error.to_string(),
                    ended => ended.to_string(),
                };
                self.receiver = None;
                if matches!(self.route, Route::Caller) {
                    return Err(format!("the connection to the receiver broke: {why}"));
                }
                gst::info!(CAT, "the receiver has gone: {why}");
            }
        }
        self.welcome()
    }

    /// Takes the next receiver if there is none. Otherwise A1 refuses it, and over TCP it waits in the
    /// listener's backlog: a receiver may come back before its old connection has broken.
    fn welcome(&mut self) -> Result<(), String> {
        let is_free = self.receiver.is_none();
        match &mut self.route {
            Route::Tcp(listener) if is_free => match accept_tcp(listener)? {
                Some(stream) => self.add_tcp(stream),
                None => Ok(()),
            },
            Route::A1(node, newcomers) if is_free => {
                match newcomers.accept(node, Duration::ZERO).map_err(|error| error.to_string())? {
                    Some(connection) => self.add_a1(connection, None),
                    None => Ok(()),
                }
            }
            Route::A1(node, newcomers) => {
                let refused = newcomers.refuse(node, "it has a receiver already");
                for address in refused.map_err(|error| error.to_string())? {
                    gst::info!(CAT, "{address} is refused: there is a receiver already");
                }
                Ok(())
            }
            Route::Caller | Route::Tcp(_) => Ok(()),
        }
    }

    fn add_tcp(&mut self, stream: std::net::TcpStream) -> Result<(), String> {
        let engine = Engine::new()
            .and_then(Engine::spawn)
            .map_err(|error| format!("cannot start the engine: {error}"))?;
        let mut sender = Sender::new(&RING, &engine.handle()).map_err(|error| error.to_string())?;
        let mut config =
            SinkConfig::new(self.policy().choice()).framing(freshwire::Framing::from(self.settings.framing));
        if let Some(name) = &self.settings.congestion {
            config = config.congestion(name);
        }
        let sink = sender.add_sink(stream, config).map_err(|error| error.to_string())?;
        self.add(Receiver { sender, sink, server: Server::Engine { _engine: engine } });
        Ok(())
    }

    fn add_a1(&mut self, connection: Connection, node: Option<Node>) -> Result<(), String> {
        let mut sender = Sender::without_engine(&RING).map_err(|error| error.to_string())?;
        let config = freshwire::a1::SinkConfig::new(self.policy().choice());
        let sink = sender.add_a1_sink(&connection, config).map_err(|error| error.to_string())?;
        self.add(Receiver { sender, sink, server: Server::Peer { connection, _node: node } });
        Ok(())
    }

    fn add(&mut self, receiver: Receiver) {
        gst::info!(CAT, "a receiver is connected");
        count(&self.stats.receivers);
        let monitor = receiver.sink.monitor();
        *self.stats.monitor.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitor);
        self.receiver = Some(receiver);
        self.next_seq = 0;
        self.await_key();
    }

    fn hang_up(&mut self, mode: CloseMode) {
        // What serves the sink is held until it is closed.
        let Some(Receiver { mut sender, sink, server: _server }) = self.receiver.take() else { return };
        let id = sink.id();
        if let Ended::Broken(why) = sink.close(mode, FAREWELL) {
            gst::warning!(CAT, "the receiver does not have everything: {why}");
        }
        while let Ok(Some(_)) = sender.poll_fate(id) {}
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.hang_up(CloseMode::FinishRecord);
    }
}
