//! The baselines: datagrams and TCP, with the calls that any program makes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::{PageBuffer, now};

use super::bulk::{Bulk, SILENCE, round_trips};
use super::place::Place;
use crate::bench::loopback::Drain;

/// Bytes that the kernel is asked to keep for a receiver.
const RECEIVE_BUFFER: usize = 4 << 20;

/// How long a sender rests that is ahead of the link's rate.
const REST: Duration = Duration::from_micros(200);

/// Datagrams of one block each for `time`, at no more than the link's rate. Some do not arrive.
pub(super) fn udp(place: &Place, block: usize, time: Duration) -> anyhow::Result<Bulk> {
    let (near, far) = udp_pair(place)?;
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive_datagrams(&far, &stopped));
        let payload = vec![7; block];
        let begin = now();
        let mut sent = 0_u64;
        loop {
            let elapsed = now().saturating_since(begin);
            if elapsed >= time {
                break;
            }
            if place.rate().is_some_and(|rate| rate.bytes_in(elapsed) < sent) {
                std::thread::sleep(REST);
                continue;
            }
            near.send(&payload).context("cannot send a datagram")?;
            sent += block as u64;
        }
        stopped.store(true, Ordering::Relaxed);
        let (bytes, end) = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        Ok(Bulk { sent, bytes, begin, end })
    })
}

fn receive_datagrams(
    socket: &UdpSocket,
    stopped: &AtomicBool,
) -> anyhow::Result<(u64, freshwire_record::Timestamp)> {
    let mut buffer = PageBuffer::new(64 << 10);
    let (mut bytes, mut end) = (0, now());
    loop {
        match socket.recv(&mut buffer) {
            Ok(read) => {
                bytes += read as u64;
                end = now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stopped.load(Ordering::Relaxed) {
                    return Ok((bytes, end));
                }
            }
            Err(error) => return Err(error).context("cannot receive a datagram"),
        }
    }
}

/// Half of each round trip of a datagram.
pub(super) fn udp_pings(place: &Place, block: usize, count: u32) -> anyhow::Result<Vec<f64>> {
    let (near, far) = udp_pair(place)?;
    let echo = move || {
        let mut buffer = PageBuffer::new(64 << 10);
        for _ in 0..count {
            let read = far.recv(&mut buffer).context("a ping got lost")?;
            far.send(&buffer[..read]).context("cannot answer")?;
        }
        Ok(())
    };
    let (payload, mut answer) = (vec![7; block], PageBuffer::new(64 << 10));
    let ping = || {
        near.send(&payload).context("cannot send a ping")?;
        near.recv(&mut answer).context("an answer got lost")?;
        Ok(())
    };
    round_trips(count, ping, echo)
}

/// Sockets that are connected to each other.
fn udp_pair(place: &Place) -> anyhow::Result<(UdpSocket, UdpSocket)> {
    let bind = |ip: IpAddr| {
        let socket = UdpSocket::bind((ip, 0)).context("cannot bind a socket")?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        socket.set_read_timeout(Some(SILENCE))?;
        Ok(socket)
    };
    let (near, far) = (place.near(bind)?, place.far(bind)?);
    let connect = |from: &UdpSocket, to: &UdpSocket| from.connect(to.local_addr()?);
    connect(&near, &far).and(connect(&far, &near)).context("cannot connect the sockets")?;
    Ok((near, far))
}

/// Calls of `write()` of one block each for `time`.
pub(super) fn tcp(place: &Place, block: usize, time: Duration) -> anyhow::Result<Bulk> {
    let (mut near, far) = tcp_pair(place)?;
    let drain = Drain::start(far);
    let payload = vec![7; block];
    let begin = now();
    let mut sent = 0;
    while now().saturating_since(begin) < time {
        near.write_all(&payload).context("cannot send")?;
        sent += block as u64;
    }
    drop(near);
    let (bytes, end) = drain.finish()?;
    Ok(Bulk { sent, bytes, begin, end })
}

/// Half of each round trip of a block, without Nagle's algorithm.
pub(super) fn tcp_pings(place: &Place, block: usize, count: u32) -> anyhow::Result<Vec<f64>> {
    let (mut near, mut far) = tcp_pair(place)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = move || {
        let mut buffer = vec![0; block];
        for _ in 0..count {
            far.read_exact(&mut buffer).and_then(|()| far.write_all(&buffer))?;
        }
        Ok(())
    };
    let (payload, mut answer) = (vec![7; block], vec![0; block]);
    let ping = || {
        near.write_all(&payload).context("cannot send a ping")?;
        near.read_exact(&mut answer).context("no answer came")
    };
    round_trips(count, ping, echo)
}

fn tcp_pair(place: &Place) -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = place.far(|ip| TcpListener::bind((ip, 0)).context("cannot listen"))?;
    let address: SocketAddr = listener.local_addr()?;
    let near = place.near(|_| TcpStream::connect(address).context("cannot connect"))?;
    let (far, _) = listener.accept().context("cannot accept")?;
    Ok((near, far))
}
