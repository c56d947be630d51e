//! Viewers of RTP, over TCP and UDP: one thread reads them all, and counts bytes and whole pictures.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::testbed::pin;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::viewers::session::Session;

/// Bytes of datagrams that may wait at a viewer.
const DATAGRAM_BUFFER: usize = 8 << 20;

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the reader looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

const READ_BYTES: usize = 256 << 10;

/// The priority of feeder and receivers: they are not what is measured.
pub(super) const NICE: i32 = -20;

/// What all viewers of one kind have got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) bytes: u64,
    /// Pictures of which every packet came.
    pub(crate) pictures: u64,
}

impl Got {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { bytes: self.bytes - earlier.bytes, pictures: self.pictures - earlier.pictures }
    }
}

#[derive(Default)]
struct Counter {
    bytes: AtomicU64,
    pictures: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: u64, pictures: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pictures.fetch_add(pictures, Ordering::Relaxed);
    }

    fn got(&self) -> Got {
        Got { bytes: self.bytes.load(Ordering::Relaxed), pictures: self.pictures.load(Ordering::Relaxed) }
    }
}

/// A viewer's stream.
enum Stream {
    Tcp(TcpStream, Interleaved),
    /// The datagrams, and the connection that asked for them.
    Udp(
        UdpSocket,
        #[expect(dead_code, reason = "the server ends a stream with its connection")] TcpStream,
        Packets,
    ),
}

/// The viewers. Dropping them ends their thread.
pub(crate) struct Viewers {
    poll: OwnedFd,
    waiting: Vec<Stream>,
    counters: Arc<[Counter; 2]>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<io::Result<()>>>,
}

impl Viewers {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        Ok(Self { poll, waiting: Vec::new(), counters: Arc::default(), stop: Arc::default(), reader: None })
    }

    /// Connects a viewer, before [`Self::read`]; `udp` is the address at which it takes datagrams.
    pub(crate) fn add(&mut self, server: SocketAddr, url: &str, udp: Option<IpAddr>) -> anyhow::Result<()> {
        let control = TcpStream::connect(server).context("cannot connect to the server")?;
        control.set_read_timeout(Some(PATIENCE)).context("cannot set a socket up")?;
        let mut session = Session::new(control, url.to_owned())?;
        let stream = if let Some(address) = udp {
            let socket = UdpSocket::bind((address, 0)).context("cannot bind a UDP port")?;
            set_socket_recv_buffer_size_force(&socket, DATAGRAM_BUFFER)?;
            session.play_to(socket.local_addr().context("cannot tell a port")?.port())?;
            socket.set_nonblocking(true)?;
            Stream::Udp(socket, session.into_stream().0, Packets::default())
        } else {
            session.play()?;
            let (socket, begin) = session.into_stream();
            socket.set_nonblocking(true)?;
            let mut records = Interleaved::default();
            let pictures = records.push(&begin)?;
            self.counters[0].add(begin.len() as u64, pictures);
            Stream::Tcp(socket, records)
        };
        let socket = match &stream {
            Stream::Tcp(socket, _) => socket.as_fd(),
            Stream::Udp(socket, ..) => socket.as_fd(),
        };
        let place = epoll::EventData::new_u64(self.waiting.len() as u64);
        epoll::add(&self.poll, socket, place, epoll::EventFlags::IN).context("cannot watch a socket")?;
        self.waiting.push(stream);
        Ok(())
    }

    /// Starts to read them, on processor 1.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        let streams = std::mem::take(&mut self.waiting);
        let poll = self.poll.try_clone().context("cannot duplicate an epoll")?;
        let (counters, stop) = (Arc::clone(&self.counters), Arc::clone(&self.stop));
        self.reader = Some(std::thread::spawn(move || {
            pin(1);
            // Where it may not, it waits for its turn.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            read(&poll, streams, &counters, &stop)
        }));
        Ok(())
    }

    /// What viewers over TCP and over UDP have got so far.
    ///
    /// # Errors
    ///
    /// If a stream is damaged or has ended.
    pub(crate) fn got(&mut self) -> anyhow::Result<[Got; 2]> {
        if let Some(reader) = self.reader.take_if(|reader| reader.is_finished()) {
            reader.join().map_err(|_| anyhow::anyhow!("the viewers' thread panicked"))??;
            anyhow::bail!("the viewers' thread has ended");
        }
        Ok([self.counters[0].got(), self.counters[1].got()])
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // Its error was not asked for.
            let _ = reader.join();
        }
    }
}

fn read(
    poll: &OwnedFd,
    mut streams: Vec<Stream>,
    counters: &[Counter; 2],
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
        match epoll::wait(poll, spare_capacity(&mut events), Some(&timeout)) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        for event in &events {
            let Some(stream) = streams.get_mut(event.data.u64() as usize) else { continue };
            match stream {
                Stream::Tcp(socket, records) => match rustix::io::read(&*socket, &mut buffer) {
                    Ok(0) => {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            "a viewer's connection ended",
                        ));
                    }
                    Ok(read) => counters[0].add(read as u64, records.push(&buffer[..read])?),
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                },
                Stream::Udp(socket, _, packets) => match socket.recv(&mut buffer) {
                    Ok(read) => counters[1].add(read as u64, u64::from(packets.take(&buffer[..read]))),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }
    Ok(())
}

/// Bytes of an interleaved record's head and of the RTP header that tells a picture's last packet.
const HEAD_BYTES: usize = 6;
const MARKER: u8 = 0x80;

/// Reads RTP from a TCP stream (RFC 2326, section 10.12) that comes in pieces.
#[derive(Default)]
struct Interleaved {
    head: [u8; HEAD_BYTES],
    have: usize,
    /// Bytes of the present record that have not come.
    left: usize,
}

impl Interleaved {
    /// Takes the next piece; returns how many pictures it ends.
    fn push(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut pictures = 0;
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (HEAD_BYTES - self.have).min(bytes.len());
            self.head[self.have..self.have + wanted].copy_from_slice(&bytes[..wanted]);
            self.have += wanted;
            bytes = &bytes[wanted..];
            if self.have < HEAD_BYTES {
                continue;
            }
            let [b'$', channel, high, low, _, second] = self.head else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a viewer's stream is damaged"));
            };
            self.left = usize::from(u16::from_be_bytes([high, low])).saturating_sub(2);
            self.have = 0;
            pictures += u64::from(channel == 0 && second & MARKER != 0);
        }
        Ok(pictures)
    }
}

/// The packets of one viewer over UDP.
#[derive(Default)]
struct Packets {
    next: Option<u16>,
    is_torn: bool,
}

impl Packets {
    /// Whether this one ends a picture of which every packet came.
    fn take(&mut self, packet: &[u8]) -> bool {
        let &[_, second, high, low, ..] = packet else { return false };
        let number = u16::from_be_bytes([high, low]);
        self.is_torn |= self.next.is_some_and(|next| next != number);
        self.next = Some(number.wrapping_add(1));
        let ends = second & MARKER != 0;
        ends && !std::mem::take(&mut self.is_torn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_counted_in_pieces_of_any_size() {
        let record = |channel: u8, marker: u8, length: usize| {
            let mut record = vec![b'$', channel, 0, length as u8, 0x80, marker | 96];
            record.resize(4 + length, b'$');
            record
        };
        let stream: Vec<u8> =
            [record(0, 0, 50), record(0, MARKER, 20), record(1, MARKER, 28), record(0, MARKER, 12)].concat();
        for size in 1..=stream.len() {
            let mut records = Interleaved::default();
            let pictures: u64 = stream.chunks(size).map(|piece| records.push(piece).unwrap()).sum();
            assert_eq!(pictures, 2, "{size}");
        }
        assert!(Interleaved::default().push(&[b'x'; 6]).is_err());
    }

    #[test]
    fn a_picture_with_a_gap_is_not_whole() {
        let mut packets = Packets::default();
        let mut take = |number: u16, marker: u8| {
            let [high, low] = number.to_be_bytes();
            packets.take(&[0x80, marker, high, low, 0])
        };
        assert!(!take(65_534, 0) && take(65_535, MARKER) && take(0, MARKER));
        assert!(!take(2, MARKER), "one is lost");
        assert!(take(3, MARKER));
    }
}
