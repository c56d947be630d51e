use std::fmt;

use freshwire_units::Timestamp;

/// What a policy sees of one queued record. The payload stays in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// Handle that the owner of the queue put in; policies do not read it.
    pub index: u64,
    /// Number of the record in the order in which the application offered it.
    pub seq: u64,
    /// Payload bytes.
    pub len: u32,
    /// Rank in a layered stream: 0 is the base, a higher layer is dropped first.
    pub layer: u8,
    /// Records that are decodable together: a window, a group of pictures.
    pub group: u32,
    /// Records with the same key replace each other; 0 is no key.
    pub key: u64,
    /// Distances back in `seq` to the records this one depends on; 0 is none.
    pub refs: [u32; 2],
    /// When the content came into being.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_units::timestamp"))]
    pub generated: Timestamp,
    /// When the record has to be complete at the receiver; [`Timestamp::MAX`] is never.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_units::timestamp"))]
    pub deadline: Timestamp,
}

impl Record {
    /// A record of which nothing is known but its number: it is empty, depends on nothing and is of use for ever.
    pub const fn numbered(seq: u64) -> Self {
        Self {
            index: 0,
            seq,
            len: 0,
            layer: 0,
            group: 0,
            key: 0,
            refs: [0; 2],
            generated: Timestamp::ZERO,
            deadline: Timestamp::MAX,
        }
    }

    /// Sequence numbers of the records this one depends on. A distance that reaches before number 0 yields `None`:
    /// no such record can exist.
    pub fn references(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.refs
            .iter()
            .filter(|&&distance| distance != 0)
            .map(|&distance| self.seq.checked_sub(u64::from(distance)))
    }

    /// True if the record depends on nothing: decoding can begin here.
    pub fn is_key(&self) -> bool {
        self.refs == [0, 0]
    }
}

/// Why a record was dropped. The numbers are those of the ring ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// Its deadline had passed.
    Expired = 1,
    /// It was predicted to arrive after its deadline.
    PredictedLate = 2,
    /// Its time window had ended.
    WindowEnd = 3,
    /// Its layer was shed so that more important records get through.
    LayerShed = 4,
    /// A newer record took its place.
    Superseded = 5,
    /// A record that it depends on was dropped.
    ReferenceLost = 6,
    /// The application dropped it.
    Application = 7,
    /// Its sending was abandoned at a chunk boundary.
    Abandoned = 8,
    /// The ring or the connection was closed before its sending started.
    Closed = 9,
    /// The sender went away.
    SenderLost = 10,
    /// The process that held it for editing went away.
    HolderLost = 11,
    /// Its descriptor was not valid.
    Invalid = 12,
    /// The connection broke.
    ConnectionLost = 13,
}

impl Reason {
    /// Every reason, in the order of the codes.
    pub const ALL: [Self; 13] = [
        Self::Expired,
        Self::PredictedLate,
        Self::WindowEnd,
        Self::LayerShed,
        Self::Superseded,
        Self::ReferenceLost,
        Self::Application,
        Self::Abandoned,
        Self::Closed,
        Self::SenderLost,
        Self::HolderLost,
        Self::Invalid,
        Self::ConnectionLost,
    ];

    /// The number used in the ring ABI.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name used in logs, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::PredictedLate => "predicted-late",
            Self::WindowEnd => "window-end",
            Self::LayerShed => "layer-shed",
            Self::Superseded => "superseded",
            Self::ReferenceLost => "reference-lost",
            Self::Application => "application",
            Self::Abandoned => "abandoned",
            Self::Closed => "closed",
            Self::SenderLost => "sender-lost",
            Self::HolderLost => "holder-lost",
            Self::Invalid => "invalid",
            Self::ConnectionLost => "connection-lost",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Reason> for u8 {
    fn from(reason: Reason) -> Self {
        reason.code()
    }
}

impl TryFrom<u8> for Reason {
    type Error = UnknownReason;

    fn try_from(code: u8) -> Result<Self, UnknownReason> {
        let position = usize::from(code).wrapping_sub(1);
        Self::ALL.get(position).copied().ok_or(UnknownReason(code))
    }
}

/// The number is not the code of a [`Reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a drop reason; codes are 1 to 13")]
pub struct UnknownReason(pub u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reasons_are_inverse() {
        for code in 0..=u8::MAX {
            match Reason::try_from(code) {
                Ok(reason) => assert_eq!(u8::from(reason), code),
                Err(error) => {
                    assert!(code == 0 || code > 13);
                    assert_eq!(error, UnknownReason(code));
                }
            }
        }
        assert_eq!(Reason::try_from(13).map(|reason| reason.to_string()), Ok("connection-lost".to_owned()));
    }
}
