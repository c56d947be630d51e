//! A connection across an emulated link, inside namespaces of this process's own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::tcp::TcpSocket;
use freshwire_link::{Config, Loss, Schedule, Step};
use freshwire_netns::{Account, Emulator, EmulatorOptions, Namespaces};
use freshwire_record::{Rate, Timestamp};

use crate::schema::LinkConfig;

/// How long connecting may take: a lost SYN is repeated after 1, 3, 7, 15 and 31 seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(32);

/// From the start of a link whose rate changes to the start of the run: the connection has to be there by then.
pub(crate) const LEAD: Duration = Duration::from_secs(2);

/// An emulated link whose ends are namespaces of this process's own.
pub(crate) struct TestLink {
    pub(crate) namespaces: Namespaces,
    /// When the run has to start for the link's rate to change at its times; `None` for a steady link.
    start: Option<Timestamp>,
    emulator: Emulator,
}

impl TestLink {
    /// Makes the namespaces and starts the link. Call while the process has one thread.
    pub(crate) fn open(link: &LinkConfig) -> anyhow::Result<Self> {
        let namespaces = Namespaces::create()?;
        let [up, down] = directions(link)?;
        let start = (!link.steps.is_empty()).then(|| freshwire_io::now() + LEAD);
        let emulator = Emulator::start(&namespaces, up, down, EmulatorOptions::default())?;
        Ok(Self { namespaces, start, emulator })
    }

    /// When a run starts whose ends are connected now: `lead` from now, or when the link's rate prescribes.
    pub(crate) fn start_after(&self, lead: Duration) -> anyhow::Result<Timestamp> {
        let now = freshwire_io::now();
        anyhow::ensure!(
            self.start.is_none_or(|start| now < start),
            "connecting across the link took longer than {LEAD:?}; take another seed"
        );
        Ok(self.start.unwrap_or(now + lead))
    }

    /// Both ends of a TCP connection across the link, and the near end's congestion control; `None` keeps the
    /// system's.
    pub(crate) fn connect_tcp(
        &self,
        congestion: Option<&str>,
    ) -> anyhow::Result<(TcpStream, TcpStream, String)> {
        let listen = || TcpListener::bind((Namespaces::FAR_V4, 0));
        let listener = self.namespaces.in_far(listen)?.context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let (near, congestion) = self.namespaces.in_near(|| connect(address, congestion))??;
        let (far, _) = listener.accept().context("cannot accept")?;
        Ok((near, far, congestion))
    }

    /// Ends the link.
    pub(crate) fn close(self) -> Account {
        self.emulator.stop()
    }
}

fn connect(address: SocketAddr, congestion: Option<&str>) -> anyhow::Result<(TcpStream, String)> {
    let stream =
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).context("cannot connect across the link")?;
    let socket = TcpSocket::new(stream.try_clone()?)?;
    if let Some(name) = congestion {
        socket.set_congestion(name).with_context(|| {
            format!("this kernel does not let us choose congestion control {name:?}; see `freshwire doctor`")
        })?;
    }
    let congestion = socket.congestion().context("cannot ask for the congestion control")?;
    Ok((stream, congestion))
}

/// A link in the direction of the data and back. Its steps begin after [`LEAD`]; on the way back an outage counts, a
/// change of the rate does not.
pub(crate) fn directions(link: &LinkConfig) -> anyhow::Result<[Config; 2]> {
    let has_outage = link.steps.iter().any(|step| step.rate_bps == Some(0));
    Ok([direction(link, true)?, direction(link, has_outage)?])
}

fn direction(link: &LinkConfig, data: bool) -> anyhow::Result<Config> {
    let mut builder =
        Config::builder().delay(Duration::from_nanos(link.delay_ns())).loss(loss(link)).seed(link.seed);
    if let Some(bytes) = link.queue_bytes {
        builder = builder.queue_bytes(bytes);
    }
    let first = link.rate_bps.map(Rate::from_bits_per_sec);
    if data && !link.steps.is_empty() {
        let mut steps = vec![Step { at: Duration::ZERO, rate: first }];
        steps.extend(link.steps.iter().map(|step| Step {
            at: LEAD + Duration::from_nanos(step.at_ns),
            rate: step.rate_bps.map(Rate::from_bits_per_sec),
        }));
        builder = builder.schedule(Schedule::from_steps(steps, None)?);
    } else if let Some(rate) = first {
        builder = builder.rate(rate);
    }
    Ok(builder.build()?)
}

fn loss(link: &LinkConfig) -> Loss {
    match link.burst_packets {
        _ if link.loss == 0.0 => Loss::None,
        Some(mean_packets) => Loss::Burst { share: link.loss, mean_packets },
        None => Loss::Random { share: link.loss },
    }
}
