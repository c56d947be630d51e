//! `freshwire send`: a live source to any TCP receiver, or to another Freshwire over A1, as fresh as the path allows.

mod account;
mod again;
mod args;
mod group;
mod input;
mod kernel;
mod lines;
mod network;
mod newest;
mod source;
mod timing;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::engine::EngineThread;
use freshwire::ring::Replaced;
use freshwire::sink::{CarrierInUse, CloseMode};
use freshwire::{Ended, Engine, PushError, RingConfig, Sender, SenderError, Sink};
use freshwire_record::Timestamp;

use crate::a1;
use crate::interrupt::Interrupt;
use crate::output::{Progress, print, say};
use account::Account;
use args::Plan;
use group::GroupSession;
use input::{NewRecord, Polled, Source};
use newest::Newest;
use timing::{CLOSE, LOOK, WATCH};

pub(crate) use args::{FramingName, SendArgs};

/// Payload bytes of a slot: large enough for most access units, small enough to waste little.
const BLOCK_BYTES: u32 = 16 << 10;

/// Slots of the ring, and blocks of its arena. What no policy drops piles up to this, then the source waits.
const SLOTS: u32 = 4096;
const BLOCKS: u32 = 2048;

/// Why records were not sent that no policy dropped.
const NEVER_QUEUED: &str = "never-queued";
const NOT_CONNECTED: &str = "not-connected";

/// The close code and reason for receivers over A1 after the end of the stream.
const CODE_DONE: u64 = 0;
const ENDED: &str = "the stream has ended";

/// The close code after a failure of the source, or of its delivery in time.
const CODE_FAILED: u64 = 1024;

/// Runs `freshwire send`.
pub(crate) fn run(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let plan = Arc::new(args.plan()?);
    let interrupt = Interrupt::watch()?;
    let mut source = source::open(&plan.source)?;
    let route = Route::open(&plan)?;
    interrupt.arm();
    let mut session = Session::new(plan, route, args.quiet, interrupt)?;
    let sent = session.send(source.as_mut());
    // What came before a source failed is worth as much as ever.
    let sent = sent.and(session.drain());
    let account = session.close(sent.as_ref().err());
    // The account is printed also if the source failed on the way.
    print(&if args.json { account.json()? } else { account.text() })?;
    sent?;
    Ok(ExitCode::SUCCESS)
}

/// The way to the receiver, or to many.
enum Route {
    Tcp(TcpStream),
    A1(a1::OpenConnection),
    Group(GroupSession),
}

impl Route {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        if let Some((config, members)) = &plan.group {
            return GroupSession::gather(plan.listen()?, config, *members).map(Self::Group);
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
    Peer(a1::OpenConnection),
    Group(GroupSession),
}

/// The ring, and what takes records from there to the receiver.
struct Line {
    sender: Sender,
    sink: Sink,
    server: Server,
}

impl Line {
    fn new(plan: &Plan, route: Route) -> anyhow::Result<Self> {
        let ring = RingConfig { rings: 1, slots: SLOTS, block_bytes: BLOCK_BYTES, blocks: BLOCKS };
        Ok(match route {
            Route::Tcp(stream) => {
                let engine = Engine::new().and_then(Engine::spawn).context("cannot start the engine")?;
                let mut sender = Sender::new(&ring, &engine.handle())?;
                let sink = sender.add_sink(stream, plan.sink()).map_err(|error| explain(error, plan))?;
                Self { sender, sink, server: Server::Engine { _engine: engine } }
            }
            Route::A1(open) => {
                let mut sender = Sender::without_engine(&ring)?;
                let sink = sender.add_a1_sink(&open.connection, plan.a1_sink())?;
                Self { sender, sink, server: Server::Peer(open) }
            }
            Route::Group(group) => {
                let mut sender = Sender::without_engine(&ring)?;
                let sink = sender.add_a1_group(group.group(), plan.a1_sink())?;
                Self { sender, sink, server: Server::Group(group) }
            }
        })
    }

    /// The largest record that can be sent, if the carrier has a limit of its own; `of_group` is a group's.
    fn largest(&self, of_group: u32) -> Option<u32> {
        match &self.server {
            Server::Engine { .. } => None,
            Server::Peer(open) => open.connection.qos().map(|qos| qos.max_send_message),
            Server::Group(_) => Some(of_group),
        }
    }

    fn poll_fates(&mut self, account: &mut Account) {
        let id = self.sink.id();
        while let Ok(Some(fate)) = self.sender.poll_fate(id) {
            account.fate(&fate);
        }
    }
}

/// A source on its way to its receiver, or to many.
struct Session {
    plan: Arc<Plan>,
    quiet: bool,
    /// `None` while nobody is connected.
    line: Option<Line>,
    newest: Newest,
    /// A record that was not put on a ring because the connection ended.
    unsent: Option<NewRecord>,
    /// The receiver came in the middle: what depends on something before is useless to it.
    is_late: bool,
    progress: Progress,
    account: Account,
    interrupt: Interrupt,
}

impl Session {
    fn new(plan: Arc<Plan>, route: Route, quiet: bool, interrupt: Interrupt) -> anyhow::Result<Self> {
        let line = Line::new(&plan, route)?;
        if !quiet {
            tell_carrier(&line.sink, &plan);
        }
        Ok(Self {
            newest: Newest::new(plan.replaces(), plan.reconnects),
            plan,
            quiet,
            line: Some(line),
            unsent: None,
            is_late: false,
            progress: Progress::new(quiet),
            account: Account::new(),
            interrupt,
        })
    }

    /// Sends until the source ends or the user does. Fails if the source does, or if the connection breaks for good.
    fn send(&mut self, source: &mut dyn Source) -> anyhow::Result<()> {
        loop {
            match self.step(source) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if self.may_connect_again() => self.connect_again(&error, Some(&mut *source))?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes what comes next. False: it is over.
    fn step(&mut self, source: &mut dyn Source) -> anyhow::Result<bool> {
        if self.interrupt.arrived() {
            return Ok(false);
        }
        let now = self.look()?;
        if let Some(offer) = self.unsent.take() {
            self.push(offer)?;
        }
        match source.poll(self.progress.left(now).min(WATCH))? {
            Polled::Record(offer) => {
                self.account.offered(&offer);
                self.push(offer)?;
            }
            Polled::Nothing => {}
            Polled::End => return Ok(false),
        }
        Ok(true)
    }

    /// Puts a record on the ring; waits while the ring is full, which stops the source too.
    fn push(&mut self, offer: NewRecord) -> anyhow::Result<()> {
        self.check_size(&offer)?;
        if std::mem::take(&mut self.is_late) && offer.meta.refs != [0; 2] {
            self.is_late = true;
            self.account.not_sent(offer.meta.seq, NOT_CONNECTED);
            return Ok(());
        }
        loop {
            match self.try_push(&offer) {
                Ok(()) => {
                    self.newest.put(offer);
                    return Ok(());
                }
                Err(PushError::Full | PushError::OutOfBlocks) => std::thread::sleep(LOOK),
                // The connection has ended; looking says how.
                Err(PushError::Closed) => std::thread::sleep(LOOK),
                Err(error) => return Err(error).context("cannot queue a record"),
            }
            if let Err(error) = self.look() {
                self.unsent = Some(offer);
                return Err(error);
            }
            if self.interrupt.arrived() {
                self.account.not_sent(offer.meta.seq, NEVER_QUEUED);
                return Ok(());
            }
        }
    }

    fn check_size(&self, offer: &NewRecord) -> anyhow::Result<()> {
        let largest = self.line.as_ref().and_then(|line| line.largest(self.plan.largest_to_group()));
        if let Some(largest) = largest.filter(|&largest| offer.bytes.len() > largest as usize) {
            anyhow::bail!(
                "a record has {} bytes, more than the {largest} that both ends take; --largest-record raises it, here and there",
                offer.bytes.len()
            );
        }
        Ok(())
    }

    fn try_push(&mut self, offer: &NewRecord) -> Result<(), PushError> {
        let Some(Line { sender, sink, .. }) = &mut self.line else { return Err(PushError::Closed) };
        let id = sink.id();
        if !self.plan.replaces() || offer.meta.key == 0 {
            sender.push(id, &offer.bytes, &offer.meta)?;
        } else if let Replaced::InPlace(_) = sender.replace(id, &offer.bytes, &offer.meta)? {
            self.account.replaced(self.newest.seq_of(offer.meta.key));
        }
        Ok(())
    }

    /// Notes what became of records, tells the progress and fails if the connection has ended.
    fn look(&mut self) -> anyhow::Result<Timestamp> {
        let now = freshwire_io::now();
        let Some(line) = &mut self.line else { anyhow::bail!("nobody is connected") };
        line.poll_fates(&mut self.account);
        match &mut line.server {
            Server::Engine { .. } => {}
            Server::Peer(open) => open.turn_others_away()?,
            Server::Group(group) => group.look(Duration::ZERO)?,
        }
        let (sink, account) = (&line.sink, &self.account);
        self.progress.tell(now, || account.progress(&sink.stats()));
        match sink.ended() {
            None => Ok(now),
            Some(Ended::Broken(why)) => anyhow::bail!("the connection broke: {why}"),
            Some(_) => anyhow::bail!("the connection was closed"),
        }
    }

    /// Waits until every record is acknowledged or dropped, unless the user does not want to.
    fn drain(&mut self) -> anyhow::Result<()> {
        let patience = self.plan.drain;
        let give_up = freshwire_io::now() + patience;
        loop {
            // Nobody came, or the user does not want to wait: there is nothing to wait for here.
            if self.line.is_none() {
                return Ok(());
            }
            match self.look() {
                Ok(_) => {}
                Err(_) if self.account.outstanding() == 0 && self.may_connect_again() => return Ok(()),
                Err(error) if self.may_connect_again() => {
                    self.connect_again(&error, None)?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(offer) = self.unsent.take() {
                self.push(offer)?;
            }
            if self.account.outstanding() == 0 || self.interrupt.arrived() {
                return Ok(());
            }
            anyhow::ensure!(
                freshwire_io::now() < give_up,
                "{} records are not delivered {patience:?} after the end of the source; --drain gives them longer",
                self.account.outstanding()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Ends the connection and returns the account. Receivers over A1 learn of a failure.
    fn close(mut self, failure: Option<&anyhow::Error>) -> Account {
        self.progress.finish();
        if let Some(line) = self.line.take() {
            self.hang_up(line, failure);
        }
        self.account.close();
        self.account
    }

    fn hang_up(&mut self, line: Line, failure: Option<&anyhow::Error>) {
        let Line { mut sender, sink, server } = line;
        let (id, stats) = (sink.id(), sink.stats());
        if let Some(why) = failure {
            let why = format!("the sender failed: {why:#}");
            match &server {
                Server::Engine { .. } => {}
                Server::Peer(open) => open.connection.close(CODE_FAILED, &why),
                Server::Group(group) => group.end(CODE_FAILED, &why),
            }
        }
        let broken_before = sink.ended().is_some();
        let mode = match self.account.outstanding() {
            0 => CloseMode::Drain,
            _ if self.interrupt.arrived() => CloseMode::FinishRecord,
            _ => CloseMode::Abort,
        };
        let ended = sink.close(mode, CLOSE);
        if let Server::Group(group) = &server {
            group.end(CODE_DONE, ENDED);
        }
        while let Ok(Some(fate)) = sender.poll_fate(id) {
            self.account.fate(&fate);
        }
        if let (false, Ended::Broken(why)) = (broken_before, &ended) {
            say(&format!("the connection did not end in order: {why}"));
        }
        self.account.disconnected(&stats);
    }
}

fn tell_carrier(sink: &Sink, plan: &Plan) {
    match (sink.stats().carrier, sink.fallback()) {
        (CarrierInUse::Tcp, None) => {}
        (CarrierInUse::Tcp, Some(why)) if plan.reports_fallback => {
            say(&format!("carrier: plain TCP; no kernel ring: {why}"));
        }
        (CarrierInUse::Tcp, Some(_)) => {}
        (CarrierInUse::KernelFed, _) => {
            say("carrier: the kernel's ring, filled with the records that the policy chooses");
        }
        (CarrierInUse::A1, _) => say("carrier: A1"),
        (CarrierInUse::A1OverTcp, _) => say("carrier: A1 over TCP; UDP does not pass"),
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
