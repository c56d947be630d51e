//! What the two handshake messages carry inside.

use crate::config::ConnectionConfig;
use crate::crypto::{Protection, ResetToken};
use crate::wire::{Cursor, Frame, Frames, Malformed, Parameters, Qos, VERSION};

use super::Refusal;

/// The answer to an initiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The responder's number for the connection, and its parameters.
    Accepted(u32, Parameters),
    Refused(Refusal),
}

impl Answer {
    //= spec/a1.md A1-HS-4
    pub(super) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        if payload.first() != Some(&ACCEPTED) {
            return match Frames::new(payload).next().ok_or(Malformed::Truncated)?? {
                Frame::Close { code, reason } => Ok(Self::Refused(Refusal { code, text: reason.to_owned() })),
                _ => Err(Malformed::OutOfBounds("answer")),
            };
        }
        let mut cursor = Cursor::new(payload);
        cursor.u8()?;
        Ok(Self::Accepted(cursor.u32()?, Parameters::read(&mut cursor)?))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Accepted(id, parameters) => {
                out.push(ACCEPTED);
                out.extend(id.to_be_bytes());
                parameters.put(out);
            }
            Self::Refused(refusal) => {
                Frame::Close { code: refusal.code, reason: &refusal.text }.put(out);
            }
        }
    }
}

/// What both ends mix into the handshake of the initiator that has chosen the number `id`: a message that was made for
/// another version, number or cookie is not understood.
//= spec/a1.md A1-HS-1
pub(super) fn prologue(id: u32, cookie: &[u8]) -> Vec<u8> {
    [LABEL, &VERSION.to_be_bytes(), &id.to_be_bytes(), cookie].concat()
}

/// What an end tells the other.
pub(super) fn parameters(
    config: &ConnectionConfig,
    protection: Protection,
    qos: Qos,
    reset: ResetToken,
) -> Parameters {
    Parameters {
        idle_timeout: config.idle_timeout,
        ack_delay: config.ack_delay,
        max_datagram: config.largest_datagram(),
        protection: protection.code(),
        maximum: config.maximum,
        qos,
        reset: Some(reset),
    }
}

const LABEL: &[u8] = b"freshwire a1";

/// The first byte of an answer that is no CLOSE.
const ACCEPTED: u8 = 0;
