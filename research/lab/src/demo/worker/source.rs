//! The camera: emits each access unit at its time, one way or the other.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{self, Connection};
use freshwire::choice;
use freshwire::sink::CloseMode;
use freshwire::{
    Ended, Engine, Fate, Meta, Outcome, PushError, RingConfig, Sender, Sink, SinkConfig, SinkId,
};
use freshwire_io::now;
use freshwire_io::tcp::TcpSocket;

use super::Run;
use super::sending::Horizon;
use crate::demo::wire::{Dropped, Scheme};
use crate::scenario::wait_until;

/// How long the engine may take to finish the last record.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

impl Run {
    /// Sends the stream over TCP until [`Run::stop`].
    pub(super) fn send(&self, near: TcpStream) -> anyhow::Result<()> {
        if self.order.scheme == Scheme::PlainTcp {
            return self.send_plain(near);
        }
        let engine = Engine::new()?.spawn()?;
        let mut sender = Sender::new(&RingConfig::default(), &engine.handle())?;
        let sink = sender.add_sink(near, SinkConfig::new(choice::screen()))?;
        self.feed(&mut sender, sink)
    }

    /// Sends the stream over A1 until [`Run::stop`].
    pub(super) fn send_a1(&self, near: &Connection) -> anyhow::Result<()> {
        let mut sender = Sender::without_engine(&RingConfig::default())?;
        let sink = sender.add_a1_sink(near, a1::SinkConfig::new(choice::screen()))?;
        self.feed(&mut sender, sink)
    }

    /// Blocking `send()` in the camera's own loop: as in almost every program. A unit that the camera cannot hand over at
    /// once makes it late for the next unit; no frame is lost.
    fn send_plain(&self, near: TcpStream) -> anyhow::Result<()> {
        self.source().horizon = Some(Horizon::Socket(TcpSocket::new(near.try_clone()?)?));
        near.set_nonblocking(false)
            .and_then(|()| near.set_nodelay(false))
            .context("cannot set up the socket")?;
        std::thread::scope(|scope| {
            let camera = scope.spawn(|| -> std::io::Result<()> {
                for (at, unit) in self.stream.units.iter().enumerate() {
                    wait_until(self.start + self.stream.emitted(at));
                    (&near).write_all(&unit.bytes)?;
                    let mut source = self.source();
                    source.horizon_max_bytes = source.horizon_max_bytes.max(source.horizon_bytes());
                }
                Ok(())
            });
            wait_until(self.stop);
            // Ends a send() that still waits for room; its error is the end of the run.
            let _ = near.shutdown(std::net::Shutdown::Both);
            let ended = camera.join().map_err(|_| anyhow::anyhow!("the camera panicked"))?;
            anyhow::ensure!(ended.is_ok() || now() >= self.stop, "the connection broke: {ended:?}");
            Ok(())
        })
    }

    /// Every unit into the ring at its time; Freshwire chooses.
    fn feed(&self, sender: &mut Sender, sink: Sink) -> anyhow::Result<()> {
        let id = sink.id();
        self.source().horizon = Some(Horizon::Sink(sink));
        for at in 0..self.stream.units.len() {
            let due = self.start + self.stream.emitted(at);
            wait_until(due);
            let late = now().saturating_since(due);
            let pushed = self.push(sender, id, at);
            let mut source = self.source();
            source.lateness = source.lateness.max(late);
            if !pushed? {
                source.drops.push(Dropped { unit: at, reason: "ring-full".to_owned() });
            }
            note_fates(sender, id, &mut source.drops);
        }
        wait_until(self.stop);
        let horizon = self.source().horizon.take();
        let Some(Horizon::Sink(sink)) = horizon else { anyhow::bail!("the sink is gone") };
        let horizon_max_bytes = sink.stats().horizon_max;
        self.source().closed = true;
        let ended = sink.close(CloseMode::FinishRecord, CLOSE_TIMEOUT);
        anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
        let mut source = self.source();
        source.horizon_max_bytes = horizon_max_bytes;
        note_fates(sender, id, &mut source.drops);
        Ok(())
    }

    /// False: the ring is full, and the camera drops the unit itself.
    fn push(&self, sender: &mut Sender, id: SinkId, at: usize) -> anyhow::Result<bool> {
        let unit = &self.stream.units[at];
        let captured = self.start + self.stream.captured(unit.frame);
        let meta = Meta {
            seq: at as u64,
            generated: captured,
            deadline: captured + Duration::from_millis(self.order.deadline_ms),
            layer: unit.layer,
            group: unit.group,
            key: 0,
            refs: unit.refs,
        };
        match sender.push(id, &unit.bytes, &meta) {
            Ok(_) => Ok(true),
            Err(PushError::Full | PushError::OutOfBlocks) => Ok(false),
            Err(error) => Err(error).context("cannot push a unit"),
        }
    }
}

fn note_fates(sender: &mut Sender, id: SinkId, drops: &mut Vec<Dropped>) {
    while let Ok(Some(Fate { seq, outcome, .. })) = sender.poll_fate(id) {
        if let Outcome::Dropped(reason) = outcome {
            drops.push(Dropped { unit: seq as usize, reason: reason.to_string() });
        }
    }
}
