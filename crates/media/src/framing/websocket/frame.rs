/// Largest payload of a control frame (RFC 6455, section 5.5).
pub const MAX_CONTROL_BYTES: usize = 125;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A further fragment of a message.
    Continuation = 0,
    /// Text in UTF-8.
    Text = 1,
    /// Bytes.
    Binary = 2,
    /// The end of the connection; at most 125 bytes.
    Close = 8,
    /// A question whether the peer is there; at most 125 bytes.
    Ping = 9,
    /// The answer to a ping, with its bytes.
    Pong = 10,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// Text in UTF-8. The sender's application ensures that records are: a browser fails the connection otherwise.
    #[default]
    Text,
    /// Bytes.
    Binary,
}

impl From<MessageKind> for Opcode {
    fn from(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Text => Self::Text,
            MessageKind::Binary => Self::Binary,
        }
    }
}

/// Adds to `out` the header of an unfragmented message of `len` bytes, in the shortest form. The payload follows it as it
/// is.
pub fn header(opcode: Opcode, len: u64, out: &mut Vec<u8>) {
    frame_header(true, opcode, len, out);
}

pub(super) fn frame_header(fin: bool, opcode: Opcode, len: u64, out: &mut Vec<u8>) {
    out.push(if fin { FIN } else { 0 } | opcode as u8);
    if let Ok(len) = u8::try_from(len)
        && len <= SHORT_MAX
    {
        out.push(len);
    } else if let Ok(len) = u16::try_from(len) {
        out.push(FOLLOWS_16);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(FOLLOWS_64);
        out.extend_from_slice(&len.to_be_bytes());
    }
}

/// Adds to `out` a close frame. `reason` is cut to 123 bytes, which is what fits. Nothing may be sent behind it.
pub fn close(code: u16, reason: &str, out: &mut Vec<u8>) {
    let mut end = reason.len().min(MAX_CONTROL_BYTES - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    header(Opcode::Close, 2 + end as u64, out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&reason.as_bytes()[..end]);
}

/// Adds to `out` a ping; at most [`MAX_CONTROL_BYTES`] of `payload` are sent.
pub fn ping(payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(MAX_CONTROL_BYTES)];
    header(Opcode::Ping, payload.len() as u64, out);
    out.extend_from_slice(payload);
}

pub(super) const FIN: u8 = 0x80;
pub(super) const SHORT_MAX: u8 = 125;
pub(super) const FOLLOWS_16: u8 = 126;
pub(super) const FOLLOWS_64: u8 = 127;
