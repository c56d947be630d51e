//! `freshwire send`: a live source to any TCP receiver, or to another Freshwire over A1, nothing stale on the wire.

mod account;
mod args;
mod group;
mod source;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::{
    CarrierInUse, CloseMode, Ended, Engine, EngineThread, PushError, Replaced, RingConfig, Sender,
    SenderError, Sink,
};
use freshwire_units::Timestamp;

use crate::a1;
use crate::interrupt::Interrupt;
use crate::output::{Progress, print, say};
use account::Account;
use args::Plan;
use group::Crowd;
use source::{Offer, Polled, Source};

pub(crate) use args::{FramingName, SendArgs};

/// Payload bytes of a slot: large enough for most access units, small enough to waste little.
const BLOCK_BYTES: u32 = 16 << 10;

/// Slots of the ring, and blocks of its arena. What no policy drops piles up to this, then the source waits.
const SLOTS: u32 = 4096;
const BLOCKS: u32 = 2048;

/// How often a full ring, or the end of the last record, is looked for.
const LOOK: Duration = Duration::from_millis(1);

/// How often a broken connection is looked for while the source is silent.
const WATCH: Duration = Duration::from_millis(100);

/// How long the engine may take to end a connection that has nothing left to deliver.
const CLOSE: Duration = Duration::from_secs(5);

/// What receivers over A1 are told when the stream has ended.
const CODE_DONE: u64 = 0;
const ENDED: &str = "the stream has ended";

/// What they are told when the source has failed, or what came of it was not delivered in time.
const CODE_FAILED: u64 = 1024;

/// Runs `freshwire send`.
pub(crate) fn run(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    let interrupt = Interrupt::watch()?;
    let mut source = source::open(&plan.source)?;
    let route = Route::open(&plan)?;
    interrupt.arm();
    let mut session = Session::new(&plan, route, args.quiet, interrupt)?;
    let sent = session.send(source.as_mut());
    // What came before a source failed is worth as much as ever.
    let sent = sent.and(session.drain(plan.drain));
    let account = session.close(sent.as_ref().err());
    // What was sent is told also when the source failed on the way.
    print(&if args.json { account.json()? } else { account.text() })?;
    sent?;
    Ok(ExitCode::SUCCESS)
}

/// The way to the receiver, or to many.
enum Route {
    Tcp(TcpStream),
    A1(a1::Open),
    Group(Crowd),
}

impl Route {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        if let Some((config, members)) = &plan.group {
            return Crowd::gather(plan.listen()?, config, *members).map(Self::Group);
        }
        match plan.open_a1() {
            Some(open) => open.map(Self::A1),
            None => plan.endpoint.open().map(Self::Tcp),
        }
    }
}

/// What serves the sink, as long as it is held.
enum Server {
    Engine { _engine: EngineThread },
    Peer(a1::Open),
    Crowd(Crowd),
}

/// A source on its way to its receiver, or to many.
struct Session {
    sender: Sender,
    sink: Sink,
    replaces: bool,
    progress: Progress,
    account: Account,
    interrupt: Interrupt,
    /// What members of a group can be expected to take.
    largest_to_group: u32,
    server: Server,
}

impl Session {
    fn new(plan: &Plan, route: Route, quiet: bool, interrupt: Interrupt) -> anyhow::Result<Self> {
        let ring = RingConfig { rings: 1, slots: SLOTS, block_bytes: BLOCK_BYTES, blocks: BLOCKS };
        let (sender, sink, server) = match route {
            Route::Tcp(stream) => {
                let engine = Engine::new().and_then(Engine::spawn).context("cannot start the engine")?;
                let mut sender = Sender::new(&ring, &engine.handle())?;
                let sink = sender.add_sink(stream, plan.sink()).map_err(|error| explain(error, plan))?;
                (sender, sink, Server::Engine { _engine: engine })
            }
            Route::A1(open) => {
                let mut sender = Sender::without_engine(&ring)?;
                let sink = sender.add_a1_sink(&open.connection, plan.a1_sink())?;
                (sender, sink, Server::Peer(open))
            }
            Route::Group(crowd) => {
                let mut sender = Sender::without_engine(&ring)?;
                let sink = sender.add_a1_group(crowd.group(), plan.a1_sink())?;
                (sender, sink, Server::Crowd(crowd))
            }
        };
        if !quiet {
            tell_carrier(&sink);
        }
        Ok(Self {
            sender,
            sink,
            replaces: plan.replaces(),
            progress: Progress::new(quiet),
            account: Account::new(),
            interrupt,
            largest_to_group: plan.largest_to_group(),
            server,
        })
    }

    /// Sends until the source ends or the user does. Fails if the source does, or if the connection breaks.
    fn send(&mut self, source: &mut dyn Source) -> anyhow::Result<()> {
        loop {
            let now = self.look()?;
            if self.interrupt.arrived() {
                return Ok(());
            }
            match source.poll(self.progress.left(now).min(WATCH))? {
                Polled::Record(offer) => self.push(&offer)?,
                Polled::Nothing => {}
                Polled::End => return Ok(()),
            }
        }
    }

    /// Puts a record on the ring; waits while the ring is full, which stops the source too.
    fn push(&mut self, offer: &Offer) -> anyhow::Result<()> {
        if let Some(largest) = self.largest()
            && offer.bytes.len() > largest as usize
        {
            anyhow::bail!(
                "a record has {} bytes, more than the {largest} that both ends take; --largest-record raises it, here and there",
                offer.bytes.len()
            );
        }
        self.account.offered(offer);
        loop {
            match self.try_push(offer) {
                Ok(()) => return Ok(()),
                Err(PushError::Full | PushError::OutOfBlocks) => std::thread::sleep(LOOK),
                // The connection has ended; looking says how.
                Err(PushError::Closed) => std::thread::sleep(LOOK),
                Err(error) => return Err(error).context("cannot queue a record"),
            }
            self.look()?;
            if self.interrupt.arrived() {
                self.account.never_queued(offer.meta.user_seq);
                return Ok(());
            }
        }
    }

    /// The largest record that can be sent, if the carrier has a limit of its own.
    fn largest(&self) -> Option<u32> {
        match &self.server {
            Server::Engine { .. } => None,
            Server::Peer(open) => open.connection.qos().map(|qos| qos.max_send_message),
            Server::Crowd(_) => Some(self.largest_to_group),
        }
    }

    fn try_push(&mut self, offer: &Offer) -> Result<(), PushError> {
        let ring = self.sink.ring();
        if !self.replaces {
            self.sender.push(ring, &offer.bytes, &offer.meta)?;
        } else if let Replaced::InPlace(_) = self.sender.replace(ring, &offer.bytes, &offer.meta)? {
            self.account.replaced(offer.meta.user_seq);
        }
        Ok(())
    }

    /// Notes what became of records, tells the progress and fails if the connection has ended.
    fn look(&mut self) -> anyhow::Result<Timestamp> {
        let ring = self.sink.ring();
        while let Some(fate) = self.sender.poll_fate(ring) {
            self.account.fate(&fate);
        }
        match &mut self.server {
            Server::Engine { .. } => {}
            Server::Peer(open) => open.turn_others_away()?,
            Server::Crowd(crowd) => crowd.look(Duration::ZERO)?,
        }
        let now = freshwire_io::now();
        let (sink, account) = (&self.sink, &self.account);
        self.progress.tell(now, || account.progress(&sink.stats()));
        match self.sink.ended() {
            None => Ok(now),
            Some(Ended::Broken(why)) => anyhow::bail!("the connection broke: {why}"),
            Some(_) => anyhow::bail!("the connection was closed"),
        }
    }

    /// Waits until every record is acknowledged or dropped, unless the user does not want to.
    fn drain(&mut self, patience: Duration) -> anyhow::Result<()> {
        let give_up = freshwire_io::now() + patience;
        loop {
            let now = self.look()?;
            if self.account.outstanding() == 0 || self.interrupt.arrived() {
                return Ok(());
            }
            anyhow::ensure!(
                now < give_up,
                "{} records are not delivered {patience:?} after the end of the source; --drain gives them longer",
                self.account.outstanding()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Ends the connection and gives the account. Who receives over A1 is told of a failure.
    fn close(mut self, failure: Option<&anyhow::Error>) -> Account {
        self.progress.finish();
        let (ring, stats) = (self.sink.ring(), self.sink.stats());
        if let Some(why) = failure {
            let why = format!("the sender failed: {why:#}");
            match &self.server {
                Server::Engine { .. } => {}
                Server::Peer(open) => open.connection.close(CODE_FAILED, &why),
                Server::Crowd(crowd) => crowd.end(CODE_FAILED, &why),
            }
        }
        let broken_before = self.sink.ended().is_some();
        let mode = match self.account.outstanding() {
            0 => CloseMode::Drain,
            _ if self.interrupt.arrived() => CloseMode::FinishRecord,
            _ => CloseMode::Abort,
        };
        let ended = self.sink.close(mode, CLOSE);
        if let Server::Crowd(crowd) = &self.server {
            crowd.end(CODE_DONE, ENDED);
        }
        while let Some(fate) = self.sender.poll_fate(ring) {
            self.account.fate(&fate);
        }
        if let (false, Ended::Broken(why)) = (broken_before, &ended) {
            say(&format!("the connection did not end in order: {why}"));
        }
        self.account.close(stats);
        self.account
    }
}

fn tell_carrier(sink: &Sink) {
    match (sink.stats().carrier, sink.fallback()) {
        (CarrierInUse::Tcp, None) => {}
        (CarrierInUse::Tcp, Some(why)) => say(&format!("carrier: plain TCP; no kernel ring: {why}")),
        (CarrierInUse::KernelFed, _) => {
            say("carrier: the kernel's ring, filled with the records that the policy chooses");
        }
        (CarrierInUse::A1, _) => say("carrier: A1"),
        _ => say("carrier: the kernel's ring, without an engine between"),
    }
}

fn explain(error: SenderError, plan: &Plan) -> anyhow::Error {
    match (&error, &plan.congestion) {
        (SenderError::Stream(reason), Some(name)) if reason.kind() == io::ErrorKind::NotFound => {
            let known = freshwire_io::tcp::available_congestion_controls().unwrap_or_default();
            anyhow::anyhow!("this kernel has no congestion control {name:?}; it has: {}", known.join(", "))
        }
        _ => error.into(),
    }
}
