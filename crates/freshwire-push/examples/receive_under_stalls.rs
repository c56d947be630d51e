//! What a program loses that stalls now and then, by how it receives; what that costs; and how long taking a datagram takes.
//!
//! `cargo run --release -p freshwire-push --example receive_under_stalls -- METHOD RATE COUNT [SEED]`, where METHOD is `recv`,
//! `recvmmsg`, `large` (`recv` with the largest kernel buffer) or `push`. With the preloaded library: METHOD `recv` under
//! `freshwire push --`. Prints one JSON line.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use freshwire_push::sys::{self, Batch};
use freshwire_push::{Config, Receiver};

const LEN: usize = 1400;
const KERNEL_BUFFER: usize = 256 << 10;
/// Stalls, one of which comes after each working period.
const STALLS: [u64; 4] = [5, 20, 50, 200];
const WORKS: Duration = Duration::from_millis(100);
/// Datagrams after a stall whose taking is timed.
const TIMED: usize = 50;
/// Nothing came for this long: the sender is done.
const END: Duration = Duration::from_secs(2);

enum Source {
    Socket(UdpSocket),
    Batched { socket: UdpSocket, batch: Box<Batch>, at: usize, len: usize },
    Push(Box<Receiver>),
}

impl Source {
    fn new(method: &str) -> io::Result<(Self, SocketAddr)> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?;
        let size =
            |size: usize| sys::set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, size as i32);
        socket.set_read_timeout(Some(END))?;
        let source = match method {
            "recv" => {
                size(KERNEL_BUFFER)?;
                Self::Socket(socket)
            }
            "large" => {
                size(64 << 20)?;
                Self::Socket(socket)
            }
            "recvmmsg" => {
                size(KERNEL_BUFFER)?;
                Self::Batched { socket, batch: Box::new(Batch::new(32)), at: 0, len: 0 }
            }
            "push" => {
                let config =
                    Config { kernel_buffer: Some(KERNEL_BUFFER), memory: 64 << 20, ..Config::default() };
                let receiver = Receiver::with_config(socket, config)?;
                receiver.set_read_timeout(Some(END))?;
                Self::Push(Box::new(receiver))
            }
            other => return Err(io::Error::new(ErrorKind::InvalidInput, format!("no method {other}"))),
        };
        Ok((source, address))
    }

    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.recv(buffer),
            Self::Push(receiver) => receiver.recv(buffer),
            Self::Batched { socket, batch, at, len } => {
                if *at == *len {
                    *len = batch.receive(socket.as_raw_fd(), batch.lanes(), libc::MSG_WAITFORONE)?;
                    *at = 0;
                }
                let payload = batch.get(*at).payload;
                buffer[..payload.len()].copy_from_slice(payload);
                *at += 1;
                Ok(payload.len())
            }
        }
    }
}

/// Sends at an even rate. What was late is made up for, a millisecond's worth at a time.
fn send(target: &str, rate: u64, count: u64) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(target)?;
    let mut payload = [7; LEN];
    let begin = Instant::now();
    let mut sent = 0;
    while sent < count {
        let due = (begin.elapsed().as_micros() as u64 * rate / 1_000_000).min(count);
        let now = due.min(sent + rate / 1000);
        while sent < now {
            payload[..8].copy_from_slice(&sent.to_ne_bytes());
            socket.send(&payload)?;
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(250));
    }
    Ok(())
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn random(state: &mut u64) -> u64 {
    // Knuth's MMIX generator.
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let method = arguments.get(1).map_or("push", String::as_str);
    if method == "send" {
        return send(&arguments[2], number(3, 1), number(4, 1));
    }
    let (rate, count, mut seed) = (number(2, 20_000), number(3, 100_000), number(4, 1));
    let (mut source, address) = Source::new(method)?;
    let mut sender = Command::new(std::env::current_exe()?)
        .args(["send", &address.to_string(), &rate.to_string(), &count.to_string()])
        .env_remove("LD_PRELOAD")
        .spawn()?;
    let mut buffer = [0; 2048];
    let (mut received, mut stalled) = (0_u64, Duration::ZERO);
    let mut takes = Vec::new();
    let mut works = Instant::now();
    let mut timing: Option<(Instant, usize)> = None;
    let before = processor_time();
    loop {
        match source.take(&mut buffer) {
            Ok(_) => received += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
        if let Some((begin, left)) = &mut timing {
            *left -= 1;
            if *left == 0 {
                takes.push(begin.elapsed().as_nanos() as f64 / TIMED as f64);
                timing = None;
            }
        }
        // The clock is read rarely, so that it is no part of the cost.
        if received % 16 == 0 && works.elapsed() > WORKS {
            let stall = Duration::from_millis(STALLS[(random(&mut seed) % 4) as usize]);
            std::thread::sleep(stall);
            stalled += stall;
            works = Instant::now();
            timing = Some((works, TIMED));
        }
    }
    let spent = processor_time() - before;
    sender.wait()?;
    takes.sort_by(f64::total_cmp);
    let take = takes.get(takes.len() / 2).copied().unwrap_or(f64::NAN);
    println!(
        "{{\"method\":\"{method}\",\"rate\":{rate},\"sent\":{count},\"received\":{received},\"lost_percent\":{:.3},\
         \"cpu_ns_per_datagram\":{:.0},\"take_ns\":{take:.0},\"stalled_ms\":{}}}",
        (count - received.min(count)) as f64 * 100.0 / count as f64,
        spent.as_nanos() as f64 / received.max(1) as f64,
        stalled.as_millis(),
    );
    if let Source::Push(receiver) = &source {
        eprintln!("{:?}", receiver.statistics()?);
    }
    Ok(())
}
