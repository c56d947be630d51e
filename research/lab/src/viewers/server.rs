//! The servers that are compared, each in the near namespace, fed through its standard input.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use freshwire_netns::Namespaces;
use serde::{Deserialize, Serialize};

use crate::child::ChildGuard;
use crate::product;

/// The port on which every server listens.
pub(crate) const PORT: u16 = 8554;
/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// A server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Server {
    /// `freshwire serve`, the command beside this program.
    Freshwire,
    /// GStreamer's RTSP server.
    Gstreamer,
}

impl Server {
    /// Its name for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Freshwire => "Freshwire",
            Self::Gstreamer => "GStreamer",
        }
    }

    /// Where players get lost packets of RTP over UDP again.
    pub(super) fn repaired_url(self) -> String {
        match self {
            Self::Freshwire => format!("{}?retransmission=on", url()),
            Self::Gstreamer => url().replace("/live", "/repaired"),
        }
    }

    /// Serves the MPEG-TS on its standard input as the stream `live`, by RTSP at `listen`.
    pub(crate) fn command(self, listen: SocketAddr, config: Option<&Path>) -> anyhow::Result<Command> {
        Ok(match self {
            Self::Freshwire => {
                // Programs: own
                let mut command = Command::new(product::program()?);
                let words = format!(
                    "serve live=- --open --listen-http none --listen-internal none --listen-rtsp {listen}"
                );
                command.args(words.split(' '));
                command.args(config.into_iter().flat_map(|file| [Path::new("--config"), file]));
                command
            }
            Self::Gstreamer => {
                // The system's Python: only that one sees the system's GObject introspection.
                let mut command = Command::new("/usr/bin/python3");
                let [host, port] = [listen.ip().to_string(), listen.port().to_string()];
                command.args(["-c", include_str!("gstreamer_server.py"), &host, &port]);
                command
            }
        })
    }
}

/// Freshwire's server, which serves the MPEG-TS on its standard input to browsers that ask at `listen`.
pub(crate) fn browsed(listen: SocketAddr) -> anyhow::Result<Command> {
    // Programs: own
    let mut command = Command::new(product::program()?);
    let words = format!(
        "serve live=- --open --listen-internal none --listen-rtsp none --listen-http {listen} --listen-webrtc {}:0",
        listen.ip()
    );
    command.args(words.split(' '));
    Ok(command)
}

fn freshwire(words: &str) -> anyhow::Result<Command> {
    // Programs: own
    let mut command = Command::new(product::program()?);
    command.args(words.split(' '));
    Ok(command)
}

/// A relay of Media over QUIC.
pub(crate) fn relay(listen: SocketAddr) -> anyhow::Result<Command> {
    freshwire(&format!("relay --listen {listen}"))
}

/// Freshwire's server, which announces the MPEG-TS on its standard input at a relay.
pub(crate) fn origin(relay: SocketAddr) -> anyhow::Result<Command> {
    freshwire(&format!(
        "serve live=- --listen-http none --listen-internal none --listen-rtsp none --listen-rtmp none --listen-webrtc none --relay http://{relay}/tree"
    ))
}

/// Freshwire's server, which serves what that one announces.
pub(crate) fn edge(listen: SocketAddr, relay: SocketAddr) -> anyhow::Result<Command> {
    freshwire(&format!(
        "serve live=moq+http://{relay}/tree/live --open --listen-http none --listen-internal none --listen-rtmp none --listen-webrtc none \
         --listen-rtsp {listen}"
    ))
}

/// Freshwire's server, which waits for somebody to publish the stream `live` by RTSP at `listen`.
pub(crate) fn published(listen: SocketAddr) -> anyhow::Result<Command> {
    // Programs: own
    let mut command = Command::new(product::program()?);
    let words =
        format!("serve live=publish --open --listen-http none --listen-internal none --listen-rtsp {listen}");
    command.args(words.split(' '));
    Ok(command)
}

/// A program on the `PATH`.
fn peer(name: &str) -> &str {
    name
}

/// MediaMTX with everything but RTSP turned off, which waits likewise. Its settings are written to `settings`.
pub(crate) fn mediamtx(listen: SocketAddr, settings: &Path) -> anyhow::Result<Command> {
    let off = ["rtmp", "hls", "webrtc", "srt", "api", "metrics"].map(|name| format!("{name}: no\n")).concat();
    let text = format!(
        "logLevel: error\n{off}rtspAddress: {listen}\nrtspTransports: [tcp]\npaths:\n  all_others:\n"
    );
    std::fs::write(settings, text).with_context(|| format!("cannot write {}", settings.display()))?;
    // Not among the requirements: no registry of the project has it, and who lacks it gets a note.
    // Programs: own
    let mut command = Command::new(peer("mediamtx"));
    command.arg(settings);
    Ok(command)
}

/// A server at work. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Running {
    child: ChildGuard,
    input: Option<ChildStdin>,
}

impl Running {
    /// Starts `server` in the near namespace, ours with the settings in `config`; what it has to say goes to `log`.
    pub(crate) fn start(
        server: Server,
        config: Option<&Path>,
        namespaces: &Namespaces,
        log: std::fs::File,
    ) -> anyhow::Result<Self> {
        let mut command = server.command((Ipv4Addr::UNSPECIFIED, PORT).into(), config)?;
        let mut other = log.try_clone().context("cannot share the server's log")?;
        writeln!(other, "# {}", server.label()).context("cannot write the server's log")?;
        command.stdin(Stdio::piped()).stdout(other).stderr(log);
        let mut child = namespaces.spawn_near(&mut command).context("cannot start the server")?;
        let input = child.stdin.take();
        Ok(Self { child: ChildGuard(child), input })
    }

    /// Where to write its stream; once.
    pub(crate) fn input(&mut self) -> anyhow::Result<ChildStdin> {
        self.input.take().context("the server has no input")
    }

    /// Waits until it accepts connections.
    pub(crate) fn wait_until_it_listens(&mut self, namespaces: &Namespaces) -> anyhow::Result<()> {
        wait_until_it_listens(&mut self.child, || namespaces.in_near(|| TcpStream::connect(address())))
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// Waits until the server accepts connections.
pub(crate) fn wait_until_it_listens<E: Into<anyhow::Error>>(
    server: &mut ChildGuard,
    connect: impl Fn() -> Result<std::io::Result<TcpStream>, E>,
) -> anyhow::Result<()> {
    let until = freshwire_io::now() + PATIENCE;
    while connect().map_err(Into::into)?.is_err() {
        if let Some(status) = server.try_wait().context("cannot look after the server")? {
            bail!("the server ended at once ({status}); see server.log");
        }
        if freshwire_io::now() > until {
            bail!("the server does not listen after {PATIENCE:?}; see server.log");
        }
        std::thread::sleep(ASK_EVERY);
    }
    Ok(())
}

/// The URL for players.
pub(crate) fn url() -> String {
    format!("rtsp://{}:{PORT}/live", Namespaces::NEAR_V4)
}

/// Where the probe connects.
pub(crate) fn address() -> SocketAddr {
    SocketAddr::from((Namespaces::NEAR_V4, PORT))
}
