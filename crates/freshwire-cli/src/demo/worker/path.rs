//! A connection across an emulated link, inside namespaces of this process's own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::netns::{Account, Emulator, EmulatorOptions, Namespaces};
use freshwire_io::tcp::TcpSocket;
use freshwire_link::{Config, Loss};
use freshwire_units::Rate;

use crate::lab::schema::LinkConfig;

/// How long connecting may take: a lost SYN is repeated after 1, 3, 7 and 15 seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(16);

/// Both ends of a TCP connection and the link between them.
pub(super) struct Path {
    pub(super) near: TcpStream,
    pub(super) far: TcpStream,
    /// The congestion control of the near end.
    pub(super) congestion: String,
    emulator: Emulator,
}

impl Path {
    /// Makes the namespaces, starts the link and connects across it. Call while the process has one thread.
    pub(super) fn open(link: &LinkConfig, congestion: Option<&str>) -> anyhow::Result<Self> {
        let namespaces = Namespaces::create()?;
        let config = config(link)?;
        let emulator = Emulator::start(&namespaces, config.clone(), config, EmulatorOptions::default())?;
        let listener =
            namespaces.in_far(|| TcpListener::bind((Namespaces::FAR_V4, 0)))?.context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?;
        let (near, congestion) = namespaces.in_near(|| connect(address, congestion))??;
        let (far, _) = listener.accept().context("cannot accept")?;
        Ok(Self { near, far, congestion, emulator })
    }

    /// Ends the link.
    pub(super) fn close(self) -> Account {
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

fn config(link: &LinkConfig) -> anyhow::Result<Config> {
    let mut builder = Config::builder().delay(Duration::from_nanos(link.delay_ns())).seed(link.seed);
    if let Some(bytes) = link.queue_bytes {
        builder = builder.queue_bytes(bytes);
    }
    if let Some(rate) = link.rate_bps {
        builder = builder.rate(Rate::from_bits_per_sec(rate));
    }
    if link.loss > 0.0 {
        builder = builder.loss(Loss::Random { share: link.loss });
    }
    Ok(builder.build()?)
}
