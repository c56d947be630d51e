//! Over TCP where UDP does not pass: the same connection, the same records, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freshwire::a1::{
    ATTEMPT_DELAYS, BindError, ConnectConfig, ConnectError, Connection, DEFAULT_ATTEMPT_DELAY,
    HandshakeError, Node, NodeConfig, SinkConfig,
};
use freshwire::choice;
use freshwire::sink::{CarrierInUse, CloseMode};
use freshwire::{Ended, Meta, Outcome, RingConfig, Sender, Sink, Timestamp, now};

use super::{PATIENCE, bind, meta, until};

/// Both protocols of one port to another: a firewall on the way that drops UDP, or a host that refuses it.
struct Firewall {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    drops_udp: AtomicBool,
    is_over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    /// The first bytes over TCP.
    seen: Mutex<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Udp {
    Passes,
    Dropped,
    /// Nobody has the port, so that the host answers with ICMP.
    Refused,
}

impl Firewall {
    fn before(server: SocketAddr, udp: Udp) -> Self {
        let shared = Arc::new(Shared::default());
        shared.drops_udp.store(udp != Udp::Passes, Ordering::Relaxed);
        let (listener, inside) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(inside) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (listener, inside);
            }
        };
        let address = listener.local_addr().unwrap();
        let mut threads = Vec::new();
        if udp != Udp::Refused {
            let works = Arc::clone(&shared);
            threads.push(std::thread::spawn(move || works.pass_datagrams(&inside, server)));
        }
        let works = Arc::clone(&shared);
        listener.set_nonblocking(true).unwrap();
        threads.push(std::thread::spawn(move || works.pass_streams(&listener, server)));
        Self { address, shared, threads }
    }

    fn drop_udp(&self, drops: bool) {
        self.shared.drops_udp.store(drops, Ordering::Relaxed);
    }

    /// Breaks every TCP connection, as a box on the way does that has restarted.
    fn reset_streams(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.reset_streams();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// A socket towards the server for each address inside.
    fn pass_datagrams(&self, inside: &UdpSocket, server: SocketAddr) {
        let mut outside: Vec<(SocketAddr, UdpSocket)> = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        inside.set_nonblocking(true).unwrap();
        while !self.is_over() {
            let passes = !self.drops_udp.load(Ordering::Relaxed);
            let mut is_idle = true;
            while let Ok((len, from)) = inside.recv_from(&mut buffer) {
                is_idle = false;
                let place = outside.iter().position(|(known, _)| *known == from).unwrap_or_else(|| {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.set_nonblocking(true).unwrap();
                    outside.push((from, socket));
                    outside.len() - 1
                });
                _ = passes && outside[place].1.send_to(&buffer[..len], server).is_ok();
            }
            for (to, socket) in &outside {
                while let Ok((len, _)) = socket.recv_from(&mut buffer) {
                    is_idle = false;
                    _ = passes && inside.send_to(&buffer[..len], to).is_ok();
                }
            }
            if is_idle {
                // Pause: until the next look.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn pass_streams(self: &Arc<Self>, listener: &TcpListener, server: SocketAddr) {
        while !self.is_over() {
            let Ok((near, _)) = listener.accept() else {
                // Pause: until the next look.
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let Ok(far) = TcpStream::connect(server) else { continue };
            near.set_nonblocking(false).unwrap();
            for (from, to) in [(&near, &far), (&far, &near)] {
                to.set_nodelay(true).unwrap();
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let shared = Arc::clone(self);
                std::thread::spawn(move || shared.pass(from, to));
            }
            self.streams.lock().unwrap().extend([near, far]);
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            let mut seen = self.seen.lock().unwrap();
            let left = SEEN.saturating_sub(seen.len()).min(len);
            seen.extend_from_slice(&buffer[..left]);
            drop(seen);
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// Bytes over TCP that a firewall remembers.
const SEEN: usize = 200_000;

/// Two nodes with a firewall between them.
struct Ends {
    near: Node,
    far: Node,
    firewall: Firewall,
}

fn ends(udp: Udp) -> Ends {
    ends_with(udp, DEFAULT_ATTEMPT_DELAY)
}

fn ends_with(udp: Udp, delay: Duration) -> Ends {
    let config = || NodeConfig::new().unwrap().tcp_fallback(true).attempt_delay(delay);
    let (near, far) = (bind(config()), bind(config()));
    let firewall = Firewall::before(far.local_addr().unwrap(), udp);
    Ends { near, far, firewall }
}

impl Ends {
    /// A connection, at the end that made it and at the other one.
    fn connect(&self) -> [Connection; 2] {
        let config = ConnectConfig::default().timeout(PATIENCE);
        let near = self.near.connect(self.firewall.address, &self.far.public_key(), &config).unwrap();
        let far = self.far.accept(PATIENCE).unwrap().unwrap();
        [near, far]
    }
}

/// Records of one size from a connection, and what became of them.
struct Stream {
    sender: Sender,
    sink: Sink,
    len: usize,
    /// Numbers of records that were sent, and their fates.
    next: u64,
    fates: BTreeMap<u64, Outcome>,
}

impl Stream {
    fn over(connection: &Connection, policy: impl choice::Choice + 'static, len: usize) -> Self {
        let ring = RingConfig { rings: 1, slots: 1024, block_bytes: 4096, blocks: 4096 };
        let mut sender = Sender::without_engine(&ring).unwrap();
        let sink = sender.add_a1_sink(connection, SinkConfig::new(policy)).unwrap();
        Self { sender, sink, len, next: 0, fates: BTreeMap::new() }
    }

    /// Sends this number of records, which keep their value for `lifetime`, and waits for room.
    fn push(&mut self, count: u64, lifetime: Option<Duration>) {
        for seq in self.next..self.next + count {
            let deadline = lifetime.map_or(Timestamp::MAX, |lifetime| now() + lifetime);
            let meta = Meta { deadline, ..meta(seq) };
            until("there is room", || {
                self.take_fates();
                self.sender.has_room(self.sink.id(), self.len, &meta).unwrap()
            });
            self.sender.push(self.sink.id(), &payload(seq, self.len), &meta).unwrap();
        }
        self.next += count;
    }

    fn take_fates(&mut self) {
        while let Some(fate) = self.sender.poll_fate(self.sink.id()).unwrap() {
            let earlier = self.fates.insert(fate.seq, fate.outcome);
            assert!(earlier.is_none(), "record {} has a second fate", fate.seq);
        }
    }

    /// The fates of all records, while `receive` takes what comes.
    fn finish(mut self, mut receive: impl FnMut()) -> BTreeMap<u64, Outcome> {
        until("every record has a fate", || {
            receive();
            self.take_fates();
            self.fates.len() as u64 == self.next
        });
        assert_eq!(self.sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
        self.fates
    }

    /// All have arrived.
    fn finish_acked(self) {
        let fates = self.finish(|| {});
        let other = fates.iter().find(|(_, outcome)| **outcome != Outcome::Acked);
        assert_eq!(other, None);
    }
}

/// Arrivals over a connection: each record once, and whole.
#[derive(Default)]
struct Arrivals(BTreeSet<u64>);

impl Arrivals {
    fn take(&mut self, connection: &Connection, len: usize) {
        while let Ok(Some(message)) = connection.recv(Duration::from_millis(10)) {
            assert!(message.data == payload(message.seq, len), "record {} is another one", message.seq);
            assert!(self.0.insert(message.seq), "record {} came twice", message.seq);
        }
    }

    fn wait(&mut self, connection: &Connection, len: usize, count: u64) {
        until("all records have come", || {
            self.take(connection, len);
            self.0.len() as u64 == count
        });
    }
}

fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seq as usize * 31 + at * 7) as u8).collect()
}

/// Sends records, and receives them. Both ends agree on the carrier.
fn exchange([near, far]: [&Connection; 2], stream: &mut Stream, came: &mut Arrivals, count: u64) {
    let (len, expected) = (stream.len, stream.next + count);
    std::thread::scope(|scope| {
        scope.spawn(|| came.wait(far, len, expected));
        stream.push(count, None);
    });
    let is_over_tcp = near.is_over_tcp();
    assert_eq!(far.is_over_tcp(), is_over_tcp);
    let carrier = if is_over_tcp { CarrierInUse::A1OverTcp } else { CarrierInUse::A1 };
    assert_eq!(stream.sink.stats().carrier, carrier);
}

#[test]
fn records_of_any_size_go_over_tcp_where_udp_does_not_pass() {
    for udp in [Udp::Dropped, Udp::Refused] {
        for (len, count) in [(1, 2000), (100, 2000), (1446, 500), (10_000, 200), (1 << 20, 8)] {
            let ends = ends(udp);
            let [near, far] = ends.connect();
            assert!(near.is_over_tcp(), "{udp:?}, {len} bytes");
            let mut stream = Stream::over(&near, choice::fifo(), len);
            exchange([&near, &far], &mut stream, &mut Arrivals::default(), count);
            stream.finish_acked();
        }
    }
}

#[test]
fn records_go_over_udp_where_it_passes() {
    let ends = ends_with(Udp::Passes, *ATTEMPT_DELAYS.end());
    let [near, far] = ends.connect();
    assert!(!near.is_over_tcp() && !far.is_over_tcp());
    let mut stream = Stream::over(&near, choice::fifo(), 10_000);
    exchange([&near, &far], &mut stream, &mut Arrivals::default(), 100);
    stream.finish_acked();
}

/// From either end, since only the one that has connected can make the TCP connection.
#[test]
fn a_path_that_loses_udp_later_goes_on_over_tcp_and_back() {
    for (is_back, len) in [(false, 1), (true, 1000), (false, 100_000)] {
        let ends = ends(Udp::Passes);
        let [near, far] = ends.connect();
        let (from, to) = if is_back { (&far, &near) } else { (&near, &far) };
        let (mut stream, mut came) = (Stream::over(from, choice::fifo(), len), Arrivals::default());
        exchange([from, to], &mut stream, &mut came, 100);
        assert!(!from.is_over_tcp());
        ends.firewall.drop_udp(true);
        exchange([from, to], &mut stream, &mut came, 300);
        until("it goes over TCP", || from.is_over_tcp() && to.is_over_tcp());
        exchange([from, to], &mut stream, &mut came, 300);
        if len == 1 {
            ends.firewall.drop_udp(false);
            until("it goes over UDP again", || !from.is_over_tcp() && !to.is_over_tcp());
            exchange([from, to], &mut stream, &mut came, 300);
        }
        stream.finish_acked();
    }
}

#[test]
fn a_broken_tcp_connection_is_made_again() {
    let ends = ends(Udp::Dropped);
    let [near, far] = ends.connect();
    let (mut stream, mut came) = (Stream::over(&near, choice::fifo(), 20_000), Arrivals::default());
    for _ in 0..3 {
        exchange([&near, &far], &mut stream, &mut came, 50);
        ends.firewall.reset_streams();
        exchange([&near, &far], &mut stream, &mut came, 50);
    }
    stream.finish_acked();
}

/// Records that are stale when TCP carries the rest are dropped, and reported so.
#[test]
fn each_record_has_one_fate_when_the_path_changes() {
    let ends = ends(Udp::Passes);
    let [near, far] = ends.connect();
    let mut stream = Stream::over(&near, choice::deadline(Duration::ZERO), 1000);
    let mut came = Arrivals::default();
    stream.push(50, Some(PATIENCE));
    came.wait(&far, 1000, 50);
    ends.firewall.drop_udp(true);
    for _ in 0..200 {
        stream.push(1, Some(Duration::from_millis(50)));
        // Pause: a source at its pace.
        std::thread::sleep(Duration::from_millis(5));
    }
    until("it goes over TCP", || near.is_over_tcp());
    stream.push(50, Some(PATIENCE));
    let fates = stream.finish(|| came.take(&far, 1000));
    let acked = fates.iter().filter(|(_, outcome)| **outcome == Outcome::Acked).map(|(seq, _)| *seq);
    let acked: BTreeSet<u64> = acked.collect();
    assert!(acked.is_subset(&came.0), "a record is acknowledged and has not come");
    assert!((100..300).contains(&acked.len()), "{} of 300 have come", acked.len());
}

#[test]
fn both_ends_have_to_permit_tcp() {
    let config = |permits| bind(NodeConfig::new().unwrap().tcp_fallback(permits));
    for permits in [[true, false], [false, true]] {
        let [near, far] = permits.map(config);
        let firewall = Firewall::before(far.local_addr().unwrap(), Udp::Dropped);
        let config = ConnectConfig::default().timeout(Duration::from_millis(500));
        let error = near.connect(firewall.address, &far.public_key(), &config).err();
        assert_eq!(error, Some(ConnectError::Failed(HandshakeError::NoAnswer)), "{permits:?}");
    }
}

#[test]
fn a_port_that_tcp_has_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = NodeConfig::new().unwrap().tcp_fallback(true);
    let error = Node::bind(taken.local_addr().unwrap(), config).err();
    assert!(
        matches!(&error, Some(BindError::Socket(error)) if error.kind() == ErrorKind::AddrInUse),
        "{error:?}"
    );
    let config = NodeConfig::new().unwrap().tcp_fallback(true).attempt_delay(Duration::from_secs(3));
    assert!(matches!(Node::bind("127.0.0.1:0".parse().unwrap(), config), Err(BindError::AttemptDelay(_))));
}

/// Dropping UDP does not lead to a weaker connection: TCP carries the same packets.
#[test]
fn over_tcp_the_keys_protect_as_over_udp() {
    let ends = ends(Udp::Dropped);
    let stranger = NodeConfig::new().unwrap().endpoint.key.public_key();
    let config = ConnectConfig::default().timeout(Duration::from_secs(2));
    let error = ends.near.connect(ends.firewall.address, &stranger, &config).err();
    assert_eq!(error, Some(ConnectError::Failed(HandshakeError::NoResponse)));
    let [near, far] = ends.connect();
    assert_eq!(far.peer_key(), Some(ends.near.public_key()));
    let mut stream = Stream::over(&near, choice::fifo(), 5000);
    exchange([&near, &far], &mut stream, &mut Arrivals::default(), 10);
    let seen = ends.firewall.shared.seen.lock().unwrap();
    assert!(seen.len() > 50_000);
    for seq in 0..10 {
        let plain = &payload(seq, 5000)[..16];
        assert!(!seen.windows(16).any(|bytes| bytes == plain), "record {seq} is readable");
    }
}

/// Connections to the TCP port that are not A1's are bounded, and keep nobody out.
#[test]
fn strangers_at_the_tcp_port_make_way() {
    let mut config = NodeConfig::new().unwrap().tcp_fallback(true);
    config.endpoint.limits.half_open_per_address = 4;
    let far = bind(config);
    let address = far.local_addr().unwrap();
    let mut strangers: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let is_closed = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    };
    until("the first are closed", || strangers[..16].iter_mut().all(is_closed));
    // The longest packet, which none of a handshake is: closed without waiting for the rest.
    let last = strangers.last_mut().unwrap();
    last.write_all(&[0xff; 4]).unwrap();
    until("one that speaks something else is closed", || is_closed(last));
    let firewall = Firewall::before(address, Udp::Dropped);
    let near = bind(NodeConfig::new().unwrap().tcp_fallback(true));
    let config = ConnectConfig::default().timeout(PATIENCE);
    assert!(near.connect(firewall.address, &far.public_key(), &config).unwrap().is_over_tcp());
}
