//! The lines of NATS' client protocol, and the messages behind some of them.

/// The longest line that is taken. A server says its cluster's addresses in one.
pub(super) const MAX_LINE_BYTES: usize = 32 << 10;

/// The bytes do not follow the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// Cuts the bytes of a connection. A message above the limit is passed over and never kept.
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Bytes in front that have been read.
    read: usize,
    /// Bytes to come of a message that is too large.
    passing: usize,
    most: usize,
}

/// Something that a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// A line other than that of a message.
    Line(&'a str),
    Message(Message<'a>),
    /// A message above the limit, for this subscription.
    TooLarge(u64),
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) subject: &'a str,
    /// The number of the subscription.
    pub(super) subscription: u64,
    pub(super) reply: Option<&'a str>,
    pub(super) headers: Headers<'a>,
    pub(super) payload: &'a [u8],
}

/// The headers of a message: `NATS/1.0 STATUS TEXT`, then lines `NAME: VALUE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers<'a>(&'a str);

impl<'a> Headers<'a> {
    /// The status of a message of the server's own.
    pub(super) fn status(self) -> Option<&'a str> {
        self.0.lines().next()?.split(' ').nth(1)
    }

    /// The first value of this name.
    pub(super) fn value(self, name: &str) -> Option<&'a str> {
        let pairs = self.0.lines().skip(1).filter_map(|line| line.split_once(':'));
        pairs.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// What the line of a message says.
struct Head<'a> {
    subject: &'a str,
    subscription: u64,
    reply: Option<&'a str>,
    header_bytes: usize,
    bytes: usize,
}

impl Input {
    /// Keeps at most this number of bytes of a message.
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), read: 0, passing: 0, most }
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        if self.passing > 0 {
            let passed = self.passing.min(bytes.len());
            self.passing -= passed;
            bytes = bytes.get(passed..).unwrap_or_default();
        }
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line or message; `None` if more bytes have to come.
    pub(super) fn next(&mut self) -> Result<Option<Said<'_>>, Malformed> {
        let Self { bytes, read, passing, most } = self;
        let rest = bytes.get(*read..).unwrap_or_default();
        let end = rest.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return if rest.len() < MAX_LINE_BYTES { Ok(None) } else { Err(Malformed("a line is too long")) };
        };
        let line = rest.get(..end).unwrap_or_default();
        let line = str::from_utf8(line).map_err(|_| Malformed("a line is no text"))?.trim_end();
        let Some(head) = Head::read(line)? else {
            *read += end + 1;
            return Ok(Some(Said::Line(line)));
        };
        let begin = *read + end + 1;
        // The line's end behind it is not counted.
        let whole = head.bytes.checked_add(2).ok_or(Malformed("a message is too long"))?;
        if head.bytes > *most {
            let there = bytes.len() - begin;
            *passing = whole.saturating_sub(there);
            *read = begin + whole.min(there);
            return Ok(Some(Said::TooLarge(head.subscription)));
        }
        let Some(body) = bytes.get(begin..begin + whole) else { return Ok(None) };
        *read = begin + whole;
        let (headers, payload) = body
            .strip_suffix(b"\r\n")
            .and_then(|body| body.split_at_checked(head.header_bytes))
            .ok_or(Malformed("a message does not end where it has to"))?;
        let headers = str::from_utf8(headers).map_err(|_| Malformed("a message's headers are no text"))?;
        let Head { subject, subscription, reply, .. } = head;
        Ok(Some(Said::Message(Message { subject, subscription, reply, headers: Headers(headers), payload })))
    }
}

impl<'a> Head<'a> {
    /// `MSG SUBJECT NUMBER [REPLY] BYTES`, `HMSG SUBJECT NUMBER [REPLY] HEADER-BYTES BYTES`; `None` for another line.
    fn read(line: &'a str) -> Result<Option<Self>, Malformed> {
        let mut words = line.split_ascii_whitespace();
        let has_headers = match words.next() {
            Some(word) if word.eq_ignore_ascii_case("msg") => false,
            Some(word) if word.eq_ignore_ascii_case("hmsg") => true,
            _ => return Ok(None),
        };
        let words: Vec<&str> = words.take(6).collect();
        let number = |word: &str| {
            word.parse().map_err(|_| Malformed("a message's line has no number where one belongs"))
        };
        let (subject, subscription, reply, header_bytes, bytes) = match (has_headers, words.as_slice()) {
            (false, [subject, id, bytes]) => (subject, id, None, 0, number(bytes)?),
            (false, [subject, id, reply, bytes]) => (subject, id, Some(*reply), 0, number(bytes)?),
            (true, [subject, id, head, bytes]) => (subject, id, None, number(head)?, number(bytes)?),
            (true, [subject, id, reply, head, bytes]) => {
                (subject, id, Some(*reply), number(head)?, number(bytes)?)
            }
            _ => return Err(Malformed("a message's line has too few or too many words")),
        };
        let subscription =
            subscription.parse().map_err(|_| Malformed("a message is for no subscription of this client"))?;
        Ok(Some(Self { subject, subscription, reply, header_bytes, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_messages_are_cut_wherever_the_bytes_are_split() {
        let large = "y".repeat(99);
        let bytes = format!(
            "INFO {{\"a\":1}}\r\nPING\r\nMSG a.b 1 3\r\nx\ny\r\nHMSG a 2 r.1 16 20\r\nNATS/1.0\r\nA: b\r\nbody\r\n\
             MSG big 1 99\r\n{large}\r\n+OK\r\n"
        );
        for step in [1, 2, 3, 7, 50, 1000] {
            let mut input = Input::new(50);
            let mut found = Vec::new();
            for piece in bytes.as_bytes().chunks(step) {
                input.push(piece);
                while let Some(said) = input.next().unwrap() {
                    found.push(match said {
                        Said::Line(line) => line.to_owned(),
                        Said::TooLarge(id) => format!("large {id}"),
                        Said::Message(it) => format!(
                            "{} {} {:?} {:?} {:?}",
                            it.subject,
                            it.subscription,
                            it.reply,
                            it.headers.value("a"),
                            String::from_utf8_lossy(it.payload)
                        ),
                    });
                }
            }
            let expected = [
                "INFO {\"a\":1}",
                "PING",
                "a.b 1 None None \"x\\ny\"",
                "a 2 Some(\"r.1\") Some(\"b\") \"body\"",
                "large 1",
                "+OK",
            ];
            assert_eq!(found, expected, "{step}");
        }
    }

    #[test]
    fn a_message_above_the_limit_is_not_kept() {
        let mut input = Input::new(100);
        input.push(b"MSG a 1 1000000\r\n");
        assert_eq!(input.next(), Ok(Some(Said::TooLarge(1))));
        for _ in 0..10 {
            input.push(&[b'x'; 10_000]);
            assert_eq!(input.next(), Ok(None));
            assert!(input.bytes.is_empty());
        }
    }

    #[test]
    fn broken_lines_are_refused() {
        for wrong in [
            "MSG a 1\r\n",
            "MSG a 1 x\r\n",
            "MSG a x 1\r\n",
            "MSG a 1 r 2 3 4\r\n",
            "MSG a 1 18446744073709551615\r\n",
            "HMSG a 1 9 3\r\nabc\r\n",
            "MSG a 1 1\r\nabc\r\n",
            "\u{fffd}\u{fffd}",
        ] {
            let mut input = Input::new(100);
            input.push(wrong.as_bytes());
            let first = input.next();
            assert!(matches!(first, Err(_) | Ok(None)), "{wrong:?}: {first:?}");
        }
        let mut endless = Input::new(100);
        endless.push(&vec![b'x'; MAX_LINE_BYTES]);
        assert!(endless.next().is_err());
    }

    #[test]
    fn any_bytes_are_lines_or_refused() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let mut input = Input::new(64);
            input.push(bytes);
            while let Ok(Some(said)) = input.next() {
                if let Said::Message(message) = said {
                    assert!(message.payload.len() <= 64);
                    let _ = (message.headers.status(), message.headers.value("x"));
                }
            }
        });
    }
}
