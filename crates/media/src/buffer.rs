/// Bytes of a stream that were pushed and not yet taken; none any more after an error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    taken: usize,
    /// Stream offset of the first byte not taken.
    offset: u64,
    failed: bool,
}

impl Buffer {
    /// Adds the next bytes; ignored after an error.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        if self.taken > 0 && self.taken >= self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn peek(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes the next `len` bytes, if that many are there.
    pub(crate) fn take(&mut self, len: usize) -> Option<&[u8]> {
        let end = self.taken.checked_add(len)?;
        let bytes = self.bytes.get(self.taken..end)?;
        self.taken = end;
        self.offset += len as u64;
        Some(bytes)
    }

    /// Takes the next `N` bytes, if that many are there.
    pub(crate) fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.peek().first_chunk::<N>()?;
        self.take(N)?;
        Some(bytes)
    }

    /// What an iterator over the stream yields for what was read. After an error there are no bytes any more, because a
    /// stream that broke its framing has no place to begin again.
    pub(crate) fn settle<T, E>(&mut self, read: Result<Option<T>, E>) -> Option<Result<T, E>> {
        if read.is_err() {
            *self = Self { offset: self.offset, failed: true, ..Self::default() };
        }
        read.transpose()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_after_an_error() {
        let mut buffer = Buffer::default();
        buffer.push(b"abc");
        assert_eq!(buffer.take(1), Some(&b"a"[..]));
        assert_eq!(buffer.settle::<(), _>(Err("damage")), Some(Err("damage")));
        buffer.push(b"more");
        assert_eq!((buffer.peek(), buffer.offset(), buffer.has_failed()), (&[][..], 1, true));
    }
}
