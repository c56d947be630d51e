//! The camera: one thread that sends each new picture to every viewer.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::sendpath::Picture;
use freshwire_io::udp::{Outgoing, Sent, UdpSocket as Batches};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::sockopt::set_tcp_cork;

/// Pictures that the camera keeps for a viewer that is behind: a second of them; older ones are skipped. Much shorter, and turns in which
/// the camera has no processor would cost pictures, whatever they cost to send.
const KEPT: u64 = 25;

const PAGE: usize = 4096;

/// How a picture is handed to a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum HandOver {
    /// `sendfile` of a page at a time, each page sent at once: what `sendfile` of the camera's kernel did, with a short segment behind
    /// each page.
    Pages,
    /// The same, with the socket corked until the picture's end: full segments.
    FullPages,
    /// One `sendfile` of the whole picture.
    Whole,
    /// One `write` of the whole picture, which copies it: what most servers do.
    Copy,
    /// Not by this camera, but by `freshwire serve`.
    Server,
}

/// A viewer's socket at the camera.
#[derive(Debug)]
pub(in crate::bench) enum Viewer {
    Tcp(TcpStream),
    /// A system call for each datagram.
    Udp(UdpSocket),
    /// A system call for a picture, which the kernel cuts (UDP segmentation offload).
    UdpBatches(Batches, SocketAddr),
}

/// The camera's plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Plan<'a> {
    pub(in crate::bench) picture: &'a Picture,
    pub(in crate::bench) hand_over: HandOver,
    /// Bytes of a datagram, but the last of a picture.
    pub(in crate::bench) datagram: usize,
    /// Pictures a second.
    pub(in crate::bench) rate: f64,
    pub(in crate::bench) time: Duration,
}

/// The camera's account, over all viewers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::bench) struct CameraAccount {
    pub(in crate::bench) tcp_bytes: u64,
    pub(in crate::bench) udp_bytes: u64,
    /// Pictures of which the kernel took every byte.
    pub(in crate::bench) tcp_pictures: u64,
    pub(in crate::bench) udp_pictures: u64,
    /// Pictures that a viewer did not get because it was too far behind.
    pub(in crate::bench) skipped: u64,
    pub(in crate::bench) system_calls: u64,
}

/// How far a viewer is.
#[derive(Clone, Copy)]
struct Progress {
    /// The number of its picture, from 0.
    picture: u64,
    offset: usize,
    has_room: bool,
}

/// Sends for `plan.time`, then returns in the middle of what it did.
pub(in crate::bench) fn run(viewers: &mut [Viewer], plan: &Plan<'_>) -> io::Result<CameraAccount> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (place, viewer) in viewers.iter().enumerate() {
        if let Viewer::Tcp(socket) = viewer {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&poll, socket, epoll::EventData::new_u64(place as u64), flags)?;
        }
    }
    let mut progress = vec![Progress { picture: 0, offset: 0, has_room: true }; viewers.len()];
    let mut done = CameraAccount::default();
    let begin = Instant::now();
    let mut events = Vec::with_capacity(64);
    loop {
        let now = begin.elapsed();
        if now >= plan.time {
            return Ok(done);
        }
        let made = (now.as_secs_f64() * plan.rate) as u64;
        let mut is_idle = true;
        for (viewer, progress) in viewers.iter_mut().zip(&mut progress) {
            if progress.has_room && progress.picture < made {
                is_idle = false;
                if progress.offset == 0 && made - progress.picture > KEPT {
                    done.skipped += made - KEPT - progress.picture;
                    progress.picture = made - KEPT;
                }
                turn(viewer, progress, plan, &mut done)?;
            }
        }
        // Viewers whose sockets were full are looked at when nothing else is to be done, and at each new picture.
        if is_idle || progress.iter().any(|viewer| !viewer.has_room) {
            let next = Duration::from_secs_f64((made + 1) as f64 / plan.rate).min(plan.time);
            let wait = if is_idle { next.saturating_sub(begin.elapsed()) } else { Duration::ZERO };
            let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            done.system_calls += 1;
            events.clear();
            epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout))?;
            for event in &events {
                progress[event.data.u64() as usize].has_room = true;
            }
        }
    }
}

/// Hands over the viewer's picture, or what the socket takes of it.
fn turn(
    viewer: &mut Viewer,
    progress: &mut Progress,
    plan: &Plan<'_>,
    done: &mut CameraAccount,
) -> io::Result<()> {
    let len = plan.picture.len();
    let is_tcp = matches!(viewer, Viewer::Tcp(_));
    if let Viewer::Tcp(socket) = viewer
        && plan.hand_over == HandOver::FullPages
        && progress.offset == 0
    {
        done.system_calls += 1;
        set_tcp_cork(socket, true)?;
    }
    while progress.offset < len {
        done.system_calls += 1;
        let taken = match hand_over(viewer, progress.offset, plan) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A full UDP socket has room again at once: its datagrams wait for nobody.
                progress.has_room = !is_tcp;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        progress.offset += taken;
        *if is_tcp { &mut done.tcp_bytes } else { &mut done.udp_bytes } += taken as u64;
    }
    if let Viewer::Tcp(socket) = viewer
        && plan.hand_over == HandOver::FullPages
    {
        done.system_calls += 1;
        set_tcp_cork(socket, false)?;
    }
    (progress.offset, progress.picture) = (0, progress.picture + 1);
    *if is_tcp { &mut done.tcp_pictures } else { &mut done.udp_pictures } += 1;
    Ok(())
}

/// One call.
fn hand_over(viewer: &mut Viewer, offset: usize, plan: &Plan<'_>) -> io::Result<usize> {
    let rest = &plan.picture.mapped()[offset..];
    match viewer {
        Viewer::Tcp(socket) => {
            let bytes = match plan.hand_over {
                HandOver::Copy => return Ok(rustix::io::write(socket.as_fd(), rest)?),
                HandOver::Whole | HandOver::Server => rest.len(),
                HandOver::Pages | HandOver::FullPages => rest.len().min(PAGE - offset % PAGE),
            };
            let mut place = offset as u64;
            Ok(rustix::fs::sendfile(socket.as_fd(), plan.picture.file(), Some(&mut place), bytes)?)
        }
        Viewer::Udp(socket) => socket.send(&rest[..rest.len().min(plan.datagram)]),
        Viewer::UdpBatches(socket, to) => {
            let outgoing =
                Outgoing { to: *to, from: None, ecn: None, bytes: rest, segment: Some(plan.datagram) };
            match socket.send(&outgoing)? {
                Sent::All => Ok(rest.len()),
                Sent::Part(0) => Err(io::ErrorKind::WouldBlock.into()),
                Sent::Part(bytes) => Ok(bytes),
                Sent::TooLarge(_) => Err(io::Error::other("a datagram is larger than the link's packets")),
            }
        }
    }
}
