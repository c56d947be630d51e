//! Server-sent events: the body of an answer of type `text/event-stream`, which browsers read with `EventSource`.
//!
//! Each record is one event, `id: NUMBER` and `data: RECORD`. A record has to be one line of UTF-8; [`encode`] makes text of
//! several lines fit. A browser that reconnects sends the last number in `Last-Event-ID`. A sender of state needs no
//! history for it: a new connection gets the current values.

use std::borrow::Cow;
use std::io::Write as _;

use super::{Framer, Piece};

/// The type of the body.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// A line that receivers ignore, with which a sender keeps proxies from ending a silent connection. It may be
/// interjected.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// Lines for a person, which receivers ignore. They may be interjected.
pub fn comment(text: &str) -> Vec<u8> {
    let mut lines: String = text.lines().map(|line| format!(": {line}\n")).collect();
    lines.push('\n');
    lines.into_bytes()
}

/// Text as the record of one event: each line break becomes the beginning of another `data:` line. The receiver gets line
/// feeds, whichever breaks were in the text.
pub fn encode(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r']) {
        return Cow::Borrowed(text);
    }
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    Cow::Owned(unified.replace('\n', "\ndata: "))
}

/// Writes each record as one event.
#[derive(Debug, Default)]
pub struct EventStream {
    retry_ms: Option<u32>,
    progress: Option<Progress>,
}

#[derive(Debug)]
struct Progress {
    seq: u64,
    len: u32,
    is_named: bool,
}

impl EventStream {
    /// Events, with the browser's own pause before it reconnects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the pause before a browser reconnects, in milliseconds.
    #[must_use]
    pub fn retry(mut self, milliseconds: u32) -> Self {
        self.retry_ms = Some(milliseconds);
        self
    }
}

impl From<EventStream> for Box<dyn Framer> {
    fn from(events: EventStream) -> Self {
        Box::new(events)
    }
}

impl Framer for EventStream {
    fn preamble(&mut self, out: &mut Vec<u8>) {
        if let Some(retry) = self.retry_ms {
            // Writing to memory does not fail.
            let _ = write!(out, "retry: {retry}\n\n");
        }
    }

    fn begin(&mut self, seq: u64, len: u32) {
        self.progress = Some(Progress { seq, len, is_named: false });
    }

    //= spec/framing.md 24
    fn next(&mut self, _max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let progress = self.progress.as_mut()?;
        let len = progress.len;
        if !progress.is_named {
            progress.is_named = true;
            let _ = write!(prefix, "id: {}\ndata: ", progress.seq);
            return Some(Piece { payload: 0..len, last: false, boundary: false });
        }
        self.progress = None;
        prefix.extend_from_slice(b"\n\n");
        Some(Piece { payload: len..len, last: true, boundary: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(records: &[&str]) -> String {
        let mut framer = EventStream::new().retry(500);
        let mut out = Vec::new();
        framer.preamble(&mut out);
        for (seq, record) in (7..).zip(records) {
            framer.begin(seq, record.len() as u32);
            while let Some(piece) = framer.next(1, &mut out) {
                out.extend_from_slice(
                    &record.as_bytes()[piece.payload.start as usize..piece.payload.end as usize],
                );
                assert_eq!(piece.last, piece.boundary, "nothing fits within an event");
            }
        }
        String::from_utf8(out).unwrap()
    }

    /// The data of each event, read as the standard says.
    fn data(stream: &str) -> Vec<String> {
        let events = stream.split("\n\n").filter(|event| event.contains("data: "));
        let lines = |event: &str| {
            event.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<Vec<_>>().join("\n")
        };
        events.map(lines).collect()
    }

    #[test]
    fn each_record_is_one_event() {
        assert_eq!(stream(&["a", ""]), "retry: 500\n\nid: 7\ndata: a\n\nid: 8\ndata: \n\n");
    }

    #[test]
    fn text_of_several_lines_stays_one_event() {
        assert_eq!(encode("one line"), "one line");
        for (text, expected) in
            [("a\nb", "a\nb"), ("a\r\nb\rc", "a\nb\nc"), ("\n", "\n"), ("a\n\nb", "a\n\nb")]
        {
            assert_eq!(data(&stream(&[&encode(text)])), [expected], "{text:?}");
        }
    }
}
