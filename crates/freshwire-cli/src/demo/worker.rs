//! One run, in a process of its own: it needs its own namespaces, and its timing is nobody else's.

mod source;

use std::io::{BufRead as _, ErrorKind, Read as _};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::now;
use freshwire_units::Timestamp;

use super::video::{self, Stream};
use super::viewer::Viewer;
use super::wire::{Live, Message, Order, Outcome, say};
use crate::lab::schema::Trust;
use crate::lab::{TestPath, wait_until};
use source::Source;

/// How often a worker tells how it goes.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// After the last frame's deadline, for what is still on its way.
const LINGER: Duration = Duration::from_millis(200);

/// A source that is later than this has not offered what it says.
const MAX_LATENESS: Duration = Duration::from_millis(10);

/// Does what standard input says and tells on standard output.
pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut lines = std::io::stdin().lock().lines();
    let mut line = || lines.next().context("no order came")?.context("cannot read an order");
    let order: Order = serde_json::from_str(&line()?).context("cannot read an order")?;
    let path = TestPath::open(&order.link, order.congestion.as_deref())?;
    let stream = Arc::new(video::read(&order.video)?);
    say(std::io::stdout(), &Message::Ready)?;
    let start = Timestamp::from_nanos(line()?.trim().parse().context("cannot read the start")?);
    let outcome = Run::new(order, stream, start).go(path)?;
    say(std::io::stdout(), &Message::Done(Box::new(outcome)))?;
    Ok(ExitCode::SUCCESS)
}

/// What the threads of a run share.
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

    fn go(&self, path: TestPath) -> anyhow::Result<Outcome> {
        let (near, far) = (path.near.try_clone()?, path.far.try_clone()?);
        let received = std::thread::scope(|scope| {
            let reader = scope.spawn(|| self.watch(far));
            let teller = scope.spawn(|| self.tell());
            let sent = self.send(near);
            // The viewer of a plain stream leaves with whatever is still on its way.
            let _ = path.far.shutdown(Shutdown::Both);
            let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
            let told = teller.join().map_err(|_| anyhow::anyhow!("the teller panicked"))?;
            sent.context("the sender failed").and(told).and(received.context("the viewer failed"))
        })?;
        std::fs::write(&self.order.received, received)
            .with_context(|| format!("cannot write {}", self.order.received.display()))?;
        let congestion = path.congestion.clone();
        let mut faults = path.close().faults;
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
            trust: if faults.is_empty() { Trust::kept() } else { Trust::lost(faults.join("; ")) },
        })
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
