//! What ends a connection as the peer's fault.

use crate::inbox::Rejected;
use crate::outbox::NotSent;
use crate::recovery::AckError;
use crate::wire::Malformed;

/// A rule of the protocol that the peer broke; see `spec/a1.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame that cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message above the number or the bytes that this end has granted.
    #[error("a message beyond the window")]
    Window,
    /// A message larger than the quality of service permits.
    #[error("a message larger than agreed")]
    MessageTooLarge,
    /// Two blocks of a message that say different things of it.
    #[error("blocks that contradict each other")]
    Contradiction,
    /// A message in more pieces than a sender that fills its packets makes.
    #[error("a message in too many pieces")]
    TooManyPieces,
    /// The acknowledgement of a packet that was never sent, by its number.
    #[error("packet {0} is acknowledged and was never sent")]
    NeverSent(u64),
    /// The acknowledgement of a message of which not all was sent.
    #[error("peer acknowledged a message that has not been fully sent")]
    NotFullySent,
    /// More ACK and NACK frames in a packet than can be of use.
    #[error("too many acknowledgements in a packet")]
    TooManyAcknowledgements,
    /// More multicast groups than a connection can have.
    #[error("more groups than a connection can have")]
    TooManyGroups,
}

impl Violation {
    /// The code of the CLOSE frame that tells the peer.
    //= spec/a1.md A1-END-1
    pub const CODE: u64 = 1;
}

impl From<Rejected> for Violation {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Window => Self::Window,
            Rejected::TooLarge => Self::MessageTooLarge,
            Rejected::Contradiction => Self::Contradiction,
            Rejected::Scattered => Self::TooManyPieces,
        }
    }
}

impl From<NotSent> for Violation {
    fn from(_: NotSent) -> Self {
        Self::NotFullySent
    }
}

impl From<AckError> for Violation {
    fn from(AckError::NeverSent(number): AckError) -> Self {
        Self::NeverSent(number)
    }
}
