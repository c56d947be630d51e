use super::cursor::Cursor;
use super::error::Malformed;
use crate::crypto::ResetToken;

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// An initiation is padded to this (A1-PKT-1), so that an answer to an address that may be forged is smaller
/// than the initiation.
pub(crate) const MIN_INITIATION: usize = 1200;

/// Bytes in front of the protected part of a data packet.
pub(crate) const DATA_HEADER: usize = 8;

/// Bytes of a reset. It answers longer packets only, and every packet under encryption is longer.
pub(crate) const RESET_LENGTH: usize = 1 + 4 + ResetToken::LENGTH;

/// The longest cookie that is taken along (spec/a1.md, packets).
const MAX_COOKIE: usize = 64;

/// The part of a data packet that is readable without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataHeader {
    /// The receiver's number for the connection.
    pub(crate) to: u32,
    /// The packet's number, of which the low 24 bits are sent.
    pub(crate) number: u32,
    /// Which of two keys protects it.
    pub(crate) phase: bool,
    /// It holds blocks that were sent before (Mapp 1997).
    pub(crate) retransmitted: bool,
    /// It holds neither data nor SYNC.
    pub(crate) control: bool,
    /// The sender asks for an acknowledgement at once.
    pub(crate) ack_now: bool,
}

impl DataHeader {
    /// The header.
    pub(crate) fn bytes(&self) -> [u8; DATA_HEADER] {
        let ([to0, to1, to2, to3], [_, n0, n1, n2]) = (self.to.to_be_bytes(), self.number.to_be_bytes());
        [self.flags(), to0, to1, to2, to3, n0, n1, n2]
    }

    fn flags(&self) -> u8 {
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        DATA << 4
            | flag(PHASE, self.phase)
            | flag(RETRANSMITTED, self.retransmitted)
            | flag(CONTROL, self.control)
            | flag(ACK_NOW, self.ack_now)
    }
}

/// Whether a datagram goes before data and SYNC of the same batch (Mapp 1997, two queues): a data packet with retransmitted
/// blocks, or without data and SYNC.
pub(crate) fn is_urgent(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first >> 4 == DATA && first & (RETRANSMITTED | CONTROL) != 0)
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// The first packet of whoever begins a connection.
    Initiation {
        version: u32,
        /// The initiator's number for the connection.
        from: u32,
        /// As a [`Packet::Retry`] gave it; empty at first.
        cookie: &'a [u8],
        noise: &'a [u8],
    },
    /// Prove that the address is yours: begin again with this cookie.
    Retry { to: u32, cookie: &'a [u8] },
    /// The answer to an initiation.
    Response { to: u32, from: u32, noise: &'a [u8] },
    /// The version is unknown; this is what is known instead.
    Version { to: u32, version: u32 },
    /// Everything after the handshake; the second value is protected.
    Data(DataHeader, &'a [u8]),
    /// The sender knows no connection `to`, to which a data packet came; `token` proves that it once did.
    Reset { to: u32, token: ResetToken },
    /// To all members of a group; `sealed` is protected with the group's key.
    Group { group: u32, number: u32, sealed: &'a [u8] },
}

impl<'a> Packet<'a> {
    /// Reads a datagram.
    //= spec/a1.md A1-PKT-1
    pub(crate) fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(datagram);
        let first = cursor.u8()?;
        match first >> 4 {
            INITIATION if datagram.len() < MIN_INITIATION => Err(Malformed::Truncated),
            INITIATION => Ok(Self::Initiation {
                version: cursor.u32()?,
                from: cursor.u32()?,
                cookie: cookie(&mut cursor)?,
                noise: noise(&mut cursor)?,
            }),
            RETRY => Ok(Self::Retry { to: cursor.u32()?, cookie: cookie(&mut cursor)? }),
            RESPONSE => {
                Ok(Self::Response { to: cursor.u32()?, from: cursor.u32()?, noise: noise(&mut cursor)? })
            }
            VERSIONS => Ok(Self::Version { to: cursor.u32()?, version: cursor.u32()? }),
            DATA => {
                let header = DataHeader {
                    to: cursor.u32()?,
                    number: cursor.u24()?,
                    phase: first & PHASE != 0,
                    retransmitted: first & RETRANSMITTED != 0,
                    control: first & CONTROL != 0,
                    ack_now: first & ACK_NOW != 0,
                };
                Ok(Self::Data(header, cursor.rest()))
            }
            RESET => Ok(Self::Reset { to: cursor.u32()?, token: ResetToken::from_bytes(cursor.array()?) }),
            GROUP => Ok(Self::Group { group: cursor.u32()?, number: cursor.u24()?, sealed: cursor.rest() }),
            _ => Err(Malformed::UnknownType(first)),
        }
    }

    /// Appends the datagram.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        match *self {
            Self::Initiation { version, from, cookie, noise } => {
                out.push(INITIATION << 4);
                out.extend(version.to_be_bytes());
                out.extend(from.to_be_bytes());
                put_cookie(out, cookie);
                put_noise(out, noise);
                out.resize(out.len().max(begin + MIN_INITIATION), 0);
            }
            Self::Retry { to, cookie } => {
                out.push(RETRY << 4);
                out.extend(to.to_be_bytes());
                put_cookie(out, cookie);
            }
            Self::Response { to, from, noise } => {
                out.push(RESPONSE << 4);
                out.extend(to.to_be_bytes());
                out.extend(from.to_be_bytes());
                put_noise(out, noise);
            }
            Self::Version { to, version } => {
                out.push(VERSIONS << 4);
                out.extend(to.to_be_bytes());
                out.extend(version.to_be_bytes());
            }
            Self::Data(header, sealed) => {
                out.extend(header.bytes());
                out.extend(sealed);
            }
            Self::Reset { to, token } => {
                out.push(RESET << 4);
                out.extend(to.to_be_bytes());
                out.extend(token.as_bytes());
            }
            Self::Group { group, number, sealed } => {
                put_group_header(group, number, out);
                out.extend(sealed);
            }
        }
    }
}

/// Appends what is in front of the protected part of a group's packet; it is as long as that of a data packet.
pub(crate) fn put_group_header(group: u32, number: u32, out: &mut Vec<u8>) {
    out.push(GROUP << 4);
    out.extend(group.to_be_bytes());
    out.extend(&number.to_be_bytes()[1..]);
}

fn cookie<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Malformed> {
    let len = usize::from(cursor.u8()?);
    if len > MAX_COOKIE {
        return Err(Malformed::OutOfBounds("length of the cookie"));
    }
    cursor.take(len)
}

fn put_cookie(out: &mut Vec<u8>, cookie: &[u8]) {
    debug_assert!(cookie.len() <= MAX_COOKIE);
    out.push(cookie.len() as u8);
    out.extend(cookie);
}

fn noise<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Malformed> {
    let len = cursor.u16()?;
    cursor.take(usize::from(len))
}

fn put_noise(out: &mut Vec<u8>, noise: &[u8]) {
    debug_assert!(noise.len() <= usize::from(u16::MAX));
    out.extend((noise.len() as u16).to_be_bytes());
    out.extend(noise);
}

/// The flags of a data packet.
const PHASE: u8 = 1;
const RETRANSMITTED: u8 = 2;
const CONTROL: u8 = 4;
const ACK_NOW: u8 = 8;

/// Place of the receiver's id in every packet except an initiation.
pub(crate) const ID_OFFSET: u32 = 1;
/// The high half of the first byte is the kind of a packet.
pub(crate) const KIND_MASK: u8 = 0xf0;
/// The kind of an initiation in it.
pub(crate) const INITIATION_KIND: u8 = INITIATION << 4;

const INITIATION: u8 = 1;
const RETRY: u8 = 2;
const RESPONSE: u8 = 3;
const DATA: u8 = 4;
const VERSIONS: u8 = 5;
const GROUP: u8 = 6;
const RESET: u8 = 7;
