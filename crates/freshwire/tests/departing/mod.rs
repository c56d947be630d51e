//! Sinks that note departures, over each carrier.
#![allow(clippy::unwrap_used, dead_code, reason = "a test; not every test needs all of it")]

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use freshwire::a1::{self, ConnectConfig, Node, NodeConfig};
use freshwire::choice::{LinkView, Record};
use freshwire::datagram::{
    DatagramPath, DepartureNote, Flushed, KnownPath, departures, note_departures, send_noted,
};
use freshwire::{Engine, Fate, Meta, RingConfig, Sender, Sink, SinkConfig, Timestamp, choice, now};

#[path = "../until/mod.rs"]
mod until;

pub(crate) use until::until;

/// The clocks of a kernel's note and of a commit are read at different moments, between which the processor may be taken away.
pub(crate) const SLACK: Duration = Duration::from_millis(20);

/// Bytes of a datagram of the path.
pub(crate) const DATAGRAM: usize = 1200;

/// Whether this kernel notes departures of datagrams. One that does not has to say so.
pub(crate) fn notes_datagrams() -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    match note_departures(&socket) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("6.13"), "{error}");
            println!("skipped: {error}");
            false
        }
    }
}

/// Records as datagrams on a connected socket, at once.
pub(crate) struct UdpPath {
    socket: UdpSocket,
    gathered: Vec<(Vec<u8>, Option<u32>)>,
}

impl UdpPath {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
        socket.connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 8 << 20).unwrap();
        note_departures(&socket).unwrap();
        Self { socket, gathered: Vec::new() }
    }
}

impl DatagramPath for UdpPath {
    fn view(&self, _now: Timestamp, committed: u64) -> LinkView {
        LinkView { unsent: committed, ..LinkView::default() }
    }

    fn ready_at(&self, now: Timestamp, _bytes: u64) -> Timestamp {
        now
    }

    fn send(&mut self, _now: Timestamp, _record: Option<&Record>, packets: &[u8]) {
        self.gathered.extend(packets.chunks(DATAGRAM).map(|packet| (packet.to_vec(), None)));
    }

    fn notes_departures(&self) -> bool {
        true
    }

    fn send_last(&mut self, now: Timestamp, record: &Record, packets: &[u8], id: u32) {
        self.send(now, Some(record), packets);
        self.gathered.last_mut().unwrap().1 = Some(id);
    }

    fn departures(&mut self, out: &mut Vec<DepartureNote>) -> io::Result<()> {
        departures(&self.socket, out)
    }

    fn flush(&mut self, _now: Timestamp) -> io::Result<Flushed> {
        let mut flushed = Flushed::default();
        for (packet, id) in self.gathered.drain(..) {
            // Without room the packet is lost, as on the way.
            let _ = match id {
                Some(id) => send_noted(&self.socket, None, &packet, id),
                None => self.socket.send(&packet).map(drop),
            };
            flushed.calls += 1;
            flushed.bytes += packet.len() as u64;
        }
        Ok(flushed)
    }

    fn known(&self) -> KnownPath {
        KnownPath::default()
    }
}

const RING: RingConfig = RingConfig { rings: 1, slots: 1024, block_bytes: 64 << 10, blocks: 1024 };

/// Pushes a record of each size, and waits for their fates, in the order of pushing.
pub(crate) fn push(sender: &mut Sender, sink: &Sink, sizes: &[usize], mut serve: impl FnMut()) -> Vec<Fate> {
    let (mut all, mut next) = (BTreeMap::new(), 0);
    let large = vec![7; sizes.iter().copied().max().unwrap_or(0)];
    until("every record has its fate", || {
        while let Some(size) = sizes.get(next) {
            let meta = Meta { seq: next as u64, generated: now(), ..Meta::default() };
            if sender.push(sink.id(), &large[..*size], &meta).is_err() {
                break;
            }
            next += 1;
        }
        serve();
        all.extend(sender.fates(sink.id()).unwrap().map(|fate| (fate.seq, fate)));
        all.len() == sizes.len()
    });
    all.into_values().collect()
}

/// The fates of records of these sizes over TCP.
pub(crate) fn over_tcp(config: SinkConfig, sizes: &[usize], address: &str) -> Vec<Fate> {
    let listener = TcpListener::bind(address).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut peer.by_ref(), &mut std::io::sink()));
    let engine = Engine::new().unwrap().spawn().unwrap();
    let mut sender = Sender::new(&RING, &engine.handle()).unwrap();
    let sink = sender.add_sink(stream, config).unwrap();
    let fates = push(&mut sender, &sink, sizes, || {});
    drop(sink);
    drop(sender);
    reading.join().unwrap().unwrap();
    fates
}

/// The same over datagrams, which nobody reads.
pub(crate) fn over_datagrams(sizes: &[usize], address: &str) -> Vec<Fate> {
    let receiver = UdpSocket::bind(address).unwrap();
    let path = UdpPath::to(receiver.local_addr().unwrap());
    let engine = Engine::new().unwrap().spawn().unwrap();
    let mut sender = Sender::new(&RING, &engine.handle()).unwrap();
    let config = SinkConfig::new(choice::fifo()).departures(true);
    let sink = sender.add_datagram_sink(Box::new(path), config).unwrap();
    push(&mut sender, &sink, sizes, || {})
}

/// The same over A1, from a node with this configuration.
pub(crate) fn over_a1(config: NodeConfig, sizes: &[usize], address: &str) -> Vec<Fate> {
    let bind = |config| Node::bind(address.parse().unwrap(), config).unwrap();
    let (near, far) = (bind(config), bind(NodeConfig::new().unwrap()));
    let to = far.local_addr().unwrap();
    let sending = near.connect(to, &far.public_key(), &ConnectConfig::default()).unwrap();
    let receiving = far.accept(Duration::from_secs(20)).unwrap().unwrap();
    let mut sender = Sender::without_engine(&RING).unwrap();
    let config = a1::SinkConfig::new(choice::fifo()).departures(true);
    let sink = sender.add_a1_sink(&sending, config).unwrap();
    push(&mut sender, &sink, sizes, || {
        while receiving.recv(Duration::ZERO).is_ok_and(|message| message.is_some()) {}
    })
}
