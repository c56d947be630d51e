//! The programs of a tree.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use freshwire_record::Timestamp;

use super::wires::{Node, Wires};
use crate::child::ChildGuard;
use crate::product;
use crate::viewers::clip::Clip;

/// Where servers serve RTSP, and relays listen.
const RTSP: u16 = 8554;
const MOQ: u16 = 4443;
/// How long a program may take until it listens.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(20);

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Serves the stream on its standard input.
    Single,
    /// Does so, and announces it to a relay, below this path.
    Origin { relay: Node, path: &'static str },
    /// A relay, perhaps with another one as its peer.
    Relay { peer: Option<Node> },
    /// Serves what a relay has there.
    Edge { relay: Node, path: &'static str },
}

impl Role {
    fn words(self, node: Node) -> String {
        let own = node.address();
        let serve = "--open --listen-http none --listen-rtmp none --listen-webrtc none --listen-internal none --listen-rtsp";
        match self {
            Self::Single => format!("serve live=- {serve} {own}:{RTSP}"),
            Self::Origin { relay, path } => {
                format!("serve live=- {serve} {own}:{RTSP} --relay http://{}:{MOQ}/{path}", relay.address())
            }
            Self::Relay { peer: None } => format!("relay --listen {own}:{MOQ} --public **"),
            Self::Relay { peer: Some(peer) } => {
                format!("relay --listen {own}:{MOQ} --public ** --peer http://{}:{MOQ}/", peer.address())
            }
            Self::Edge { relay, path } => {
                format!("serve live=moq+http://{}:{MOQ}/{path}/live {serve} {own}:{RTSP}", relay.address())
            }
        }
    }

    /// Where it takes connections.
    fn port(self) -> u16 {
        if matches!(self, Self::Relay { .. }) { MOQ } else { RTSP }
    }
}

/// Where a server in this machine serves RTSP.
pub(super) fn rtsp(node: Node) -> SocketAddr {
    address(node, RTSP)
}

fn address(node: Node, port: u16) -> SocketAddr {
    (node.address(), port).into()
}

/// A program at work. Dropping it kills it.
pub(super) struct Program {
    child: ChildGuard,
}

impl Program {
    /// Starts it, and waits until it listens.
    pub(super) fn start(wires: &Wires, node: Node, role: Role, log: &Path) -> anyhow::Result<Self> {
        let mut command = wires.command(node, &product::program()?);
        let log = File::options().create(true).append(true).open(log).context("cannot open the log")?;
        command.args(role.words(node).split(' ')).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let child = ChildGuard(command.spawn().context("cannot start `freshwire`")?);
        let mut program = Self { child };
        let dialer = wires.dialer(node)?;
        let until = freshwire_io::now() + PATIENCE;
        while dialer.connect(address(node, role.port())).is_err() {
            if let Some(status) = program.child.try_wait().context("cannot look after a program")? {
                bail!(
                    "{role:?} has ended ({status}); see tree.log. A tree needs `freshwire` with the feature `moq`"
                );
            }
            anyhow::ensure!(
                freshwire_io::now() < until,
                "{role:?} does not listen after {PATIENCE:?}; see tree.log"
            );
            std::thread::sleep(LOOK);
        }
        Ok(program)
    }

    /// Feeds it with the stream from then on.
    pub(super) fn feed(&mut self, clip: &Arc<Clip>, from: Timestamp) -> anyhow::Result<()> {
        let input: ChildStdin = self.child.stdin.take().context("a server has no input")?;
        let clip = Arc::clone(clip);
        // Ends with the stream or with its reader; how late it was shows in what viewers get.
        std::thread::spawn(move || clip.feed(input, from));
        Ok(())
    }
}
