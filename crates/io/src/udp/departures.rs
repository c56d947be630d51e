//! When single datagrams entered the queueing discipline and left for the device, as the kernel saw it (`SO_TIMESTAMPING`).
//!
//! The kernel notes only the datagrams that ask for it, by the number that they ask with, so that others cost nothing.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use freshwire_record::Timestamp;

use super::control::{Control, Ends, send};
use super::datagram::Ecn;
use crate::stamps::{self, NUMBERED, Stage, TX_SCHED, TX_SOFTWARE};

/// A datagram has reached a stage of its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartureNote {
    /// The number given to [`send_noted`].
    pub id: u32,
    /// The stage: [`Stage::Scheduled`] or [`Stage::Departed`].
    pub stage: Stage,
    /// When.
    pub at: Timestamp,
}

/// Prepares a socket for [`send_noted`]. While notes wait in the socket's error queue, pollers report an error of the socket.
///
/// # Errors
///
/// With [`io::ErrorKind::Unsupported`] before Linux 6.13, which cannot number datagrams as the program wants. If the kernel refuses the
/// option.
pub fn note_departures(socket: impl AsFd) -> io::Result<()> {
    if !can_number()? {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel does not note departures of datagrams: Linux 6.13 or newer is needed (SCM_TS_OPT_ID)",
        ));
    }
    stamps::set(socket.as_fd(), FLAGS)
}

/// Sends one datagram, to where the socket is connected without `to`. The kernel notes when it leaves, with this number. One that the
/// queueing discipline drops never departs.
///
/// # Errors
///
/// As sendmsg(2), and if [`note_departures`] was not called.
pub fn send_noted(socket: impl AsFd, to: Option<SocketAddr>, bytes: &[u8], id: u32) -> io::Result<()> {
    let mut control = Control::new();
    ask_note(&mut control, id);
    send(socket.as_fd(), to, bytes, &mut control)
}

/// Adds the notes since the last call to `out`, for each datagram those of its stages. Times are as exact as
/// [`CLOCK_GAP`](crate::tcp::CLOCK_GAP) says. One system call more than there are notes.
///
/// # Errors
///
/// If the kernel refuses to read its error queue.
pub fn departures(socket: impl AsFd, out: &mut Vec<DepartureNote>) -> io::Result<()> {
    stamps::read(socket.as_fd(), |stage, id, at| out.push(DepartureNote { id, stage, at }))
}

/// Sends a datagram with its congestion mark, whose departure the kernel notes.
pub(super) fn send_marked(
    socket: BorrowedFd<'_>,
    ends: &Ends,
    ecn: Option<Ecn>,
    bytes: &[u8],
    id: u32,
) -> io::Result<()> {
    let mut control = Control::new();
    if let Some(ip) = ends.from {
        control.source(ip, ends.is_v4);
    }
    if let Some(ecn) = ecn {
        let class = libc::c_int::from(ecn.bits()).to_ne_bytes();
        match ends.is_v4 {
            true => control.put(libc::IPPROTO_IP, libc::IP_TOS, &class),
            false => control.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class),
        }
    }
    ask_note(&mut control, id);
    send(socket, Some(ends.to), bytes, &mut control)
}

/// Asks for notes of this datagram.
pub(super) fn ask_note(control: &mut Control, id: u32) {
    control.put(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &(TX_SCHED | TX_SOFTWARE).to_ne_bytes());
    control.put(libc::SOL_SOCKET, SCM_TS_OPT_ID, &id.to_ne_bytes());
}

/// Without a time for each datagram that comes (`SOF_TIMESTAMPING_OPT_RX_FILTER`): another program may have asked for those, and they
/// would take the room of other control messages.
const FLAGS: u32 = NUMBERED | (1 << 17);
/// `asm-generic/socket.h`: the number of a datagram's notes.
const SCM_TS_OPT_ID: libc::c_int = 81;

/// Whether the kernel takes numbers from the program. A datagram of a socket to itself shows it: no version number tells, since
/// distributions take features over.
fn can_number() -> io::Result<bool> {
    static CAN: OnceLock<bool> = OnceLock::new();
    if let Some(can) = CAN.get() {
        return Ok(*can);
    }
    let socket = StdSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let can = stamps::set(socket.as_fd(), FLAGS).is_ok() && {
        let to = socket.local_addr()?;
        // Control messages are looked at before the route.
        send_noted(&socket, Some(to), &[], 0)
            .map_or_else(|error| error.raw_os_error() != Some(libc::EINVAL), |()| true)
    };
    Ok(*CAN.get_or_init(|| can))
}
