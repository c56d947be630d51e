//! The cost of a push, beside that of a `send()` of the same bytes over TCP and over UDP.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::{Engine, Meta, PushError, Reason, RingConfig, Sender, Sink, SinkConfig, choice};
use freshwire_io::now;

use super::loopback::{Drain, pair, pair_over};
use super::machine::write_calls;
use super::series::{Goal, Report, Unit};

const BENCH: &str = "push";

/// Payload sizes: a position update, a segment, a large write.
const SIZES: [usize; 3] = [64, 1400, 16384];

/// The size of the goal, and the goal.
const GOAL_SIZE: usize = 1400;
const GOAL: Goal = Goal::AtMost(1.0 / 20.0);

/// What a copy-free ring gained over UDP elsewhere (Birkedal 2006, section 3.2.1, of Lai and Kohler 2005).
const PUBLISHED: &str = "push: published for a ring shared with the kernel, over DCCP: up to 60 % more than comparable applications over \
     UDP, and up to 71 % more with fewer system calls. A push here is the producer's part alone; `bench stream` has the whole path.";

/// How long the reader of datagrams waits at most before it looks whether all were sent.
const WATCH: Duration = Duration::from_millis(20);

/// Pushes between two looks at the clock, and how often that is done.
const BATCH: u32 = 256;
const ROUNDS: u32 = 64;

/// Rounds before, in which each page of the memory is touched for the first time.
const WARM_UP: u32 = 4;

/// Calls of `send()` in a repetition.
const SENDS: u32 = 4000;

/// Receive buffer of a peer that takes next to nothing, so that `send()` does no more than queue.
const SMALL_WINDOW: usize = 2048;

/// Calls of `send()` that are sure to fit the send buffer of such a connection.
const QUEUED_SENDS: u32 = 64;

/// Connections that are filled in a repetition.
const QUEUES: u32 = 16;

/// Pushes to an engine that sleeps, in a repetition.
const WAKES: u32 = 100;

/// Slots of a ring that is not full when its receiver has stalled.
const MANY: u32 = 8192;

/// Records that wait only for a receiver that does not read.
const SURELY_STALLED: usize = 40;

/// Long enough for the engine to have gone to sleep again.
const SLEEPY: Duration = Duration::from_millis(1);

pub(super) fn measure(repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    let (mut pairs, mut datagrams) = (Vec::new(), Vec::new());
    let mut awake = None;
    for repetition in 0..repeat {
        for size in SIZES {
            let push = report.add(BENCH, &format!("push of {size} B"), Unit::Nanoseconds, push(size)?);
            let send = report.add(BENCH, &format!("send() of {size} B"), Unit::Nanoseconds, send(size)?);
            let name = format!("send() of {size} B over UDP");
            let datagram = report.add(BENCH, &name, Unit::Nanoseconds, datagram(size)?);
            if repetition == 0 {
                pairs.push((size, push, send));
                datagrams.push((size, push, datagram));
            }
        }
        let name = format!("send() of {GOAL_SIZE} B, queue only");
        let queued = report.add(BENCH, &name, Unit::Nanoseconds, queue(GOAL_SIZE)?);
        report.add(
            BENCH,
            &format!("push of {GOAL_SIZE} B that wakes the engine"),
            Unit::Nanoseconds,
            wake(GOAL_SIZE)?,
        );
        if repetition == 0 {
            pairs.push((GOAL_SIZE, pairs[1].1, queued));
        }
        if let Some(calls) = calls_while_awake()? {
            awake = Some(report.add(BENCH, "system calls a push, engine awake", Unit::Count, calls));
        }
    }
    for (place, (size, push, send)) in pairs.into_iter().enumerate() {
        let what = if place < SIZES.len() { "" } else { ", queue only" };
        let goal = (size == GOAL_SIZE && place < SIZES.len()).then_some(GOAL);
        report.compare(&format!("push : send() of {size} B{what}"), push, send, goal);
    }
    for (size, push, datagram) in datagrams {
        report.compare(&format!("push : send() of {size} B over UDP"), push, datagram, None);
    }
    report.notes.push(PUBLISHED.to_owned());
    if let Some(awake) = awake {
        report.demand(awake, Goal::AtMost(0.0));
    }
    Ok(())
}

fn ring(size: usize) -> RingConfig {
    RingConfig { rings: 1, slots: 2 * BATCH, block_bytes: size as u32, blocks: 2 * BATCH }
}

/// Time of one push. The engine does not run: an editor drops what was pushed, which is not timed.
fn push(size: usize) -> anyhow::Result<f64> {
    let engine = Engine::new().context("cannot make an engine")?;
    let mut sender = Sender::new(&ring(size), &engine.handle())?;
    let editor = sender.region().editor();
    let (near, _far) = pair()?;
    let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()).ack_fates(false))?;
    let payload = vec![7; size];
    let (mut time, mut seq) = (Duration::ZERO, 0);
    for round in 0..WARM_UP + ROUNDS {
        let begin = now();
        for _ in 0..BATCH {
            seq += 1;
            sender.push(sink.id(), &payload, &Meta { seq, generated: begin, ..Meta::default() })?;
        }
        if round >= WARM_UP {
            time += now().saturating_since(begin);
        }
        let dropped = editor.drop_where(sink.id().ring(), Reason::Application, |_| true);
        anyhow::ensure!(dropped == BATCH as usize, "{dropped} of {BATCH} records were in the ring");
    }
    Ok(time.as_nanos() as f64 / f64::from(BATCH * ROUNDS))
}

/// Time of one `send()` to a peer that reads everything: the whole path.
fn send(size: usize) -> anyhow::Result<f64> {
    let (mut near, far) = pair()?;
    near.set_nodelay(true)?;
    let drain = Drain::start(far);
    let payload = vec![7; size];
    let begin = now();
    for _ in 0..SENDS {
        near.write_all(&payload)?;
    }
    let time = now().saturating_since(begin);
    drop(near);
    drain.finish()?;
    Ok(time.as_nanos() as f64 / f64::from(SENDS))
}

/// Time of one `send()` of a datagram to a program that reads what its buffer has not dropped: the whole path.
fn datagram(size: usize) -> anyhow::Result<f64> {
    let bind = || UdpSocket::bind("127.0.0.1:0").context("cannot open a socket on loopback");
    let (near, far) = (bind()?, bind()?);
    near.connect(far.local_addr()?)?;
    far.set_read_timeout(Some(WATCH))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut buffer = vec![0; size];
            let mut received = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                // Fails when nothing has come for a while.
                received += u32::from(far.recv(&mut buffer).is_ok());
            }
            received
        });
        let payload = vec![7; size];
        let begin = now();
        let sent = (0..SENDS).try_for_each(|_| near.send(&payload).map(|_| ()));
        let time = now().saturating_since(begin);
        is_over.store(true, Ordering::Relaxed);
        let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        sent.context("cannot send on loopback")?;
        anyhow::ensure!(received > 0, "no datagram came");
        Ok(time.as_nanos() as f64 / f64::from(SENDS))
    })
}

/// Time of one `send()` that only copies into the kernel's queue.
fn queue(size: usize) -> anyhow::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, SMALL_WINDOW)?;
    let payload = vec![7; size];
    let mut time = Duration::ZERO;
    for _ in 0..QUEUES {
        let (mut near, _far) = pair_over(&listener)?;
        near.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&near, 4 * QUEUED_SENDS as usize * size)?;
        close_window(&mut near, &payload)?;
        let begin = now();
        for _ in 0..QUEUED_SENDS {
            near.write_all(&payload).context("the send buffer is too small")?;
        }
        time += now().saturating_since(begin);
    }
    Ok(time.as_nanos() as f64 / f64::from(QUEUED_SENDS * QUEUES))
}

/// Sends until the peer's window is closed and something stays in the queue.
fn close_window(near: &mut TcpStream, payload: &[u8]) -> anyhow::Result<()> {
    loop {
        near.write_all(payload).context("the send buffer is too small")?;
        std::thread::sleep(Duration::from_micros(200));
        if unsent(near)? > 0 {
            return Ok(());
        }
    }
}

fn unsent(near: &TcpStream) -> anyhow::Result<u64> {
    let socket = freshwire_io::tcp::TcpSocket::new(near.try_clone()?)?;
    Ok(socket.unsent()?)
}

/// Time of a push that finds the engine asleep and wakes it.
fn wake(size: usize) -> anyhow::Result<f64> {
    let engine = Engine::new().and_then(Engine::spawn).context("cannot start an engine")?;
    let mut sender = Sender::new(&ring(size), &engine.handle())?;
    let (near, far) = pair()?;
    let drain = Drain::start(far);
    let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    let payload = vec![7; size];
    let mut time = Duration::ZERO;
    for seq in 0..WAKES {
        std::thread::sleep(SLEEPY);
        let begin = now();
        sender.push(sink.id(), &payload, &Meta { seq: u64::from(seq), ..Meta::default() })?;
        time += now().saturating_since(begin);
    }
    drop(sink);
    drain.finish()?;
    Ok(time.as_nanos() as f64 / f64::from(WAKES))
}

/// Write system calls of a push while the engine has more to send than the receiver takes, so that it does not sleep
/// over an empty ring. `None`: this kernel does not count them.
fn calls_while_awake() -> anyhow::Result<Option<f64>> {
    let engine = Engine::new().and_then(Engine::spawn).context("cannot start an engine")?;
    let config =
        RingConfig { slots: MANY, blocks: MANY, block_bytes: GOAL_SIZE as u32, ..RingConfig::default() };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let (near, _far) = pair()?;
    let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    let payload = vec![7; GOAL_SIZE];
    stall(&mut sender, &sink, &payload)?;
    let Some(before) = write_calls() else { return Ok(None) };
    let mut pushes = 0;
    while push_one(&mut sender, &sink, &payload)? {
        pushes += 1;
    }
    let calls = write_calls().context("the kernel no longer counts system calls")? - before;
    anyhow::ensure!(pushes > 0, "no push was possible while the receiver stalled");
    Ok(Some(calls as f64 / f64::from(pushes)))
}

/// Pushes until the receiver's window is closed and records wait.
fn stall(sender: &mut Sender, sink: &Sink, payload: &[u8]) -> anyhow::Result<()> {
    let mut waiting = 0;
    while waiting < SURELY_STALLED {
        let room = push_one(sender, sink, payload)?;
        anyhow::ensure!(room, "the ring is full before the receiver has stalled");
        // The engine writes what is there in far less time, if there is room.
        std::thread::sleep(SLEEPY / 4);
        waiting = sender.waiting(sink.id())?;
    }
    Ok(())
}

/// False: the ring is full.
fn push_one(sender: &mut Sender, sink: &Sink, payload: &[u8]) -> anyhow::Result<bool> {
    match sender.push(sink.id(), payload, &Meta::default()) {
        Ok(_) => Ok(true),
        Err(PushError::Full | PushError::OutOfBlocks) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
