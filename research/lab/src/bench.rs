//! `freshwire-lab bench`: what Freshwire costs, each number beside its baseline from the same run.

mod a1;
mod acks;
mod broker;
mod crowd;
mod fan_out;
mod idle;
mod idle_server;
mod loopback;
mod machine;
mod mixed;
mod path;
mod push;
mod receive;
mod reserve;
mod series;
mod served;
mod show;
mod stream;
mod threads;
mod transfer;
mod tree;
mod uplink;
mod viewers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use freshwire_record::parse_duration;

use crate::output::{print, say};
use series::Report;

/// Measure what Freshwire costs, each number beside its baseline from the same run.
///
/// Repetitions of a number and of its baseline take turns, so that a busy machine slows both. Medians with their range
/// are shown; a ratio is taken repetition by repetition.
#[derive(Args)]
#[command(after_help = "Exit code: 0 every goal was met, 1 one was missed, 2 usage or failure.")]
pub(crate) struct BenchArgs {
    /// Benches to run; everything that needs no other program and few seconds if not given.
    #[arg(value_enum)]
    what: Vec<What>,
    /// Repetitions of each number.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// How long each repetition of `stream`, `a1` and `threads` carries bytes.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    time: Duration,
    /// Congestion control of `stream`, by kernel name [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Receivers of `fan-out`.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    connections: u32,
    /// Engines of `fan-out` and `viewers`, separated by commas: each number is compared with the first [default: 1 in `fan-out`].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=64))]
    engines: Vec<u8>,
    /// Connections of `idle`.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=30_000))]
    idle_connections: u32,
    /// How long each repetition of `idle` is idle, and `idle-server` watched.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    idle_time: Duration,
    #[command(flatten)]
    viewers: viewers::ViewersArgs,
    /// A process that the bench starts itself: an end of `viewers`.
    #[arg(long, hide = true, value_enum)]
    worker: Option<viewers::Worker>,
    #[command(flatten)]
    path: path::PathArgs,
    #[command(flatten)]
    acks: acks::AcksArgs,
    #[command(flatten)]
    broker: broker::BrokerArgs,
    #[command(flatten)]
    mixed: mixed::MixedArgs,
    #[command(flatten)]
    receive: receive::ReceiveArgs,
    #[command(flatten)]
    uplink: uplink::UplinkArgs,
    #[command(flatten)]
    tree: tree::TreeArgs,
    /// Also draw what `a1` has measured, as a page: figures 2 and 3 of the A1 document.
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Print JSON Lines: the machine, then a number or a ratio to a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A push of a record, beside send() of the same bytes and beside a file read straight into the arena.
    Push,
    /// Bytes a second over one connection on loopback, beside plain send() calls.
    Stream,
    /// Many receivers of one record, served by one engine thread, beside plain send() calls.
    FanOut,
    /// Viewers of `freshwire serve`, beside GStreamer's server and a bare loop of writes. Minutes; needs ffmpeg.
    Viewers,
    /// A1 beside datagrams, TCP and QUIC: throughput and latency against the block's size. Minutes.
    A1,
    /// An A1 node on one and two threads, with up to 64 senders, beside TCP.
    Threads,
    /// The cost of acknowledgements for a sending host, with and without `freshwire ack-filter`. Minutes; needs root.
    Acks,
    /// Ten thousand connections of A1 over which nothing is sent: memory, and what their timers cost. Minutes.
    Idle,
    /// A live server with a camera and no viewer, and with one: wake-ups, processor time and memory, beside MediaMTX and GStreamer's. Minutes; needs ffmpeg.
    IdleServer,
    /// Eleven ways to hand a picture to many sockets, by connections, offload and rate. A quarter of an hour; needs root.
    Path,
    /// A camera's viewers over TCP and UDP, and its sound, on a share of one processor. Minutes; needs root.
    Mixed,
    /// UDP receivers that stall, or are too slow: push beside recv(). Minutes.
    Receive,
    /// Viewers of `freshwire serve` beside some that are slow or read nothing. Minutes; needs ffmpeg.
    Isolation,
    /// Readers of values by key beside 300 slow ones. Minutes.
    Crowd,
    /// Values of an MQTT broker through `freshwire serve`, with 300 readers, some of them slow. Half a minute each; needs mosquitto.
    Broker,
    /// Large records to up to 256 receivers: copied and by reference, beside write(). Minutes.
    Transfer,
    /// An encoder behind a weak uplink: pictures that are whole and on time at an RTMP server, through `freshwire serve`, beside ffmpeg and
    /// OBS's rule. Half an hour; needs ffmpeg and nginx with its RTMP module.
    Uplink,
    /// A stream over two relays to two edges: ages, bytes on each line, and what happens when one is killed. Minutes; needs root, ffmpeg and
    /// `freshwire` with the feature `moq`.
    Tree,
}

/// Runs `freshwire-lab bench`.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if let Some(worker) = args.worker {
        return viewers::work(worker);
    }
    if let Some(result) = args.receive.work() {
        return result;
    }
    let asked = |what| args.what.is_empty() || args.what.contains(&what);
    anyhow::ensure!(
        args.figures.is_none() || args.what.contains(&What::A1),
        "--figures draws what `a1` measures: give that, too"
    );
    let mut report = Report::default();
    // First: namespaces have to be made before the first thread.
    if args.what.contains(&What::A1) {
        a1::measure(args.repeat, args.time, &mut report)?;
    }
    if args.what.contains(&What::Threads) {
        threads::measure(args.repeat, args.time, &mut report)?;
    }
    if args.what.contains(&What::Idle) {
        idle::measure(args.repeat, args.idle_connections as usize, args.idle_time, &mut report)?;
    }
    if args.what.contains(&What::Uplink) {
        uplink::measure(&args.uplink, args.viewers.settle, &args.viewers.clips, args.repeat, &mut report)?;
    }
    if args.what.contains(&What::Tree) {
        tree::measure(&args.tree, &args.viewers, args.repeat, &mut report)?;
    }
    if asked(What::Push) {
        say("push ...");
        push::measure(args.repeat, &mut report)?;
        reserve::measure(args.repeat, &mut report)?;
    }
    if asked(What::Stream) {
        say("stream ...");
        stream::measure(args.repeat, args.time, args.congestion.as_deref(), &mut report)?;
    }
    if asked(What::FanOut) {
        say("fan-out ...");
        fan_out::measure(args.repeat, args.connections as usize, &args.engines, &mut report)?;
    }
    if args.what.contains(&What::Acks) {
        acks::measure(&args.acks, args.repeat, &mut report)?;
    }
    if args.what.contains(&What::Viewers) {
        viewers::measure(args.repeat, &args.viewers, &args.engines, &mut report)?;
    }
    if args.what.contains(&What::Isolation) {
        viewers::isolation::measure(args.repeat, &args.viewers, &mut report)?;
    }
    if args.what.contains(&What::Crowd) {
        crowd::measure(args.repeat, &mut report)?;
    }
    if args.what.contains(&What::Broker) {
        broker::measure(&args.broker, args.repeat, &mut report)?;
    }
    if args.what.contains(&What::Transfer) {
        transfer::measure(args.repeat, &mut report)?;
    }
    if args.what.contains(&What::IdleServer) {
        idle_server::measure(args.repeat, args.idle_time, &args.viewers, &mut report)?;
    }
    if args.what.contains(&What::Path) {
        path::measure(&args.path, args.repeat, &mut report)?;
    }
    if args.what.contains(&What::Mixed) {
        mixed::measure(&args.mixed, args.repeat, &mut report)?;
    }
    if args.what.contains(&What::Receive) {
        receive::measure(args.repeat, &args.receive, &mut report)?;
    }
    let machine = machine::Machine::look();
    if let Some(file) = &args.figures {
        std::fs::write(file, a1::figures::html(&machine, &report)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    print(&if args.json { show::json(&machine, &report)? } else { show::text(&machine, &report) })?;
    Ok(if report.all_met() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
