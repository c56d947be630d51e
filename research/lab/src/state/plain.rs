//! State as programs send it by themselves: all of it at each tick, or from a mailbox of one for each object.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::now;
use freshwire_io::tcp::TcpSocket;
use freshwire_record::Timestamp;

use super::schema::{Plan, SenderAccount};
use super::source::Ticks;
use super::{scheme, value};
use crate::scheme::{TCP, TCP_SMALL_BUFFER};

/// Size of a small send buffer; the kernel doubles it.
const SMALL_BUFFER: usize = 8 << 10;

/// How long one write waits at most, so that the end is noticed.
const WATCH: Duration = Duration::from_millis(50);

/// How often a mailbox looks whether its kernel's queue is empty.
const LOOK: Duration = Duration::from_micros(500);

/// Payload of a segment: what a mailbox hands over at a time that keeps the kernel's queue short.
const SEGMENT: usize = 1448;

/// Bytes that a mailbox hands over at a time otherwise.
const BATCH: usize = 16 << 10;

/// Whether the scheme is one of these.
pub(super) fn is_plain(scheme: &str) -> bool {
    [TCP, TCP_SMALL_BUFFER, scheme::MAILBOX, scheme::MAILBOX_LOWAT].contains(&scheme)
}

/// Sends from `start` for as long as the source makes values; `socket` looks at the stream.
pub(super) fn send(
    plan: &Plan,
    stream: &TcpStream,
    socket: &TcpSocket,
    start: Timestamp,
) -> anyhow::Result<SenderAccount> {
    // `TcpSocket` has made it non-blocking, and has switched Nagle's delay off.
    stream.set_nonblocking(false).context("cannot make a socket block")?;
    stream.set_write_timeout(Some(WATCH)).context("cannot set a time-out")?;
    stream.set_nodelay(plan.scheme != TCP).context("cannot set Nagle's delay")?;
    match plan.scheme.as_str() {
        TCP => all_at_each_tick(plan, stream, start),
        TCP_SMALL_BUFFER => {
            socket.set_send_buffer(SMALL_BUFFER)?;
            all_at_each_tick(plan, stream, start)
        }
        scheme::MAILBOX_LOWAT => {
            socket.set_notsent_lowat(1)?;
            from_mailbox(plan, stream, Some(socket), start)
        }
        _ => from_mailbox(plan, stream, None, start),
    }
}

/// A loop that writes all objects and blocks in the write, and goes on with the tick that is then.
fn all_at_each_tick(plan: &Plan, stream: &TcpStream, start: Timestamp) -> anyhow::Result<SenderAccount> {
    let mut ticks = Ticks::new(plan, start);
    let mut says = SenderAccount::default();
    let mut bytes = Vec::new();
    while let Some(tick) = ticks.next() {
        bytes.clear();
        (0..plan.objects).for_each(|key| value::write(key, tick, plan.value_bytes, &mut bytes));
        says.offered += u64::from(plan.objects);
        if !write(stream, &bytes, start + plan.duration())? {
            break;
        }
    }
    says.application_bytes = bytes.capacity() as u64;
    says.skipped_ticks = ticks.skipped;
    says.lateness_us = ticks.lateness_us();
    Ok(says)
}

/// Writes all of it. False: the time is over, or the reader has gone.
fn write(mut stream: &TcpStream, mut bytes: &[u8], end: Timestamp) -> anyhow::Result<bool> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                // The reader stops when its time is over.
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Ok(false),
                _ => return Err(error).context("cannot write"),
            },
        }
        if now() >= end {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The newest value of each object that has not been written; the writer goes round.
struct Mailbox {
    ticks: Vec<Option<u32>>,
    /// The object with the next turn.
    turn: usize,
    waiting: usize,
    has_ended: bool,
}

impl Mailbox {
    fn put(&mut self, key: u32, tick: u32) {
        if self.ticks[key as usize].replace(tick).is_none() {
            self.waiting += 1;
        }
    }

    /// Appends values, from the one whose turn it is on, as long as they fit into `most` bytes.
    fn take(&mut self, value_bytes: u32, most: usize, out: &mut Vec<u8>) {
        let fit = (most / value_bytes as usize).max(1).min(self.waiting);
        self.waiting -= fit;
        for _ in 0..fit {
            while self.ticks[self.turn].is_none() {
                self.turn = (self.turn + 1) % self.ticks.len();
            }
            if let Some(tick) = self.ticks[self.turn].take() {
                value::write(self.turn as u32, tick, value_bytes, out);
            }
        }
    }
}

/// A source that puts each value in its mailbox, and a writer that empties them in turn. With `gate` it writes a segment at
/// a time, and only when the kernel has none that is unsent.
fn from_mailbox(
    plan: &Plan,
    stream: &TcpStream,
    gate: Option<&TcpSocket>,
    start: Timestamp,
) -> anyhow::Result<SenderAccount> {
    let mailbox = Mailbox { ticks: vec![None; plan.objects as usize], turn: 0, waiting: 0, has_ended: false };
    let (mailbox, filled) = (Mutex::new(mailbox), Condvar::new());
    let end = start + plan.duration();
    let (mailbox, filled) = (&mailbox, &filled);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut bytes = Vec::new();
            loop {
                if !gate.map_or(Ok(true), |socket| wait_for_room(socket, end))? {
                    return anyhow::Ok(());
                }
                bytes.clear();
                {
                    let held = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut held = filled
                        .wait_while(held, |mailbox| mailbox.waiting == 0 && !mailbox.has_ended)
                        .unwrap_or_else(PoisonError::into_inner);
                    if held.has_ended {
                        return Ok(());
                    }
                    held.take(plan.value_bytes, if gate.is_some() { SEGMENT } else { BATCH }, &mut bytes);
                }
                if !write(stream, &bytes, end)? {
                    return Ok(());
                }
            }
        });
        let mut ticks = Ticks::new(plan, start);
        let mut says = SenderAccount::default();
        while let Some(tick) = ticks.next() {
            let mut held = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            (0..plan.objects).for_each(|key| held.put(key, tick));
            says.offered += u64::from(plan.objects);
            filled.notify_one();
        }
        mailbox.lock().unwrap_or_else(PoisonError::into_inner).has_ended = true;
        filled.notify_one();
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        says.application_bytes = u64::from(plan.objects) * u64::from(plan.value_bytes);
        says.skipped_ticks = ticks.skipped;
        says.lateness_us = ticks.lateness_us();
        Ok(says)
    })
}

/// Waits until everything that was written is on the wire. False: the time is over.
fn wait_for_room(socket: &TcpSocket, end: Timestamp) -> anyhow::Result<bool> {
    while socket.unsent().context("cannot ask what is unsent")? > 0 {
        if now() >= end {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_keeps_the_newest_and_goes_round() {
        let mut mailbox = Mailbox { ticks: vec![None; 3], turn: 0, waiting: 0, has_ended: false };
        for (key, tick) in [(0, 1), (1, 1), (2, 1), (0, 2)] {
            mailbox.put(key, tick);
        }
        let mut bytes = Vec::new();
        mailbox.take(16, 32, &mut bytes);
        let read: Vec<_> = bytes.chunks_exact(16).map(|value| value::read(value).unwrap()).collect();
        assert_eq!(read, [(0, 2), (1, 1)]);
        mailbox.put(0, 3);
        bytes.clear();
        mailbox.take(16, 1000, &mut bytes);
        let read: Vec<_> = bytes.chunks_exact(16).map(|value| value::read(value).unwrap()).collect();
        assert_eq!(read, [(2, 1), (0, 3)], "who has waited goes first");
        assert_eq!(mailbox.waiting, 0);
    }
}
