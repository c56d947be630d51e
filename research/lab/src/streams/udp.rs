//! Plain UDP: datagrams without acknowledgements, at once or at a rate that was chosen before.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::Namespaces;
use freshwire_record::{Rate, Timestamp};

use super::offer::OfferedRecord;
use super::pace::{Ends, LEAD, SenderAccount, Span, payload};
use super::pieces::{PIECE_HEADER, Pieces, piece_header};
use super::receive::{Received, whole_record};
use crate::scenario::{TestLink, wait_until};
use crate::schema::{Plan, Source};
use crate::scheme;

/// Bytes of a record in a datagram: as many as TCP has in a segment of Ethernet.
const PIECE: usize = 1448;

/// Headers of IPv4 and UDP. A link's rate counts them.
const HEADERS: usize = 28;

/// How long one look for a datagram waits at most.
const WATCH: Duration = Duration::from_millis(100);

/// Sends the offered records across the link and receives them.
pub(super) fn run(link: &TestLink, plan: &Plan, offered: &[OfferedRecord]) -> anyhow::Result<Ends> {
    let bind = |address| UdpSocket::bind((address, 0));
    let near = link.namespaces.in_near(|| bind(Namespaces::NEAR_V4))?.context("cannot open a socket")?;
    let far = link.namespaces.in_far(|| bind(Namespaces::FAR_V4))?.context("cannot open a socket")?;
    near.connect(far.local_addr().context("a socket without an address")?).context("cannot connect")?;
    let span = Span::of(plan, link.start_after(LEAD)?);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| receive(&far, span));
        let paced = Sender::new(&near, plan, span, offered.len()).send(offered);
        let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        anyhow::Ok(Ends {
            span,
            paced: paced.context("the sender failed")?,
            received: received.context("the receiver failed")?,
        })
    })
}

struct Sender<'a> {
    socket: &'a UdpSocket,
    span: Span,
    /// The limit of [`scheme::UDP_LIMITED`]; none sends at once.
    rate: Option<Rate>,
    window: Duration,
    /// When the limit permits the next datagram.
    next_at: Timestamp,
    paced: SenderAccount,
}

impl<'a> Sender<'a> {
    fn new(socket: &'a UdpSocket, plan: &Plan, span: Span, records: usize) -> Self {
        let rate = plan.link.rate_bps.filter(|_| plan.scheme == scheme::UDP_LIMITED);
        let window = match plan.source {
            Source::Layers { window_ms, .. } | Source::Video { window_ms, .. } => {
                Duration::from_millis(u64::from(window_ms))
            }
            Source::Frames { .. } => Duration::from_nanos(plan.deadline_ns()),
        };
        Self {
            socket,
            span,
            rate: rate.map(Rate::from_bits_per_sec),
            window,
            next_at: span.start,
            paced: SenderAccount::new(records),
        }
    }

    /// In order. With a limit the rest of a window is dropped at the window's end, as by [`scheme::THESIS`].
    fn send(mut self, offered: &[OfferedRecord]) -> anyhow::Result<SenderAccount> {
        let mut queue: VecDeque<&OfferedRecord> = VecDeque::new();
        let mut next = offered.iter().peekable();
        loop {
            let now = freshwire_io::now();
            if now >= self.span.stop_at {
                return Ok(self.paced);
            }
            while let Some(record) = next.next_if(|record| self.span.start + record.at <= now) {
                self.paced.lateness =
                    self.paced.lateness.max(self.lateness_of_source(record, now, queue.is_empty()));
                queue.push_back(record);
            }
            while let Some(record) = queue.front().filter(|record| self.is_over(record, now)) {
                self.paced.dropped(record, "window end");
                queue.pop_front();
            }
            match queue.pop_front() {
                Some(record) => self.write(record, now)?,
                None => {
                    let due = next.peek().map(|record| self.span.start + record.at);
                    wait_until(due.unwrap_or(self.span.stop_at).min(self.span.stop_at));
                }
            }
        }
    }

    /// How late a record was offered. Behind a record that waits for the limit, a late look is none.
    fn lateness_of_source(&self, record: &OfferedRecord, now: Timestamp, is_first: bool) -> Duration {
        let late = now.saturating_since(self.span.start + record.at);
        if self.rate.is_none() && is_first { late } else { Duration::ZERO }
    }

    fn is_over(&self, record: &OfferedRecord, now: Timestamp) -> bool {
        let window_ns = self.window.as_nanos() as u64;
        let end_ns = (record.at.as_nanos() as u64 / window_ns + 1) * window_ns;
        self.rate.is_some() && now >= self.span.start + Duration::from_nanos(end_ns)
    }

    fn write(&mut self, record: &OfferedRecord, started: Timestamp) -> anyhow::Result<()> {
        let bytes = payload(record, self.span.start);
        let mut datagram = Vec::with_capacity(PIECE_HEADER + PIECE);
        for (place, piece) in bytes.chunks(PIECE).enumerate() {
            datagram.clear();
            datagram.extend_from_slice(&piece_header(record.seq, place * PIECE));
            datagram.extend_from_slice(piece);
            if let Some(rate) = self.rate {
                wait_until(self.next_at);
                let taken = rate.time_for((datagram.len() + HEADERS) as u64);
                self.next_at = self.next_at.max(freshwire_io::now()) + taken;
            }
            self.socket.send(&datagram).context("cannot send")?;
            self.paced.sent_bytes += piece.len() as u64;
        }
        self.paced.sent(record, started);
        Ok(())
    }
}

fn receive(socket: &UdpSocket, span: Span) -> anyhow::Result<Received> {
    let (mut received, mut pieces) = (Received::default(), Pieces::default());
    let mut datagram = [0; PIECE_HEADER + PIECE];
    loop {
        let left = span.stop_at.saturating_since(freshwire_io::now());
        if left.is_zero() {
            return Ok(received);
        }
        socket.set_read_timeout(Some(left.clamp(Duration::from_millis(1), WATCH))).context("cannot wait")?;
        let size = match socket.recv(&mut datagram) {
            Ok(size) => size,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => continue,
                _ => return Err(error).context("cannot receive"),
            },
        };
        let now = freshwire_io::now();
        let (header, piece) =
            datagram[..size].split_first_chunk::<PIECE_HEADER>().context("a datagram without a header")?;
        received.count(piece.len(), now, span.count_until);
        if let Some(record) = pieces.take(u64::from_be_bytes(*header), piece)? {
            received.arrived(whole_record(&record)?, now)?;
        }
    }
}
