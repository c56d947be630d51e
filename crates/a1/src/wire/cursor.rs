use super::error::Malformed;

/// Reads a packet from its front to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Result<u32, Malformed> {
        self.array().map(|[high, middle, low]| u32::from_be_bytes([0, high, middle, low]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of at most 62 bits in 1, 2, 4 or 8 bytes (RFC 9000, section 16).
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.u8()?;
        let mut value = u64::from(first & 0x3f);
        let more = (1usize << (first >> 6)) - 1;
        for &byte in self.take(more)? {
            value = value << 8 | u64::from(byte);
        }
        Ok(value)
    }

    /// What [`zigzag`] made of a number that may be negative.
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number that fits 32 bits; `name` is for the error.
    pub(crate) fn varint32(&mut self, name: &'static str) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::OutOfBounds(name))
    }
}

/// Appends a number as a varint. What does not fit 62 bits is written as the largest that does.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX_VARINT);
    match varint_len(value) {
        1 => out.push(value as u8),
        2 => out.extend((value as u16 | 1 << 14).to_be_bytes()),
        4 => out.extend((value as u32 | 2 << 30).to_be_bytes()),
        _ => out.extend((value | 3 << 62).to_be_bytes()),
    }
}

/// A number that may be negative as one that is small if it is near to zero: 0, -1, 1, -2, 2 are 0, 1, 2, 3, 4.
pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The bytes that [`put_varint`] takes.
pub(crate) fn varint_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// The largest number that a varint holds.
pub(super) const MAX_VARINT: u64 = (1 << 62) - 1;
