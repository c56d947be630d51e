//! The receiving side: a plain TCP reader that checks every byte and notes when each record was whole.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_media::framing::{Framing, chunked};
use freshwire_media::layered;
use freshwire_record::Timestamp;

/// The received records.
#[derive(Default)]
pub(super) struct Received {
    /// When each record was whole, by sequence.
    pub(super) arrivals: BTreeMap<u64, Timestamp>,
    /// Bytes of the stream until `count_until`.
    pub(super) bytes: u64,
    /// Bytes of the stream until its end.
    pub(super) all_bytes: u64,
}

impl Received {
    /// Counts bytes that were read at `now`.
    pub(super) fn count(&mut self, bytes: usize, now: Timestamp, count_until: Timestamp) {
        self.all_bytes += bytes as u64;
        if now <= count_until {
            self.bytes += bytes as u64;
        }
    }

    /// Notes a whole record. Fails if it was here before.
    pub(super) fn arrived(&mut self, seq: u64, now: Timestamp) -> anyhow::Result<()> {
        anyhow::ensure!(self.arrivals.insert(seq, now).is_none(), "record {seq} came twice");
        Ok(())
    }
}

/// Reads until the stream ends or `stop_at`. Fails on a wrong byte, a torn record or a record that came twice.
pub(super) fn read(
    mut stream: TcpStream,
    framing: Framing,
    count_until: Timestamp,
    stop_at: Timestamp,
) -> anyhow::Result<Received> {
    let mut records = Records::new(framing);
    let mut received = Received::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = stop_at.saturating_since(freshwire_io::now());
        if left.is_zero() {
            return Ok(received);
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).context("cannot set a time-out")?;
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Ok(received),
            Ok(read) => read,
            Err(error) => match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => continue,
                // The sender aborts when its time is over.
                std::io::ErrorKind::ConnectionReset => return Ok(received),
                _ => return Err(error).context("cannot read the stream"),
            },
        };
        let now = freshwire_io::now();
        received.count(read, now, count_until);
        records.push(&buffer[..read], |seq| received.arrived(seq, now))?;
    }
}

/// The sequence of a record that is whole and alone in `bytes`. Fails on a wrong byte.
pub(super) fn whole_record(bytes: &[u8]) -> anyhow::Result<u64> {
    let mut reader = layered::Reader::default();
    reader.push(bytes);
    let record = reader.next().context("a record without its header")??;
    reader.finish().context("bytes behind a record")?;
    Ok(record.header.seq)
}

/// Whole records out of a framed stream.
enum Records {
    Raw(layered::Reader),
    Chunked(chunked::Reader),
}

impl Records {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self::Chunked(chunked::Reader::default()),
            _ => Self::Raw(layered::Reader::default()),
        }
    }

    fn push(&mut self, bytes: &[u8], mut whole: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self {
            Self::Raw(reader) => {
                reader.push(bytes);
                for record in reader {
                    whole(record?.header.seq)?;
                }
            }
            Self::Chunked(reader) => {
                reader.push(bytes);
                for event in reader {
                    if let chunked::Event::Record { payload, .. } = event? {
                        whole(whole_record(&payload)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}
