//! What the heads of several frames have in common.

use super::cursor::{Cursor, put_varint};
use super::error::Malformed;
use super::parameters::Qos;

pub(super) fn put_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    for &number in numbers {
        put_varint(out, number);
    }
}

pub(super) fn message_len(cursor: &mut Cursor<'_>) -> Result<u32, Malformed> {
    match cursor.varint32("length of a message")? {
        len if len <= Qos::MAX_MESSAGE => Ok(len),
        _ => Err(Malformed::OutOfBounds("length of a message")),
    }
}
