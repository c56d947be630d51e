//! Values of an MQTT broker through `freshwire serve`: how old they are at readers, some of which are slow, and what waits at the broker.
//!
//! ```text
//!  this process: a publisher ──► mosquitto ──► freshwire serve ──WebSocket──► this process: readers
//! ```
//!
//! All of them are on this machine, over loopback, and have one clock.

mod publisher;
mod queue;
mod readers;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use freshwire_io::now;
use freshwire_record::parse_duration;
use serde_json::Value;

use self::publisher::{Publisher, dropped_messages};
use self::queue::QueueWatch;
use self::readers::{Crowd, Reading};
use super::machine::{Activity, Resident, allow_files};
use super::series::{Goal, Report, Unit};
use crate::child::ChildGuard;
use crate::output::say;
use crate::product;
use crate::viewers::server::wait_until_it_listens;

const BENCH: &str = "broker";

/// Issue 54: readers that keep up have a value within 20 ms.
const FRESH: Goal = Goal::AtMost(20e6);

/// The share of the rate that arrives where nothing is throttled: the rest is for the ends of the measured time.
const TAKEN_SHARE: f64 = 0.98;

/// Memory that may come and go: buffers of the allocator.
const FLAT: Goal = Goal::AtMost((4 << 20) as f64);

/// What waits for the server in the kernel is less than two milliseconds of messages at the default rate.
const EMPTY: Goal = Goal::AtMost((64 << 10) as f64);

/// From the first message to the measured time. By then each ring has used all its slots, whose memory is resident from then on: 4,096 at
/// some 400 values a second take ten seconds.
const SETTLE: Duration = Duration::from_secs(20);

/// How long each program may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The options of `broker`.
#[derive(Args, Clone, Debug)]
pub(super) struct BrokerArgs {
    /// Readers of values in `broker`, the slow ones among them.
    #[arg(long, value_name = "NUMBER", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    broker_readers: u32,
    /// Readers of them that take 200 bytes a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 30)]
    broker_slow: u32,
    /// Topics of the publisher.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4096))]
    broker_keys: u32,
    /// Keys that each reader asks for, at most 64; 0 for all.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=64))]
    broker_each: u32,
    /// Messages a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    broker_rate: u32,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(32..=60_000))]
    broker_bytes: u32,
    /// How long each repetition is measured.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    broker_time: Duration,
}

pub(super) fn measure(args: &BrokerArgs, repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    anyhow::ensure!(args.broker_slow < args.broker_readers, "--broker-slow is less than --broker-readers");
    allow_files(2 * u64::from(args.broker_readers) + 100, "--broker-readers")?;
    for repetition in 1..=repeat {
        say(&format!("broker: repetition {repetition} of {repeat} ..."));
        let outcome = run(args)?;
        let fast = outcome.reading.delays.summary().context("nothing came to the readers")?;
        let mut add = |name: &str, unit, sample| report.add(BENCH, name, unit, sample);
        add("age of a value at a fast reader, median", Unit::Nanoseconds, fast.p50_ms * 1e6);
        let late = add("age of a value at a fast reader, p99", Unit::Nanoseconds, fast.p99_ms * 1e6);
        add("age of a value at a fast reader, largest", Unit::Nanoseconds, fast.max_ms * 1e6);
        let taken = add("messages that the server took a second", Unit::Count, outcome.taken);
        add("messages that newer ones replaced in it, a second", Unit::Count, outcome.superseded);
        add("values of a fast reader a second", Unit::Count, outcome.reading.fast_values);
        add("values of a slow reader a second", Unit::Count, outcome.reading.slow_values);
        let queued = add("bytes for the server in sockets, mean", Unit::Bytes, outcome.queued.mean);
        add("bytes for the server in sockets, largest", Unit::Bytes, outcome.queued.largest);
        let dropped = add("messages that the broker dropped", Unit::Count, outcome.dropped);
        let grown = add("growth of the server's memory", Unit::Bytes, outcome.grown);
        add("the server's memory", Unit::Bytes, outcome.memory);
        add("processor time of the server a second", Unit::Nanoseconds, outcome.processor);
        if repetition == repeat {
            report.demand(late, FRESH);
            report.demand(taken, Goal::AtLeast(f64::from(args.broker_rate) * TAKEN_SHARE));
            report.demand(queued, EMPTY);
            report.demand(dropped, Goal::AtMost(0.0));
            report.demand(grown, FLAT);
        }
    }
    report.notes.push(format!(
        "broker: {} readers, {} of them slow, {} keys for each of {}; {} messages a second of {} bytes from mosquitto. Sockets are looked at \
         every 100 ms.",
        args.broker_readers,
        args.broker_slow,
        if args.broker_each == 0 { args.broker_keys } else { args.broker_each },
        args.broker_keys,
        args.broker_rate,
        args.broker_bytes
    ));
    Ok(())
}

struct Outcome {
    reading: Reading,
    taken: f64,
    superseded: f64,
    queued: queue::Queued,
    dropped: f64,
    grown: f64,
    memory: f64,
    processor: f64,
}

fn run(args: &BrokerArgs) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let [broker, http, internal] = free_addresses()?;
    let _mosquitto = mosquitto(broker, folder.path())?;
    let mut server = serve(args, [broker, http, internal], folder.path())?;
    wait_until_it_listens(&mut server, || anyhow::Ok(TcpStream::connect(http)))?;
    wait_until_subscribed(internal)?;
    let publisher = Publisher::start(broker, args.broker_keys, args.broker_rate, args.broker_bytes as usize)?;
    let slow = args.broker_slow as usize;
    let fast = args.broker_readers as usize - slow;
    let mut crowd = Crowd::open(http, fast, slow, args.broker_keys as usize, args.broker_each as usize)?;
    let settled = now() + SETTLE;
    crowd.read_until(settled, settled)?;
    let watch = QueueWatch::start(broker.port(), publisher.port());
    let (before, activity, memory) =
        (counts(internal)?, Activity::of(server.id())?, Resident::of(server.id())?.sum());
    let from = now();
    let reading = crowd.read_until(from, from + args.broker_time)?;
    let seconds = now().saturating_since(from).as_secs_f64();
    let (after, later, end) =
        (counts(internal)?, Activity::of(server.id())?, Resident::of(server.id())?.sum());
    let queued = watch.finish()?;
    publisher.finish()?;
    Ok(Outcome {
        reading,
        taken: (after.received - before.received) / seconds,
        superseded: (after.superseded - before.superseded) / seconds,
        queued,
        dropped: dropped_messages(broker)?,
        grown: end.saturating_sub(memory) as f64,
        memory: end as f64,
        processor: (later.processor - activity.processor).as_nanos() as f64 / seconds,
    })
}

/// Addresses on loopback whose ports are free now.
fn free_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let listeners: Vec<_> = (0..N)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()
        .context("no free port")?;
    let addresses: Vec<_> = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    addresses.try_into().map_err(|_| anyhow::anyhow!("another number of ports"))
}

fn mosquitto(address: SocketAddr, folder: &Path) -> anyhow::Result<ChildGuard> {
    let file = folder.join("mosquitto.conf");
    let text = format!(
        "listener {} 127.0.0.1\nuser root\nallow_anonymous true\nset_tcp_nodelay true\nsys_interval 1\nlog_dest none\n",
        address.port()
    );
    std::fs::write(&file, text).context("cannot write mosquitto's configuration")?;
    let mut command = Command::new("mosquitto");
    command.arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child =
        ChildGuard(command.spawn().context("cannot start mosquitto; install it (Debian: mosquitto)")?);
    wait_until_it_listens(&mut child, || anyhow::Ok(TcpStream::connect(address)))?;
    Ok(child)
}

/// The server has the priority of the broker, the publisher and the readers: all share this machine.
fn serve(
    args: &BrokerArgs,
    [broker, http, internal]: [SocketAddr; 3],
    folder: &Path,
) -> anyhow::Result<ChildGuard> {
    let file = folder.join("freshwire.toml");
    let text = format!(
        "[process]\nnice = 0\n[hub]\nmax_keys = {}\n[streams.state]\nsource = \"mqtt://{broker}/bench/#\"\n",
        args.broker_keys
    );
    std::fs::write(&file, text).context("cannot write the server's configuration")?;
    let log = std::fs::File::create(folder.join("server.log")).context("cannot write a log")?;
    // Programs: own
    let mut command = Command::new(product::program()?);
    command.args(["serve", "--listen-rtsp", "none", "--listen-rtmp", "none", "--listen-webrtc", "none"]);
    command.args(["--listen-http", &http.to_string(), "--listen-internal", &internal.to_string()]);
    command.arg("--config").arg(&file).stdout(Stdio::null()).stderr(log);
    Ok(ChildGuard(command.spawn().context("cannot start the server")?))
}

/// What the server says of its broker.
struct Counts {
    state: String,
    received: f64,
    superseded: f64,
}

fn counts(internal: SocketAddr) -> anyhow::Result<Counts> {
    use std::io::{Read as _, Write as _};
    let mut socket = TcpStream::connect(internal).context("the server's internal address")?;
    write!(socket, "GET /api/values HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).context("no answer")?;
    let topics: Value = serde_json::from_str(body).context("no JSON")?;
    let broker = &topics[0]["broker"];
    let number = |name: &str| broker[name].as_f64().with_context(|| format!("no {name} of the broker"));
    let state = broker["state"].as_str().unwrap_or_default().to_owned();
    Ok(Counts { state, received: number("received")?, superseded: number("superseded")? })
}

fn wait_until_subscribed(internal: SocketAddr) -> anyhow::Result<()> {
    let give_up = now() + PATIENCE;
    while counts(internal).map_or(true, |counts| counts.state != "subscribed") {
        anyhow::ensure!(now() < give_up, "the server has no subscription after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
