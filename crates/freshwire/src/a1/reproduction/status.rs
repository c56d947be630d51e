use std::fmt;

use freshwire_a1::Closed;

use crate::a1::codes::CODE_DONE;
use crate::a1::connection::Connection;
use crate::a1::status::QosNews;

/// Status of a [`Socket`](super::Socket), or of one of its calls: a set of flags in 32 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Status(u32);

impl Status {
    /// The received data starts a message.
    pub const START: Self = Self(1);
    /// The received data ends a message.
    pub const END: Self = Self(1 << 1);
    /// A peer has closed its connection.
    pub const PEER_CLOSED: Self = Self(1 << 2);
    /// A connection has ended in another way.
    pub const ABORTED: Self = Self(1 << 3);
    /// A message waits because the receiver's window is full. After a send: a sink had no space and misses
    /// the message.
    pub const WINDOW_EXCEEDED: Self = Self(1 << 4);
    /// A message waits for the agreed rate.
    pub const RATE_EXCEEDED: Self = Self(1 << 5);
    /// A change of the quality of service is pending.
    pub const QOS_PENDING: Self = Self(1 << 6);
    /// The quality of service has changed since it was last reported.
    pub const QOS_CHANGED: Self = Self(1 << 7);
    /// A sink misses the message, which exceeds the size agreed with it.
    pub const TOO_LARGE: Self = Self(1 << 8);
    /// A sink misses a message that was sent: it was lost without retransmission, a narrower agreement came
    /// first, or the connection ended.
    pub const GIVEN_UP: Self = Self(1 << 9);

    /// The 32 bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether there is no indication.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is among these.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// All of these and of `other`.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but for `other`.
    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What holds messages of a connection back, and whether a change of its quality of service is pending.
    pub(super) fn held(connection: &Connection) -> Self {
        let held = connection.held();
        let mut status = Self::default();
        status.set(Self::WINDOW_EXCEEDED, held.window_exceeded);
        status.set(Self::RATE_EXCEEDED, held.rate_exceeded);
        status.set(Self::QOS_PENDING, held.qos_pending);
        status
    }

    pub(super) fn of_news(news: QosNews) -> Self {
        let mut status = Self::default();
        status.set(Self::QOS_PENDING, news.pending);
        status.set(Self::QOS_CHANGED, news.changed);
        status
    }

    /// How a connection has ended.
    pub(super) fn of_end(closed: &Closed) -> Self {
        let is_orderly = matches!(closed, Closed::Peer { code: CODE_DONE, .. });
        if is_orderly { Self::PEER_CLOSED } else { Self::ABORTED }
    }

    /// Adds `other` if `is_so`.
    pub(super) fn set(&mut self, other: Self, is_so: bool) {
        if is_so {
            self.0 |= other.0;
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| name);
        formatter.debug_set().entries(names).finish()
    }
}

/// By bit.
const NAMES: [&str; 10] = [
    "start",
    "end",
    "peer closed",
    "aborted",
    "window exceeded",
    "rate exceeded",
    "qos pending",
    "qos changed",
    "too large",
    "given up",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indications_stand_side_by_side() {
        let both = Status::START.and(Status::QOS_CHANGED);
        assert!(both.contains(Status::START) && !both.contains(Status::START.and(Status::END)));
        assert_eq!((both.bits(), Status::default().is_empty()), (0x81, true));
        assert_eq!(format!("{both:?}"), r#"{"start", "qos changed"}"#);
    }
}
