//! Writes to many sockets with one system call, by io_uring.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};

use io_uring::{IoUring, opcode, types};

use super::{IoSlice, SEND_FLAGS, TcpSocket};

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchWrite<'a> {
    /// The socket, which nobody else writes to.
    pub socket: &'a TcpSocket,
    /// What to send, in order.
    pub slices: &'a [IoSlice],
}

/// Writes to many sockets with one system call.
///
/// Besides the entry into the kernel it saves what follows each write: on its way back from the kernel a program gives way to whoever
/// the write has woken.
pub struct SendBatch {
    ring: IoUring,
    messages: Vec<Message>,
}

/// What the kernel reads of a write.
struct Message(libc::msghdr);

// SAFETY: the pointers in it are only used while `SendBatch::send` borrows what they point to.
unsafe impl Send for Message {}

impl SendBatch {
    /// The most writes of one batch. Chosen, not measured.
    pub const MOST: usize = 64;

    /// Makes a ring.
    ///
    /// # Errors
    ///
    /// If the kernel has no io_uring, or the system forbids it, as many containers do (`kernel.io_uring_disabled`, seccomp).
    pub fn new() -> io::Result<Self> {
        let entries = Self::MOST as u32;
        // Kernels before 5.19 do not know the flag, which saves interrupts of this thread by its own completions.
        let ring =
            IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))?;
        Ok(Self { ring, messages: Vec::with_capacity(Self::MOST) })
    }

    /// Writes as much as each socket takes now, and adds a result for each to `sent`, in the order of `writes`. A batch takes at most
    /// [`MOST`](Self::MOST) writes and ignores further ones. `Ok(None)`: nothing could be taken.
    ///
    /// # Errors
    ///
    /// If the ring itself fails; the batch is of no more use. `sent` has a result for each write all the same: `Ok(None)` for one that
    /// did not start.
    ///
    /// # Safety
    ///
    /// Every slice describes memory that stays mapped and readable during the call. Other threads or processes may write to it
    /// meanwhile; the kernel then sends old or new bytes.
    pub unsafe fn send(
        &mut self,
        writes: &[BatchWrite<'_>],
        sent: &mut Vec<io::Result<Option<usize>>>,
    ) -> io::Result<()> {
        let count = writes.len().min(Self::MOST);
        self.messages.clear();
        self.messages.extend(writes.iter().take(count).map(|write| Message::new(write.slices)));
        let sockets = writes.iter().map(|write| write.socket.0.as_raw_fd());
        let entries = sockets.zip(self.messages.iter().map(|message| &raw const message.0));
        let mut results = [None; Self::MOST];
        // SAFETY: messages and slices are there until this function returns, and the caller vouches for the bytes.
        let outcome = unsafe { submit(&mut self.ring, entries, &mut results) };
        // With a failing ring, a write without a result may stand before one whose bytes are sent.
        sent.extend(results.iter().take(count).map(|result| taken(result.unwrap_or(-libc::EAGAIN))));
        outcome
    }

    /// Makes a `sendmsg` of each socket and message, at most [`MOST`](Self::MOST). The result of each is put into `results`; `None` is one
    /// that did not start.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Safety
    ///
    /// Each message describes memory that stays mapped and readable during the call.
    pub(crate) unsafe fn submit(
        &mut self,
        entries: impl Iterator<Item = (RawFd, *const libc::msghdr)>,
        results: &mut [Option<i32>; Self::MOST],
    ) -> io::Result<()> {
        // SAFETY: as the caller has promised.
        unsafe { submit(&mut self.ring, entries, results) }
    }
}

#[cfg(test)]
impl SendBatch {
    /// The kernel takes nothing of a ring that is not enabled yet.
    pub(crate) fn that_fails() -> Self {
        let ring = IoUring::builder().setup_r_disabled().build(Self::MOST as u32).unwrap();
        Self { ring, messages: Vec::new() }
    }
}

/// See [`SendBatch::submit`].
///
/// # Safety
///
/// As [`SendBatch::submit`].
unsafe fn submit(
    ring: &mut IoUring,
    entries: impl Iterator<Item = (RawFd, *const libc::msghdr)>,
    results: &mut [Option<i32>; SendBatch::MOST],
) -> io::Result<()> {
    let mut left = 0;
    for (place, (socket, message)) in entries.take(SendBatch::MOST).enumerate() {
        let entry = opcode::SendMsg::new(types::Fd(socket), message).flags(SEND_FLAGS as u32).build();
        // SAFETY: the caller vouches for the message. By `MSG_DONTWAIT` the kernel completes the write while it is submitted, so that it
        // reads nothing of it later.
        let queued = unsafe { ring.submission().push(&entry.user_data(place as u64)) };
        debug_assert!(queued.is_ok(), "the queue has `MOST` entries and is empty before each batch");
        left += 1;
    }
    while left > 0 {
        let outcome = ring.submit_and_wait(left);
        for completion in ring.completion() {
            let place = usize::try_from(completion.user_data()).ok();
            if let Some(result) = place.and_then(|place| results.get_mut(place)) {
                *result = Some(completion.result());
                left = left.saturating_sub(1);
            }
        }
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Message {
    fn new(slices: &[IoSlice]) -> Self {
        // SAFETY: a zeroed msghdr is a valid value of that C type.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = slices.as_ptr().cast_mut().cast();
        message.msg_iovlen = slices.len();
        Self(message)
    }
}

fn taken(result: i32) -> io::Result<Option<usize>> {
    match usize::try_from(result) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) if result == -libc::EAGAIN || result == -libc::EINTR => Ok(None),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pairs(count: usize) -> (Vec<TcpSocket>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (TcpSocket::new(near).unwrap(), listener.accept().unwrap().0)
        };
        (0..count).map(|_| pair()).unzip()
    }

    pub(crate) fn slice(bytes: &[u8]) -> IoSlice {
        IoSlice::new(bytes.as_ptr(), bytes.len())
    }

    /// `None` where the system has no io_uring.
    pub(crate) fn batch() -> Option<SendBatch> {
        match SendBatch::new() {
            Ok(batch) => Some(batch),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "io_uring is needed: {error}");
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    #[test]
    fn each_socket_gets_its_own_bytes_in_order() {
        let Some(mut batch) = batch() else { return };
        let (near, mut far) = pairs(SendBatch::MOST);
        for round in 0..3_u8 {
            let heads: Vec<[u8; 2]> = (0..near.len()).map(|place| [round, place as u8]).collect();
            let body = [9; 5000];
            let slices: Vec<[IoSlice; 2]> = heads.iter().map(|head| [slice(head), slice(&body)]).collect();
            let writes: Vec<_> =
                near.iter().zip(&slices).map(|(near, slices)| BatchWrite { socket: near, slices }).collect();
            let mut sent = Vec::new();
            // SAFETY: heads and body outlive the call.
            unsafe { batch.send(&writes, &mut sent) }.unwrap();
            assert_eq!(sent.len(), near.len());
            assert!(sent.iter().all(|sent| matches!(sent, Ok(Some(5002)))), "{sent:?}");
            for (place, far) in far.iter_mut().enumerate() {
                let mut bytes = [0; 5002];
                far.read_exact(&mut bytes).unwrap();
                assert_eq!((bytes[0], bytes[1]), (round, place as u8));
                assert!(bytes[2..].iter().all(|&byte| byte == 9));
            }
        }
    }

    #[test]
    fn a_full_socket_and_a_broken_one_harm_no_other() {
        let Some(mut batch) = batch() else { return };
        let (near, mut far) = pairs(3);
        let body = vec![1; 16 << 20];
        let (whole, some) = ([slice(&body)], [slice(&body[..100])]);
        near[2].finish().unwrap();
        let mut sent = Vec::new();
        let write = |place: usize, slices| BatchWrite { socket: &near[place], slices };
        // SAFETY: the body outlives the call.
        unsafe { batch.send(&[write(0, &whole), write(1, &some), write(2, &some)], &mut sent) }.unwrap();
        assert!(matches!(sent[0], Ok(Some(taken)) if taken < body.len()), "a part of it: {sent:?}");
        assert!(matches!(sent[1], Ok(Some(100))), "{sent:?}");
        assert!(matches!(&sent[2], Err(error) if error.kind() == io::ErrorKind::BrokenPipe), "{sent:?}");
        // The far end's buffer may still grow for a while.
        let is_full = (0..1000).any(|_| {
            sent.clear();
            // SAFETY: the body outlives the call.
            unsafe { batch.send(&[write(0, &whole)], &mut sent) }.unwrap();
            matches!(sent[..], [Ok(None)])
        });
        assert!(is_full, "nobody reads, and nothing waits: {sent:?}");
        far[1].read_exact(&mut [0; 100]).unwrap();
    }
    #[test]
    fn ring_that_fails_has_a_result_for_each_write() {
        if batch().is_none() {
            return;
        }
        let mut batch = SendBatch::that_fails();
        let (near, _far) = pairs(3);
        let body = [1; 100];
        let slices = [slice(&body)];
        let writes: Vec<_> = near.iter().map(|socket| BatchWrite { socket, slices: &slices }).collect();
        let mut sent = Vec::new();
        // SAFETY: the body outlives the call.
        let outcome = unsafe { batch.send(&writes, &mut sent) };
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EBADFD));
        assert_eq!(sent.len(), writes.len());
        assert!(sent.iter().all(|sent| matches!(sent, Ok(None))), "{sent:?}");
    }
}
