//! The ends of `bench receive`, each in its own process: a sender at an even rate, and a receiver that stalls or is slow.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::now;
use freshwire_push::module_ring::ModuleRing;
use freshwire_push::packet_ring::PacketRing;
use freshwire_push::sys::Batch;
use freshwire_push::{Backend, Config, Policy, Receiver, Tag};
use freshwire_record::Timestamp;
use rustix::net::sockopt;
use rustix::time::ClockId;

use crate::bench::machine::processor_time;
use crate::child::own_program;

use super::plan::{DEADLINE, KERNEL_BUFFER, KEYS, Method, Outcome, Plan, Rule, Traffic};
use super::rivals;

/// Memory of the program's, for the methods that have any.
pub(super) const MEMORY: usize = 64 << 20;
/// Stalls in milliseconds, one of which comes after each working period.
const STALLS: [u64; 4] = [5, 20, 50, 200];
const WORKS: Duration = Duration::from_millis(100);
/// Datagrams after a stall whose taking is timed.
const TIMED: u32 = 50;
/// Nothing came for this long: the sender is done.
const END: Duration = Duration::from_secs(2);
/// How long the slow receiver needs for a datagram.
const SLOW: Duration = Duration::from_micros(500);

/// Runs one end, and prints what it has seen.
pub(super) fn work(plan: &Plan) -> anyhow::Result<()> {
    let outcome = match plan {
        Plan::Send { to, traffic } => {
            rivals::run_anywhere()?;
            return send(*to, *traffic).context("cannot send");
        }
        Plan::Stall { method, traffic, seed } => stall(*method, *traffic, *seed, false)?,
        Plan::Shared { method, traffic, seed } => shared(*method, *traffic, *seed)?,
        Plan::Beside { time } => rivals::compute(*time),
        Plan::Slow { rule, traffic } => slow(*rule, *traffic)?,
    };
    crate::output::print(&serde_json::to_string(&outcome)?)
}

/// Sends at an even rate. It catches up by at most a millisecond's worth at a time.
fn send(to: SocketAddr, traffic: Traffic) -> io::Result<()> {
    let Traffic { rate, count, len, segments } = traffic;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    if segments > 1 {
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        freshwire_push::sys::set_int(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, len)?;
    }
    let mut payload = vec![7; len * segments];
    let begin = now();
    let mut sent = 0;
    while sent < count {
        let elapsed = now().saturating_since(begin).as_micros() as u64;
        let due = (elapsed * rate / 1_000_000).min(count);
        let until = due.min(sent + (rate / 1000).max(1));
        while sent < until {
            let datagrams = segments.min((until - sent) as usize);
            for (datagram, number) in payload.chunks_exact_mut(len).take(datagrams).zip(sent..) {
                datagram[..8].copy_from_slice(&number.to_ne_bytes());
                datagram[8..16].copy_from_slice(&now().as_nanos().to_ne_bytes());
            }
            match socket.send(&payload[..datagrams * len]) {
                Err(error) if error.kind() != ErrorKind::ConnectionRefused => return Err(error),
                _ => sent += datagrams as u64,
            }
        }
        std::thread::sleep(Duration::from_micros(250));
    }
    Ok(())
}

/// The sender, in a process of its own and without a preloaded library.
fn start_sender(to: SocketAddr, traffic: Traffic) -> anyhow::Result<Child> {
    start(&Plan::Send { to, traffic }, Stdio::inherit()).context("cannot start the sender")
}

fn start(plan: &Plan, output: Stdio) -> anyhow::Result<Child> {
    let plan = serde_json::to_string(plan)?;
    let mut command = own_program()?;
    command.args(["bench", "--receive-worker", &plan]).env_remove("LD_PRELOAD");
    Ok(command.stdin(Stdio::null()).stdout(output).spawn()?)
}

enum Source {
    Socket(UdpSocket),
    Monitored { socket: UdpSocket, _monitor: rivals::Monitor },
    Batched { socket: UdpSocket, batch: Box<Batch>, at: usize, len: usize },
    Ring { ring: Box<PacketRing>, _socket: UdpSocket },
    Push(Box<Receiver>),
    Module(ModuleRing),
}

impl Source {
    fn new(method: Method) -> anyhow::Result<(Self, SocketAddr)> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind")?;
        let address = socket.local_addr()?;
        socket.set_read_timeout(Some(END))?;
        sockopt::set_socket_recv_buffer_size(&socket, KERNEL_BUFFER)?;
        let source = match method {
            Method::Recv | Method::Preloaded => Self::Socket(socket),
            Method::RealTime => {
                rivals::take_real_time()?;
                Self::Socket(socket)
            }
            Method::Monitored => {
                let monitor = rivals::Monitor::start(socket.try_clone()?, KERNEL_BUFFER, MEMORY)?;
                Self::Monitored { socket, _monitor: monitor }
            }
            Method::Large => {
                sockopt::set_socket_recv_buffer_size(&socket, MEMORY)?;
                Self::Socket(socket)
            }
            Method::Recvmmsg => Self::Batched { socket, batch: Box::new(Batch::new(32)), at: 0, len: 0 },
            Method::PacketRing => {
                // Its drops are no loss: the ring has the datagrams.
                sockopt::set_socket_recv_buffer_size(&socket, 0)?;
                let loopback = rustix::net::netdevice::name_to_index(&socket, "lo")?;
                let ring = PacketRing::open(loopback.cast_signed(), address.port(), MEMORY);
                Self::Ring { ring: Box::new(ring.context("no packet ring")?), _socket: socket }
            }
            Method::PushThread => Self::Push(Box::new(push(socket, Backend::Thread)?)),
            Method::PushUring => Self::Push(Box::new(push(socket, Backend::Auto)?)),
            Method::Module => {
                Self::Module(ModuleRing::open(socket, MEMORY).context("no ring of the module")?)
            }
        };
        Ok((source, address))
    }

    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) | Self::Monitored { socket, .. } => socket.recv(buffer),
            Self::Push(receiver) => receiver.recv(buffer),
            Self::Module(ring) => ring.receive(buffer),
            Self::Ring { ring, .. } => ring.receive(buffer, END),
            Self::Batched { socket, batch, at, len } => {
                if *at == *len {
                    *len = batch.receive(socket.as_raw_fd(), batch.lanes(), WAIT_FOR_ONE)?;
                    *at = 0;
                }
                let payload = batch.get(*at).payload;
                let len = payload.len().min(buffer.len());
                buffer[..len].copy_from_slice(&payload[..len]);
                *at += 1;
                Ok(len)
            }
        }
    }
}

/// `MSG_WAITFORONE`.
const WAIT_FOR_ONE: i32 = 0x10000;

fn push(socket: UdpSocket, backend: Backend) -> anyhow::Result<Receiver> {
    let config = Config {
        memory: MEMORY,
        longest: 2048,
        kernel_buffer: Some(KERNEL_BUFFER),
        backend,
        ..Config::default()
    };
    let receiver = Receiver::with_config(socket, config)?;
    receiver.set_read_timeout(Some(END))?;
    Ok(receiver)
}

/// Receives all that comes, and does something else now and then. `computes`: with the processor, else it sleeps.
fn stall(method: Method, traffic: Traffic, mut seed: u64, computes: bool) -> anyhow::Result<Outcome> {
    let (mut source, address) = Source::new(method)?;
    let mut sender = start_sender(address, traffic)?;
    let mut buffer = [0; 2048];
    let (mut outcome, mut takes) = (Outcome::default(), Vec::new());
    let mut works = now();
    let mut timing: Option<(Timestamp, u32)> = None;
    let before = processor_time(ClockId::ProcessCPUTime);
    loop {
        match source.take(&mut buffer) {
            Ok(_) => outcome.received += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error).context("cannot receive"),
        }
        if let Some((begin, left)) = &mut timing {
            *left -= 1;
            if *left == 0 {
                takes.push(now().saturating_since(*begin).as_nanos() as f64 / f64::from(TIMED));
                timing = None;
            }
        }
        // The clock is read rarely, so that it is no part of the cost.
        if outcome.received % 16 == 0 && now().saturating_since(works) > WORKS {
            let time = Duration::from_millis(STALLS[(random(&mut seed) % 4) as usize]);
            if computes {
                rivals::compute(time);
            } else {
                std::thread::sleep(time);
            }
            works = now();
            timing = Some((works, TIMED));
        }
    }
    outcome.cpu_ns = (processor_time(ClockId::ProcessCPUTime) - before).as_nanos() as f64;
    sender.wait().context("the sender is lost")?;
    takes.sort_by(f64::total_cmp);
    outcome.take_ns = takes.get(takes.len() / 2).copied().unwrap_or(f64::NAN);
    Ok(outcome)
}

/// Receives on the first processor, where another program computes.
fn shared(method: Method, traffic: Traffic, seed: u64) -> anyhow::Result<Outcome> {
    rivals::stay_on_first_processor()?;
    let time = Duration::from_secs_f64(traffic.count as f64 / traffic.rate as f64);
    let beside = start(&Plan::Beside { time }, Stdio::piped()).context("cannot start the program beside")?;
    let outcome = stall(method, traffic, seed, true)?;
    let output = beside.wait_with_output().context("the program beside is lost")?;
    let beside: Outcome =
        serde_json::from_slice(&output.stdout).context("the program beside says nothing")?;
    Ok(Outcome { beside: beside.beside, beside_waits_ns: beside.beside_waits_ns, ..outcome })
}

/// Receives more slowly than the sender sends.
fn slow(rule: Rule, traffic: Traffic) -> anyhow::Result<Outcome> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind")?;
    let address = socket.local_addr()?;
    let (policy, classify): (_, Option<freshwire_push::Classify>) = match rule {
        Rule::Kernel => (None, None),
        Rule::Newest => (Some(Policy::Newest), None),
        Rule::Deadline => (Some(Policy::Deadline(DEADLINE)), None),
        Rule::LatestByKey => (Some(Policy::LatestByKey), Some(Box::new(by_key))),
    };
    let source = match policy {
        None => {
            // The largest that the system allows, as the receivers have it too.
            sockopt::set_socket_recv_buffer_size(&socket, MEMORY)?;
            socket.set_read_timeout(Some(END))?;
            Source::Socket(socket)
        }
        Some(policy) => {
            let receiver = Receiver::with_config(socket, Config { policy, classify, ..Config::default() })?;
            receiver.set_read_timeout(Some(END))?;
            Source::Push(Box::new(receiver))
        }
    };
    let mut source = source;
    let mut sender = start_sender(address, traffic)?;
    let mut buffer = [0; 2048];
    let mut outcome = Outcome::default();
    // Until the sender has ended: what waits then is no overload any more.
    while sender.try_wait().context("the sender is lost")?.is_none() {
        match source.take(&mut buffer) {
            Ok(len) if len >= 16 => {
                let sent = u64::from_ne_bytes(buffer[8..16].try_into().unwrap_or_default());
                outcome.ages_ns.push(now().as_nanos().saturating_sub(sent));
                outcome.received += 1;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error).context("cannot receive"),
        }
        std::thread::sleep(SLOW);
    }
    sender.wait().context("the sender is lost")?;
    Ok(outcome)
}

fn by_key(payload: &[u8]) -> Tag {
    let number = payload.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    Tag { key: number.map(|number| number % KEYS), lifetime: None }
}

/// Knuth's MMIX generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Runs a receiver in a process of its own.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    let own = own_program()?;
    let mut command = match plan {
        Plan::Stall { method: Method::Preloaded, .. } => {
            // Programs: own
            let mut command = Command::new(crate::product::program()?);
            command.args(["push", "--"]).arg(own.get_program());
            command
        }
        _ => own,
    };
    command.args(["bench", "--receive-worker", &serde_json::to_string(plan)?]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start")?;
    anyhow::ensure!(output.status.success(), "the receiver ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("the receiver says something else than its outcome")
}
