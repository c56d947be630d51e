//! The kernel's notes of when data reached a stage on its way out (`SO_TIMESTAMPING`), which lie in a socket's error queue.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use freshwire_record::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// A stage on the way to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// They entered the queueing discipline of the interface.
    Scheduled,
    /// The driver has them for the device.
    Departed,
    /// The peer has acknowledged them.
    Acked,
}

/// Gives the notes since the last call to `each`: the stage, the number of the data, and when. One system call more than there are.
pub(crate) fn read(socket: BorrowedFd<'_>, mut each: impl FnMut(Stage, u32, Timestamp)) -> io::Result<()> {
    let mut clocks = None;
    for _ in 0..MAX_PER_CALL {
        let Some((stage, number, real)) = receive(socket)? else { return Ok(()) };
        let (now, real_now) = *clocks.get_or_insert_with(both_clocks);
        // A wall clock that was set meanwhile is the caller's to notice: the time lies outside of what can be.
        each(stage, number, now - real_now.saturating_sub(real));
    }
    Ok(())
}

/// The socket reports at most this many at once; the poller reports the rest. Chosen, not measured.
const MAX_PER_CALL: usize = 1024;

/// Flags of `linux/net_tstamp.h`: software times with the data's number, and without the packet.
pub(crate) const NUMBERED: u32 = (1 << 4) | (1 << 7) | (1 << 11);
/// Times of acknowledgements, of the queueing discipline, and of the driver.
pub(crate) const TX_ACK: u32 = 1 << 9;
pub(crate) const TX_SCHED: u32 = 1 << 8;
pub(crate) const TX_SOFTWARE: u32 = 1 << 1;
/// Origin of a report (`linux/errqueue.h`).
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;
/// What a report is about, by number (`linux/errqueue.h`).
const STAGES: [Stage; 3] = [Stage::Departed, Stage::Scheduled, Stage::Acked];

/// Sets `SO_TIMESTAMPING` to these flags.
pub(crate) fn set(socket: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `flags`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for the control messages of one report, aligned as they have to be.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// One report of the socket's error queue: stage, number, and the time since the epoch. Other reports are passed over.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Stage, u32, Duration)>> {
    loop {
        let mut control = Control([0; 256]);
        // SAFETY: a zeroed msghdr is a valid value of that C type.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        // SAFETY: `message` describes `control`, which outlives the call, and no other memory.
        let result = unsafe {
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => continue,
                io::ErrorKind::WouldBlock => return Ok(None),
                _ => return Err(error),
            }
        }
        if let Some(report) = parse(&message) {
            return Ok(Some(report));
        }
    }
}

fn parse(message: &libc::msghdr) -> Option<(Stage, u32, Duration)> {
    let (mut time, mut number) = (None, None);
    // SAFETY: the kernel has filled the control messages that `message` describes.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while let Some(header) = std::ptr::NonNull::new(next) {
        // SAFETY: it lies within the control messages, as the macros checked.
        let head = unsafe { header.read_unaligned() };
        // SAFETY: as above; the data follows the head.
        let data = unsafe { libc::CMSG_DATA(header.as_ptr()) };
        #[allow(clippy::unnecessary_cast, reason = "with musl it has another type")]
        let len = (head.cmsg_len as usize).saturating_sub(size_of::<libc::cmsghdr>());
        match (head.cmsg_level, head.cmsg_type) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) if len >= size_of::<libc::timespec>() => {
                // SAFETY: there is that much data, and any bytes are a value of that type.
                let stamp = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                let seconds = u64::try_from(stamp.tv_sec).unwrap_or(0);
                time = Some(Duration::new(seconds, u32::try_from(stamp.tv_nsec).unwrap_or(0)));
            }
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
                if len >= size_of::<libc::sock_extended_err>() =>
            {
                // SAFETY: there is that much data, and any bytes are a value of that type.
                let report = unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
                let stage = STAGES.get(report.ee_info as usize);
                let stage = stage.filter(|_| report.ee_origin == SO_EE_ORIGIN_TIMESTAMPING);
                number = stage.map(|&stage| (stage, report.ee_data));
            }
            _ => {}
        }
        // SAFETY: `header` is one of `message`'s.
        next = unsafe { libc::CMSG_NXTHDR(message, header.as_ptr()) };
    }
    let ((stage, number), time) = number.zip(time)?;
    Some((stage, number, time))
}

/// The error that the conversion of times from the wall clock may have before it is tried again: two readings of a clock take less
/// than a tenth of it. Chosen, not measured.
pub const CLOCK_GAP: Duration = Duration::from_micros(10);

/// One moment by the two clocks: the wall clock is read between two readings of the other.
fn both_clocks() -> (Timestamp, Duration) {
    let read = || {
        let (before, real, after) = (crate::now(), since_epoch(), crate::now());
        let gap = after.saturating_since(before);
        (gap, before + gap / 2, real)
    };
    let mut best = read();
    for _ in 0..2 {
        if best.0 <= CLOCK_GAP {
            break;
        }
        let again = read();
        if again.0 < best.0 {
            best = again;
        }
    }
    (best.1, best.2)
}

fn since_epoch() -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
