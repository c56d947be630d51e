//! The bytes of a connection, parted into requests and interleaved packets.

use rtsp_types::headers::HeaderName;
use rtsp_types::{Method, ParseError, Version};

/// What came in.
#[derive(Debug)]
pub(super) enum Message {
    /// A request.
    Request(Request),
    /// An answer; nothing was asked, so nobody waits for it.
    Response,
    /// An interleaved packet.
    Packet {
        /// Its channel.
        channel: u8,
        /// RTP or RTCP, as agreed on for the channel.
        bytes: Vec<u8>,
    },
}

/// A request with its URI as it was written.
#[derive(Debug)]
pub(super) struct Request {
    /// What `rtsp_types` has read.
    inner: rtsp_types::Request<Vec<u8>>,
    /// The URI.
    pub(super) uri: String,
}

/// Bytes that are no message, or one beyond the limits. Nothing can be read behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("request line and headers exceed {0} bytes")]
    HeadTooLarge(usize),
    #[error("a body of {given} bytes; at most {limit} are taken")]
    BodyTooLarge { given: usize, limit: usize },
    #[error("Content-Length is no number")]
    ContentLength,
    #[error("not an RTSP message")]
    Grammar,
}

/// Most bytes of messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Of a request's line and headers.
    pub(super) head: usize,
    /// Of a body.
    pub(super) body: usize,
}

/// Parts the bytes of a connection. Push what was read, then take messages until there are none.
#[derive(Debug)]
pub(super) struct MessageReader {
    bounds: Bounds,
    bytes: Vec<u8>,
    taken: usize,
    /// Bytes after `taken` in which no head ends.
    searched: usize,
}

impl MessageReader {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, bytes: Vec::new(), taken: 0, searched: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// A message has begun and is not complete.
    pub(super) fn is_partial(&self) -> bool {
        self.taken < self.bytes.len()
    }

    pub(super) fn next(&mut self) -> Result<Option<Message>, MessageError> {
        if self.searched == 0 {
            let line_ends = self.rest().iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.taken += line_ends;
        }
        match *self.rest() {
            [] => Ok(None),
            [b'$', channel, high, low, ..] => {
                let end = 4 + usize::from(u16::from_be_bytes([high, low]));
                let Some(bytes) = self.rest().get(4..end).map(<[u8]>::to_vec) else { return Ok(None) };
                self.taken += end;
                Ok(Some(Message::Packet { channel, bytes }))
            }
            [b'$', ..] => Ok(None),
            _ => self.text(),
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn text(&mut self) -> Result<Option<Message>, MessageError> {
        let rest = self.rest();
        let from = self.searched.saturating_sub(HEAD_END.len() - 1);
        let found =
            rest.get(from..).and_then(|new| new.windows(HEAD_END.len()).position(|at| at == HEAD_END));
        let Some(head) = found.map(|at| from + at + HEAD_END.len()) else {
            self.searched = rest.len();
            return if self.searched > self.bounds.head { Err(self.head_too_large()) } else { Ok(None) };
        };
        if head > self.bounds.head {
            return Err(self.head_too_large());
        }
        let head_bytes = rest.get(..head).unwrap_or_default();
        let body = content_length(head_bytes)?;
        if body > self.bounds.body {
            return Err(MessageError::BodyTooLarge { given: body, limit: self.bounds.body });
        }
        let Some(whole) = rest.get(..head + body) else {
            // The head's end is found again when more has come.
            self.searched = head - 1;
            return Ok(None);
        };
        let message = parse(whole)?;
        self.taken += head + body;
        self.searched = 0;
        Ok(Some(message))
    }

    fn head_too_large(&self) -> MessageError {
        MessageError::HeadTooLarge(self.bounds.head)
    }
}

fn parse(whole: &[u8]) -> Result<Message, MessageError> {
    let (message, consumed) =
        rtsp_types::Message::<Vec<u8>>::parse(whole).map_err(|_: ParseError| MessageError::Grammar)?;
    if consumed != whole.len() {
        return Err(MessageError::Grammar);
    }
    match message {
        rtsp_types::Message::Request(inner) => {
            // Digest covers the URI as it was written, and parsing may change how it is written.
            let uri = whole.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
            let uri = String::from_utf8(uri.to_vec()).map_err(|_| MessageError::Grammar)?;
            Ok(Message::Request(Request { inner, uri }))
        }
        rtsp_types::Message::Response(_) => Ok(Message::Response),
        rtsp_types::Message::Data(_) => Err(MessageError::Grammar),
    }
}

/// The first `Content-Length`, as `rtsp_types` takes it.
fn content_length(head: &[u8]) -> Result<usize, MessageError> {
    let mut lines = head.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = line.split_at_checked(colon)?;
        name.eq_ignore_ascii_case(b"content-length").then(|| value.get(1..).unwrap_or_default())
    });
    let Some(value) = value else { return Ok(0) };
    std::str::from_utf8(value)
        .ok()
        .and_then(|value| value.trim().parse().ok())
        .ok_or(MessageError::ContentLength)
}

impl Request {
    pub(super) fn method(&self) -> &Method {
        self.inner.method()
    }

    pub(super) fn method_name(&self) -> &str {
        self.inner.method().into()
    }

    pub(super) fn is_version_1(&self) -> bool {
        self.inner.version() == Version::V1_0
    }

    /// The value of a header.
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.inner.header(name).map(|value| value.as_str())
    }

    pub(super) fn body(&self) -> &[u8] {
        self.inner.body()
    }
}

const HEAD_END: &[u8] = b"\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { head: 512, body: 256 };

    /// All messages, with the bytes pushed in pieces of these sizes.
    fn read(bytes: &[u8], sizes: &[u8]) -> (Vec<String>, Option<MessageError>) {
        let mut reader = MessageReader::new(BOUNDS);
        let mut found = Vec::new();
        let mut sizes = sizes.iter().map(|&size| usize::from(size) + 1).chain(std::iter::repeat(64));
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
            rest = after;
            reader.push(piece);
            loop {
                match reader.next() {
                    Ok(None) => break,
                    Ok(Some(Message::Request(request))) => {
                        found.push(format!("{} {} {:?}", request.method_name(), request.uri, request.body()));
                    }
                    Ok(Some(other)) => found.push(format!("{other:?}")),
                    Err(error) => return (found, Some(error)),
                }
            }
            let largest = 4 + usize::from(u16::MAX);
            assert!(reader.bytes.len() <= 256 + largest.max(BOUNDS.head + BOUNDS.body));
        }
        (found, None)
    }

    #[test]
    fn pipelined_messages_are_parted() {
        let bytes = b"\r\nOPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n$\x01\0\x02ab\
            ANNOUNCE rtsp://h/s RTSP/1.0\r\ncontent-length:  3\r\nCSeq: 2\r\n\r\nv=0\
            RTSP/1.0 200 OK\r\nCSeq: 9\r\n\r\n";
        let (found, error) = read(bytes, &[]);
        let expected = [
            "OPTIONS * []",
            "Packet { channel: 1, bytes: [97, 98] }",
            "ANNOUNCE rtsp://h/s [118, 61, 48]",
            "Response",
        ];
        assert_eq!((found.iter().map(String::as_str).collect::<Vec<_>>(), error), (expected.to_vec(), None));
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let head = format!("OPTIONS * RTSP/1.0\r\nX: {}", "y".repeat(600));
        assert_eq!(read(head.as_bytes(), &[]).1, Some(MessageError::HeadTooLarge(512)));
        let body = b"OPTIONS * RTSP/1.0\r\nContent-Length: 257\r\n\r\n";
        assert_eq!(read(body, &[]).1, Some(MessageError::BodyTooLarge { given: 257, limit: 256 }));
        let body = b"OPTIONS * RTSP/1.0\r\nContent-Length: -1\r\n\r\n";
        assert_eq!(read(body, &[]).1, Some(MessageError::ContentLength));
    }

    #[test]
    fn other_protocols_are_refused() {
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &[]).1, Some(MessageError::Grammar));
        assert_eq!(read(b"\x16\x03\x01\r\n\r\n", &[]).1, Some(MessageError::Grammar));
    }

    #[test]
    fn any_bytes_in_any_pieces() {
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(bytes, sizes)| {
            assert_eq!(read(bytes, sizes), read(bytes, &[]));
        });
    }

    #[test]
    fn requests_in_any_pieces() {
        bolero::check!().with_type::<(Vec<(bool, Vec<u8>)>, Vec<u8>)>().for_each(|(messages, sizes)| {
            let mut bytes = Vec::new();
            for (request, body) in messages {
                let body = &body[..body.len().min(256)];
                if *request {
                    let head = "ANNOUNCE rtsp://h/s RTSP/1.0\r\nContent-Length: ";
                    bytes.extend(format!("{head}{}\r\n\r\n", body.len()).as_bytes());
                } else {
                    bytes.extend([b'$', 0, (body.len() >> 8) as u8, body.len() as u8]);
                }
                bytes.extend(body);
            }
            let (found, error) = read(&bytes, sizes);
            assert_eq!((found.len(), error), (messages.len(), None));
        });
    }
}
