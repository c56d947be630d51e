use super::{Framer, Framing, Piece};

/// A [`Framing`] at work.
#[derive(Debug)]
struct Basic {
    framing: Framing,
    seq: u64,
    position: u32,
    len: u32,
    ended: bool,
}

impl From<Framing> for Box<dyn Framer> {
    fn from(framing: Framing) -> Self {
        Box::new(Basic { framing, seq: 0, position: 0, len: 0, ended: true })
    }
}

impl Framer for Basic {
    fn preamble(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.framing.preamble());
    }

    fn begin(&mut self, seq: u64, len: u32) {
        *self = Self { framing: self.framing, seq, position: 0, len, ended: false };
    }

    fn next(&mut self, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        if self.ended {
            return None;
        }
        // A caller takes `None` for the record's end, and the last bytes of a segment may be fewer than a length.
        let max = max.max(self.framing.prefix_bytes(self.position) + 1);
        let remaining = self.len - self.position;
        let chunk = self.framing.chunk(self.seq, self.position, remaining, max)?;
        prefix.extend_from_slice(chunk.prefix.as_bytes());
        let begin = self.position;
        self.position += chunk.body;
        self.ended = chunk.body == remaining;
        Some(Piece { payload: begin..self.position, last: self.ended, boundary: self.ended })
    }

    fn plain(&self) -> Option<Framing> {
        Some(self.framing)
    }

    fn can_abandon(&self) -> bool {
        self.framing.can_abandon()
    }

    fn abandon(&mut self, prefix: &mut Vec<u8>) {
        if let Some(marker) = self.framing.abandon() {
            prefix.extend_from_slice(marker.as_bytes());
        }
    }
}
