//! What a push reports.

/// A record that is on a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a sleeping sender has to be notified"]
pub struct Pushed {
    /// Its place in the ring.
    pub index: u64,
    /// Its number, which names it in drops, edits and fates.
    pub seq: u64,
    /// The sender sleeps, and this call is the one that has to notify it.
    pub notify: bool,
}

/// How a record took the place of an older one with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The older record's bytes and descriptor were overwritten; it keeps its place in the queue.
    InPlace(Pushed),
    /// The older one was dropped ([`SUPERSEDED`](crate::Reason::Superseded)) and the new one pushed behind all others.
    Superseded(Pushed),
    /// There was no unsent record with this key, or the sender took it just now: the new one was pushed.
    Appended(Pushed),
}

impl Replaced {
    /// The new record, whichever way it went.
    pub fn pushed(&self) -> Pushed {
        match *self {
            Self::InPlace(pushed) | Self::Superseded(pushed) | Self::Appended(pushed) => pushed,
        }
    }
}
