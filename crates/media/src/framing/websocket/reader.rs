use super::frame::{FIN, FOLLOWS_16, FOLLOWS_64, MAX_CONTROL_BYTES, Opcode, SHORT_MAX, close, header};
use crate::buffer::Buffer;

/// The side of a connection that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The peer is a client: its frames are masked.
    Server,
    /// The peer is a server: its frames are not masked.
    Client,
}

/// An item of the peer's stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
    /// A ping; its answer is in the [output](Reader::take_output).
    Ping(Vec<u8>),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// The peer ends the connection. The answer is in the [output](Reader::take_output), and nothing may be sent behind it.
    Close {
        /// The reason as a number; RFC 6455, section 7.4 lists them.
        code: Option<u16>,
        /// The reason as text; empty if the peer gives none.
        reason: String,
    },
}

/// A breach of the protocol by the peer. The close frame with [`code`](Self::code) is in the
/// [output](Reader::take_output).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A client sent a frame without a mask, or a server one with a mask.
    #[error("a frame without the mask that a client uses, or with one from a server")]
    Mask,
    /// A reserved bit is set, although no extension was negotiated.
    #[error("a frame with a reserved bit, although no extension was negotiated")]
    ReservedBit,
    /// The opcode is reserved.
    #[error("a frame with the reserved opcode {0}")]
    Opcode(u8),
    /// A control frame in fragments, or above [`MAX_CONTROL_BYTES`].
    #[error("a control frame in fragments, or of more than 125 bytes")]
    Control,
    /// A continuation without a message in progress, or a new message within another one.
    #[error("fragments of a message out of order")]
    Fragments,
    /// A length of more than 63 bits.
    #[error("a frame length of more than 63 bits")]
    Length,
    /// A close frame with a code that may not be sent, or with half a code.
    #[error("a close frame with an invalid code")]
    CloseCode,
    /// Text that is not UTF-8.
    #[error("text that is not UTF-8")]
    Utf8,
    /// A message above the reader's limit.
    #[error("a message of more than {0} bytes, the limit")]
    TooLarge(usize),
}

impl Violation {
    /// The code of the close frame that answers it (RFC 6455, section 7.4.1).
    pub fn code(self) -> u16 {
        match self {
            Self::Utf8 => INVALID_DATA,
            Self::TooLarge(_) => TOO_BIG,
            _ => PROTOCOL_ERROR,
        }
    }
}

/// Reads the frames of a peer from bytes cut at any place, and makes the answers to them.
///
/// Memory: one message of the limit, one frame of the limit, and the last bytes pushed. If several pings
/// arrive at once, the last one is answered, as RFC 6455, section 5.5.3 permits. After a close frame or a
/// [`Violation`] further bytes are ignored.
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Buffer,
    role: Role,
    limit: usize,
    frame: Option<Header>,
    message: Option<(Opcode, Vec<u8>)>,
    pong: Option<Vec<u8>>,
    farewell: Option<Vec<u8>>,
    is_closed: bool,
    frames: u64,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    fin: bool,
    opcode: Opcode,
    len: usize,
    mask: [u8; 4],
}

impl Reader {
    /// A reader at the beginning of the stream behind the handshake. Messages of more than `max_message_bytes` are refused
    /// before they are stored.
    pub fn new(role: Role, max_message_bytes: usize) -> Self {
        Self {
            buffer: Buffer::default(),
            role,
            limit: max_message_bytes,
            frame: None,
            message: None,
            pong: None,
            farewell: None,
            is_closed: false,
            frames: 0,
        }
    }

    /// Adds the next bytes of the stream. Take events until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.is_closed {
            self.buffer.push(bytes);
        }
    }

    /// The frames that answer the events so far, unmasked, as a server sends them. Empty if there is nothing to answer.
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(payload) = self.pong.take() {
            header(Opcode::Pong, payload.len() as u64, &mut out);
            out.extend_from_slice(&payload);
        }
        out.extend(self.farewell.take().into_iter().flatten());
        out
    }

    /// Frames read so far. Fragments count, also those without a byte: whoever bounds a peer's messages bounds these.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// True after a close frame or a violation: the output is the last thing to send.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn read(&mut self) -> Result<Option<Event>, Violation> {
        while !self.is_closed {
            let frame = match self.frame {
                Some(frame) => frame,
                None => match self.read_header()? {
                    Some(frame) => *self.frame.insert(frame),
                    None => return Ok(None),
                },
            };
            let Some(payload) = self.buffer.take(frame.len) else { return Ok(None) };
            self.frame = None;
            self.frames += 1;
            let payload =
                payload.iter().zip(frame.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            if let Some(event) = self.accept(frame, payload)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    //= spec/framing.md 22
    fn read_header(&mut self) -> Result<Option<Header>, Violation> {
        let bytes = self.buffer.peek();
        let Some(&[first, second]) = bytes.first_chunk() else { return Ok(None) };
        if first & RESERVED_BITS != 0 {
            return Err(Violation::ReservedBit);
        }
        let fin = first & FIN != 0;
        let opcode = opcode(first & 0x0f)?;
        let is_masked = second & MASKED != 0;
        if is_masked != (self.role == Role::Server) {
            return Err(Violation::Mask);
        }
        let short = second & !MASKED;
        if is_control(opcode) {
            if !fin || short > SHORT_MAX {
                return Err(Violation::Control);
            }
        } else if (opcode == Opcode::Continuation) != self.message.is_some() {
            return Err(Violation::Fragments);
        }
        let rest = &bytes[2..];
        let (len, len_bytes) = match short {
            FOLLOWS_16 => match rest.first_chunk() {
                Some(len) => (u64::from(u16::from_be_bytes(*len)), 2),
                None => return Ok(None),
            },
            FOLLOWS_64 => match rest.first_chunk() {
                Some(len) => (u64::from_be_bytes(*len), 8),
                None => return Ok(None),
            },
            short => (u64::from(short), 0),
        };
        if len > i64::MAX as u64 {
            return Err(Violation::Length);
        }
        // A control frame fits any limit: it is not stored with the message.
        let stored = self.message.as_ref().map_or(0, |(_, message)| message.len());
        let room = if is_control(opcode) { MAX_CONTROL_BYTES } else { self.limit - stored };
        let len = usize::try_from(len).ok().filter(|len| *len <= room);
        let len = len.ok_or(Violation::TooLarge(self.limit))?;
        let mask_bytes = if is_masked { 4 } else { 0 };
        let Some(mask) = rest.get(len_bytes..len_bytes + mask_bytes) else { return Ok(None) };
        let mask = mask.first_chunk().copied().unwrap_or_default();
        self.buffer.take(2 + len_bytes + mask_bytes);
        Ok(Some(Header { fin, opcode, len, mask }))
    }

    fn accept(&mut self, frame: Header, payload: Vec<u8>) -> Result<Option<Event>, Violation> {
        match frame.opcode {
            Opcode::Ping => {
                self.pong = Some(payload.clone());
                Ok(Some(Event::Ping(payload)))
            }
            Opcode::Pong => Ok(Some(Event::Pong(payload))),
            Opcode::Close => self.accept_close(&payload).map(Some),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                let (opcode, message) = match self.message.take() {
                    Some((opcode, mut message)) => {
                        message.extend_from_slice(&payload);
                        (opcode, message)
                    }
                    None => (frame.opcode, payload),
                };
                if !frame.fin {
                    self.message = Some((opcode, message));
                    return Ok(None);
                }
                if opcode == Opcode::Binary {
                    return Ok(Some(Event::Binary(message)));
                }
                String::from_utf8(message).map(|text| Some(Event::Text(text))).map_err(|_| Violation::Utf8)
            }
        }
    }

    fn accept_close(&mut self, payload: &[u8]) -> Result<Event, Violation> {
        let (code, reason) = match payload.split_first_chunk::<2>() {
            Some((code, reason)) => (Some(u16::from_be_bytes(*code)), reason),
            None if payload.is_empty() => (None, payload),
            None => return Err(Violation::CloseCode),
        };
        if code.is_some_and(|code| !may_be_sent(code)) {
            return Err(Violation::CloseCode);
        }
        let reason = str::from_utf8(reason).map_err(|_| Violation::Utf8)?.to_owned();
        let mut answer = Vec::new();
        match code {
            Some(code) => close(code, "", &mut answer),
            None => header(Opcode::Close, 0, &mut answer),
        }
        self.end(answer);
        Ok(Event::Close { code, reason })
    }

    //= spec/framing.md 23
    fn end(&mut self, farewell: Vec<u8>) {
        self.farewell = Some(farewell);
        self.is_closed = true;
        self.buffer = Buffer::default();
        self.message = None;
    }
}

/// Yields `None` when more bytes are needed, and for good after a close frame or an error.
impl Iterator for Reader {
    type Item = Result<Event, Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if let Err(violation) = read {
            let mut farewell = Vec::new();
            close(violation.code(), &violation.to_string(), &mut farewell);
            self.end(farewell);
        }
        read.transpose()
    }
}

fn opcode(number: u8) -> Result<Opcode, Violation> {
    Ok(match number {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        other => return Err(Violation::Opcode(other)),
    })
}

fn is_control(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong)
}

/// Codes that a close frame may have: RFC 6455, section 7.4, and the registry's 1012 to 1014.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

const MASKED: u8 = 0x80;
const RESERVED_BITS: u8 = 0x70;
// RFC 6455, section 7.4.1.
const PROTOCOL_ERROR: u16 = 1002;
const INVALID_DATA: u16 = 1007;
const TOO_BIG: u16 = 1009;

#[cfg(test)]
mod tests;
