//! One run, in a process of its own: it needs its own namespaces, and its timing is nobody else's.

mod sending;
mod source;

use std::io::{BufRead as _, ErrorKind, Read as _};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{Connection, ConnectionConfig, Qos};
use freshwire_io::now;
use freshwire_record::Timestamp;

use super::video::{self, Stream};
use super::viewer::Viewer;
use super::wire::{Live, Message, Order, Outcome, Scheme, say};
use crate::scenario::{A1Path, TestLink, wait_until};
use crate::schema::Trust;
use sending::Source;

/// How often a worker tells how it goes.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How long one look for a message waits at most.
const LOOK: Duration = Duration::from_millis(100);

/// After the last frame's deadline, for what is still on its way.
const LINGER: Duration = Duration::from_millis(200);

/// A source that is later than this has not offered what it says.
const MAX_LATENESS: Duration = Duration::from_millis(10);

/// Does what standard input says and tells on standard output.
pub(super) fn run() -> anyhow::Result<ExitCode> {
    freshwire_io::end_with_parent().context("cannot end with the demo")?;
    let mut lines = std::io::stdin().lock().lines();
    let mut line = || lines.next().context("no order came")?.context("cannot read an order");
    let order: Order = serde_json::from_str(&line()?).context("cannot read an order")?;
    let link = TestLink::open(&order.link)?;
    let path = Path::open(&order, &link)?;
    let stream = Arc::new(video::read(&order.video)?);
    say(std::io::stdout(), &Message::Ready)?;
    let start = Timestamp::from_nanos(line()?.trim().parse().context("cannot read the start")?);
    let outcome = Run::new(order, stream, start).go(link, path)?;
    say(std::io::stdout(), &Message::Done(Box::new(outcome)))?;
    Ok(ExitCode::SUCCESS)
}

/// Both ends of the way to the viewer.
enum Path {
    Tcp { near: TcpStream, far: TcpStream, congestion: String },
    A1(A1Path),
}

impl Path {
    fn open(order: &Order, link: &TestLink) -> anyhow::Result<Self> {
        if order.scheme != Scheme::A1 {
            let (near, far, congestion) = link.connect_tcp(order.congestion.as_deref())?;
            return Ok(Self::Tcp { near, far, congestion });
        }
        let mut transport = ConnectionConfig::default();
        // The viewer reads a stream.
        transport.in_order = true;
        Ok(Self::A1(A1Path::connect(link, &transport, Qos::default())?))
    }
}

/// The shared state of a run's threads.
struct Run {
    order: Order,
    stream: Arc<Stream>,
    start: Timestamp,
    stop: Timestamp,
    viewer: Mutex<Viewer>,
    source: Mutex<Source>,
}

impl Run {
    fn new(order: Order, stream: Arc<Stream>, start: Timestamp) -> Self {
        let deadline = Duration::from_millis(order.deadline_ms);
        Self {
            stop: start + stream.duration() + deadline + LINGER,
            viewer: Mutex::new(Viewer::new(Arc::clone(&stream), start)),
            source: Mutex::new(Source::default()),
            order,
            stream,
            start,
        }
    }

    fn go(&self, link: TestLink, path: Path) -> anyhow::Result<Outcome> {
        let (received, congestion) = match &path {
            Path::Tcp { near, far, congestion } => {
                let (send, watch) = (near.try_clone()?, far.try_clone()?);
                // The viewer of a plain stream leaves with whatever is still on its way.
                let leave = || drop(far.shutdown(Shutdown::Both));
                let received = self.both_ends(|| self.send(send), || self.watch(watch), leave)?;
                (received, congestion.clone())
            }
            Path::A1(A1Path { sending, receiving, .. }) => {
                let leave = || receiving.close(0, "");
                let received =
                    self.both_ends(|| self.send_a1(sending), || self.watch_a1(receiving), leave)?;
                (received, "A1's own".to_owned())
            }
        };
        drop(path);
        let account = link.close();
        std::fs::write(&self.order.received, received)
            .with_context(|| format!("cannot write {}", self.order.received.display()))?;
        let mut faults = account.faults;
        let source = self.source();
        if source.lateness > MAX_LATENESS {
            faults.push(format!("the camera was {:.0} ms late", source.lateness.as_secs_f64() * 1e3));
        }
        let viewer = self.viewer();
        Ok(Outcome {
            scheme: self.order.scheme,
            congestion,
            arrivals: viewer.arrivals.clone(),
            shown: viewer.shown.clone(),
            drops: source.drops.clone(),
            torn: viewer.torn,
            undecodable: viewer.undecodable,
            received_bytes: viewer.bytes,
            horizon_max_bytes: source.horizon_max_bytes,
            trust: Trust::of(&faults),
        })
    }

    /// Sends and watches at the same time, and makes the viewer leave when all is sent. Returns what was received.
    fn both_ends(
        &self,
        send: impl FnOnce() -> anyhow::Result<()>,
        watch: impl FnOnce() -> anyhow::Result<Vec<u8>> + Send,
        leave: impl FnOnce(),
    ) -> anyhow::Result<Vec<u8>> {
        std::thread::scope(|scope| {
            let reader = scope.spawn(watch);
            let teller = scope.spawn(|| self.tell());
            let sent = send();
            leave();
            let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
            let reported = teller.join().map_err(|_| anyhow::anyhow!("the teller panicked"))?;
            sent.context("the sender failed").and(reported).and(received.context("the viewer failed"))
        })
    }

    /// Receives messages until the connection ends. Returns them one behind the other.
    fn watch_a1(&self, far: &Connection) -> anyhow::Result<Vec<u8>> {
        let mut received = Vec::new();
        // An error is the end, which either side may make.
        while let Ok(message) = far.recv(LOOK) {
            if let Some(message) = message {
                self.viewer().push(now(), &message.data);
                received.extend_from_slice(&message.data);
            }
        }
        let left_over = self.viewer().finish(true);
        received.truncate(received.len() - left_over);
        Ok(received)
    }

    /// Reads as any TCP program does. Returns the stream up to its last whole unit.
    fn watch(&self, mut far: TcpStream) -> anyhow::Result<Vec<u8>> {
        let mut received = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        let orderly = loop {
            match far.read(&mut buffer) {
                Ok(0) => break now() < self.stop || self.source().closed,
                Ok(read) => {
                    self.viewer().push(now(), &buffer[..read]);
                    received.extend_from_slice(&buffer[..read]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the stream"),
            }
        };
        let left_over = self.viewer().finish(orderly);
        received.truncate(received.len() - left_over);
        Ok(received)
    }

    fn tell(&self) -> anyhow::Result<()> {
        let mut at = self.start;
        while at < self.start + self.stream.duration() {
            at += TELL_EVERY;
            wait_until(at);
            say(std::io::stdout(), &Message::Live(self.live()))?;
        }
        Ok(())
    }

    fn live(&self) -> Live {
        let elapsed = now().saturating_since(self.start);
        let mut live = Live { at_s: elapsed.as_secs_f64(), ..Live::default() };
        {
            let viewer = self.viewer();
            let shown = viewer.shown.last();
            let captured = shown.map_or(Duration::ZERO, |shown| self.stream.captured(shown.frame));
            live.on_air = shown.is_some();
            live.age_s = elapsed.saturating_sub(captured).as_secs_f64();
            live.received_bytes = viewer.bytes;
            live.torn = viewer.torn;
            for arrival in &viewer.arrivals {
                live.arrived[self.layer(arrival.unit)] += 1;
            }
        }
        for at in 0..self.stream.units.len() {
            live.emitted[self.layer(at)] += u64::from(self.stream.emitted(at) <= elapsed);
        }
        let source = self.source();
        live.horizon_bytes = source.horizon_bytes();
        for drop in &source.drops {
            live.dropped[self.layer(drop.unit)] += 1;
            *live.reasons.entry(drop.reason.clone()).or_default() += 1;
        }
        live
    }

    fn layer(&self, unit: usize) -> usize {
        usize::from(self.stream.units[unit].layer).min(super::wire::LAYERS - 1)
    }

    fn viewer(&self) -> MutexGuard<'_, Viewer> {
        self.viewer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
