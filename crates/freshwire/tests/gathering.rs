//! Sinks over datagrams whose path takes packets in pieces: those of many receivers share a system call.

mod until;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freshwire::choice::{self, LinkView, Record};
use freshwire::datagram::{DatagramPath, DatagramSender, Flushed, KnownPath, PacketPieces};
use freshwire::engine::EngineThread;
use freshwire::fanout::{MAX_AT_ONCE, Target};
use freshwire::framing::{Framer, Piece};
use freshwire::{Engine, Fate, Meta, Outcome, RingConfig, Sender, Sink, SinkConfig, SinkId, Timestamp, now};
use until::until;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of a record in a packet.
const BODY: u32 = 997;

/// Cuts records into packets: the record's number, the packet's, and a part of the record.
#[derive(Default)]
struct Cut {
    seq: u64,
    len: u32,
    at: u32,
}

impl Framer for Cut {
    fn begin(&mut self, seq: u64, len: u32) {
        *self = Self { seq, len, at: 0 };
    }

    fn next(&mut self, _max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        prefix.push(self.seq as u8);
        prefix.extend_from_slice(&((self.at / BODY) as u16).to_be_bytes());
        let end = self.len.min(self.at + BODY);
        let payload = self.at..end;
        self.at = end;
        Some(Piece { payload, last: end == self.len, boundary: true })
    }
}

/// The datagrams of a record.
fn packets(seq: u64, record: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| (at as u16).to_be_bytes();
    let parts = record.chunks(BODY as usize).enumerate();
    parts.map(|(at, part)| [&[seq as u8], &number(at)[..], part].concat()).collect()
}

struct Path {
    sender: DatagramSender,
    to: SocketAddr,
    is_gone: Arc<AtomicBool>,
}

impl DatagramPath for Path {
    fn view(&self, _now: Timestamp, committed: u64) -> LinkView {
        LinkView { unsent: committed, ..LinkView::default() }
    }

    fn ready_at(&self, now: Timestamp, _bytes: u64) -> Timestamp {
        now
    }

    fn send(&mut self, _now: Timestamp, _record: Option<&Record>, _packets: &[u8]) {
        panic!("it asks for no copies");
    }

    fn gather(&mut self, _now: Timestamp, record: Option<&Record>, pieces: &mut PacketPieces<'_>) -> bool {
        for place in pieces.places() {
            let mut copy = Vec::new();
            pieces.copy_body(place, &mut copy);
            assert_eq!(copy.len(), pieces.body_bytes(place), "{record:?}");
            pieces.send(place, 0..pieces.head(place).len(), &self.sender, self.to);
        }
        true
    }

    fn flush(&mut self, _now: Timestamp) -> io::Result<Flushed> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::NetworkUnreachable.into()),
            false => Ok(Flushed::default()),
        }
    }

    fn known(&self) -> KnownPath {
        KnownPath::default()
    }
}

struct Fixture {
    engine: EngineThread,
    sender: Sender,
    sinks: Vec<Sink>,
    far: Vec<UdpSocket>,
    are_gone: Vec<Arc<AtomicBool>>,
}

impl Fixture {
    fn new(sinks: usize) -> Result<Self> {
        let engine = Engine::new()?.spawn()?;
        // Blocks whose ends lie within packets.
        let ring = RingConfig { rings: sinks as u32, slots: 64, block_bytes: 4096, blocks: 1024 };
        let sender = Sender::new(&ring, &engine.handle())?;
        let mut fixture = Self { engine, sender, sinks: Vec::new(), far: Vec::new(), are_gone: Vec::new() };
        for _ in 0..sinks {
            let far = UdpSocket::bind("127.0.0.1:0")?;
            far.set_read_timeout(Some(Duration::from_secs(20)))?;
            rustix::net::sockopt::set_socket_recv_buffer_size(&far, 400_000)?;
            let is_gone = Arc::new(AtomicBool::new(false));
            let near = DatagramSender::new(UdpSocket::bind("127.0.0.1:0")?)?;
            let path = Path { sender: near, to: far.local_addr()?, is_gone: Arc::clone(&is_gone) };
            let framer: Box<dyn Framer> = Box::new(Cut::default());
            let config = SinkConfig::new(choice::fifo()).framing(framer);
            fixture.sinks.push(fixture.sender.add_datagram_sink(Box::new(path), config)?);
            fixture.far.push(far);
            fixture.are_gone.push(is_gone);
        }
        Ok(fixture)
    }

    fn ids(&self) -> Vec<SinkId> {
        self.sinks.iter().map(Sink::id).collect()
    }

    /// Sends a record to all, past the rings where that goes, and returns to how many it went so.
    fn send(&mut self, seq: u64, record: &[u8]) -> Result<usize> {
        let meta = Meta { seq, generated: now(), deadline: Timestamp::MAX, ..Meta::default() };
        let mut targets: Vec<_> = self.ids().into_iter().map(|id| Target::new(id, meta)).collect();
        let stored = self.sender.producer().store(record)?;
        self.sender.send_at_once(&stored, &mut targets)?;
        let mut queued = Vec::new();
        for target in targets.iter().filter(|target| !target.is_sent()) {
            // Fails for a sink that has ended.
            if self.sender.producer().push_stored(target.sink.ring(), &stored, &target.meta).is_ok() {
                queued.push(target.sink);
            }
        }
        self.sender.serve(queued);
        Ok(targets.iter().filter(|target| target.is_sent()).count())
    }
}

fn receive(far: &UdpSocket) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 2000];
    loop {
        match far.recv(&mut bytes) {
            // The end of the last fixture's engine interrupts a thread that wrote with its io_uring.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
            Ok(len) => {
                bytes.truncate(len);
                return Ok(bytes);
            }
        }
    }
}

/// Every receiver gets each record's packets whole and in order, past the ring and over it, of any size and with any number of receivers,
/// with io_uring and without.
#[test]
fn each_receiver_gets_every_packet_in_order() -> Result<()> {
    for (sinks, io_uring) in [(1, true), (3, true), (5, true), (5, false), (70, true), (70, false)] {
        let mut fixture = Fixture::new(sinks)?;
        fixture.engine.handle().set_io_uring(io_uring);
        let sizes = [1, 997, 998, 5000, MAX_AT_ONCE as usize, 100_000];
        let (mut at_once, mut bytes) = (0, 0);
        for (seq, &size) in (0..).zip(sizes.iter().cycle().take(18)) {
            let record: Vec<u8> = (0..size).map(|at| (at / 3 + size) as u8).collect();
            at_once += fixture.send(seq, &record)?;
            let packets = packets(seq, &record);
            bytes += packets.iter().map(Vec::len).sum::<usize>() as u64;
            for far in &fixture.far {
                for packet in &packets {
                    let arrived = receive(far)?;
                    assert!(arrived == *packet, "{sinks} sinks, io_uring: {io_uring}, {size} bytes");
                }
            }
        }
        assert!(at_once >= sinks, "hardly a record went past the rings: {at_once}");
        for sink in &fixture.sinks {
            until("all is counted", || sink.stats().bytes == bytes && sink.stats().finished == 18);
            // A call takes 64 packets at most.
            let writes = sink.stats().writes;
            assert!((18..=18 + 3 * 3).contains(&writes), "{writes} calls for 18 records");
        }
        for id in fixture.ids() {
            let fates: Vec<Fate> = fixture.sender.fates(id)?.collect();
            assert!(!fates.is_empty(), "a record of 100 kB has its fate");
            assert!(fates.iter().all(|fate| fate.outcome == Outcome::Sent), "{fates:?}");
        }
    }
    Ok(())
}

#[test]
fn a_receiver_that_is_gone_ends_alone() -> Result<()> {
    for io_uring in [true, false] {
        let mut fixture = Fixture::new(8)?;
        fixture.engine.handle().set_io_uring(io_uring);
        fixture.are_gone[3].store(true, Ordering::Relaxed);
        for seq in 0..20 {
            let size = if seq % 2 == 0 { 3000 } else { 90_000 };
            let record = vec![seq as u8; size];
            fixture.send(seq, &record)?;
            for far in fixture.far.iter().enumerate().filter(|(place, _)| *place != 3).map(|(_, far)| far) {
                for packet in packets(seq, &record) {
                    assert_eq!(receive(far)?, packet, "io_uring: {io_uring}");
                }
            }
        }
        until("it ends", || fixture.sinks[3].ended().is_some());
        assert_eq!(fixture.sinks.iter().filter(|sink| sink.ended().is_some()).count(), 1);
    }
    Ok(())
}
