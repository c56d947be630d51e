use super::cursor::{Cursor, MAX_VARINT, put_varint, varint_len, zigzag};
use super::error::Malformed;
use super::head::{message_len, put_numbers};
use super::parameters::Qos;

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    pub(crate) head: BlockHead,
    pub(crate) bytes: &'a [u8],
}

/// The header of a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    /// The message's number, from 0 in the order of their start.
    pub(crate) id: u64,
    /// Where the block begins in the message.
    pub(crate) offset: u32,
    /// With the first block of a message.
    pub(crate) start: Option<Message>,
    /// The message ends with this block.
    pub(crate) end: bool,
}

/// What the first block says of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) len: u32,
    /// The application's number.
    pub(crate) seq: u64,
    pub(crate) layer: u8,
    pub(crate) group: u32,
    pub(crate) key: u64,
    /// Distances back to the messages that it depends on; 0 is none.
    pub(crate) refs: [u32; 2],
    /// When the content came into being, in microseconds of the sender's connection; negative if that was before it began.
    pub(crate) generated_us: i64,
    /// For how long it keeps its value from then on, in microseconds; `None` is for ever.
    pub(crate) lifetime_us: Option<u64>,
}

/// The head of a whole message that is like the one before it in the packet: one number further, and the same but for what
/// this names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    len: Option<u32>,
    /// How much later it came into being, in microseconds.
    later_us: Option<i64>,
    key: Option<u64>,
}

impl<'a> Block<'a> {
    //= spec/a1.md A1-FRM-2
    pub(super) fn read(kind: u8, cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let id = cursor.varint()?;
        let start = if kind & START != 0 { Some(Message::read(id, cursor)?) } else { None };
        let offset = if start.is_some() { 0 } else { cursor.varint32("offset of a block")? };
        let (end, is_sized) = (kind & END != 0, kind & SIZED != 0);
        let bytes = match start {
            Some(message) if end => cursor.take(message.len as usize)?,
            _ if is_sized => {
                let len = cursor.varint32("length of a block")?;
                cursor.take(len as usize)?
            }
            _ => cursor.rest(),
        };
        let limit = start.map_or(Qos::MAX_MESSAGE, |message| message.len);
        match u32::try_from(bytes.len()).ok().and_then(|len| offset.checked_add(len)) {
            Some(reach) if reach <= limit => {}
            _ => return Err(Malformed::OutOfBounds("reach of a block")),
        }
        Ok(Self { head: BlockHead { id, offset, start, end }, bytes })
    }
}

impl BlockHead {
    /// Bytes that [`BlockHead::put`] takes without a length.
    pub(crate) fn len(&self) -> usize {
        let place = self
            .start
            .map_or_else(|| varint_len(u64::from(self.offset)), |message| message.encoded_len(self.id));
        1 + varint_len(self.id) + place
    }

    /// Appends the header. Without a length the block takes the rest of the packet, unless it is a whole
    /// message, which has none.
    pub(crate) fn put(&self, len: Option<u32>, out: &mut Vec<u8>) {
        let len = len.filter(|_| self.start.is_none() || !self.end);
        let start = if self.start.is_some() { START } else { 0 };
        let end = if self.end { END } else { 0 };
        let sized = if len.is_some() { SIZED } else { 0 };
        put_numbers(out, BLOCK | start | end | sized, &[self.id]);
        match &self.start {
            Some(message) => message.put(self.id, out),
            None => put_varint(out, u64::from(self.offset)),
        }
        if let Some(len) = len {
            put_varint(out, u64::from(len));
        }
    }
}

impl Next {
    /// How `head` follows `before`; `None` if it is not alike enough. The block has to be the whole message.
    pub(crate) fn between(before: &BlockHead, head: &BlockHead) -> Option<Self> {
        let (then, now) = (before.start?, head.start?);
        let next = Self {
            len: (now.len != then.len).then_some(now.len),
            later_us: match now.generated_us.checked_sub(then.generated_us)? {
                0 => None,
                later => Some(later),
            },
            key: (now.key != then.key).then_some(now.key),
        };
        (next.head(before) == Some(BlockHead { end: true, ..*head })).then_some(next)
    }

    /// Bytes that [`Next::put`] takes.
    pub(crate) fn encoded_len(&self) -> usize {
        let numbers = [self.len.map(u64::from), self.later_us.map(zigzag), self.key];
        1 + numbers.into_iter().flatten().map(varint_len).sum::<usize>()
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        out.push(
            NEXT | flag(self.len.is_some(), LENGTH)
                | flag(self.later_us.is_some(), LATER)
                | flag(self.key.is_some(), KEY),
        );
        for number in [self.len.map(u64::from), self.later_us.map(zigzag), self.key].into_iter().flatten() {
            put_varint(out, number);
        }
    }

    pub(super) fn read(kind: u8, cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let has = |flag: u8| kind & flag != 0;
        Ok(Self {
            len: has(LENGTH).then(|| message_len(cursor)).transpose()?,
            later_us: has(LATER).then(|| cursor.signed()).transpose()?,
            key: has(KEY).then(|| cursor.varint()).transpose()?,
        })
    }

    /// The block with its bytes, which are next.
    //= spec/a1.md A1-FRM-4
    pub(super) fn block<'a>(
        &self,
        before: Option<BlockHead>,
        cursor: &mut Cursor<'a>,
    ) -> Result<Block<'a>, Malformed> {
        let head = before.and_then(|before| self.head(&before));
        let head = head.ok_or(Malformed::OutOfBounds("what a message is like"))?;
        let len = head.start.map_or(0, |message| message.len);
        Ok(Block { head, bytes: cursor.take(len as usize)? })
    }

    fn head(&self, before: &BlockHead) -> Option<BlockHead> {
        let then = before.start?;
        let message = Message {
            len: self.len.unwrap_or(then.len),
            seq: then.seq.checked_add(1)?,
            key: self.key.unwrap_or(then.key),
            generated_us: then.generated_us.checked_add(self.later_us.unwrap_or(0))?,
            ..then
        };
        Some(BlockHead { id: before.id.checked_add(1)?, offset: 0, start: Some(message), end: true })
    }
}

impl Message {
    /// One of which nothing is said.
    pub(super) fn usual() -> Self {
        Self { len: 0, seq: 0, layer: 0, group: 0, key: 0, refs: [0; 2], generated_us: 0, lifetime_us: None }
    }

    /// Reads the head of the message with the number `id`.
    pub(super) fn read(id: u64, cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let named = cursor.u8()?;
        let has = |field: u8| named & field != 0;
        Ok(Self {
            len: message_len(cursor)?,
            layer: if has(LAYER) { cursor.u8()? } else { 0 },
            seq: id.wrapping_add_signed(if has(SEQ) { cursor.signed()? } else { 0 }) & MAX_VARINT,
            group: if has(GROUP) { cursor.varint32("group")? } else { 0 },
            key: if has(OWN_KEY) { cursor.varint()? } else { 0 },
            refs: [
                if has(FIRST_REF) { cursor.varint32("reference")? } else { 0 },
                if has(SECOND_REF) { cursor.varint32("reference")? } else { 0 },
            ],
            generated_us: if has(GENERATED) { cursor.signed()? } else { 0 },
            lifetime_us: has(LIFETIME).then(|| cursor.varint()).transpose()?,
        })
    }

    /// The fields that are left out where they are as usual, without the layer, which is a byte and before them.
    fn fields(&self, id: u64) -> impl Iterator<Item = (u8, u64)> {
        // A difference of numbers of 62 bits.
        let ahead = (self.seq.min(MAX_VARINT).wrapping_sub(id) as i64) << 2 >> 2;
        let [first, second] = self.refs.map(u64::from);
        let fields = [
            (SEQ, zigzag(ahead)),
            (GROUP, u64::from(self.group)),
            (OWN_KEY, self.key),
            (FIRST_REF, first),
            (SECOND_REF, second),
            (GENERATED, zigzag(self.generated_us)),
        ];
        let fields = fields.into_iter().filter(|(_, number)| *number != 0);
        fields.chain(self.lifetime_us.map(|lifetime| (LIFETIME, lifetime)))
    }

    /// Bytes that [`Message::put`] takes.
    pub(super) fn encoded_len(&self, id: u64) -> usize {
        let fields = self.fields(id).map(|(_, number)| varint_len(number)).sum::<usize>();
        1 + varint_len(u64::from(self.len)) + usize::from(self.layer != 0) + fields
    }

    pub(super) fn put(&self, id: u64, out: &mut Vec<u8>) {
        let layer = Some(self.layer).filter(|layer| *layer != 0);
        let fields = self.fields(id).map(|(field, _)| field).sum::<u8>();
        out.push(fields | layer.map_or(0, |_| LAYER));
        put_varint(out, u64::from(self.len));
        out.extend(layer);
        for (_, number) in self.fields(id) {
            put_varint(out, number);
        }
    }
}

pub(super) const BLOCK: u8 = 0x08;
pub(super) const BLOCK_LAST: u8 = 0x0e;
const START: u8 = 1;
const END: u8 = 2;
const SIZED: u8 = 4;
pub(super) const NEXT: u8 = 0x20;
pub(super) const NEXT_LAST: u8 = 0x27;
const LENGTH: u8 = 1;
const LATER: u8 = 2;
const KEY: u8 = 4;
const SEQ: u8 = 0x01;
const LAYER: u8 = 0x02;
const GROUP: u8 = 0x04;
const OWN_KEY: u8 = 0x08;
const FIRST_REF: u8 = 0x10;
const SECOND_REF: u8 = 0x20;
const GENERATED: u8 = 0x40;
const LIFETIME: u8 = 0x80;
