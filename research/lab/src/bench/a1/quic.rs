//! QUIC by quinn, with its defaults: one stream of bytes, which batches small writes as TCP does. Datagrams stay at an
//! Ethernet's size on loopback too: with larger ones it carries less.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use freshwire_io::now;
use freshwire_record::Timestamp;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TransportConfig, VarInt};
use tokio::runtime::Runtime;

use super::bulk::{Bulk, half};
use super::place::Place;
use crate::quic::{NAME, configurations, endpoint};

/// Bytes that the reader asks for at a time.
const READ_BYTES: usize = 256 << 10;

/// Bytes that the kernel is asked to keep at either end, as A1 does.
const BUFFER: usize = 2 << 20;

/// How a connection is closed that has done its work.
const DONE: VarInt = VarInt::from_u32(0);

/// One end before it is connected, with the runtime that its thread gets.
struct End<C> {
    socket: UdpSocket,
    config: C,
    runtime: Runtime,
}

fn ends(place: &Place) -> anyhow::Result<(End<ClientConfig>, End<ServerConfig>)> {
    let bind = |ip: IpAddr| -> anyhow::Result<UdpSocket> {
        let socket = UdpSocket::bind((ip, 0)).context("cannot bind a socket")?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER)?;
        Ok(socket)
    };
    let (server, client) = configurations(TransportConfig::default())?;
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let near = End { socket: place.near(bind)?, config: client, runtime: runtime()? };
    let far = End { socket: place.far(bind)?, config: server, runtime: runtime()? };
    Ok((near, far))
}

impl End<ClientConfig> {
    /// Connects, and does its part of the work.
    fn run<T>(
        self,
        to: std::net::SocketAddr,
        work: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Self { socket, config, runtime } = self;
        runtime.block_on(async {
            let endpoint = endpoint(socket, None, EndpointConfig::default())?;
            let connection = endpoint.connect_with(config, to, NAME)?.await.context("cannot connect")?;
            let done = work(&connection).await?;
            finish(&endpoint, &connection).await;
            Ok(done)
        })
    }
}

impl End<ServerConfig> {
    /// Accepts, does its part of the work, and waits for the other to close.
    fn run<T>(self, work: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Self { socket, config, runtime } = self;
        runtime.block_on(async {
            let endpoint = endpoint(socket, Some(config), EndpointConfig::default())?;
            let connection = endpoint.accept().await.context("the endpoint is closed")?.await?;
            let done = work(&connection).await?;
            connection.closed().await;
            Ok(done)
        })
    }
}

async fn finish(endpoint: &Endpoint, connection: &Connection) {
    connection.close(DONE, b"");
    endpoint.wait_idle().await;
}

/// A stream with writes of one block each for `time`.
pub(super) fn bulk(place: &Place, block: usize, time: Duration) -> anyhow::Result<Bulk> {
    let (near, far) = ends(place)?;
    let to = far.socket.local_addr()?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| far.run(async |connection| read_all(connection).await));
        let (sent, begin) = near.run(to, async |connection| {
            let mut stream = connection.open_uni().await?;
            let payload = Bytes::from(vec![7; block]);
            let begin = now();
            let mut sent = 0;
            while now().saturating_since(begin) < time {
                stream.write_chunk(payload.clone()).await?;
                sent += block as u64;
            }
            stream.finish()?;
            stream.stopped().await?;
            Ok((sent, begin))
        })?;
        let (bytes, end) = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        Ok(Bulk { sent, bytes, begin, end })
    })
}

async fn read_all(connection: &Connection) -> anyhow::Result<(u64, Timestamp)> {
    let mut stream = connection.accept_uni().await?;
    let mut bytes = 0;
    while let Some(chunk) = stream.read_chunk(READ_BYTES, true).await? {
        bytes += chunk.bytes.len() as u64;
    }
    Ok((bytes, now()))
}

/// Half of each round trip of a block on one stream.
pub(super) fn pings(place: &Place, block: usize, count: u32) -> anyhow::Result<Vec<f64>> {
    let (near, far) = ends(place)?;
    let to = far.socket.local_addr()?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            far.run(async |connection| {
                let (mut answers, mut pings) = connection.accept_bi().await?;
                let mut buffer = vec![0; block];
                for _ in 0..count {
                    pings.read_exact(&mut buffer).await?;
                    answers.write_all(&buffer).await?;
                }
                Ok(())
            })
        });
        let halves = near.run(to, async |connection| {
            let (mut pings, mut answers) = connection.open_bi().await?;
            let (payload, mut answer) = (vec![7; block], vec![0; block]);
            let mut halves = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let begin = now();
                pings.write_all(&payload).await?;
                answers.read_exact(&mut answer).await?;
                halves.push(half(begin));
            }
            Ok(halves)
        })?;
        echo.join().map_err(|_| anyhow::anyhow!("the other end panicked"))??;
        Ok(halves)
    })
}
