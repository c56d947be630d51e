//! The far host: one thread that takes what all viewers get, counts it and throws it away.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// After the camera has stopped, nothing for so long means that nothing will come.
const QUIET: Duration = Duration::from_millis(100);

/// How long connections may take to end after that.
const ENDING: Duration = Duration::from_secs(20);

/// The viewers' ends of their connections.
#[derive(Debug)]
pub(in crate::bench) struct Receivers {
    pub(in crate::bench) tcp: Vec<TcpStream>,
    pub(in crate::bench) udp: Vec<UdpSocket>,
    pub(in crate::bench) sound: UdpSocket,
}

/// The received data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::bench) struct Arrivals {
    pub(in crate::bench) tcp_bytes: u64,
    pub(in crate::bench) udp_bytes: u64,
    /// Pictures of which every datagram came.
    pub(in crate::bench) udp_pictures: u64,
    pub(in crate::bench) sound_blocks: u64,
}

/// How far one viewer's picture is, in datagrams.
#[derive(Clone, Copy, Default)]
struct Datagrams {
    full: usize,
}

impl Datagrams {
    /// A datagram came. `true`: it was the last one of a picture that is whole. Only the last one of a picture is shorter than `full`
    /// bytes, and datagrams between hosts on one machine keep their order.
    fn on_datagram(&mut self, bytes: usize, full: usize, picture: usize) -> bool {
        if bytes == full {
            self.full += 1;
            return false;
        }
        std::mem::take(&mut self.full) == picture / full && bytes == picture % full
    }
}

/// Takes everything until `stop` is set, every connection has ended, and nothing comes any more. `picture` and `datagram` are sizes in
/// bytes, the first not a multiple of the second.
pub(in crate::bench) fn run(
    receivers: &Receivers,
    picture: usize,
    datagram: usize,
    stop: &AtomicBool,
) -> io::Result<Arrivals> {
    let Receivers { tcp, udp, sound } = receivers;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |socket: std::os::fd::BorrowedFd<'_>, place: usize| {
        epoll::add(&poll, socket, epoll::EventData::new_u64(place as u64), epoll::EventFlags::IN)
    };
    use std::os::fd::AsFd as _;
    let sockets: Vec<_> =
        tcp.iter().map(|socket| socket.as_fd()).chain(udp.iter().map(|s| s.as_fd())).collect();
    for (place, &socket) in sockets.iter().chain([&sound.as_fd()]).enumerate() {
        watch(socket, place)?;
    }
    let mut scratch = vec![0; 1 << 20];
    let mut datagrams = vec![Datagrams::default(); udp.len()];
    let mut open = vec![true; tcp.len()];
    let mut arrived = Arrivals::default();
    let mut events = Vec::with_capacity(64);
    let mut stopped: Option<Instant> = None;
    loop {
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: QUIET.as_nanos() as i64 };
        let is_quiet = epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout))? == 0;
        if stop.load(Ordering::Acquire) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if is_quiet && !open.contains(&true) {
                return Ok(arrived);
            }
            if since.elapsed() > ENDING {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a viewer's connection does not end"));
            }
        }
        for event in &events {
            let place = event.data.u64() as usize;
            let socket = sockets.get(place).copied().unwrap_or(sound.as_fd());
            // With MSG_TRUNC the kernel counts what it discards, and writes nothing to a TCP receiver's buffer.
            let bytes = match recv(socket, &mut scratch[..], RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
                Ok((_, bytes)) => bytes,
                Err(Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            if place < tcp.len() {
                if bytes == 0 {
                    open[place] = false;
                    epoll::delete(&poll, socket)?;
                }
                arrived.tcp_bytes += bytes as u64;
            } else if let Some(progress) = datagrams.get_mut(place - tcp.len()) {
                arrived.udp_bytes += bytes as u64;
                arrived.udp_pictures += u64::from(progress.on_datagram(bytes, datagram, picture));
            } else {
                arrived.sound_blocks += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_with_a_lost_datagram_is_not_counted() {
        let mut progress = Datagrams::default();
        let mut take =
            |sizes: &[usize]| sizes.iter().filter(|&&bytes| progress.on_datagram(bytes, 100, 250)).count();
        assert_eq!(take(&[100, 100, 50]), 1);
        assert_eq!(take(&[100, 50]), 0, "a full one is lost");
        assert_eq!(take(&[100, 100, 100, 100, 50]), 0, "the last one is lost, and with it the next picture");
        assert_eq!(take(&[100, 100, 50, 100, 100, 50]), 2);
    }
}
