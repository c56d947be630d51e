//! The bytes of a connection, parted into requests, answers and interleaved packets.
//!
//! Common deviations of programs and cameras are accepted. Lines may end with LF only, headers may not be UTF-8, and
//! an address may have unescaped characters or an IPv6 zone. So each head is brought into the form of RFC 2326 before
//! `rtsp_types` reads it.

use rtsp_types::headers::HeaderName;
use rtsp_types::{Method, ParseError, Version};

use crate::access::text;

/// A received message.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request.
    Request(Request),
    /// An answer.
    Response(Response),
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
pub(crate) struct Request {
    /// The message as `rtsp_types` reads it.
    inner: rtsp_types::Request<Vec<u8>>,
    /// The URI.
    pub(crate) uri: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    /// 100 to 999.
    pub(crate) status: u16,
    /// The reason for people; may be empty.
    pub(crate) reason: String,
    headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// Bytes that are no message, or one beyond the limits. Nothing can be read behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("request line and headers exceed {0} bytes")]
    HeadTooLarge(usize),
    #[error("a body of {given} bytes; at most {limit} are accepted")]
    BodyTooLarge { given: usize, limit: usize },
    #[error("Content-Length is no number")]
    ContentLength,
    #[error("not an RTSP message")]
    Grammar,
}

/// Most bytes of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most bytes of a request's line and headers.
    pub(crate) head: usize,
    /// Most bytes of a body.
    pub(crate) body: usize,
}

/// Parts the bytes of a connection. Push what was read, then take messages until there are none.
#[derive(Debug)]
pub(crate) struct MessageReader {
    bounds: Bounds,
    bytes: Vec<u8>,
    taken: usize,
    /// Bytes after `taken` in which no head ends.
    searched: usize,
}

impl MessageReader {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, bytes: Vec::new(), taken: 0, searched: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// A message is in progress.
    pub(crate) fn is_partial(&self) -> bool {
        self.taken < self.bytes.len()
    }

    pub(crate) fn next(&mut self) -> Result<Option<Message>, MessageError> {
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

    /// After an error: leaves out what cannot be read, up to what looks like an answer or like an interleaved RTP or RTCP
    /// packet. For who has asked for a stream and rather goes on with a hole in it than ends.
    pub(crate) fn resynchronize(&mut self) {
        let rest = self.rest();
        let looks = |at: &usize| match rest.get(*at..).unwrap_or_default() {
            [b'$', _, _, _, version, ..] => version >> 6 == 2,
            text => text.starts_with(PROTOCOL.as_bytes()),
        };
        // An incomplete start of one stays.
        let kept = rest.len().saturating_sub(PROTOCOL.len() - 1);
        let next = (1..rest.len()).find(looks).unwrap_or(kept.max(1).min(rest.len()));
        self.taken += next;
        self.searched = 0;
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn text(&mut self) -> Result<Option<Message>, MessageError> {
        let rest = self.rest();
        let found = head_end(rest, self.searched);
        let searched = rest.get(..found.unwrap_or(rest.len()).min(self.bounds.head)).unwrap_or_default();
        if searched.iter().skip(self.searched).any(is_binary) {
            return Err(MessageError::Grammar);
        }
        let Some(head) = found else {
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
        let (head_bytes, body_bytes) = whole.split_at_checked(head).unwrap_or_default();
        let message = parse(head_bytes, body_bytes)?;
        self.taken += head + body;
        self.searched = 0;
        Ok(Some(message))
    }

    fn head_too_large(&self) -> MessageError {
        MessageError::HeadTooLarge(self.bounds.head)
    }
}

fn parse(head: &[u8], body: &[u8]) -> Result<Message, MessageError> {
    let head = text(head);
    let mut lines = head.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let first = lines.next().unwrap_or_default().trim();
    let lines = lines.filter(|line| !line.is_empty());
    if first.starts_with(PROTOCOL) {
        return Response::parse(first, lines, body).map(Message::Response).ok_or(MessageError::Grammar);
    }
    // Digest covers the URI as it was written, and parsing may change how it is written, or refuse it.
    let (method, rest) = first.split_once(' ').ok_or(MessageError::Grammar)?;
    let (uri, version) = rest.rsplit_once(' ').ok_or(MessageError::Grammar)?;
    let mut normal = format!("{method} * {version}\r\n").into_bytes();
    for line in lines {
        let continues = line.starts_with([' ', '\t']);
        // A line that is no header is none that anybody needs.
        if continues || line.split_once(':').is_some_and(|(name, _)| is_token(name.trim_end())) {
            let (name, value) = line.split_once(':').filter(|_| !continues).unwrap_or(("", line));
            let colon = if continues { "" } else { ":" };
            normal.extend(format!("{}{colon}{value}\r\n", name.trim_end()).as_bytes());
        }
    }
    normal.extend(b"\r\n");
    normal.extend(body);
    let parsed = rtsp_types::Message::<Vec<u8>>::parse(&normal);
    match parsed.map_err(|_: ParseError| MessageError::Grammar)? {
        (rtsp_types::Message::Request(inner), consumed) if consumed == normal.len() => {
            Ok(Message::Request(Request { inner, uri: uri.trim().to_owned() }))
        }
        _ => Err(MessageError::Grammar),
    }
}

/// Where a head ends that begins with `bytes`: behind its first empty line. No line ends in the first `searched` bytes but
/// perhaps the last one.
fn head_end(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    let new = bytes.get(from..)?;
    let mut ends = new.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    ends.find_map(|at| match new.get(at + 1..)? {
        [b'\n', ..] => Some(from + at + 2),
        [b'\r', b'\n', ..] => Some(from + at + 3),
        _ => None,
    })
}

/// Control characters, which no head has.
fn is_binary(byte: &u8) -> bool {
    byte.is_ascii_control() && !matches!(byte, b'\r' | b'\n' | b'\t')
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
}

impl Response {
    fn parse<'a>(first: &str, lines: impl Iterator<Item = &'a str>, body: &[u8]) -> Option<Self> {
        let (_, rest) = first.split_once(' ')?;
        let (status, reason) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
        let status = status.parse().ok().filter(|status| (100..1000).contains(status))?;
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in lines {
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = headers.last_mut() {
                    value.push(' ');
                    value.push_str(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        Some(Self { status, reason: reason.trim().to_owned(), headers, body: body.to_vec() })
    }

    /// The first value of a header, whose name is given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    /// All values of a header, whose name is given in lower case.
    pub(crate) fn headers<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
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
    pub(crate) fn method(&self) -> &Method {
        self.inner.method()
    }

    pub(crate) fn method_name(&self) -> &str {
        self.inner.method().into()
    }

    pub(crate) fn is_version_1(&self) -> bool {
        self.inner.version() == Version::V1_0
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.inner.header(name).map(|value| value.as_str())
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.inner.body()
    }
}

/// The start of an answer.
const PROTOCOL: &str = "RTSP/";

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
                    Ok(Some(Message::Response(response))) => {
                        let Response { status, reason, headers, body } = response;
                        found.push(format!("{status} {reason:?} {headers:?} {body:?}"));
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
            "200 \"OK\" [(\"cseq\", \"9\")] []",
        ];
        assert_eq!((found.iter().map(String::as_str).collect::<Vec<_>>(), error), (expected.to_vec(), None));
    }

    #[test]
    fn oversized_heads_and_bodies_are_refused() {
        let head = format!("OPTIONS * RTSP/1.0\r\nX: {}", "y".repeat(600));
        assert_eq!(read(head.as_bytes(), &[]).1, Some(MessageError::HeadTooLarge(512)));
        let body = b"OPTIONS * RTSP/1.0\r\nContent-Length: 257\r\n\r\n";
        assert_eq!(read(body, &[]).1, Some(MessageError::BodyTooLarge { given: 257, limit: 256 }));
        let body = b"OPTIONS * RTSP/1.0\r\nContent-Length: -1\r\n\r\n";
        assert_eq!(read(body, &[]).1, Some(MessageError::ContentLength));
    }

    #[test]
    fn lax_syntax_of_clients_and_cameras_is_accepted() {
        let one = |bytes: &[u8]| {
            let (found, error) = read(bytes, &[]);
            assert_eq!((found.len(), error), (1, None), "{}", String::from_utf8_lossy(bytes));
            found.into_iter().next().expect("one")
        };
        assert_eq!(one(b"OPTIONS rtsp://h/c RTSP/1.0\nCSeq: 1\n\n"), "OPTIONS rtsp://h/c []");
        assert_eq!(one("PLAY rtsp://h/haustür RTSP/1.0\r\n\r\n".as_bytes()), "PLAY rtsp://h/haustür []");
        assert_eq!(one(b"PLAY rtsp://h/haust\xfcr RTSP/1.0\r\n\r\n"), "PLAY rtsp://h/haustür []");
        assert_eq!(one(b"PLAY rtsp://h/my cam RTSP/1.0\r\n\r\n"), "PLAY rtsp://h/my cam []");
        let zone = "PLAY rtsp://[fe80::1%eth0]:8554/c []";
        assert_eq!(one(b"PLAY rtsp://[fe80::1%eth0]:8554/c RTSP/1.0\r\nX y\r\nA : b\r\n\r\n"), zone);
        // Answers of cameras.
        assert_eq!(one(b"RTSP/1.0 200\nCSeq: 1 \n\n"), "200 \"\" [(\"cseq\", \"1\")] []");
        let answer = one(b"RTSP/1.0 401 No\r\nA: 1\r\n 2\r\na:3\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(
            answer,
            "401 \"No\" [(\"a\", \"1 2\"), (\"a\", \"3\"), (\"content-length\", \"1\")] [120]"
        );
    }

    #[test]
    fn a_reader_finds_its_place_again() {
        let mut reader = MessageReader::new(BOUNDS);
        reader.push(b"\0garbage $x$\x07\0\x04\x80abcRTSP/1.0 200 OK\r\n\r\n");
        assert!(matches!(reader.next(), Err(MessageError::Grammar)));
        reader.resynchronize();
        assert!(matches!(reader.next(), Ok(Some(Message::Packet { channel: 7, .. }))));
        assert!(matches!(reader.next(), Ok(Some(Message::Response(_)))));
        // Garbage without end takes no memory without end.
        for _ in 0..1000 {
            reader.push(&[1; 64]);
            if reader.next().is_err() {
                reader.resynchronize();
            }
            assert!(reader.bytes.len() < 1000);
        }
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
