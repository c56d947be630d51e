use super::open::{Malformed, Open};

/// RFC 9628, 4.2: flags, picture number, layer, references, and the structure of the layers, each only if the flags say so.
pub(super) fn push(payload: &[u8], open: &mut Open) -> Result<(), Malformed> {
    let mut rest = payload;
    let flags = byte(&mut rest)?;
    if flags & PICTURE_ID != 0 && byte(&mut rest)? & 0x80 != 0 {
        byte(&mut rest)?;
    }
    if flags & LAYERS != 0 {
        byte(&mut rest)?;
        if flags & FLEXIBLE == 0 {
            byte(&mut rest)?;
        }
    }
    if flags & FLEXIBLE != 0 && flags & PREDICTED != 0 {
        for more in [true, true, false] {
            if byte(&mut rest)? & 1 == 0 {
                break;
            }
            if !more {
                return Err(Malformed);
            }
        }
    }
    if flags & STRUCTURE != 0 {
        structure(&mut rest)?;
    }
    if open.bytes.is_empty() && flags & BEGIN == 0 {
        return Err(Malformed);
    }
    open.has_picture = true;
    open.bytes.extend(rest);
    Ok(())
}

fn structure(rest: &mut &[u8]) -> Result<(), Malformed> {
    let flags = byte(rest)?;
    if flags & 0x10 != 0 {
        skip(rest, 4 * (usize::from(flags >> 5) + 1))?;
    }
    if flags & 0x08 != 0 {
        for _ in 0..byte(rest)? {
            let references = byte(rest)? >> 2 & 3;
            skip(rest, usize::from(references))?;
        }
    }
    Ok(())
}

fn byte(rest: &mut &[u8]) -> Result<u8, Malformed> {
    let (&byte, after) = rest.split_first().ok_or(Malformed)?;
    *rest = after;
    Ok(byte)
}

fn skip(rest: &mut &[u8], count: usize) -> Result<(), Malformed> {
    *rest = rest.get(count..).ok_or(Malformed)?;
    Ok(())
}

const PICTURE_ID: u8 = 0x80;
const PREDICTED: u8 = 0x40;
const LAYERS: u8 = 0x20;
const FLEXIBLE: u8 = 0x10;
const BEGIN: u8 = 0x08;
const STRUCTURE: u8 = 0x02;
