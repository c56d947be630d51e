//! The processes of a run: the server under test, fed in real time, and the load, which takes commands.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use freshwire_record::Timestamp;
use freshwire_server::priority::DEFAULT_NICE;
use rustix::process::{Pid, setpriority_process};

use super::worker::Worker;
use super::{bare, load};
use crate::bench::machine::{Activity, Resident, ThreadTimes};
use crate::child::{ChildGuard, own_program};
use crate::ffmpeg;
use crate::viewers::clip::{Clip, FPS};
use crate::viewers::server;

/// From the start of a server to the first access unit.
const FEED_LEAD: Duration = Duration::from_millis(500);

/// A server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Subject {
    /// A live server, by RTSP.
    Server(server::Server),
    /// Freshwire's with this number of engines.
    Engines(u8),
    /// Freshwire's, whose viewers ask for RTP over UDP.
    Udp(load::Datagrams),
    /// Freshwire's, whose viewers ask for WebRTC over HTTP.
    Whep,
    /// Freshwire's as an edge: it reads the stream at a relay, where another server announces it.
    Edge,
    /// Freshwire's, whose stream a camera publishes by RTSP.
    Published,
    /// MediaMTX, whose stream a camera publishes by RTSP.
    Mediamtx,
    /// One `write()` of each access unit's size to each connection, and nothing else.
    Bare,
}

impl Subject {
    /// Its name for people.
    pub(in crate::bench) fn label(self) -> Cow<'static, str> {
        match self {
            Self::Server(server) => server.label().into(),
            Self::Engines(engines) => format!("Freshwire, {engines} engines").into(),
            Self::Udp(load::Datagrams::Single) => "Freshwire, UDP".into(),
            Self::Udp(load::Datagrams::Whole) => "Freshwire, UDP to viewers with UDP_GRO".into(),
            Self::Whep => "Freshwire, WebRTC".into(),
            Self::Edge => "Freshwire, edge of a relay".into(),
            Self::Published => "Freshwire, published".into(),
            Self::Mediamtx => "MediaMTX, published".into(),
            Self::Bare => "bare writes".into(),
        }
    }

    /// Whether the stream comes from a publisher by RTSP, and not by standard input.
    fn is_published(self) -> bool {
        matches!(self, Self::Published | Self::Mediamtx)
    }

    fn command(self, address: SocketAddr, log: &Path) -> anyhow::Result<Command> {
        Ok(match self {
            Self::Server(server) => server.command(address, None)?,
            Self::Udp(_) => server::Server::Freshwire.command(address, None)?,
            Self::Engines(engines) => {
                let mut command = server::Server::Freshwire.command(address, None)?;
                command.args(["--engines", &engines.to_string()]);
                command
            }
            Self::Whep => server::browsed(address)?,
            Self::Edge => server::edge(address, relay_beside(address))?,
            Self::Published => server::published(address)?,
            Self::Mediamtx => server::mediamtx(address, &log.with_file_name("mediamtx.yml"))?,
            Self::Bare => worker_command(Worker::Bare)?,
        })
    }
}

/// Where the relay of an edge listens: the same port of another address of this machine.
fn relay_beside(edge: SocketAddr) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), edge.port()))
}

fn worker_command(worker: Worker) -> anyhow::Result<Command> {
    let name = worker.to_possible_value().context("a worker without a name")?;
    let mut command = own_program()?;
    command.args(["bench", "--worker", name.get_name()]);
    Ok(command)
}

/// A subject at work: it has the stream's first access units and accepts viewers.
pub(in crate::bench) struct Serving {
    process: ChildGuard,
    /// What brings it the stream.
    _publishers: Vec<ChildGuard>,
    address: SocketAddr,
    subject: Subject,
    clip: Arc<Clip>,
    /// When the first access unit was handed over.
    pub(super) fed: Timestamp,
}

impl Serving {
    /// Starts the subject with the clip as its stream. Its messages are appended to the file `log`.
    pub(in crate::bench) fn start(subject: Subject, clip: &Arc<Clip>, log: &Path) -> anyhow::Result<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let address = free.local_addr().context("cannot tell the listener's address")?;
        drop(free);
        let mut command = subject.command(address, log)?;
        let log = File::options().create(true).append(true).open(log).context("cannot open the log")?;
        let publisher_log = log.try_clone().context("cannot share the log")?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", subject.label()))?;
        let mut process = ChildGuard(child);
        // As Freshwire's server does for itself, and where it may not, this does not work either.
        if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
            let _ = setpriority_process(Some(pid), DEFAULT_NICE);
        }
        let mut input = process.stdin.take().context("the server has no input")?;
        let mut publishers = Vec::new();
        if subject == Subject::Edge {
            let relay = relay_beside(address);
            for mut command in [server::relay(relay)?, server::origin(relay)?] {
                let log = publisher_log.try_clone().context("cannot share the log")?;
                command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
                let mut child = ChildGuard(command.spawn().context("cannot start the relay and the origin")?);
                input = child.stdin.take().context("the origin has no input")?;
                publishers.push(child);
            }
        }
        if subject.is_published() {
            server::wait_until_it_listens(&mut process, || anyhow::Ok(TcpStream::connect(address)))?;
            let mut child =
                ffmpeg::publisher(address).stderr(publisher_log).spawn().context("cannot run ffmpeg")?;
            input = child.stdin.take().context("the publisher has no input")?;
            publishers.push(ChildGuard(child));
        }
        let fed = freshwire_io::now() + FEED_LEAD;
        if subject == Subject::Bare {
            let task = bare::Task { address, sizes: clip.sizes(), picture: Duration::from_secs(1) / FPS };
            writeln!(input, "{}", serde_json::to_string(&task)?).context("cannot hand over the task")?;
        } else {
            let source = Arc::clone(clip);
            // Ends with the stream or with its reader; how late it was shows in what viewers get.
            std::thread::spawn(move || source.feed(input, fed));
        }
        server::wait_until_it_listens(&mut process, || anyhow::Ok(TcpStream::connect(address)))?;
        let serving =
            Self { process, _publishers: publishers, address, subject, clip: Arc::clone(clip), fed };
        crate::scenario::wait_until(fed + FEED_LEAD);
        Ok(serving)
    }

    /// A connection to it.
    pub(super) fn connect(&self) -> anyhow::Result<TcpStream> {
        TcpStream::connect(self.address).context("cannot connect to the server")
    }

    /// The URL for viewers by RTSP, where there are some.
    pub(super) fn url(&self) -> Option<String> {
        let is_rtsp = !matches!(self.subject, Subject::Bare | Subject::Whep);
        is_rtsp.then(|| format!("rtsp://{}/live", self.address))
    }

    /// A load without viewers.
    pub(in crate::bench) fn load(&self) -> anyhow::Result<Load> {
        let by = match self.subject {
            Subject::Udp(datagrams) => load::Way::Datagrams(datagrams),
            Subject::Whep => load::Way::Whep,
            _ => load::Way::Connection,
        };
        Load::start(&load::Target { address: self.address, url: self.url(), by })
    }

    /// Processor time so far.
    pub(super) fn times(&self) -> anyhow::Result<ThreadTimes> {
        ThreadTimes::of(self.process.id())
    }

    /// What its threads have done so far.
    pub(in crate::bench) fn activity(&self) -> anyhow::Result<Activity> {
        Activity::of(self.process.id())
    }

    /// Memory now.
    pub(super) fn memory(&self) -> anyhow::Result<Resident> {
        Resident::of(self.process.id())
    }

    /// Bytes of the access units that were handed over between two instants.
    pub(super) fn handed_over(&self, from: Timestamp, to: Timestamp) -> usize {
        let place = |at: Timestamp| (at.saturating_since(self.fed).as_secs_f64() * f64::from(FPS)) as usize;
        let (from, to) = (place(from), place(to));
        self.clip.sizes().iter().skip(from).take(to - from).sum()
    }
}

/// Viewers in a process of their own.
pub(in crate::bench) struct Load {
    _process: ChildGuard,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    fn start(target: &load::Target) -> anyhow::Result<Self> {
        let mut command = worker_command(Worker::Load)?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = ChildGuard(child.context("cannot start the load")?);
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let input = input.context("the load has no input")?;
        let output = BufReader::new(output.context("the load has no output")?);
        let mut load = Self { _process: process, input, output };
        load.tell(target)?;
        Ok(load)
    }

    fn tell(&mut self, what: &impl serde::Serialize) -> anyhow::Result<()> {
        writeln!(self.input, "{}", serde_json::to_string(what)?).context("the load has ended")
    }

    fn ask(&mut self, order: &load::Order) -> anyhow::Result<load::Answer> {
        self.tell(order)?;
        let mut line = String::new();
        self.output.read_line(&mut line).context("the load does not answer")?;
        serde_json::from_str(&line).context("the load has ended")
    }

    /// Adds viewers and waits until they play.
    pub(in crate::bench) fn connect(&mut self, viewers: usize, reads: bool) -> anyhow::Result<()> {
        match self.ask(&load::Order::Connect { viewers, reads })? {
            load::Answer::Failed(why) => bail!("{why}"),
            load::Answer::Connected | load::Answer::Counted(_) => Ok(()),
        }
    }

    /// Bytes that each viewer has read so far.
    pub(in crate::bench) fn count(&mut self) -> anyhow::Result<Vec<u64>> {
        match self.ask(&load::Order::Count)? {
            load::Answer::Counted(bytes) => Ok(bytes),
            load::Answer::Connected | load::Answer::Failed(_) => bail!("the load does not count"),
        }
    }
}
