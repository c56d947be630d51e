use crate::Timestamp;

/// Description of a record, given by the application with the push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The application's own number; it names the record in drops, edits and fates. Default:
    /// [`NEXT_SEQ`](Self::NEXT_SEQ), the sender counts from 0 and returns the number.
    pub seq: u64,
    /// When the data came into being.
    pub generated: Timestamp,
    /// When it loses its value; [`Timestamp::MAX`] for never.
    pub deadline: Timestamp,
    /// Rank in a layered stream, 0 = base.
    pub layer: u8,
    /// Records that are decodable together.
    pub group: u32,
    /// Records of which a newer one replaces an older one; 0 = none.
    pub key: u64,
    /// How far back in `seq` the records lie that this one depends on; 0 = none.
    pub refs: [u32; 2],
}

impl Meta {
    /// Number of a record that has yet to get one: one more than that of the record before it.
    pub const NEXT_SEQ: u64 = u64::MAX;
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            seq: Self::NEXT_SEQ,
            generated: Timestamp::ZERO,
            deadline: Timestamp::MAX,
            layer: 0,
            group: 0,
            key: 0,
            refs: [0; 2],
        }
    }
}

/// A record in a queue: its description, place and length. A type apart from [`Meta`], because only the queue knows the place
/// and only the payload the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// Place in its queue, by which the owner of the queue names it. In a ring it grows by the slots of each record and is
    /// never used again. Policies do not read it.
    pub index: u64,
    /// The application's number. Policies take it for the order in which the records were offered.
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
    pub generated: Timestamp,
    /// When the record has to be complete at the receiver; [`Timestamp::MAX`] is never.
    pub deadline: Timestamp,
}

impl Record {
    /// A record with `len` bytes of payload that is in no queue yet: its index is 0.
    pub const fn of(meta: &Meta, len: u32) -> Self {
        let &Meta { seq, generated, deadline, layer, group, key, refs } = meta;
        Self { index: 0, seq, len, layer, group, key, refs, generated, deadline }
    }

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
