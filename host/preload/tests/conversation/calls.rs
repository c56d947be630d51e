//! The C library's calls, with their results as text.

use std::ffi::c_void;
use std::mem::{size_of, zeroed};

use libc::{c_int, iovec, mmsghdr, msghdr, sockaddr, sockaddr_storage, ssize_t};

/// A result and its error number.
pub(crate) fn result(returned: ssize_t) -> String {
    if returned >= 0 {
        return returned.to_string();
    }
    let error = std::io::Error::last_os_error();
    format!("-1 errno {}", error.raw_os_error().unwrap_or(0))
}

fn digest(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    let first: Vec<u8> = bytes.iter().copied().take(6).collect();
    format!("{first:?} {sum:x}")
}

/// The address without its port, which differs from run to run.
fn address(storage: &sockaddr_storage, len: u32) -> String {
    let bytes = (&raw const *storage).cast::<u8>();
    // SAFETY: a sockaddr_storage is plain bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, 28) };
    format!("family {} ip {:?} len {len}", storage.ss_family, &bytes[4..24])
}

pub(crate) fn recv(fd: c_int, len: usize, flags: c_int) -> String {
    let mut buffer = vec![0xEE_u8; len];
    // SAFETY: the buffer has this length.
    let returned = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast::<c_void>(), len, flags) };
    format!("recv {len} {flags:x}: {} {}", result(returned), digest(&buffer))
}

pub(crate) fn read(fd: c_int, len: usize) -> String {
    let mut buffer = vec![0xEE_u8; len];
    // SAFETY: the buffer has this length.
    let returned = unsafe { libc::read(fd, buffer.as_mut_ptr().cast::<c_void>(), len) };
    format!("read {len}: {} {}", result(returned), digest(&buffer))
}

fn vectors(buffer: &mut [u8], parts: &[usize]) -> Vec<iovec> {
    let mut at = 0;
    parts
        .iter()
        .map(|len| {
            let vector =
                iovec { iov_base: buffer[at..at + len].as_mut_ptr().cast::<c_void>(), iov_len: *len };
            at += len;
            vector
        })
        .collect()
}

pub(crate) fn readv(fd: c_int, parts: &[usize]) -> String {
    let mut buffer = vec![0xEE_u8; parts.iter().sum()];
    let vectors = vectors(&mut buffer, parts);
    // SAFETY: the vectors describe the buffer.
    let returned = unsafe { libc::readv(fd, vectors.as_ptr(), vectors.len() as c_int) };
    format!("readv {parts:?}: {} {}", result(returned), digest(&buffer))
}

pub(crate) fn recvfrom(fd: c_int, len: usize, flags: c_int, room: Option<u32>) -> String {
    let mut buffer = vec![0xEE_u8; len];
    // SAFETY: plain bytes.
    let mut name = unsafe { zeroed::<sockaddr_storage>() };
    let mut name_len = room.unwrap_or(0);
    let place = if room.is_some() { (&raw mut name).cast::<sockaddr>() } else { std::ptr::null_mut() };
    // SAFETY: the buffer has this length, and the address at least the room.
    let returned = unsafe {
        libc::recvfrom(fd, buffer.as_mut_ptr().cast::<c_void>(), len, flags, place, &raw mut name_len)
    };
    let from = address(&name, name_len);
    format!("recvfrom {len} {flags:x} {room:?}: {} {} {from}", result(returned), digest(&buffer))
}

/// Names and sizes of control messages; their contents where they do not depend on the run.
fn control(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while rest.len() >= 16 {
        let len = usize::from_ne_bytes(rest[..8].try_into().expect("eight bytes"));
        let level = c_int::from_ne_bytes(rest[8..12].try_into().expect("four bytes"));
        let kind = c_int::from_ne_bytes(rest[12..16].try_into().expect("four bytes"));
        if len < 16 {
            return text + " none";
        }
        let data = &rest[16..len.clamp(16, rest.len())];
        let is_time = level == libc::SOL_SOCKET;
        text += &format!(" [{level} {kind} len {len}");
        text += &if is_time { "]".to_owned() } else { format!(" {data:?}]") };
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    text
}

struct Message {
    buffer: Vec<u8>,
    vectors: Vec<iovec>,
    name: Box<sockaddr_storage>,
    control: Vec<u64>,
}

impl Message {
    fn new(parts: &[usize], room: usize) -> Self {
        let mut buffer = vec![0xEE_u8; parts.iter().sum()];
        let vectors = vectors(&mut buffer, parts);
        // SAFETY: plain bytes.
        let name = Box::new(unsafe { zeroed::<sockaddr_storage>() });
        Self { buffer, vectors, name, control: vec![0; room.div_ceil(8)] }
    }

    fn header(&mut self, with_name: bool, room: usize) -> msghdr {
        // SAFETY: plain bytes.
        let mut header = unsafe { zeroed::<msghdr>() };
        if with_name {
            header.msg_name = (&raw mut *self.name).cast::<c_void>();
            header.msg_namelen = size_of::<sockaddr_storage>() as u32;
        }
        header.msg_iov = self.vectors.as_mut_ptr();
        header.msg_iovlen = self.vectors.len();
        if room > 0 {
            header.msg_control = self.control.as_mut_ptr().cast::<c_void>();
        }
        header.msg_controllen = room;
        header
    }

    fn text(&self, header: &msghdr) -> String {
        let used = header.msg_controllen.min(self.control.len() * 8);
        // SAFETY: the bytes of a vector of integers.
        let bytes = unsafe { std::slice::from_raw_parts(self.control.as_ptr().cast::<u8>(), used) };
        format!(
            "{} {} flags {:x} control {}{}",
            digest(&self.buffer),
            address(&self.name, header.msg_namelen),
            header.msg_flags,
            header.msg_controllen,
            control(bytes),
        )
    }
}

pub(crate) fn recvmsg(fd: c_int, parts: &[usize], flags: c_int, with_name: bool, room: usize) -> String {
    let mut message = Message::new(parts, room);
    let mut header = message.header(with_name, room);
    // SAFETY: the header describes the message's buffers.
    let returned = unsafe { libc::recvmsg(fd, &raw mut header, flags) };
    let returned = result(returned);
    format!("recvmsg {parts:?} {flags:x} {with_name} {room}: {returned} {}", message.text(&header))
}

pub(crate) fn recvmmsg(fd: c_int, count: usize, flags: c_int) -> String {
    let mut messages: Vec<_> = (0..count).map(|_| Message::new(&[2000], 128)).collect();
    let mut headers: Vec<_> = messages
        .iter_mut()
        .map(|message| mmsghdr { msg_hdr: message.header(true, 128), msg_len: 0xEEEE })
        .collect();
    // SAFETY: the headers describe the messages' buffers.
    let returned =
        unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count as u32, flags, std::ptr::null_mut()) };
    let mut text = format!("recvmmsg {count} {flags:x}: {}", result(returned as ssize_t));
    for (message, header) in messages.iter().zip(&headers).take(usize::try_from(returned).unwrap_or(0)) {
        text += &format!(" / {} {}", header.msg_len, message.text(&header.msg_hdr));
    }
    text
}

pub(crate) fn fionread(fd: c_int) -> String {
    let mut len: c_int = -7;
    // SAFETY: the request writes an int.
    let returned = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut len) };
    format!("FIONREAD: {} {len}", result(returned as ssize_t))
}

pub(crate) fn poll(fd: c_int, timeout: c_int) -> String {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
    // SAFETY: one structure.
    let returned = unsafe { libc::poll(&raw mut poll, 1, timeout) };
    format!("poll: {} {:x}", result(returned as ssize_t), poll.revents)
}

pub(crate) fn ppoll(fd: c_int) -> String {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: one structure, a timeout, no mask.
    let returned = unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) };
    format!("ppoll: {} {:x}", result(returned as ssize_t), poll.revents)
}

pub(crate) fn select(fd: c_int) -> String {
    // SAFETY: plain bytes.
    let mut set = unsafe { zeroed::<libc::fd_set>() };
    // SAFETY: the descriptor is small.
    unsafe { libc::FD_SET(fd, &raw mut set) };
    let mut timeout = libc::timeval { tv_sec: 0, tv_usec: 1000 };
    let null = std::ptr::null_mut();
    // SAFETY: the set and the timeout are locals.
    let returned = unsafe { libc::select(fd + 1, &raw mut set, null, null, &raw mut timeout) };
    format!("select: {}", result(returned as ssize_t))
}

pub(crate) fn epoll_wait(epoll: c_int) -> String {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    let returned = unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 0) };
    let (events, data) = (event.events, event.u64);
    format!("epoll_wait: {} {events:x} {data}", result(returned as ssize_t))
}
