//! A1: a message for each block, or a stream of bytes with a write for each.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use freshwire::a1::{
    BufferError, BufferLimits, BufferSink, ByteStream, Closed, ConnectConfig, Connection, ConnectionConfig,
    Node, NodeConfig, Protection, Qos, SinkConfig,
};
use freshwire::sink::CloseMode;
use freshwire::{Ended, Meta, PushError, RingConfig, Sender, Sink, choice};
use freshwire_io::now;
use freshwire_record::Timestamp;

use super::bulk::{Bulk, SILENCE, half};
use super::place::Place;

/// The options of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) protection: Protection,
    pub(super) retransmission: bool,
    /// Datagrams are no larger than an Ethernet's, on loopback too; otherwise as large as the interface carries, as TCP's
    /// segments are.
    pub(super) small: bool,
    /// Messages are copied into a ring, where a second process could change them; otherwise they stay in the application's buffers.
    pub(super) ring: bool,
}

/// The defaults of A1.
pub(super) const A1: Variant =
    Variant { protection: Protection::Aead, retransmission: true, small: false, ring: false };

/// The largest UDP payload over IPv4 on an Ethernet.
const ETHERNET: u16 = 1472;

/// Bytes of the ring, and of what may be outstanding.
const WINDOW: usize = 4 << 20;

/// The most and the fewest messages that those are.
const MESSAGES: (usize, usize) = (64, 16 << 10);

/// How long the producer rests when its ring is full: a part of the time that a full ring lasts.
const REST: Duration = Duration::from_micros(200);

/// How long the rest may take. Tests of other benches may have all processors.
const CLOSE: Duration = Duration::from_secs(60);

/// Both ends. A node ends with its last connection's owner.
struct Ends {
    near: Connection,
    far: Connection,
    _nodes: (Node, Node),
}

fn messages(block: usize) -> usize {
    (WINDOW / block).clamp(MESSAGES.0, MESSAGES.1)
}

fn connect(place: &Place, outstanding: usize, variant: Variant, in_order: bool) -> anyhow::Result<Ends> {
    let retransmission = variant.retransmission;
    let qos = Qos { outstanding: outstanding as u32, retransmission, checksum: false, ..Qos::default() };
    let mut transport = ConnectionConfig::default().protection(variant.protection).maximum(qos);
    transport.max_datagram = variant.small.then_some(ETHERNET);
    transport.in_order = in_order;
    let bind = |ip: IpAddr| -> anyhow::Result<Node> {
        let config = NodeConfig::new().context("cannot make a key")?;
        let config = config.connection(transport.clone());
        Ok(Node::bind((ip, 0).into(), config)?)
    };
    let (near, far) = (place.near(bind)?, place.far(bind)?);
    let connection = near
        .connect(far.local_addr()?, &far.public_key(), &ConnectConfig::default())
        .context("cannot connect over A1")?;
    let accepted = far.accept(CLOSE)?.context("the connection was not accepted")?;
    Ok(Ends { near: connection, far: accepted, _nodes: (near, far) })
}

/// How messages are handed over.
enum Feed {
    Ring(Box<Sender>, Sink),
    Buffers(BufferSink),
}

impl Feed {
    fn new(connection: &Connection, variant: Variant, block: usize) -> anyhow::Result<Self> {
        let (config, records) = (SinkConfig::new(choice::fifo()), messages(block));
        if !variant.ring {
            let limits = BufferLimits { records, bytes: records * block };
            return Ok(Self::Buffers(connection.add_buffer_sink(config, limits)?));
        }
        let slots = records as u32;
        let ring = RingConfig { rings: 1, slots, block_bytes: block as u32, blocks: slots };
        let mut sender = Sender::without_engine(&ring)?;
        let sink = sender.add_a1_sink(connection, config)?;
        Ok(Self::Ring(Box::new(sender), sink))
    }

    /// False: there is no room.
    fn push(&mut self, payload: &Bytes, (generated, seq): (Timestamp, u64)) -> anyhow::Result<bool> {
        let meta = Meta { seq, generated, ..Meta::default() };
        match self {
            Self::Ring(sender, sink) => match sender.push(sink.id(), payload, &meta) {
                Ok(_) => Ok(true),
                Err(PushError::Full | PushError::OutOfBlocks) => Ok(false),
                Err(error) => Err(error.into()),
            },
            Self::Buffers(sender) => match sender.push_owned(payload.clone(), &meta) {
                Ok(_) => Ok(true),
                Err(BufferError::Full) => Ok(false),
                Err(error) => Err(error.into()),
            },
        }
    }

    fn wait_room(&self, block: usize) -> anyhow::Result<()> {
        match self {
            Self::Ring(..) => std::thread::sleep(REST),
            Self::Buffers(sender) => {
                anyhow::ensure!(sender.wait_room(block, CLOSE)?, "nothing was taken for {CLOSE:?}")
            }
        }
        Ok(())
    }

    fn take_fates(&mut self) {
        match self {
            Self::Ring(sender, sink) => while let Ok(Some(_)) = sender.poll_fate(sink.id()) {},
            Self::Buffers(sender) => while sender.poll_fate().is_some() {},
        }
    }

    fn close(self) -> Ended {
        match self {
            Self::Ring(_sender, sink) => sink.close(CloseMode::Drain, CLOSE),
            Self::Buffers(sender) => sender.close(CloseMode::Drain, CLOSE),
        }
    }
}

/// Messages of one block each for `time`.
pub(super) fn bulk(place: &Place, variant: Variant, block: usize, time: Duration) -> anyhow::Result<Bulk> {
    let ends = connect(place, messages(block), variant, false)?;
    let mut feed = Feed::new(&ends.near, variant, block)?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| read_all(&ends.far));
        let payload = Bytes::from(vec![7; block]);
        let begin = now();
        let (mut at, mut seq) = (begin, 0);
        while at.saturating_since(begin) < time {
            if feed.push(&payload, (at, seq))? {
                seq += 1;
            } else {
                feed.wait_room(block)?;
            }
            at = now();
        }
        let ended = feed.close();
        anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
        let (bytes, end) = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        Ok(Bulk { sent: seq * block as u64, bytes, begin, end })
    })
}

fn read_all(connection: &Connection) -> anyhow::Result<(u64, Timestamp)> {
    let (mut bytes, mut end) = (0, now());
    loop {
        match connection.recv(SILENCE) {
            Ok(Some(message)) => {
                bytes += message.data.len() as u64;
                end = now();
            }
            Ok(None) => {}
            Err(Closed::Peer { .. }) => return Ok((bytes, end)),
            Err(closed) => return Err(closed).context("the connection ended"),
        }
    }
}

/// Half of each round trip of a message.
pub(super) fn pings(place: &Place, variant: Variant, block: usize, count: u32) -> anyhow::Result<Vec<f64>> {
    let ends = connect(place, messages(block), variant, false)?;
    let mut pings = Feed::new(&ends.near, variant, block)?;
    let mut answers = Feed::new(&ends.far, variant, block)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            for seq in 0..count {
                let message = ends.far.recv(CLOSE)?.context("a ping got lost")?;
                answers.take_fates();
                answers.push(&message.data, (now(), u64::from(seq)))?;
            }
            anyhow::Ok(())
        });
        let payload = Bytes::from(vec![7; block]);
        let halves = (0..count).map(|seq| {
            let begin = now();
            pings.push(&payload, (begin, u64::from(seq)))?;
            ends.near.recv(CLOSE)?.context("an answer got lost")?;
            let half = half(begin);
            pings.take_fates();
            Ok(half)
        });
        let halves = halves.collect::<anyhow::Result<Vec<f64>>>();
        echo.join().map_err(|_| anyhow::anyhow!("the other end panicked"))??;
        halves
    })
}

/// Streams of bytes in both directions.
fn streams(place: &Place) -> anyhow::Result<(ByteStream, ByteStream, (Node, Node))> {
    let Ends { near, far, _nodes } = connect(place, MESSAGES.0, A1, true)?;
    Ok((ByteStream::new(near)?, ByteStream::new(far)?, _nodes))
}

/// A stream with writes of one block each for `time`.
pub(super) fn stream(place: &Place, block: usize, time: Duration) -> anyhow::Result<Bulk> {
    let (near, far, _nodes) = streams(place)?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut reader, _writer) = far.split();
            let mut bytes = 0;
            loop {
                let more = reader.fill_buf()?.len();
                if more == 0 {
                    return anyhow::Ok((bytes, now()));
                }
                reader.consume(more);
                bytes += more as u64;
            }
        });
        let (_reader, mut writer) = near.split();
        let payload = vec![7; block];
        let begin = now();
        let mut sent = 0;
        while now().saturating_since(begin) < time {
            writer.write_all(&payload)?;
            sent += block as u64;
        }
        writer.finish(CLOSE)?;
        let (bytes, end) = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        Ok(Bulk { sent, bytes, begin, end })
    })
}

/// Half of each round trip of a block on a stream.
pub(super) fn stream_pings(place: &Place, block: usize, count: u32) -> anyhow::Result<Vec<f64>> {
    let (mut near, mut far, _nodes) = streams(place)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let mut buffer = vec![0; block];
            for _ in 0..count {
                far.read_exact(&mut buffer)?;
                far.write_all(&buffer)?;
            }
            // The last answer is on its way until the other end has taken it.
            let (mut reader, writer) = far.split();
            writer.finish(CLOSE)?;
            anyhow::ensure!(reader.fill_buf()?.is_empty(), "more came than was asked");
            Ok(())
        });
        let (payload, mut answer) = (vec![7; block], vec![0; block]);
        let mut halves = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let begin = now();
            near.write_all(&payload)?;
            near.read_exact(&mut answer)?;
            halves.push(half(begin));
        }
        near.split().1.finish(CLOSE)?;
        echo.join().map_err(|_| anyhow::anyhow!("the other end panicked"))??;
        Ok(halves)
    })
}
