use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use freshwire_choice::Reason;

use super::block::{BLOCK, BLOCK_LAST, NEXT, NEXT_LAST};
use super::block::{Block, BlockHead, Message, Next};
use super::cursor::{Cursor, put_varint, varint_len};
use super::error::Malformed;
use super::head::{message_len, put_numbers};
use super::parameters::Qos;
use super::run::Run;
use super::run::{RUN, RUN_LAST};
use crate::ranges::RangeSet;

/// The most ranges in an ACK or NACK (A1-ACK-3).
pub(crate) const MAX_RANGES: usize = 32;

/// The longest text in a CLOSE, in bytes (spec/a1.md, frames).
const MAX_REASON: usize = 256;

/// What a REPAIR takes besides its bytes unless its numbers are very large.
pub(crate) const PARITY_HEAD: usize = 1 + 4 + 1 + 4 + 1 + 2 + 4 + 2 + 2 + 1 + 8 + 4 + 2 + 2;

/// A part of a data packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Padding,
    /// Asks for an acknowledgement.
    Ping,
    Ack(Ack),
    /// Packets that the receiver takes for lost.
    Nack(Ranges),
    /// Measures the round trip (Mapp 1997); the time is the sender's, in microseconds since it began the connection.
    Sync {
        sent_us: u64,
    },
    SyncEcho(Echo),
    Block(Block<'a>),
    /// Blocks of messages that are alike.
    Run(Run<'a>),
    /// A message in progress that will never be complete.
    Gone {
        id: u64,
        /// Length of the message, so that both ends count the same window.
        len: u32,
        reason: Reason,
    },
    /// Messages by the application's numbers that were dropped before their start.
    Dropped {
        first: u64,
        count: u64,
        reason: Reason,
    },
    /// The number of messages, and of their bytes, that may have started since the connection began.
    Credit {
        messages: u64,
        bytes: u64,
    },
    /// Changes the quality of service, seen from the end that sends this.
    Qos {
        serial: u64,
        qos: Qos,
    },
    /// The quality that the other end agrees to, seen from the end that asked.
    QosAck {
        serial: u64,
        qos: Qos,
    },
    /// The end, with a code and a text for people.
    Close {
        code: u64,
        reason: &'a str,
    },
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    Repair(Parity<'a>),
    /// A message is whole by parity: its lost blocks need not come.
    Whole {
        id: u64,
    },
    /// Makes the peer a member of a group.
    Group(Invitation),
    /// Packets of a group that the member misses.
    GroupNack {
        group: u32,
        ranges: Ranges,
    },
    /// A block that a member of a group has missed.
    GroupBlock {
        group: u32,
        block: Block<'a>,
    },
    /// A message of a group that a member has missed and will not get.
    GroupGone {
        group: u32,
        id: u64,
        reason: Reason,
    },
    /// How far a group's sender is: the number that its next packet will have.
    GroupAt {
        group: u32,
        next: u64,
    },
}

/// What a member needs to know of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invitation {
    pub(crate) group: u32,
    pub(crate) address: SocketAddr,
    pub(crate) key: [u8; 32],
    /// The next packet's number.
    pub(crate) next: u64,
    /// The group's time minus that of the connection, in microseconds; wraps.
    pub(crate) offset_us: u64,
}

/// Acknowledges packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The newest first.
    pub(crate) ranges: Ranges,
    /// How long the newest was held before this was sent, in microseconds.
    pub(crate) delay_us: u64,
    /// The receiver's time when the newest came, in microseconds, for the variation of the one-way delay.
    pub(crate) at_us: u32,
    /// Packets that came with a mark of congestion since the connection began.
    pub(crate) ce: u64,
}

/// Ranges of packet numbers, the newest first, at most [`MAX_RANGES`], with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(pub(crate) Vec<RangeInclusive<u64>>);

/// Answers a SYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echo {
    /// The time in the SYNC.
    pub(crate) sent_us: u64,
    /// The answering end's own time when the SYNC came, in microseconds since it began the connection.
    pub(crate) arrived_us: u64,
    /// How long it was held before this was sent, in microseconds.
    pub(crate) held_us: u64,
}

/// Forward error correction: a block from which lost ones of its message can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parity<'a> {
    pub(crate) id: u64,
    pub(crate) message: Message,
    /// Which of `count` shards this is.
    pub(crate) index: u16,
    pub(crate) count: u16,
    /// A shard; all have the same length.
    pub(crate) bytes: &'a [u8],
}

/// Reads the frames of a packet one after the other, up to the first that is malformed.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    cursor: Cursor<'a>,
    /// The frame before, if it was a block.
    before: Option<BlockHead>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(packet: &'a [u8]) -> Self {
        Self { cursor: Cursor::new(packet), before: None }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        let frame = Frame::read(&mut self.cursor, self.before.take());
        match &frame {
            Ok(Frame::Block(block)) => self.before = Some(block.head),
            Ok(_) => {}
            Err(_) => _ = self.cursor.rest(),
        }
        Some(frame)
    }
}

impl<'a> Frame<'a> {
    fn read(cursor: &mut Cursor<'a>, before: Option<BlockHead>) -> Result<Self, Malformed> {
        let kind = cursor.u8()?;
        match kind {
            PADDING => Ok(Self::Padding),
            PING => Ok(Self::Ping),
            ACK => Ok(Self::Ack(Ack {
                delay_us: cursor.varint()?,
                at_us: cursor.u32()?,
                ce: cursor.varint()?,
                ranges: Ranges::read(cursor)?,
            })),
            NACK => Ranges::read(cursor).map(Self::Nack),
            SYNC => Ok(Self::Sync { sent_us: cursor.varint()? }),
            SYNC_ECHO => Ok(Self::SyncEcho(Echo {
                sent_us: cursor.varint()?,
                arrived_us: cursor.varint()?,
                held_us: cursor.varint()?,
            })),
            BLOCK..=BLOCK_LAST => Block::read(kind, cursor).map(Self::Block),
            NEXT..=NEXT_LAST => Next::read(kind, cursor)?.block(before, cursor).map(Self::Block),
            RUN..=RUN_LAST => Run::read(kind, cursor).map(Self::Run),
            GONE => {
                Ok(Self::Gone { id: cursor.varint()?, len: message_len(cursor)?, reason: reason(cursor)? })
            }
            DROPPED => Ok(Self::Dropped {
                first: cursor.varint()?,
                count: cursor.varint()?,
                reason: reason(cursor)?,
            }),
            CREDIT => Ok(Self::Credit { messages: cursor.varint()?, bytes: cursor.varint()? }),
            QOS => Ok(Self::Qos { serial: cursor.varint()?, qos: Qos::read(cursor)? }),
            QOS_ACK => Ok(Self::QosAck { serial: cursor.varint()?, qos: Qos::read(cursor)? }),
            CLOSE => {
                let code = cursor.varint()?;
                let len = cursor.varint()?;
                let len = usize::try_from(len).ok().filter(|&len| len <= MAX_REASON);
                let text = cursor.take(len.ok_or(Malformed::OutOfBounds("reason"))?)?;
                let reason = std::str::from_utf8(text).map_err(|_| Malformed::OutOfBounds("reason"))?;
                Ok(Self::Close { code, reason })
            }
            PATH_CHALLENGE => cursor.array().map(Self::PathChallenge),
            PATH_RESPONSE => cursor.array().map(Self::PathResponse),
            REPAIR => {
                let id = cursor.varint()?;
                Ok(Self::Repair(Parity {
                    id,
                    message: Message::read(id, cursor)?,
                    index: cursor.u16()?,
                    count: cursor.u16()?,
                    bytes: cursor.rest(),
                }))
            }
            WHOLE => Ok(Self::Whole { id: cursor.varint()? }),
            GROUP => Invitation::read(cursor).map(Self::Group),
            GROUP_NACK => Ok(Self::GroupNack { group: cursor.u32()?, ranges: Ranges::read(cursor)? }),
            GROUP_BLOCK => {
                let group = cursor.u32()?;
                let kind = cursor.u8()?;
                if !(BLOCK..=BLOCK_LAST).contains(&kind) {
                    return Err(Malformed::UnknownType(kind));
                }
                Ok(Self::GroupBlock { group, block: Block::read(kind, cursor)? })
            }
            GROUP_GONE => {
                Ok(Self::GroupGone { group: cursor.u32()?, id: cursor.varint()?, reason: reason(cursor)? })
            }
            GROUP_AT => Ok(Self::GroupAt { group: cursor.u32()?, next: cursor.varint()? }),
            _ => Err(Malformed::UnknownType(kind)),
        }
    }

    /// Appends the frame. A BLOCK, RUN or REPAIR takes the rest of the packet, so nothing follows it; see [`BlockHead::put`](super::BlockHead::put).
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Padding => out.push(PADDING),
            Self::Ping => out.push(PING),
            Self::Ack(ack) => {
                out.push(ACK);
                put_varint(out, ack.delay_us);
                out.extend(ack.at_us.to_be_bytes());
                put_varint(out, ack.ce);
                ack.ranges.put(out);
            }
            Self::Nack(ranges) => {
                out.push(NACK);
                ranges.put(out);
            }
            Self::Sync { sent_us } => put_numbers(out, SYNC, &[*sent_us]),
            Self::SyncEcho(echo) => {
                put_numbers(out, SYNC_ECHO, &[echo.sent_us, echo.arrived_us, echo.held_us]);
            }
            Self::Block(block) => {
                block.head.put(None, out);
                out.extend(block.bytes);
            }
            Self::Run(run) => run.put(out),
            Self::Gone { id, len, reason } => {
                put_numbers(out, GONE, &[*id, u64::from(*len)]);
                out.push(reason.code());
            }
            Self::Dropped { first, count, reason } => {
                put_numbers(out, DROPPED, &[*first, *count]);
                out.push(reason.code());
            }
            Self::Credit { messages, bytes } => put_numbers(out, CREDIT, &[*messages, *bytes]),
            Self::Qos { serial, qos } => {
                put_numbers(out, QOS, &[*serial]);
                qos.put(out);
            }
            Self::QosAck { serial, qos } => {
                put_numbers(out, QOS_ACK, &[*serial]);
                qos.put(out);
            }
            Self::Close { code, reason } => {
                let len =
                    (0..=MAX_REASON).rev().find(|&len| reason.is_char_boundary(len) || len >= reason.len());
                let reason = reason.get(..len.unwrap_or(0)).unwrap_or(reason);
                put_numbers(out, CLOSE, &[*code, reason.len() as u64]);
                out.extend(reason.as_bytes());
            }
            Self::PathChallenge(token) => {
                out.push(PATH_CHALLENGE);
                out.extend(token);
            }
            Self::PathResponse(token) => {
                out.push(PATH_RESPONSE);
                out.extend(token);
            }
            Self::Repair(parity) => {
                put_numbers(out, REPAIR, &[parity.id]);
                parity.message.put(parity.id, out);
                out.extend(parity.index.to_be_bytes());
                out.extend(parity.count.to_be_bytes());
                out.extend(parity.bytes);
            }
            Self::Whole { id } => put_numbers(out, WHOLE, &[*id]),
            Self::Group(_)
            | Self::GroupNack { .. }
            | Self::GroupBlock { .. }
            | Self::GroupGone { .. }
            | Self::GroupAt { .. } => {
                self.put_of_group(out);
            }
        }
    }

    fn put_of_group(&self, out: &mut Vec<u8>) {
        match self {
            Self::Group(invitation) => invitation.put(out),
            Self::GroupNack { group, ranges } => {
                out.push(GROUP_NACK);
                out.extend(group.to_be_bytes());
                ranges.put(out);
            }
            Self::GroupBlock { group, block } => {
                out.push(GROUP_BLOCK);
                out.extend(group.to_be_bytes());
                block.head.put(None, out);
                out.extend(block.bytes);
            }
            Self::GroupGone { group, id, reason } => {
                out.push(GROUP_GONE);
                out.extend(group.to_be_bytes());
                put_varint(out, *id);
                out.push(reason.code());
            }
            Self::GroupAt { group, next } => {
                out.push(GROUP_AT);
                out.extend(group.to_be_bytes());
                put_varint(out, *next);
            }
            _ => {}
        }
    }
}

impl Parity<'_> {
    /// Bytes that the frame takes.
    pub(crate) fn len(&self) -> usize {
        1 + varint_len(self.id) + self.message.encoded_len(self.id) + 2 + 2 + self.bytes.len()
    }
}

impl Invitation {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let group = cursor.u32()?;
        let ip = match cursor.u8()? {
            4 => IpAddr::from(cursor.array::<4>()?),
            6 => IpAddr::from(cursor.array::<16>()?),
            _ => return Err(Malformed::OutOfBounds("family of an address")),
        };
        let address = SocketAddr::new(ip, cursor.u16()?);
        Ok(Self {
            group,
            address,
            key: cursor.array()?,
            next: cursor.varint()?,
            offset_us: u64::from_be_bytes(cursor.array()?),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(GROUP);
        out.extend(self.group.to_be_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend(ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend(ip.octets());
            }
        }
        out.extend(self.address.port().to_be_bytes());
        out.extend(self.key);
        put_varint(out, self.next);
        out.extend(self.offset_us.to_be_bytes());
    }
}

impl Ranges {
    /// The newest of a set.
    pub(crate) fn newest(set: &RangeSet) -> Self {
        Self(set.iter().rev().take(MAX_RANGES).map(|range| range.start..=range.end - 1).collect())
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let largest = cursor.varint()?;
        let more = cursor.u8()?;
        if usize::from(more) >= MAX_RANGES {
            return Err(Malformed::OutOfBounds("number of ranges"));
        }
        let mut ranges = Vec::with_capacity(usize::from(more) + 1);
        let mut end = largest;
        for number in 0..=more {
            let start = end.checked_sub(cursor.varint()?).ok_or(Malformed::OutOfBounds("range"))?;
            ranges.push(start..=end);
            if number < more {
                // Numbers in between: at least one, or the ranges would be one.
                let gap = cursor.varint()?.saturating_add(2);
                end = start.checked_sub(gap).ok_or(Malformed::OutOfBounds("range"))?;
            }
        }
        Ok(Self(ranges))
    }

    fn put(&self, out: &mut Vec<u8>) {
        let mut ranges = self.0.iter().take(MAX_RANGES);
        let Some(first) = ranges.next() else { return };
        put_varint(out, *first.end());
        out.push(ranges.len() as u8);
        put_varint(out, first.end() - first.start());
        let mut before = *first.start();
        for range in ranges {
            debug_assert!(
                range.end() + 1 < before,
                "{:?} is not the newest first, with gaps between",
                self.0
            );
            put_varint(out, before.saturating_sub(range.end() + 2));
            put_varint(out, range.end() - range.start());
            before = *range.start();
        }
    }
}

fn reason(cursor: &mut Cursor<'_>) -> Result<Reason, Malformed> {
    match cursor.u8()? {
        0 => Err(Malformed::OutOfBounds("reason")),
        // One of the application's own, or of a later version: why matters less than that it will not come.
        code => Ok(match Reason::from_code(code) {
            Reason::Other(_) => Reason::Application,
            named => named,
        }),
    }
}

const PADDING: u8 = 0;
const PING: u8 = 1;
const ACK: u8 = 2;
const NACK: u8 = 3;
const SYNC: u8 = 4;
const SYNC_ECHO: u8 = 5;
const GONE: u8 = 0x10;
const DROPPED: u8 = 0x11;
const CREDIT: u8 = 0x12;
const QOS: u8 = 0x13;
const QOS_ACK: u8 = 0x14;
const CLOSE: u8 = 0x15;
const PATH_CHALLENGE: u8 = 0x16;
const PATH_RESPONSE: u8 = 0x17;
const REPAIR: u8 = 0x18;
const GROUP: u8 = 0x19;
const GROUP_NACK: u8 = 0x1a;
const GROUP_BLOCK: u8 = 0x1b;
const GROUP_GONE: u8 = 0x1c;
const WHOLE: u8 = 0x1d;
const GROUP_AT: u8 = 0x1e;
