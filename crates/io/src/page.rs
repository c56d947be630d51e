//! Memory that the kernel copies into.

use std::ops::{Deref, DerefMut};

/// Bytes that begin with a page, as what the kernel copies into them does as a rule.
///
/// Some processors (Zen 3) copy ten times as slowly where the destination lies up to 31 bytes further into its page
/// than the source. The allocator places every buffer from the kernel like that.
pub struct PageBuffer {
    /// A page more than is used.
    bytes: Vec<u8>,
    begin: usize,
}

impl PageBuffer {
    /// A buffer of this length, all zero. The kernel allocates a page when it is first written.
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + PAGE_BYTES];
        // The offset is below a page where it is known, which it is but for `const` evaluation.
        let begin = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        bytes.truncate(begin + len);
        Self { bytes, begin }
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..]
    }
}

impl std::fmt::Debug for PageBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PageBuffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The smallest page of any machine that Linux supports.
const PAGE_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_a_page_however_large_it_is() {
        for len in [0, 1, 100, 64 << 10, 1 << 20] {
            let mut buffer = PageBuffer::new(len);
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % PAGE_BYTES), (len, 0));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }
}
