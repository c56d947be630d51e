//! A reliable stream of bytes on top of messages (Mapp 1997, "Block vs Byte Processing"; `spec/a1.md`, A1-STR).

use std::io::{self, BufRead, Read, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use freshwire_a1::{Closed, Message};
use freshwire_io::now;
use freshwire_record::{Rate, Timestamp};
use freshwire_ring::{Config, Meta, Outcome};

use super::config::SinkConfig;
use super::connection::Connection;
use super::events::Events;
use crate::choice;
use crate::error::SenderError;
use crate::sender::Sender;
use crate::sink::handle::Sink;

/// Largest message of a [`ByteStream`], in bytes.
pub const MAX_STREAM_BLOCK: u32 = 64 << 10;

/// Bound on a message of a [`ByteStream`], as transmission time: a message is delivered only when it is
/// complete.
pub const STREAM_BLOCK_TIME: Duration = Duration::from_millis(10);

/// The same as long as the path's rate is not known.
const FIRST_BLOCK: u64 = 16 << 10;

/// Messages that are kept until they are acknowledged, at most: 64 MiB of them.
const MAX_BLOCKS: u32 = 1024;

/// No message is worth less than a packet of this size.
const LEAST_BLOCK: u32 = 1200;

/// Bounds of the number of messages that may wait for their commit before a write blocks. The number is worth
/// [`STREAM_BLOCK_TIME`] on fast paths, whose messages do not grow further. The lower bound holds on slow
/// paths. The upper bound is the number by which a writer can be behind the connection.
const UNSENT: RangeInclusive<usize> = 8..=32;

/// Reason for which a connection cannot carry a [`ByteStream`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ByteStreamError {
    /// The node hands out messages as they come.
    #[error("the node hands out messages in any order: set ConnectionConfig::in_order")]
    OutOfOrder,
    /// The quality of service has no retransmission.
    #[error("the quality of service has no retransmission: a byte that is lost would stay lost")]
    Unreliable,
    /// The connection cannot be fed.
    #[error(transparent)]
    Sender(#[from] SenderError),
}

/// A reliable stream of bytes in each direction of a connection, as TCP has it.
///
/// Both nodes need [`in_order`](freshwire_a1::ConnectionConfig::in_order), and each side creates its stream before it sends or receives
/// anything else. The agreed largest message must not shrink later. Bytes in flight are bounded by the
/// [outstanding](freshwire_a1::Qos::outstanding) messages of up to [`MAX_STREAM_BLOCK`] each, and by 64 MiB. This is address space;
/// memory grows to the largest number of bytes that were in flight at once.
///
/// Bytes written while earlier ones wait are appended to the last uncommitted message, so that small writes fill packets. There is no
/// artificial delay.
///
/// Unlike with TCP, a connection that is idle for its [`idle_timeout`](freshwire_a1::ConnectionConfig::idle_timeout) ends, even while a
/// writer waits for a reader that does not read. Set [`keep_alive`](freshwire_a1::ConnectionConfig::keep_alive) if that can happen.
///
/// ```no_run
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use freshwire::a1::{ByteStream, ConnectConfig, ConnectionConfig, Node, NodeConfig};
///
/// # let (address, key) = ("camera.example.org:5000", "".parse()?);
/// let mut transport = ConnectionConfig::default();
/// transport.in_order = true;
/// transport.keep_alive = Some(Duration::from_secs(10));
/// let node = Node::bind("0.0.0.0:0".parse()?, NodeConfig::new()?.connection(transport))?;
/// let stream = ByteStream::new(node.connect(address, &key, &ConnectConfig::default())?)?;
/// let (mut reader, mut writer) = stream.split();
/// writer.write_all(b"a question")?;
/// writer.finish(Duration::from_secs(10))?;
/// let mut answer = Vec::new();
/// reader.read_to_end(&mut answer)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ByteStream {
    reader: ByteReader,
    writer: ByteWriter,
}

/// Receiving half. It ends where the peer has [finished](ByteWriter::finish); a stream that was cut off is
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
pub struct ByteReader {
    connection: Connection,
    // The connection ends with the sink, which is shared so that either half may be dropped before the other.
    _sink: Arc<Sink>,
    /// The message that is being read, and the bytes already read.
    message: Option<Message>,
    read: usize,
    /// The number of the next message.
    next: u64,
    has_ended: bool,
    timeout: Option<Duration>,
}

/// Sending half. Call [`finish`](Self::finish): a dropped writer cuts the stream off.
pub struct ByteWriter {
    connection: Connection,
    sink: Arc<Sink>,
    sender: Sender,
    last: Option<Block>,
    /// The largest message that was agreed on.
    agreed: u32,
    next_seq: u64,
    unacked: u64,
    /// Nothing can be written any more.
    is_closing: bool,
    /// The end was pushed.
    is_finished: bool,
    pace: Pace,
    timeout: Option<Duration>,
}

/// The other node's recent acknowledgements: the path carries at least that, also where its rate is not known.
struct Pace {
    since: Timestamp,
    acked: u64,
    rate: Rate,
}

/// The newest message.
struct Block {
    seq: u64,
    len: u32,
    most: u32,
}

impl ByteStream {
    /// Creates a stream on an unused connection, which ends when both halves are dropped.
    ///
    /// # Errors
    ///
    /// If the node delivers messages out of order, the quality of service lacks retransmission, or the
    /// connection already has a sink.
    //= spec/a1.md A1-STR-1
    pub fn new(connection: Connection) -> Result<Self, ByteStreamError> {
        let (in_order, qos) = connection.order_and_qos().ok_or(SenderError::NotConnected)?;
        if !in_order {
            return Err(ByteStreamError::OutOfOrder);
        }
        if !qos.retransmission {
            return Err(ByteStreamError::Unreliable);
        }
        // A committed message keeps its slot until it is acknowledged.
        let slots = qos.outstanding.saturating_add(*UNSENT.end() as u32).min(MAX_BLOCKS).next_power_of_two();
        let config = Config { rings: 1, slots, block_bytes: MAX_STREAM_BLOCK, blocks: slots };
        let mut sender = Sender::without_engine(&config)?;
        let sink = Arc::new(sender.add_a1_sink(&connection, SinkConfig::new(choice::fifo()))?);
        let reader = ByteReader {
            connection: connection.clone(),
            _sink: Arc::clone(&sink),
            message: None,
            read: 0,
            next: 0,
            has_ended: false,
            timeout: None,
        };
        let writer = ByteWriter {
            connection,
            sink,
            sender,
            last: None,
            agreed: qos.max_send_message,
            next_seq: 0,
            unacked: 0,
            is_closing: false,
            is_finished: false,
            pace: Pace { since: now(), acked: 0, rate: Rate::default() },
            timeout: None,
        };
        Ok(Self { reader, writer })
    }

    /// Splits the stream into its two directions, for example for two threads.
    pub fn split(self) -> (ByteReader, ByteWriter) {
        (self.reader, self.writer)
    }
}

impl Read for ByteStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for ByteStream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl ByteReader {
    /// Sets the time limit of a read, after which it fails with [`TimedOut`](io::ErrorKind::TimedOut) and may be repeated. Default:
    /// `None`, no limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Returns a file that becomes readable when bytes have come, or the stream has ended: read again. For a reader whose
    /// [time limit](Self::set_timeout) is zero.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn events(&self) -> io::Result<Events> {
        self.connection.events()
    }

    fn rest(&self) -> &[u8] {
        self.message.as_ref().map_or(&[], |message| &message.data[self.read..])
    }

    //= spec/a1.md A1-STR-2
    fn fetch(&mut self) -> io::Result<()> {
        while self.rest().is_empty() && !self.has_ended {
            match self.connection.recv(self.timeout.unwrap_or(FOREVER)) {
                Ok(Some(message)) if message.id == self.next => {
                    self.next += 1;
                    self.has_ended = message.data.is_empty();
                    (self.message, self.read) = (Some(message), 0);
                }
                Ok(Some(_)) => return Err(io::Error::new(io::ErrorKind::InvalidData, MISSING)),
                Ok(None) if self.timeout.is_none() => {}
                Ok(None) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no bytes came in time")),
                Err(closed) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, closed)),
            }
        }
        Ok(())
    }
}

impl Read for ByteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl BufRead for ByteReader {
    /// The rest of the message that is being read, without a copy.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fetch()?;
        Ok(self.rest())
    }

    fn consume(&mut self, bytes: usize) {
        self.read += bytes.min(self.rest().len());
    }
}

impl ByteWriter {
    /// Sets the time limit of a write, after which it fails with [`TimedOut`](io::ErrorKind::TimedOut) and may be repeated. Default:
    /// `None`, no limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Ends the stream, and waits at most `timeout` for the peer's acknowledgement of all bytes. The other
    /// direction continues.
    ///
    /// # Errors
    ///
    /// If the time runs out or the connection ends.
    pub fn finish(mut self, timeout: Duration) -> io::Result<()> {
        self.try_finish(timeout)
    }

    /// As [`finish`](Self::finish), and may be repeated after [`TimedOut`](io::ErrorKind::TimedOut). Nothing can be written
    /// after the first call.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn try_finish(&mut self, timeout: Duration) -> io::Result<()> {
        let give_up = now() + timeout;
        self.is_closing = true;
        if !self.is_finished {
            self.push(&[], give_up)?;
            self.is_finished = true;
        }
        self.wait(give_up, "the other node has not got all of it", |writer| {
            Ok((writer.unacked == 0).then_some(()))
        })
    }

    /// Returns a file that becomes readable when a write, or [`try_finish`](Self::try_finish), that has failed with
    /// [`TimedOut`](io::ErrorKind::TimedOut) is worth another attempt. For a writer whose
    /// [time limit](Self::set_timeout) is zero.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn events(&self) -> io::Result<Events> {
        self.connection.turn_events()
    }

    /// Adds to the newest message what fits, if that is not committed.
    //= spec/a1.md A1-STR-3
    fn append(&mut self, bytes: &[u8]) -> Option<usize> {
        let last = self.last.as_mut()?;
        let taken = bytes.len().min((last.most - last.len) as usize);
        let at = last.len;
        let appended = (taken > 0).then(|| {
            self.sender.modify(self.sink.id(), last.seq, |edit| {
                edit.set_len(at + taken as u32)?;
                edit.write(at, &bytes[..taken])
            })
        });
        if matches!(appended, Some(Ok(()))) {
            last.len += taken as u32;
            return Some(taken);
        }
        self.last = None;
        None
    }

    /// Begins a message, waiting for room.
    fn push(&mut self, bytes: &[u8], give_up: Timestamp) -> io::Result<usize> {
        let carried = carried(self.sink.rate(), self.pace.look(now(), self.sink.acked()));
        let (most, unsent) = (most_in_block(carried, self.agreed), most_unsent(carried));
        let bytes = &bytes[..bytes.len().min(most as usize)];
        let seq = self.wait(give_up, "the path or the other node takes no more", |writer| {
            writer.try_push(bytes, unsent)
        })?;
        self.last = Some(Block { seq, len: bytes.len() as u32, most });
        Ok(bytes.len())
    }

    /// `None`: there is no room.
    fn try_push(&mut self, bytes: &[u8], unsent: usize) -> io::Result<Option<u64>> {
        let sink = self.sink.id();
        let meta = Meta { seq: self.next_seq, generated: now(), ..Meta::default() };
        // A refused push would leave a fate, which is that of a lost message.
        let has_room = self.sender.has_room(sink, bytes.len(), &meta).unwrap_or(true);
        if !has_room || self.sender.backlog(sink) >= unsent {
            return Ok(None);
        }
        match self.sender.push(sink, bytes, &meta) {
            Ok(_) => {
                self.next_seq += 1;
                self.unacked += 1;
                Ok(Some(meta.seq))
            }
            Err(error) => Err(io::Error::new(io::ErrorKind::BrokenPipe, error)),
        }
    }

    /// Tries again each time that the connection has sent what it could, until it succeeds.
    fn wait<T>(
        &mut self,
        give_up: Timestamp,
        timeout_message: &str,
        mut attempt: impl FnMut(&mut Self) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        // Without a look at the connection, which is busy sending, at first.
        let mut turns = None;
        loop {
            // Before the fates, as the end may have come with those of the last records.
            let closed = turns.and_then(|_| self.connection.closed());
            self.take_fates()?;
            if let Some(done) = attempt(self)? {
                return Ok(done);
            }
            let Some(seen) = turns.replace(self.connection.turns()) else { continue };
            if let Some(closed) = closed {
                return Err(broken(closed));
            }
            if now() >= give_up {
                self.connection.await_turn_after(seen);
                return Err(io::Error::new(io::ErrorKind::TimedOut, timeout_message));
            }
            self.connection.wait_turn(seen, give_up);
        }
    }

    fn take_fates(&mut self) -> io::Result<()> {
        while let Ok(Some(fate)) = self.sender.poll_fate(self.sink.id()) {
            if fate.outcome != Outcome::Acked {
                return Err(match self.connection.closed() {
                    Some(closed) => broken(closed),
                    None => {
                        let why = fate.outcome.reason().map_or("not acknowledged", |reason| reason.name());
                        io::Error::new(io::ErrorKind::BrokenPipe, format!("{MISSING} ({why})"))
                    }
                });
            }
            self.unacked = self.unacked.saturating_sub(1);
        }
        Ok(())
    }
}

impl Pace {
    fn look(&mut self, now: Timestamp, acked: u64) -> Rate {
        let time = now.saturating_since(self.since);
        if time >= STREAM_BLOCK_TIME {
            let bits = u128::from(acked - self.acked) * 8 * 1_000_000_000 / time.as_nanos();
            self.rate = Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX));
            (self.since, self.acked) = (now, acked);
        }
        self.rate
    }
}

impl Write for ByteWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            // A message without bytes is the end.
            return Ok(0);
        }
        if self.is_closing {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the stream was finished"));
        }
        if let Some(taken) = self.append(bytes) {
            return Ok(taken);
        }
        let give_up = self.timeout.map_or(Timestamp::MAX, |timeout| now() + timeout);
        self.push(bytes, give_up)
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for ByteReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteReader").field("next", &self.next).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ByteWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteWriter").field("next", &self.next_seq).finish_non_exhaustive()
    }
}

/// Bytes that the path carries in [`STREAM_BLOCK_TIME`]: as long as its rate is not known, no less than what was acknowledged.
fn carried(rate: Option<Rate>, acked: Rate) -> u64 {
    rate.map_or_else(
        || acked.bytes_in(STREAM_BLOCK_TIME).max(FIRST_BLOCK),
        |rate| rate.bytes_in(STREAM_BLOCK_TIME),
    )
}

/// The most bytes of a message, over a path that carries `carried` bytes and with the largest message that was agreed on.
fn most_in_block(carried: u64, agreed: u32) -> u32 {
    carried.clamp(LEAST_BLOCK.into(), MAX_STREAM_BLOCK.into()).min(agreed.into()) as u32
}

/// How many messages may wait for their commit, over a path that carries this number of bytes.
fn most_unsent(carried: u64) -> usize {
    let largest = carried / u64::from(MAX_STREAM_BLOCK);
    usize::try_from(largest).unwrap_or(usize::MAX).clamp(*UNSENT.start(), *UNSENT.end())
}

fn broken(closed: Closed) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, closed)
}

/// The error after messages were abandoned that must not be.
const MISSING: &str = "bytes are missing: a message of the stream was given up";

/// How long a read waits at a time that waits for ever.
const FOREVER: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a1::{ConnectConfig, ConnectionConfig, Node, NodeConfig};

    fn mbit(mbit: u64) -> Rate {
        Rate::from_bits_per_sec(mbit * 1_000_000)
    }

    #[test]
    fn a_block_is_what_the_path_carries_in_ten_milliseconds() {
        let nothing = Rate::default();
        for (rate, acked, agreed, most) in [
            (None, nothing, 1 << 20, FIRST_BLOCK as u32),
            (None, mbit(20), 1 << 20, 25_000),
            (None, mbit(10_000), 1 << 20, MAX_STREAM_BLOCK),
            (Some(mbit(8)), nothing, 1 << 20, 10_000),
            (Some(mbit(8)), mbit(20), 4096, 4096),
            (Some(Rate::from_bits_per_sec(64_000)), nothing, 1 << 20, LEAST_BLOCK),
        ] {
            assert_eq!(most_in_block(carried(rate, acked), agreed), most, "{rate:?}");
        }
    }

    #[test]
    fn more_may_wait_only_where_that_takes_no_longer() {
        let unsent = |rate| most_unsent(carried(Some(mbit(rate)), Rate::default()));
        assert_eq!([unsent(8), unsent(400), unsent(1000), unsent(20_000)], [8, 8, 19, 32]);
        assert_eq!(most_unsent(carried(None, Rate::default())), 8);
    }

    #[test]
    fn the_pace_is_that_of_the_last_ten_milliseconds_or_more() {
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let mut pace = Pace { since: at(0), acked: 0, rate: Rate::default() };
        assert_eq!(pace.look(at(9), 10_000), Rate::default());
        assert_eq!(pace.look(at(20), 20_000), mbit(8));
        assert_eq!(pace.look(at(29), 90_000), mbit(8));
        assert_eq!(pace.look(at(30), 20_000), Rate::default());
    }

    /// The last acknowledgement and the end come while a writer is between its looks at the one and at the other.
    #[test]
    fn a_reader_that_leaves_with_the_last_byte_has_had_all_of_it() {
        let node = || {
            let mut transport = ConnectionConfig::default();
            transport.in_order = true;
            Node::bind("127.0.0.1:0".parse().unwrap(), NodeConfig::new().unwrap().connection(transport))
                .unwrap()
        };
        let (near, far) = (node(), node());
        let (patience, give_up) = (Duration::from_secs(10), now() + Duration::from_secs(10));
        let config = ConnectConfig::default();
        let near = near.connect(far.local_addr().unwrap(), &far.public_key(), &config).unwrap();
        let mut reader = far.accept(patience).unwrap();
        let (_reader, mut writer) = ByteStream::new(near).unwrap().split();
        let mut looks = 0;
        let finished = writer.wait(give_up, "not all is there", |writer| {
            looks += 1;
            if looks == 2 {
                writer.try_push(b"all of it", 1)?;
                let reader = reader.take().unwrap();
                assert_eq!(reader.recv(patience).unwrap().unwrap().data.len(), 9);
                drop(reader);
                while writer.connection.closed().is_none() {
                    assert!(now() < give_up, "the end is not reported");
                    // Pause: until the next look.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok((looks > 1 && writer.unacked == 0).then_some(()))
        });
        assert!(finished.is_ok(), "{finished:?}");
    }
}
