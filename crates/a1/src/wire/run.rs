//! Small messages that are alike, with one head for all of them in a packet.

use super::block::{Block, BlockHead, Message};
use super::cursor::{Cursor, MAX_VARINT, put_varint, varint_len};
use super::error::Malformed;
use super::head::message_len;

/// Messages that are alike, one behind the other. The first may have started in an earlier packet, the last
/// may go on in a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    /// The low bits of the first one's number.
    pub(crate) id: u32,
    /// Where the first one goes on.
    pub(crate) offset: u32,
    /// The low bits of the sender's time when the content of those that begin here came into being.
    pub(crate) generated: u32,
    /// What each says of itself. Instead of the application's number, how much larger than the message's that is, modulo 2^62; and not
    /// when it came into being.
    pub(crate) alike: Message,
    pub(crate) bytes: &'a [u8],
}

/// A RUN at the end of a packet that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRun {
    /// Where its type is, its time, and its bytes.
    begin: usize,
    time_at: usize,
    bytes_at: usize,
    bytes: usize,
    /// The last of its messages.
    last: (u64, Message),
    /// When the first that begins in it came into being; `None`: none does.
    since_us: Option<i64>,
    /// When it is sent.
    now_us: i64,
}

impl<'a> Run<'a> {
    //= spec/a1.md A1-FRM-5
    pub(super) fn read(kind: u8, cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let id = cursor.u24()?;
        let alike = if kind & HEAD != 0 {
            Message::read(0, cursor)?
        } else {
            Message { len: message_len(cursor)?, ..Message::usual() }
        };
        let mut offset = 0;
        for &byte in cursor.take(offset_len(alike.len))? {
            offset = offset << 8 | u32::from(byte);
        }
        let generated = cursor.u24()?;
        if alike.generated_us != 0 {
            return Err(Malformed::OutOfBounds("time of a message in a run"));
        }
        if alike.len < LEAST || offset >= alike.len {
            return Err(Malformed::OutOfBounds("length of a message in a run"));
        }
        let bytes = match kind & SIZED != 0 {
            true => {
                let len = cursor.varint32("length of a run")?;
                cursor.take(len as usize)?
            }
            false => cursor.rest(),
        };
        if bytes.is_empty() {
            return Err(Malformed::Truncated);
        }
        Ok(Self { id, offset, generated, alike, bytes })
    }

    /// Its blocks, if the first message has this number, and the time is this.
    pub(crate) fn blocks(&self, id: u64, generated_us: i64) -> impl Iterator<Item = Block<'a>> + use<'a> {
        let Self { alike, mut bytes, mut offset, .. } = *self;
        let mut next = id;
        std::iter::from_fn(move || {
            let left = (alike.len - offset) as usize;
            let (part, rest) = bytes.split_at(left.min(bytes.len()));
            if part.is_empty() {
                return None;
            }
            let start = (offset == 0).then(|| Message {
                seq: next.wrapping_add(alike.seq) & MAX_VARINT,
                generated_us,
                ..alike
            });
            let head = BlockHead { id: next, offset, start, end: part.len() == left };
            (bytes, offset, next) = (rest, 0, next.wrapping_add(1));
            Some(Block { head, bytes: part })
        })
    }

    /// Appends it, up to the packet's end.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let _time_at = put_head(self.id, self.offset, self.generated, &self.alike, 0, out);
        out.extend(self.bytes);
    }
}

impl OpenRun {
    /// Whether a message may be in a run: the low bits tell its time for long enough.
    pub(crate) fn suits(message: &Message, now_us: i64) -> bool {
        let is_recent = now_us.saturating_sub(message.generated_us).unsigned_abs() < RECENT_US;
        is_recent && (LEAST..=MOST).contains(&message.len)
    }

    /// Bytes in front of those of the messages.
    pub(crate) fn head_len(id: u64, message: &Message) -> usize {
        let alike = timeless(message);
        let head =
            if has_head(&alike, id) { alike.encoded_len(id) } else { varint_len(u64::from(alike.len)) };
        1 + 3 + head + offset_len(message.len) + 3
    }

    /// Begins one with the message's part from `offset` on.
    pub(crate) fn begin(id: u64, offset: u32, message: &Message, now_us: i64, out: &mut Vec<u8>) -> Self {
        let begin = out.len();
        let time_at = put_head(id as u32, offset, message.generated_us as u32, &timeless(message), id, out);
        Self {
            begin,
            time_at,
            bytes_at: out.len(),
            bytes: 0,
            last: (id, *message),
            since_us: (offset == 0).then_some(message.generated_us),
            now_us,
        }
    }

    /// Whether this message is like the last one: but for the numbers, which are one further, and the time it says the same.
    pub(crate) fn is_like(&self, id: u64, message: &Message) -> bool {
        let (last_id, last) = &self.last;
        let expected = Message { seq: last.seq.wrapping_add(1), generated_us: message.generated_us, ..*last };
        id == last_id + 1 && *message == expected
    }

    /// Whether this message may be the next one: it is like the last one, and came into being at about the same time.
    pub(crate) fn takes(&self, id: u64, message: &Message) -> bool {
        let is_timely = match self.since_us {
            Some(since) => {
                (0..=self.together_us(since)).contains(&message.generated_us.saturating_sub(since))
            }
            None => Self::suits(message, self.now_us),
        };
        is_timely && self.is_like(id, message)
    }

    /// The time after this one for which messages may be declared as old as it.
    fn together_us(&self, since: i64) -> i64 {
        TOGETHER_US.max(self.now_us.saturating_sub(since) / TOGETHER_PART)
    }

    /// The next message begins, with the bytes that are appended now.
    pub(crate) fn add(&mut self, id: u64, message: &Message, out: &mut [u8]) {
        if self.since_us.is_none() {
            self.since_us = Some(message.generated_us);
            if let Some(time) = out.get_mut(self.time_at..self.time_at + 3) {
                time.copy_from_slice(&u24(message.generated_us as u32));
            }
        }
        self.last = (id, *message);
    }

    /// The run with this number of bytes more.
    pub(crate) fn with(self, bytes: usize) -> Self {
        Self { bytes: self.bytes + bytes, ..self }
    }

    /// Bytes that [`Self::close`] adds.
    pub(crate) fn closing_len(&self) -> usize {
        varint_len(self.bytes as u64)
    }

    /// Says how long it is, so that something else may follow.
    pub(crate) fn close(&self, out: &mut Vec<u8>) {
        let mut len = Vec::with_capacity(4);
        put_varint(&mut len, self.bytes as u64);
        out.splice(self.bytes_at..self.bytes_at, len);
        if let Some(kind) = out.get_mut(self.begin) {
            *kind |= SIZED;
        }
    }
}

/// Appends what is in front of the bytes; where the time is.
fn put_head(id: u32, offset: u32, time: u32, alike: &Message, base: u64, out: &mut Vec<u8>) -> usize {
    let has_head = has_head(alike, base);
    out.push(RUN | if has_head { HEAD } else { 0 });
    out.extend(u24(id));
    match has_head {
        true => alike.put(base, out),
        false => put_varint(out, u64::from(alike.len)),
    }
    out.extend(offset.to_be_bytes().iter().skip(4 - offset_len(alike.len)));
    let time_at = out.len();
    out.extend(u24(time));
    time_at
}

/// Bytes that hold every offset in a message of this length.
fn offset_len(len: u32) -> usize {
    match len {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// Whether a message says more of itself than its length.
fn has_head(alike: &Message, id: u64) -> bool {
    *alike != Message { len: alike.len, seq: id, ..Message::usual() }
}

fn timeless(message: &Message) -> Message {
    Message { generated_us: 0, ..*message }
}

fn u24(number: u32) -> [u8; 3] {
    let [_, high, middle, low] = number.to_be_bytes();
    [high, middle, low]
}

pub(super) const RUN: u8 = 0x28;
pub(super) const RUN_LAST: u8 = 0x2b;
const SIZED: u8 = 1;
const HEAD: u8 = 2;

/// The shortest messages in a run (A1-FRM-5). With shorter ones a packet could hold more numbers than their
/// low bits tell apart when packets overtake each other.
const LEAST: u32 = 16;
/// The longest. Most packets of longer ones hold a part without begin and end, which has a shorter head by
/// itself.
const MOST: u32 = 8192;
/// Messages whose content came into being within this time, or this part of its age if that is more, are
/// declared as old as the first.
const TOGETHER_US: i64 = 100;
const TOGETHER_PART: i64 = 64;
/// The largest distance from now of a time that is sent by its low bits, which cover 16.8 s (A1-FRM-5).
const RECENT_US: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::super::{Frame, Frames};
    use super::*;
    use crate::truncated::{ahead, full_number};

    fn message(seq: u64) -> Message {
        Message { len: 20, seq, layer: 0, generated_us: 5_000_000_000, ..Message::usual() }
    }

    fn frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, Malformed> {
        Frames::new(bytes).collect()
    }

    /// What a receiver makes of the only run in a packet that it expects at about this time, of a message with about this number.
    fn blocks(bytes: &[u8], near: u64, peer_us: u64) -> Vec<Block<'_>> {
        let read = frames(bytes).unwrap();
        let [Frame::Run(run), ..] = read.as_slice() else { panic!("{read:?}") };
        let generated_us = peer_us as i64 + ahead(peer_us, run.generated);
        run.blocks(full_number(near, run.id), generated_us).collect()
    }

    #[test]
    fn messages_that_are_alike_share_a_head() {
        let id = 0x3_0000_0005;
        for (first, head) in [
            (message(id), 9),
            // One more each for the flags, the layer and how far ahead the application's number is.
            (Message { layer: 2, ..message(id + 9) }, 12),
        ] {
            let mut bytes = Vec::new();
            let mut run = OpenRun::begin(id, 12, &first, first.generated_us, &mut bytes);
            assert_eq!((bytes.len(), OpenRun::head_len(id, &first)), (head, head));
            bytes.extend([0; 8]);
            run = run.with(8);
            let second = Message { seq: first.seq + 1, generated_us: first.generated_us + 70_000, ..first };
            let third = Message { seq: second.seq + 1, generated_us: second.generated_us + 100, ..second };
            for (ahead, next, text) in [(1, second, [1; 20].as_slice()), (2, third, &[2; 3])] {
                assert!(run.takes(id + ahead, &next));
                run.add(id + ahead, &next, &mut bytes);
                bytes.extend(text);
                run = run.with(text.len());
            }
            let read = blocks(&bytes, id - 1000, 5_000_070_100);
            let block = |ahead, offset, start, end, bytes| Block {
                head: BlockHead { id: id + ahead, offset, start, end },
                bytes,
            };
            // The time is that of the first that begins here.
            let third = Message { generated_us: second.generated_us, ..third };
            let expected = [
                block(0, 12, None, true, &[0; 8][..]),
                block(1, 0, Some(second), true, &[1; 20]),
                block(2, 0, Some(third), false, &[2; 3]),
            ];
            assert_eq!(read, expected);
            // Something else may follow once it is said how long it is.
            let len = bytes.len();
            run.close(&mut bytes);
            assert_eq!(bytes.len() - len, run.closing_len());
            Frame::Ping.put(&mut bytes);
            assert_eq!(blocks(&bytes, id, 5_000_070_100), expected);
            assert_eq!(frames(&bytes).unwrap()[1..], [Frame::Ping]);
        }
    }

    #[test]
    fn a_different_message_is_not_in_the_run() {
        let run = OpenRun::begin(7, 0, &message(70), message_time(), &mut Vec::new());
        assert!(run.takes(8, &message(71)));
        let later = |us| Message { generated_us: message(0).generated_us + us, ..message(71) };
        assert!(run.takes(8, &later(TOGETHER_US)));
        // For old content, more counts as the same time.
        let old = OpenRun::begin(7, 0, &message(70), message_time() + 64_000, &mut Vec::new());
        assert!(old.takes(8, &later(1000)) && !old.takes(8, &later(1001)));
        for (id, message) in [
            (9, message(71)),
            (8, message(72)),
            (8, message(70)),
            (8, Message { len: 21, ..message(71) }),
            (8, Message { layer: 1, ..message(71) }),
            (8, Message { key: 1, ..message(71) }),
            (8, Message { group: 1, ..message(71) }),
            (8, Message { refs: [1, 0], ..message(71) }),
            (8, Message { lifetime_us: Some(1), ..message(71) }),
            (8, later(TOGETHER_US + 1)),
            (8, later(-1)),
        ] {
            assert!(!run.takes(id, &message), "{message:?}");
        }
        // The first that begins in it need not be as old as the one that goes on.
        let run = OpenRun::begin(7, 1, &message(70), message_time(), &mut Vec::new());
        assert!(run.takes(8, &later(1_000_000)) && run.takes(8, &later(-1_000_000)));
        assert!(!run.takes(8, &later(-9_000_000)));
        let suits = |message: Message| OpenRun::suits(&message, message_time() + 1);
        assert!(suits(message(1)));
        assert!(!suits(Message { len: LEAST - 1, ..message(1) }));
        assert!(!suits(Message { len: MOST + 1, ..message(1) }));
        assert!(!suits(Message { generated_us: message_time() - RECENT_US as i64, ..message(1) }));
    }

    fn message_time() -> i64 {
        message(0).generated_us
    }

    #[test]
    fn a_run_that_makes_no_sense_is_refused() {
        let head = |len: u64, offset: u64| {
            let mut bytes = vec![RUN, 0, 0, 1];
            put_varint(&mut bytes, len);
            bytes.extend(&offset.to_be_bytes()[8 - offset_len(len as u32)..]);
            bytes.extend([0, 0, 9]);
            bytes
        };
        let bounds = Err(Malformed::OutOfBounds("length of a message in a run"));
        for (len, offset) in [(15, 0), (0, 0), (20, 20), (257, 257), (70_000, 1 << 30)] {
            let bytes = [head(len, offset), vec![1; 40]].concat();
            assert_eq!(frames(&bytes), bounds, "{len} {offset}");
        }
        let huge = [head(u64::from(super::super::Qos::MAX_MESSAGE) + 1, 0), vec![1]].concat();
        assert_eq!(frames(&huge), Err(Malformed::OutOfBounds("length of a message")));
        assert_eq!(frames(&head(20, 0)), Err(Malformed::Truncated), "it is empty");
        let mut timed = vec![RUN | HEAD, 0, 0, 1];
        message(0).put(0, &mut timed);
        timed.extend([0, 0, 0, 9, 1]);
        assert_eq!(frames(&timed), Err(Malformed::OutOfBounds("time of a message in a run")));
        let mut sized = head(20, 0);
        sized[0] |= SIZED;
        put_varint(&mut sized, 5);
        for (text, expected) in [(vec![1; 4], Err(Malformed::Truncated)), (vec![1; 5], Ok(1))] {
            let bytes = [sized.clone(), text].concat();
            assert_eq!(frames(&bytes).map(|read| read.len()), expected);
        }
    }

    /// Whatever the bytes are, the blocks are those bytes, each within its message, the numbers one after the other.
    #[test]
    fn blocks_of_a_run_are_its_bytes() {
        check!().with_type::<(u64, u32, u32, u32, Vec<u8>)>().for_each(|(id, offset, len, time, bytes)| {
            let len = LEAST + len % 600;
            let alike = Message { len, ..Message::usual() };
            let mut packet = Vec::new();
            Run { id: *id as u32, offset: offset % len, generated: *time, alike, bytes }.put(&mut packet);
            if bytes.is_empty() {
                assert_eq!(frames(&packet), Err(Malformed::Truncated));
                return;
            }
            let blocks = blocks(&packet, *id, 0);
            let mut at = 0;
            for (place, block) in blocks.iter().enumerate() {
                assert_eq!(block.head.id, id.wrapping_add(place as u64));
                assert_eq!(block.head.start.is_some(), block.head.offset == 0);
                let reach = block.head.offset + block.bytes.len() as u32;
                assert_eq!((reach == len, reach > len), (block.head.end, false));
                assert_eq!(block.bytes, &bytes[at..at + block.bytes.len()]);
                at += block.bytes.len();
            }
            assert_eq!(at, bytes.len());
        });
    }
}
