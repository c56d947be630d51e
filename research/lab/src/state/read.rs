//! The receiving program: at its pace it takes what is there, and notes when it had each value.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::a1::{Closed, Connection};
use freshwire_io::now;
use freshwire_record::Timestamp;

use super::schema::{Plan, Reader};
use super::{scheme, value};
use crate::scenario::wait_until;

/// How long one look waits at most.
const WATCH: Duration = Duration::from_millis(50);

/// How often a slow reader reads.
const SLOW_TURN: Duration = Duration::from_millis(10);

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// The source of values.
pub(super) enum Inbox<'a> {
    Tcp(Stream),
    A1(&'a Connection),
}

/// A byte stream of values of one size.
pub(super) struct Stream {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// The begin of a value whose end has not been read.
    rest: Vec<u8>,
    value_bytes: usize,
    /// The program acknowledges what it has read.
    acknowledges: bool,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, plan: &Plan) -> Self {
        let (buffer, value_bytes) = (vec![0; READ_BYTES], plan.value_bytes as usize);
        Self { socket, buffer, rest: Vec::new(), value_bytes, acknowledges: plan.scheme == scheme::GATE }
    }
}

/// Key, tick and time since the start in nanoseconds of everything that was read, in order.
pub(super) struct Notes {
    start: Timestamp,
    pub(super) read: Vec<(u32, u32, u64)>,
}

impl Notes {
    fn add(&mut self, value: &[u8], at: Timestamp) -> anyhow::Result<()> {
        let (key, tick) = value::read(value)?;
        self.read.push((key, tick, at.saturating_since(self.start).as_nanos() as u64));
        Ok(())
    }
}

/// The result of one look.
enum ReadOutcome {
    /// Bytes that were read; 0: nothing came in time.
    Bytes(usize),
    Ended,
}

impl Inbox<'_> {
    /// Takes at most `most` bytes, or a value if that is more, and waits at most `patience` for the first.
    fn look(&mut self, most: usize, patience: Duration, notes: &mut Notes) -> anyhow::Result<ReadOutcome> {
        match self {
            Self::Tcp(stream) => stream.look(most, patience, notes),
            Self::A1(connection) => match connection.recv(patience) {
                Ok(None) => Ok(ReadOutcome::Bytes(0)),
                Ok(Some(message)) => {
                    notes.add(&message.data, now())?;
                    Ok(ReadOutcome::Bytes(message.data.len()))
                }
                // The sender aborts when its time is over.
                Err(Closed::Peer { .. }) => Ok(ReadOutcome::Ended),
                Err(closed) => Err(closed).context("the connection ended"),
            },
        }
    }
}

impl Stream {
    fn look(&mut self, most: usize, patience: Duration, notes: &mut Notes) -> anyhow::Result<ReadOutcome> {
        // A timeout of zero would be none at all.
        let patience = patience.max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(patience)).context("cannot set a time-out")?;
        let most = most.clamp(1, READ_BYTES);
        let len = match self.socket.read(&mut self.buffer[..most]) {
            Ok(0) => return Ok(ReadOutcome::Ended),
            Ok(len) => len,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    return Ok(ReadOutcome::Bytes(0));
                }
                ErrorKind::ConnectionReset => return Ok(ReadOutcome::Ended),
                _ => return Err(error).context("cannot read the stream"),
            },
        };
        let at = now();
        self.rest.extend_from_slice(&self.buffer[..len]);
        let whole = self.rest.len() - self.rest.len() % self.value_bytes;
        for value in self.rest[..whole].chunks_exact(self.value_bytes) {
            notes.add(value, at)?;
        }
        self.rest.drain(..whole);
        if self.acknowledges && whole > 0 {
            let total = notes.read.len() as u64;
            match self.socket.write_all(&total.to_be_bytes()) {
                // The sender aborts when its time is over.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
                written => written.context("cannot acknowledge")?,
            }
        }
        Ok(ReadOutcome::Bytes(len))
    }
}

/// Reads from `start` for as long as the source makes values.
pub(super) fn read(plan: &Plan, mut inbox: Inbox<'_>, start: Timestamp) -> anyhow::Result<Notes> {
    let end = start + plan.duration();
    let mut notes = Notes { start, read: Vec::new() };
    match plan.reader {
        Reader::Fast => eager(&mut inbox, end, &mut notes)?,
        Reader::Slow { share } => {
            slow(&mut inbox, plan.bytes_per_s() * share, start, end, &mut notes)?;
        }
        Reader::Stalled { from_s, for_s } => {
            let from = start + Duration::from_secs_f64(from_s);
            eager(&mut inbox, from, &mut notes)?;
            wait_until(from + Duration::from_secs_f64(for_s));
            eager(&mut inbox, end, &mut notes)?;
        }
        Reader::Bursts { every_ms } => {
            let mut turn = start;
            while turn < end {
                wait_until(turn);
                while matches!(inbox.look(READ_BYTES, Duration::ZERO, &mut notes)?, ReadOutcome::Bytes(1..)) {
                }
                turn += Duration::from_secs_f64(every_ms / 1e3);
            }
        }
    }
    Ok(notes)
}

/// Reads as it comes.
fn eager(inbox: &mut Inbox<'_>, until: Timestamp, notes: &mut Notes) -> anyhow::Result<()> {
    loop {
        let left = until.saturating_since(now());
        if left.is_zero() || matches!(inbox.look(READ_BYTES, left.min(WATCH), notes)?, ReadOutcome::Ended) {
            return Ok(());
        }
    }
}

/// Reads `bytes_per_s`, each turn its part; a turn does not catch up on the one before.
fn slow(
    inbox: &mut Inbox<'_>,
    bytes_per_s: f64,
    start: Timestamp,
    end: Timestamp,
    notes: &mut Notes,
) -> anyhow::Result<()> {
    let each_turn = bytes_per_s * SLOW_TURN.as_secs_f64();
    let (mut turn, mut allowed) = (start, 0.0_f64);
    while turn < end {
        wait_until(turn);
        allowed = (allowed + each_turn).min(each_turn.max(1.0) * 2.0);
        while allowed >= 1.0 {
            match inbox.look(allowed as usize, Duration::ZERO, notes)? {
                ReadOutcome::Ended => return Ok(()),
                ReadOutcome::Bytes(0) => break,
                ReadOutcome::Bytes(bytes) => allowed -= bytes as f64,
            }
        }
        turn += SLOW_TURN;
    }
    Ok(())
}
