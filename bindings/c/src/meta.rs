//! Descriptions of records. Times are nanoseconds.

use freshwire::{Meta, Timestamp};

/// Description of a record. A structure of zeros is a record without key or deadline, generated now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_meta {
    /// The application's number; 0 is the sender's next one, which is one more than the last, and 0 at first.
    pub seq: u64,
    /// When the data came into being; 0 is now.
    pub generated: u64,
    /// When it loses its value; 0 is never.
    pub deadline: u64,
    /// Records of which a newer one replaces an older one; 0 is no key.
    pub key: u64,
    /// Records that are decodable together.
    pub group: u32,
    /// Distances back in `seq` to the records that it depends on; 0 is none.
    pub refs: [u32; 2],
    /// Rank in a layered stream; 0 is the base.
    pub layer: u8,
}

impl fw_meta {
    pub(crate) fn meta(&self) -> Meta {
        let or = |time: u64, default: fn() -> Timestamp| match time {
            0 => default(),
            time => Timestamp::from_nanos(time),
        };
        Meta {
            seq: if self.seq == 0 { Meta::NEXT_SEQ } else { self.seq },
            generated: or(self.generated, freshwire::now),
            deadline: or(self.deadline, || Timestamp::MAX),
            layer: self.layer,
            group: self.group,
            key: self.key,
            refs: self.refs,
        }
    }
}
