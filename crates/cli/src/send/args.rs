//! The command line of `freshwire send`, and the settings that follow from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use freshwire::a1::{Congestion, ConnectionConfig, GroupConfig, Node};
use freshwire::choice::{self, Choice};
use freshwire::network::NetworkQos;
use freshwire::sink::{Carrier, DEFAULT_QUEUE_TARGET, Reserve};
use freshwire::{Framing, SinkConfig};
use freshwire_media::layered;
use freshwire_record::{parse_duration, parse_size};

use super::kernel::KernelArgs;
use super::network::NetworkArgs;
use crate::a1::{self, A1Args, A1Options, PeerHint};
use crate::endpoint::Endpoint;

/// Send a live source and drop stale records before they reach the wire.
///
/// The receiver is any TCP program: with the default framing it receives complete records, back to back.
#[derive(Args)]
#[command(after_help = "\
Examples:
  freshwire send --to viewer:5000 h264 camera.h264                 a file, at the pace of a camera
  ffmpeg -i /dev/video0 -f h264 - | freshwire send --to viewer:5000 h264 -
  ffplay -f h264 'tcp://0.0.0.0:5000?listen'                       the viewer, started first
  freshwire send --listen 5000 layers --duration 30s               nc, or freshwire recv, connects
  freshwire send --to viewer:5000 --peer-key KEY layers            to freshwire recv --carrier auto: A1 over UDP, or TCP
  freshwire send --carrier a1 --to viewer:5000 --peer-key KEY layers    to freshwire recv --carrier a1
  freshwire send --carrier a1 --listen 5000 --group 239.1.2.3:5001 --rate 4Mbit/s layers     to many at once
  my-program | freshwire send --to peer:5000 --policy deadline --deadline 200ms records
  my-sensors | freshwire send --to peer:5000 --reconnect lines --key-field id     the newest line of each id

Ctrl-C ends the stream after the record in progress, and prints the account.

Exit code: 0 the source has ended and the receiver has everything that was sent, 2 usage or failure.")]
pub(crate) struct SendArgs {
    /// Connect to a receiver that listens.
    #[arg(long, global = true, value_name = "HOST:PORT", conflicts_with = "listen")]
    to: Option<String>,
    /// Wait for one receiver to connect; the address may be left out.
    #[arg(long, global = true, value_name = "[ADDR:]PORT")]
    listen: Option<String>,
    /// With --to: how long to try while nobody listens there; over A1, where nobody says so, 0 is 5s.
    #[arg(long, global = true, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    wait: Duration,
    /// Policy that selects records to send or drop [default: layered for layers, screen for h264; deadline for records and
    /// lines with a deadline, else fifo; latest with --key-field].
    #[arg(long, global = true, value_enum)]
    policy: Option<PolicyName>,
    /// How long a record keeps its value after it was generated; for layers, after its window's start [default:
    /// 1s for layers, unlimited for h264, records and lines].
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Length of a window: of the layered source, and for the policies thesis and priority-progress.
    #[arg(long, global = true, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    window: Duration,
    /// How records lie in the stream: raw for any reader, chunked for freshwire recv (a late record can be given up
    /// half-way), length-prefixed with 32 bits big-endian.
    #[arg(long, global = true, value_enum, default_value_t = FramingName::Raw)]
    framing: FramingName,
    /// Carrier of the records: plain TCP, the kernel ring (module tcp_ldc, raw or length-prefixed records), A1 over UDP, or
    /// auto. A1 also chooses at each retransmission. With --peer-key, or with --key or --allow-key to listen, auto is A1 over
    /// UDP, and over TCP where UDP does not pass. Without a key it is the kernel ring, or plain TCP where that is missing
    /// [default: auto, without a message if the ring is missing].
    #[arg(long, global = true, value_enum)]
    carrier: Option<CarrierName>,
    #[command(flatten)]
    a1: A1Args,
    /// With A1 and --listen: send once for all receivers that connect (`freshwire recv --join`), to this multicast
    /// address, at --rate. What somebody misses is repaired over its connection.
    #[arg(long, global = true, value_name = "GROUP:PORT")]
    group: Option<SocketAddr>,
    /// With --group: how many receivers to wait for before the source starts; others may come later [default: 1].
    #[arg(long, global = true, value_name = "COUNT")]
    members: Option<usize>,
    /// With --group: how many networks away receivers may be, less one [default: 1, this network only].
    #[arg(long, global = true, value_name = "COUNT")]
    hops: Option<u8>,
    /// Congestion control by kernel name, such as cubic or bbr [default: the system's]; with A1 copa, cubic or newreno
    /// [default: copa].
    #[arg(long, global = true, value_name = "NAME")]
    congestion: Option<String>,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    /// Bytes that may be committed and not on the wire: `auto` or a size.
    #[arg(long, global = true, value_name = "SIZE", default_value = "auto", value_parser = parse_reserve)]
    reserve: Reserve,
    /// How long a queue on the path may get, over TCP: what would make it longer waits in the ring, where a newer record
    /// can still take its place. Two packets are on their way at least, however slow it is, and four after losses. `none` leaves
    /// it to the congestion control.
    #[arg(long, global = true, value_name = "TIME", default_value = "50ms", value_parser = parse_queue)]
    queue: Queue,
    /// Connect again when the connection ends before the source does, for as long as that takes; with --listen, wait for
    /// the next receiver. With the policy latest it gets the newest record of each key first; otherwise what comes meanwhile
    /// is dropped, but by fifo, which stops the source.
    #[arg(long, global = true)]
    reconnect: bool,
    /// How long the rest may take when the source has ended.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    drain: Duration,
    /// Print the account as one JSON line.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// No progress line each second.
    #[arg(long, global = true)]
    pub(super) quiet: bool,
    #[command(subcommand)]
    source: SourceArgs,
}

#[derive(Subcommand)]
enum SourceArgs {
    /// Layered test source (Birkedal 2006): in each window one record of each layer, with the FWLR header.
    Layers {
        /// Layers of a window.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
        layers: u8,
        /// Size of a layer of one window, header included; 128 Kibit are 16384 bytes.
        #[arg(long, value_name = "SIZE", default_value = "16384", value_parser = parse_size)]
        layer_size: u64,
        /// For how long the source offers records.
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
        duration: Duration,
    },
    /// An H.264 byte stream (Annex B); each access unit is a record.
    H264 {
        /// The file, sent at the pace of a camera; `-` is standard input, sent as it comes.
        file: PathBuf,
        /// Access units a second [default: what the stream says].
        #[arg(long, value_parser = parse_fps)]
        fps: Option<f64>,
    },
    /// Records on standard input, each with its length before it, 32 bits big-endian.
    Records,
    /// Lines on standard input, each a record with its end: text, or JSON (`{"id": "door", "open": true}`).
    Lines {
        /// The field of a JSON line that says whose state it is: of lines with equal values only the newest is sent.
        #[arg(long, value_name = "NAME")]
        key_field: Option<String>,
    },
}

/// How long a queue on the path may get; none is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queue(Option<Duration>);

/// The ready-made policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// Everything, in order.
    Fifo,
    /// In order, without what has expired; the kernel's ring does so by itself.
    Expiring,
    /// In order, without what has expired or would arrive late.
    Deadline,
    /// Only the newest record of each key, and of those without one only the newest.
    Latest,
    /// The lowest layer of the oldest window first, without what would arrive late.
    Layered,
    /// The freshest and smoothest picture that the link carries; a deadline is only a bound.
    Screen,
    /// As many whole, decodable frames on time as the link carries.
    Frames,
    /// In order; at a window's end what is left of it is dropped from the highest layer down.
    Thesis,
    /// Within a window the lowest layer first; what is left at its end is dropped.
    PriorityProgress,
}

/// The carriers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarrierName {
    /// With a key A1, over UDP or TCP. Else the kernel's ring where the module is loaded and the framing permits, or plain TCP.
    Auto,
    /// Plain TCP.
    Tcp,
    /// The kernel's ring, or an error.
    Kernel,
    /// A1, over UDP, to a Freshwire at the other end.
    A1,
}

/// The framings by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FramingName {
    /// Payload bytes only.
    Raw,
    /// Chunks, which can be given up.
    Chunked,
    /// A 32-bit big-endian length before each record.
    LengthPrefixed,
}

impl FramingName {
    /// The framing of this name.
    pub(crate) fn framing(self) -> Framing {
        match self {
            Self::Raw => Framing::Raw,
            Self::Chunked => Framing::Chunked,
            Self::LengthPrefixed => Framing::LengthPrefixed,
        }
    }
}

/// The source of the data.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SourcePlan {
    Layers { source: layered::Source, duration: Duration, deadline: Duration },
    H264 { file: PathBuf, fps: Option<f64>, deadline: Option<Duration> },
    Records { deadline: Option<Duration> },
    Lines { key_field: Option<String>, deadline: Option<Duration> },
}

/// A command line that was understood.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    pub(super) source: SourcePlan,
    policy: PolicyName,
    window: Duration,
    framing: FramingName,
    carrier: CarrierName,
    /// The carrier is A1; true: over TCP too, where UDP does not pass.
    over_a1: Option<bool>,
    /// The carrier or a setting of it was named, so that plain TCP in its place is worth a message.
    pub(super) reports_fallback: bool,
    /// The congestion control that was asked for.
    pub(super) congestion: Option<String>,
    network: NetworkQos,
    kernel: KernelArgs,
    reserve: Reserve,
    queue: Queue,
    /// Connect again when the connection ends.
    pub(super) reconnects: bool,
    /// How long the rest may take.
    pub(super) drain: Duration,
    a1: A1Args,
    /// Whom to send to at once, and how many to wait for.
    pub(super) group: Option<(GroupConfig, usize)>,
}

impl SendArgs {
    /// What the command line asks for.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let endpoint = match (&self.to, &self.listen) {
            (Some(peer), _) => Endpoint::Connect(peer.clone(), self.wait),
            (None, Some(address)) => Endpoint::Listen(address.clone()),
            (None, None) => {
                bail!("say where to send: --to HOST:PORT, or --listen PORT to wait for a receiver")
            }
        };
        let over_a1 = self.over_a1();
        if over_a1.is_some() {
            self.check_a1(&endpoint)?;
        } else {
            self.a1.check_unused()?;
        }
        if over_a1.is_some() || self.carrier == Some(CarrierName::Tcp) {
            self.kernel.check_unused()?;
        }
        let group = self.group(&endpoint)?;
        if self.reconnect && group.is_some() {
            bail!("the receivers of a group come and go by themselves: leave out --reconnect");
        }
        let source = self.source_plan()?;
        let policy = self.policy.unwrap_or(match source {
            SourcePlan::Layers { .. } => PolicyName::Layered,
            SourcePlan::H264 { .. } => PolicyName::Screen,
            SourcePlan::Lines { key_field: Some(_), .. } => PolicyName::Latest,
            SourcePlan::Records { deadline: Some(_) } | SourcePlan::Lines { deadline: Some(_), .. } => {
                PolicyName::Deadline
            }
            SourcePlan::Records { deadline: None } | SourcePlan::Lines { deadline: None, .. } => {
                PolicyName::Fifo
            }
        });
        let needs_deadline = matches!(
            policy,
            PolicyName::Expiring | PolicyName::Deadline | PolicyName::Layered | PolicyName::Frames
        );
        let has_none = matches!(
            source,
            SourcePlan::H264 { deadline: None, .. }
                | SourcePlan::Records { deadline: None }
                | SourcePlan::Lines { deadline: None, .. }
        );
        if needs_deadline && has_none {
            bail!("this policy drops what is late: say with --deadline how long a record keeps its value");
        }
        Ok(Plan {
            endpoint,
            source,
            policy,
            window: self.window,
            framing: self.framing,
            carrier: self.carrier.unwrap_or(CarrierName::Auto),
            over_a1,
            reports_fallback: self.carrier.is_some() || self.kernel.is_given(),
            congestion: self.congestion.clone(),
            network: self.network.qos(),
            kernel: self.kernel,
            reserve: self.reserve,
            queue: self.queue,
            reconnects: self.reconnect,
            drain: self.drain,
            a1: self.a1.clone(),
            group,
        })
    }

    /// Whether the carrier is A1; `Some(true)`: over TCP too, where UDP does not pass.
    fn over_a1(&self) -> Option<bool> {
        match self.carrier {
            Some(CarrierName::A1) => Some(false),
            None | Some(CarrierName::Auto) => self.a1.names_key().then_some(true),
            Some(CarrierName::Tcp | CarrierName::Kernel) => None,
        }
    }

    fn group(&self, endpoint: &Endpoint) -> anyhow::Result<Option<(GroupConfig, usize)>> {
        let Some(address) = self.group else {
            let given = [self.members.is_some(), self.hops.is_some(), self.a1.interface().is_some()];
            for (given, name) in given.into_iter().zip(["--members", "--hops", "--interface"]) {
                if given {
                    bail!("{name} is for a multicast group: add --group GROUP:PORT");
                }
            }
            return Ok(None);
        };
        if self.carrier != Some(CarrierName::A1) || !matches!(endpoint, Endpoint::Listen(_)) {
            bail!("a group's receivers connect over A1: --group needs --carrier a1 and --listen");
        }
        if self.congestion.is_some() {
            bail!("a group is sent at its --rate, without --congestion");
        }
        if !address.ip().is_multicast() || address.port() == 0 {
            bail!("--group {address}: this is not a multicast address with a port");
        }
        let rate =
            self.a1.rate().context("say with --rate how fast the group may be sent, such as 4Mbit/s")?;
        let mut config = GroupConfig::new(address, rate).hops(self.hops.unwrap_or(1));
        if let Some(interface) = self.a1.interface() {
            config = config.interface(interface);
        }
        Ok(Some((config, self.members.unwrap_or(1))))
    }

    fn check_a1(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        if self.framing != FramingName::Raw {
            bail!("A1 carries records as messages of its own: --framing is for TCP");
        }
        if self.reserve != Reserve::Auto {
            bail!("A1 commits a packet at a time: --reserve is for TCP");
        }
        if self.queue != Queue(Some(DEFAULT_QUEUE_TARGET)) {
            bail!("A1 paces its packets by itself: --queue is for TCP");
        }
        if self.reconnect && matches!(endpoint, Endpoint::Listen(_)) && !self.a1.keeps_key() {
            bail!("whoever connects again knows this end by its key: add --key FILE to --reconnect");
        }
        if let Some(name) = &self.congestion {
            name.parse::<Congestion>()?;
        }
        self.a1.check(endpoint)
    }

    fn source_plan(&self) -> anyhow::Result<SourcePlan> {
        let deadline = self.deadline.unwrap_or(Duration::from_secs(1));
        Ok(match &self.source {
            SourceArgs::Layers { layers, layer_size, duration } => {
                let record_bytes = u32::try_from(*layer_size)
                    .ok()
                    .filter(|&bytes| bytes <= layered::DEFAULT_MAX_RECORD_BYTES);
                let record_bytes = record_bytes.context("--layer-size is at most 1MiB")?;
                let source = layered::Source::new(*layers, record_bytes, self.window)?;
                SourcePlan::Layers { source, duration: *duration, deadline }
            }
            SourceArgs::H264 { file, fps } => {
                SourcePlan::H264 { file: file.clone(), fps: *fps, deadline: self.deadline }
            }
            SourceArgs::Records => SourcePlan::Records { deadline: self.deadline },
            SourceArgs::Lines { key_field } => {
                SourcePlan::Lines { key_field: key_field.clone(), deadline: self.deadline }
            }
        })
    }
}

impl Plan {
    /// The connection over A1, if that is the carrier.
    pub(super) fn open_a1(&self) -> Option<anyhow::Result<a1::OpenConnection>> {
        self.over_a1.map(|tcp_fallback| {
            let mut transport = ConnectionConfig::default();
            if let Some(name) = &self.congestion {
                transport.congestion = name.parse()?;
            }
            let options =
                A1Options { transport, network: self.network, tcp_fallback, ..A1Options::default() };
            self.a1.open(&self.endpoint, options, OTHER_SIDE)
        })
    }

    /// A node to which a group's receivers connect.
    pub(super) fn listen(&self) -> anyhow::Result<Node> {
        let Endpoint::Listen(address) = &self.endpoint else { bail!("a group needs --listen") };
        self.a1.listen(
            address,
            A1Options { network: self.network, ..A1Options::default() },
            PeerHint { command: "freshwire recv --join --from", ..OTHER_SIDE },
        )
    }

    /// The largest record that is sent to a group.
    pub(super) fn largest_to_group(&self) -> u32 {
        self.a1.largest_record()
    }

    /// The settings of a sink over A1.
    pub(super) fn a1_sink(&self) -> freshwire::a1::SinkConfig {
        freshwire::a1::SinkConfig::new(self.choice())
    }

    /// The settings of a sink over TCP.
    pub(super) fn sink(&self) -> SinkConfig {
        let carrier = match self.carrier {
            CarrierName::Auto => Carrier::Auto,
            CarrierName::Kernel => Carrier::Kernel,
            CarrierName::Tcp | CarrierName::A1 => Carrier::Tcp,
        };
        let mut config = SinkConfig::new(self.choice()).carrier(carrier).network(self.network);
        config = config.framing(self.framing.framing()).reserve(self.reserve).queue_target(self.queue.0);
        if let Some(name) = &self.congestion {
            config = config.congestion(name);
        }
        self.kernel.apply(config)
    }

    /// Only the newest record counts, so a newer one takes the place of an older one in the ring already.
    pub(super) fn replaces(&self) -> bool {
        self.policy == PolicyName::Latest
    }

    /// Nothing is dropped, so a source has to wait when nobody is there.
    pub(super) fn is_lossless(&self) -> bool {
        self.policy == PolicyName::Fifo
    }

    fn choice(&self) -> Box<dyn Choice> {
        match self.policy {
            PolicyName::Fifo => Box::new(choice::fifo()),
            PolicyName::Expiring => Box::new(choice::expiring()),
            PolicyName::Deadline => Box::new(choice::deadline(Duration::ZERO)),
            PolicyName::Latest => Box::new(choice::latest()),
            PolicyName::Layered => Box::new(choice::layered(Duration::ZERO)),
            PolicyName::Screen => Box::new(choice::screen()),
            PolicyName::Frames => Box::new(choice::frames()),
            PolicyName::Thesis => Box::new(choice::thesis(self.window)),
            PolicyName::PriorityProgress => Box::new(choice::priority_progress(self.window)),
        }
    }
}

/// The command that a receiver runs to connect to this sender.
const OTHER_SIDE: PeerHint = PeerHint { command: "freshwire recv --from", note: None };

fn parse_reserve(text: &str) -> Result<Reserve, String> {
    if text == "auto" {
        return Ok(Reserve::Auto);
    }
    let bytes = parse_size(text).map_err(|error| format!("{error}, nor `auto`"))?;
    u32::try_from(bytes).map(Reserve::Fixed).map_err(|_| "a reserve is less than 4 GiB".to_owned())
}

fn parse_queue(text: &str) -> Result<Queue, String> {
    if text == "none" {
        return Ok(Queue(None));
    }
    parse_duration(text).map(|queue| Queue(Some(queue))).map_err(|error| format!("{error}, nor `none`"))
}

fn parse_fps(text: &str) -> Result<f64, String> {
    let fps = text.parse::<f64>().ok().filter(|fps| (0.01..=1000.0).contains(fps));
    fps.ok_or_else(|| format!("{text:?} is not a number from 0.01 to 1000"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use freshwire::sink::Horizon;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        send: SendArgs,
    }

    fn plan(arguments: &str) -> anyhow::Result<Plan> {
        let arguments = format!("send {arguments}");
        Cli::try_parse_from(arguments.split_whitespace())?.send.plan()
    }

    #[test]
    fn options_stand_on_either_side_of_the_source() {
        for arguments in ["--to a:1 --deadline 2s h264 f --fps 50", "h264 --fps 50 f --deadline 2s --to a:1"]
        {
            let plan = plan(arguments).unwrap();
            assert_eq!(plan.endpoint, Endpoint::Connect("a:1".to_owned(), Duration::ZERO));
            let deadline = Some(Duration::from_secs(2));
            assert_eq!(plan.source, SourcePlan::H264 { file: "f".into(), fps: Some(50.0), deadline });
            assert_eq!(plan.policy, PolicyName::Screen);
        }
    }

    #[test]
    fn the_policy_follows_from_the_source() {
        for (arguments, policy) in [
            ("layers", PolicyName::Layered),
            ("records", PolicyName::Fifo),
            ("records --deadline 1s", PolicyName::Deadline),
            ("records --policy latest", PolicyName::Latest),
            ("lines", PolicyName::Fifo),
            ("lines --deadline 1s", PolicyName::Deadline),
            ("lines --key-field id --deadline 1s", PolicyName::Latest),
        ] {
            assert_eq!(plan(&format!("--listen 1 {arguments}")).unwrap().policy, policy, "{arguments}");
        }
    }

    #[test]
    fn the_carrier_is_the_kernels_ring_where_it_is_there() {
        for (arguments, carrier) in [
            ("layers", Carrier::Auto),
            ("--carrier tcp layers", Carrier::Tcp),
            ("layers --carrier kernel", Carrier::Kernel),
        ] {
            assert_eq!(
                plan(&format!("--listen 1 {arguments}")).unwrap().sink().carrier,
                carrier,
                "{arguments}"
            );
        }
    }

    #[test]
    fn settings_of_the_kernels_ring_reach_the_sink() {
        let settings = |arguments: &str| {
            let sink = plan(&format!("--listen 1 layers {arguments}")).unwrap().sink();
            (sink.kernel_horizon, sink.kernel_zero_copy)
        };
        assert_eq!(settings(""), (Horizon::OneSegment, false));
        assert_eq!(settings("--kernel-horizon 1 --carrier kernel"), (Horizon::OneSegment, false));
        assert_eq!(settings("--kernel-horizon 0 --carrier auto"), (Horizon::Nothing, false));
        assert_eq!(settings("--kernel-zero-copy"), (Horizon::OneSegment, true));
        assert!(plan("--listen 1 layers --kernel-zero-copy").unwrap().reports_fallback);
        assert!(!plan("--listen 1 layers").unwrap().reports_fallback);
    }

    #[test]
    fn with_a_key_auto_is_a1_over_udp_or_tcp() {
        let key = freshwire::a1::generate_key().unwrap().public_key();
        for (arguments, over_a1) in [
            ("--to a:1 layers".to_owned(), None),
            (format!("--to a:1 --peer-key {key} layers"), Some(true)),
            (format!("--to a:1 --carrier auto --peer-key {key} layers"), Some(true)),
            (format!("--to a:1 --carrier a1 --peer-key {key} layers"), Some(false)),
            ("--listen 1 --carrier auto layers".to_owned(), None),
            ("--listen 1 --key k layers".to_owned(), Some(true)),
            (format!("--listen 1 --allow-key {key} layers"), Some(true)),
        ] {
            assert_eq!(plan(&arguments).unwrap().over_a1, over_a1, "{arguments}");
        }
    }

    #[test]
    fn impossible_settings_are_refused_with_a_reason() {
        for (arguments, reason) in [
            ("layers", "say where to send"),
            ("--to a:1 --listen 1 layers", "cannot be used with"),
            ("--to a:1 h264 f --policy frames", "say with --deadline how long"),
            ("--to a:1 records --policy frames", "say with --deadline how long"),
            ("--to a:1 records --policy expiring", "say with --deadline how long"),
            ("--to a:1 layers --layer-size 8MiB", "at most 1MiB"),
            ("--to a:1 layers --layer-size 31", "no room for its header"),
            ("--to a:1 layers --reserve x", "nor `auto`"),
            ("--to a:1 lines --policy deadline", "say with --deadline how long"),
            ("--to a:1 lines --queue soon", "nor `none`"),
            ("--listen 1 --carrier a1 lines --queue 1s", "--queue is for TCP"),
            ("--listen 1 --carrier a1 lines --reconnect", "add --key FILE to --reconnect"),
            (
                "--listen 1 --carrier a1 --group 239.1.1.1:5 --rate 1Mbit/s --key k lines --reconnect",
                "leave out --reconnect",
            ),
            ("--to a:1 layers --psk f", "--psk is for A1"),
            ("--to a:1 layers --key f", "say with --peer-key"),
            ("--to a:1 layers --carrier tcp --key f", "--key is for A1"),
            ("--to a:1 layers --carrier tcp --kernel-zero-copy", "add --carrier kernel"),
            ("--listen 1 layers --carrier a1 --kernel-horizon 0", "--kernel-horizon is for the kernel ring"),
            ("--to a:1 layers --kernel-horizon 2", "2 is not in 0..=1"),
            ("--to a:1 layers --rate 4Mbit/s", "--rate is for A1"),
            ("--to a:1 layers --carrier a1", "--peer-key"),
            ("--listen 1 layers --carrier a1 --framing chunked", "--framing is for TCP"),
            ("--listen 1 layers --carrier a1 --reserve 4KiB", "--reserve is for TCP"),
            ("--listen 1 layers --carrier a1 --congestion bbr", "A1 has copa, cubic and newreno"),
            ("--listen 1 --group 239.1.1.1:5 layers", "--group needs --carrier a1 and --listen"),
            ("--listen 1 --carrier a1 --group 239.1.1.1:5 layers", "say with --rate"),
            ("--listen 1 --carrier a1 --group 10.1.2.3:5 layers", "this is not a multicast address"),
            ("--listen 1 --carrier a1 --group 239.1.1.1:0 layers", "this is not a multicast address"),
            ("--listen 1 --carrier a1 --members 2 layers", "--members is for a multicast group"),
            ("--listen 1 --carrier a1 --interface eth0 layers", "neither the number of an interface"),
            ("--to a:1 h264 f --fps 0", "is not a number from 0.01"),
        ] {
            let error = plan(arguments).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{arguments}: {error:?}");
        }
    }
}
