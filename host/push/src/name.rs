//! Source addresses in the kernel's own form.

/// Size of the largest socket address that UDP has, `sockaddr_in6`.
const NAME_LEN: usize = 28;

/// A source address in the kernel's own form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_LEN],
    len: u8,
}

impl Name {
    /// The address in these bytes of a `sockaddr`; what is longer than `NAME_LEN` is cut off.
    pub fn new(sockaddr: &[u8]) -> Self {
        let len = sockaddr.len().min(NAME_LEN);
        let mut bytes = [0; NAME_LEN];
        bytes[..len].copy_from_slice(&sockaddr[..len]);
        Self { bytes, len: u8::try_from(len).unwrap_or(0) }
    }

    /// The bytes of the `sockaddr`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
