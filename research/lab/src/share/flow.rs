//! A flow that always has data, and its receiver.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{Closed, Connection, Qos, SinkConfig};
use freshwire::sink::CloseMode;
use freshwire::{Ended, Meta, PushError, RingConfig, Sender, choice};
use freshwire_io::now;
use freshwire_io::tcp::TcpSocket;
use freshwire_record::{Rate, Timestamp};

use super::kind::Kind;
use super::layered::Layered;
use super::repeated;
use crate::scenario::{A1Path, TestLink, transport, wait_until};

/// Bytes of an A1 message, and how many are in the ring and may be outstanding: together what the kernel lets a TCP socket
/// have in flight.
const MESSAGE_BYTES: u32 = 4 << 10;
const MESSAGES: u32 = 1024;

/// How long the producer rests when the ring is full.
const REST: Duration = Duration::from_millis(2);

/// How long one call waits at most.
const WATCH: Duration = Duration::from_millis(100);

/// How long the end may take.
const CLOSE: Duration = Duration::from_secs(2);

/// Both ends of a connection across the link.
pub(super) enum Flow {
    A1(A1Path),
    Freshwire(TcpStream, TcpStream, Layered),
    Tcp(TcpStream, TcpStream),
}

impl Flow {
    /// Connects. `name` is one of the plan's flows, `rate` that of the bottleneck.
    pub(super) fn open(link: &TestLink, name: &str, rate: Rate) -> anyhow::Result<Self> {
        match Kind::of(name) {
            Kind::A1 => {
                let qos = Qos { outstanding: MESSAGES, ..Qos::default() };
                Ok(Self::A1(A1Path::connect(link, &transport(name)?, qos)?))
            }
            Kind::Freshwire { congestion, is_bounded } => {
                let (near, far, _) = link.connect_tcp(Some(congestion))?;
                Ok(Self::Freshwire(near, far, Layered::above(rate, is_bounded)))
            }
            Kind::Tcp => {
                let (near, far, _) = link.connect_tcp(Some(name))?;
                Ok(Self::Tcp(near, far))
            }
        }
    }

    /// Sends from `begin` to `end` and counts what is received. The share of what was sent that was lost: of packets, or of bytes that TCP
    /// sent again.
    pub(super) fn run(self, begin: Timestamp, end: Timestamp, received: &AtomicU64) -> anyhow::Result<f64> {
        std::thread::scope(|scope| {
            let (sent, read) = match &self {
                Self::A1(A1Path { sending, receiving, .. }) => {
                    let reader = scope.spawn(|| receive_a1(receiving, end, received));
                    (send_a1(sending, begin, end), reader.join())
                }
                Self::Freshwire(near, far, source) => {
                    let reader = scope.spawn(|| receive_tcp(far, end, received));
                    (source.send(near, begin, end), reader.join())
                }
                Self::Tcp(near, far) => {
                    let reader = scope.spawn(|| receive_tcp(far, end, received));
                    (send_tcp(near, begin, end), reader.join())
                }
            };
            read.map_err(|_| anyhow::anyhow!("the receiver panicked"))?.context("the receiver failed")?;
            sent.context("the sender failed")
        })
    }
}

fn send_a1(connection: &Connection, begin: Timestamp, end: Timestamp) -> anyhow::Result<f64> {
    let config = RingConfig { rings: 1, slots: MESSAGES, block_bytes: MESSAGE_BYTES, blocks: MESSAGES };
    let mut sender = Sender::without_engine(&config)?;
    let sink = sender.add_a1_sink(connection, SinkConfig::new(choice::fifo()))?;
    let payload = vec![7; MESSAGE_BYTES as usize];
    let mut seq = 0;
    wait_until(begin);
    while now() < end {
        match sender.push(sink.id(), &payload, &Meta { seq, ..Meta::default() }) {
            Ok(_) => seq += 1,
            Err(PushError::Full | PushError::OutOfBlocks) => std::thread::sleep(REST),
            Err(error) => return Err(error.into()),
        }
    }
    let stats = connection.stats().context("the connection is gone")?;
    let ended = sink.close(CloseMode::Abort, CLOSE);
    anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
    Ok(repeated::part(stats.packets_lost.saturating_sub(stats.spurious_losses), stats.packets_sent))
}

fn receive_a1(connection: &Connection, end: Timestamp, received: &AtomicU64) -> anyhow::Result<()> {
    while now() < end {
        match connection.recv(WATCH) {
            Ok(None) => {}
            Ok(Some(message)) => {
                received.fetch_add(message.data.len() as u64, Ordering::Relaxed);
            }
            // The sender aborts when its time is over.
            Err(Closed::Peer { .. }) => return Ok(()),
            Err(closed) => return Err(closed).context("the connection ended"),
        }
    }
    Ok(())
}

fn send_tcp(mut stream: &TcpStream, begin: Timestamp, end: Timestamp) -> anyhow::Result<f64> {
    // Setting its congestion control has made it one that does not block.
    stream.set_nonblocking(false).context("cannot make a socket block")?;
    stream.set_write_timeout(Some(WATCH)).context("cannot set a time-out")?;
    let payload = vec![7; 64 << 10];
    wait_until(begin);
    while now() < end {
        match stream.write(&payload) {
            Ok(_) => {}
            Err(error) if is_pause(error.kind()) => {}
            Err(error) => return Err(error).context("cannot write"),
        }
    }
    let socket = TcpSocket::new(stream.try_clone().context("cannot duplicate a socket")?)?;
    let lost = repeated::of_tcp(&socket)?;
    socket.abort_on_close().context("cannot abort the connection")?;
    Ok(lost)
}

fn receive_tcp(mut stream: &TcpStream, end: Timestamp, received: &AtomicU64) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(WATCH)).context("cannot set a time-out")?;
    let mut buffer = vec![0; 64 << 10];
    while now() < end {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                received.fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(error) if is_pause(error.kind()) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error).context("cannot read"),
        }
    }
    Ok(())
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
