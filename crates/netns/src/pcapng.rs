//! A packet log in pcapng format (draft-ietf-opsawg-pcapng): two interfaces, Ethernet frames, nanoseconds.
//!
//! Packets go to a thread of their own through a bounded queue, so that a slow disk cannot make the link late.
//! [`logged_packets`] reads a log back.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// libpcap refuses a second interface of type `LINKTYPE_RAW`, so the frames are logged whole.
const LINKTYPE_ETHERNET: u16 = 1;

const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// Packets that may wait for the disk. Chosen, not measured.
const QUEUE_PACKETS: usize = 16_384;

/// The side on which a packet was seen; its number is that of the interface in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The near end of the link.
    Near = 0,
    /// The far end of the link.
    Far = 1,
}

/// As seen from the program at that side; the number is that of `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The side received it.
    Received = 1,
    /// The side sent it.
    Sent = 2,
}

/// A packet of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedPacket<'a> {
    /// Nanoseconds since 1970.
    pub real_ns: u64,
    /// Where it was seen.
    pub place: Place,
    /// `None` if the log does not say.
    pub course: Option<Course>,
    /// The link dropped it, or lost it.
    pub is_lost: bool,
    /// The Ethernet frame.
    pub frame: &'a [u8],
}

/// Why a packet log cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the packet log: {problem}; only complete logs of an emulated link can be read")]
pub struct LogError {
    /// Offset of the block.
    pub at: usize,
    /// Its fault.
    pub problem: &'static str,
}

/// The packets of a log that an [`Emulator`](crate::Emulator) of this machine has written, in its order.
///
/// # Errors
///
/// If a block is not as the emulator writes it, or is cut off.
pub fn logged_packets(log: &[u8]) -> Result<Vec<LoggedPacket<'_>>, LogError> {
    let mut packets = Vec::new();
    let mut at = 0;
    while at < log.len() {
        let fail = |problem| LogError { at, problem };
        let rest = log.get(at..).unwrap_or_default();
        let kind = word(rest, 0).ok_or(fail("a block without a type"))?;
        let length = word(rest, 4).ok_or(fail("a block without a length"))? as usize;
        let block = rest.get(..length).ok_or(fail("a block that is cut off"))?;
        if length < 12 || !length.is_multiple_of(4) {
            return Err(fail("a block of impossible length"));
        }
        if kind == ENHANCED_PACKET {
            packets.push(logged_packet(block).map_err(fail)?);
        }
        at += length;
    }
    Ok(packets)
}

/// A packet's block, with its type and both lengths.
fn logged_packet(block: &[u8]) -> Result<LoggedPacket<'_>, &'static str> {
    let place = match word(block, 8) {
        Some(0) => Place::Near,
        Some(1) => Place::Far,
        _ => return Err("a packet of an unknown interface"),
    };
    let (high, low) = word(block, 12).zip(word(block, 16)).ok_or("a packet without a time")?;
    let bytes = word(block, 20).ok_or("a packet without a length")? as usize;
    let body = block.get(28..block.len() - 4).ok_or("a packet without a length")?;
    let frame = body.get(..bytes).ok_or("a packet that is cut off")?;
    let mut options = body.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    let (mut course, mut is_lost) = (None, false);
    while let Some((&[c0, c1, l0, l1], rest)) = options.split_first_chunk() {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(..length).ok_or("an option that is cut off")?;
        match u16::from_ne_bytes([c0, c1]) {
            // The emulator comments on nothing else.
            OPT_COMMENT => is_lost = true,
            EPB_FLAGS => {
                course = match word(value, 0).map(|flags| flags & 3) {
                    Some(1) => Some(Course::Received),
                    Some(2) => Some(Course::Sent),
                    _ => None,
                }
            }
            _ => {}
        }
        options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let real_ns = u64::from(high) << 32 | u64::from(low);
    Ok(LoggedPacket { real_ns, place, course, is_lost, frame })
}

/// In this machine's byte order, as the log was written here.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// One line of the log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Nanoseconds since 1970.
    pub(super) real_ns: u64,
    pub(super) place: Place,
    pub(super) course: Course,
    pub(super) comment: Option<&'static str>,
    pub(super) frame: Box<[u8]>,
}

/// The log being written.
pub(super) struct PacketLog {
    queue: SyncSender<Entry>,
    thread: JoinHandle<io::Result<()>>,
    /// Entries that found the queue full.
    dropped: u64,
}

impl PacketLog {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        write_head(&mut file)?;
        file.flush()?;
        let (queue, entries) = sync_channel(QUEUE_PACKETS);
        let thread = std::thread::Builder::new()
            .name("packet log".to_owned())
            .spawn(move || write_all(&mut file, &entries))?;
        Ok(Self { queue, thread, dropped: 0 })
    }

    pub(super) fn add(&mut self, entry: Entry) {
        match self.queue.try_send(entry) {
            Ok(()) => {}
            // A thread that has ended says why when it is joined.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.dropped += 1,
        }
    }

    /// Writes what is queued; returns how many entries are missing, and why the writing failed if it did.
    pub(super) fn finish(self) -> (u64, Option<io::Error>) {
        drop(self.queue);
        let result = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer has panicked")));
        (self.dropped, result.err())
    }
}

fn write_all(file: &mut impl Write, entries: &Receiver<Entry>) -> io::Result<()> {
    for entry in entries {
        write_entry(file, &entry)?;
    }
    file.flush()
}

fn write_head(file: &mut impl Write) -> io::Result<()> {
    let mut section = Block::new(SECTION_HEADER);
    section.u32(BYTE_ORDER_MAGIC);
    section.u16(1);
    section.u16(0);
    // The section's length is not known yet.
    section.u32(u32::MAX);
    section.u32(u32::MAX);
    section.write(file)?;
    for (name, description) in
        [("near", "what the near side sends and receives"), ("far", "what the far side sends and receives")]
    {
        let mut interface = Block::new(INTERFACE_DESCRIPTION);
        interface.u16(LINKTYPE_ETHERNET);
        interface.u16(0);
        interface.u32(0);
        interface.option(IF_NAME, name.as_bytes());
        interface.option(IF_DESCRIPTION, description.as_bytes());
        interface.option(IF_TSRESOL, &[9]);
        interface.end_options();
        interface.write(file)?;
    }
    Ok(())
}

fn write_entry(file: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let length = u32::try_from(entry.frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut block = Block::new(ENHANCED_PACKET);
    block.u32(entry.place as u32);
    block.u32((entry.real_ns >> 32) as u32);
    block.u32(entry.real_ns as u32);
    block.u32(length);
    block.u32(length);
    block.padded(&entry.frame);
    if let Some(comment) = entry.comment {
        block.option(OPT_COMMENT, comment.as_bytes());
    }
    block.option(EPB_FLAGS, &(entry.course as u32).to_ne_bytes());
    block.end_options();
    block.write(file)
}

/// A block under construction, in the machine's byte order, which the section header declares.
struct Block {
    bytes: Vec<u8>,
}

impl Block {
    fn new(kind: u32) -> Self {
        let mut block = Self { bytes: Vec::with_capacity(2048) };
        block.u32(kind);
        block.u32(0);
        block
    }

    fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    fn padded(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn end_options(&mut self) {
        self.u32(0);
    }

    fn write(mut self, file: &mut impl Write) -> io::Result<()> {
        let length = (self.bytes.len() + 4) as u32;
        self.bytes[4..8].copy_from_slice(&length.to_ne_bytes());
        self.u32(length);
        file.write_all(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind and body of each block; panics if the lengths do not fit.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            let length = word(4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(length - 4) as usize, length);
            blocks.push((word(0), bytes[8..length - 4].to_vec()));
            bytes = &bytes[length..];
        }
        blocks
    }

    #[test]
    fn blocks_are_well_formed() {
        let mut file = Vec::new();
        write_head(&mut file).unwrap();
        let entry = Entry {
            real_ns: 0x1_0000_0002,
            place: Place::Far,
            course: Course::Sent,
            comment: Some("lost"),
            frame: Box::new([0x45, 1, 2, 3, 4]),
        };
        write_entry(&mut file, &entry).unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<_> = blocks.iter().map(|block| block.0).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_DESCRIPTION, ENHANCED_PACKET]);
        let mut expected: Vec<u8> = [1u32, 1, 2, 5, 5].iter().flat_map(|word| word.to_ne_bytes()).collect();
        expected.extend_from_slice(&[0x45, 1, 2, 3, 4, 0, 0, 0]);
        let option =
            |code: u16, value: &[u8; 4]| [&code.to_ne_bytes()[..], &4u16.to_ne_bytes(), value].concat();
        expected.extend(option(OPT_COMMENT, b"lost"));
        expected.extend(option(EPB_FLAGS, &2u32.to_ne_bytes()));
        expected.extend([0; 4]);
        assert_eq!(blocks[3].1, expected);
    }

    #[test]
    fn log_is_read_as_it_was_written() {
        let packet = |at: u64, place, course, comment, frame: &[u8]| Entry {
            real_ns: at,
            place,
            course,
            comment,
            frame: frame.into(),
        };
        let entries = [
            packet(0x1_0000_0002, Place::Near, Course::Sent, Some("lost on the wire"), &[1, 2, 3, 4, 5]),
            packet(3, Place::Far, Course::Received, None, &[]),
            packet(4, Place::Near, Course::Received, None, &[9; 1514]),
        ];
        let mut log = Vec::new();
        write_head(&mut log).unwrap();
        let head = log.len();
        for entry in &entries {
            write_entry(&mut log, entry).unwrap();
        }
        let read = logged_packets(&log).unwrap();
        assert_eq!(read.len(), entries.len());
        for (read, entry) in read.iter().zip(&entries) {
            let expected = LoggedPacket {
                real_ns: entry.real_ns,
                place: entry.place,
                course: Some(entry.course),
                is_lost: entry.comment.is_some(),
                frame: &entry.frame,
            };
            assert_eq!(*read, expected);
        }
        for length in head + 1..log.len() {
            // Between two blocks a log may end.
            if let Ok(read) = logged_packets(&log[..length]) {
                assert!(
                    read.len() < entries.len() && word(&log, length) == Some(ENHANCED_PACKET),
                    "{length}"
                );
            }
        }
        log[head + 8] = 7;
        assert_eq!(
            logged_packets(&log).unwrap_err(),
            LogError { at: head, problem: "a packet of an unknown interface" }
        );
    }

    #[test]
    fn a_full_disk_is_reported() {
        let error = PacketLog::create(Path::new("/dev/full")).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::StorageFull));
    }
}
