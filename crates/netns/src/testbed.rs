//! Hosts on one machine, for tests and benchmarks: the near one sends, the far one acknowledges each packet. Needs root, and the
//! programs `ip` and `ethtool`.
//!
//! ```text
//!  near: senders ─► TCP ─► veth with TSO ══► middle: cuts segments ══► packets ══► veth without GRO ─► TCP ─► far: receivers
//!        processor 0        ▲                processor 1                                               processor 1
//!                           └─ a kernel thread for arrivals, processor 0, where a filter is attached
//! ```
//!
//! The middle is what segmentation offload of a network card would be. The near interface handles arrivals in a kernel thread of its
//! own, as if a card's interrupt had come to processor 0. So the sending host's processor time is that of the senders' threads and
//! that of this thread.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Sub;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use rustix::thread::{CpuSet, LinkNameSpaceType, Pid, gettid, move_into_link_name_space, sched_setaffinity};

/// Why there is no testbed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A program is missing.
    #[error("{0} is missing: apt-get install iproute2 ethtool")]
    Missing(String),
    /// Not root.
    #[error("network namespaces with interfaces need root")]
    NotRoot,
    /// A command failed, often because the kernel lacks something that it needs.
    #[error("`{command}` failed: {message}")]
    Command {
        /// The command line.
        command: String,
        /// What it said.
        message: String,
    },
    /// The system refused something.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl TestbedError {
    /// The machine or the user lacks what a testbed needs, so a test may be skipped on a user's machine.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotRoot | Self::Missing(_) | Self::Command { .. })
    }
}

/// How the far host acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiver {
    /// Each packet, at once.
    #[default]
    EachPacket,
    /// What the kernel does without receive offload: each second packet.
    Delayed,
    /// With segments before segmentation offload, as with generic receive offload: few acknowledgements.
    Offload,
}

/// One transfer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Connections, each with a thread at both ends.
    pub connections: usize,
    /// Bytes over each.
    pub bytes: u64,
    /// The senders' congestion control.
    pub congestion: String,
    /// The receivers look at every byte.
    pub check: bool,
}

/// What a transfer has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Bytes that were not those sent; 0 where they are not looked at.
    pub wrong: u64,
    /// From the first connection's begin until the last byte arrived.
    pub time: Duration,
    /// Processor time of the sending host: senders and arrivals.
    pub sender_cpu: Duration,
    /// Counters of the sending host.
    pub tcp: TcpCounters,
}

impl Outcome {
    /// Bits a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64().max(1e-9)
    }

    /// Mean payload of the segments that it sent, as a part of a full one. Acknowledgements of its own, which have no payload, count
    /// as segments.
    pub fn fullness(&self) -> f64 {
        self.bytes as f64 / (self.tcp.segments_out as f64 * FULL_SEGMENT).max(1.0)
    }

    /// Seconds of the sending host's processor for 10^9 bytes.
    pub fn cpu_per_gb(&self) -> f64 {
        self.sender_cpu.as_secs_f64() / (self.bytes as f64 / 1e9).max(1e-9)
    }
}

/// The hosts. Dropping it takes them down.
#[derive(Debug)]
pub struct Testbed {
    near: String,
    middle: String,
    far: String,
}

impl Testbed {
    /// Makes the hosts. `name` tells those of one process apart; at most six letters.
    ///
    /// # Errors
    ///
    /// [`TestbedError::NotRoot`], [`TestbedError::Missing`]; [`TestbedError::Command`] if the kernel has no veth.
    pub fn new(name: &str, receiver: Receiver) -> Result<Self, TestbedError> {
        if !rustix::process::geteuid().is_root() {
            return Err(TestbedError::NotRoot);
        }
        let id = std::process::id();
        let host = |letter: &str| format!("fw{letter}-{name}-{id}");
        let testbed = Self { near: host("n"), middle: host("m"), far: host("f") };
        let Self { near, middle, far } = &testbed;
        for host in [near, middle, far] {
            run("ip", &["netns", "add", host])?;
            run("ip", &["-n", host, "link", "set", "lo", "up"])?;
        }
        veth((near, NEAR), (middle, MIDDLE_NEAR))?;
        veth((middle, MIDDLE_FAR), (far, FAR))?;
        let tso = if receiver == Receiver::Offload { "on" } else { "off" };
        // Programs: ethtool
        inside(near, "ethtool", &["-K", NEAR, "gro", "on"])?;
        // A veth hands arrivals to the other end's thread only if its own side does not segment. Else they are handled on whatever
        // processor sends, and counted as nobody's.
        inside(middle, "ethtool", &["-K", MIDDLE_NEAR, "tso", "off"])?;
        inside(middle, "ethtool", &["-K", MIDDLE_FAR, "tso", tso])?;
        inside(far, "ethtool", &["-K", FAR, "gro", "off"])?;
        for (host, interface, addresses) in [
            (near, NEAR, ["10.99.0.1/24", "fd99::1/64"]),
            (middle, MIDDLE_NEAR, ["10.99.0.254/24", "fd99::254/64"]),
            (middle, MIDDLE_FAR, ["10.97.0.254/24", "fd97::254/64"]),
            (far, FAR, ["10.97.0.2/24", "fd97::2/64"]),
        ] {
            let [v4, v6] = addresses;
            run("ip", &["-n", host, "address", "add", v4, "dev", interface])?;
            run("ip", &["-n", host, "address", "add", v6, "dev", interface, "nodad"])?;
            run("ip", &["-n", host, "link", "set", interface, "up"])?;
        }
        let forward =
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
        inside(middle, "sh", &["-c", forward])?;
        let quick: &[&str] = if receiver == Receiver::EachPacket { &["quickack", "1"] } else { &[] };
        for (v4, v6) in [("10.99.0.254", "fd99::254"), ("10.97.0.254", "fd97::254")] {
            let host = if v4.starts_with("10.99") { near } else { far };
            let quick = if host == far { quick } else { &[] };
            run("ip", &[&["-n", host, "route", "add", "default", "via", v4], quick].concat())?;
            run("ip", &[&["-6", "-n", host, "route", "add", "default", "via", v6], quick].concat())?;
        }
        inside(near, "sh", &["-c", &format!("echo 1 > /sys/class/net/{NEAR}/threaded")])?;
        if processors() > 1 {
            let steer = format!("echo 2 > /sys/class/net/{MIDDLE_NEAR}/queues/rx-0/rps_cpus");
            inside(middle, "sh", &["-c", &steer])?;
        }
        Ok(testbed)
    }

    /// The name of the interface of the near host.
    pub fn interface(&self) -> &'static str {
        NEAR
    }

    /// The near host's IPv4 address.
    pub fn near_address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1))
    }

    /// The far host's IPv4 address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(10, 97, 0, 2), PORT))
    }

    /// The far host's IPv6 address.
    pub fn address_v6(&self) -> SocketAddr {
        SocketAddr::from(([0xfd97, 0, 0, 0, 0, 0, 0, 2], PORT))
    }

    /// Runs `f` on a thread in the near host.
    ///
    /// # Errors
    ///
    /// If the thread cannot enter it.
    pub fn in_near<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| joined(scope.spawn(|| within(&self.near, f))))
    }

    /// Runs `f` on a thread in the far host.
    ///
    /// # Errors
    ///
    /// If the thread cannot enter it.
    pub fn in_far<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| joined(scope.spawn(|| within(&self.far, f))))
    }

    /// The counters of the near host's TCP, since it was made.
    ///
    /// # Errors
    ///
    /// If `/proc` does not have them.
    pub fn counters(&self) -> io::Result<TcpCounters> {
        self.in_near(tcp_counters)?
    }

    /// Gives the near interface a queue of `packets` packets behind a lock, as a network card's ring has; a veth has neither.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Command`] if the kernel has no `pfifo`.
    pub fn set_queue(&self, packets: u32) -> Result<(), TestbedError> {
        let limit = packets.to_string();
        run("tc", &["-n", &self.near, "qdisc", "replace", "dev", NEAR, "root", "pfifo", "limit", &limit])
    }

    /// Sends bytes from the near host to an address of the far one and waits until all have arrived.
    ///
    /// # Errors
    ///
    /// If a connection fails, or stalls for 20 s.
    pub fn transfer(&self, to: SocketAddr, transfer: &Transfer) -> io::Result<Outcome> {
        let listener =
            thread::scope(|scope| joined(scope.spawn(|| within(&self.far, || TcpListener::bind(to))))?)?;
        let arrivals = self.arrivals();
        let before = (self.in_near(tcp_counters)??, runtime(arrivals));
        let begin = Instant::now();
        let (mut outcome, cpu) = thread::scope(|scope| {
            let receivers: Vec<_> = (0..transfer.connections)
                .map(|_| {
                    scope.spawn(|| {
                        pin(1);
                        let (stream, _) = listener.accept()?;
                        receive(stream, transfer)
                    })
                })
                .collect();
            let senders: Vec<_> = (0..transfer.connections)
                .map(|_| scope.spawn(|| within(&self.near, || send(to, transfer))))
                .collect();
            let mut outcome = Outcome::default();
            let mut cpu = Duration::ZERO;
            for sender in senders {
                cpu += joined(sender)??;
            }
            for receiver in receivers {
                let (bytes, wrong) = joined(receiver)?;
                outcome.bytes += bytes;
                outcome.wrong += wrong;
            }
            io::Result::Ok((outcome, cpu))
        })?;
        outcome.time = begin.elapsed();
        let after = (self.in_near(tcp_counters)??, runtime(arrivals));
        outcome.sender_cpu = cpu + after.1.saturating_sub(before.1);
        outcome.tcp = after.0 - before.0;
        Ok(outcome)
    }

    /// Turns segmentation offload of the near host on or off. Without it TCP hands over one packet at a time.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Command`] if the kernel refuses.
    pub fn set_offload(&self, on: bool) -> Result<(), TestbedError> {
        let state = if on { "on" } else { "off" };
        inside(&self.near, "ethtool", &["-K", NEAR, "tso", state, "gso", state])
    }

    /// Limits the link to the far host to a rate in bits a second, with a queue of 50 ms; `None` takes the limit away.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Command`] if the kernel has no token bucket filter (`tbf`).
    pub fn set_rate(&self, rate: Option<u64>) -> Result<(), TestbedError> {
        // A missing discipline cannot be deleted.
        let _ = run("tc", &["-n", &self.middle, "qdisc", "delete", "dev", MIDDLE_FAR, "root"]);
        let Some(rate) = rate else { return Ok(()) };
        let rate = format!("{rate}bit");
        let limit = ["root", "tbf", "rate", &rate, "burst", "64k", "latency", "50ms"];
        run("tc", &[&["-n", self.middle.as_str(), "qdisc", "add", "dev", MIDDLE_FAR], &limit[..]].concat())
    }

    /// Has `send` write to many connections in one thread of the near host, and waits until the bytes of all have arrived. The far host
    /// reads them with one thread and discards them.
    ///
    /// # Errors
    ///
    /// If a connection fails, ends early, or stalls for 20 s.
    pub fn fan_out<T: Send>(
        &self,
        connections: usize,
        bytes_each: u64,
        send: impl FnOnce(&[TcpStream]) -> io::Result<T> + Send,
    ) -> io::Result<(T, Outcome)> {
        let to = self.address();
        let listener =
            thread::scope(|scope| joined(scope.spawn(|| within(&self.far, || TcpListener::bind(to))))?)?;
        let arrivals = self.arrivals();
        let (result, outcome) = thread::scope(|scope| {
            let receiver = scope.spawn(|| discard(&listener, connections, bytes_each));
            let sender = scope.spawn(|| {
                within(&self.near, || {
                    pin(0);
                    let connect = |_| TcpStream::connect(to);
                    let sockets = (0..connections).map(connect).collect::<io::Result<Vec<_>>>()?;
                    let look =
                        || -> io::Result<_> { Ok((tcp_counters()?, runtime(arrivals), own_runtime())) };
                    let (begin, before) = (Instant::now(), look()?);
                    let result = send(&sockets)?;
                    // The end of the last stream is the receiver's word that it has everything.
                    for mut socket in sockets {
                        socket.set_nonblocking(false)?;
                        socket.shutdown(std::net::Shutdown::Write)?;
                        socket.set_read_timeout(Some(STANDSTILL))?;
                        socket.read_to_end(&mut Vec::new())?;
                    }
                    let (time, after) = (begin.elapsed(), look()?);
                    let outcome = Outcome {
                        time,
                        sender_cpu: (after.1 + after.2).saturating_sub(before.1 + before.2),
                        tcp: after.0 - before.0,
                        ..Outcome::default()
                    };
                    io::Result::Ok((result, outcome))
                })
            });
            let (result, mut outcome) = joined(sender)??;
            outcome.bytes =
                receiver.join().unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))?;
            io::Result::Ok((result, outcome))
        })?;
        Ok((result, outcome))
    }

    /// The kernel's thread that handles the near host's arrivals, on processor 0. `None` if there is none: then no processor time is
    /// known for arrivals.
    pub fn arrivals(&self) -> Option<i32> {
        let name = format!("napi/{NEAR}-");
        let found = fs::read_dir("/proc").ok()?.filter_map(|entry| {
            let process = entry.ok()?.file_name().to_str()?.parse::<i32>().ok()?;
            let comm = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            comm.starts_with(&name).then_some(process)
        });
        // If there are several testbeds, the newest is ours.
        let process = found.max()?;
        let mut first = CpuSet::new();
        first.set(0);
        // Elsewhere it costs as much.
        let _ = sched_setaffinity(Pid::from_raw(process), &first);
        Some(process)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for host in [&self.near, &self.middle, &self.far] {
            // A host that was never made cannot be taken down.
            let _ = Command::new("ip").args(["netns", "delete", host]).output();
        }
    }
}

fn veth(one: (&str, &str), other: (&str, &str)) -> Result<(), TestbedError> {
    let queues = ["numrxqueues", "1", "numtxqueues", "1"];
    let first = ["-n", one.0, "link", "add", one.1];
    let second = ["type", "veth", "peer", "name", other.1, "netns", other.0];
    run("ip", &[&first[..], &queues, &second, &queues].concat())
}

fn inside(host: &str, program: &str, arguments: &[&str]) -> Result<(), TestbedError> {
    run("ip", &[&["netns", "exec", host, program], arguments].concat())
}

/// A connection with this congestion control, from the calling thread's network namespace. It is chosen before the connection is made: a
/// socket that begins with BBR, where that is the system's default, stays paced by timers, whatever it is given later.
///
/// # Errors
///
/// If the kernel does not have the congestion control, or the peer cannot be reached.
pub fn connect(to: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_tcp_congestion(&socket, congestion)?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

fn send(to: SocketAddr, transfer: &Transfer) -> io::Result<Duration> {
    pin(0);
    let mut stream = connect(to, &transfer.congestion)?;
    stream.set_write_timeout(Some(STANDSTILL))?;
    let block = pattern();
    let mut left = transfer.bytes;
    while left > 0 {
        let now = left.min(block.len() as u64) as usize;
        stream.write_all(&block[..now])?;
        left -= now as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // The end of the stream is the receiver's word that it has everything.
    stream.set_read_timeout(Some(STANDSTILL))?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(own_runtime())
}

/// Bytes, and wrong ones among them.
fn receive(mut stream: TcpStream, transfer: &Transfer) -> io::Result<(u64, u64)> {
    stream.set_read_timeout(Some(STANDSTILL))?;
    let block = pattern();
    let mut buffer = vec![0; block.len()];
    let (mut bytes, mut wrong) = (0_u64, 0_u64);
    loop {
        let place = (bytes % block.len() as u64) as usize;
        let read = stream.read(&mut buffer[place..])?;
        if read == 0 {
            return Ok((bytes, wrong));
        }
        let range = place..place + read;
        if transfer.check && buffer[range.clone()] != block[range.clone()] {
            wrong += buffer[range.clone()].iter().zip(&block[range]).filter(|(a, b)| a != b).count() as u64;
        }
        bytes += read as u64;
    }
}

/// The pattern that is sent repeatedly. Its length is prime, so that it is at another place in each segment.
fn pattern() -> Vec<u8> {
    (0..262_147_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Takes what comes over all connections and discards it in the kernel; returns how many bytes came. Each connection has to bring
/// `bytes_each`.
fn discard(listener: &TcpListener, connections: usize, bytes_each: u64) -> io::Result<u64> {
    pin(1);
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams = Vec::new();
    for connection in 0..connections {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(connection as u64), epoll::EventFlags::IN)?;
        streams.push(Some((stream, 0_u64)));
    }
    let mut scratch = vec![0; 1 << 20];
    let mut events = Vec::with_capacity(256);
    let (mut bytes, mut open) = (0, connections);
    while open > 0 {
        events.clear();
        let timeout = Timespec { tv_sec: STANDSTILL.as_secs() as i64, tv_nsec: 0 };
        if epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing arrives"));
        }
        for event in &events {
            let slot = &mut streams[event.data.u64() as usize];
            let Some((stream, received)) = slot else { continue };
            match recv(&*stream, &mut scratch[..], RecvFlags::TRUNC) {
                Ok((0, _)) if *received == bytes_each => {
                    *slot = None;
                    open -= 1;
                }
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // With MSG_TRUNC the kernel counts what it discards, and writes nothing to the buffer.
                Ok((_, discarded)) => {
                    *received += discarded as u64;
                    bytes += discarded as u64;
                }
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(bytes)
}

/// Counters of TCP in one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Segments that TCP was given.
    pub segments_in: u64,
    /// Segments that it sent again.
    pub retransmitted: u64,
    /// Segments that it sent, those sent again left out.
    pub segments_out: u64,
    /// Writes that it did not send at once, because earlier segments of the connection had not left the device (automatic corking).
    pub autocorked: u64,
    /// Segments before offload that any interface of the host was given.
    pub handed_over: u64,
}

impl Sub for TcpCounters {
    type Output = Self;

    /// The difference to `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            segments_in: self.segments_in - earlier.segments_in,
            retransmitted: self.retransmitted - earlier.retransmitted,
            segments_out: self.segments_out - earlier.segments_out,
            autocorked: self.autocorked - earlier.autocorked,
            handed_over: self.handed_over - earlier.handed_over,
        }
    }
}

/// The counters of TCP in the calling thread's network namespace.
///
/// # Errors
///
/// If `/proc` does not have them.
pub fn tcp_counters() -> io::Result<TcpCounters> {
    let snmp = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let netstat = fs::read_to_string("/proc/thread-self/net/netstat")?;
    let of = |text: &str, kind: &str, wanted: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(kind));
        let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        let value = pairs.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok());
        value.ok_or_else(|| io::Error::other(format!("/proc/net has no {kind} {wanted}")))
    };
    // A line of an interface: eight numbers about reception, then bytes and packets of transmission.
    let devices = fs::read_to_string("/proc/thread-self/net/dev")?;
    let sent = devices.lines().filter_map(|line| {
        let (_, numbers) = line.split_once(':')?;
        numbers.split_whitespace().nth(9)?.parse::<u64>().ok()
    });
    Ok(TcpCounters {
        segments_in: of(&snmp, "Tcp:", "InSegs")?,
        retransmitted: of(&snmp, "Tcp:", "RetransSegs")?,
        segments_out: of(&snmp, "Tcp:", "OutSegs")?,
        autocorked: of(&netstat, "TcpExt:", "TCPAutoCorking")?,
        handed_over: sent.sum(),
    })
}

/// The processor time of the calling thread.
pub fn own_runtime() -> Duration {
    runtime(Some(gettid().as_raw_nonzero().get()))
}

/// The processor time of a thread of this machine; zero for one that has ended, or for `None`.
pub fn runtime(thread: Option<i32>) -> Duration {
    let text = thread.and_then(|thread| fs::read_to_string(format!("/proc/{thread}/schedstat")).ok());
    let nanoseconds = text.and_then(|text| text.split_whitespace().next()?.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Binds the calling thread to a processor, if there are several.
pub fn pin(processor: usize) {
    if processors() > 1 {
        let mut set = CpuSet::new();
        set.set(processor);
        // On a machine that does not let us, the numbers are noisier.
        let _ = sched_setaffinity(None, &set);
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn within<T>(host: &str, f: impl FnOnce() -> T) -> io::Result<T> {
    let namespace = fs::File::open(format!("/run/netns/{host}"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(f())
}

fn joined<T>(handle: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    handle.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the testbed panicked")))
}

fn run(program: &str, arguments: &[&str]) -> Result<(), TestbedError> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TestbedError::Missing(program.to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // `ip netns exec` says so of what it should run.
    if let Some((_, missing)) = message.split_once("exec of \"") {
        return Err(TestbedError::Missing(missing.split('"').next().unwrap_or_default().to_owned()));
    }
    Err(TestbedError::Command { command: format!("{program} {}", arguments.join(" ")), message })
}

const NEAR: &str = "fwnear0";
const FAR: &str = "fwfar0";
const MIDDLE_NEAR: &str = "fwmid0";
const MIDDLE_FAR: &str = "fwmid1";
const PORT: u16 = 5001;
/// A transfer without progress for this long has failed. Chosen, not measured.
const STANDSTILL: Duration = Duration::from_secs(20);

/// Payload of a full segment over Ethernet, with timestamps.
const FULL_SEGMENT: f64 = 1448.0;
