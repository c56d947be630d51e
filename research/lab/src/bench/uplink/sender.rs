//! The subjects: ways from the encoder to the uplink.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{ChildStdin, Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use freshwire_io::tcp::TcpSocket;
use freshwire_netns::Namespaces;

use super::flv::{self, Tag};
use super::rtmp::{self, Client, PORT};
use super::rule::Publisher;
use crate::child::ChildGuard;
use crate::ffmpeg;
use crate::product;
use crate::viewers::server::wait_until_it_listens;

/// What sends the encoder's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::bench) enum Subject {
    /// ffmpeg publishes by RTMP straight to the server, with blocking writes.
    Direct,
    /// A publisher with OBS's rule: a queue before a blocking socket, from which pictures are dropped.
    Rule,
    /// ffmpeg publishes by RTMP to `freshwire serve` beside it, which forwards by RTMP.
    Freshwire,
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Rule => "rule",
            Self::Freshwire => "Freshwire",
        }
    }
}

/// Where the encoder's stream goes.
pub(super) enum Input {
    Pipe(ChildStdin),
    Queue(Publisher),
}

impl Input {
    /// Hands a part of the stream over; `false` when nobody takes it any more.
    pub(super) fn take(&mut self, tag: &Tag) -> bool {
        match self {
            Self::Pipe(pipe) => {
                let mut bytes = Vec::new();
                tag.write(&mut bytes);
                pipe.write_all(&bytes).is_ok()
            }
            Self::Queue(publisher) => {
                publisher.push(tag.clone());
                true
            }
        }
    }

    /// Ends it; how many pictures the rule has dropped.
    ///
    /// # Errors
    ///
    /// If its connection had ended before.
    pub(super) fn stop(self) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Pipe(_) => Ok(None),
            Self::Queue(publisher) => publisher.stop().map(Some),
        }
    }
}

/// Starts it in the near namespace, to publish `key` at the far end; its programs, and what takes the stream. What the programs say goes to
/// `log`. `congestion` is what connections should use.
pub(super) fn start(
    subject: Subject,
    namespaces: &Namespaces,
    key: &str,
    congestion: &str,
    log: &File,
) -> anyhow::Result<(Vec<ChildGuard>, Input)> {
    let to = rtmp::url(Namespaces::FAR_V4, key);
    match subject {
        Subject::Direct => {
            let (child, input) = publish(namespaces, &["-f", "flv", &to], log)?;
            Ok((vec![child], input))
        }
        Subject::Rule => {
            let connect = || TcpStream::connect((Namespaces::FAR_V4, PORT));
            let socket = namespaces.in_near(connect)?.context("the rule cannot connect")?;
            let used = TcpSocket::new(socket.try_clone()?)?.congestion()?;
            ensure!(used == congestion, "connections use congestion control {used:?}, not {congestion:?}");
            let mut client = Client::open(socket)?;
            client.publish(key)?;
            Ok((Vec::new(), Input::Queue(Publisher::start(client)?)))
        }
        Subject::Freshwire => {
            let server = serve(namespaces, &to, log)?;
            let url = format!("rtmp://{INGEST}/live");
            let (child, input) = publish(namespaces, &["-f", "flv", &url], log)?;
            Ok((vec![child, server], input))
        }
    }
}

/// Where `freshwire serve` takes the stream.
const INGEST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

fn serve(namespaces: &Namespaces, to: &str, log: &File) -> anyhow::Result<ChildGuard> {
    // Programs: own
    let mut command = Command::new(product::program()?);
    let words = format!(
        "serve live=publish --open --listen-http none --listen-internal none --listen-rtsp none --listen-rtmp {INGEST} --forward {to}"
    );
    command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log.try_clone().context("cannot share the log")?);
    let mut child =
        ChildGuard(namespaces.spawn_near(&mut command).context("cannot start `freshwire serve`")?);
    wait_until_it_listens(&mut child, || namespaces.in_near(|| TcpStream::connect(INGEST)))?;
    Ok(child)
}

/// ffmpeg that publishes the FLV on its standard input.
fn publish(namespaces: &Namespaces, output: &[&str], log: &File) -> anyhow::Result<(ChildGuard, Input)> {
    let mut command = ffmpeg::live("flv");
    command.args(output).stderr(log.try_clone().context("cannot share the log")?);
    let mut child = ChildGuard(namespaces.spawn_near(&mut command).context("cannot start ffmpeg")?);
    let mut input = child.stdin.take().context("ffmpeg has no input")?;
    input.write_all(&flv::write([])).context("ffmpeg takes no stream")?;
    Ok((child, Input::Pipe(input)))
}
