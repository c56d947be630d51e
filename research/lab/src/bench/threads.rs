//! An A1 node on one and two threads, with 1, 8 and 64 senders, beside TCP. All ends are in this process.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use freshwire::a1::{
    BufferError, BufferLimits, BufferSink, Closed, ConnectConfig, Connection, Node, NodeConfig, SinkConfig,
};
use freshwire::sink::CloseMode;
use freshwire::{Ended, Meta, choice};
use freshwire_io::now;
use freshwire_record::Timestamp;
use rustix::time::ClockId;

use super::machine::processor_time;
use super::series::{Report, Unit};
use crate::output::say;

const THROUGHPUT: &str = "several threads, loopback";
const COST: &str = "several threads, processor time of all ends";

/// Senders at the same time.
const SENDERS: [usize; 3] = [1, 8, 64];

/// Threads of the receiving node.
const THREADS: [usize; 2] = [1, 2];

/// Bytes of a message, as of a large one in `bench a1`.
const BLOCK: usize = 16 << 10;

/// Messages that a sender keeps ready.
const READY: usize = 64;

/// How long a connection may take to open, to send on, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures each combination for `time`.
pub(super) fn measure(repeat: u32, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    for repetition in 1..=repeat {
        say(&format!("{THROUGHPUT}: repetition {repetition} of {repeat} ..."));
        for senders in SENDERS {
            add(report, &format!("TCP, {senders} senders"), || tcp(senders, time))?;
            for threads in THREADS {
                add(report, &format!("A1 on {threads} threads, {senders} senders"), || {
                    a1(threads, senders, time)
                })?;
            }
        }
    }
    for senders in SENDERS {
        let place = |bench, label: &str| report.place(bench, &format!("{label}, {senders} senders"));
        let places =
            [THROUGHPUT, COST].map(|bench| [1, 2].map(|n| place(bench, &format!("A1 on {n} threads"))));
        for (what, [one, two]) in ["throughput", "processor time"].iter().zip(places) {
            if let (Some(one), Some(two)) = (one, two) {
                report.compare(&format!("{senders} senders: {what} of two threads over one"), two, one, None);
            }
        }
    }
    report.notes.push(
        "Senders and receivers share this machine's processors: with two of them, two threads compete with the senders.".to_owned(),
    );
    Ok(())
}

fn add(
    report: &mut Report,
    name: &str,
    run: impl FnOnce() -> anyhow::Result<(u64, Duration)>,
) -> anyhow::Result<()> {
    let before = processor_time(ClockId::ProcessCPUTime);
    let (bytes, took) = run().with_context(|| name.to_owned())?;
    let used = processor_time(ClockId::ProcessCPUTime).saturating_sub(before);
    report.add(THROUGHPUT, name, Unit::BytesPerSecond, bytes as f64 / took.as_secs_f64());
    report.add(COST, name, Unit::SecondsPerGigabyte, used.as_secs_f64() / (bytes as f64 / 1e9));
    Ok(())
}

/// Bytes that arrived over A1, and in which time.
fn a1(threads: usize, senders: usize, time: Duration) -> anyhow::Result<(u64, Duration)> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = || NodeConfig::new().context("cannot make a key");
    let far = Node::bind(any, config()?.threads(threads))?;
    let (address, key) = (far.local_addr()?, far.public_key());
    let mut ends = Vec::new();
    for _ in 0..senders {
        let near = Node::bind(any, config()?)?;
        let sending = near.connect(address, &key, &ConnectConfig::default())?;
        let receiving = far.accept(PATIENCE)?.context("the connection was not accepted")?;
        let limits = BufferLimits { records: READY, bytes: READY * BLOCK };
        let sink = sending.add_buffer_sink(SinkConfig::new(choice::fifo()), limits)?;
        ends.push((near, sink, receiving));
    }
    let begin = now();
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .map(|(near, sink, receiving)| {
                let receiver = scope.spawn(move || read_all(&receiving));
                let sender = scope.spawn(move || send(sink, begin + time));
                (near, sender, receiver)
            })
            .collect();
        let join = |(near, sender, receiver): (Node, Joined<'_, ()>, Joined<'_, (u64, Timestamp)>)| {
            sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
            let received = receiver.join().map_err(|_| anyhow::anyhow!("a receiver panicked"))??;
            drop(near);
            anyhow::Ok(received)
        };
        threads.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(sum(&ends, begin))
}

type Joined<'scope, T> = std::thread::ScopedJoinHandle<'scope, anyhow::Result<T>>;

fn send(mut sink: BufferSink, end: Timestamp) -> anyhow::Result<()> {
    let payload = Bytes::from(vec![7; BLOCK]);
    let (mut at, mut seq) = (now(), 0);
    while at < end {
        match sink.push_owned(payload.clone(), &Meta { seq, generated: at, ..Meta::default() }) {
            Ok(_) => seq += 1,
            Err(BufferError::Full) => {
                anyhow::ensure!(sink.wait_room(BLOCK, PATIENCE)?, "nothing was taken for {PATIENCE:?}");
            }
            Err(error) => return Err(error.into()),
        }
        at = now();
    }
    let ended = sink.close(CloseMode::Drain, PATIENCE);
    anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
    Ok(())
}

fn read_all(connection: &Connection) -> anyhow::Result<(u64, Timestamp)> {
    let (mut bytes, mut end) = (0, now());
    loop {
        match connection.recv(PATIENCE) {
            Ok(Some(message)) => (bytes, end) = (bytes + message.data.len() as u64, now()),
            Ok(None) => anyhow::bail!("nothing came for {PATIENCE:?}"),
            Err(Closed::Peer { .. }) => return Ok((bytes, end)),
            Err(closed) => return Err(closed.into()),
        }
    }
}

/// The same over TCP, with a thread for each end.
fn tcp(senders: usize, time: Duration) -> anyhow::Result<(u64, Duration)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let pairs = (0..senders).map(|_| Ok((TcpStream::connect(address)?, listener.accept()?.0)));
    let pairs = pairs.collect::<anyhow::Result<Vec<_>>>()?;
    let begin = now();
    let ends = std::thread::scope(|scope| {
        let receivers: Vec<_> = pairs
            .into_iter()
            .map(|(mut near, mut far)| {
                scope.spawn(move || {
                    let block = [7; BLOCK];
                    while now() < begin + time && near.write_all(&block).is_ok() {}
                });
                scope.spawn(move || {
                    let (mut buffer, mut bytes) = (vec![0; 4 * BLOCK], 0);
                    loop {
                        match far.read(&mut buffer)? {
                            0 => return anyhow::Ok((bytes, now())),
                            read => bytes += read as u64,
                        }
                    }
                })
            })
            .collect();
        let join = |receiver: Joined<'_, (u64, Timestamp)>| {
            receiver.join().map_err(|_| anyhow::anyhow!("a receiver panicked"))?
        };
        receivers.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(sum(&ends, begin))
}

/// All bytes, and the time until the last of them.
fn sum(ends: &[(u64, Timestamp)], begin: Timestamp) -> (u64, Duration) {
    let end = ends.iter().map(|(_, end)| *end).max().unwrap_or(begin);
    (ends.iter().map(|(bytes, _)| bytes).sum(), end.saturating_since(begin))
}
