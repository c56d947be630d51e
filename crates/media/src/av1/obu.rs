//! Open bitstream units (5.3).

/// An open bitstream unit.
pub(super) struct Obu<'a> {
    pub(super) kind: u8,
    /// The extension of its header, if it has one.
    extension: Option<u8>,
    pub(super) temporal_id: u8,
    pub(super) spatial_id: u8,
    pub(super) payload: &'a [u8],
}

impl Obu<'_> {
    /// Appends it with a size field.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind << 3 | u8::from(self.extension.is_some()) << 2 | HAS_SIZE);
        out.extend(self.extension);
        let mut size = self.payload.len();
        while size >= 0x80 {
            out.push(size as u8 | 0x80);
            size >>= 7;
        }
        out.push(size as u8);
        out.extend_from_slice(self.payload);
    }
}

/// The OBUs of a temporal unit; `None` instead of one that cannot be read, and nothing after.
pub(super) struct Obus<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Obus<'a> {
    type Item = Option<Obu<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let split = split_obu(self.0);
        self.0 = split.as_ref().map_or(&[], |(_, rest)| rest);
        Some(split.map(|(obu, _)| obu))
    }
}

pub(super) fn split_obu(bytes: &[u8]) -> Option<(Obu<'_>, &[u8])> {
    let (&header, mut rest) = bytes.split_first()?;
    if header & 0x80 != 0 {
        return None;
    }
    let mut extension = None;
    if header & 4 != 0 {
        let (&byte, after) = rest.split_first()?;
        extension = Some(byte);
        rest = after;
    }
    let size = if header & HAS_SIZE != 0 { read_leb128(&mut rest)? } else { rest.len() };
    let (payload, rest) = rest.split_at_checked(size)?;
    let ids = extension.unwrap_or_default();
    let obu =
        Obu { kind: header >> 3 & 15, extension, temporal_id: ids >> 5, spatial_id: ids >> 3 & 3, payload };
    Some((obu, rest))
}

fn read_leb128(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0_u64;
    for at in 0..8 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return usize::try_from(value).ok();
        }
    }
    None
}

const HAS_SIZE: u8 = 2;
