use super::open::{MAX_FRAME_BYTES, Malformed, Open};

/// OBUs cut into packets (RTP payload format for AV1, 4.3 and 4.4).
#[derive(Debug, Default)]
pub(super) struct Obus {
    /// An OBU that started in an earlier packet.
    partial: Option<Vec<u8>>,
}

impl Obus {
    pub(super) fn lose(&mut self) {
        self.partial = None;
    }

    pub(super) fn push(&mut self, payload: &[u8], open: &mut Open) -> Result<(), Malformed> {
        let (&header, mut rest) = payload.split_first().ok_or(Malformed)?;
        let count = usize::from(header >> 4 & 3);
        let mut partial = self.partial.take();
        if (header & CONTINUES != 0) != partial.is_some() {
            return Err(Malformed);
        }
        let mut index = 0;
        while !rest.is_empty() {
            index += 1;
            let element = if index == count {
                std::mem::take(&mut rest)
            } else {
                let length = leb128(&mut rest)?;
                let (element, after) = rest.split_at_checked(length).ok_or(Malformed)?;
                rest = after;
                element
            };
            let mut obu = partial.take().unwrap_or_default();
            obu.extend(element);
            if obu.len() > MAX_FRAME_BYTES {
                return Err(Malformed);
            }
            if rest.is_empty() && header & CONTINUED != 0 {
                self.partial = Some(obu);
            } else {
                finish(&obu, open)?;
            }
        }
        if index < count { Err(Malformed) } else { Ok(()) }
    }
}

/// Adds the OBU with a size field.
fn finish(obu: &[u8], open: &mut Open) -> Result<(), Malformed> {
    let (&header, mut rest) = obu.split_first().ok_or(Malformed)?;
    let mut extension = None;
    if header & EXTENSION != 0 {
        let (&byte, after) = rest.split_first().ok_or(Malformed)?;
        (extension, rest) = (Some(byte), after);
    }
    if header & HAS_SIZE != 0 && leb128(&mut rest)? != rest.len() {
        return Err(Malformed);
    }
    match header >> 3 & 0xF {
        TEMPORAL_DELIMITER | TILE_LIST | PADDING => return Ok(()),
        FRAME_HEADER | TILE_GROUP | FRAME => open.has_picture = true,
        _ => {}
    }
    open.begin_part()?;
    open.bytes.push(header | HAS_SIZE);
    open.bytes.extend(extension);
    let mut size = rest.len();
    while size > 0x7F {
        open.bytes.push(size as u8 | 0x80);
        size >>= 7;
    }
    open.bytes.push(size as u8);
    open.bytes.extend(rest);
    Ok(())
}

/// At most four bytes: more than any packet or frame has.
fn leb128(rest: &mut &[u8]) -> Result<usize, Malformed> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let (&byte, after) = rest.split_first().ok_or(Malformed)?;
        *rest = after;
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

const CONTINUES: u8 = 0x80;
const CONTINUED: u8 = 0x40;
const EXTENSION: u8 = 0x04;
const HAS_SIZE: u8 = 0x02;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const TILE_GROUP: u8 = 4;
const FRAME: u8 = 6;
const TILE_LIST: u8 = 8;
const PADDING: u8 = 15;
