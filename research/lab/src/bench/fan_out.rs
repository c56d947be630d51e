//! Many receivers of one record, served by one engine thread or several, beside `send()` calls from one thread.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::engine::EnginePool;
use freshwire::ring::Region;
use freshwire::{Meta, RingConfig, Sender, Sink, SinkConfig, choice};
use freshwire_io::now;
use rustix::event::{Timespec, epoll};

use super::loopback::pair_over;
use super::machine::{allow_files, private_bytes, socket_buffer_bytes, this_thread, thread_time, threads};
use super::series::{Goal, Report, Unit};

const BENCH: &str = "fan-out";

/// Bytes of a record.
const RECORD_BYTES: usize = 1400;

/// Records that go to everybody in a repetition.
const ROUNDS: u64 = 20;

/// Slots of a ring, and blocks of the arena that all rings share.
const SLOTS: u32 = 64;
const BLOCKS: u32 = 256;

/// How long one record may take to everybody.
const PATIENCE: Duration = Duration::from_secs(20);

/// Receive buffer of the receiver that stalls; small, so that it stalls soon.
const STALLED_BUFFER: usize = 4096;

/// Files besides two for each connection: standard streams, listener, epoll, memory file, /proc.
const OTHER_FILES: u64 = 64;

/// Events fetched at a time.
const EVENTS: usize = 256;

/// The most that several engines may cost, of what the first number of them costs.
const OF_FIRST: f64 = 1.05;
/// The most that an engine may do, of what each would do if they all did the same.
const OF_EVEN: f64 = 1.2;

pub(super) fn measure(
    repeat: u32,
    connections: usize,
    engines: &[u8],
    report: &mut Report,
) -> anyhow::Result<()> {
    let (&first, others) = engines.split_first().unwrap_or((&1, &[]));
    let sets = 2 + others.len() as u64;
    // Each set of connections has two ends.
    allow_files(2 * sets * connections as u64 + OTHER_FILES, "--connections")?;
    let mut plain = Plain::new(connections)?;
    let mut fresh = Fresh::new(connections, first)?;
    let mut others: Vec<_> = others
        .iter()
        .map(|&engines| Ok((engines, Fresh::new(connections, engines)?, [0; 3])))
        .collect::<anyhow::Result<_>>()?;
    report.add(BENCH, "private memory a connection", Unit::Bytes, fresh.private_bytes);
    report.add(BENCH, "shared memory a connection (its ring)", Unit::Bytes, fresh.ring_bytes);
    let (mut plain_at, mut fresh_at) = ([0; 2], [0; 2]);
    let mut buffers = 0.0_f64;
    for _ in 0..repeat {
        let cost = plain.round_trip()?;
        plain_at = cost.add(report, "send() to each");
        let cost = fresh.round_trip(connections)?;
        fresh_at = cost.add(report, "one push to all");
        for (engines, fresh, at) in &mut others {
            let how = format!("one push to all, {engines} engines");
            let cost = fresh.round_trip(connections)?;
            let [time, cpu] = cost.add(report, &how);
            let most = report.add(BENCH, &format!("{how}: busiest : even"), Unit::Count, cost.busiest);
            *at = [time, cpu, most];
        }
        buffers = buffers.max(cost.socket_buffers);
    }
    report.add(
        BENCH,
        "kernel socket buffers a connection, loaded",
        Unit::Bytes,
        buffers / connections as f64,
    );
    for (engines, fresh, [time, cpu, most]) in others {
        let name = format!("{engines} engines : {first}");
        report.compare(&format!("until everybody has it, {name}"), time, fresh_at[0], None);
        report.compare(&format!("processor time, {name}"), cpu, fresh_at[1], Some(Goal::AtMost(OF_FIRST)));
        report.demand(most, Goal::AtMost(OF_EVEN));
        drop(fresh);
    }
    fresh.stall_one()?;
    let mut stalled_at = [0; 2];
    for _ in 0..repeat {
        let cost = fresh.round_trip(connections - 1)?;
        stalled_at = cost.add(report, "one push to all, one receiver stalled");
    }
    report.compare("until everybody has it, push : send()", fresh_at[0], plain_at[0], None);
    report.compare("processor time, push : send()", fresh_at[1], plain_at[1], None);
    report.compare("until everybody else has it, one stalled : none", stalled_at[0], fresh_at[0], None);
    let lost =
        report.add(BENCH, "records that others missed by the stalled one", Unit::Count, fresh.missed as f64);
    report.demand(lost, Goal::AtMost(0.0));
    Ok(())
}

/// The cost of one record to everybody, the mean of a repetition.
struct Cost {
    until_all_ns: f64,
    processor_ns: f64,
    /// Memory of all sockets' buffers right after the push.
    socket_buffers: f64,
    /// Processor time of the busiest engine, of the mean of all.
    busiest: f64,
}

impl Cost {
    fn add(&self, report: &mut Report, how: &str) -> [usize; 2] {
        let time = report.add(
            BENCH,
            &format!("{how}: until everybody has it"),
            Unit::Nanoseconds,
            self.until_all_ns,
        );
        let cpu = report.add(BENCH, &format!("{how}: processor time"), Unit::Nanoseconds, self.processor_ns);
        [time, cpu]
    }
}

/// Connections whose receiving ends are read by one thread.
pub(super) struct Receivers {
    received: Arc<AtomicU64>,
    expected: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
    sent: u64,
    /// Makes the last receiver stall.
    stalls: Arc<AtomicBool>,
}

impl Receivers {
    /// `stalls`: the last one can be made to stall.
    pub(super) fn start(connections: usize, stalls: bool) -> anyhow::Result<(Vec<TcpStream>, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        let mut near = Vec::with_capacity(connections);
        let mut far = Vec::with_capacity(connections);
        for place in 0..connections {
            if stalls && place + 1 == connections {
                rustix::net::sockopt::set_socket_recv_buffer_size(&listener, STALLED_BUFFER)?;
            }
            let (sends, receives) = pair_over(&listener)?;
            receives.set_nonblocking(true).context("cannot set a socket up")?;
            near.push(sends);
            far.push(receives);
        }
        let [received, expected] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let [stop, stalls] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let reader = Reader {
            far,
            received: Arc::clone(&received),
            expected: Arc::clone(&expected),
            stop: Arc::clone(&stop),
            stalls: Arc::clone(&stalls),
            waiter: std::thread::current(),
        };
        let thread = Some(std::thread::spawn(move || reader.run()));
        Ok((near, Self { received, expected, stop, thread, sent: 0, stalls }))
    }

    /// Says how many bytes all receivers get of the next record, before it is sent.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.expected.store(self.sent, Ordering::SeqCst);
    }

    /// Waits until they all have it.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        let give_up = now() + PATIENCE;
        while self.received.load(Ordering::SeqCst) < self.sent {
            let left = give_up.saturating_since(now());
            anyhow::ensure!(!left.is_zero(), "not everybody has the record after {PATIENCE:?}");
            std::thread::park_timeout(left);
        }
        Ok(())
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of the reader has been printed, and a result that lacks bytes has failed before.
            let _ = thread.join();
        }
    }
}

/// Reads all receiving ends empty.
struct Reader {
    far: Vec<TcpStream>,
    received: Arc<AtomicU64>,
    expected: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    stalls: Arc<AtomicBool>,
    waiter: Thread,
}

impl Reader {
    fn run(mut self) -> io::Result<()> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (place, stream) in self.far.iter().enumerate() {
            epoll::add(&set, stream, epoll::EventData::new_u64(place as u64), epoll::EventFlags::IN)?;
        }
        let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; 64 << 10];
        let mut stalled = false;
        while !self.stop.load(Ordering::SeqCst) {
            events.clear();
            epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&tick))?;
            if self.stalls.load(Ordering::SeqCst) && !std::mem::replace(&mut stalled, true) {
                let last = self.far.last().ok_or(io::ErrorKind::NotFound)?;
                epoll::delete(&set, last)?;
            }
            for event in &events {
                let place = event.data.u64() as usize;
                if stalled && place + 1 == self.far.len() {
                    continue;
                }
                match self.far[place].read(&mut buffer) {
                    Ok(0) => epoll::delete(&set, &self.far[place])?,
                    Ok(read) => self.count(read as u64),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn count(&self, bytes: u64) {
        let before = self.received.fetch_add(bytes, Ordering::SeqCst);
        let expected = self.expected.load(Ordering::SeqCst);
        if (before..before + bytes).contains(&expected.wrapping_sub(1)) {
            self.waiter.unpark();
        }
    }
}

/// The baseline: one thread that calls `send()` for each receiver.
pub(super) struct Plain {
    near: Vec<TcpStream>,
    receivers: Receivers,
    own: String,
}

impl Plain {
    pub(super) fn new(connections: usize) -> anyhow::Result<Self> {
        let (near, receivers) = Receivers::start(connections, false)?;
        for stream in &near {
            stream.set_nodelay(true)?;
        }
        Ok(Self { near, receivers, own: this_thread()? })
    }

    /// One record to everybody.
    fn send(&mut self, payload: &[u8]) -> anyhow::Result<()> {
        self.receivers.expect(self.near.len() * payload.len());
        for stream in &mut self.near {
            stream.write_all(payload).context("cannot send on loopback")?;
        }
        Ok(())
    }

    /// Processor time of a record of `size` bytes to one receiver, in nanoseconds, the mean of some rounds.
    pub(super) fn cost(&mut self, size: usize, rounds: usize) -> anyhow::Result<f64> {
        let payload = vec![7; size];
        let before = thread_time(&self.own)?;
        for _ in 0..rounds {
            self.send(&payload)?;
            self.receivers.wait()?;
        }
        Ok((thread_time(&self.own)? - before) as f64 / (rounds * self.near.len()) as f64)
    }

    fn round_trip(&mut self) -> anyhow::Result<Cost> {
        let payload = [7; RECORD_BYTES];
        let mut time = Duration::ZERO;
        let mut buffers = 0;
        let before = thread_time(&self.own)?;
        for _ in 0..ROUNDS {
            let begin = now();
            self.send(&payload)?;
            buffers = buffers.max(socket_buffer_bytes()?);
            self.receivers.wait()?;
            time += now().saturating_since(begin);
        }
        let processor = thread_time(&self.own)? - before;
        Ok(mean(time, processor, buffers))
    }
}

/// Freshwire: one push, and engines on threads of their own.
struct Fresh {
    sender: Sender,
    sinks: Vec<Sink>,
    receivers: Receivers,
    own: String,
    threads: Vec<String>,
    _engines: EnginePool,
    private_bytes: f64,
    ring_bytes: f64,
    seq: u64,
    /// Records that a receiver which was not stalled did not get.
    missed: u64,
}

impl Fresh {
    fn new(connections: usize, engines: u8) -> anyhow::Result<Self> {
        let (near, receivers) = Receivers::start(connections, true)?;
        let others = threads()?;
        let pool = EnginePool::spawn(engines.into()).context("cannot start an engine")?;
        let threads: Vec<_> = threads()?.difference(&others).cloned().collect();
        anyhow::ensure!(
            threads.len() == usize::from(engines),
            "found {} threads of {engines}",
            threads.len()
        );
        let config =
            |rings| RingConfig { rings, slots: SLOTS, block_bytes: RECORD_BYTES as u32, blocks: BLOCKS };
        let ring_bytes = Region::bytes_for(&config(connections as u32))? - Region::bytes_for(&config(1))?;
        let mut sender = Sender::new(&config(connections as u32), pool.group())?;
        let before = private_bytes()?;
        let add = |stream| sender.add_sink(stream, SinkConfig::new(choice::fifo()));
        let sinks = near.into_iter().map(add).collect::<Result<Vec<_>, _>>()?;
        let mut fresh = Self {
            sender,
            sinks,
            receivers,
            own: this_thread()?,
            threads,
            _engines: pool,
            private_bytes: 0.0,
            ring_bytes: ring_bytes as f64 / (connections - 1) as f64,
            seq: 0,
            missed: 0,
        };
        // Memory counts when every connection has been at work.
        fresh.round_trip(connections)?;
        fresh.private_bytes = private_bytes()?.saturating_sub(before) as f64 / connections as f64;
        Ok(fresh)
    }

    /// Some records to everybody; `receivers` of them read.
    fn round_trip(&mut self, receivers: usize) -> anyhow::Result<Cost> {
        let mut time = Duration::ZERO;
        let mut buffers = 0;
        let (own, engines) = (thread_time(&self.own)?, self.engine_times()?);
        for _ in 0..ROUNDS {
            self.receivers.expect(receivers * RECORD_BYTES);
            let begin = now();
            let taken = self.push()?;
            buffers = buffers.max(socket_buffer_bytes()?);
            self.missed += receivers.saturating_sub(taken) as u64;
            self.receivers.wait()?;
            time += now().saturating_since(begin);
        }
        let own = thread_time(&self.own)? - own;
        let engines: Vec<u64> =
            self.engine_times()?.iter().zip(&engines).map(|(after, before)| after - before).collect();
        let sum: u64 = engines.iter().sum();
        let most = engines.iter().copied().max().unwrap_or(0);
        let busiest = most as f64 * engines.len() as f64 / sum.max(1) as f64;
        Ok(Cost { busiest, ..mean(time, own + sum, buffers) })
    }

    fn push(&mut self) -> anyhow::Result<usize> {
        self.seq += 1;
        let meta = Meta { seq: self.seq, generated: now(), ..Meta::default() };
        let sinks = self.sinks.iter().map(Sink::id);
        Ok(self.sender.push_to_all(sinks, &[7; RECORD_BYTES], &meta)?)
    }

    /// Lets the last receiver stall until its ring is full.
    fn stall_one(&mut self) -> anyhow::Result<()> {
        self.receivers.stalls.store(true, Ordering::SeqCst);
        let give_up = now() + PATIENCE;
        loop {
            self.receivers.expect((self.sinks.len() - 1) * RECORD_BYTES);
            let taken = self.push()?;
            self.receivers.wait()?;
            if taken < self.sinks.len() {
                return Ok(());
            }
            anyhow::ensure!(now() < give_up, "the receiver that should stall does not");
        }
    }

    fn engine_times(&self) -> anyhow::Result<Vec<u64>> {
        self.threads.iter().map(|thread| thread_time(thread)).collect()
    }
}

fn mean(time: Duration, processor_ns: u64, buffers: u64) -> Cost {
    let rounds = ROUNDS as f64;
    Cost {
        until_all_ns: time.as_nanos() as f64 / rounds,
        processor_ns: processor_ns as f64 / rounds,
        socket_buffers: buffers as f64,
        busiest: 1.0,
    }
}
