//! Bytes of a framing before a piece of a record.

/// Up to eight framing bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    bytes: [u8; Prefix::MAX],
    len: u8,
}

impl Prefix {
    /// The longest prefix of any framing.
    pub const MAX: usize = 8;

    pub(crate) fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        let begin = usize::from(self.len);
        self.bytes[begin..begin + N].copy_from_slice(&bytes);
        self.len += N as u8;
    }

    /// The bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AsRef<[u8]> for Prefix {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}
