/// Bytes of a stream that were pushed and not yet taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    taken: usize,
    /// Stream offset of the first byte not taken.
    offset: u64,
}

impl Buffer {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
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

    /// Frees everything; used after an error.
    pub(crate) fn clear(&mut self) {
        *self = Self { offset: self.offset, ..Self::default() };
    }
}
