//! The command line of `freshwire recv`, and the settings that follow from it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use freshwire::Framing;
use freshwire::a1::ConnectionConfig;
use freshwire_record::parse_duration;
use freshwire_server::client::StreamAddress;

use super::account::Clock;
use super::ends::Input;
use crate::a1::{A1Args, A1Options, PeerHint};
use crate::endpoint::Endpoint;
use crate::send::FramingName;

/// Receive a stream, check every byte of a layered one, and say how old its records were.
#[derive(Args)]
#[command(after_help = "\
Examples:
  freshwire recv --listen 5000                                 checks what `freshwire send ... layers` sends
  freshwire recv --from camera:5000 --framing chunked --json
  freshwire recv --carrier a1 --listen 5000                    prints its key and what the sender types
  freshwire recv --carrier auto --listen 5000                  the same, and over TCP where UDP does not pass
  freshwire recv --carrier a1 --join --from camera:5000 --peer-key KEY     what it sends to a multicast group
  freshwire recv http://localhost:8080/live.fw --out - | ffplay -f h264 -
  freshwire recv --listen 5000 --out - | ffplay -f h264 -      any payload, passed on as it comes

Ctrl-C ends it and prints the account.

Exit code: 0 the stream has ended and was whole, 1 it was torn or had a wrong byte, 2 usage or failure.")]
pub(crate) struct RecvArgs {
    /// View a stream of `freshwire serve`: `http://[USER:PASSWORD@]HOST[:PORT]/NAME.fw`, or a signed link to it.
    #[arg(conflicts_with_all = ["from", "listen", "framing"])]
    // Read later: clap's errors would show the password.
    url: Option<String>,
    /// Connect to a sender that listens.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    from: Option<String>,
    /// Wait for one sender to connect; the address may be left out.
    #[arg(long, value_name = "[ADDR:]PORT")]
    listen: Option<String>,
    /// With --from or a URL: how long to try while nobody listens there; over A1, where nobody says so, 0 is 5s.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    wait: Duration,
    /// What brings the records: TCP, A1 over UDP from a `freshwire send --carrier a1`, or auto: A1 over UDP, and over TCP where
    /// UDP does not pass, from a `freshwire send` with a key.
    #[arg(long, value_enum, default_value_t = CarrierName::Tcp)]
    carrier: CarrierName,
    #[command(flatten)]
    a1: A1Args,
    /// With A1: get what the sender sends to a multicast group (`freshwire send --group`), which this machine subscribes to
    /// then.
    #[arg(long)]
    join: bool,
    /// How records lie in the stream.
    #[arg(long, value_enum, default_value_t = FramingName::Raw)]
    framing: FramingName,
    /// Content of the stream [default: layers; bytes from a URL or with --out].
    #[arg(long, value_enum)]
    content: Option<Content>,
    /// Write the payload there; `-` is standard output, the account goes to standard error then.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Count records up to this age as on time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// The sender runs on this machine, so its clock is ours; known by itself for loopback and `freshwire link`.
    #[arg(long)]
    same_host: bool,
    /// Print the account as one JSON line.
    #[arg(long)]
    pub(super) json: bool,
    /// No progress line each second.
    #[arg(long)]
    pub(super) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Content {
    /// Records of the layered source, with the FWLR header; every byte is checked.
    Layers,
    /// Anything.
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarrierName {
    Tcp,
    A1,
    Auto,
}

/// Where the stream comes from.
enum Origin {
    /// A sender.
    Peer(Endpoint),
    /// A sender that speaks A1.
    A1 { endpoint: Endpoint, args: A1Args, joins: bool, tcp_fallback: bool },
    /// A live server; how long to try while nobody listens there.
    Server(StreamAddress, Duration),
}

/// A command line that was understood.
pub(super) struct Plan {
    origin: Origin,
    pub(super) framing: Framing,
    pub(super) checks_layers: bool,
    pub(super) out: Option<PathBuf>,
    pub(super) deadline: Option<Duration>,
    same_host: bool,
}

impl RecvArgs {
    /// What the command line asks for.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let url: Option<StreamAddress> = self.url.as_deref().map(str::parse).transpose()?;
        let origin = match (url, &self.from, &self.listen) {
            (Some(url), ..) => Origin::Server(url, self.wait),
            (_, Some(peer), _) => Origin::Peer(Endpoint::Connect(peer.clone(), self.wait)),
            (.., Some(address)) => Origin::Peer(Endpoint::Listen(address.clone())),
            (None, None, None) => bail!(
                "say where from: --from HOST:PORT, --listen PORT to wait for a sender, or the URL of a server's stream"
            ),
        };
        let origin = self.with_carrier(origin)?;
        let carries_media = self.out.is_some() || self.url.is_some();
        let default = if carries_media { Content::Bytes } else { Content::Layers };
        let content = self.content.unwrap_or(default);
        if self.deadline.is_some() && content == Content::Bytes {
            bail!("--deadline needs to know when records were sent: only layers say so");
        }
        Ok(Plan {
            framing: if self.url.is_some() { Framing::Chunked } else { self.framing.framing() },
            origin,
            checks_layers: content == Content::Layers,
            out: self.out.clone(),
            deadline: self.deadline,
            same_host: self.same_host,
        })
    }

    fn with_carrier(&self, origin: Origin) -> anyhow::Result<Origin> {
        match (self.carrier, origin) {
            (CarrierName::Tcp, origin) => {
                self.a1.check_unused()?;
                if self.join {
                    bail!("--join is for A1: add --carrier a1");
                }
                Ok(origin)
            }
            (CarrierName::A1 | CarrierName::Auto, _) if self.framing != FramingName::Raw => {
                bail!("A1 carries records as messages of its own: --framing is for TCP")
            }
            (carrier, Origin::Peer(endpoint)) => {
                self.a1.check(&endpoint)?;
                if self.a1.interface().is_some() && !self.join {
                    bail!("--interface is for multicast groups: add --join");
                }
                let tcp_fallback = carrier == CarrierName::Auto;
                Ok(Origin::A1 { endpoint, args: self.a1.clone(), joins: self.join, tcp_fallback })
            }
            (CarrierName::A1 | CarrierName::Auto, _) => {
                bail!("a server's streams come over TCP: --carrier a1 and auto are for a sender")
            }
        }
    }
}

impl Plan {
    /// The connection, at the first byte of the stream.
    pub(super) fn open(&self) -> anyhow::Result<Input> {
        match &self.origin {
            Origin::Peer(endpoint) => endpoint.open().map(Input::Stream),
            Origin::Server(address, patience) => {
                // A server that answered once is there.
                let mut patience = *patience;
                let connect =
                    |peer: &str| Endpoint::Connect(peer.to_owned(), std::mem::take(&mut patience)).open();
                address.open(connect).map(Input::Stream)
            }
            Origin::A1 { endpoint, args, joins, tcp_fallback } => {
                let mut transport = ConnectionConfig::default();
                // A reader of the bytes has no numbers to put them in order by.
                transport.in_order = self.out.is_some();
                let tcp_fallback = *tcp_fallback;
                let options = A1Options { transport, joins: *joins, tcp_fallback, ..A1Options::default() };
                let note = Some("and what to send: layers, h264 FILE or records");
                let other = PeerHint { command: "freshwire send --to", note };
                args.open(endpoint, options, other).map(Input::Messages)
            }
        }
    }

    /// Whether the sender's clock can be compared with ours.
    pub(super) fn clock(&self, input: &Input) -> Clock {
        let one_address = match input {
            Input::Stream(stream) => match (stream.peer_addr(), stream.local_addr()) {
                (Ok(peer), Ok(own)) => peer.ip() == own.ip() || peer.ip().to_canonical().is_loopback(),
                _ => false,
            },
            Input::Messages(open) => open.connection.peer_addr().ip().is_loopback(),
        };
        // `freshwire link` sets it: both of its ends are on this machine.
        let inside_link = std::env::var_os("FRESHWIRE_NEAR").is_some();
        if self.same_host || one_address || inside_link { Clock::Same } else { Clock::Unknown }
    }
}
