//! Readers of values by key beside a crowd of slow ones: how late a change arrives, and what it costs its publisher. Server and readers
//! are in this process, so that a busy machine slows all of them alike.

use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::engine::EnginePool;
use freshwire::websocket::{Event, Reader, Role};
use freshwire_io::now;
use freshwire_record::Timestamp;
use freshwire_server::hub::HubConfig;
use freshwire_server::values::{Content, Topic, Topics, WatchRequest};
use rustix::time::ClockId;
use tokio::runtime::Runtime;

use super::machine::{allow_files, processor_time};
use super::series::{Goal, Report, Unit};
use crate::histogram::{Histogram, Summary};
use crate::output::say;

const BENCH: &str = "crowd";

/// Slow readers, each of 200 bytes a second behind a small buffer.
const SLOW: usize = 300;
const SIP_BYTES: usize = 200;
const SIP_EVERY: Duration = Duration::from_secs(1);
const BUFFER_BYTES: usize = 4 << 10;

/// Changes a second, each of the next key.
const RATE: u32 = 300;
const TIME: Duration = Duration::from_secs(4);

/// Keys; a slow reader waits for nearly all of them.
const FEW_KEYS: usize = 60;
const MANY_KEYS: usize = 960;
const VALUE_BYTES: usize = 100;

/// How much later a change may be beside the crowd, and how much more a change may cost with sixteen times the keys.
const SAME: f64 = 1.5;

pub(super) fn measure(repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    allow_files(4 * SLOW as u64 + 100, "crowd")?;
    let runtime = Runtime::new().context("cannot start a runtime")?;
    let (mut alone_at, mut beside_at, mut few_at, mut many_at) = ([0; 3], [0; 3], 0, 0);
    for repetition in 1..=repeat {
        say(&format!("crowd: repetition {repetition} of {repeat} ..."));
        for (slow, who, at) in [
            (0, "alone".to_owned(), &mut alone_at),
            (SLOW, format!("beside {SLOW} slow ones"), &mut beside_at),
        ] {
            let outcome = run(&runtime, slow, FEW_KEYS)?;
            let Summary { p50_ms, p95_ms, p99_ms, .. } = outcome.delays;
            *at = [("p50", p50_ms), ("p95", p95_ms), ("p99", p99_ms)].map(|(part, ms)| {
                report.add(BENCH, &format!("a reader {who}: delay, {part}"), Unit::Nanoseconds, ms * 1e6)
            });
            if slow > 0 {
                few_at = add_cost(report, FEW_KEYS, &outcome);
            }
        }
        many_at = add_cost(report, MANY_KEYS, &run(&runtime, SLOW, MANY_KEYS)?);
    }
    for ((part, beside), alone) in ["p50", "p95", "p99"].into_iter().zip(beside_at).zip(alone_at) {
        let name = format!("delay {part}, beside {SLOW} slow readers : alone");
        report.compare(&name, beside, alone, Some(Goal::AtMost(SAME)));
    }
    let name = format!("processor time of a change, {MANY_KEYS} keys : {FEW_KEYS} keys");
    report.compare(&name, many_at, few_at, Some(Goal::AtMost(SAME)));
    Ok(())
}

fn add_cost(report: &mut Report, keys: usize, outcome: &Outcome) -> usize {
    let name = format!("processor time of a change for {SLOW} slow readers, {keys} keys");
    report.add(BENCH, &name, Unit::Nanoseconds, outcome.change.as_nanos() as f64)
}

struct Outcome {
    delays: Summary,
    /// Processor time of the publisher for one change.
    change: Duration,
}

/// A reader that keeps up beside `slow` slow ones.
fn run(runtime: &Runtime, slow: usize, keys: usize) -> anyhow::Result<Outcome> {
    let pool = EnginePool::spawn(2).context("cannot start engines")?;
    let config = HubConfig { max_keys: keys, ..HubConfig::default() };
    let topics = Topics::new(pool.group(), config);
    topics.keep(["state".to_owned()]);
    let topic = topics.find("state").context("no topic")?;
    let slow: Vec<_> =
        (0..slow).map(|_| watch(runtime, &topic, Some(BUFFER_BYTES))).collect::<anyhow::Result<_>>()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let sipping = sip(&slow, &stopped)?;
    // The slow ones have all that they will wait for.
    (0..3 * keys).try_for_each(|at| set(&topic, at % keys))?;
    let fast = watch(runtime, &topic, None)?;
    let end = fast.try_clone().context("cannot duplicate a socket")?;
    let from = now();
    let reading = std::thread::spawn(move || read(fast, from));
    let processor = processor_time(ClockId::ThreadCPUTime);
    let changes = RATE * TIME.as_secs() as u32;
    for change in 0..changes {
        let due = from + TIME * change / changes;
        std::thread::sleep(due.saturating_since(now()));
        set(&topic, change as usize % keys)?;
    }
    let change = (processor_time(ClockId::ThreadCPUTime) - processor) / changes;
    std::thread::sleep(Duration::from_millis(200));
    end.shutdown(Shutdown::Both).context("cannot end a reader")?;
    let delays = reading.join().map_err(|_| anyhow::anyhow!("the reader has panicked"))?;
    stopped.store(true, Ordering::Relaxed);
    slow.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    let _ended = sipping.join();
    Ok(Outcome { delays: delays.summary().context("nothing came to the reader")?, change })
}

fn set(topic: &Topic, key: usize) -> anyhow::Result<()> {
    let value = format!("[{},\"{}\"]", now().as_nanos(), "x".repeat(VALUE_BYTES));
    Ok(topic.set(&format!("k{key}"), &Content::Json(value))?)
}

/// A reader's end of its connection. Its task ends with the runtime's or the connection.
fn watch(runtime: &Runtime, topic: &Arc<Topic>, buffer: Option<usize>) -> anyhow::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    if let Some(bytes) = buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, bytes)?;
    }
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, peer) = listener.accept()?;
    let watcher = topic.watch(WatchRequest {
        socket: near,
        preface: Vec::new(),
        seal: None,
        framer: WatchRequest::messages(),
        takes_bytes: true,
        within: None,
        window: None,
        keys: None,
        protocol: "bench",
        peer,
    })?;
    runtime.spawn(async move {
        let ended = async {
            while watcher.ended().is_none() {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let _retried = watcher.snapshot();
            }
        };
        tokio::select! {
            () = ended => {}
            never = watcher.offer_missed() => match never {},
        }
    });
    Ok(far)
}

/// Reads from all of them slowly.
fn sip(sockets: &[TcpStream], stopped: &Arc<AtomicBool>) -> anyhow::Result<JoinHandle<()>> {
    let mut sockets: Vec<_> = sockets.iter().map(TcpStream::try_clone).collect::<Result<_, _>>()?;
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    let stopped = Arc::clone(stopped);
    Ok(std::thread::spawn(move || {
        let mut buffer = [0; SIP_BYTES];
        while !stopped.load(Ordering::Relaxed) {
            // One after the other: readers do not keep step. Nothing to read, or an end: the next look tells.
            for socket in &mut sockets {
                let _ = socket.read(&mut buffer);
                std::thread::sleep(SIP_EVERY / SLOW as u32);
            }
            if sockets.is_empty() {
                return;
            }
        }
    }))
}

/// How old the changes since `from` are when they arrive.
fn read(mut socket: TcpStream, from: Timestamp) -> Histogram {
    let (mut delays, mut reader, mut buffer) =
        (Histogram::default(), Reader::new(Role::Client, 1 << 20), [0; 64 << 10]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        let arrived = now();
        reader.push(&buffer[..count]);
        while let Some(Ok(event)) = reader.next() {
            let Event::Text(text) = event else { continue };
            let stamp = text.split_once("\"value\":[").and_then(|(_, rest)| rest.split_once(','));
            let Some(stamp) = stamp.and_then(|(stamp, _)| stamp.parse().ok()) else { continue };
            let set = Timestamp::from_nanos(stamp);
            if set >= from {
                delays.add(arrived.saturating_since(set));
            }
        }
    }
    delays
}
