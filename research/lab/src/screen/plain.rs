//! Plain TCP, as a simple program uses it. It writes each picture to its socket when it has it, and waits until the
//! kernel has taken all of it. Nothing is left out; bytes that the link cannot carry wait, in the kernel's send
//! buffer and then in the program.
//!
//! ```text
//!  length (4 bytes) | 0 picture, 1 sound (1) | presentation time, ticks (8) | the coded picture or frame
//! ```

use std::io::{self, Write};
use std::time::Duration;

use freshwire_record::Timestamp;

use super::source::Source;
use crate::scenario::wait_until;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A picture with this presentation time.
    Picture(i64),
    Sound,
}

const HEADER_BYTES: usize = 13;

/// Writes the pictures from position `first` on with their sound; the source's clock starts at `begin`.
/// Returns the largest lateness of the source, without waits for the kernel. Ends when the reader is gone.
pub(super) fn send(source: &Source, first: usize, mut to: impl Write, begin: Timestamp) -> Duration {
    let pictures = source.pictures.iter().skip(first);
    let from_ns = source.pictures.get(first).map_or(0, |picture| picture.offered_ns);
    let pictures =
        pictures.map(|picture| (picture.offered_ns, Header::Picture(picture.ticks), &picture.bytes));
    let sound = source.sound.iter().filter(|(at, _)| *at >= from_ns);
    let mut records: Vec<_> = pictures.chain(sound.map(|(at, bytes)| (*at, Header::Sound, bytes))).collect();
    records.sort_by_key(|(at, ..)| *at);
    let mut worst = Duration::ZERO;
    for (at, header, bytes) in records {
        let due = begin + Duration::from_nanos(at);
        if freshwire_io::now() < due {
            wait_until(due);
            worst = worst.max(freshwire_io::now().saturating_since(due));
        }
        if write(&mut to, header, bytes).is_err() {
            break;
        }
    }
    worst
}

fn write(to: &mut impl Write, header: Header, bytes: &[u8]) -> io::Result<()> {
    let mut record = Vec::with_capacity(HEADER_BYTES + bytes.len());
    let (kind, ticks) = match header {
        Header::Picture(ticks) => (0, ticks),
        Header::Sound => (1, 0),
    };
    record.extend((bytes.len() as u32).to_be_bytes());
    record.push(kind);
    record.extend(ticks.to_be_bytes());
    record.extend_from_slice(bytes);
    to.write_all(&record)
}

/// Takes the first record out of what was read, if all of it is there.
pub(super) fn take(pending: &mut Vec<u8>) -> Option<(Header, Vec<u8>)> {
    let (&header, _) = pending.split_first_chunk::<HEADER_BYTES>()?;
    let [l0, l1, l2, l3, kind, ticks @ ..] = header;
    let end = HEADER_BYTES + u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let bytes = pending.get(HEADER_BYTES..end)?.to_vec();
    pending.drain(..end);
    let header = if kind == 0 { Header::Picture(i64::from_be_bytes(ticks)) } else { Header::Sound };
    Some((header, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_at_any_cut() {
        let mut stream = Vec::new();
        write(&mut stream, Header::Picture(-7), b"abc").unwrap();
        write(&mut stream, Header::Sound, b"").unwrap();
        for cut in 0..stream.len() {
            let mut pending = stream[..cut].to_vec();
            let mut records: Vec<_> = std::iter::from_fn(|| take(&mut pending)).collect();
            pending.extend_from_slice(&stream[cut..]);
            records.extend(std::iter::from_fn(|| take(&mut pending)));
            assert_eq!(records, [(Header::Picture(-7), b"abc".to_vec()), (Header::Sound, Vec::new())]);
        }
    }
}
