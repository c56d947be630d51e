/// Bytes from the peer that are not a packet, frame or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It ends in the middle.
    #[error("the packet ends in the middle of a field")]
    Truncated,
    /// A type that this version does not know.
    #[error("{0:#04x} is not a type of packet or frame")]
    UnknownType(u8),
    /// A value beyond its bound.
    #[error("{0} is out of bounds")]
    OutOfBounds(&'static str),
}
