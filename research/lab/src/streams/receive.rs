//! The receiving side: a plain TCP reader that checks every byte and notes when each record was whole.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_media::framing::{Framing, chunked};
use freshwire_media::layered::{DEFAULT_MAX_RECORD_BYTES, HEADER_BYTES, Header, first_wrong_byte};
use freshwire_record::Timestamp;

use super::offer::OfferedRecord;

/// The received records.
#[derive(Default)]
pub(super) struct Received {
    /// When each record was whole, by sequence.
    pub(super) arrivals: BTreeMap<u64, Timestamp>,
    /// The payload of records whose payload does not follow from their sequence.
    coded: BTreeMap<u64, Vec<u8>>,
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
    pub(super) fn arrived(&mut self, record: WholeRecord, now: Timestamp) -> anyhow::Result<()> {
        let WholeRecord { seq, coded } = record;
        anyhow::ensure!(self.arrivals.insert(seq, now).is_none(), "record {seq} came twice");
        self.coded.extend(coded.map(|coded| (seq, coded)));
        Ok(())
    }

    /// Adds what another reader received.
    pub(super) fn join(&mut self, other: Self) -> anyhow::Result<()> {
        self.bytes += other.bytes;
        self.all_bytes += other.all_bytes;
        self.coded.extend(other.coded);
        for (seq, at) in other.arrivals {
            self.arrived(WholeRecord { seq, coded: None }, at)?;
        }
        Ok(())
    }

    /// Fails on a record with another payload than was offered.
    pub(super) fn check(&self, offered: &[OfferedRecord]) -> anyhow::Result<()> {
        for seq in self.arrivals.keys() {
            let record = offered
                .get(usize::try_from(*seq)?)
                .with_context(|| format!("record {seq} was not offered"))?;
            let expected = record.coded.as_ref().map(|(_, coded)| &coded[..]);
            let is_same = self.coded.get(seq).map(Vec::as_slice) == expected;
            anyhow::ensure!(is_same, "record {seq} has a wrong payload; it is torn or damaged");
        }
        Ok(())
    }
}

/// A record that arrived whole.
pub(super) struct WholeRecord {
    seq: u64,
    /// The payload, if it does not follow from the sequence.
    coded: Option<Vec<u8>>,
}

impl WholeRecord {
    /// Takes the first record out of what was read, if all of it is there. The payload is checked when the run is over.
    fn take(pending: &mut Vec<u8>) -> anyhow::Result<Option<Self>> {
        if pending.len() < HEADER_BYTES {
            return Ok(None);
        }
        let Header { seq, record_bytes, .. } = Header::decode(pending)?;
        anyhow::ensure!(record_bytes <= DEFAULT_MAX_RECORD_BYTES, "record {seq} of {record_bytes} bytes");
        let Some(payload) = pending.get(HEADER_BYTES..record_bytes as usize) else { return Ok(None) };
        let coded = first_wrong_byte(seq, payload).map(|_| payload.to_vec());
        pending.drain(..record_bytes as usize);
        Ok(Some(Self { seq, coded }))
    }
}

/// Reads until the stream ends or `stop_at`. Fails on a torn record or a record that came twice.
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
        records.push(&buffer[..read], |record| received.arrived(record, now))?;
    }
}

/// The record that is whole and alone in `bytes`.
pub(super) fn whole_record(bytes: &[u8]) -> anyhow::Result<WholeRecord> {
    let mut pending = bytes.to_vec();
    let record = WholeRecord::take(&mut pending)?.context("a record that is not whole")?;
    anyhow::ensure!(pending.is_empty(), "{} bytes behind a record", pending.len());
    Ok(record)
}

/// Whole records out of a framed stream.
enum Records {
    Raw(Vec<u8>),
    Chunked(chunked::Reader),
}

impl Records {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self::Chunked(chunked::Reader::default()),
            _ => Self::Raw(Vec::new()),
        }
    }

    fn push(
        &mut self,
        bytes: &[u8],
        mut whole: impl FnMut(WholeRecord) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Raw(pending) => {
                pending.extend_from_slice(bytes);
                while let Some(record) = WholeRecord::take(pending)? {
                    whole(record)?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::pace::payload;
    use super::*;

    fn offered(seq: u64, coded: Option<&[u8]>) -> OfferedRecord {
        OfferedRecord {
            seq,
            group: 0,
            layer: 0,
            bytes: (HEADER_BYTES + coded.map_or(68, <[u8]>::len)) as u32,
            refs: Vec::new(),
            at: Duration::ZERO,
            deadline: Duration::ZERO,
            coded: coded.map(|coded| (0, Arc::from(coded))),
        }
    }

    #[test]
    fn payloads_are_compared_with_what_was_offered() {
        let records = [offered(0, None), offered(1, Some(b"a coded layer")), offered(2, None)];
        let stream: Vec<u8> = records.iter().flat_map(|record| payload(record, Timestamp::ZERO)).collect();
        let read = |stream: &[u8], step: usize| {
            let (mut received, mut reader) = (Received::default(), Records::new(Framing::Raw));
            let record = |record, received: &mut Received| received.arrived(record, Timestamp::ZERO);
            for part in stream.chunks(step) {
                reader.push(part, |whole| record(whole, &mut received))?;
            }
            received.check(&records)?;
            anyhow::Ok(received.arrivals.len())
        };
        for step in [1, 31, 32, 33, 100, 1000] {
            assert_eq!(read(&stream, step).unwrap(), 3, "{step}");
            assert_eq!(read(&stream[..stream.len() - 1], step).unwrap(), 2, "{step}");
        }
        for place in [40, HEADER_BYTES + 68 + HEADER_BYTES + 3, stream.len() - 1] {
            let mut damaged = stream.clone();
            damaged[place] ^= 1;
            let error = read(&damaged, 100).unwrap_err().to_string();
            assert!(error.contains("wrong payload"), "{place}: {error}");
        }
        let mut torn = stream.clone();
        torn.drain(60..70);
        assert!(read(&torn, 100).is_err());
        let mut huge = stream.clone();
        huge[12] = 1;
        assert!(read(&huge, 100).unwrap_err().to_string().contains("record 0 of 16777316 bytes"));
        let twice = [&stream[..100], &stream].concat();
        assert!(read(&twice, 100).unwrap_err().to_string().contains("came twice"));
    }
}
