//! One run: both programs, the path between them, and a look at what the kernel holds.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{Node, NodeConfig, Qos, SinkConfig as A1SinkConfig};
use freshwire::{Engine, Sender, SinkConfig, choice};
use freshwire_io::now;
use freshwire_io::tcp::TcpSocket;
use freshwire_record::Timestamp;

use super::read::{Inbox, Notes, Stream, read};
use super::schema::{Arrivals, Plan, Run, SenderAccount};
use super::{fresh, plain, scheme};
use crate::scenario::{A1Path, TestLink, transport};
use crate::schema::{Environment, Trust};

/// From the last connection to the first tick.
const LEAD: Duration = Duration::from_millis(200);

/// How often the kernel's queues are looked at.
const SAMPLE: Duration = Duration::from_millis(10);

/// How often acknowledgements of the program are looked for.
const LOOK: Duration = Duration::from_micros(500);

/// A source that is later than this has not made what it says; one that is blocked in a write is not meant.
const MAX_LATENESS_US: u64 = 20_000;

/// Makes a run. Call while the process has one thread.
pub(crate) fn measure(plan: Plan, environment: Environment) -> anyhow::Result<Run> {
    let link = plan.link.as_ref().map(TestLink::open).transpose()?;
    let (says, notes) =
        if plan.is_a1() { over_a1(&plan, link.as_ref())? } else { over_tcp(&plan, link.as_ref())? };
    let mut faults = link.map(|link| link.close().faults).unwrap_or_default();
    if says.skipped_ticks == 0 && says.lateness_us > MAX_LATENESS_US {
        faults.push(format!("the source was {} ms late", says.lateness_us / 1000));
    }
    Ok(Run {
        environment,
        trust: Trust::of(&faults),
        sender: says,
        arrivals: Arrivals::of(&notes.read),
        metrics: None,
        plan,
    })
}

fn start(link: Option<&TestLink>) -> anyhow::Result<Timestamp> {
    link.map_or(Ok(now() + LEAD), |link| link.start_after(LEAD))
}

fn over_tcp(plan: &Plan, link: Option<&TestLink>) -> anyhow::Result<(SenderAccount, Notes)> {
    let (near, far) = match link {
        Some(link) => {
            let (near, far, _) = link.connect_tcp(Some(&plan.congestion))?;
            (near, far)
        }
        None => on_loopback(&plan.congestion)?,
    };
    let socket = TcpSocket::new(near.try_clone()?)?;
    let stream = Stream::new(far.try_clone()?, plan);
    let start = start(link)?;
    let is_over = AtomicBool::new(false);
    let (says, notes, held) = std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(plan, Inbox::Tcp(stream), start));
        let watcher = scope.spawn(|| watch(&socket, &far, &is_over));
        let says = send(plan, &near, &socket, start, &is_over);
        is_over.store(true, Ordering::Relaxed);
        let held = watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?;
        // Whatever is in the kernel has lost its value.
        socket.abort_on_close()?;
        let notes = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        anyhow::Ok((says.context("the sender failed")?, notes.context("the reader failed")?, held?))
    })?;
    Ok((SenderAccount { kernel_bytes: Some(held), ..says }, notes))
}

fn send(
    plan: &Plan,
    near: &TcpStream,
    socket: &TcpSocket,
    start: Timestamp,
    is_over: &AtomicBool,
) -> anyhow::Result<SenderAccount> {
    if plain::is_plain(&plan.scheme) {
        return plain::send(plan, near, socket, start);
    }
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&fresh::region(plan), &engine.handle())?;
    let stream = near.try_clone()?;
    if plan.scheme != scheme::GATE {
        let sink = sender.add_sink(stream, SinkConfig::new(fresh::policy(plan)))?;
        return fresh::feed(plan, &mut sender, sink, start);
    }
    let (policy, gate) = choice::gate(choice::latest(), plan.gate);
    let sink = sender.add_sink(stream, SinkConfig::new(policy))?;
    std::thread::scope(|scope| {
        let opener = scope.spawn(move || open_gate(near, &gate, is_over));
        let says = fresh::feed(plan, &mut sender, sink, start);
        is_over.store(true, Ordering::Relaxed);
        opener.join().map_err(|_| anyhow::anyhow!("the gate's thread panicked"))??;
        says
    })
}

/// Reads what the program acknowledges: how many values it has read, 64 bits big-endian each time.
fn open_gate(mut near: &TcpStream, gate: &choice::Gate, is_over: &AtomicBool) -> anyhow::Result<()> {
    near.set_read_timeout(Some(SAMPLE)).context("cannot set a time-out")?;
    let (mut buffer, mut filled) = ([0; 512], 0);
    while !is_over.load(Ordering::Relaxed) {
        match near.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(len) => filled += len,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    // The socket may be one that does not block.
                    std::thread::sleep(LOOK);
                    continue;
                }
                // The connection was aborted: the time is over.
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Ok(()),
                _ => return Err(error).context("cannot read acknowledgements"),
            },
        }
        let whole = filled - filled % 8;
        if let Some(newest) = buffer[..whole].last_chunk() {
            gate.acknowledge(u64::from_be_bytes(*newest));
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    Ok(())
}

fn over_a1(plan: &Plan, link: Option<&TestLink>) -> anyhow::Result<(SenderAccount, Notes)> {
    let transport = transport(&plan.scheme)?;
    let path = match link {
        Some(link) => A1Path::connect(link, &transport, Qos::default())?,
        None => {
            let bind = || -> anyhow::Result<Node> {
                let config = NodeConfig::new().context("cannot make a key")?.connection(transport.clone());
                Ok(Node::bind((Ipv4Addr::LOCALHOST, 0).into(), config)?)
            };
            A1Path::between(bind()?, bind()?)?
        }
    };
    let (sending, receiving) = (&path.sending, &path.receiving);
    let start = start(link)?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(plan, Inbox::A1(receiving), start));
        let says = (|| {
            let mut sender = Sender::without_engine(&fresh::region(plan))?;
            let sink = sender.add_a1_sink(sending, A1SinkConfig::new(fresh::policy(plan)))?;
            fresh::feed(plan, &mut sender, sink, start)
        })();
        let notes = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        Ok((says.context("the sender failed")?, notes.context("the reader failed")?))
    })
}

fn on_loopback(congestion: &str) -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let near = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
    let (far, _) = listener.accept().context("cannot accept")?;
    TcpSocket::new(near.try_clone()?)?.set_congestion(congestion).with_context(|| {
        format!(
            "this kernel does not let us choose congestion control {congestion:?}; see `freshwire doctor`"
        )
    })?;
    Ok((near, far))
}

/// Bytes in the sender's queue and in the reader's: mean and most.
fn watch(socket: &TcpSocket, far: &TcpStream, is_over: &AtomicBool) -> anyhow::Result<(f64, u64)> {
    let (mut sum, mut samples, mut most) = (0, 0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let unread = rustix::io::ioctl_fionread(far).context("cannot ask what is unread")?;
        let held = socket.unacknowledged().context("cannot ask what is unacknowledged")? + unread;
        (sum, samples, most) = (sum + held, samples + 1, most.max(held));
        std::thread::sleep(SAMPLE);
    }
    Ok((sum as f64 / f64::from(samples.max(1)), most))
}
