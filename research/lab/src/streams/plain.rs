//! The schemes that hand records to the kernel's send buffer, where nothing can be taken back.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::tcp::TcpSocket;
use freshwire_record::Timestamp;

use super::offer::OfferedRecord;
use super::pace::{SenderAccount, payload};
use crate::scenario::wait_until;
use crate::schema::SenderStats;
use crate::scheme;

/// How a full socket is polled. The kernel's own wake-up comes only when a third of the buffer is free again.
const POLL: Duration = Duration::from_millis(1);

/// The send buffer of [`scheme::TCP_SMALL_BUFFER`], in bytes of payload; the kernel doubles it for its overhead.
const SMALL_BUFFER: usize = 8 << 10;

/// When an encoder begins to drop frames that nothing refers to, and when all until the next key frame. The numbers are
/// those of a widely used encoder's RTMP output.
const ENCODER_DROPS: (Duration, Duration) = (Duration::from_millis(700), Duration::from_millis(900));

/// How much the scheme lets the kernel hold.
#[derive(Clone, Copy)]
enum Limit {
    SendBuffer,
    /// `MIN_BUF(A, B)`: A x CWND + min(B, CWND) segments (thesis, section 3.2.4).
    MinBuf(u32, u32),
}

/// Reads `min-buf` or `min-buf-A-B`; `None` for another scheme.
pub(super) fn min_buf(name: &str) -> Option<(u32, u32)> {
    if name == scheme::MIN_BUF {
        return Some((1, 3));
    }
    let (a, b) = name.strip_prefix(scheme::MIN_BUF)?.strip_prefix('-')?.split_once('-')?;
    let (a, b) = (a.parse().ok()?, b.parse().ok()?);
    (a >= 1).then_some((a, b))
}

/// Whether the scheme writes to the kernel's buffer.
pub(super) fn is_plain(name: &str) -> bool {
    matches!(name, scheme::TCP | scheme::TCP_SMALL_BUFFER | scheme::ENCODER) || min_buf(name).is_some()
}

/// Sends the offered records until `stop_at`.
pub(super) fn send(
    stream: TcpStream,
    name: &str,
    offered: &[OfferedRecord],
    start: Timestamp,
    stop_at: Timestamp,
) -> anyhow::Result<SenderAccount> {
    let socket = TcpSocket::new(stream)?;
    if name == scheme::TCP_SMALL_BUFFER {
        socket.set_send_buffer(SMALL_BUFFER)?;
    }
    let limit = min_buf(name).map_or(Limit::SendBuffer, |(a, b)| Limit::MinBuf(a, b));
    let mut writer = Writer {
        socket,
        limit,
        stop_at,
        paced: SenderAccount::new(offered.len()),
        horizon: (0, 0),
        samples: 0,
    };
    if name == scheme::ENCODER {
        writer.encoder(offered, start)?
    } else {
        writer.blocking(offered, start)?
    }
    writer.socket.abort_on_close()?;
    Ok(writer.finish())
}

struct Writer {
    socket: TcpSocket,
    limit: Limit,
    stop_at: Timestamp,
    paced: SenderAccount,
    horizon: (u64, u64),
    samples: u64,
}

impl Writer {
    /// One record after the other: a full buffer blocks the source, as `send()` does.
    fn blocking(&mut self, offered: &[OfferedRecord], start: Timestamp) -> anyhow::Result<()> {
        for record in offered {
            wait_until(start + record.at);
            if !self.write(record, start)? {
                break;
            }
        }
        wait_until(self.stop_at);
        Ok(())
    }

    /// A queue of its own in front of the socket, from which frames are dropped by what it holds in time.
    fn encoder(&mut self, offered: &[OfferedRecord], start: Timestamp) -> anyhow::Result<()> {
        let mut queue: VecDeque<&OfferedRecord> = VecDeque::new();
        let mut next = offered.iter().peekable();
        let mut until_key = false;
        loop {
            let now = freshwire_io::now();
            if now >= self.stop_at {
                return Ok(());
            }
            while let Some(record) = next.next_if(|record| start + record.at <= now) {
                let span = queue.front().map_or(Duration::ZERO, |oldest| record.at - oldest.at);
                until_key = if record.refs.is_empty() { false } else { until_key || span > ENCODER_DROPS.1 };
                let droppable = record.layer >= 2 && span > ENCODER_DROPS.0;
                if until_key || droppable {
                    self.paced.dropped(record, "encoder-queue");
                } else {
                    queue.push_back(record);
                }
            }
            match queue.pop_front() {
                Some(record) => {
                    // Frames that come due while this one blocks are looked at afterwards, with the queue as it is then.
                    if !self.write(record, start)? {
                        return Ok(());
                    }
                }
                None => match next.peek() {
                    Some(record) => wait_until((start + record.at).min(self.stop_at)),
                    None => wait_until(self.stop_at),
                },
            }
        }
    }

    /// Writes a whole record, waiting for room. False: the time is over.
    fn write(&mut self, record: &OfferedRecord, start: Timestamp) -> anyhow::Result<bool> {
        let bytes = payload(record, start);
        let mut written = 0;
        let started = freshwire_io::now();
        while written < bytes.len() {
            if freshwire_io::now() >= self.stop_at {
                return Ok(false);
            }
            let room = self.room()?.min(bytes.len() - written);
            let sent = if room == 0 {
                None
            } else {
                self.socket.write(&bytes[written..written + room]).context("cannot send")?
            };
            match sent {
                Some(sent) => {
                    written += sent;
                    self.paced.sent_bytes += sent as u64;
                    self.sample_horizon()?;
                }
                None => std::thread::sleep(POLL),
            }
        }
        self.paced.sent(record, started);
        Ok(true)
    }

    fn room(&self) -> anyhow::Result<usize> {
        match self.limit {
            Limit::SendBuffer => Ok(usize::MAX),
            Limit::MinBuf(a, b) => {
                let info = self.socket.info()?;
                let segments = u64::from(a) * u64::from(info.cwnd) + u64::from(b.min(info.cwnd));
                let held = self.socket.unacknowledged()?;
                Ok((segments * u64::from(info.mss)).saturating_sub(held) as usize)
            }
        }
    }

    fn sample_horizon(&mut self) -> anyhow::Result<()> {
        let unsent = self.socket.unsent()?;
        self.horizon = (self.horizon.0.max(unsent), self.horizon.1 + unsent);
        self.samples += 1;
        Ok(())
    }

    fn finish(self) -> SenderAccount {
        let mut paced = self.paced;
        paced.stats = SenderStats {
            horizon_max_bytes: self.horizon.0,
            horizon_mean_bytes: self.horizon.1 as f64 / self.samples.max(1) as f64,
            drops: paced.stats.drops,
            syscalls: None,
            cpu_ns: None,
        };
        paced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_buf_names() {
        assert_eq!(min_buf("min-buf"), Some((1, 3)));
        assert_eq!(min_buf("min-buf-2-0"), Some((2, 0)));
        for name in ["tcp", "min-buf-0-3", "min-buf-1", "min-buf-x-1"] {
            assert_eq!(min_buf(name), None, "{name}");
        }
    }
}
