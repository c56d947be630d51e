//! The load: many viewers that one thread reads empty, counting bytes.

use std::io::{self, BufRead as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::PageBuffer;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};

use super::whep;
use crate::output::print;
use crate::viewers::session::Session;

/// Threads that connect viewers, so that a server's answers overlap.
const CONNECTORS: usize = 8;
/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are asked for at a time.
const READ_BYTES: usize = 256 << 10;
/// Events fetched at a time.
const EVENTS: usize = 256;

/// The server; the first line on standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Target {
    /// Its address.
    pub(super) address: SocketAddr,
    /// The RTSP URL to play; none: it sends without being asked, or plays by WebRTC.
    pub(super) url: Option<String>,
    /// How the stream comes.
    pub(super) by: Way,
}

/// How a stream comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// In the connection.
    Connection,
    /// In datagrams.
    Datagrams(Datagrams),
    /// By WebRTC, asked for over HTTP.
    Whep,
}

/// How viewers take datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::bench) enum Datagrams {
    /// One by one.
    Single,
    /// All of one call together, if they come in one piece (`UDP_GRO`).
    Whole,
}

/// An order; each further line on standard input.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Add viewers.
    Connect {
        /// Their number.
        viewers: usize,
        /// Whether they read what comes.
        reads: bool,
    },
    /// Tell the bytes.
    Count,
}

/// The answer; a line on standard output for each order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// All of them play.
    Connected,
    /// Not all of them do, and why.
    Failed(String),
    /// Bytes that each viewer has read so far.
    Counted(Vec<u64>),
}

/// Does what standard input says, until it ends.
pub(super) fn run() -> anyhow::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let target = lines.next().context("nobody says what to do")?.context("cannot read the target")?;
    let target: Target = serde_json::from_str(&target).context("cannot read the target")?;
    let crowd = Arc::new(Crowd::new()?);
    let reading = Arc::clone(&crowd);
    std::thread::spawn(move || {
        if let Err(error) = reading.read() {
            crate::output::say(&format!("the load cannot read: {error:#}"));
            std::process::exit(2);
        }
    });
    for line in lines {
        let line = line.context("cannot read an order")?;
        let answer = match serde_json::from_str(&line).context("cannot read an order")? {
            Order::Connect { viewers, reads } => match crowd.connect(&target, viewers, reads) {
                Ok(()) => Answer::Connected,
                Err(error) => Answer::Failed(format!("{error:#}")),
            },
            Order::Count => Answer::Counted(crowd.count()),
        };
        print(&serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

struct Viewer {
    /// The stream's socket.
    socket: OwnedFd,
    /// The connection that asked for it.
    _control: TcpStream,
    bytes: AtomicU64,
}

struct Crowd {
    set: OwnedFd,
    viewers: Mutex<Vec<Arc<Viewer>>>,
    /// Bytes of the viewers by WebRTC, each of which has a thread.
    browsers: Mutex<Vec<Arc<AtomicU64>>>,
    stalled: Mutex<Vec<TcpStream>>,
}

impl Crowd {
    fn new() -> anyhow::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        Ok(Self { set, viewers: Mutex::default(), browsers: Mutex::default(), stalled: Mutex::default() })
    }

    fn connect(&self, target: &Target, viewers: usize, reads: bool) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let share = |place: usize| viewers / CONNECTORS + usize::from(place < viewers % CONNECTORS);
            let view = || match target.by {
                Way::Whep => {
                    let bytes = whep::view(target.address)?;
                    self.browsers.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
                    Ok(())
                }
                _ => self.add(view(target)?, reads),
            };
            let connect = |count: usize| move || (0..count).try_for_each(|_| view());
            let threads: Vec<_> = (0..CONNECTORS).map(|place| scope.spawn(connect(share(place)))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
                thread.join().map_err(|_| anyhow::anyhow!("a viewer panicked"))?
            };
            threads.into_iter().try_for_each(join)
        })
    }

    fn add(&self, (control, datagrams): (TcpStream, Option<UdpSocket>), reads: bool) -> anyhow::Result<()> {
        if !reads {
            self.stalled.lock().unwrap_or_else(PoisonError::into_inner).push(control);
            return Ok(());
        }
        let socket = match datagrams {
            Some(datagrams) => {
                datagrams.set_nonblocking(true).context("cannot set a socket up")?;
                OwnedFd::from(datagrams)
            }
            None => {
                control.set_nonblocking(true).context("cannot set a socket up")?;
                control.try_clone().context("cannot duplicate a socket")?.into()
            }
        };
        let viewer = Arc::new(Viewer { socket, _control: control, bytes: AtomicU64::new(0) });
        let mut viewers = self.viewers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = epoll::EventData::new_u64(viewers.len() as u64);
        viewers.push(Arc::clone(&viewer));
        epoll::add(&self.set, &viewer.socket, place, epoll::EventFlags::IN).context("cannot watch a socket")
    }

    fn all(&self) -> Vec<Arc<Viewer>> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self) -> Vec<u64> {
        let mut counts: Vec<u64> =
            self.all().iter().map(|viewer| viewer.bytes.load(Ordering::Relaxed)).collect();
        let browsers = self.browsers.lock().unwrap_or_else(PoisonError::into_inner);
        counts.extend(browsers.iter().map(|bytes| bytes.load(Ordering::Relaxed)));
        counts
    }

    /// Reads them all until something fails. A viewer whose connection ends stays as it is.
    fn read(&self) -> anyhow::Result<()> {
        let mut viewers = Vec::new();
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = PageBuffer::new(READ_BYTES);
        loop {
            events.clear();
            match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for event in &events {
                let place = event.data.u64() as usize;
                if place >= viewers.len() {
                    viewers = self.all();
                }
                let Some(viewer) = viewers.get(place) else { continue };
                match rustix::io::read(&viewer.socket, &mut *buffer) {
                    Ok(0) => epoll::delete(&self.set, &viewer.socket)?,
                    Ok(read) => _ = viewer.bytes.fetch_add(read as u64, Ordering::Relaxed),
                    Err(rustix::io::Errno::AGAIN) => {}
                    Err(_) => epoll::delete(&self.set, &viewer.socket)?,
                }
            }
        }
    }
}

/// A connection, and the socket on which the stream comes if that is another one.
fn view(target: &Target) -> anyhow::Result<(TcpStream, Option<UdpSocket>)> {
    let mut datagrams = None;
    let socket = TcpStream::connect(target.address).context("cannot connect to the server")?;
    if let Some(url) = &target.url {
        socket.set_read_timeout(Some(PATIENCE)).context("cannot set a socket up")?;
        let asking = socket.try_clone().context("cannot duplicate a socket")?;
        let mut session = Session::new(asking, url.clone())?;
        if let Way::Datagrams(taken) = target.by {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind a UDP port")?;
            if taken == Datagrams::Whole {
                // Sets `UDP_GRO`, which stays.
                let clone = socket.try_clone().context("cannot duplicate a socket")?;
                freshwire_io::udp::UdpSocket::from_std(clone).context("cannot set a socket up")?;
            }
            session.play_to(socket.local_addr().context("cannot tell a port")?.port())?;
            datagrams = Some(socket);
        } else {
            session.play()?;
        }
    }
    Ok((socket, datagrams))
}
