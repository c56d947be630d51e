//! Late choice at the receiver: which datagram goes when memory is full or a datagram has expired.

use std::fmt;
use std::time::Duration;

use freshwire_record::Timestamp;

/// What a policy knows of a datagram that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When the datagram came into the program's memory or, where the kernel stamped it, into the machine;
    /// `CLOCK_MONOTONIC`.
    pub arrived: Timestamp,
    /// When it is worth nothing any more; [`Timestamp::MAX`] for never.
    pub expires: Timestamp,
    /// The key that the application gave it, if any.
    pub key: Option<u64>,
    /// Payload in bytes.
    pub len: usize,
}

/// What an application says of a datagram as it comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Datagrams of equal key replace each other, the newer one the older one, under [`Policy::LatestByKey`].
    pub key: Option<u64>,
    /// Worth nothing after this long from its arrival; `None` takes the policy's.
    pub lifetime: Option<Duration>,
}

/// An application's reading of a datagram: its key and lifetime. Called once for each datagram that is kept in the
/// program's memory, perhaps on the pusher's thread: it should be short, and must not call the receiver.
pub type Classify = Box<dyn FnMut(&[u8]) -> Tag + Send>;

/// An application's choice when memory is full: `incoming` came last, `waiting` are in order of arrival. Returns the
/// index in `waiting` of the datagram to drop, or `None` to drop the incoming one. An index that does not exist drops
/// the incoming one as well. Called until there is room, perhaps on the pusher's thread.
pub type Choose = Box<dyn FnMut(&Waiting, &mut dyn Iterator<Item = Waiting>) -> Option<usize> + Send>;

/// What goes when the program's memory is full, or a datagram has expired.
#[derive(Default)]
pub enum Policy {
    /// The datagram that comes last, as in the kernel's buffer.
    #[default]
    Newest,
    /// The datagram that has waited longest.
    Oldest,
    /// Whatever is older than this; if memory is full all the same, the datagram that has waited longest. Nothing
    /// past its deadline is ever returned.
    Deadline(Duration),
    /// An older datagram of the same key, as soon as a newer one comes: at most one of each key waits. If memory is
    /// full all the same, the datagram that has waited longest. Needs a [`Classify`] that gives keys.
    LatestByKey,
    /// The application's choice.
    Custom(Choose),
}

impl Policy {
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        match self {
            Self::Deadline(lifetime) => Some(*lifetime),
            _ => None,
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("Newest"),
            Self::Oldest => f.write_str("Oldest"),
            Self::Deadline(lifetime) => f.debug_tuple("Deadline").field(lifetime).finish(),
            Self::LatestByKey => f.write_str("LatestByKey"),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Why a datagram in the program's memory was dropped. A receiver has no layers, references or commit point, so these are not
/// the reasons of records in a sender's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It came last and memory was full.
    Full,
    /// It had waited longest and memory was full.
    Oldest,
    /// Its deadline passed before it was read.
    Expired,
    /// A newer datagram of its key came.
    Superseded,
    /// The application's function chose it.
    Chosen,
}

impl Reason {
    /// All reasons, in the order of [`Drops::of`]'s counters.
    pub const ALL: [Self; 5] = [Self::Full, Self::Oldest, Self::Expired, Self::Superseded, Self::Chosen];
}

/// Datagrams dropped in the program's memory, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; 5]);

impl Drops {
    /// How many were dropped for this reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// How many were dropped altogether.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }
}
