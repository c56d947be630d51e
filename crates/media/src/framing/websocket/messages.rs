use super::frame::{MessageKind, Opcode, frame_header};
use crate::framing::framer::{Framer, Piece};

/// Writes each record as one WebSocket message to a client.
///
/// Only whole frames may be interjected: those of a [`Reader`](super::Reader), [`ping`](super::ping), [`close`](super::close) and, unless messages have
/// [fragments](Self::fragments), other messages.
pub struct Messages {
    kind: Box<dyn Fn(u64) -> MessageKind + Send>,
    fragment: u32,
    progress: Option<Progress>,
}

struct Progress {
    kind: MessageKind,
    position: u32,
    len: u32,
}

impl Messages {
    /// Messages of one kind.
    pub fn new(kind: MessageKind) -> Self {
        Self::by_number(move |_| kind)
    }

    /// Text messages.
    pub fn text() -> Self {
        Self::new(MessageKind::Text)
    }

    /// Binary messages.
    pub fn binary() -> Self {
        Self::new(MessageKind::Binary)
    }

    /// Messages whose kind follows from the record's number.
    pub fn by_number(kind: impl Fn(u64) -> MessageKind + Send + 'static) -> Self {
        Self { kind: Box::new(kind), fragment: u32::MAX, progress: None }
    }

    /// Sends messages of more than `bytes` in fragments of that size, at least one byte. Control frames then go between
    /// fragments, so that a ping is answered while a large message is in progress. Nothing else may be interjected.
    #[must_use]
    pub fn fragments(mut self, bytes: u32) -> Self {
        self.fragment = bytes.max(1);
        self
    }
}

impl From<Messages> for Box<dyn Framer> {
    fn from(messages: Messages) -> Self {
        Box::new(messages)
    }
}

impl Framer for Messages {
    fn begin(&mut self, seq: u64, len: u32) {
        self.progress = Some(Progress { kind: (self.kind)(seq), position: 0, len });
    }

    //= spec/framing.md 20, 21
    fn next(&mut self, _max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let progress = self.progress.as_mut()?;
        let start = progress.position;
        let end = start.saturating_add(self.fragment).min(progress.len);
        let opcode = if start == 0 { progress.kind.into() } else { Opcode::Continuation };
        let last = end == progress.len;
        frame_header(last, opcode, u64::from(end - start), prefix);
        progress.position = end;
        if last {
            self.progress = None;
        }
        Some(Piece { payload: start..end, last, boundary: true })
    }
}
