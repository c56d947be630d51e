//! When bytes entered the queueing discipline, left for the device and were acknowledged, as the kernel saw it (`SO_TIMESTAMPING`),
//! whenever that is asked.

use std::io;
use std::os::fd::AsFd;

use freshwire_record::Timestamp;

use super::TcpSocket;
use crate::stamps::{self, NUMBERED, Stage, TX_ACK, TX_SCHED, TX_SOFTWARE};

/// When bytes reached a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTime {
    /// The stage.
    pub stage: Stage,
    /// All bytes up to here had reached it, counted from when the times were [asked for](TcpSocket::tell_ack_times), modulo 2^32.
    pub bytes: u32,
    /// When.
    pub at: Timestamp,
}

impl TcpSocket {
    /// Has the kernel note when the last byte of each write is acknowledged. The bytes that its counts are ahead: those that were on
    /// the way, on kernels before 6.2. `Ok(None)`: this kernel does not do that.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option for another reason than its age.
    pub fn tell_ack_times(&self) -> io::Result<Option<u32>> {
        self.tell(NUMBERED | TX_ACK)
    }

    /// The same for all stages. Bytes of two writes have times of their own only where
    /// [`send_apart`](TcpSocket::send_apart) kept them apart.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option for another reason than its age.
    pub fn tell_all_times(&self) -> io::Result<Option<u32>> {
        self.tell(NUMBERED | TX_ACK | TX_SCHED | TX_SOFTWARE)
    }

    fn tell(&self, flags: u32) -> io::Result<Option<u32>> {
        if stamps::set(self.as_fd(), flags | OPT_ID_TCP).is_ok() {
            return Ok(Some(0));
        }
        let ahead = u32::try_from(self.unacknowledged()?).unwrap_or(0);
        Ok(stamps::set(self.as_fd(), flags).is_ok().then_some(ahead))
    }

    /// Adds the times since the last call to `out`. The kernel notes them by the wall clock. The conversion has an error of at
    /// most [`CLOCK_GAP`](super::CLOCK_GAP), unless the processor is taken away three times in a row. A step of the wall clock meanwhile adds to it.
    /// One system call more than there are; a poller reports the socket as [noted](crate::poll::Ready::noted) while there are any.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to read its error queue.
    pub fn ack_times(&self, out: &mut Vec<AckTime>) -> io::Result<()> {
        stamps::read(self.as_fd(), |stage, last, at| {
            out.push(AckTime { stage, bytes: last.wrapping_add(1), at });
        })
    }
}

/// Bytes are counted from what was written last, Linux 6.2 and later.
const OPT_ID_TCP: u32 = 1 << 16;
